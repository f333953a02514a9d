"""The page with its texts read on demand, for runs too large for one file.

Only this machine is answered, only to whoever knows the address, and only three things: the page,
the texts of one sample, and which samples hold some words. No path of a request names a file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from evalkit.analysis.compare import RunComparison
from evalkit.dsa.json_types import JsonValue
from evalkit.report.html import served_page
from evalkit.report.payload import json_bytes
from evalkit.report.sample_browser import Prompts, samples
from evalkit.run.store import RunStore

HOST = "127.0.0.1"

Reply = tuple[str, bytes]
"""Media type and body."""


class ReportServer:
    """Serves one report.

    Args:
        store: the run, or several merged.
        comparison: of it.
        prompts: where the texts of prompts come from.
        port: 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """

    def __init__(
        self,
        store: RunStore,
        comparison: RunComparison,
        prompts: Prompts | None = None,
        port: int = 0,
    ) -> None:
        self._samples = samples(store, comparison, prompts)
        self._ids = self._samples.ids
        self._page = served_page(store, comparison, self._samples).encode("utf-8", "replace")
        self._texts: list[str] = []
        self._lock = Lock()
        self._secret = secrets.token_urlsafe(9)
        self._server = ThreadingHTTPServer((HOST, port), _handler(self.reply, self._is_ours))

    @property
    def address(self) -> str:
        """Of the page."""
        return f"http://{HOST}:{self._server.server_port}/{self._secret}/"

    def serve(self) -> None:
        """Answer until interrupted, or until `close`."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop, and free the port."""
        self._server.shutdown()
        self._server.server_close()

    def reply(self, target: str) -> Reply | None:
        """What a path and its query ask for; None where there is no such thing."""
        url = urlsplit(target)
        first, _, rest = url.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(first.encode(), self._secret.encode()):
            return None
        if rest == "":
            return "text/html; charset=utf-8", self._page
        if rest == "search":
            return _json(self._search("".join(parse_qs(url.query).get("q", []))))
        what, _, number = rest.partition("/")
        if what != "sample" or not number.isascii() or not number.isdecimal():
            return None
        place = int(number[:9])
        return _json(self._sample(place)) if place < len(self._ids) else None

    def _sample(self, place: int) -> JsonValue:
        """Texts of a sample, its prompt with them; one prompt is made at a time."""
        sample_id = self._ids[place]
        with self._lock:
            prompt = self._samples.prompt(sample_id)
            missing = "" if prompt is not None else self._samples.prompts.missing
        texts = replace(self._samples.texts(sample_id), prompt=prompt).json()
        return [*texts, missing]

    def _search(self, words: str) -> JsonValue:
        """Numbers of the samples whose id, question, gold or answers hold the words."""
        with self._lock:
            if not self._texts:
                parts = ((i, *self._samples.texts(i).parts) for i in self._ids)
                self._texts = ["\n".join(texts).lower() for texts in parts]
        return [k for k, text in enumerate(self._texts) if words.lower() in text]

    def _is_ours(self, host: str) -> bool:
        """Whether a request was addressed to us: a page elsewhere may name us otherwise."""
        port = self._server.server_port
        return host in (f"{HOST}:{port}", f"localhost:{port}")


def _json(data: JsonValue) -> Reply:
    return "application/json", json_bytes(data)


def _handler(
    reply: Callable[[str], Reply | None], is_ours: Callable[[str], bool]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """GET only."""

        def do_GET(self) -> None:
            found_reply = reply(self.path) if is_ours(self.headers.get("Host", "")) else None
            if found_reply is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            kind, body = found_reply
            self.send_response(HTTPStatus.OK)
            headers = {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
            }
            for name, text in headers.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests are not news."""

    return Handler
