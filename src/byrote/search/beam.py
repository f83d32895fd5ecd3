"""One step of constrained beam search as a pure function of tensors, for many windows at different depths at once.

`advance` turns the kept tokens of every beam into the next beams; `accept` turns the kept tokens of slots at their last
step into final masses. Neither needs the model, the cache or the host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from byrote.distance import Viability
from byrote.distance.base import padded_rows
from byrote.models.packing import to_device
from byrote.policy import Kept, under_policies
from byrote.search.base import Limits, SearchOptions, SearchTask
from byrote.search.screen_score import log_score_table


@dataclass(slots=True)
class BeamState:
    """Beams of many slots; the first dimension of every tensor is the slot. Dead lanes have log-probability −inf. The
    `policy_` tensors are those of the further policies, and have no elements where none was asked for."""

    log_p: Tensor  # [slots, lanes] float64
    edits: Tensor  # [slots, lanes, width] int16: viability state
    paths: Tensor  # [slots, lanes, longest suffix] int64: tokens so far
    least: Tensor  # [slots, lanes] int16: no completion is nearer to the target than this
    is_verbatim: Tensor  # [slots, lanes] bool
    step: Tensor  # [slots] int64: tokens in `paths`
    length: Tensor  # [slots] int64: T of each window
    target: Tensor  # [slots, longest suffix] int64
    padded: Tensor  # [slots, …] int64: target in the viability rule's layout
    log_score: Tensor  # [slots, longest suffix + 1, budget + 1] float64: screen score by tokens done and edits left
    bank: Tensor  # [slots, budget + 1] float64: by least final distance
    unlisted: Tensor  # [slots, budget + 1] float64: children that were not listed, by their parent's
    eos: Tensor  # [slots] float64
    refuted: Tensor  # [slots] float64
    policy_log_p: Tensor  # [slots, policies, lanes] float64
    policy_bank: Tensor  # [slots, policies, budget + 1] float64

    @classmethod
    def fresh(
        cls,
        tasks: Sequence[SearchTask],
        *,
        options: SearchOptions,
        viability: Viability,
        limits: Limits,
        device: torch.device,
    ) -> "BeamState":
        """One beam per slot, the empty continuation."""
        count, lanes, longest, budget = len(tasks), options.lanes, limits.suffix_tokens, options.edit_budget
        suffixes = [task.suffix_ids for task in tasks]
        log_p = torch.full((count, lanes), -math.inf, dtype=torch.float64)
        log_p[:, 0] = 0.0
        policies = len(options.policies)
        is_verbatim = torch.zeros(count, lanes, dtype=torch.bool)
        is_verbatim[:, 0] = True
        is_ranked = options.rank_by == "screen_score"
        log_score = torch.zeros(count, longest + 1 if is_ranked else 1, budget + 1, dtype=torch.float64)
        for row, task in enumerate(tasks):
            if is_ranked and task.target_probs is not None:
                table = log_score_table(task.target_probs, budget)
                log_score[row, : len(table)] = torch.from_numpy(table)
        state = cls(
            log_p=log_p,
            edits=viability.initial().expand(count, lanes, -1).clone(),
            paths=torch.zeros(count, lanes, longest, dtype=torch.int64),
            least=torch.zeros(count, lanes, dtype=torch.int16),
            is_verbatim=is_verbatim,
            step=torch.zeros(count, dtype=torch.int64),
            length=torch.tensor([len(suffix) for suffix in suffixes]),
            target=padded_rows(suffixes, longest),
            padded=viability.pad(suffixes, longest),
            log_score=log_score,
            bank=torch.zeros(count, budget + 1, dtype=torch.float64),
            unlisted=torch.zeros(count, budget + 1, dtype=torch.float64),
            eos=torch.zeros(count, dtype=torch.float64),
            refuted=torch.zeros(count, dtype=torch.float64),
            policy_log_p=log_p[:, None].repeat(1, policies, 1),
            policy_bank=torch.zeros(count, policies, budget + 1, dtype=torch.float64),
        )
        return cls(*(to_device(getattr(state, field.name), device) for field in fields(cls)))

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


STEPPED = (
    *("log_p", "edits", "paths", "least", "is_verbatim", "step"),
    *("bank", "unlisted", "eos", "refuted", "policy_log_p", "policy_bank"),
)


class Candidates(NamedTuple):
    """All children of all beams, flattened over lane and kept place."""

    log_p: Tensor  # [slots, lanes · kept] float64
    tokens: Tensor  # [slots, lanes · kept] int64
    edits: Tensor  # [slots, lanes · kept, width] int16
    least: Tensor  # [slots, lanes · kept] int16
    kept: int
    policy_log_p: Tensor  # [slots, policies, lanes · kept] float64


class Advance(NamedTuple):
    """The next beams, and what is read of them on the host."""

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
    policy_lower: Tensor  # [slots, policies, budget + 1] float64


def expand(state: BeamState, kept: Kept, options: SearchOptions, viability: Viability) -> Candidates:
    """Children of every beam with their cumulative log-probability and edit state."""
    advanced = viability.advance(
        state.edits, kept.token_ids, padded=state.padded, step=state.step + 1, length=state.length
    )
    chances = under_policies(kept, options.policy, options.policies)  # [slots, lanes, policies, kept]
    return Candidates(
        (state.log_p[..., None] + kept.log_probs).flatten(1),
        kept.token_ids.flatten(1),
        advanced.state.flatten(1, 2),
        advanced.least.flatten(1),
        kept.token_ids.shape[-1],
        (state.policy_log_p[..., None] + chances.transpose(1, 2)).flatten(2),
    )


def advance(
    state: BeamState, kept: Kept, *, options: SearchOptions, viability: Viability, eos_ids: Tensor, children: int
) -> Advance:
    """Expand, drop what is not viable or ended, keep the best, bank the rest. `children` is the policy's width."""
    candidates, budget = expand(state, kept, options, viability), options.edit_budget
    mass = candidates.log_p.exp()
    is_eos = torch.isin(candidates.tokens, eos_ids) if len(eos_ids) else torch.zeros_like(mass, dtype=torch.bool)
    is_viable = (candidates.least <= budget) & ~is_eos & (candidates.log_p > -math.inf)
    target = state.target.gather(1, state.step[:, None])  # the token that comes next
    is_verbatim = state.is_verbatim.repeat_interleave(candidates.kept, 1) & (candidates.tokens == target)
    chosen, alive, is_kept = _choose(state, candidates, is_viable, is_verbatim, options)
    parents, is_banked = chosen // candidates.kept, is_viable & ~is_kept
    paths = state.paths.gather(1, parents[..., None].expand(-1, -1, state.paths.shape[-1]))
    newest = candidates.tokens.gather(1, chosen)[..., None]
    paths.scatter_(2, state.step[:, None, None].expand(-1, paths.shape[1], 1), newest)
    of_policies = chosen[:, None].expand(-1, len(options.policies), -1)
    following = replace(
        state,
        log_p=torch.where(alive, candidates.log_p.gather(1, chosen), -math.inf),
        edits=candidates.edits.gather(1, chosen[..., None].expand(-1, -1, candidates.edits.shape[-1])),
        paths=paths,
        least=candidates.least.gather(1, chosen),
        is_verbatim=is_verbatim.gather(1, chosen) & alive,
        step=state.step + 1,
        bank=state.bank + by_least(torch.where(is_banked, mass, 0.0), candidates.least, budget),
        unlisted=state.unlisted + _unlisted(state, kept, budget),
        eos=state.eos + torch.where(is_eos, mass, 0.0).sum(-1),
        refuted=state.refuted + torch.where(is_viable | is_eos, 0.0, mass).sum(-1),
        policy_log_p=torch.where(alive[:, None], candidates.policy_log_p.gather(2, of_policies), -math.inf),
        policy_bank=state.policy_bank
        + by_least(
            torch.where(is_banked[:, None], candidates.policy_log_p.exp(), 0.0), candidates.least[:, None], budget
        ),
    )
    return Advance(
        following,
        parents,
        alive,
        _is_below_threshold(following, options, children),
        torch.where(is_banked, candidates.log_p, -math.inf),
        candidates,
    )


