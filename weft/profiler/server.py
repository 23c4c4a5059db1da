"""A server that traces the process it is in when asked: `GET /trace?seconds=2` answers with the trace."""

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


class Server:
    """Listens on a port of this machine, in a thread of its own, until it is stopped."""

    def __init__(self, port: int, record: Callable[[Callable[[], None]], dict[str, Any]]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urllib.parse.urlsplit(self.path)
                if asked.path != "/trace":
                    self.send_error(404, "ask for /trace?seconds=2")
                    return
                try:
                    seconds = float(urllib.parse.parse_qs(asked.query).get("seconds", ["1"])[0])
                    if not 0 <= seconds <= LONGEST:
                        raise ValueError
                except ValueError:
                    self.send_error(400, f"seconds must be a number from 0 to {LONGEST:g}")
                    return
                content = gzip.compress(json.dumps(record(lambda: time.sleep(seconds))).encode())
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are nobody's business."""

        self._server = http.server.ThreadingHTTPServer(("localhost", port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="weft-profiler", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it listens."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
