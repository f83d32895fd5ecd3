"""What every server on the loopback interface does: it serves in a thread from the start of a block to its end."""

import socketserver
import threading
from types import TracebackType
from typing import Self


class Loopback:
    """`with Server(…) as server:` serves at `server.url` until the block ends. `closing` is set when it does."""

    def __init__(self, server: socketserver.BaseServer, path: str = "/v1") -> None:
        self.closing, self.lock = threading.Event(), threading.Lock()
        self._server, self._path = server, path
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
