"""One step of constrained beam search as a pure function of tensors, for many windows at different depths at once.

Nothing here knows about models, caches or the host: `advance` turns the kept tokens of every beam into the next beams
and says for each slot how many live; `accept` turns the kept tokens of slots at their last step into final masses.
"""

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from byrote.distance import Viability
from byrote.models.memory import to_device
from byrote.policy import Kept
from byrote.search.base import SearchOptions


@dataclass(slots=True)
class BeamState:
    """Beams of many slots; the first dimension of every tensor is the slot. Dead lanes have log-probability −inf."""

    log_p: Tensor  # [slots, lanes] float64
    edits: Tensor  # [slots, lanes, width] int16: viability state
    paths: Tensor  # [slots, lanes, longest suffix] int64: tokens so far
    least: Tensor  # [slots, lanes] int16: no completion is nearer to the target than this
    is_verbatim: Tensor  # [slots, lanes] bool
    step: Tensor  # [slots] int64: tokens in `paths`
    length: Tensor  # [slots] int64: T of each window
    target: Tensor  # [slots, longest suffix] int64
    padded: Tensor  # [slots, …] int64: target in the viability rule's layout
    rating: Tensor  # [slots, longest suffix + 1, budget + 1] float64: log rating by tokens done and edits left
    bank: Tensor  # [slots, budget + 1] float64: by least final distance
    unlisted: Tensor  # [slots, budget + 1] float64: children that were not listed, by their parent's
    eos: Tensor  # [slots] float64
    refuted: Tensor  # [slots] float64

    def on(self, device: torch.device) -> "BeamState":
        """A copy of a state made on the host."""
        return BeamState(*(to_device(getattr(self, field.name), device) for field in fields(self)))

    def take(self, slots: Tensor | slice) -> "BeamState":
        """A copy holding only `slots` (a view when a slice is given)."""
        return BeamState(*(getattr(self, field.name)[slots] for field in fields(self)))

    def put(self, slots: Tensor | slice, other: "BeamState") -> None:
        for field in fields(self):
            getattr(self, field.name)[slots] = getattr(other, field.name)

    def follow(self, count: int, following: "BeamState") -> None:
        """The first `count` slots take one step: only what a step changes is written."""
        for name in STEPPED:
            getattr(self, name)[:count] = getattr(following, name)


STEPPED = ("log_p", "edits", "paths", "least", "is_verbatim", "step", "bank", "unlisted", "eos", "refuted")


class Candidates(NamedTuple):
    """All children of all beams, flattened over lane and kept place."""

    log_p: Tensor  # [slots, lanes · kept] float64
    tokens: Tensor  # [slots, lanes · kept] int64
    edits: Tensor  # [slots, lanes · kept, width] int16
    least: Tensor  # [slots, lanes · kept] int16
    kept: int


class Advance(NamedTuple):
    """The next beams and what the host must know of them."""

    state: BeamState
    parents: Tensor  # [slots, lanes] int64
    alive: Tensor  # [slots, lanes] bool
    is_below_threshold: Tensor  # [slots] bool
    banked: Tensor  # [slots, lanes · kept] float64: log-probability of children banked in this step, −inf elsewhere
    candidates: Candidates


class Accepted(NamedTuple):
    """Final children of slots at their last step."""

    candidates: Candidates
    mass: Tensor  # [slots, lanes · kept] float64, 0 for children that are absent or too far
    distance: Tensor  # [slots, lanes · kept] int16
    lower: Tensor  # [slots, budget + 1] float64
    covered: Tensor  # [slots] float64
    refuted: Tensor  # [slots] float64: refuted mass of the last step
    unlisted: Tensor  # [slots, budget + 1] float64: unlisted children of the last step


def expand(state: BeamState, kept: Kept, viability: Viability) -> Candidates:
    """Children of every beam with their cumulative log-probability and edit state."""
    advanced = viability.advance(
        state.edits, kept.token_ids, padded=state.padded, step=state.step + 1, length=state.length
    )
    return Candidates(
        (state.log_p[..., None] + kept.log_probs).flatten(1),
        kept.token_ids.flatten(1),
        advanced.state.flatten(1, 2),
        advanced.least.flatten(1),
        kept.token_ids.shape[-1],
    )


def advance(
    state: BeamState, kept: Kept, *, options: SearchOptions, viability: Viability, eos_ids: Tensor, children: int
) -> Advance:
    """Expand, drop what is not viable or ended, keep the best, bank the rest. `children` is the policy's width."""
    candidates = expand(state, kept, viability)
    mass = candidates.log_p.exp()
    is_eos = torch.isin(candidates.tokens, eos_ids) if len(eos_ids) else torch.zeros_like(mass, dtype=torch.bool)
    is_viable = (candidates.least <= options.edit_budget) & ~is_eos & (candidates.log_p > -math.inf)
    chosen, alive, is_kept = _choose(state, candidates, is_viable, options)
    is_banked = is_viable & ~is_kept
    following = _following(state, candidates, chosen, alive)
    following.bank = state.bank + by_least(torch.where(is_banked, mass, 0.0), candidates.least, options.edit_budget)
    following.unlisted = state.unlisted + _unlisted(state, kept, options.edit_budget)
    following.eos = state.eos + torch.where(is_eos, mass, 0.0).sum(-1)
    following.refuted = state.refuted + torch.where(is_viable | is_eos, 0.0, mass).sum(-1)
    return Advance(
        following,
        chosen // candidates.kept,
        alive,
        _is_below_threshold(following, options, children),
        torch.where(is_banked, candidates.log_p, -math.inf),
        candidates,
    )


