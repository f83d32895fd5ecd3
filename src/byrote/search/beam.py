"""One step of constrained beam search as a pure function of tensors, for many windows at different depths at once.

`advance` turns the kept tokens of every beam into the next beams and accepts the children that are complete. It needs
neither the model, the cache nor the host.
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
    length: Tensor  # [slots] int64: tokens of an answer, at most
    target: Tensor  # [slots, longest suffix] int64
    padded: Tensor  # [slots, …] int64: target in the viability rule's layout
    log_score: Tensor  # [slots, longest suffix + 1, budget + 1] float64: screen score by tokens done and edits left
    accepted: Tensor  # [slots, budget + 1] float64: complete continuations, by distance
    bank: Tensor  # [slots, budget + 1] float64: by least final distance
    unlisted: Tensor  # [slots, budget + 1] float64: children that were not listed, by their parent's
    eos: Tensor  # [slots] float64
    refuted: Tensor  # [slots] float64
    policy_log_p: Tensor  # [slots, policies, lanes] float64
    policy_accepted: Tensor  # [slots, policies, budget + 1] float64
    policy_bank: Tensor  # [slots, policies, budget + 1] float64
    found: Tensor  # [slots, listed] float64: log-probabilities of the heaviest accepted, −inf where there are no more
    found_distance: Tensor  # [slots, listed] int16
    found_tokens: Tensor  # [slots, listed] int64: tokens of each
    found_paths: Tensor  # [slots, listed, longest suffix] int64

    @classmethod
    def fresh(
        cls,
        tasks: Sequence[SearchTask],
        *,
        options: SearchOptions,
        viability: Viability,
        limits: Limits,
        listed: int,
        device: torch.device,
    ) -> "BeamState":
        """One beam per slot, the empty continuation. `listed`: accepted continuations to keep."""
        count, lanes, longest, budget = len(tasks), options.lanes, limits.suffix_tokens, options.edit_budget
        suffixes = [task.suffix_ids for task in tasks]
        log_p = torch.full((count, lanes), -math.inf, dtype=torch.float64)
        log_p[:, 0] = 0.0
        policies = len(options.policies)
        is_verbatim = torch.zeros(count, lanes, dtype=torch.bool)
        is_verbatim[:, 0] = True
        is_ranked = options.rank_by == "screen_score"
        log_score = torch.zeros(count, longest + 1 if is_ranked else 1, budget + 1, dtype=torch.float64)
        edits = viability.initial().repeat(count, lanes, 1)
        for row, task in enumerate(tasks):
            if task.begun is not None:
                edits[row] = torch.tensor(task.begun, dtype=edits.dtype)
            if is_ranked and task.target_probs is not None:
                table = log_score_table(task.target_probs, budget)
                log_score[row, : len(table)] = torch.from_numpy(table)
        state = cls(
            log_p=log_p,
            edits=edits,
            paths=torch.zeros(count, lanes, longest, dtype=torch.int64),
            least=torch.zeros(count, lanes, dtype=torch.int16),
            is_verbatim=is_verbatim,
            step=torch.zeros(count, dtype=torch.int64),
            length=torch.tensor([task.most_tokens for task in tasks]),
            target=padded_rows(suffixes, longest),
            padded=viability.pad([task.target_chars or task.suffix_ids for task in tasks], longest),
            log_score=log_score,
            accepted=torch.zeros(count, budget + 1, dtype=torch.float64),
            bank=torch.zeros(count, budget + 1, dtype=torch.float64),
            unlisted=torch.zeros(count, budget + 1, dtype=torch.float64),
            eos=torch.zeros(count, dtype=torch.float64),
            refuted=torch.zeros(count, dtype=torch.float64),
            policy_log_p=log_p[:, None].repeat(1, policies, 1),
            policy_accepted=torch.zeros(count, policies, budget + 1, dtype=torch.float64),
            policy_bank=torch.zeros(count, policies, budget + 1, dtype=torch.float64),
            found=torch.full((count, listed), -math.inf, dtype=torch.float64),
            found_distance=torch.zeros(count, listed, dtype=torch.int16),
            found_tokens=torch.zeros(count, listed, dtype=torch.int64),
            found_paths=torch.zeros(count, listed, longest, dtype=torch.int64),
        )
        return cls(*(to_device(getattr(state, field.name), device) for field in fields(cls)))

    def take(self, slots: Tensor | slice) -> "BeamState":
        """A copy holding only `slots` (a view when a slice is given)."""
        return BeamState(*(getattr(self, field.name)[slots] for field in fields(self)))

    def put(self, slots: Tensor | slice, other: "BeamState") -> None:
        for field in fields(self):
            getattr(self, field.name)[slots] = getattr(other, field.name)

    def follow(self, count: int, following: "BeamState") -> None:
        """The first `count` slots take one step: only what the step changed is written."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(following, field.name)
            if theirs.data_ptr() != ours.data_ptr():
                ours[:count] = theirs


class Candidates(NamedTuple):
    """All children of all beams, flattened over lane and kept place."""

    log_p: Tensor  # [slots, lanes · kept] float64
    tokens: Tensor  # [slots, lanes · kept] int64
    edits: Tensor  # [slots, lanes · kept, width] int16
    least: Tensor  # [slots, lanes · kept] int16
    is_complete: Tensor  # [slots, lanes · kept] bool
    if_ended: Tensor | None  # [slots, lanes] int16: distance of the parent, where a text that ends there counts
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
        advanced.is_complete.flatten(1),
        advanced.if_ended,
        kept.token_ids.shape[-1],
        (state.policy_log_p[..., None] + chances.transpose(1, 2)).flatten(2),
    )


