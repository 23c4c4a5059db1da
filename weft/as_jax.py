"""Run a program that imports jax on Weft: `python -m weft.as_jax script.py arguments`, or `-m module`, or `-c code`."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from weft import compat


def main(arguments: Sequence[str] | None = None) -> None:
    """Install the alias and run the script, module or code of the command line, as Python does."""
    parser = argparse.ArgumentParser(prog="python -m weft.as_jax", description=__doc__, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-m", metavar="module", dest="module", help="run a module, as python -m does")
    what.add_argument("-c", metavar="code", dest="code", help="run a line of code, as python -c does")
    line = list(sys.argv[1:] if arguments is None else arguments)
    # Arguments after the program belong to the program.
    own = {"-m": 2, "-c": 2, "-h": 1, "--help": 1}.get(line[0], 0) if line else 0
    options, rest = parser.parse_args(line[:own]), line[own:]
    if own == 0 and not rest:
        parser.error("there is no script to run")
    compat.install()
    if options.code is not None:
        sys.argv[:] = ["-c", *rest]
        sys.path[0] = ""
        exec(compile(options.code, "<string>", "exec"), {"__name__": "__main__"})
    elif options.module is not None:
        sys.argv[:] = [options.module, *rest]
        sys.path[0] = os.getcwd()
        runpy.run_module(options.module, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = rest
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main()
