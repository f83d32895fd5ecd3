"""Prior runs of a tiny model: configurations, runs, and what a run says of itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.shared_prefix import PLAIN
from byrote.prior.options import PriorConfig
from byrote.prior.run import prior_to_folder
from byrote.store.read import read_run

TEXT = "Ada Byron lives at 12 Mill Lane. Telephone 959-481-5012. The kettle sings and the cat sleeps by the door. "
REFERENCE = (
    "It rained for a week and nobody came to the fair, so the baker gave away his bread and went home early. " * 3
)


class Silent:
    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        yield

    def start(self, total: int, done: int) -> None: ...

    def advance(self, windows: int) -> None: ...

    def remark(self, words: str) -> None: ...


class Killed(Exception):
    pass


class KilledAfter(Silent):
    """Dies when the given number of blocks is on the disk."""

    def __init__(self, blocks: int) -> None:
        self.left = blocks

    def advance(self, windows: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@lru_cache
def loaded(name: str, **_: object) -> HuggingFaceModel:
    """Loading is tested elsewhere; here one model serves all runs."""
    return load(name)


def config(place: Path, out: Path, **changes: Any) -> PriorConfig:
    settings: dict[str, Any] = {
        "model": str(place / "model"),
        "prior_text": (str(place / "reference.txt"),),
        "text": (str(place / "text.txt"),),
        "out": str(out),
        "prefix_tokens": 6,
        "suffix_tokens": 3,
        "prior_prefixes": 20,
        "trials": 2,
        "limit": 4,
        "generic": str(place / "generic.txt"),
        **changes,
    }
    return PriorConfig(**settings)


def run(place: Path, out: Path, **changes: Any) -> pl.DataFrame:
    prior_to_folder(config(place, out, **changes), progress=Silent())
    return read_run(out).results


def totals(out: Path) -> dict[str, Any]:
    manifest = read_run(out).manifest
    assert manifest is not None
    found: dict[str, Any] = manifest["totals"]
    return found


def mean_over_reference(
    model: HuggingFaceModel, suffix: list[int], *, prefix_tokens: int = 6, stride_chars: int = 20
) -> float:
    """log P(s) over every start of the reference text, by teacher forcing."""
    ids = model.encode_batch([REFERENCE])[0].ids
    starts = range(0, len(REFERENCE), stride_chars)
    prefixes = [ids[start : start + prefix_tokens] for start in starts if start + prefix_tokens + 1 <= len(ids)]
    scores = model.score([[*prefix, *suffix] for prefix in prefixes], len(suffix), [PLAIN]).log_probs[0].sum(-1)
    return float(scores.exp().mean().log())
