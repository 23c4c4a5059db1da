"""A mail when a value passes a threshold."""

from __future__ import annotations

import smtplib
import warnings
from collections.abc import Sequence
from email.message import EmailMessage

from weft.keras.callbacks.base import Logs
from weft.keras.callbacks.monitor import MonitorCallback


class MailOnThreshold(MonitorCallback):
    """Sends a mail at the end of the first epoch in which a value is better than a threshold.

    Args:
        monitor: name of the value in the logs.
        threshold: the value that must be passed.
        recipients: one address or several.
        sender: the address it comes from.
        host, port: of the mail server.
        mode: `min`, `max`, or `auto`: found from the metric.
        user, password: for servers that ask for them.
        use_tls: whether the connection is encrypted (STARTTLS).
        once: False sends a mail after each such epoch.
        timeout: seconds to wait for the server.

    >>> from weft.keras.callbacks import MailOnThreshold
    >>> MailOnThreshold("val_accuracy", 0.99, "me@example.com", sender="training@example.com").threshold
    0.99
    """

    def __init__(
        self,
        monitor: str,
        threshold: float,
        recipients: str | Sequence[str],
        sender: str,
        host: str = "localhost",
        port: int = 25,
        mode: str = "auto",
        user: str | None = None,
        password: str | None = None,
        use_tls: bool = False,
        once: bool = True,
        timeout: float = 10.0,
    ) -> None:
        super().__init__(monitor, mode)
        self.threshold = threshold
        self.recipients = [recipients] if isinstance(recipients, str) else list(recipients)
        self.sender = sender
        self.host = host
        self.port = port
        self.user = user
        self.password = password
        self.use_tls = use_tls
        self.once = once
        self.timeout = timeout
        self.sent = 0

    def get_state(self) -> Logs:
        return {"sent": self.sent}

    def set_state(self, state: Logs) -> None:
        self.sent = state["sent"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.sent = 0

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if not self.is_writer:
            return
        current = self.read_monitor(logs)
        if current is None or not self.is_improvement(current, self.threshold) or (self.once and self.sent):
            return
        message = self.message(epoch, current, logs or {})
        try:
            with smtplib.SMTP(self.host, self.port, timeout=self.timeout) as server:
                if self.use_tls:
                    server.starttls()
                if self.user is not None:
                    server.login(self.user, self.password or "")
                server.send_message(message)
            self.sent += 1
        except (OSError, smtplib.SMTPException) as error:
            # Training must not end because a mail server does not answer.
            warnings.warn(f"MailOnThreshold: no mail was sent by {self.host}:{self.port} ({error})", stacklevel=2)

    def message(self, epoch: int, current: float, logs: Logs) -> EmailMessage:
        """Compose the mail."""
        name = getattr(self.model, "name", "model")
        message = EmailMessage()
        message["Subject"] = f"{name}: {self.monitor} is {current:.6g} after epoch {epoch + 1}"
        message["From"] = self.sender
        message["To"] = ", ".join(self.recipients)
        lines = [f"{self.monitor} passed {self.threshold:.6g} in epoch {epoch + 1}.", ""]
        message.set_content("\n".join(lines + [f"{key}: {value}" for key, value in logs.items()]))
        return message
