"""Models known by rows: a server or an engine lists the most likely next tokens, and what follows for the others.

A row has K tokens with their log-probabilities. A policy that keeps k ≤ K of them is known exactly. One that keeps more
is known up to its normaliser N, the weight of the k heaviest tokens: with S the weight of the listed ones, p_K the
lightest of these and R = 1 − S the probability that is left,

    S ≤ N ≤ N⁺ = S + the most weight that k − K tokens can have, each at most p_K, all together at most R

At temperature β a token of probability p weighs p^(1/β), which is concave for β ≥ 1 and convex below. So the most
weight is that of equal tokens, min(p_K, R/(k − K)) each, for β ≥ 1; and for β < 1 that of as many tokens of p_K as R
pays for, and one of the rest. At β = 1 both give N⁺ = min(1, S + (k − K)·p_K).

The unlisted tokens of a row are filled in that way, so that the policy's own normaliser of the filled row is N⁺.
Of the filled row, the K listed tokens (`keep` with `cap=K`) have p/N⁺ ≤ p/N each, a lower bound on the probability, and
1 − S/N⁺ is unlisted: at least the probability of all other tokens, and what the listed ones may weigh more. Products of
such bounds are lower bounds on paths; what a path's nodes leave unlisted, added up, is all that its continuations can
weigh more. So sums of both kinds enclose the truth at every edit distance, by the same ledger that serves
`max_children`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.errors import EndpointError
from byrote.models.base import WindowScores
from byrote.models.history import History, HistorySession
from byrote.models.scoring import score_tokens
from byrote.policy import Policy

LOWEST = -9999.0
"""Servers write minus infinity as this or less, because JSON has no infinity."""
MAX_PROBABILITY_SUM = 1.01
"""Listed probabilities that add up to more than this are none; servers round."""
ROUNDING = 1e-6
"""How far the sum of listed probabilities may be off: log-probabilities are sent in float32."""
CHUNK = 64
"""Rows of logits in one piece of a forward."""


class Prompt(NamedTuple):
    """Tokens, and the first place whose next token is wanted; all places from there to the last are."""

    token_ids: tuple[int, ...]
    first_place: int

    @property
    def is_chain(self) -> bool:
        """Whether more is wanted than what follows the whole prompt."""
        return len(self.token_ids) - self.first_place > 1

    def single(self) -> list["Prompt"]:
        """The same places, one prompt each."""
        return [Prompt(self.token_ids[: place + 1], place) for place in range(self.first_place, len(self.token_ids))]


Listing = dict[int, float]
"""The log-probabilities that a server lists for one place, by token id."""


class Row(NamedTuple):
    """The K most likely tokens in falling probability, ties by lower id."""

    token_ids: NDArray[np.int32]
    log_probs: NDArray[np.float32]

    @property
    def by_token(self) -> dict[int, float]:
        return dict(zip(self.token_ids.tolist(), self.log_probs.tolist(), strict=True))


def row_of(listing: Listing, *, listed: int, vocab_size: int) -> Row:
    """The row of a server's list, checked. Servers add the token that was sampled, or that comes next; where it is not
    among the most likely it is left out: nothing would follow from a list with gaps for the tokens it leaves out."""
    expected = min(listed, vocab_size)
    if len(listing) < expected:
        raise EndpointError(
            f"the server listed {len(listing)} tokens where {expected} were asked for; "
            f"give --set logprobs={max(1, len(listing))}."
        )
    if (largest := max(listing)) >= vocab_size:
        raise EndpointError(
            f"the server listed token {largest}, but the tokenizer has {vocab_size} tokens; give the --tokenizer of "
            "the model that is served, with its config.json."
        )
    chosen = sorted(listing.items(), key=lambda item: (-item[1], item[0]))[:expected]
    values = np.array([value for _, value in chosen], dtype=np.float64)
    values[values <= LOWEST] = -math.inf
    total = float(np.exp(np.minimum(values, 1.0)).sum())
    if not (values < 0.01).all() or not 0 < total <= MAX_PROBABILITY_SUM:
        raise EndpointError(
            f"the server's probabilities of one token's place add up to {total:.3f}; they are no probabilities."
        )
    return Row(np.array([token for token, _ in chosen], dtype=np.int32), values.astype(np.float32))


class RowFiller(NamedTuple):
    """How whole rows are made of listed ones, for one policy."""

    policy: Policy
    listed: int
    vocab_size: int

    @property
    def is_exact(self) -> bool:
        """Whether the server lists all tokens that the policy can keep."""
        return self.policy.width(self.vocab_size) <= self.listed

    def logits(self, rows: Iterable[Row]) -> Tensor:
        """[rows, vocab] float32: log-probabilities, the unlisted ones filled in as in this module's docstring."""
        filled = [self._filled(row) for row in rows]
        return torch.from_numpy(np.stack(filled)) if filled else torch.zeros(0, self.vocab_size)

    def open_share(self, row: Row) -> float:
        """1 − S/N⁺: how much of the policy's next token is open for want of a longer list."""
        if self.is_exact:
            return 0.0
        temperature = self.policy.temperature
        known = np.exp(row.log_probs.astype(np.float64) / temperature).sum()
        added = np.exp(self._unlisted(row).astype(np.float64) / temperature).sum()
        return float(added / (known + added))

    def _filled(self, row: Row) -> NDArray[np.float32]:
        logits = np.full(self.vocab_size, -np.inf, dtype=np.float32)
        logits[row.token_ids] = row.log_probs
        fill = self._unlisted(row)
        free = np.delete(np.arange(self.vocab_size), row.token_ids)[: len(fill)]
        logits[free] = fill[: len(free)]
        return logits

    def _unlisted(self, row: Row) -> NDArray[np.float32]:
        """Log-probabilities given to tokens that are not listed, as many as the policy can keep."""
        width = self.vocab_size if self.is_exact else self.policy.width(self.vocab_size)
        count = max(0, width - len(row.log_probs))
        rest = max(0.0, 1.0 - float(np.exp(row.log_probs.astype(np.float64)).sum()))
        # Above 1 a temperature lifts what is light: the rounding of a sum near 1 would weigh many times itself.
        rest += ROUNDING if self.policy.temperature > 1 and not self.is_exact else 0.0
        lightest = row.log_probs.min()
        # Strictly below the lightest: among equals the lower id comes first, and an invented one must never.
        ceiling = np.nextafter(lightest, np.float32(-np.inf)) if np.isfinite(lightest) else np.float32(-np.inf)
        if not count or rest == 0.0 or ceiling == -np.inf:
            return np.full(count, -np.inf, dtype=np.float32)
        if self.policy.temperature >= 1:
            return np.full(count, min(ceiling, np.float32(math.log(rest / count))), dtype=np.float32)
        whole = min(count, int(rest / math.exp(float(ceiling))))
        fill = np.full(count, -np.inf, dtype=np.float32)
        fill[:whole] = ceiling
        left = rest - whole * math.exp(float(ceiling))
        if whole < count and left > 0:
            fill[whole] = min(ceiling, np.float32(math.log(left)))
        return fill


