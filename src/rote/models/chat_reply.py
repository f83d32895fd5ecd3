"""What a chat endpoint sent, read with suspicion: a `Reply` of checked types, or `Unreadable` with the reason.

Endpoints differ, and some are broken or hostile. Texts are kept as they came. What decides costs or the course of an
audit is taken only when it has the right type: a usage with a missing, negative or non-whole count is no usage.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rote.models.responder import Answer, Reply, Usage

_LONGEST_REASON = 100


class Unreadable(Exception):
    """The body is no completion; the message says why, in our words."""


ODD_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code that reads an answer may raise over values that it did not expect."""


@contextmanager
def reading() -> Iterator[None]:
    """Reading an answer inside this block gives a value or raises `Unreadable` (or an error of ours), nothing else."""
    try:
        yield
    except ODD_VALUES as error:
        raise Unreadable(f"it holds a value that cannot be used ({type(error).__name__})") from error


def read_whole(body: bytes) -> Reply:
    """A body that is one JSON object."""
    completion = _object(body)
    choices = _choices(completion)
    return Reply(tuple(_answer(_part(choice, "message"), choice) for choice in choices), _usage(completion))


def read_stream(body: bytes) -> Reply:
    """A body of server-sent events, each a piece of one or several answers."""
    pieces: dict[int, list[Mapping[str, Any]]] = {}
    reasons: dict[int, Any] = {}
    usage: Usage | None = None
    for chunk in _events(body):
        usage = _usage(chunk) or usage
        for choice in _choices(chunk) if chunk.get("choices") else ():
            index = _count(choice.get("index", 0))
            if index is None:
                raise Unreadable("a choice has no number")
            pieces.setdefault(index, []).append(_part(choice, "delta"))
            reasons[index] = choice.get("finish_reason") or reasons.get(index)
    if not pieces:
        raise Unreadable("it has no completion")
    if None in reasons.values():
        raise Unreadable("it broke off in the middle")
    return Reply(tuple(_answer(_joined(pieces[n]), {"finish_reason": reasons[n]}) for n in sorted(pieces)), usage)


def is_content_filter(body: bytes) -> bool:
    """Whether an error's body says that a filter stopped the request: some endpoints refuse in this way."""
    try:
        error = _object(body).get("error")
    except Unreadable:
        return False
    named = [error.get("code"), error.get("type")] if isinstance(error, dict) else []
    return any(name in ("content_filter", "content_policy_violation") for name in named)


def error_message(body: bytes) -> str:
    """What an error's body says, as text; its first characters when it is no JSON."""
    try:
        error = _object(body).get("error")
    except Unreadable:
        return body[:1000].decode("utf-8", "replace")
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(value, dict):
        raise Unreadable("it is not a JSON object")
    return value


def _events(body: bytes) -> Iterable[dict[str, Any]]:
    # Lines of bytes: only line feeds and carriage returns end them, as the standard says.
    for line in body.splitlines():
        name, _, data = line.partition(b":")
        if name == b"data" and data.strip() not in (b"", b"[DONE]"):
            yield _object(data)


def _choices(completion: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise Unreadable("it has no completion")
    if all(_count(choice.get("index")) is not None for choice in choices):
        choices = sorted(choices, key=lambda choice: choice["index"])
    return choices


def _part(choice: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = choice.get(name)
    if not isinstance(part, dict):
        raise Unreadable(f"a choice has no {name}")
    return part


def _answer(message: Mapping[str, Any], choice: Mapping[str, Any]) -> Answer:
    reason = choice.get("finish_reason")
    return Answer(
        text=_text(message.get("content")),
        finish_reason=reason[:_LONGEST_REASON] if isinstance(reason, str) else None,
        refusal=_text(message.get("refusal")) or _refusal_part(message.get("content")),
    )


def _text(content: Any) -> str:
    """A text, nothing, or a list of parts of which those with a text count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return _whole_characters(content)
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text", "") for part in content]
        if all(isinstance(text, str) for text in texts):
            return _whole_characters("".join(texts))
    raise Unreadable("its content is no text")


def _refusal_part(content: Any) -> str | None:
    parts = content if isinstance(content, list) else []
    said = "".join(part["refusal"] for part in parts if isinstance(part.get("refusal"), str))
    return _whole_characters(said) or None


def _joined(deltas: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The message that a stream's pieces make."""
    deltas = list(deltas)
    return {
        "content": "".join(_text(delta.get("content")) for delta in deltas),
        "refusal": "".join(_text(delta.get("refusal")) for delta in deltas),
    }


def _whole_characters(text: str) -> str:
    """Two halves of a character that came in two pieces are one character, as they are when read from a file."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _usage(completion: Mapping[str, Any]) -> Usage | None:
    usage = completion.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, answer = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or answer is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    # Tokens from a cache are cheaper; more of them than there are tokens is no count to go by.
    return Usage(prompt, answer, cached if cached is not None and cached <= prompt else 0)


def _count(value: Any) -> int | None:
    """A whole number that a file of JSON can carry, or nothing."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count else None
