"""`python -m weft.explain file.py:function`: the page about a function of a file, for the arguments of its first call.

The file is run as a script, up to the first call of the function if that is jitted. For any other function, `--args`
has its arguments as a Python expression over the names of the file: `--args "wnp.ones(3), 2.0"`.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft.api.jit_function
from weft.api.flat import get_name
from weft.api.jit_function import JitFunction
from weft.base import tree
from weft.explain import Explanation, explain
from weft.trace.array import Array
from weft.trace.tracer import Tracer


class Found(BaseException):
    """Raised with the call to explain. A BaseException, so that the script's error handlers do not catch it."""

    def __init__(self, function: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.arguments, self.keywords = function, args, kwargs


def main(arguments: Sequence[str] | None = None) -> Explanation:
    """Parse the command line, find the call and explain it."""
    parser = argparse.ArgumentParser(prog="python -m weft.explain", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", help="file.py:function")
    parser.add_argument("--args", help="arguments of the function, as a Python expression over the names of the file")
    parser.add_argument("--output", help="the page to write (default: <function>.explain.html)")
    options = parser.parse_args(arguments)
    file, _, name = options.target.rpartition(":")
    if not file or not name:
        parser.error(f"{options.target!r} is not of the form file.py:function")
    if not os.path.exists(file):
        parser.error(f"there is no file {file}")
    function, args, kwargs = find_call(file, name, options.args, parser.error)
    explanation = explain(function, options.output)(*args, **kwargs)
    print(explanation.path)
    return explanation


def find_call(
    file: str, name: str, expression: str | None, fail: Callable[[str], Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Find the function and the arguments to explain."""

    def watch(function: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        traced = any(isinstance(leaf, Tracer) for leaf in tree.leaves((args, kwargs)))
        if expression is None and not traced and get_name(function).rpartition(".")[2] == name:
            raise Found(function, args, kwargs)

    weft.api.jit_function.watchers.append(watch)
    # The script finds its own folder and arguments as if it were run alone.
    before, path = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [file], [os.path.dirname(os.path.abspath(file))]
    try:
        names = runpy.run_path(file, run_name="__main__" if expression is None else "__explain__")
    except Found as found:
        return found.function, found.arguments, found.keywords
    finally:
        weft.api.jit_function.watchers.remove(watch)
        sys.argv, sys.path[:] = before, path
    if not callable(names.get(name)):
        return fail(f"{file} has no function {name}")
    if expression is None:
        return fail(f"{file} does not call {name} as a jitted function; give its arguments with --args")
    value = eval(expression, names)
    is_one = not isinstance(value, tuple) or isinstance(value, (Array, np.ndarray))
    return names[name], (value,) if is_one else value, {}


if __name__ == "__main__":
    main()
