"""Lines that are evaluated with both libraries on eight CPU devices, JAX in a process of its own: the shardings and
sums of the arrays that they return, other results as text, or that they raise."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import weft


def shown(value: Any, lib: Any) -> Any:
    """Shardings and sums of arrays, and everything else as text."""
    if isinstance(value, (tuple, list)):
        return [shown(v, lib) for v in value]
    if isinstance(value, dict):
        return {k: shown(v, lib) for k, v in value.items()}
    return [repr(value.sharding), f"{float(value.sum()):.4g}"] if isinstance(value, lib.Array) else repr(value)


def answers(lib: Any, lines: Sequence[str], names: dict[str, Any]) -> list[Any]:
    found = []
    for line in lines:
        try:
            found.append(shown(eval(line, names), lib))
        except Exception:  # JAX has classes of its own
            found.append("an error")
    return json.loads(json.dumps(found))


def from_jax(file: str) -> list[Any]:
    """Return the output of the file, run as a program: JAX's answers."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def answers_of(file: str, find: Callable[[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
    """Return the answers of both libraries, JAX's first: `find` evaluates lines with one, `file` prints JAX's."""
    return from_jax(file), find(weft)


def same_as_jax(file: str, lines: Sequence[str], find: Callable[[Any], list[Any]]) -> Callable[[int], None]:
    """Make a test of each line: both libraries answer the same."""

    @pytest.mark.parametrize("line", range(len(lines)), ids=lines)
    def test_as_jax_says(line: int) -> None:
        expected, found = answers_of(file, find)
        assert found[line] == expected[line]

    return test_as_jax_says


def print_answers(find: Callable[[Any], list[Any]]) -> None:
    import jax

    warnings.simplefilter("ignore")
    print(json.dumps(find(jax)))
