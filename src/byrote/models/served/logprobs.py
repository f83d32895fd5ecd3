"""Rows of next-token probabilities from a server: its most likely tokens, and what follows for those it does not list.

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

import hashlib
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.errors import EndpointError
from byrote.models.history import History, HistorySession
from byrote.models.responder import RequestTooLarge
from byrote.models.served.client import CHAINS_PER_REQUEST, Server
from byrote.models.served.dialects import Dialect, Listing, Prompt
from byrote.policy import Policy

LOWEST = -9999.0
"""Servers write minus infinity as this or less, because JSON has no infinity."""
MAX_PROBABILITY_SUM = 1.01
"""Listed probabilities that add up to more than this are none; servers round."""
ROUNDING = 1e-6
"""How far the sum of listed probabilities may be off: log-probabilities are sent in float32."""
CHAIN_BYTES = 1 << 26
"""Logits in float32 that a request may make a server hold for places inside prompts; one chain is always sent."""
CHUNK = 64
"""Rows of logits in one piece of a forward."""


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
        is_free = np.ones(self.vocab_size, dtype=bool)
        is_free[row.token_ids] = False
        free = np.flatnonzero(is_free)[: len(fill)]
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


class RowCache(Protocol):
    """Answers that this process and those before it got."""

    def find(self, key: str) -> bytes | None:
        """What was kept under `key`."""

    def keep(self, answers: Mapping[str, bytes]) -> None:
        """The answers of one request; kept before this returns."""


class RowClient:
    """Rows for prompts, from the cache where it has them, else from the server."""

    def __init__(self, server: Server, dialect: Dialect, *, model: str, listed: int, vocab_size: int) -> None:
        self.server, self.dialect, self.model = server, dialect, model
        self.listed, self.vocab_size = listed, vocab_size
        self.cache: RowCache | None = None
        self.prompts_per_request = server.limits.prompts_per_request
        self.places_at_once = CHAIN_BYTES // (4 * max(1, vocab_size))
        """Tokens of all chains in one request; fewer once the server refused so many."""
        self._lock = threading.Lock()

    def rows(self, prompts: Sequence[Prompt]) -> list[list[Row]]:
        """For each prompt its rows, place by place."""
        if self.dialect.scores is None and any(prompt.is_chain for prompt in prompts):
            single = [prompt.single() for prompt in prompts]
            places = iter(self.rows([one for chain in single for one in chain]))
            return [[next(places)[0] for _ in chain] for chain in single]
        keys = [key_of(prompt) for prompt in prompts]
        found: dict[str, list[Row]] = {}
        if self.cache is not None:
            found = {key: unpacked(stored) for key in keys if (stored := self.cache.find(key)) is not None}
        missing = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in found}
        for prompt, rows in self._request_all(list(missing.values())):
            found[key_of(prompt)] = rows
        return [found[key] for key in keys]

    def listings(self, prompts: Sequence[Prompt], *, listed: int | None = None) -> list[list[Listing]]:
        """One request, as the server answers it. Raises `AnswerUnreadable` when it is not in the dialect."""
        dialect = self.dialect
        body = dialect.body(prompts, model=self.model, listed=listed or self.listed)
        tokens = sum(len(prompt.token_ids) + 1 for prompt in prompts)
        return self.server.request(dialect.path, body, lambda answer: dialect.read(answer, prompts), tokens=tokens)

    def row_of(self, listing: Listing) -> Row:
        return row_of(listing, listed=self.listed, vocab_size=self.vocab_size)

    def _request_all(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, list[Row]]]:
        requests = list(bundles(prompts, self.prompts_per_request, places=self.places_at_once))
        pending = [self.server.pool.submit(self._request, request) for request in requests]
        try:
            for request, future in zip(requests, pending, strict=True):
                yield from zip(request, future.result(), strict=True)
        except BaseException:
            # What is under way ends and is kept; what has not begun is not sent.
            wait([future for future in pending if not future.cancel()])
            raise

    def _request(self, prompts: Sequence[Prompt]) -> list[list[Row]]:
        try:
            listings = self.listings(prompts)
        except RequestTooLarge:
            return self._request_in_pieces(prompts)
        rows = [[self.row_of(listing) for listing in places] for places in listings]
        if self.cache is not None:
            with self._lock:
                self.cache.keep({key_of(prompt): packed(places) for prompt, places in zip(prompts, rows, strict=True)})
        return rows

    def _request_in_pieces(self, prompts: Sequence[Prompt]) -> list[list[Row]]:
        """Rows of a request that was too large for the server: by halves, and at last one prompt a place."""
        if len(prompts) > 1:
            half = len(prompts) // 2
            if prompts[0].is_chain:
                self.places_at_once = min(self.places_at_once, sum(len(prompt.token_ids) for prompt in prompts[:half]))
            return [*self._request(prompts[:half]), *self._request(prompts[half:])]
        (prompt,) = prompts
        if not prompt.is_chain:
            raise EndpointError(
                f"{self.server.root} cannot answer a single prompt of {len(prompt.token_ids)} tokens for want of "
                "memory; give it more, or shorten --prefix-tokens."
            )
        self.dialect.scores = None
        pieces = bundles(prompt.single(), self.prompts_per_request)
        return [[row for piece in pieces for (row,) in self._request(piece)]]


def bundles(prompts: Sequence[Prompt], most: int, *, places: int = 1 << 30) -> Iterator[list[Prompt]]:
    """Prompts in their order, in requests of at most `most` of one kind; chains are fewer and have `places` tokens
    together, or are sent alone. Siblings, which share at least half of their tokens, stay together, so that a server's
    cache of whole blocks serves all but the first."""
    bundle: list[Prompt] = []
    longest = max((len(prompt.token_ids) for prompt in prompts), default=1)
    chains = max(1, min(most, CHAINS_PER_REQUEST, places // longest))
    for family in _families(prompts):
        limit = chains if family[0].is_chain else most
        for first in range(0, len(family), limit):
            part = family[first : first + limit]
            if bundle and (len(bundle) + len(part) > limit or bundle[0].is_chain != part[0].is_chain):
                yield bundle
                bundle = []
            bundle = [*bundle, *part]
    if bundle:
        yield bundle


def _families(prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
    family: list[Prompt] = []
    for prompt in prompts:
        if family and not _are_siblings(family[-1], prompt):
            yield family
            family = []
        family.append(prompt)
    if family:
        yield family


def _are_siblings(one: Prompt, other: Prompt) -> bool:
    half = max(1, len(other.token_ids) // 2)
    return one.is_chain == other.is_chain and one.token_ids[:half] == other.token_ids[:half]


def key_of(prompt: Prompt) -> str:
    """The same for equal prompts only."""
    return hashlib.sha256(f"{prompt.first_place} {prompt.token_ids}".encode()).hexdigest()[:32]


def packed(rows: Sequence[Row]) -> bytes:
    parts = [row.token_ids.astype("<i4").tobytes() + row.log_probs.astype("<f4").tobytes() for row in rows]
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def unpacked(stored: bytes) -> list[Row]:
    rows = []
    while stored:
        half = int.from_bytes(stored[:4], "little") // 8  # numbers of 4 bytes, as many ids as log-probabilities
        rows.append(Row(np.frombuffer(stored, "<i4", half, 4), np.frombuffer(stored, "<f4", half, 4 + 4 * half)))
        stored = stored[4 + 8 * half :]
    return rows


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


class EndpointSession(HistorySession):
    """One prompt for each beam and each chain; all prompts of a forward are requested together."""

    def __init__(
        self, client: RowClient, filler: RowFiller, open_shares: OpenShares, *, slots: int, entries: int
    ) -> None:
        super().__init__(
            slots,
            entries,
            device=torch.device("cpu"),
            evaluate=self._evaluated,
            logits=filler.logits,
            rows_at_once=CHUNK,
        )
        self._client, self._filler, self._open_shares = client, filler, open_shares

    def _evaluated(self, histories: list[History]) -> list[Row]:
        prompts = [Prompt(tuple(history.token_ids.tolist()), min(history.places)) for history in histories]
        rows = [
            places[place - prompt.first_place]
            for history, prompt, places in zip(histories, prompts, self._client.rows(prompts), strict=True)
            for place in history.places
        ]
        self._open_shares.add([self._filler.open_share(row) for row in rows])
        return rows
