"""Are the bounds of texts true? Plain sampling, decoded, normalised and compared, beside bounds by `--unit text`.

    PYTHONPATH=src:bench python bench/text_sampling.py MODEL … --texts FILE … [--windows 20] [--answers 20000]

Candidates are searched to the end, and windows of four kinds sampled in turn: `writings` (other tokens than the text's
own, or other line breaks and quotes, write it with a mass of `LEAST_OTHER` or more: mass_lower[0] − p_z), `verbatim`
(p_z ≥ τ), `near` (only with edits), and `ordinary` text. Nothing of the search is used for the answers: the library's
model and cache, the largest logits, torch's multinomial. An answer is dropped once the least number of its row in the
textbook table is beyond the budget; one that is not complete after twice the tokens of the target is undecided.

Every window and budget, and its hits by other writings alone, are judged from both sides: by the exact binomial chance
of so few hits at the lower bound (undecided answers counted as hits) and of so many at the upper one, against `LEVEL`
shared by all of them.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

import environment
from byrote.corpus.read import read_documents
from byrote.corpus.select import select_windows
from byrote.corpus.text_windows import TextWindowOptions
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.hf.weights import read_tokenizer
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.search.base import TOKENS_PER_TARGET_TOKEN
from byrote.types import Split, Window

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.distance.plain_text import plain_normal_form

Ints = NDArray[np.int64]
LEVEL = 0.001
"""The chance that true bounds are contradicted anywhere, at most: Bonferroni over windows, budgets and sides."""
CHECKED_EVERY = 16
"""Tokens between two looks at which answers are decided."""
LEAST_OTHER = 0.0005
OPEN = -1
"""In place of the distance of an answer that is not decided."""
KINDS = ("writings", "verbatim", "near", "ordinary")
CONFIG = RunConfig(unit="text", screen="off", stop_rule="off", measures=("verbatim", "near"), answers=0, keep=3)


class Goal(NamedTuple):
    """What answers are compared with."""

    tokenizer: str
    eos_ids: frozenset[int]
    own_ids: tuple[int, ...]
    """The target's own tokens."""
    target: str
    """In normal form."""
    budget: int


TOKENIZERS: dict[str, Any] = {}
"""By the folder of their model; the processes that compare answers are forked with them."""


def distances(goal: Goal, answers: Ints) -> Ints:
    """Of answers [rows, tokens], cut at their first end-of-text token: edits, budget + 1 for more, or OPEN; and whether
    they begin with the target's own tokens. [rows, 2]"""
    decode = TOKENIZERS[goal.tokenizer].decode
    written: dict[tuple[tuple[int, ...], bool], int] = {}
    rows = []
    for ids in map(tuple, answers.tolist()):
        end = next((place for place, token in enumerate(ids) if token in goal.eos_ids), None)
        rows.append(written.setdefault((ids[:end], end is not None), len(written)))
    has_ended = np.array([ended for _, ended in written])
    # A character that the end leaves incomplete is dropped.
    texts = [
        plain_normal_form(decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False).rstrip("\ufffd"))[
            : len(goal.target)
        ]
        for ids, _ in written
    ]
    table = last_rows(texts, goal.target)
    is_whole = has_ended | (np.array([len(text) for text in texts]) == len(goal.target))
    is_lost = table.min(1) > goal.budget
    found = np.where(is_whole, table[:, -1].clip(max=goal.budget + 1), np.where(is_lost, goal.budget + 1, OPEN))
    is_own = np.array([ids[: len(goal.own_ids)] == goal.own_ids for ids, _ in written])
    return np.stack([found, is_own], 1)[rows]


def last_rows(texts: list[str], target: str) -> NDArray[np.int16]:
    """The textbook table's last row of each text, D[i, 0 … L] for all its i characters. [texts, L + 1]"""
    lengths, goal = np.array([len(text) for text in texts]), code_points(target)[:, None]
    shifts = [np.int16(1 << power) for power in range(len(target).bit_length())]
    codes = np.zeros((lengths.max(initial=0), len(texts)), dtype=np.int32)
    for column, text in enumerate(texts):
        codes[: len(text), column] = code_points(text)
    table = np.tile(np.arange(len(target) + 1, dtype=np.int16)[:, None], len(texts))  # [columns, texts]
    for place, characters in enumerate(codes):
        fresh = table + np.int16(1)
        fresh[1:] = np.minimum(fresh[1:], table[:-1] + (characters != goal))
        for shift in shifts:  # D[i, j] ≤ D[i, j − s] + s
            fresh[shift:] = np.minimum(fresh[shift:], fresh[:-shift] + shift)
        table = np.where(place < lengths, fresh, table)
    return table.T


def code_points(text: str) -> NDArray[np.int32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.int32)


