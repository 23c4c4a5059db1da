"""Server that traces its own process on request: `GET /trace?seconds=2` answers with the trace.

`/start` begins a trace, which `/stop` answers with: so does a process that traces others together with itself.
"""

from __future__ import annotations

import gzip
import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

LONGEST = 600.0

Record = Callable[[Callable[[], Any]], dict[str, Any]]
"""A function that traces while another one waits."""


class Server:
    """Listens on a port of this machine, in a thread of its own, until it is stopped."""

    def __init__(self, port: int, record: Record) -> None:
        under_way: list[_Running] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urllib.parse.urlsplit(self.path)
                if asked.path == "/trace":
                    self._trace(asked.query)
                elif asked.path == "/alive":
                    self._answer({})
                elif asked.path == "/start" and not under_way:
                    under_way.append(_Running(record))
                    self._answer({})
                elif asked.path == "/stop" and under_way:
                    self._answer(under_way.pop().result())
                else:
                    self.send_error(404, "ask for /trace?seconds=2, or for /start and then /stop")

            def _trace(self, query: str) -> None:
                try:
                    seconds = float(urllib.parse.parse_qs(query).get("seconds", ["1"])[0])
                    if not 0 <= seconds <= LONGEST:
                        raise ValueError
                except ValueError:
                    self.send_error(400, f"seconds must be a number from 0 to {LONGEST:g}")
                    return
                self._answer(record(lambda: time.sleep(seconds)))

            def _answer(self, value: dict[str, Any]) -> None:
                content = gzip.compress(json.dumps(value).encode())
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Suppress the log of requests."""

        self._server = http.server.ThreadingHTTPServer(("localhost", port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="weft-profiler", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True while the server listens."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Running:
    """Trace that runs in a thread of its own until its result is read or the time limit has passed."""

    def __init__(self, record: Record) -> None:
        self._end, begun = threading.Event(), threading.Event()
        self._results: list[dict[str, Any]] = []

        def wait() -> None:
            begun.set()
            self._end.wait(LONGEST)

        self._thread = threading.Thread(target=lambda: self._results.append(record(wait)), daemon=True)
        self._thread.start()
        begun.wait()

    def result(self) -> dict[str, Any]:
        self._end.set()
        self._thread.join()
        return self._results[0]
