"""Where requests go: the address, the key that goes there and nowhere else, and what its refusals mean.

The key comes from the environment and is removed from every message of an error.
"""

import math
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rote.errors import ConfigError, EndpointError
from rote.models.chat_reply import error_message
from rote.models.responder import NothingThere, RequestFailed, RequestRejected
from rote.printable import keep_secret, redacted

if TYPE_CHECKING:  # the transport is not needed to know what an answer means
    from rote.models.bounded_http import Posted

_SHOWN_CHARACTERS = 300
_PASSING = (408, 409, 425, 429)
_MAY_BE_BILLED = (408, 502, 504)
"""A gateway says these when it stopped waiting; the work behind it may have been done."""


def key_from_environment(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"No key: the environment variable {variable} is not set; export it "
            "(any value does for a server that asks for none), or name another with --key-variable."
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"The key in {variable} holds characters that no header can carry; export it again.")
    return key


def check_endpoint(url: str, *, option: str = "--endpoint") -> str:
    """The URL, if it is one of http or https without a name, password or query that would end up in files."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isprintable() or " " in url:
        raise ConfigError(f"{option} {url!r} is not a URL; write it like https://host/v1.")
    if parts.username or parts.password or parts.query:
        raise ConfigError(f"{option} holds credentials or a query; keys are only taken from the environment.")
    return url


class Origin:
    """One address with its key; makes errors of what went wrong there. `option` is how users give the address."""

    def __init__(self, address: str, key: str, *, option: str = "--endpoint") -> None:
        self.address, self._key, self._option = address, key, option
        keep_secret(key)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}

    def failure(self, what: str, may_be_billed: bool, was_reached: bool = True) -> RequestFailed:
        message = self.shown(f"{self.address} {what}.")
        return RequestFailed(message, may_be_billed=may_be_billed, was_reached=was_reached)

    def refusal(self, posted: "Posted", *, advice: str) -> EndpointError:
        """The error that a status other than 200 stands for. `advice` is for an address that does not exist."""
        status = posted.status
        # Redacted before it is cut: half a key is no longer recognised.
        said = self.shown(error_message(posted.body))[:_SHOWN_CHARACTERS]
        answered = f"{self.address} answered {status}: {said}"
        if status in _PASSING or status >= 500:
            return RequestFailed(
                answered, retry_after_seconds=retry_after(posted.headers), may_be_billed=status in _MAY_BE_BILLED
            )
        if status in (400, 413, 422):
            return RequestRejected(f"{answered}; change the settings it objects to.")
        if 300 <= status < 400:
            place = self.shown(posted.headers.get("location", ""))[:_SHOWN_CHARACTERS]
            return EndpointError(
                f"{self.address} answered {status} and points to another address, {place!r}; a key is sent to no "
                f"address but the one given, so give that one with {self._option} if you trust it."
            )
        if status in (404, 405):
            return NothingThere(f"{answered}; {advice}.")
        is_key = status in (401, 403)
        return EndpointError(
            f"{answered}; {'check the key in the environment' if is_key else 'see its documentation'}."
        )

    def shown(self, text: str) -> str:
        """For messages, never for answers: without the key, and without characters that a terminal acts upon."""
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in redacted(text))


def without_key(value: Any) -> Any:
    """Parsed JSON with the key removed from every value, so that neither messages nor files can repeat it."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [without_key(entry) for entry in value]
    if isinstance(value, dict):
        return {name: without_key(entry) for name, entry in value.items()}
    return value


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait the server asks for, given in seconds or as a date; None when absent or unreadable."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)
