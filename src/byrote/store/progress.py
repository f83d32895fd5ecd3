"""How long work reports progress: drawn by the command line, written to a log, or ignored."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Progress(Protocol):
    def phase(self, words: str) -> AbstractContextManager[Any]: ...

    def start(self, total: int, done: int) -> None: ...

    def advance(self, windows: int) -> None: ...

    def remark(self, words: str) -> None:
        """A note beside the number of windows; replaces the one before."""
        ...


class SilentProgress:
    """No-op progress."""

    def phase(self, words: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def start(self, total: int, done: int) -> None: ...

    def advance(self, windows: int) -> None: ...

    def remark(self, words: str) -> None: ...
