"""Constrained beam search, slow and obvious: one window, Python lists, whole histories, no cache.

This version judges the engine. Every variant of the method is here: baseline, Hamming, Levenshtein with the published
and the exact rule, top-k and nucleus, the pinned verbatim path, the EOS rule, both stop rules, ranking by screen score,
sound bounds, the frontier, bounds under further policies, distances over characters.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.distance import Viability
from byrote.distance.tokens import hamming, levenshtein
from byrote.models.base import CausalModel
from byrote.policy import keep
from byrote.search.base import ByLeast, SearchOptions, SearchOutcome, SearchTask
from byrote.search.frontier import Beams, Frontier
from byrote.search.screen_score import log_score_table
from byrote.types import Continuation, StopReason
from byrote.verdict import Bounds
from tests.distance import plain_text


class FrontierNode(NamedTuple):
    """A viable partial continuation that the search did not follow. Its mass is part of the upper bound."""

    token_ids: tuple[int, ...]
    log_p: float


def path_of(beams: Beams, beam: int) -> tuple[int, ...]:
    return (*path_of(beams, int(beams.parents[beam])), int(beams.tokens[beam])) if beam else ()


def nodes_of(frontier: Frontier | None) -> list[FrontierNode]:
    assert frontier is not None
    nodes = zip(frontier.parents.tolist(), frontier.tokens.tolist(), frontier.log_p.tolist(), strict=True)
    return [FrontierNode((*path_of(frontier.beams, parent), token), log_p) for parent, token, log_p in nodes]


def frontier_of(nodes: Iterable[FrontierNode]) -> Frontier:
    """The frontier of these nodes, with all beams above them."""
    ordered = sorted(nodes, key=lambda node: (-node.log_p, node.token_ids))
    above = {node.token_ids[:depth] for node in ordered for depth in range(len(node.token_ids))}
    beams = sorted(above | {()}, key=lambda path: (len(path), path))
    places = {path: place for place, path in enumerate(beams)}
    return Frontier(
        Beams(
            np.array([places[path[:-1]] for path in beams], dtype=np.int64),
            np.array([path[-1] if path else 0 for path in beams], dtype=np.int64),
            np.array([len(path) for path in beams], dtype=np.int64),
        ),
        np.array([places[node.token_ids[:-1]] for node in ordered], dtype=np.int64),
        np.array([node.token_ids[-1] for node in ordered], dtype=np.int64),
        np.array([node.log_p for node in ordered], dtype=np.float64),
    )


class Node(NamedTuple):
    """A partial continuation."""

    token_ids: tuple[int, ...]
    log_p: float
    state: Tensor  # [width]
    least: int
    is_verbatim: bool
    is_final: bool
    """Whether it is a whole answer."""
    others: tuple[float, ...]
    """Its log-probability under each of the further policies."""


class Open(NamedTuple):
    """Probability that is neither accepted nor refuted: no completion of it is nearer than `least`."""

    mass: float
    least: int
    others: tuple[float, ...]
    """The same under each of the further policies."""

    @classmethod
    def of(cls, node: Node) -> "Open":
        return cls(math.exp(node.log_p), node.least, tuple(map(math.exp, node.others)))


class Accepted(NamedTuple):
    continuation: Continuation
    others: tuple[float, ...]


@dataclass
class Ledger:
    """Where the probability went."""

    bank: list[Open] = field(default_factory=list)
    unlisted: list[Open] = field(default_factory=list)
    eos: float = 0.0
    refuted: float = 0.0
    beams: int = 0
    token_evals: int = 0

    @property
    def open_mass(self) -> float:
        return math.fsum(part.mass for part in self.bank + self.unlisted)


def search(model: CausalModel, task: SearchTask, options: SearchOptions) -> SearchOutcome:
    """Search one window to the end, to an empty beam, or until the stop rule applies."""
    viability = options.make_viability(model)
    length = task.most_tokens
    scores = log_score_table(task.target_probs, options.edit_budget) if task.target_probs is not None else None
    root = Node((), 0.0, viability.initial(), 0, True, False, (0.0,) * len(options.policies))
    beam, ledger, frontier, finals = [root], Ledger(), list[FrontierNode](), list[Node]()
    for step in range(1, length + 1):
        children = _children(model, task, options, viability, beam, step, ledger)
        finals += [child for child in children if child.is_final]
        children = [child for child in children if not child.is_final]
        if step == length:
            # Texts of so many tokens that are not complete stay open.
            ledger.bank += [Open.of(child) for child in children]
            frontier += [FrontierNode(child.token_ids, child.log_p) for child in children]
            accepted = _accepted(model, task, options, finals, ledger)
            return _outcome(task, options, StopReason.FINISHED, step, accepted, [], ledger, frontier)
        ranked = sorted(children, key=lambda child: -_rank(child, options, scores, step))  # stable: ties keep order
        heavy = [child for child in ranked if not _is_negligible(child, options)]
        beam, pruned = heavy[: options.beam_width], heavy[options.beam_width :]
        pruned += [child for child in ranked if _is_negligible(child, options)]
        if options.pin_verbatim:
            beam += [child for child in pruned if child.is_verbatim]
            pruned = [child for child in pruned if not child.is_verbatim]
        beam.sort(key=lambda child: child.is_verbatim)  # stable: the verbatim path comes last
        ledger.bank += [Open.of(child) for child in pruned]
        frontier += [FrontierNode(child.token_ids, child.log_p) for child in pruned]
        accepted_mass = math.fsum(math.exp(node.log_p) for node in finals)
        reason = _stop_reason(model, beam, options, ledger, accepted_mass)
        if reason is not None:
            # The upper bound must count what is still in the beam.
            accepted = _accepted(model, task, options, finals, ledger)
            return _outcome(task, options, reason, step, accepted, beam, ledger, frontier)
        ledger.beams += len(beam)
        ledger.token_evals += sum(not child.is_verbatim for child in beam)
    raise AssertionError("a suffix has at least one token")


def _children(
    model: CausalModel,
    task: SearchTask,
    options: SearchOptions,
    viability: Viability,
    beam: list[Node],
    step: int,
    ledger: Ledger,
) -> list[Node]:
    """Viable children of all beams in beam order, then kept order; books what is lost on the way."""
    logits = model.next_logits([task.prefix_ids + node.token_ids for node in beam]).cpu()
    kept = keep(logits, options.policy, cap=options.max_children)
    padded = viability.pad([task.target_chars or task.suffix_ids], len(task.suffix_ids))
    clock = torch.tensor([step])
    others = [keep(logits, policy) for policy in options.policies]
    children: list[Node] = []
    rows = zip(beam, kept.token_ids, kept.log_probs, kept.unlisted, strict=True)
    for place_of_node, (node, token_ids, log_probs, rest) in enumerate(rows):
        # A child is at least as far from the target as its parent. What is not listed, no further policy keeps.
        unlisted = math.exp(node.log_p) * float(rest)
        ledger.unlisted.append(Open(unlisted, node.least, (0.0,) * len(options.policies)))
        chances = [
            dict(zip(other.token_ids[place_of_node].tolist(), other.log_probs[place_of_node].tolist(), strict=True))
            for other in others
        ]
        advanced = viability.advance(
            node.state[None, None],
            token_ids[None, None],
            padded=padded,
            step=clock,
            length=torch.tensor([task.most_tokens]),
        )
        for place, token in enumerate(token_ids.tolist()):
            log_p = node.log_p + float(log_probs[place])
            if log_p == -math.inf:
                continue
            least, is_final = int(advanced.least[0, 0, place]), bool(advanced.is_complete[0, 0, place])
            if token in model.eos_ids and not is_final:
                # Too soon for a token distance; a text is compared as it is.
                is_final = advanced.if_ended is not None
                if advanced.if_ended is not None:
                    least = int(advanced.if_ended[0, 0])
                if not is_final or least > options.edit_budget:
                    ledger.eos += math.exp(log_p)
                    continue
            if least > options.edit_budget:
                ledger.refuted += math.exp(log_p)
            else:
                is_verbatim = node.is_verbatim and task.suffix_ids[step - 1 : step] == (token,)
                is_verbatim &= step < len(task.suffix_ids)
                further = tuple(
                    before + chance.get(token, -math.inf) for before, chance in zip(node.others, chances, strict=True)
                )
                path, edits = (*node.token_ids, token), advanced.state[0, 0, place]
                children.append(Node(path, log_p, edits, least, is_verbatim, is_final, further))
    return children


def _rank(child: Node, options: SearchOptions, scores: NDArray[np.float64] | None, step: int) -> float:
    if options.rank_by == "mass" or scores is None:
        return child.log_p
    return child.log_p + float(scores[step, options.edit_budget - child.least])


def _is_negligible(child: Node, options: SearchOptions) -> bool:
    is_pinned = options.pin_verbatim and child.is_verbatim
    return options.negligible > 0 and child.log_p < math.log(options.negligible) and not is_pinned


def _stop_reason(
    model: CausalModel, beam: list[Node], options: SearchOptions, ledger: Ledger, accepted: float
) -> StopReason | None:
    if not beam:
        return StopReason.FINISHED if accepted else StopReason.BEAM_EMPTY
    if options.threshold is None:
        return None
    if options.stop_rule == "published":
        children = options.policy.width(model.vocab_size)
        best = max(math.exp(node.log_p) for node in beam)
        return StopReason.BELOW_THRESHOLD if best < options.threshold / (options.lanes * children) else None
    # Mass is conserved: the finals weigh at most what the beam weighs now. Below τ the lower bound cannot reach τ;
    # stop once it is also settled whether the upper bound can end below τ.
    beam_mass = math.fsum(math.exp(node.log_p) for node in beam)
    known = accepted + ledger.open_mass
    is_settled = known >= options.threshold or known + beam_mass < options.threshold
    return StopReason.BELOW_THRESHOLD if accepted + beam_mass < options.threshold and is_settled else None


def _accepted(
    model: CausalModel, task: SearchTask, options: SearchOptions, finals: list[Node], ledger: Ledger
) -> list[Accepted]:
    """All whole answers within the budget; the baseline takes all and measures them."""
    accepted: list[Accepted] = []
    for node in finals:
        measured = hamming if options.distance == "hamming" else levenshtein
        if task.target_chars is not None:
            target = "".join(map(chr, task.target_chars))
            distance = plain_text.distance_if_ended(model.token_texts.pieces, node.token_ids, target)
        else:
            distance = measured(node.token_ids, task.suffix_ids)
        if options.distance == "none" or distance <= options.edit_budget:
            accepted.append(Accepted(Continuation(node.token_ids, node.log_p, distance), node.others))
        else:
            ledger.refuted += math.exp(node.log_p)
    return sorted(accepted, key=lambda one: -one.continuation.log_p)


def _outcome(
    task: SearchTask,
    options: SearchOptions,
    reason: StopReason,
    step: int,
    accepted: list[Accepted],
    beam: list[Node],
    ledger: Ledger,
    frontier: list[FrontierNode],
) -> SearchOutcome:
    """`beam`: what was still in it when the search stopped."""
    left = [Open.of(node) for node in beam]
    left_open = ledger.bank + ledger.unlisted + left
    found = [one.continuation for one in accepted]
    frontier = frontier + [FrontierNode(node.token_ids, node.log_p) for node in beam]
    return SearchOutcome(
        key=task.key,
        bounds=_bounds(
            [(math.exp(one.log_p), one.distance) for one in found],
            [(part.mass, part.least) for part in left_open],
            options.edit_budget,
        ),
        policy_bounds=tuple(
            _bounds(
                [(math.exp(one.others[number]), one.continuation.distance) for one in accepted],
                [(part.others[number], part.least) for part in left_open],
                options.edit_budget,
            )
            for number in range(len(options.policies))
        ),
        stop_reason=reason,
        stop_step=step,
        beams=ledger.beams,
        token_evals=ledger.token_evals,
        covered=math.fsum(math.exp(continuation.log_p) for continuation in found),
        bank=_by_least(ledger.bank, options.edit_budget),
        beam_left=_by_least(left, options.edit_budget),
        unlisted=_by_least(ledger.unlisted, options.edit_budget),
        eos=ledger.eos,
        refuted=ledger.refuted,
        continuations=tuple(found[: options.keep]),
        frontier=frontier_of(frontier) if options.record_frontier else None,
    )


def _bounds(accepted: list[tuple[float, int]], left_open: list[tuple[float, int]], budget: int) -> Bounds:
    """At each ε: what was accepted within it, and beside it whatever may still end within it. Both are masses with
    distances."""
    every = range(budget + 1)
    lower = [math.fsum(mass for mass, distance in accepted if distance <= edits) for edits in every]
    reachable = [math.fsum(mass for mass, least in left_open if least <= edits) for edits in every]
    upper = [low + rest for low, rest in zip(lower, reachable, strict=True)]
    # Rounding may take a sum above 1; no probability is.
    return Bounds(tuple(min(1.0, low) for low in lower), tuple(min(1.0, high) for high in upper))


def _by_least(parts: list[Open], budget: int) -> ByLeast:
    return tuple(math.fsum(part.mass for part in parts if part.least == edits) for edits in range(budget + 1))