def advance(
    state: BeamState,
    kept: Kept,
    *,
    options: SearchOptions,
    viability: Viability,
    eos_ids: Tensor,
    children: int,
    completes: bool,
) -> Advance:
    """Expand, accept what is complete, drop what is not viable or ended, keep the best, bank the rest. `children` is
    the policy's width; `completes`: whether a child may be complete."""
    candidates, budget = expand(state, kept, options, viability), options.edit_budget
    mass, exists = candidates.log_p.exp(), candidates.log_p > -math.inf
    is_eos = torch.isin(candidates.tokens, eos_ids) if len(eos_ids) else torch.zeros_like(exists)
    is_eos &= ~candidates.is_complete
    distance, is_final = candidates.least, candidates.is_complete
    if candidates.if_ended is not None:
        ended = candidates.if_ended.repeat_interleave(candidates.kept, 1)
        distance, is_final = torch.where(is_eos, ended, distance), is_final | is_eos
    is_near = (distance <= budget) & exists
    is_accepted, is_viable = is_near & is_final, is_near & ~is_final & ~is_eos
    target = state.target.gather(1, state.step[:, None])  # the token that comes next
    is_verbatim = state.is_verbatim.repeat_interleave(candidates.kept, 1) & (candidates.tokens == target)
    # Behind the last target token nothing is known of the verbatim path; only in a text it may have to go on.
    is_verbatim &= (state.step + 1 < (state.target >= 0).sum(-1))[:, None]
    goes_on = is_viable & (state.step + 1 < state.length)[:, None]
    chosen, alive, is_kept = _choose(state, candidates, goes_on, is_verbatim, options)
    parents, is_banked = chosen // candidates.kept, is_viable & ~is_kept
    of_policies = chosen[:, None].expand(-1, len(options.policies), -1)
    policy_mass, policy_distance = candidates.policy_log_p.exp(), distance[:, None]

    following = replace(
        state,
        log_p=torch.where(alive, candidates.log_p.gather(1, chosen), -math.inf),
        edits=candidates.edits.gather(1, chosen[..., None].expand(-1, -1, candidates.edits.shape[-1])),
        paths=_paths(state, candidates, chosen),
        least=candidates.least.gather(1, chosen),
        is_verbatim=is_verbatim.gather(1, chosen) & alive,
        step=state.step + 1,
        bank=state.bank + by_least(torch.where(is_banked, mass, 0.0), distance, budget),
        unlisted=state.unlisted + by_least(state.log_p.exp() * kept.unlisted, state.least, budget),
        eos=state.eos + torch.where(is_eos & ~is_accepted, mass, 0.0).sum(-1),
        refuted=state.refuted + torch.where(is_near | is_eos, 0.0, mass).sum(-1),
        policy_log_p=torch.where(alive[:, None], candidates.policy_log_p.gather(2, of_policies), -math.inf),
        policy_bank=state.policy_bank
        + by_least(torch.where(is_banked[:, None], policy_mass, 0.0), policy_distance, budget),
    )
    if completes:
        following = replace(
            following,
            accepted=state.accepted + by_least(torch.where(is_accepted, mass, 0.0), distance, budget),
            policy_accepted=state.policy_accepted
            + by_least(torch.where(is_accepted[:, None], policy_mass, 0.0), policy_distance, budget),
            **_heaviest(state, candidates, torch.where(is_accepted, candidates.log_p, -math.inf), distance),
        )
    return Advance(
        following,
        parents,
        alive,
        _is_below_threshold(following, options, children),
        torch.where(is_banked, candidates.log_p, -math.inf),
        candidates,
    )


def _paths(state: BeamState, candidates: Candidates, chosen: Tensor) -> Tensor:
    """The tokens of these children [slots, children], behind those of their parents."""
    parents = (chosen // candidates.kept)[..., None].expand(-1, -1, state.paths.shape[-1])
    newest = candidates.tokens.gather(1, chosen)[..., None]
    places = state.step[:, None, None].expand(newest.shape)
    return state.paths.gather(1, parents).scatter_(2, places, newest)


def _heaviest(state: BeamState, candidates: Candidates, log_p: Tensor, distance: Tensor) -> dict[str, Tensor]:
    """The heaviest accepted continuations: of those so far and of children with these log-probabilities."""
    listed = state.found.shape[1]
    # A stable sort, so that equal ones keep their order whatever the device or batch.
    newest = log_p.sort(dim=-1, descending=True, stable=True).indices[:, :listed]
    parts = {
        "found": log_p.gather(1, newest),
        "found_distance": distance.gather(1, newest),
        "found_tokens": (state.step[:, None] + 1).expand(newest.shape),
        "found_paths": _paths(state, candidates, newest),
    }
    joined = {name: torch.cat([getattr(state, name), part], 1) for name, part in parts.items()}
    order = joined["found"].sort(dim=-1, descending=True, stable=True).indices[:, :listed]
    slots = torch.arange(len(order), device=order.device)[:, None]
    return {name: part[slots, order] for name, part in joined.items()}


def by_least(mass: Tensor, least: Tensor, budget: int) -> Tensor:
    """Sums of `mass` [..., nodes] by `least` [..., nodes]. [..., budget + 1] float64."""
    # Not scatter_add: on a GPU its order of summation, and so the last digit, would differ from run to run.
    edits = torch.arange(budget + 1, device=mass.device)
    return torch.where(least[..., None, :] == edits[:, None], mass[..., None, :], 0.0).sum(-1)


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
    known = (state.accepted + state.bank + state.unlisted).sum(-1)
    is_settled = (known >= options.threshold) | (known + beam_mass < options.threshold)
    return (state.accepted.sum(-1) + beam_mass < options.threshold) & is_settled
