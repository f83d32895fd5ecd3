"""Score: a window's first forward. Probability and rank of every target token under every policy, and the chain that
greedy decoding and the search go on from.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.errors import ModelError
from byrote.models.base import TreeModel, TreeSession
from byrote.models.packing import Handover, to_device
from byrote.models.scoring import VerbatimScore, require_numbers
from byrote.policy import Kept
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages.decode import Draws, answers_of, entries_of_answers, first_draws
from byrote.search.sizing import free_memory
from byrote.search.tree import Chain, TokenPair, evaluate_chains
from byrote.types import Window

CPU_CHUNK = 128
GPU_CHUNK = 512
"""Windows scored before greedy decoding and the search go on from them: enough to fill greedy's forwards."""
CPU_BATCH = 32
GPU_BATCH = 256
"""Windows per forward."""
SPARE_SHARE = 0.5
"""Slots for answers that outlive their chunk, as a share of its windows."""
CHUNK_SHARE = 0.38
"""Share of a device's free memory that the chains of a chunk may take."""


def windows_per_forward(model: TreeModel, config: RunConfig) -> int:
    return config.batch_windows or (GPU_BATCH if model.device.type == "cuda" else CPU_BATCH)


class ScoreStage:
    """Evaluates windows in chunks. The chains of a chunk are valid until the next chunk is scored."""

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        self._model, self._config, self._policies, self._limits = model, config, config.scored_policies, config.limits
        self._listing = config.search_options().listing
        self._with_standard = "membership" in config.measures
        self._server_lists = config.logprobs
        self._is_capped = config.is_capped
        self._batch = windows_per_forward(model, config)
        self._entries = sum(self._limits) + entries_of_answers(config)
        """Of a slot: the chain, and the tokens of answers behind it."""
        self._spare_share = SPARE_SHARE if answers_of(config) else 0.0
        self._session: TreeSession | None = None
        self._begun: Iterator[_Launched] | None = None
        self.begins_ahead = model.device.type == "cuda" and not config.has_budget
        """Whether the next chunk is launched early. A CPU gains nothing by it, and a budget may end before it."""
        most = GPU_CHUNK if model.device.type == "cuda" else CPU_CHUNK
        # A chunk is begun whole: with a budget, no more windows than share a forward.
        self.chunk_windows = self._choose_chunk(min(most, self._batch) if config.has_budget else most)

    def _choose_chunk(self, most: int) -> int:
        """Chains, the tokens of greedy decoding behind them, and what the policy keeps at every place must fit."""
        width = self._listing.width(self._model.vocab_size)
        slots = (1 + self._spare_share) * self._entries * self._model.tree_bytes_per_entry()
        each = slots + self._limits.suffix_tokens * width * 16
        fitting = int(free_memory(self._model.device) * CHUNK_SHARE / each)
        return max(1, min(most, fitting))

    @property
    def spare_slots(self) -> range:
        """Slots of the session that no window is scored in."""
        return range(self.chunk_windows, self.chunk_windows + math.ceil(self._spare_share * self.chunk_windows))

    def chunks(self, windows: Iterable[Window]) -> Iterator[tuple[list[Window], list[Window]]]:
        """Each chunk with the one that follows, if that may be begun before its turn."""
        rest, self._begun = iter(windows), None
        chunk = list(islice(rest, self.chunk_windows))
        while chunk:
            following = list(islice(rest, self.chunk_windows)) if self.begins_ahead else []
            yield chunk, following
            chunk = following or list(islice(rest, self.chunk_windows))

    @torch.inference_mode()
    def begin(self, windows: Sequence[Window]) -> None:
        """Launch the first batch of the next chunk, which the device evaluates while the host makes rows. The chains of
        the chunk before are no longer valid."""
        if windows:
            launches = self._launches(windows)
            self._begun = chain([next(launches)], launches)

    @torch.inference_mode()
    def score(self, windows: Sequence[Window]) -> list[Measured]:
        """One chunk. The host reads a batch while the device evaluates the next one."""
        launches, self._begun = self._begun or self._launches(windows), None
        scored: list[Measured] = []
        before: _Launched | None = None
        for launched in launches:
            scored += self._read(before) if before is not None else ()
            before = launched
        return scored + (self._read(before) if before is not None else [])

    def _launches(self, windows: Sequence[Window]) -> Iterator["_Launched"]:
        """Every window once, by batches. Running out of memory halves the batch; nothing is lost."""
        done = 0
        while done < len(windows):
            batch = windows[done : done + self._batch]
            try:
                launched = self._launch(batch, first_slot=done)
            except torch.OutOfMemoryError as error:
                self._halve(error, batch[0])
                launched = None
            if launched is not None:
                done += len(batch)
                yield launched
            elif torch.cuda.is_available():
                # Outside the handler: until it ends, the exception holds the tensors of the forward that failed.
                torch.cuda.empty_cache()

    def _launch(self, windows: Sequence[Window], *, first_slot: int) -> "_Launched":
        if self._session is None:
            longest = sum(self._limits)
            self._session = self._model.open_tree(self.spare_slots.stop, self._entries, longest=longest)
        pairs = [TokenPair(window.context_ids, window.suffix_ids) for window in windows]
        slots = range(first_slot, first_slot + len(windows))
        first = evaluate_chains(
            self._session,
            pairs,
            slots,
            self._listing,
            device=self._model.device,
            policies=self._policies,
            with_standard=self._with_standard,
        )
        assert first.scores is not None
        listed = _listed_log_probs(first.kept, pairs)
        scores, kept = first.scores, first.kept
        standard = torch.zeros(0) if scores.standard_scores is None else scores.standard_scores
        numbers = [scores.log_probs, scores.ranks, scores.model_log_probs, standard]
        padded = [kept.token_ids[..., 0], kept.log_probs[..., 0], listed, kept.unlisted]
        drawn = Handover(first_draws(kept, self._config, windows)) if self._config.sampled_answers else None
        return _Launched(windows, slots, kept, Handover([*numbers, *padded]), drawn)

    def _read(self, launched: "_Launched") -> list[Measured]:
        assert self._session is not None
        windows, slots, kept, _, drawn = launched
        scores = launched.scores(self._model.eos_ids, self._server_lists, is_capped=self._is_capped)
        for score in scores:
            require_numbers([score.model_log_p], self._model.dtype, what=f"window {score.window.window_id}")
        listed = [Kept(*rows) for rows in zip(*(tensor.unbind(0) for tensor in kept), strict=True)]
        lengths = [len(window.suffix_ids) for window in windows]
        if min(lengths) < len(kept.unlisted[0]):
            listed = [Kept(*(own[:length] for own in rows)) for rows, length in zip(listed, lengths, strict=True)]
        chains = [Chain(self._session, slot, own) for slot, own in zip(slots, listed, strict=True)]
        measured = list(map(Measured, scores, chains))
        if drawn is not None:
            for item, tokens, log_probs in zip(measured, *(tensor.numpy() for tensor in drawn.wait()), strict=True):
                length = len(item.window.suffix_ids)
                item.drawn = Draws(tokens[:, :length], log_probs[:, :length])
        return measured

    def _halve(self, error: Exception, window: Window) -> None:
        if self._batch == 1:
            raise ModelError(
                f"a single window of {len(window.context_ids)} + {len(window.suffix_ids)} tokens does not fit into the "
                "memory of the device; shorten --prefix-tokens or --suffix-tokens, or use another --device or --dtype."
            ) from error
        self._batch = min(self._batch, self.chunk_windows) // 2 or 1


