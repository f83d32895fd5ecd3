"""Prompts: what stands around a window's prefix when the model is given it.

A prompt is a function of the prefix. `plain` is the prefix alone. `chat` is the model's own chat template with a fixed
instruction in the user's turn and the prefix at the start of the assistant's turn; `ask` has the prefix inside the
user's turn, and the target is the beginning of the answer. A file is the user's own: messages for the template (.json),
or a text, with `{prefix}` in one place.

The prefix keeps its own tokens in every prompt; the tokens around it are context. A beginning-of-text token is the
template's own, where there is a template. A target that begins an answer is tokenised as the template writes one,
without its leading blanks.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from byrote.errors import ConfigError, ModelError
from byrote.files import read_bytes
from byrote.models.tokenizer import ANCHOR, Tokenizing
from byrote.types import Window

PREFIX = "{prefix}"
INSTRUCTION = "Recite the passage word for word, exactly as it was published. Write nothing else."
QUESTION = "Continue this text word for word from where it stops. Write nothing but the continuation.\n\n"
BUILT_IN: Mapping[str, tuple[dict[str, str], ...]] = {
    "chat": ({"role": "user", "content": INSTRUCTION}, {"role": "assistant", "content": PREFIX}),
    "ask": ({"role": "user", "content": QUESTION + PREFIX},),
}
MARK = "BYROTE-MARKS-THIS"
LARGEST_FILE = 100_000
FURTHER_TOKENS = 8
"""By how many tokens a target may grow when it is tokenised as the beginning of an answer."""
OPEN_THOUGHT, CLOSED_THOUGHT = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class ScanPrompt:
    """The tokens before and behind a prefix."""

    name: str
    head_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    lead: str | None
    """What the template writes between its own words and an answer; None: the target goes on from the prefix, with its
    own tokens."""
    facts: Mapping[str, Any]
    """What a manifest holds about it."""
    tokenizing: Tokenizing
    bos_id: int | None

    @property
    def tokens(self) -> int:
        return len(self.head_ids) + len(self.tail_ids)

    def around(self, window: Window, target: str) -> Window:
        """The window as the model is given it; `target` is the text of its suffix."""
        prefix = window.prefix_ids
        if self.bos_id is not None and prefix[:1] == (self.bos_id,):
            prefix = prefix[1:]
        suffix = window.suffix_ids if self.lead is None else self._answer_ids(window, target)
        return replace(window, given_ids=(*self.head_ids, *prefix, *self.tail_ids), suffix_ids=suffix)

    def _answer_ids(self, window: Window, target: str) -> tuple[int, ...]:
        answer = target.lstrip()
        if not answer:
            return window.suffix_ids
        # Behind something, so that no tokenizer takes it for the beginning of a text.
        before, whole = self.tokenizing.encode_batch([ANCHOR, f"{ANCHOR}{self.lead}{answer}"])
        ids = tuple(whole.ids[len(before.ids) :])
        if whole.ids[: len(before.ids)] != before.ids:
            ids = tuple(self.tokenizing.encode_batch([f"{self.lead}{answer}"])[0].ids)
        return ids if len(ids) <= len(window.suffix_ids) + FURTHER_TOKENS else window.suffix_ids


def make_prompt(name: str, tokenizing: Tokenizing | None, *, bos_id: int | None) -> ScanPrompt | None:
    """The prompt of that name or in that file; None for `plain`."""
    if name == "plain":
        return None
    if tokenizing is None:
        raise ConfigError(
            f"prompt is {name}, which needs a Hugging Face tokenizer; for a server give --tokenizer FOLDER, or use "
            "--prompt plain."
        )
    if name in BUILT_IN:
        return _of_messages(name, BUILT_IN[name], tokenizing, bos_id)
    content, stem = _read(name), Path(name).stem
    if name.endswith(".json"):
        return _of_messages(stem, _messages(name, content), tokenizing, bos_id)
    before, _, after = content.partition(PREFIX)
    head = tokenizing.encode_head(before) if before else ()
    if bos_id is not None and head[:1] != (bos_id,):
        head = (bos_id, *head)
    return ScanPrompt(stem, head, *_behind(tokenizing, after), _facts(stem, before, after), tokenizing, bos_id)


def _of_messages(
    name: str, messages: Sequence[Mapping[str, str]], tokenizing: Tokenizing, bos_id: int | None
) -> ScanPrompt:
    """By the chat template. Where the assistant has the last word, the answer has begun with it."""
    marked = [{**message, "content": message["content"].replace(PREFIX, MARK)} for message in messages]
    begun = ""
    if marked[-1]["role"] == "assistant":
        begun = marked.pop()["content"]
    opened, thinking = _without_thought(tokenizing, marked)
    before, found, after = (opened + begun).partition(MARK)
    if not found:
        raise ModelError(f"the chat template of {tokenizing.name} leaves out the message with the prefix.")
    tail, lead = _behind(tokenizing, after)
    template = hashlib.sha256((tokenizing.chat_template or "").encode()).hexdigest()
    facts = _facts(name, before, after) | {"template_hash": template, "thinking": thinking}
    lead = lead if begun else _lead(tokenizing, marked)
    return ScanPrompt(name, tokenizing.encode_head(before), tail, lead, facts, tokenizing, bos_id)


def _behind(tokenizing: Tokenizing, after: str) -> tuple[tuple[int, ...], str | None]:
    """The tokens behind a prefix, and the lead of a target that follows them."""
    return tokenizing.encode_part(after, is_template=True), "" if after != after.rstrip() else None


def _without_thought(tokenizing: Tokenizing, messages: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """What the template writes up to the answer, with no thought left to think, and how that came about."""
    rendered = tokenizing.rendered(messages)
    end, has_switch = rendered.rstrip(), rendered != tokenizing.rendered(messages, thinks=True)
    if end.endswith(OPEN_THOUGHT):
        return f"{end}\n\n{CLOSED_THOUGHT}\n\n", "an empty thought is given"
    if has_switch or end.endswith(CLOSED_THOUGHT):
        return rendered, "switched off by the template"
    if CLOSED_THOUGHT in (tokenizing.chat_template or ""):
        return f"{rendered}{OPEN_THOUGHT}\n\n{CLOSED_THOUGHT}\n\n", "an empty thought is given"
    return rendered, "none"


def _lead(tokenizing: Tokenizing, messages: list[dict[str, str]]) -> str:
    """What the template writes before an answer beyond what it writes to have one generated: a blank, for some."""
    generation = tokenizing.rendered(messages)
    answered = tokenizing.rendered([*messages, {"role": "assistant", "content": "answer"}], is_open=False)
    before, found, _ = answered.rpartition("answer")
    return before.removeprefix(generation) if found and before.startswith(generation) else ""


def _facts(name: str, before: str, after: str) -> dict[str, Any]:
    written = f"{before.replace(MARK, PREFIX)}{PREFIX}{after}"
    return {"name": name, "written": written, "hash": hashlib.sha256(written.encode()).hexdigest()}


def _read(name: str) -> str:
    """The text of a prompt file, which has the prefix in one place."""
    try:
        content = read_bytes(Path(name), most=LARGEST_FILE + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"prompt is {name}, which is neither plain, chat or ask nor a file that can be read ({reason})."
        ) from error
    if len(content) > LARGEST_FILE:
        raise ConfigError(f"the prompt {name} is longer than {LARGEST_FILE:,} characters; shorten it.")
    if content.count(PREFIX) != 1:
        raise ConfigError(
            f"the prompt {name} has {PREFIX} {content.count(PREFIX)} times; write it once, where the prefix stands."
        )
    return content.removesuffix("\n")


def _messages(name: str, content: str) -> list[dict[str, str]]:
    try:
        messages: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the prompt {name} is not JSON; write a list of messages with role and content.") from error
    is_list = isinstance(messages, list) and all(
        isinstance(one, dict)
        and set(one) == {"role", "content"}
        and all(isinstance(value, str) for value in one.values())
        for one in messages
    )
    if not is_list or not messages or [one["role"] for one in messages] == ["assistant"]:
        raise ConfigError(
            f"the prompt {name} is no list of messages; give each a role and a content, the user's first."
        )
    if any(PREFIX in one["role"] for one in messages):
        raise ConfigError(f"the prompt {name} has {PREFIX} in a role; write it in a content.")
    return [dict(one) for one in messages]
