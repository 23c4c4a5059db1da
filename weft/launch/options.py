"""The command line of `python -m weft.launch`."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from weft.base.joining.wire import Address, parse_address

USAGE = """Start a script in several processes, on this host or on many.

  python -m weft.launch -n 4 train.py --epochs 3               one host
  python -m weft.launch -n 8 --hosts node1,node2 train.py      by ssh, from any host
  python -m weft.launch -n 8 --nnodes 2 --node-rank 0 --rdzv node1:29400 train.py
                                                               the same command on each host, with its own rank
"""
DEFAULT_PORT = 29_400
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15 {host}"
LAUNCHERS = ("auto", "weft", "mpiexec", "srun")


class HostSlots(NamedTuple):
    """Host, and the number of processes for it; None for an even share."""

    name: str
    slots: int | None = None


class Options(NamedTuple):
    """Parsed command line. `rendezvous` is the address of the first node's launcher."""

    processes: int
    devices: int | None
    command: tuple[str, ...]  # the script and its arguments, for a Python interpreter
    hosts: tuple[HostSlots, ...]
    nodes: int
    node_rank: int
    rendezvous: Address | None
    restarts: int
    log_directory: str | None
    has_prefix: bool
    grace: float
    stop_after: float
    timeout: float
    remote: str
    python: str | None
    interface: str | None
    launcher: str


def parse_hosts(text: str) -> tuple[HostSlots, ...]:
    """Parse "a,b:4" or the lines of a file, "a slots=4"; raise ValueError for others."""
    found = []
    for line in re.split(r"[,\n]", text):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, slots = words[0], next((w.partition("=")[2] for w in words[1:] if w.startswith("slots=")), "")
        if not slots and name.count(":") == 1:
            name, _, slots = name.partition(":")
        if slots and (not slots.isdecimal() or int(slots) < 1):
            raise ValueError(f"{line.strip()!r} must have a number of processes such as host:4 or host slots=4")
        found.append(HostSlots(name, int(slots) if slots else None))
    if not found:
        raise ValueError("there must be at least one host")
    return tuple(found)


def share(processes: int, slots: Sequence[int | None]) -> list[int]:
    """Divide processes among hosts in blocks: as many as a host has slots, and even shares of the rest."""
    counts = [0 if limit is None else limit for limit in slots]
    free, rest = [i for i, limit in enumerate(slots) if limit is None], processes - sum(counts)
    for index, i in enumerate(free):
        counts[i] = max(rest, 0) // len(free) + (index < max(rest, 0) % len(free))
    if free or rest == 0:
        if rest >= 0:
            return counts
    if rest > 0:
        raise ValueError(f"{processes} processes must fit into the slots of the hosts, which have {sum(counts)}")
    for i in reversed(range(len(counts))):  # fewer processes than slots: the first hosts are filled
        surplus = min(counts[i], sum(counts) - processes)
        counts[i] -= surplus
    return counts


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m weft.launch", description=USAGE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("-n", "--processes", type=int, required=True, help="number of processes, on all hosts together")
    add("-d", "--devices", type=int, help="CPU devices of each process (WEFT_NUM_CPU_DEVICES)")
    add("-m", "--module", action="store_true", help="the script is a module, as in python -m")
    add("--hosts", help="hosts that are reached by ssh: a,b or a:4,b:4 with the number of processes of each")
    add("--hostfile", help="file with a host in each line: a, a:4 or a slots=4")
    add("--nnodes", type=int, default=1, help="number of hosts on which this command is started by other means")
    add("--node-rank", type=int, default=0, help="index of this host among them")
    add("--rdzv", help="host:port of the launcher of the first host, which all hosts reach")
    add("-r", "--restarts", "--max-restarts", type=int, default=0, help="most restarts of all after a failure")
    add("--log-dir", help="folder for what each process writes: start_0/process_3.out and .err")
    add("--no-prefix", action="store_true", help="do not begin lines with the index of their process")
    add("--grace", type=float, default=5.0, help="seconds that the others have to end after a failure (default 5)")
    add("--stop-after", type=float, default=120.0, help="seconds after SIGINT or SIGTERM until all are killed (120)")
    add("--timeout", type=float, default=300.0, help="seconds to wait for the launchers of other hosts (300)")
    add("--remote", default=os.environ.get("WEFT_LAUNCH_REMOTE", SSH), help=f"command for hosts (default {SSH!r})")
    add("--python", help="interpreter on the hosts (default: the path of this one)")
    add("--interface", help="network interface for MPI and NCCL (WEFT_NETWORK_INTERFACE)")
    add("--launcher", choices=LAUNCHERS, default="auto", help="start by another launcher; auto: mpiexec for Open MPI")
    add("script")
    add("arguments", nargs=argparse.REMAINDER)
    return result


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line; end the program with a message if it is wrong."""
    result = parser()
    got = result.parse_args(arguments)
    try:
        hosts = _hosts(got)
        rendezvous = None if got.rdzv is None else parse_address(got.rdzv, DEFAULT_PORT)
    except (ValueError, OSError) as error:
        result.error(str(error))
    rules = [
        (got.processes >= 1, "-n must be at least 1"),
        (got.nnodes >= 1, "--nnodes must be at least 1"),
        (0 <= got.node_rank < got.nnodes, f"--node-rank must be from 0 to {got.nnodes - 1}"),
        (got.nnodes == 1 or rendezvous is not None, "--nnodes needs --rdzv host:port, the address of node rank 0"),
        (got.nnodes == 1 or not hosts, "--hosts starts all hosts from one; --nnodes is for a launcher on each"),
        (got.nnodes <= got.processes, "-n is the number on all hosts together, so it must be at least --nnodes"),
        ("{host}" in got.remote, "--remote must contain {host}"),
    ]
    for holds, message in rules:
        if not holds:
            result.error(message)
    return Options(
        processes=got.processes,
        devices=got.devices,
        command=(*(["-m"] if got.module else []), got.script, *got.arguments),
        hosts=hosts,
        nodes=got.nnodes,
        node_rank=got.node_rank,
        rendezvous=rendezvous,
        restarts=got.restarts,
        log_directory=got.log_dir and os.path.abspath(got.log_dir),
        has_prefix=not got.no_prefix,
        grace=got.grace,
        stop_after=got.stop_after,
        timeout=got.timeout,
        remote=got.remote,
        python=got.python,
        interface=got.interface,
        launcher=got.launcher,
    )


def _hosts(got: argparse.Namespace) -> tuple[HostSlots, ...]:
    if got.hosts and got.hostfile:
        raise ValueError("--hosts and --hostfile cannot both be given")
    if not got.hosts and not got.hostfile:
        return ()
    return parse_hosts(got.hosts or pathlib.Path(got.hostfile).read_text(encoding="utf-8"))


def remote_command(remote: str, host: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one on a host. ssh joins words by spaces, so they are quoted for a shell."""
    words = [word.replace("{host}", host) for word in shlex.split(remote)]
    return [*words, *(map(shlex.quote, command) if pathlib.Path(words[0]).name == "ssh" else command)]
