"""The scorer and the audit task in Inspect itself, with its mock model."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from byrote.errors import ConfigError
from byrote.longform.options import INSTRUCTIONS
from byrote.longform.recall import nv_recall
from tests.report.synthetic_run import prose

BOOK, UNSEEN = prose(1, 4000), prose(2, 4000)
ANSWER_WORDS = 60


def test_without_inspect_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.delitem(sys.modules, "byrote.integrations.inspect_ai", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'byrote\[inspect\]'"):
        import_module("byrote.integrations.inspect_ai")


@pytest.fixture
def inspect_ai(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    found = pytest.importorskip("inspect_ai", reason="Inspect is not installed (byrote[inspect])")
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("INSPECT_TRACE_FILE", str(tmp_path / "trace.log"))
    return found


@pytest.fixture
def books(tmp_path: Path) -> tuple[Path, Path]:
    for name, text in (("book.txt", BOOK), ("unseen.txt", UNSEEN)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "book.txt", tmp_path / "unseen.txt"


def output(text: str) -> Any:
    """With a count of tokens, for which the mock model would ask the network."""
    from inspect_ai.model import ModelOutput, ModelUsage

    answer = ModelOutput.from_content("mockllm/model", text)
    answer.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return answer


def by_heart(messages: list[Any], tools: Any, choice: Any, config: Any) -> Any:
    """Goes on with the book by sixty words at a time, until the book ends; other texts it does not know."""
    words = BOOK.split()
    said = messages[0].text.removeprefix(INSTRUCTIONS["plain"]).split()
    for message in messages[1:]:
        said += message.text.split() if message.role == "assistant" else []
    assert config.max_tokens in (500, 1000)
    if said != words[: len(said)]:
        return output("I do not know this text, sorry.")
    answer = words[len(said) : len(said) + ANSWER_WORDS]
    return output(" ".join(answer) if answer else "THE END")


def evaluate(inspect_ai: Any, task: Any, outputs: Any) -> Any:
    from inspect_ai.model import get_model

    model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
    (log,) = inspect_ai.eval(task, model=model, display="none")
    assert log.status == "success", log.error
    return log


@pytest.mark.filterwarnings("ignore")
def test_an_audit_finds_the_book_that_the_model_knows_and_not_the_other(
    inspect_ai: Any, books: tuple[Path, Path]
) -> None:
    from byrote.integrations.inspect_ai import audit

    log = evaluate(inspect_ai, audit(str(books[0]), control=str(books[1])), by_heart)
    scores = {sample.id: sample.scores["nv_recall"] for sample in log.samples}
    words = len(BOOK.split())
    # All but the fifty words that it was given.
    assert scores["book.txt"].value == pytest.approx((words - 50) / words, abs=0.02)
    assert scores["unseen.txt"].value == 0
    stops = {sample.id: sample.metadata["stop"] for sample in log.samples}
    assert stops == {"book.txt": "end_of_book", "unseen.txt": "phase_1_failed"}
    shown = {name: metric.value for score in log.results.scores for name, metric in score.metrics.items()}
    assert shown["target"] == pytest.approx(scores["book.txt"].value)
    assert shown["control"] == 0
    assert UNSEEN[-200:] not in log.model_dump_json(), "a log has no more of a book than was sent or answered"


@pytest.mark.filterwarnings("ignore")
def test_turns_are_limited_as_asked(inspect_ai: Any, books: tuple[Path, Path]) -> None:
    from byrote.integrations.inspect_ai import audit

    log = evaluate(inspect_ai, audit(str(books[0]), max_turns=2), by_heart)
    (sample,) = log.samples
    assert sample.metadata["turns"] == 2
    assert sample.metadata["stop"] == "query_budget"
    words = BOOK.split()
    expected = nv_recall(BOOK, " ".join(words[50 : 50 + 3 * ANSWER_WORDS])).nv_recall
    assert sample.scores["nv_recall"].value == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore")
def test_the_scorer_measures_answers_of_any_task_against_their_targets(inspect_ai: Any) -> None:
    from inspect_ai.dataset import Sample

    from byrote.integrations.inspect_ai import nv_recall as scorer

    words = BOOK.split()[:300]
    half = " ".join(words[:150])
    task = inspect_ai.Task(dataset=[Sample("Recite.", target=" ".join(words))], scorer=scorer())
    log = evaluate(inspect_ai, task, [output(half)])
    score = log.samples[0].scores["nv_recall"]
    assert score.value == pytest.approx(0.5)
    assert score.metadata["matched_words"] == 150
