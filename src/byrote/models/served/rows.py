"""What a server says about the next token: its most likely tokens, and what follows for the tokens it does not list.

A row has K tokens with their log-probabilities. A policy that keeps k ≤ K of them is known exactly. One that keeps more
is known up to its normaliser N, the weight of the k heaviest tokens: with S the weight of the listed ones, p_K the
lightest of these and R = 1 − S the probability that is left,

    S ≤ N ≤ N⁺ = S + the most weight that k − K tokens can have, each at most p_K, all together at most R

At temperature β a token of probability p weighs p^(1/β), which is concave for β ≥ 1 and convex below. So the most
weight is that of equal tokens, min(p_K, R/(k − K)) each, for β ≥ 1; and for β < 1 that of as many tokens of p_K as R
pays for, and one of the rest. At β = 1 both give N⁺ = min(1, S + (k − K)·p_K).

The unlisted tokens of a row are filled in that way, so that the policy's own normaliser of the filled row is N⁺.
Whoever lists K tokens of it (`keep` with `cap=K`) gets p/N⁺ ≤ p/N for each, a lower bound on its probability, and
1 − S/N⁺ as unlisted: at least the probability of all other tokens, and what the listed ones may weigh more. Products of
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
from byrote.models.base import TreeBatch
from byrote.models.history import TokenMemory
from byrote.models.served.client import Server
from byrote.models.served.dialects import Dialect, Prompt, Said
from byrote.policy import Policy

LOWEST = -9999.0
"""Servers write minus infinity as this or less, because JSON has no infinity."""
MOST_TOGETHER = 1.01
"""Listed probabilities that add up to more than this are none; servers round."""


ROUNDING = 1e-6
"""How far the sum of listed probabilities may be off: log-probabilities are told in float32."""


class Row(NamedTuple):
    """The K most likely tokens in falling probability, ties by lower id."""

    token_ids: NDArray[np.int32]
    log_probs: NDArray[np.float32]

    @property
    def by_token(self) -> dict[int, float]:
        return dict(zip(self.token_ids.tolist(), self.log_probs.tolist(), strict=True))

    def to_bytes(self) -> bytes:
        return self.token_ids.astype("<i4").tobytes() + self.log_probs.astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes) -> "Row":
        half = len(stored) // 2
        return cls(np.frombuffer(stored[:half], "<i4"), np.frombuffer(stored[half:], "<f4"))


def row_of(said: Mapping[int, float], *, listed: int, vocab_size: int) -> Row:
    """A row out of what a server said, checked. Servers add the token that was sampled, or that comes next; where it is
    not among the most likely it is left out: a list with gaps would say nothing about what it leaves out."""
    expected = min(listed, vocab_size)
    if len(said) < expected:
        raise EndpointError(
            f"the server listed {len(said)} tokens where {expected} were asked for; "
            f"give --set logprobs={max(1, len(said))}."
        )
    if (largest := max(said)) >= vocab_size or min(said) < 0:
        raise EndpointError(
            f"the server listed token {largest if largest >= vocab_size else min(said)}, but the tokenizer knows "
            f"{vocab_size} tokens; give the --tokenizer of the model that is served, with its config.json."
        )
    chosen = sorted(said.items(), key=lambda item: (-item[1], item[0]))[:expected]
    values = np.array([value for _, value in chosen], dtype=np.float64)
    values[values <= LOWEST] = -math.inf
    together = float(np.exp(np.minimum(values, 1.0)).sum())
    if not (values < 0.01).all() or not 0 < together <= MOST_TOGETHER:
        raise EndpointError(
            f"the server's probabilities of one token's place add up to {together:.3f}; they are no probabilities."
        )
    return Row(np.array([token for token, _ in chosen], dtype=np.int32), values.astype(np.float32))


class Filling(NamedTuple):
    """How whole rows are made of listed ones, for one policy."""

    policy: Policy
    listed: int
    vocab_size: int

    @property
    def is_exact(self) -> bool:
        """Whether the server lists all tokens that the policy can keep."""
        return self.policy.width(self.vocab_size) <= self.listed

    def logits(self, rows: Iterable[Row]) -> Tensor:
        """[rows, vocab] float32: log-probabilities, the unlisted ones filled in as this module's head says."""
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


CHAINS_PER_REQUEST = 8
"""Answers about all places of a prompt are large: a list for every token."""


class Book(Protocol):
    """What was answered, to this process and those before it."""

    def find(self, key: str) -> bytes | None:
        """What was answered under `key`."""
        ...

    def keep(self, answers: Mapping[str, bytes]) -> None:
        """Remembered before this returns: the answers of one request."""
        ...


class EmptyBook:
    """A book that keeps nothing."""

    def find(self, key: str) -> bytes | None:
        return None

    def keep(self, answers: Mapping[str, bytes]) -> None:
        """Nothing is kept."""


