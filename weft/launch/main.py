"""The program `python -m weft.launch`."""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from collections.abc import Sequence

from weft.base.joining import wire
from weft.base.joining.reactor import Link, Reactor
from weft.launch import by_mpi
from weft.launch.job import Job, node_token
from weft.launch.nodes import Agent
from weft.launch.options import Options, parse
from weft.launch.output import Output, say


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the processes that the command line asks for, wait for them, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--agent"]:
        reactor = Reactor()
        return Agent(reactor, Link(reactor, 0, 1), None).run()
    options = parse(words)
    is_one_host = not options.hosts and options.nodes == 1
    if options.launcher in ("mpiexec", "srun") or (options.launcher == "auto" and is_one_host and by_mpi.is_open_mpi()):
        return by_mpi.run(options)
    if options.node_rank:
        return _join_node(options)
    try:
        job = Job(options)
    except (ValueError, OSError) as error:
        say(f"cannot start: {error}")
        return 2
    return job.run()


def _join_node(options: Options) -> int:
    """Work for the launcher of the first host."""
    assert options.rendezvous is not None
    hello = {"role": "node", "rank": options.node_rank, "size": options.nodes, "where": f"host {platform.node()}"}
    deadline, reason = time.monotonic() + options.timeout, "it was not tried"
    while time.monotonic() < deadline:
        try:
            connection = wire.connect(options.rendezvous, node_token(options), hello, wire.HANDSHAKE_SECONDS)
        except wire.RefusedError as error:
            say(str(error))
            return 1
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            time.sleep(0.2)
            continue
        reactor, output = Reactor(), Output(options.has_prefix, options.log_directory)
        with contextlib.closing(output):
            return Agent(reactor, Link(reactor, connection), output).run()
    say(f"no launcher answers at {options.rendezvous} within {options.timeout:.0f} s: {reason}")
    return 1
