"""Score: a window's first forward. Probability and rank of every target token under every policy, and the chain that
greedy decoding and the search go on from.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.errors import ModelError
from rote.models.base import TreeModel, TreeSession
from rote.models.memory import Handover, to_device
from rote.models.numbers import require_numbers
from rote.models.teacher_forcing import VerbatimScore
from rote.policy import Kept
from rote.scan.measured import Measured
from rote.scan.options import RunConfig
from rote.search.chain import Chain, TokenPair, evaluate_chains
from rote.search.sizing import free_memory
from rote.types import Window

CPU_CHUNK = 128
GPU_CHUNK = 512
"""Windows scored before greedy decoding and the search go on from them: enough to fill greedy's forwards."""
CPU_BATCH = 32
GPU_BATCH = 256
"""Windows per forward."""
CHUNK_SHARE = 0.35
"""Share of a device's free memory that the chains of a chunk may take."""


def windows_per_forward(model: TreeModel, config: RunConfig) -> int:
    return config.batch_windows or (GPU_BATCH if model.device.type == "cuda" else CPU_BATCH)


class ScoreStage:
    """Evaluates windows in chunks. The chains of a chunk are valid until the next chunk is scored."""

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        self._model, self._policies, self._limits = model, config.policies, config.limits
        self._listing = config.search_options().listing
        self._with_standard = "membership" in config.measures
        self._server_lists = config.logprobs
        self._is_capped = config.is_capped
        self._batch = windows_per_forward(model, config)
        self._session: TreeSession | None = None
        self._begun: Iterator[_Launched] | None = None
        self.begins_ahead = model.device.type == "cuda" and not config.has_budget
        """A host that is the device gains nothing by it, and a budget is not spent on what may not be asked for."""
        most = GPU_CHUNK if model.device.type == "cuda" else CPU_CHUNK
        # A chunk is begun whole: with a budget, no more windows than share a forward.
        self.chunk_windows = self._choose_chunk(min(most, self._batch) if config.has_budget else most)

    def _choose_chunk(self, most: int) -> int:
        """Chains, the tokens of greedy decoding behind them, and what the policy keeps at every place must fit."""
        entries = self._limits.prefix_tokens + 2 * self._limits.suffix_tokens
        width = self._listing.width(self._model.vocab_size)
        each = entries * self._model.tree_bytes_per_entry() + self._limits.suffix_tokens * width * 16
        fitting = int(free_memory(self._model.device) * CHUNK_SHARE) // each
        return max(1, min(most, fitting))

    def chunks(self, windows: Iterable[Window]) -> Iterator[tuple[list[Window], list[Window]]]:
        """Each chunk with the one that follows, if that may be begun before its turn."""
        rest, self._begun = iter(windows), None
        chunk = list(islice(rest, self.chunk_windows))
        while chunk:
            following = list(islice(rest, self.chunk_windows)) if self.begins_ahead else []
            yield chunk, following
            chunk = following or list(islice(rest, self.chunk_windows))

    def release(self) -> None:
        """Let go of the chains of the last chunk; the next one opens their memory again."""
        self._session = None

    @torch.inference_mode()
    def begin(self, windows: Sequence[Window]) -> None:
        """Launch the first batch of the next chunk, for the device to do while the host makes rows. The chains of the
        chunk before are needed no more."""
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
            entries = self._limits.prefix_tokens + 2 * self._limits.suffix_tokens
            longest = sum(self._limits)
            self._session = self._model.open_tree(self.chunk_windows, entries, longest=longest)
        pairs = [TokenPair(window.prefix_ids, window.suffix_ids) for window in windows]
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
        return _Launched(windows, slots, kept, Handover([*numbers, *padded]))

    def _read(self, launched: "_Launched") -> list[Measured]:
        assert self._session is not None
        windows, slots, kept, _ = launched
        numbers = launched.numbers(self._server_lists, is_capped=self._is_capped)
        for window, own in zip(windows, numbers, strict=True):
            require_numbers([own.model_log_probs.sum()], self._model.dtype, what=f"window {window.window_id}")
        return [
            Measured(
                _verbatim_score(window, numbers[row], self._model.eos_ids),
                Chain(self._session, slot, Kept(*(tensor[row, : len(window.suffix_ids)] for tensor in kept))),
            )
            for row, (window, slot) in enumerate(zip(windows, slots, strict=True))
        ]

    def _halve(self, error: Exception, window: Window) -> None:
        if self._batch == 1:
            raise ModelError(
                f"a single window of {len(window.prefix_ids)} + {len(window.suffix_ids)} tokens does not fit into the "
                "memory of the device; shorten --prefix-tokens or --suffix-tokens, or use another --device or --dtype."
            ) from error
        self._batch = min(self._batch, self.chunk_windows) // 2 or 1