@dataclass(slots=True)
class OpenShares:
    """What short lists cost: the share of the policy's next token that stayed open, over all places."""

    places: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, shares: Sequence[float]) -> None:
        self.places += len(shares)
        self.total += sum(shares)
        self.largest = max([self.largest, *shares])

    @property
    def mean(self) -> float:
        return self.total / self.places if self.places else math.nan


class RowSource(Protocol):
    """What answers prompts: a client of a server, or an engine."""

    def rows(self, prompts: Sequence[Prompt]) -> list[list[Row]]:
        """For each prompt its rows, place by place."""


class ListedModel:
    """A model whose next-token probabilities arrive as rows; `filler` holds the policy and how many tokens are listed.
    Its weights are elsewhere, so numbers are float32 on the host."""

    device = torch.device("cpu")
    dtype = torch.float32
    searches_trees = True
    client: RowSource

    def __init__(self, client: RowSource, filler: RowFiller) -> None:
        self.client, self.filler, self.open_shares = client, filler, OpenShares()

    @property
    def vocab_size(self) -> int:
        return self.filler.vocab_size

    @property
    def listed_tokens(self) -> int:
        return self.filler.listed

    @property
    def in_float32(self) -> Self:
        return self

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        prompts = [Prompt(tuple(history), len(history) - 1) for history in histories]
        return self.filler.logits([rows[0] for rows in self.client.rows(prompts)])

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        prompts = [Prompt(tuple(window[:-1]), len(window) - 1 - suffix_tokens) for window in windows]
        parts = [
            score_tokens(self.filler.logits(rows), torch.tensor(window[-suffix_tokens:]), policies)
            for window, rows in zip(windows, self.client.rows(prompts), strict=True)
        ]
        return WindowScores(
            torch.stack([part.log_probs for part in parts], 1),
            # Unlisted tokens rank after the listed ones; their order is not known.
            torch.stack([part.ranks for part in parts]).clamp(max=self.listed_tokens),
            torch.stack([part.model_log_probs for part in parts]),
        )

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> HistorySession:
        """One prompt for each beam and each chain; all prompts of a forward are requested together."""
        return HistorySession(
            slots,
            entries,
            device=self.device,
            evaluate=self._rows_of,
            logits=self.filler.logits,
            rows_at_once=CHUNK,
        )

    def _rows_of(self, histories: list[History]) -> list[Row]:
        prompts = [Prompt(tuple(history.token_ids.tolist()), min(history.places)) for history in histories]
        rows = [
            places[place - prompt.first_place]
            for history, prompt, places in zip(histories, prompts, self.client.rows(prompts), strict=True)
            for place in history.places
        ]
        self.open_shares.add([self.filler.open_share(row) for row in rows])
        return rows

    def tree_bytes_per_entry(self) -> int:
        return 8

    def score_bytes_per_token(self) -> int:
        return 4 * self.vocab_size

    def compile_layers(self) -> None:
        """Its layers are in the server or the engine."""
