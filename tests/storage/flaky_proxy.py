"""A proxy in front of an object store that fails, delays, repeats and forgets, as networks and servers do.

What happens to a request is drawn from a seed. Which faults may happen is for the test to say; without any
the proxy only passes on.
"""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FAULTS = (
    "refused",  # an error instead of an answer: nothing was done
    "done and refused",  # an error, but it was done
    "closed",  # the connection closes: nothing was done
    "answer lost",  # the connection closes, but it was done
    "cut",  # the answer ends in the middle
    "slow",
    "terse",  # a refusal does not say which condition was not met, as not every server does
    "twice",  # the request arrives twice, and the second answer counts
    "outage",  # nothing gets through for some requests
)
_OUTAGE = range(4, 14)
_PASSED_ON = ("content-type", "etag", "last-modified")


class FlakyProxy:
    """Passes requests on to a server, or does not."""

    def __init__(self, server: str, seed: int) -> None:
        self.struck: Counter[str] = Counter()
        self.requests = 0
        self.faults: Sequence[str] = ()
        self.rng = 0.0
        self._server = urlsplit(server).netloc
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._outage = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.address = f"http://127.0.0.1:{self._http.server_port}"

    @contextmanager
    def running(self) -> Iterator["FlakyProxy"]:
        thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    @contextmanager
    def failing(self, rng: float, faults: Sequence[str] = FAULTS) -> Iterator[None]:
        """Let faults happen for a while."""
        self.rng, self.faults = rng, faults
        try:
            yield
        finally:
            self.rng, self._outage = 0.0, 0

    def draw(self, *, conditional: bool) -> tuple[str, float]:
        """What happens to the next request, and a number to do it by; commits are struck more often."""
        with self._lock:
            self.requests += 1
            amount = self._rng.random()
            if self._outage:
                self._outage -= 1
                return "closed", amount
            if self._rng.random() >= self.rng * (3 if conditional else 1):
                return "", amount
            fault = self._rng.choice(self.faults)
            self.struck[fault] += 1
            if fault == "outage":
                self._outage = self._rng.choice(_OUTAGE)
                return "closed", amount
            return fault, amount

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[HTTPResponse, bytes]:
        """What the server answers."""
        connection = HTTPConnection(self._server, timeout=30)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


def _handler(proxy: FlakyProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # it waits for more to send, and each request takes 40 ms

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            assert "Transfer-Encoding" not in self.headers
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            fault, amount = proxy.draw(conditional="If-None-Match" in self.headers)
            if fault == "slow":
                time.sleep(0.2 * amount)
            if fault == "closed":
                self.close_connection = True
                return
            if fault == "refused":
                self._refuse(amount)
                return
            answer, data = proxy.ask(self.command, self.path, headers, body)
            if fault == "twice":
                answer, data = proxy.ask(self.command, self.path, headers, body)
            if fault == "answer lost":
                self.close_connection = True
                return
            if fault == "done and refused":
                self._refuse(amount)
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() in _PASSED_ON or name.lower().startswith("x-amz"):
                    self.send_header(name, value)
            length = len(data) if self.command != "HEAD" else answer.getheader("Content-Length", "0")
            if fault == "terse":
                data = re.sub(rb"<Condition>.*</Condition>", b"", data)
                length = len(data) if data else length
            self.send_header("Content-Length", str(length))
            if fault == "cut":
                self.close_connection = True
                data = data[: int(amount * len(data))]
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _refuse(self, amount: float) -> None:
            status, code = (500, "InternalError") if amount < 0.5 else (503, "SlowDown")
            data = f"<Error><Code>{code}</Code><Message>planned</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  # the base class's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            pass

    return Handler
