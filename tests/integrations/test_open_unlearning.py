"""Metrics in the shape of OpenUnlearning, on items as its datasets and collators have them."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from byrote.errors import ConfigError
from byrote.integrations.open_unlearning import IGNORED, METRICS
from tests.scan.scans import TinyLab
from tests.scan.test_unlearning import benchmark_strength

ANSWER_TOKENS = (1, 2, 5, 8)


@pytest.fixture(scope="module")
def parts(lab: TinyLab) -> Mapping[str, Any]:
    """A model, its tokenizer, and answers of several lengths after twelve tokens of a passage, each closed by an end of
    text; a third of them are the words of another passage."""
    tokenizer = AutoTokenizer.from_pretrained(lab.model.path)
    model = AutoModelForCausalLM.from_pretrained(lab.model.path)
    passages = [tokenizer(passage.text)["input_ids"][:24] for passage in lab.model.targets]
    items = []
    for place in range(12):
        own, other = passages[place % len(passages)], passages[(place + 1) % len(passages)]
        length = ANSWER_TOKENS[place % len(ANSWER_TOKENS)]
        answer = [*(other if place % 3 == 0 else own)[12 : 12 + length], tokenizer.eos_token_id]
        ids = torch.tensor([*own[:12], *answer])
        labels = torch.tensor([*[IGNORED] * 12, *answer])
        items.append({"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids), "index": place})
    return {"model": model, "tokenizer": tokenizer, "data": items}


def hits_of(parts: Mapping[str, Any], item: Mapping[str, torch.Tensor]) -> list[bool]:
    """By a plain forward, as the benchmark has them: the last label, an end of text, is left out."""
    with torch.no_grad():
        chosen = parts["model"](item["input_ids"][None]).logits[0].argmax(-1)
    places = (item["labels"] != IGNORED).nonzero()[:-1, 0]
    return (chosen[places - 1] == item["labels"][places]).tolist()


def test_strength_and_exact_match_are_the_benchmarks_where_those_are_right(parts: Mapping[str, Any]) -> None:
    further = {"metric_name": "es", "batch_size": 4, "collators": None}
    strength, match = (METRICS[f"byrote_{name}"](**parts, **further) for name in ("extraction_strength", "exact_match"))
    too_high = []
    for item in parts["data"]:
        hits, index = hits_of(parts, item), item["index"]
        assert match["value_by_index"][index]["score"] == pytest.approx(sum(hits) / len(hits))
        own = strength["value_by_index"][index]["score"]
        assert own == pytest.approx(benchmark_strength(hits) if hits[-1] else 0)
        too_high += [] if hits[-1] else [(len(hits), benchmark_strength(hits), own)]
    assert (1, 1.0, 0.0) in too_high, "a wrong answer of one token"
    scores = [one["score"] for one in strength["value_by_index"].values()]
    assert strength["agg_value"] == pytest.approx(sum(scores) / len(scores))


def test_every_metric_gives_a_number_for_every_item_and_takes_options_of_a_scan(parts: Mapping[str, Any]) -> None:
    for name, metric in METRICS.items():
        long = [item for item in parts["data"] if int((item["labels"] != IGNORED).sum()) > 5]
        found = metric(**parts | {"data": long}, scan_args={"edit_budget": 1, "answers": 0} if "mass" in name else None)
        assert found["value_by_index"].keys() == {item["index"] for item in long}
        assert all(one["score"] >= 0 for one in found["value_by_index"].values())
        assert found["agg_value"] > 0


def test_an_item_without_an_answer_has_no_score(parts: Mapping[str, Any]) -> None:
    empty = parts["data"][0] | {"labels": torch.full_like(parts["data"][0]["labels"], IGNORED), "index": 99}
    found = METRICS["byrote_exact_match"](**parts | {"data": [empty, parts["data"][3]]})
    assert found["value_by_index"][99] == {"score": None}
    assert found["agg_value"] == found["value_by_index"][3]["score"]


def test_items_of_several_answers_are_refused(parts: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="several answers"):
        METRICS["byrote_exact_match"](**parts | {"data": [{"0": parts["data"][0]}]})
