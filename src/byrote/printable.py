"""What may be shown to a person: text from models, files and servers, without what would act on the terminal and
without API keys."""

import re

KEY_REMOVED = "[key removed]"
_SHORTEST_KEY_REMOVED = 8
"""Shorter keys are placeholders of servers that ask for none; removing "x" would spoil every message."""
_SECRETS: set[str] = set()
"""Keys that this process has read. One list for the process: an error may end up in a message anywhere."""

# Control and escape sequences, invisible and bidirectional marks, line separators, halves of surrogate pairs, tags.
# Joiners (U+200C, U+200D) and variation selectors (U+E0100 to U+E01EF) stay: several scripts are written with them.
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)


def keep_secret(key: str) -> None:
    """From now on `redacted` removes the key."""
    if len(key) >= _SHORTEST_KEY_REMOVED:
        _SECRETS.add(key)


def redacted(text: str) -> str:
    """`text` without any key that this process has read."""
    for key in _SECRETS:
        text = text.replace(key, KEY_REMOVED)
    return text


def printable(text: str, *, keep: str = "") -> str:
    """`text` with every character that acts instead of being seen written as an escape: \\x1b, \\u202e.

    Characters in `keep` stay. Nothing else is changed, so that doing it twice is doing it once.
    """

    def shown(found: re.Match[str]) -> str:
        return found[0] if found[0] in keep else found[0].encode("unicode_escape").decode("ascii")

    return _ACTING.sub(shown, text)
