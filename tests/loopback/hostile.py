"""A server on the loopback interface that writes any bytes it likes, at any pace, in answer to a chat request.

Each request gets an `Act`: a function of the connection and the request's body. The acts here are the ways in which
endpoints break, lie or attack; `completion` and `sent` make answers out of parts.
"""

import gzip
import json
import socket
import socketserver
from collections.abc import Callable, Mapping
from typing import Any

from tests.loopback.base import Loopback

Act = Callable[[socket.socket, Mapping[str, Any]], None]
GZIP_BOMB = gzip.compress(b" " * (64 * 1024 * 1024), compresslevel=9)


class HostileServer(Loopback):
    """`choose(number, body)` says how the request that arrives as number `number` (from 0) is answered."""

    def __init__(self, choose: Callable[[int, Mapping[str, Any]], Act]) -> None:
        self.choose = choose
        self.bodies: list[dict[str, Any]] = []
        self.authorisations: list[str] = []
        super().__init__(_Server(("127.0.0.1", 0), _handler(self)))

    def admit(self, head: bytes, body: dict[str, Any]) -> Act:
        with self.lock:
            number = len(self.bodies)
            self.bodies.append(body)
            lines = head.decode("latin-1").split("\r\n")
            self.authorisations += [line for line in lines if line.lower().startswith("authorization:")]
        return self.choose(number, body)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what many tests wait for."""


def _handler(server: HostileServer) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            received = b""
            while b"\r\n\r\n" not in received:
                if not (piece := self.request.recv(65536)):
                    return
                received += piece
            head, body = received.split(b"\r\n\r\n", 1)
            lengths = head.lower().split(b"content-length:")[1:]
            length = int(lengths[0].split(b"\r\n")[0]) if lengths else 0
            while len(body) < length:
                body += self.request.recv(65536)
            act = server.admit(head, json.loads(body or b"{}"))
            self.request.settimeout(20)
            act(self.request, server.bodies[-1] | {"closing": server.closing})

    return Handler


def sent(content: bytes, *, status: str = "200 OK", headers: Mapping[str, str] | None = None) -> Act:
    """One whole response; `headers` may contradict it."""
    fields = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in (fields | dict(headers or {})).items())
    return raw(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + content)


def raw(content: bytes) -> Act:
    def act(connection: socket.socket, body: Mapping[str, Any]) -> None:
        connection.sendall(content)

    return act


def silent(connection: socket.socket, body: Mapping[str, Any]) -> None:
    """Holds the connection and says nothing until the server is closed."""
    body["closing"].wait(30)


def trickling(before: bytes, piece: bytes, *, every_seconds: float = 0.02) -> Act:
    """Sends `before`, then `piece` again and again: no single read ever times out."""

    def act(connection: socket.socket, body: Mapping[str, Any]) -> None:
        connection.sendall(before)
        while not body["closing"].wait(every_seconds):
            connection.sendall(piece)

    return act


def endless(before: bytes, piece: bytes) -> Act:
    """Sends `piece` for as long as somebody reads."""

    def act(connection: socket.socket, body: Mapping[str, Any]) -> None:
        connection.sendall(before)
        while not body["closing"].is_set():
            connection.sendall(piece)

    return act


def completion(
    message: Any, *, usage: Any = "absent", finish_reason: Any = "stop", choices: Any = None, **further: Any
) -> bytes:
    """The JSON of a completion whose parts may be anything; a `message` that is a text is its content."""
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    chosen = [{"index": 0, "finish_reason": finish_reason, "message": message}] if choices is None else choices
    whole = {"id": "hostile", "object": "chat.completion", "choices": chosen, **further}
    if usage != "absent":
        whole["usage"] = usage
    return json.dumps(whole).encode()


def events(*chunks: Any) -> bytes:
    """The body of a stream."""
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
