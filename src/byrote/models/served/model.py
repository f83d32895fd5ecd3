"""A served model as the search sees it, and how it is connected: its tokenizer, its identity, its checks."""

import copy
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from byrote.distance.text import TokenTexts
from byrote.errors import ConfigError, ModelError
from byrote.models.base import ModelIdentity
from byrote.models.hf import files, weights
from byrote.models.listed import ListedModel, OpenShares, RowFiller
from byrote.models.served import check
from byrote.models.served.client import Read, RequestCount, RequestLimits, Server, Unreadable, check_endpoint
from byrote.models.served.dialects import field, items, token_id
from byrote.models.served.logprobs import RowCache, RowClient, key_of, packed, unpacked
from byrote.models.token_texts import token_texts_of
from byrote.models.tokenizer import Tokenizing, hash_tokenizer, ids_within
from byrote.policy import Policy
from byrote.types import BosRule, Encoding

HASHED_TEXT = "The quick brown fox — naïve façade, 12,345.67 €\n\nend"
PROBE_TEXT = "The quick brown fox jumps over the lazy dog"


@dataclass(frozen=True, slots=True)
class EndpointIdentity(ModelIdentity):
    """What is known of a served model. None of it is verified: a server can answer with any model."""

    endpoint: str
    served_model: str
    dialect: str
    scores: str
    """How probabilities inside a prompt were requested."""
    listed_tokens: int
    tokenizer_round_trip: str
    server_says: dict[str, Any]
    is_verified: bool = False


class EndpointModel(ListedModel):
    """A served model as the search sees it. Build one with `connect`."""

    client: RowClient

    def __init__(
        self,
        client: RowClient,
        tokenizing: "Tokenizing | ServerTokenizer",
        identity: EndpointIdentity,
        *,
        filler: RowFiller,
        fingerprint: check.Fingerprint,
        max_positions: int | None,
        eos_ids: frozenset[int],
    ) -> None:
        super().__init__(client, filler)
        self.name = identity.name
        self.identity = self.described = identity
        self.max_positions, self.eos_ids = max_positions, eos_ids
        self.tokenizing = tokenizing if isinstance(tokenizing, Tokenizing) else None
        self.bos_id, self.encode_batch, self.decode = tokenizing.bos_id, tokenizing.encode_batch, tokenizing.decode
        self.sent = client.server.sent
        """What was sent so far, by all openings of the run."""
        self._fingerprint = fingerprint

    @cached_property
    def token_texts(self) -> TokenTexts:
        if self.tokenizing is None:
            raise ModelError(
                f"{self.name} tokenises for us, but does not list the texts of its tokens, which --unit text compares; "
                "give --tokenizer FOLDER."
            )
        return token_texts_of(self)

    def close(self) -> None:
        self.client.server.close()

    def use_cache(self, cache: RowCache) -> None:
        """From now on answers come from `cache` where it has them, and go there. Refuses a server that does not answer
        as it did when the cache was begun."""
        self.client.cache = cache
        key = key_of(self._fingerprint.prompt)
        if (stored := cache.find(key)) is None:
            cache.keep({key: packed([self._fingerprint.row])})
        else:
            check.require_same_model(unpacked(stored)[0], self._fingerprint.row, self.identity.endpoint)

    def with_cache(self, cache: RowCache) -> "EndpointModel":
        """The same model with another cache and one prompt a request: every prompt is batched differently."""
        other = copy.copy(self)
        other.client = copy.copy(self.client)
        other.client.cache, other.client.prompts_per_request = cache, 1
        other.open_shares = OpenShares()
        return other


def connect(
    name: str,
    *,
    key: str | None,
    policy: Policy,
    tokenizer: str | None,
    limits: RequestLimits,
    sent: RequestCount,
    served_model: str | None = None,
    dialect: str = "auto",
    listed: int | None = None,
    texts: Sequence[str] = (),
) -> EndpointModel:
    """The model served at `name`, checked before anything is measured. `listed` None: as many tokens as `policy` keeps;
    `texts` are tokenised on both sides and must agree; `sent` counts every request before it goes out, and is closed
    with the model."""
    url = check_endpoint(name.removeprefix("endpoint:"), option="--model endpoint:URL")
    root = url.rstrip("/").removesuffix("/v1")
    loaded, settings = (None, {}) if tokenizer is None else _tokenizer_of(tokenizer)
    server = Server(root, key, limits, sent)
    try:
        card = check.find_card(server, served_model)
        kind = check.find_dialect(dialect, card, root)
        vocab_size = max(0 if loaded is None else len(loaded), card.vocab_size or 0, settings.get("vocab_size") or 0)
        tokenizing: Tokenizing | ServerTokenizer
        if loaded is not None:
            tokenizing = Tokenizing(loaded, name)
            checked = check.round_trip(server, kind, tokenizing, model=card.name, texts=texts)
            eos_ids = ids_within(vocab_size, settings.get("eos_token_id"), loaded.eos_token_id)
            tokenizer_hash = hash_tokenizer(loaded)
        elif kind.name == "llamacpp" and vocab_size:
            tokenizing = ServerTokenizer(server, name)
            checked, eos_ids, tokenizer_hash = "the server's own tokenizer", tokenizing.eos_ids, tokenizing.hash
        else:
            raise ConfigError("tokenizer is missing; give --tokenizer FOLDER, that of the model that is served.")
        wanted = listed or policy.width(vocab_size)
        client = RowClient(server, kind, model=card.name, listed=wanted, vocab_size=vocab_size)
        fingerprint = check.probe_server(client, _probe_tokens(tokenizing))
    except BaseException:
        server.close()
        raise
    identity = EndpointIdentity(
        name=name,
        revision=None,
        weights_hash=f"not known: a server's weights cannot be seen; {card.name} at {root}",
        tokenizer_hash=tokenizer_hash,
        parameters=None,
        dtype="the server's",
        device="the server's",
        endpoint=root,
        served_model=card.name,
        dialect=client.dialect.name,
        scores=client.dialect.scores or "one prompt a place",
        listed_tokens=client.listed,
        tokenizer_round_trip=checked,
        server_says=card._asdict(),
    )
    return EndpointModel(
        client,
        tokenizing,
        identity,
        filler=RowFiller(policy, client.listed, vocab_size),
        fingerprint=fingerprint,
        max_positions=card.max_positions,
        eos_ids=eos_ids,
    )