class RoomyLayer(DynamicLayer):
    """The library's layer of a cache, at the beginning of a tensor with room for whole answers: a new token is written,
    and what was there before is not copied."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._room = most, torch.empty(0, 0)  # [keys and values, answers, heads, most, width]

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        fresh, held = torch.stack([key_states, value_states]), self.get_seq_length()
        if self._room.shape[1] != fresh.shape[1]:
            self._room = fresh.new_empty(*fresh.shape[:3], self._most, fresh.shape[-1])
            if held:
                self._room[0, ..., :held, :], self._room[1, ..., :held, :] = self.keys, self.values
        end = held + fresh.shape[-2]
        self._room[..., held:end, :] = fresh
        self.keys, self.values = self._room[..., :end, :]
        return self.keys, self.values


@torch.inference_mode()
def sampled(model: HuggingFaceModel, window: Window, answers: int, goal: Goal, pool: Any) -> Ints:
    """The `distances` of so many answers to the window's prefix, drawn token by token under the scan's policy."""
    policy, longest = CONFIG.policy, TOKENS_PER_TARGET_TOKEN * len(window.suffix_ids)
    assert policy.top_k is not None
    assert policy.top_p is None
    found, left = np.full((answers, 2), OPEN), np.arange(answers)
    most = len(window.prefix_ids) + longest
    cache = Cache(layers=[RoomyLayer(most) for _ in range(model.model.config.num_hidden_layers)])
    prefix = torch.tensor([window.prefix_ids], device=model.device)
    logits = model.model(input_ids=prefix, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
    logits = logits.expand(answers, -1)
    cache.batch_repeat_interleave(answers)
    ids = torch.empty(answers, 0, dtype=torch.int64, device=model.device)
    for step in range(1, longest + 1):
        highest, tokens = logits.topk(policy.top_k)
        chosen = torch.multinomial((highest.double() / policy.temperature).softmax(-1), 1)
        newest = tokens.gather(1, chosen)  # [answers, 1]
        ids = torch.cat([ids, newest], 1)
        if step % CHECKED_EVERY == 0 or step == longest:
            parts = np.array_split(ids.cpu().numpy(), 2 * (os.cpu_count() or 1))
            compared = pool.starmap(distances, [(goal, part) for part in parts if len(part)])
            found[left] = np.concatenate(compared)
            is_open = found[left, 0] == OPEN
            left = left[is_open]
            if not len(left):
                break
            if not is_open.all():
                kept = torch.from_numpy(np.flatnonzero(is_open)).to(model.device)
                ids, newest = ids[kept], newest[kept]
                cache.batch_select_indices(kept)
        if step < longest:
            logits = model.model(input_ids=newest, past_key_values=cache, use_cache=True).logits[:, -1]
    return found


def candidates(model: HuggingFaceModel, texts: list[Path], count: int) -> list[tuple[Window, dict[str, Any]]]:
    """Windows of the texts with their rows of a scan."""
    options = TextWindowOptions(CONFIG.prefix_chars, CONFIG.suffix_chars, CONFIG.stride_chars)
    documents, bos_id = read_documents(texts, split=Split.TARGET), model.bos_id(CONFIG.bos)
    windows = select_windows(documents, model, options, bos_id=bos_id, sample=count).windows
    by_id = {window.window_id: window for window in windows}
    rows = (measured.row for measured in Pipeline(model, sized(CONFIG, windows), decode=model.decode).run(windows))
    return [(by_id[row["window_id"]], row) for row in rows]


def sized(config: RunConfig, windows: Iterable[Window]) -> RunConfig:
    """The options with the tokens of the longest prefix and answer of these windows of characters."""
    lengths = [(len(window.prefix_ids), TOKENS_PER_TARGET_TOKEN * len(window.suffix_ids)) for window in windows]
    prefix_tokens, suffix_tokens = map(max, zip(*lengths, strict=True))
    return replace(config, prefix_tokens=prefix_tokens, suffix_tokens=suffix_tokens, edit_budget=config.edits)


def kind_of(row: dict[str, Any]) -> str:
    p_verbatim, near, tau = row["p_verbatim"], row["mass_lower"][-1], CONFIG.threshold
    if row["mass_lower"][0] - p_verbatim >= LEAST_OTHER:
        return "writings"
    return "verbatim" if p_verbatim >= tau else "near" if near >= tau else "ordinary"


def chosen_in_turn(found: list[tuple[Window, dict[str, Any]]], count: int) -> list[tuple[str, Window, dict[str, Any]]]:
    """One window of every kind, another of each, and so on; first those with most mass beside the text's own tokens."""
    by_kind = {kind: [(window, row) for window, row in found if kind_of(row) == kind] for kind in KINDS}
    by_kind["writings"].sort(key=lambda pair: pair[1]["p_verbatim"] - pair[1]["mass_lower"][0])
    turns = sorted((place, KINDS.index(kind)) for kind, own in by_kind.items() for place in range(len(own)))
    return [(KINDS[kind], *by_kind[KINDS[kind]][place]) for place, kind in turns[:count]]