def accept(state: BeamState, kept: Kept, *, options: SearchOptions, viability: Viability) -> Accepted:
    """Last step: every child within the budget is a result; there is no final prune."""
    candidates = expand(state, kept, options, viability)
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
        by_least(candidates.policy_log_p.exp(), distance[:, None], options.edit_budget).cumsum(-1),
    )


def by_least(mass: Tensor, least: Tensor, budget: int) -> Tensor:
    """Sums of `mass` [..., nodes] by `least` [..., nodes]. [..., budget + 1] float64."""
    # Not scatter_add: on a GPU its order of summation, and so the last digit, would differ from run to run.
    edits = torch.arange(budget + 1, device=mass.device)
    return torch.where(least[..., None, :] == edits[:, None], mass[..., None, :], 0.0).sum(-1)


def _unlisted(state: BeamState, kept: Kept, budget: int) -> Tensor:
    # A child is at least as far from the target as its parent.
    return by_least(state.log_p.exp() * kept.unlisted, state.least, budget)


def _choose(
    state: BeamState, candidates: Candidates, is_viable: Tensor, is_verbatim: Tensor, options: SearchOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Flat places of the children that stay [slots, lanes], which lanes are alive, and the places as a mask."""
    is_pinned = is_verbatim if options.pin_verbatim else torch.zeros_like(is_verbatim)
    if options.negligible > 0:
        is_viable = is_viable & ((candidates.log_p >= math.log(options.negligible)) | is_pinned)
    score = torch.where(is_viable, candidates.log_p, -math.inf)
    if options.rank_by == "screen_score":
        slots = torch.arange(len(state.step), device=state.step.device)
        table = state.log_score[slots, state.step + 1]  # [slots, budget + 1]
        score = score + table.gather(1, (options.edit_budget - candidates.least.long()).clamp(min=0))
        # A screen score of exactly 0 must not drop a viable child that would fit: it ranks last.
        score = torch.where(is_viable & (score == -math.inf), -torch.finfo(score.dtype).max, score)
    width = min(options.beam_width, score.shape[1])
    # A stable sort, so that equal scores keep beam order whatever the device or batch.
    ordered = score.sort(dim=-1, descending=True, stable=True)
    chosen, alive = ordered.indices[:, :width], ordered.values[:, :width] > -math.inf
    is_kept = torch.zeros_like(is_viable).scatter(1, chosen, alive)
    missing = options.lanes - width
    chosen = torch.nn.functional.pad(chosen, (0, missing))
    alive = torch.nn.functional.pad(alive, (0, missing), value=False)
    if options.pin_verbatim:
        pinned = is_pinned & is_viable & ~is_kept
        chosen[:, -1] = torch.where(pinned.any(-1), pinned.int().argmax(-1), chosen[:, -1])
        alive[:, -1] |= pinned.any(-1)
        is_kept = is_kept | pinned
    # The verbatim lane is last among the living: its next tokens are known, so only the lanes before it are evaluated.
    rank = (~alive).int() * 2 + is_verbatim.gather(1, chosen).int()
    order = rank.sort(dim=-1, stable=True).indices
    return chosen.gather(1, order), alive.gather(1, order), is_kept


def _is_below_threshold(state: BeamState, options: SearchOptions, children: int) -> Tensor:
    """Whether the stop rule applies; see tests/search/reference.py for why each is sound."""
    if options.threshold is None:
        return torch.zeros_like(state.step, dtype=torch.bool)
    if options.stop_rule == "published":
        return state.log_p.amax(-1) < math.log(options.threshold / (options.lanes * children))
    beam_mass = state.log_p.exp().sum(-1)
    open_mass = (state.bank + state.unlisted).sum(-1)
    is_settled = (open_mass >= options.threshold) | (open_mass + beam_mass < options.threshold)
    return (beam_mass < options.threshold) & is_settled
