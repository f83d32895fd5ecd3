"""An OpenAI-compatible chat endpoint as a responder.

Nothing is retried here: every attempt must be journalled and paid for knowingly. Endpoints differ, and some are broken
or hostile. Texts are kept as they came. What decides costs or the course of an audit is taken only when it has the
right type: a usage with a missing, negative or non-whole count is no usage.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from byrote.models.responder import Answer, Reply, Request, Usage
from byrote.models.served.client import HttpClient, Pace, Unreadable, check_endpoint, json_object, reading

_LONGEST_REASON = 100


class ChatResponder:
    """One model behind one endpoint. `timeout_seconds` is the deadline of one request, from look-up to last byte.

    With `stream` the answer is sent as it is written; an unfinished stream is a failure.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        key: str | None,
        timeout_seconds: float = 300.0,
        stream: bool = False,
        token_parameter: str = "max_tokens",
        requests_per_minute: float | None = None,
    ) -> None:
        self.model = model
        self._stream = stream
        self._token_parameter = token_parameter
        pace = Pace(requests_per_minute)
        self._http = HttpClient(check_endpoint(endpoint), key, timeout_seconds=timeout_seconds, pace=pace)

    def close(self) -> None:
        self._http.close()

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        response = self._http.request("/chat/completions", self._body(request), {"Idempotency-Key": idempotency_key})
        if response.status != 200:
            if _is_content_filter(response.body):
                return Reply((Answer("", "content_filter"),), None)
            raise self._http.error_of(response, advice=f"check --endpoint and --model {self.model!r}")
        try:
            is_stream = self._stream and not response.body.lstrip().startswith(b"{")
            with reading():
                return _read_stream(response.body) if is_stream else _read_whole(response.body)
        except Unreadable as error:
            raise self._http.failure(f"gave an answer that cannot be read: {error}", may_be_billed=True) from error

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(request.further_fields or "{}") | {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "temperature": request.temperature,
            self._token_parameter: request.max_tokens,
        }
        if request.completions > 1:
            body["n"] = request.completions
        for name in ("frequency_penalty", "presence_penalty"):
            if (value := getattr(request, name)) is not None:
                body[name] = value
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body


def _read_whole(body: bytes) -> Reply:
    """A body that is one JSON object."""
    completion = json_object(body)
    answers = (_answer(_part(choice, "message"), choice.get("finish_reason")) for choice in _choices(completion))
    return Reply(tuple(answers), _usage(completion))


def _read_stream(body: bytes) -> Reply:
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
    answers = []
    for index, deltas in sorted(pieces.items()):
        message = {name: "".join(_text(delta.get(name)) for delta in deltas) for name in ("content", "refusal")}
        answers.append(_answer(message, reasons[index]))
    return Reply(tuple(answers), usage)


def _is_content_filter(body: bytes) -> bool:
    """Whether an error's body is a content filter's refusal."""
    try:
        error = json_object(body).get("error")
    except Unreadable:
        return False
    named = [error.get("code"), error.get("type")] if isinstance(error, dict) else []
    return any(name in ("content_filter", "content_policy_violation") for name in named)


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    # Lines of bytes: only line feeds and carriage returns end them, by the standard.
    for line in body.splitlines():
        name, _, data = line.partition(b":")
        if name == b"data" and data.strip() not in (b"", b"[DONE]"):
            yield json_object(data)


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


def _answer(message: Mapping[str, Any], reason: Any) -> Answer:
    content = message.get("content")
    text = _text(content)
    parts = content if isinstance(content, list) else []
    refused = "".join(part["refusal"] for part in parts if isinstance(part.get("refusal"), str))
    return Answer(
        text=text,
        finish_reason=reason[:_LONGEST_REASON] if isinstance(reason, str) else None,
        refusal=_text(message.get("refusal")) or _whole_characters(refused) or None,
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