def judged(kind: str, row: dict[str, Any], found: Ints) -> dict[str, Any]:
    """Hits by budget beside the bounds, with the chances of so few and of so many. The last entries are about answers
    without an edit in other tokens than the target's own."""
    answers, undecided = len(found), int((found[:, 0] == OPEN).sum())
    edits, is_own = found[found[:, 0] != OPEN].T
    hits = [int((edits <= budget).sum()) for budget in range(len(row["mass_lower"]))]
    hits.append(int(((edits == 0) & ~is_own.astype(bool)).sum()))
    lower, upper = (
        np.clip([*row[name], row[name][0] - row["p_verbatim"]], 0.0, 1.0) for name in ("mass_lower", "mass_upper")
    )
    few, many = np.array(hits) + undecided, np.array(hits) - 1.0
    return {
        "window_id": row["window_id"],
        "kind": kind,
        "p_verbatim": row["p_verbatim"],
        "answers": answers,
        "undecided": undecided,
        "hits": hits,
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "chance_of_so_few": special.bdtr(few, answers, lower).tolist(),
        "chance_of_so_many": np.where(many < 0, 1.0, special.bdtrc(many, answers, upper)).tolist(),
    }


def summary(windows: list[dict[str, Any]]) -> dict[str, Any]:
    sides = ("chance_of_so_few", "chance_of_so_many")
    chances = np.array([[window[side] for side in sides] for window in windows])  # [windows, sides, entries]
    limit = LEVEL / chances.size
    return {
        "windows": len(windows),
        "kinds": {kind: sum(window["kind"] == kind for window in windows) for kind in KINDS},
        "answers": sum(window["answers"] for window in windows),
        "undecided": sum(window["undecided"] for window in windows),
        "tests": chances.size,
        "familywise_level": LEVEL,
        "least_chance": float(chances.min()),
        "contradictions": [
            f"{windows[place]['window_id']}: {sides[side]}, entry {entry}"
            for place, side, entry in np.argwhere(chances < limit)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--candidates", type=int, default=242)
    parser.add_argument("--windows", type=int, default=20, help="of each model")
    parser.add_argument("--answers", type=int, default=20_000, help="of each window")
    parser.add_argument("--batch", type=int, default=5_000, help="answers drawn at once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no window of a model after these")
    parser.add_argument("--results", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    TOKENIZERS.update({name: read_tokenizer(name, name) for name in chosen.models})
    # Forked before a device is used, and with the tokenizers.
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        results: dict[str, Any] = {"texts": [path.name for path in chosen.texts], "models": {}}
        for name in chosen.models:
            began = time.perf_counter()
            torch.manual_seed(0)
            model = load(name, dtype="float32", device=chosen.device)
            found = candidates(model, chosen.texts, chosen.candidates)
            gc.collect()
            torch.cuda.empty_cache()
            of_model = {"scanned": len(found), "kinds_scanned": {kind: 0 for kind in KINDS}}
            for _, row in found:
                of_model["kinds_scanned"][kind_of(row)] += 1
            print(f"{name}: {of_model} in {time.perf_counter() - began:.1f} s", flush=True)
            measured: list[dict[str, Any]] = []
            for kind, window, row in chosen_in_turn(found, chosen.windows):
                if time.perf_counter() - began > chosen.seconds:
                    break
                target = plain_normal_form(window.suffix_text or "")
                goal = Goal(name, model.eos_ids, window.suffix_ids, target, len(row["mass_lower"]) - 1)
                counts = [
                    len(part) for part in np.array_split(range(chosen.answers), -(-chosen.answers // chosen.batch))
                ]
                answers = [sampled(model, window, count, goal, pool) for count in counts]
                measured.append(judged(kind, row, np.concatenate(answers)))
                of_model |= {"seconds": time.perf_counter() - began, **summary(measured), "by_window": measured}
                results["models"][Path(name).name] = of_model
                environment.save("text_sampling", results, chosen.results)  # what there is, should the run be stopped
                last = measured[-1]
                entries = zip(last["hits"], last["lower"], last["upper"], strict=True)
                exact, *_, near, other = (
                    f"{hits} hits, {low * chosen.answers:.1f} to {high * chosen.answers:.1f}"
                    for hits, low, high in entries
                )
                print(
                    f"{of_model['seconds']:.1f} s {kind} {window.window_id}: exact {exact}; near {near}; "
                    f"other writings {other}; {last['undecided']} undecided",
                    flush=True,
                )
            print({key: value for key, value in of_model.items() if key != "by_window"}, flush=True)


if __name__ == "__main__":
    main()
