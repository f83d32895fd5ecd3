"""Rows for prompts: grouped into requests, remembered in a book.

An answer is written to the book before anything is made of it. So what was answered is never asked again, and at most
what was in flight is asked twice.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from typing import Protocol

from rote.models.endpoint_client import Server
from rote.models.endpoint_dialects import Dialect, Prompt, Said
from rote.models.endpoint_rows import Row, row_of

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