class Asker:
    """Rows for prompts, from the book where it has them, else from the server."""

    def __init__(
        self, server: Server, dialect: Dialect, *, model: str, listed: int, vocab_size: int, book: Book | None = None
    ) -> None:
        self.server, self.dialect, self.model = server, dialect, model
        self.listed, self.vocab_size = listed, vocab_size
        self.book: Book = EmptyBook() if book is None else book
        self.prompts_per_request = server.manners.prompts_per_request
        self._lock = threading.Lock()

    def rows(self, prompts: Sequence[Prompt], *, temperature: float = 1.0) -> list[list[Row]]:
        """For each prompt its rows, place by place."""
        if self.dialect.scores is None and any(prompt.is_chain for prompt in prompts):
            return self._place_by_place(prompts)
        keys = [key_of(prompt) for prompt in prompts]
        found = {key: rows for key in keys if (rows := self._remembered(key)) is not None}
        missing = list({key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in found}.values())
        for prompt, rows in self._ask(missing, temperature):
            found[key_of(prompt)] = rows
        return [found[key] for key in keys]

    def _place_by_place(self, prompts: Sequence[Prompt]) -> list[list[Row]]:
        single = [prompt.single() for prompt in prompts]
        rows = iter(self.rows([one for places in single for one in places]))
        return [[next(rows)[0] for _ in places] for places in single]

    def _remembered(self, key: str) -> list[Row] | None:
        stored = self.book.find(key)
        return None if stored is None else unpacked(stored)

    def _ask(self, prompts: Sequence[Prompt], temperature: float) -> Iterator[tuple[Prompt, list[Row]]]:
        requests = list(bundles(prompts, self.prompts_per_request))
        pending = [self.server.pool.submit(self._request, request, temperature) for request in requests]
        try:
            for request, future in zip(requests, pending, strict=True):
                yield from zip(request, future.result(), strict=True)
        except BaseException:
            # What is under way ends and is remembered; what has not begun is not sent.
            wait([future for future in pending if not future.cancel()])
            raise

    def said(
        self, prompts: Sequence[Prompt], *, listed: int | None = None, temperature: float = 1.0
    ) -> list[list[Said]]:
        """One request, as the server answers it. Raises `AnswerUnreadable` when it is not in the dialect."""
        dialect = self.dialect
        body = dialect.body(prompts, model=self.model, listed=listed or self.listed, temperature=temperature)
        tokens = sum(len(prompt.token_ids) + 1 for prompt in prompts)
        return self.server.post(dialect.path, body, lambda answer: dialect.read(answer, prompts), tokens=tokens)

    def _request(self, prompts: Sequence[Prompt], temperature: float) -> list[list[Row]]:
        said = self.said(prompts, temperature=temperature)
        rows = [[row_of(one, listed=self.listed, vocab_size=self.vocab_size) for one in places] for places in said]
        with self._lock:
            self.book.keep({key_of(prompt): packed(places) for prompt, places in zip(prompts, rows, strict=True)})
        return rows


def bundles(prompts: Sequence[Prompt], most: int) -> Iterator[list[Prompt]]:
    """Prompts in their order, in requests of at most `most` of one kind (chains: fewer). Siblings, which share at least
    half of their tokens, stay together, so that a server's cache of whole blocks serves all but the first."""
    bundle: list[Prompt] = []
    for family in _families(prompts):
        limit = min(most, CHAINS_PER_REQUEST) if family[0].is_chain else most
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
    parts = [row.to_bytes() for row in rows]
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def unpacked(stored: bytes) -> list[Row]:
    rows, start = [], 0
    while start < len(stored):
        end = start + 4 + int.from_bytes(stored[start : start + 4], "little")
        rows.append(Row.from_bytes(stored[start + 4 : end]))
        start = end
    return rows


CHUNK = 64
"""Rows of logits in one piece of a forward."""


@dataclass(slots=True)
class LeftOpen:
    """What a server's short lists cost: the share of the policy's next token that stayed open, place by place."""

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


class EndpointSession(TokenMemory):
    """One prompt for each beam and each chain; all prompts of a forward are asked together."""

    def __init__(self, asker: Asker, filling: Filling, left_open: LeftOpen, *, slots: int, entries: int) -> None:
        super().__init__(slots, entries, torch.device("cpu"))
        self._asker, self._filling, self._left_open = asker, filling, left_open

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._filling.logits(self._rows(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        rows = self._rows(batch)
        return (self._filling.logits(rows[first : first + CHUNK]) for first in range(0, max(1, len(rows)), CHUNK))

    def _rows(self, batch: TreeBatch) -> list[Row]:
        """Store the batch; the row of each output."""
        histories = self.take(batch)
        prompts = [Prompt(tuple(history.token_ids.tolist()), min(history.places)) for history in histories]
        answered = self._asker.rows(prompts)
        rows = {
            output: places[place - prompt.first_place]
            for history, prompt, places in zip(histories, prompts, answered, strict=True)
            for output, place in zip(history.outputs, history.places, strict=True)
        }
        self._left_open.add([self._filling.open_share(row) for row in rows.values()])
        return [rows[output] for output in range(len(rows))]
