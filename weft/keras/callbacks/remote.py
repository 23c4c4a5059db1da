"""Logs of epochs sent to a server."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
import warnings

from weft.keras.callbacks.base import Callback, Logs


class RemoteMonitor(Callback):
    """Sends the logs of each epoch to a server by HTTP POST.

    Args:
        root: address of the server.
        path: of the resource.
        field: name of the form's field that has the JSON text, unless `send_as_json`.
        headers: more headers.
        send_as_json: whether the body is the JSON text itself.
    """

    def __init__(
        self,
        root: str = "http://localhost:9000",
        path: str = "/publish/epoch/end/",
        field: str = "data",
        headers: dict[str, str] | None = None,
        send_as_json: bool = False,
    ) -> None:
        super().__init__()
        self.root = root
        self.path = path
        self.field = field
        self.headers = headers
        self.send_as_json = send_as_json

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if not self.is_writer:
            return
        text = json.dumps({"epoch": epoch, **(logs or {})}, default=float)
        if self.send_as_json:
            body, kind = text.encode(), "application/json"
        else:
            body, kind = urllib.parse.urlencode({self.field: text}).encode(), "application/x-www-form-urlencoded"
        request = urllib.request.Request(
            self.root + self.path, data=body, headers={"Content-Type": kind, **(self.headers or {})}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=10):
                pass
        except (urllib.error.URLError, OSError) as error:
            # An unreachable server must not end training.
            warnings.warn(f"RemoteMonitor: {self.root} cannot be reached ({error})", stacklevel=2)
