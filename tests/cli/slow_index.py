"""A package index that lets its clients wait, so that a build is silent for as long as a test wants."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

LIMIT_S = 60.0


class SlowIndex:
    """Knows no package, and says so only when `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer.wait(LIMIT_S)
                self.send_error(404)

            def log_message(self, *words: Any) -> None:
                """Says nothing: the tests read what dray says."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def env(self) -> dict[str, str]:
        """What sends `uv` here."""
        return {
            "UV_INDEX_URL": f"http://127.0.0.1:{self._server.server_port}/simple",
            "NO_PROXY": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
