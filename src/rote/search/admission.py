"""What enters a slot: windows checked against the engine's limits, and the beams they start with."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from rote.distance import Viability
from rote.distance.base import padded_rows
from rote.errors import WindowError
from rote.search.base import Limits, SearchOptions, SearchTask
from rote.search.beam import BeamState
from rote.search.rating import rating_table
from rote.search.scheduler import Slot


def checked_tasks(tasks: Iterable[SearchTask], options: SearchOptions, limits: Limits) -> Iterator[SearchTask]:
    """The tasks as they come, all wanting their states where the options say so; one that does not fit the limits is an
    error that names it."""
    for task in tasks:
        prefix, suffix = len(task.prefix_ids), len(task.suffix_ids)
        if not 1 <= prefix <= limits.prefix_tokens or not 1 <= suffix <= limits.suffix_tokens:
            raise WindowError(
                f"window {task.key} has {prefix} + {suffix} tokens; the engine was opened for at most "
                f"{limits.prefix_tokens} + {limits.suffix_tokens} and needs at least 1 + 1."
            )
        assert task.target_probs is None or len(task.target_probs) == suffix, "one probability per suffix token"
        assert options.record_frontier or not task.wants_states, "states are of use to a frontier only"
        yield replace(task, wants_states=True) if options.keep_states else task


def fresh_state(
    slots: list[Slot], *, options: SearchOptions, viability: Viability, limits: Limits, device: torch.device
) -> BeamState:
    """Every slot holds one beam, the empty continuation."""
    lanes, count = options.lanes, len(slots)
    longest, budget = limits.suffix_tokens, options.edit_budget
    suffixes = [slot.task.suffix_ids for slot in slots]
    log_p = torch.full((count, lanes), -math.inf, dtype=torch.float64)
    log_p[:, 0] = 0.0
    is_verbatim = torch.zeros(count, lanes, dtype=torch.bool)
    is_verbatim[:, 0] = True
    rating = torch.zeros(count, longest + 1 if options.rank_by == "rating" else 1, budget + 1).double()
    for row, slot in enumerate(slots):
        if options.rank_by == "rating" and slot.task.target_probs is not None:
            table = rating_table(slot.task.target_probs, budget)
            rating[row, : len(table)] = torch.from_numpy(table)
    host = torch.device("cpu")
    fresh = BeamState(
        log_p=log_p,
        edits=viability.initial(host).expand(count, lanes, -1).clone(),
        paths=torch.zeros(count, lanes, longest, dtype=torch.int64),
        least=torch.zeros(count, lanes, dtype=torch.int16),
        is_verbatim=is_verbatim,
        step=torch.zeros(count, dtype=torch.int64),
        length=torch.tensor([len(suffix) for suffix in suffixes]),
        target=padded_rows(suffixes, longest),
        padded=viability.pad(suffixes, longest, host),
        rating=rating,
        bank=torch.zeros(count, budget + 1, dtype=torch.float64),
        unlisted=torch.zeros(count, budget + 1, dtype=torch.float64),
        eos=torch.zeros(count, dtype=torch.float64),
        refuted=torch.zeros(count, dtype=torch.float64),
    )
    return fresh.on(device)