def _tokenizer_of(folder: str) -> tuple[Any, dict[str, Any]]:
    """The tokenizer of a folder on this machine, and the fields of config.json and generation_config.json beside it,
    where they exist. Code that a folder brings along is not run."""
    path = Path(os.path.expanduser(folder))
    if not path.is_dir():
        raise ModelError(f"there is no tokenizer folder at {folder}; give one with tokenizer.json.")
    files.refuse_what_would_run_code(folder, path)
    settings: dict[str, Any] = {}
    for file in (path / files.CONFIG, path / "generation_config.json"):
        if file.exists():
            settings |= files.read_settings(file, advice="give the tokenizer's own")
    return weights.read_tokenizer(folder, str(path)), settings


def _probe_tokens(tokenizing: "Tokenizing | ServerTokenizer") -> list[int]:
    """A few tokens to probe a server with, two at least."""
    (encoded,) = tokenizing.encode_batch([PROBE_TEXT])
    ids = list(encoded.ids[:8]) or [0]
    return ids if len(ids) > 1 else ids * 2


class ServerTokenizer:
    """llama-server's own tokenizer, where no folder with one is given: tokens and character spans by its /tokenize and
    /detokenize, one request a text. Other servers do not give the characters of a token."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self.name = server, name

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        return list(self._server.pool.map(self._encoding, texts))

    def decode(self, ids: Sequence[int]) -> str:
        return self._server.request("/detokenize", {"tokens": list(ids)}, lambda answer: str(field(answer, "content")))

    def bos_id(self, rule: BosRule) -> int | None:
        """The token that the server itself puts before a text, for `auto` and `always`."""
        if rule == "never":
            return None
        plain, begun = (self._ids("a", is_begun=is_begun) for is_begun in (False, True))
        added = begun[0] if len(begun) > len(plain) else None
        if added is None and rule == "always":
            raise ModelError(
                f"{self.name} puts no beginning-of-text token before a text; leave bos at auto, or set it never."
            )
        return added

    @property
    def eos_ids(self) -> frozenset[int]:
        """The token that ends a text, where the server names one."""
        named = self._server.request(
            "/props", None, lambda props: props.get("eos_token") if isinstance(props, dict) else None
        )
        ids = self._ids(named, is_special=True) if isinstance(named, str) and named else []
        return frozenset(ids) if len(ids) == 1 else frozenset()

    @property
    def hash(self) -> str:
        """There is no file to hash: what becomes of a fixed text."""
        return hashlib.sha256(repr(self._ids(HASHED_TEXT)).encode()).hexdigest()

    def _ids(self, text: str, *, is_begun: bool = False, is_special: bool = False) -> list[int]:
        body = {"content": text, "add_special": is_begun, "parse_special": is_special}
        return self._tokenized(body, token_id)

    def _encoding(self, text: str) -> Encoding:
        body = {"content": text, "add_special": False, "parse_special": False, "with_pieces": True}
        tokens = self._tokenized(body, lambda token: (token_id(field(token, "id")), _bytes(field(token, "piece"))))
        return Encoding([own for own, _ in tokens], spans_of(text, [piece for _, piece in tokens], name=self.name))

    def _tokenized(self, body: dict[str, Any], read: Callable[[Any], Read]) -> list[Read]:
        """What `read` makes of each token."""
        return self._server.request(
            "/tokenize", body, lambda answer: [read(token) for token in items(field(answer, "tokens"), "tokens")]
        )


def spans_of(text: str, pieces: Sequence[bytes], *, name: str) -> list[tuple[int, int]]:
    """The character span of each piece; that of a blank which the tokenizer put in front is empty."""
    joined, written = b"".join(pieces), text.encode()
    added = len(joined) - len(written)
    if joined != b" " * added + written or added > 1:
        raise ModelError(
            f"the pieces that {name} makes of {text[:40]!r} are not that text; give --tokenizer FOLDER instead."
        )
    characters = np.repeat(np.arange(len(text)), [len(character.encode()) for character in text])
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64) - added
    starts = np.maximum(0, ends - [len(piece) for piece in pieces])
    return [
        (int(characters[start]), int(characters[end - 1]) + 1) if end > start else (0, 0)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _bytes(piece: Any) -> bytes:
    """A piece is a text, or bytes where these are no whole characters."""
    if isinstance(piece, str):
        return piece.encode()
    values = items(piece, "bytes")
    if not all(isinstance(value, int) and 0 <= value < 256 for value in values):
        raise Unreadable("a piece is neither text nor bytes")
    return bytes(values)
