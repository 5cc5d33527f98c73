"""The fixture ``s3``: a real S3 server, moto, behind a proxy that fails as it is told."""

import http.client
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BUCKET = "bucket"
UNAVAILABLE = 503
Fault = int | Callable[[bytes], bytes]  # a status, before anything is done; or what becomes of the answer's body
STARTING = 60.0  # seconds
SECRETS = secrets.token_hex(10), secrets.token_hex(20)  # which no file has by chance
LOGIN = {"AWS_ACCESS_KEY_ID": SECRETS[0], "AWS_SECRET_ACCESS_KEY": SECRETS[1], "AWS_REGION": "us-east-1"}


class Asked(NamedTuple):
    """A request. ``span``: of the header Range."""

    method: str
    path: str
    span: str


def cut(content: bytes) -> bytes:
    """A fault: the connection ends within the body."""
    return content[: len(content) // 2]


def lie(content: bytes) -> bytes:
    """A fault: one bit is another, in the middle of the first sample."""
    changed = bytearray(content)
    for at in range(512, len(changed), 4096):
        changed[at] ^= 1
    return bytes(changed)


def stall(content: bytes) -> bytes:
    """A fault: no answer until the client gives up."""
    time.sleep(8)
    return content


class Server:
    """The bucket behind the proxy. ``asked``: all requests; ``hits``: those that fail in ``failing``."""

    def __init__(self, port: int):
        self.upstream = port
        self.asked: list[Asked] = []
        self.fault: Fault | None = None
        self.left: int | None = None
        self.hits: Callable[[Asked], bool] = lambda asked: asked.method == "GET" and bool(asked.span)
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    def start(self) -> None:
        """Listen, on the port of before if there was one."""
        self._server = _Proxy(("127.0.0.1", self.port), _Handler, self)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections, and end those there are."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.end_connections()
            self._server = None

    @contextmanager
    def failing(self, fault: Fault, times: int | None = None) -> Iterator[None]:
        """A context in which the requests that ``hits`` accepts fail. ``times``: how many of them, None for all."""
        self.fault, self.left = fault, times
        try:
            yield
        finally:
            self.fault = None

    def fault_of(self, asked: Asked) -> Fault | None:
        """What happens to a request; counts it."""
        if self.fault is None or self.left == 0 or not self.hits(asked):
            return None
        self.left = None if self.left is None else self.left - 1
        return self.fault

    def put(self, name: str, content: bytes) -> None:
        """Store an object, past the proxy."""
        self._direct("PUT", name, content)

    def copy(self, folder: Path, prefix: str) -> str:
        """Store all files of a folder; returns the address."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())
        return f"s3://{BUCKET}/{prefix}"

    def get(self, name: str) -> bytes | None:
        """An object's content, past the proxy."""
        return self._direct("GET", name)

    def delete(self, name: str) -> None:
        """Remove an object, past the proxy."""
        self._direct("DELETE", name)

    def names(self, prefix: str) -> list[str]:
        """The names of objects, past the proxy."""
        found = self._direct("GET", f"?list-type=2&prefix={prefix}") or b""
        return re.findall(r"<Key>(.*?)</Key>", found.decode())

    def environment(self) -> dict[str, str]:
        """What the user has set to reach it."""
        return {**LOGIN, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    def _direct(self, method: str, name: str, content: bytes | None = None) -> bytes | None:
        status, _, body = _upstream(self.upstream, method, f"/{BUCKET}/{name}", content, {})
        assert status < 500, body
        return body if status < 300 else None


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type, owner: Server):
        self.owner, self._open = owner, set[socket.socket]()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def end_connections(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that have gone are no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        owner = self.server.owner  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.command, self.path, self.headers.get("Range") or "")
        owner.asked.append(asked)
        fault = owner.fault_of(asked)
        if isinstance(fault, int):
            status, headers, content = fault, {}, b""
        else:
            status, headers, content = _upstream(owner.upstream, self.command, self.path, body, dict(self.headers))
        sent = fault(content) if callable(fault) else content
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "content-length", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(sent)
        if len(sent) < len(content):
            self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._forward
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def _upstream(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        kept = {name: value for name, value in headers.items() if name.lower() not in ("host", "connection")}
        connection.request(method, path, body, kept or _anybody())
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def _anybody() -> dict[str, str]:
    """moto takes the service from the signature, and does not check that."""
    about = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
    return {"Authorization": about}


@pytest.fixture(scope="session")
def _moto() -> Iterator[int]:
    """The port of a server of its own."""
    needs_port = socket.create_server(("127.0.0.1", 0))
    port = needs_port.getsockname()[1]
    needs_port.close()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + STARTING
            while True:
                with suppress(OSError):
                    assert _upstream(port, "PUT", f"/{BUCKET}", b"", {})[0] == 200
                    break
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield port
        finally:
            process.kill()


@pytest.fixture
def s3(_moto: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """An S3 server, as the user's environment names it, and an own cache."""
    server = Server(_moto)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield server
    server.stop()
