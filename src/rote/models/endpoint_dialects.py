"""How servers are asked for the most likely next tokens, and how their answers are read: one small contract, a class
for each kind of server.

Token ids are required on both ways. Answers that name tokens by their text are refused: different tokens can have the
same text, and one of them would silently take the place of the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rote.errors import EndpointError
from rote.models.chat_reply import Unreadable

ALL_TOKENS: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0}
"""Nothing that a server might do to its probabilities before it tells them. Defaults differ, and may come from a
model's own files, so everything is said. No seed: nothing that is sampled is used, and vLLM on a CPU ends over a seeded
request whose prompt it computes in parts."""
MOST_TOKENS = 2**24
"""Of a vocabulary; a row of logits of a larger one would not fit into memory."""


class Prompt(NamedTuple):
    """Tokens, and from which place on it is wanted what comes next; the place of the last token is always wanted."""

    token_ids: tuple[int, ...]
    first_place: int

    @property
    def rows(self) -> int:
        return len(self.token_ids) - self.first_place

    @property
    def is_chain(self) -> bool:
        """Whether more is asked than what follows the whole prompt."""
        return self.rows > 1

    def single(self) -> list["Prompt"]:
        """The same places, one prompt each."""
        return [Prompt(self.token_ids[: place + 1], place) for place in range(self.first_place, len(self.token_ids))]


Said = dict[int, float]
"""Log-probabilities of one place by token id."""


class Card(NamedTuple):
    """What a server says about the model it serves."""

    name: str
    owner: str
    max_positions: int | None
    vocab_size: int | None


class Dialect(Protocol):
    """A kind of server. `scores` says how it tells about places inside a prompt; None: by one prompt a place."""

    name: str
    path: str
    """Where requests go, from the root of the server."""
    scores: str | None
    lifts_cap: str
    """The setting of the server that lets it list more tokens, in words."""

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int, temperature: float) -> dict[str, Any]:
        """One request; its prompts are all chains or none is."""
        ...

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Said]]:
        """What is said for each prompt, place by place. Raises `Unreadable`, or `EndpointError` for text keys."""
        ...

    def tokenize_body(self, text: str, *, model: str) -> dict[str, Any]:
        """What /tokenize takes: the text's tokens, without special ones added."""
        ...


def text_keys(server: str) -> EndpointError:
    return EndpointError(
        f"{server} names tokens by their text, not by their ids; tokens with the same text would be lost. Use a server "
        "that gives ids (vLLM, SGLang, llama.cpp's llama-server) and is recent."
    )


def number(value: Any) -> float:
    """A log-probability; servers may write minus infinity as null."""
    if value is None:
        return -float("inf")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Unreadable(f"a log-probability is {str(value)[:40]!r}")
    return float(value)


def token_id(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise Unreadable(f"a token id is {str(value)[:40]!r}")
    return value


def items(value: Any, what: str, count: int | None = None) -> list[Any]:
    """A list, of `count` elements where that is known."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        found = f"{len(value)} of {count}" if isinstance(value, list) else "none"
        raise Unreadable(f"it should hold {what}, and has {found}")
    return value


def in_order(value: Any, what: str, count: int) -> list[Any]:
    """A list of `count` elements in the order of the prompts: by their numbers where they have some."""
    answers = items(value, what, count)
    numbers = [one["index"] for one in answers if isinstance(one, dict) and "index" in one]
    if not numbers:
        return answers
    # Anything else would give one prompt's probabilities to another.
    if sorted(map(repr, numbers)) != sorted(map(repr, range(count))):
        raise Unreadable(f"its {what} are not numbered as the prompts are")
    return sorted(answers, key=lambda one: int(one["index"]))


def require_whole(counted: Any, prompts: Sequence[Prompt]) -> None:
    """Refuse an answer about prompts that were cut, or that a server put tokens of its own before. `counted` is what
    the server says they had, where it does."""
    sent = sum(len(prompt.token_ids) for prompt in prompts)
    if isinstance(counted, int) and counted != sent:
        raise Unreadable(f"it is about {counted} tokens where {sent} were sent, so it was given another text")


def field(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise Unreadable(f"it has no {name}")
    return value[name]


def card_of(entry: Any) -> Card:
    """An entry of /v1/models."""
    known: dict[str, Any] = entry if isinstance(entry, dict) else {}
    inner = known.get("meta")
    meta: dict[str, Any] = inner if isinstance(inner, dict) else {}
    return Card(
        str(known.get("id", "")),
        str(known.get("owned_by", "")),
        _whole(known.get("max_model_len")) or _whole(meta.get("n_ctx")) or _whole(meta.get("n_ctx_train")),
        _whole(meta.get("n_vocab"), most=MOST_TOKENS),
    )


def _whole(value: Any, most: int = 2**31) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else None
