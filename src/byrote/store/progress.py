"""How long work says what it is doing; the command line draws it, a log writes it, a test ignores it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Progress(Protocol):
    """Told what is happening; draws it, logs it, or ignores it."""

    def phase(self, words: str) -> AbstractContextManager[Any]: ...

    def start(self, total: int, done: int) -> None: ...

    def advance(self, windows: int) -> None: ...

    def remark(self, words: str) -> None:
        """Something to know beside the number of windows; replaces what was said before."""
        ...


class SilentProgress:
    """Tells nobody."""

    def phase(self, words: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def start(self, total: int, done: int) -> None: ...

    def advance(self, windows: int) -> None: ...

    def remark(self, words: str) -> None: ...