def accept(state: BeamState, kept: Kept, *, options: SearchOptions, viability: Viability) -> Accepted:
    """Last step: every child within the budget is a result; there is no final prune."""
    candidates = expand(state, kept, viability)
    mass = candidates.log_p.exp()
    distance = viability.final_distance(candidates.edits)
    is_near = distance <= options.edit_budget
    accepted = torch.where(is_near, mass, 0.0)
    lower = torch.stack(
        [torch.where(distance <= edits, accepted, 0.0).sum(-1) for edits in range(options.edit_budget + 1)], -1
    )
    return Accepted(
        candidates,
        accepted,
        distance,
        lower,
        accepted.sum(-1),
        torch.where(is_near, 0.0, mass).sum(-1),
        _unlisted(state, kept, options.edit_budget),
    )


def by_least(mass: Tensor, least: Tensor, budget: int) -> Tensor:
    """Sums of `mass` [slots, nodes] by `least` [slots, nodes]. [slots, budget + 1] float64."""
    # Not scatter_add: on a GPU its order of summation, and so the last digit, would differ from run to run.
    edits = torch.arange(budget + 1, device=mass.device)
    return torch.where(least[:, None] == edits[:, None], mass[:, None], 0.0).sum(-1)


def _unlisted(state: BeamState, kept: Kept, budget: int) -> Tensor:
    # A child is at least as far from the target as its parent.
    return by_least(state.log_p.exp() * kept.unlisted, state.least, budget)


def _choose(
    state: BeamState, candidates: Candidates, is_viable: Tensor, options: SearchOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Flat places of the children that stay [slots, lanes], which lanes are alive, and the places as a mask."""
    is_verbatim = _verbatim_children(state, candidates) if options.pin_verbatim else torch.zeros_like(is_viable)
    if options.negligible > 0:
        is_viable = is_viable & ((candidates.log_p >= math.log(options.negligible)) | is_verbatim)
    score = torch.where(is_viable, candidates.log_p, -math.inf)
    if options.rank_by == "screen_score":
        score = score + _rating(state, candidates, options.edit_budget)
        # A rating of exactly 0 must not drop a viable child that would fit: it ranks last, not nowhere.
        score = torch.where(is_viable & (score == -math.inf), -torch.finfo(score.dtype).max, score)
    width = min(options.beam_width, score.shape[1])
    # A stable sort, so that equal scores keep beam order whatever the device or batch.
    ordered = score.sort(dim=-1, descending=True, stable=True)
    chosen, alive = ordered.indices[:, :width], ordered.values[:, :width] > -math.inf
    missing = options.lanes - width
    chosen = torch.nn.functional.pad(chosen, (0, missing))
    alive = torch.nn.functional.pad(alive, (0, missing), value=False)
    is_kept = torch.zeros_like(is_viable).scatter(1, chosen[:, :width], alive[:, :width])
    if options.pin_verbatim:
        pinned = is_verbatim & is_viable & ~is_kept
        chosen[:, -1] = torch.where(pinned.any(-1), pinned.int().argmax(-1), chosen[:, -1])
        alive[:, -1] |= pinned.any(-1)
        is_kept = is_kept | pinned
    # The verbatim lane is last among the living: its next tokens are known, so the lanes before it are evaluated.
    rank = (~alive).int() * 2 + _verbatim_children(state, candidates).gather(1, chosen).int()
    order = rank.sort(dim=-1, stable=True).indices
    return chosen.gather(1, order), alive.gather(1, order), is_kept


def _rating(state: BeamState, candidates: Candidates, budget: int) -> Tensor:
    slots = torch.arange(len(state.step), device=state.step.device)
    table = state.rating[slots, state.step + 1]  # [slots, budget + 1]
    return table.gather(1, (budget - candidates.least.long()).clamp(min=0))


def _verbatim_children(state: BeamState, candidates: Candidates) -> Tensor:
    target = state.target.gather(1, state.step[:, None])  # the token that comes next
    return state.is_verbatim.repeat_interleave(candidates.kept, 1) & (candidates.tokens == target)


def _following(state: BeamState, candidates: Candidates, chosen: Tensor, alive: Tensor) -> BeamState:
    parents = chosen // candidates.kept
    tokens = candidates.tokens.gather(1, chosen)
    width = candidates.edits.shape[-1]
    paths = state.paths.gather(1, parents[..., None].expand(-1, -1, state.paths.shape[-1]))
    paths.scatter_(2, state.step[:, None, None].expand(-1, paths.shape[1], 1), tokens[..., None])
    return BeamState(
        log_p=torch.where(alive, candidates.log_p.gather(1, chosen), -math.inf),
        edits=candidates.edits.gather(1, chosen[..., None].expand(-1, -1, width)),
        paths=paths,
        least=candidates.least.gather(1, chosen),
        is_verbatim=_verbatim_children(state, candidates).gather(1, chosen) & alive,
        step=state.step + 1,
        length=state.length,
        target=state.target,
        padded=state.padded,
        rating=state.rating,
        bank=state.bank,
        unlisted=state.unlisted,
        eos=state.eos,
        refuted=state.refuted,
    )


def _is_below_threshold(state: BeamState, options: SearchOptions, children: int) -> Tensor:
    """Whether the stop rule speaks; see the reference for why each rule is sound."""
    if options.threshold is None:
        return torch.zeros_like(state.step, dtype=torch.bool)
    if options.stop_rule == "published":
        return state.log_p.amax(-1) < math.log(options.threshold / (options.lanes * children))
    beam_mass = state.log_p.exp().sum(-1)
    open_mass = (state.bank + state.unlisted).sum(-1)
    is_settled = (open_mass >= options.threshold) | (open_mass + beam_mass < options.threshold)
    return (beam_mass < options.threshold) & is_settled