@dataclass(frozen=True, slots=True)
class _Numbers:
    """One window's part of a first forward, on the host."""

    log_probs: NDArray[np.float64]  # [policies, suffix]
    ranks: NDArray[np.int64]  # [suffix]
    model_log_probs: NDArray[np.float64]  # [suffix]
    standard_scores: NDArray[np.float64]  # [suffix], or nothing
    first_choices: NDArray[np.int64]  # [suffix]
    first_choice_log_probs: NDArray[np.float64]  # [suffix]
    unlisted: NDArray[np.float64] | None  # [suffix], where a server's list is shorter than the policy's


class _Launched(NamedTuple):
    """A batch on the device, its numbers on their way to the host."""

    windows: Sequence[Window]
    slots: Sequence[int]
    kept: Kept
    arriving: Handover

    def numbers(self, server_lists: int | None, *, is_capped: bool) -> list[_Numbers]:
        """`server_lists`: tokens that a server names for each place. Beyond them no rank is known and, where
        `is_capped`, no probability."""
        lengths = [len(window.suffix_ids) for window in self.windows]
        ends = np.cumsum(lengths)[:-1]
        log_probs, ranks, model_log_probs, standard, *padded = (tensor.numpy() for tensor in self.arriving.wait())
        choices, choice_log_probs, listed, unlisted = (_unpadded(rows, lengths) for rows in padded)
        # The search adds up the listed numbers; so does p_z, wherever the target is listed.
        log_probs[0] = np.where(np.isfinite(listed) | is_capped, listed, log_probs[0])
        known_ranks = ranks if server_lists is None else np.minimum(ranks, server_lists)
        columns = [
            np.split(log_probs, ends, axis=1),
            *(np.split(array, ends) for array in (known_ranks, model_log_probs, standard, choices, choice_log_probs)),
            np.split(unlisted, ends) if is_capped else [None] * len(lengths),
        ]
        return [_Numbers(*parts) for parts in zip(*columns, strict=True)]


def _listed_log_probs(kept: Kept, pairs: Sequence[TokenPair]) -> Tensor:
    """What the policy's list says of each target token, −inf where it is not listed. [windows, longest suffix]"""
    targets = torch.nn.utils.rnn.pad_sequence([torch.tensor(pair.suffix_ids) for pair in pairs], batch_first=True)
    is_target = kept.token_ids == to_device(targets, kept.token_ids.device)[..., None]
    return torch.where(is_target, kept.log_probs, -math.inf).amax(-1)


def _unpadded(rows: NDArray[Any], lengths: Sequence[int]) -> NDArray[Any]:
    return np.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)])


def _verbatim_score(window: Window, numbers: _Numbers, eos_ids: frozenset[int]) -> VerbatimScore:
    # Summed from first to last, as the search does.
    log_p = np.cumsum(numbers.log_probs, axis=1)[:, -1]
    # A generation stops at an end-of-text token, so no continuation of T tokens has one before its end.
    can_be_generated = eos_ids.isdisjoint(window.suffix_ids[:-1])
    return VerbatimScore(
        window,
        tuple(log_p.tolist()) if can_be_generated else (-math.inf,) * len(log_p),
        tuple(np.exp(numbers.log_probs[0]).tolist()),
        tuple(numbers.ranks.tolist()),
        float(numbers.model_log_probs.sum()),
        tuple(numbers.first_choices.tolist()),
        tuple(numbers.first_choice_log_probs.tolist()),
        tuple(numbers.model_log_probs.tolist()),
        tuple(numbers.standard_scores.tolist()),
        _most(numbers) if can_be_generated else None,
    )


def _most(numbers: _Numbers) -> float | None:
    """What p_z can be at most where a server's list is short: the lower bound, and all that its path left unlisted."""
    if numbers.unlisted is None:
        return None
    reached = np.exp(np.concatenate([[0.0], np.cumsum(numbers.log_probs[0])]))  # of each beginning of the target
    return min(1.0, float(reached[-1] + (reached[:-1] * numbers.unlisted).sum()))
