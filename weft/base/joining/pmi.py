"""PMI-1: the text protocol by which MPICH and its relatives exchange addresses when MPI is initialized.

A command is a line of `key=value` words. The server stores values by key and releases barriers; it needs no knowledge
of what the values mean.
"""

from __future__ import annotations

import secrets

VERSION = 1, 1
LONGEST_NAME, LONGEST_KEY, LONGEST_VALUE = 256, 64, 1024
FINALIZED = "cmd=finalize_ack"
UNSUPPORTED = ("publish_name", "lookup_name", "unpublish_name")


class PmiServer:
    """Key-value space and barrier of `size` processes. `values` are defined from the start, such as the mapping of
    processes to hosts."""

    def __init__(self, size: int, values: dict[str, str] | None = None) -> None:
        self.size = size
        # MPI names its shared memory after it, so jobs of one host must differ.
        self.name = f"weft_{secrets.token_hex(8)}"
        self.values = dict(values or {})
        self.finalized: set[int] = set()
        self.aborted: dict[int, str] = {}
        self._at_barrier: set[int] = set()

    def handle(self, rank: int, line: str) -> list[tuple[int, str]]:
        """Handle a command of a process; return the lines to send, each with the process that receives it."""
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        command = words.get("cmd") or words.get("mcmd") or ""
        match command:
            case "barrier_in":
                return self._enter_barrier(rank)
            case "put":
                # A value may have spaces: it is the rest of the line.
                self.values[words.get("key", "")] = line.partition(" value=")[2].strip()
                reply = "put_result rc=0 msg=success"
            case "get":
                value = self.values.get(words.get("key", ""))
                found = "rc=-1 msg=key_not_found value=unknown" if value is None else f"rc=0 msg=success value={value}"
                reply = f"get_result {found}"
            case "init":
                same = words.get("pmi_version") == str(VERSION[0])
                reply = f"response_to_init pmi_version={VERSION[0]} pmi_subversion={VERSION[1]} rc={0 if same else -1}"
            case "get_maxes":
                reply = f"maxes kvsname_max={LONGEST_NAME} keylen_max={LONGEST_KEY} vallen_max={LONGEST_VALUE}"
            case "get_appnum":
                reply = "appnum appnum=0"
            case "get_my_kvsname":
                reply = f"my_kvsname kvsname={self.name}"
            case "get_universe_size":
                reply = f"universe_size size={self.size}"
            case "finalize":
                self.finalized.add(rank)
                return [(rank, FINALIZED)]
            case "abort":
                self.aborted[rank] = line
                return []
            case "spawn":
                reply = "spawn_result rc=-1 status=-1 msg=unsupported"
            case _ if command in UNSUPPORTED:
                reply = f"{command.removesuffix('_name')}_result rc=-1 msg=unsupported"
            case _:
                return []  # words of a command of several lines
        return [(rank, f"cmd={reply}")]

    def _enter_barrier(self, rank: int) -> list[tuple[int, str]]:
        self._at_barrier.add(rank)
        if len(self._at_barrier) < self.size:
            return []
        self._at_barrier.clear()
        return [(other, "cmd=barrier_out") for other in range(self.size)]