class _Launched(NamedTuple):
    """A batch on the device, its numbers on their way to the host."""

    windows: Sequence[Window]
    slots: Sequence[int]
    kept: Kept
    arriving: Handover
    drawn: Handover | None

    def scores(self, eos_ids: frozenset[int], server_lists: int | None, *, is_capped: bool) -> list[VerbatimScore]:
        """`server_lists`: tokens that a server names for each place. Beyond them no rank is known and, where
        `is_capped`, no probability."""
        lengths = np.array([len(window.suffix_ids) for window in self.windows])
        ends = lengths.cumsum()
        log_probs, ranks, model_log_probs, standard, *padded = (tensor.numpy() for tensor in self.arriving.wait())
        is_inside = np.arange(padded[0].shape[1]) < lengths[:, None]
        choices, choice_log_probs, listed, unlisted = (rows[is_inside] for rows in padded)
        # The search adds up the listed numbers; so does p_z, wherever the target is listed.
        log_probs[0] = np.where(np.isfinite(listed) | is_capped, listed, log_probs[0])
        known_ranks = ranks if server_lists is None else np.minimum(ranks, server_lists)
        # Summed from first to last, as the search does.
        sums = [
            [float(own.cumsum()[-1]) for own in np.split(flat, ends[:-1])] for flat in (*log_probs, model_log_probs)
        ]
        flats = (np.exp(log_probs[0]), known_ranks, choices, choice_log_probs, model_log_probs)
        targets, own_ranks, firsts, first_log_probs, own_log_probs = (_by_window(flat, ends) for flat in flats)
        own_standard = _by_window(standard, ends) if len(standard) else [()] * len(lengths)
        scores = []
        for place, window in enumerate(self.windows):
            # A generation stops at an end-of-text token, so no continuation of T tokens has one before its end.
            can_be = eos_ids.isdisjoint(window.suffix_ids[:-1])
            own = slice(ends[place] - lengths[place], ends[place])
            scores.append(
                VerbatimScore(
                    window,
                    tuple(of_policy[place] if can_be else -math.inf for of_policy in sums[:-1]),
                    targets[place],
                    own_ranks[place],
                    sums[-1][place],
                    firsts[place],
                    first_log_probs[place],
                    own_log_probs[place],
                    own_standard[place],
                    _most(log_probs[0][own], unlisted[own]) if is_capped and can_be else None,
                )
            )
        return scores


def _by_window(flat: NDArray[Any], ends: NDArray[np.int64]) -> list[tuple[Any, ...]]:
    """The numbers of each window; those of all of them come one after the other."""
    return [tuple(own.tolist()) for own in np.split(flat, ends[:-1])]


def _listed_log_probs(kept: Kept, pairs: Sequence[TokenPair]) -> Tensor:
    """Log-probability of each target token in the policy's list, else −inf. [windows, longest suffix]"""
    targets = torch.nn.utils.rnn.pad_sequence([torch.tensor(pair.suffix_ids) for pair in pairs], batch_first=True)
    is_target = kept.token_ids == to_device(targets, kept.token_ids.device)[..., None]
    return torch.where(is_target, kept.log_probs, -math.inf).amax(-1)


def _most(log_probs: NDArray[np.float64], unlisted: NDArray[np.float64]) -> float:
    """What p_z can be at most where a server's list is short: the lower bound, and all that its path left unlisted."""
    reached = np.exp(np.concatenate([[0.0], np.cumsum(log_probs)]))  # of each beginning of the target
    return min(1.0, float(reached[-1] + (reached[:-1] * unlisted).sum()))
