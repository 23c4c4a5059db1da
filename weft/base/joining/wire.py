"""The protocol between processes that join and their coordinator: addresses, lines of JSON, and proofs of a token.

The coordinator greets with a nonce; the client answers with a hello that contains a proof of the token for it, and a
nonce of its own, for which the coordinator returns a proof. So neither reveals the token to a stranger.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import platform
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

GREETING = "weft-join-1"
MOST_LINE = 1 << 20  # bytes of a line; a longer one is not of this protocol
HANDSHAKE_SECONDS = 10.0


class Address(NamedTuple):
    """Host and port of a coordinator."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RefusedError(Exception):
    """Refusal of the coordinator to let this process join; its text is for the user."""


def parse_address(text: str, default_port: int | None = None) -> Address:
    """Parse "host:port", "[::1]:port", or a host alone if there is a default port; raise ValueError for others."""
    host, bracket, rest = text.partition("]") if text.startswith("[") else ("", "", text)
    if bracket:
        host, port = host[1:], rest.removeprefix(":")
    elif rest.count(":") > 1:  # an IPv6 address without brackets has no port
        host, port = rest, ""
    else:
        host, _, port = rest.partition(":")
    if not port and default_port is not None:
        return Address(host, default_port)
    if not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise ValueError(f"{text!r} is not an address such as host:1234 or [::1]:1234")
    return Address(host, int(port))


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket at a host's address; an empty host or "::" means all addresses of both families."""
    if host in ("", "::") and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # a host may have IPv6 switched off
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    if host in ("", "::", "0.0.0.0"):
        return socket.create_server(("", port), backlog=1024)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=1024)


def prove(token: str, side: str, nonce: str, text: str = "") -> str:
    """Return the proof that a side ("client", "coordinator") knows the token, for a nonce and a text."""
    content = "\0".join((side, nonce, text)).encode()
    return hmac.new(token.encode(), content, hashlib.sha256).hexdigest()


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Parse a line; raise ValueError if it is not a message."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"{line[:80]!r} is not a message")
    return message


def read_line(connection: socket.socket, deadline: float) -> bytes:
    """Read one line and no more; raise OSError if the connection ends or the deadline passes first."""
    data = b""
    while not data.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 0.01))
        byte = connection.recv(1)
        if not byte or len(data) > MOST_LINE:
            raise ConnectionError("the connection must send a whole line; it ended before")
        data += byte
    return data


def connect(address: Address, token: str, hello: dict[str, Any], seconds: float) -> socket.socket:
    """Connect to a coordinator and introduce this process.

    Args:
        address: the coordinator's address.
        token: the secret that all processes of the job know.
        hello: a message with the role and index of this process.
        seconds: limit of time for connecting and introducing.

    Returns:
        A connected socket on which no byte of an answer is pending. OSError is raised if no coordinator answers, and
        RefusedError if it refuses.
    """
    deadline = time.monotonic() + seconds
    connection = socket.create_connection(address, seconds)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = read_line(connection, deadline).decode(errors="replace").split()
        if len(greeting) != 2 or greeting[0] != GREETING:
            raise ConnectionError("this is not the coordinator but another service")
        nonce, text = secrets.token_hex(16), json.dumps(hello, sort_keys=True)
        proof = prove(token, "client", greeting[1], text)
        connection.sendall(encode({"hello": text, "nonce": nonce, "proof": proof}))
        answer = decode(read_line(connection, deadline))
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        if not hmac.compare_digest(str(answer.get("proof")), prove(token, "coordinator", nonce)):
            raise RefusedError("The service at this address does not know the token of this job.")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def host_identity() -> str:
    """Return a text that is equal for processes that share the memory and the network of one host."""
    found = [platform.node()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            found.append(file.read().strip())
    for path in ("/dev/shm", "/proc/self/ns/net"):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            found.append(f"{status.st_dev}.{status.st_ino}")
    return " ".join(found)


def process_mapping(hosts: Sequence[str]) -> str:
    """Return the value of PMI_process_mapping: the host of each process, as runs of equal ones."""
    numbers: dict[str, int] = {}
    runs: list[list[int]] = []
    for host in hosts:
        number = numbers.setdefault(host, len(numbers))
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return f"(vector,{','.join(f'({number},1,{count})' for number, count in runs)})"
