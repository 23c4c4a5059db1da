"""Many sequence lengths through one jitted function: `python symbolic_sizes.py [LIBRARY] [CASE] [LENGTHS]`.

Without a library every one is run, in a process of its own: "weft" with a symbolic length (`jit(dynamic=)`),
"automatic" where it becomes one by itself, "concrete" without, and "jax" (fewer lengths, and the time for as many is
extrapolated). A run prints the wall-clock and the CPU seconds (of all threads) of all first calls, from 17 on, with
nothing cached on disk. With the library "steps", calls of both programs of Weft are timed in turns, once they have
their best code.

Cases: "softmax" of an elementwise function, "forward" through two transformer blocks (width 64, 4 heads, batch 2), and
the "gradient" of their mean square.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from libraries import Library, load

WIDTH, HEADS, BLOCKS, BATCH = 64, 4, 2, 2
FIRST = 17
LIBRARIES = ("weft", "automatic", "concrete", "jax")
# What of the lengths is run where each takes long.
SHARE = {"concrete": 10, "jax": 10}


def weights() -> list[dict[str, np.ndarray]]:
    shapes = {name: (WIDTH, WIDTH) for name in "qkvo"} | {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    shapes |= {"first": (WIDTH,), "second": (WIDTH,)}
    return [{name: numbers(*shape) for name, shape in shapes.items()} for _ in range(BLOCKS)]


def numbers(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.1).astype(np.float32)


def softmax(f: Library, x: Any) -> Any:
    e = f.np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalized(f: Library, x: Any, gain: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / f.np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * (1 + gain)


def block(f: Library, p: Any, x: Any) -> Any:
    batch, length, width = x.shape
    h = normalized(f, x, p["first"])
    q, k, v = ((h @ p[n]).reshape(batch, length, HEADS, width // HEADS).transpose(0, 2, 1, 3) for n in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / np.float32((width // HEADS) ** 0.5)
    causal = f.np.arange(length)[:, None] >= f.np.arange(length)[None, :]
    mixed = softmax(f, f.np.where(causal, scores, -1e9)) @ v
    x = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ p["o"]
    h = normalized(f, x, p["second"]) @ p["up"]
    return x + (h * 0.5 * (1 + f.np.tanh(0.79788456 * (h + 0.044715 * h * h * h)))) @ p["down"]


def forward(f: Library, params: Any, x: Any) -> Any:
    for p in params:
        x = block(f, p, x)
    return x


def case_of(f: Library, case: str) -> tuple[Callable[..., Any], dict[int, str], Callable[[int], tuple[Any, ...]]]:
    """Return a function, its symbolic shapes, and a function that makes arguments for a length."""
    if case == "softmax":
        return (
            lambda x: softmax(f, f.np.tanh(x * 2 + 1) * x),
            {0: "_, t"},
            lambda length: (f.np.asarray(numbers(64, length)),),
        )
    params = f.top.tree.map(f.np.asarray, weights())
    functions = {
        "forward": lambda params, x: forward(f, params, x),
        "gradient": f.top.grad(lambda params, x: (forward(f, params, x) ** 2).mean()),
    }
    return functions[case], {1: "_, t, _"}, lambda length: (params, f.np.asarray(numbers(BATCH, length, WIDTH)))


def first_calls(library: str, case: str, lengths: int) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a first call for each length."""
    f = load("jax" if library == "jax" else "weft")
    function, shapes, arguments = case_of(f, case)
    if library != "jax":
        f.top.config.update("compilation_cache_dir", tempfile.mkdtemp())
        f.top.config.update("symbolic_sizes", "auto" if library == "automatic" else "declared")
    jitted = f.top.jit(function, dynamic=shapes) if library == "weft" else f.top.jit(function)
    f.top.block_until_ready(f.top.jit(lambda x: x * x - 3)(f.np.arange(5.0)))
    every = SHARE.get(library, 1)
    calls = [f.top.block_until_ready(arguments(FIRST + n)) for n in range(0, lengths, every)]
    start, worked = time.perf_counter(), time.process_time()
    for call in calls:
        f.top.block_until_ready(jitted(*call))
    scale = lengths / len(calls)
    return scale * (time.perf_counter() - start), scale * (time.process_time() - worked)


def steps(case: str, lengths: tuple[int, ...] = (23, 64, 100, 256, 257, 1000)) -> None:
    """Print how long a call of the symbolic program takes against one of the concrete program."""
    f = load("weft")
    f.top.config.update("symbolic_sizes", "declared")
    function, shapes, arguments = case_of(f, case)
    sides = f.top.jit(function), f.top.jit(lambda *args: function(*args), dynamic=shapes)
    for length in lengths:
        args = arguments(length)
        for _ in range(4):
            for side in sides:
                f.top.block_until_ready(side(*args))
        time.sleep(3.0)  # better code is compiled in the background
        best = [float("inf")] * 2
        for _ in range(60 if length < 300 else 20):
            for n, side in enumerate(sides):
                start = time.perf_counter()
                f.top.block_until_ready(side(*args))
                best[n] = min(best[n], time.perf_counter() - start)
        print(f"{case:9} {length:5}: {best[0] * 1e6:9.0f} us concrete, symbolic {best[1] / best[0]:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=(*LIBRARIES, "steps"), nargs="?")
    parser.add_argument("case", choices=("softmax", "forward", "gradient"), nargs="?")
    parser.add_argument("lengths", type=int, nargs="?", default=200)
    args = parser.parse_args()
    if args.library == "steps":
        steps(args.case or "forward")
    elif args.library and args.case:
        print(*first_calls(args.library, args.case, args.lengths))
    else:
        for case in ("softmax", "forward", "gradient"):
            for library in [args.library] if args.library else LIBRARIES:
                command = [sys.executable, __file__, library, case, str(args.lengths)]
                wall, work = map(float, subprocess.check_output(command, text=True).split()[-2:])
                print(f"{case:9} {library:9} {wall:8.3f} s, CPU {work:8.3f} s for {args.lengths} lengths", flush=True)


if __name__ == "__main__":
    main()
