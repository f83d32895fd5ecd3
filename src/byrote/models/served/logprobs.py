"""Rows of a server: which prompts share a request, the cache of answers, and requests that are too large."""

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from typing import Protocol

import numpy as np

from byrote.errors import EndpointError
from byrote.models.listed import Listing, Prompt, Row, row_of
from byrote.models.responder import RequestTooLarge
from byrote.models.served.client import CHAINS_PER_REQUEST, Server
from byrote.models.served.dialects import Dialect

CHAIN_BYTES = 1 << 26
"""Logits in float32 that a request may make a server hold for places inside prompts; one chain is always sent."""


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
        half = max(1, len(prompt.token_ids) // 2)
        beginning = (prompt.is_chain, prompt.token_ids[:half])
        if family and (family[-1].is_chain, family[-1].token_ids[:half]) != beginning:
            yield family
            family = []
        family.append(prompt)
    if family:
        yield family


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
