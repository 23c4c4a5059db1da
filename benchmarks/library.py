"""Programs as C libraries against XLA:CPU and onnxruntime: time of one thread, size, and the overhead of a call.

    python benchmarks/library.py [--rounds 60] [--json build/library.json]

All sides run in one process on one processor, in turns; the least of all rounds is compared, which other work on the
machine disturbs least. onnxruntime runs inference only, and is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WEFT_NUM_THREADS", "1")

import libraries
import models
import numpy as np

import weft
from weft import export

# Ratios that the library must not exceed, of time to the peer's, and sizes in bytes.
MOST = {"jax": 0.7, "onnxruntime": 1.0}
MOST_BYTES = {"x86-64-v3": 80_000, "wasm32": 60_000}
MOST_CALL_NANOSECONDS = 500.0
Case = tuple[Callable[[libraries.Library], Callable[..., Any]], tuple[Any, ...], bool]


def cases() -> dict[str, Case]:
    """Return functions of a library, with arguments, and whether they are inference."""
    transformer = models.transformer_arguments(2, width=128, batch=1, length=64, vocabulary=256)
    convolutions = models.all_convolutions_arguments(batch=1, narrower=4)
    return {
        "MLP": (models.mlp, models.mlp_arguments(), True),
        "conv net": (models.all_convolutions, convolutions, True),
        "transformer": (models.transformer, transformer, True),
        "transformer, train step": (lambda f: models.train_step(f, models.transformer(f)), transformer, False),
    }


class NativeCall:
    """Function of a shared library with its operands in place."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], folder: str) -> None:
        built = export.library(function, *args, name="f")
        self.file = next(path for path in built.save(folder) if path.suffix == ".so")
        self.run = ctypes.CDLL(str(self.file)).f_run
        signature = built.signature
        self.operands = [np.ascontiguousarray(leaf) for leaf in weft.tree.leaves(args)]
        self.results = [np.zeros(t.shape, t.dtype) for t in signature.results]
        self.workspace = np.zeros(signature.workspace_bytes + 1, np.uint8)
        pointer = ctypes.c_void_p
        tables = [(pointer * (len(some) + 1))(*(a.ctypes.data for a in some)) for some in (self.operands, self.results)]
        self.arguments = (*tables, pointer(self.workspace.ctypes.data), None)

    def __call__(self) -> None:
        assert self.run(*self.arguments) == 0


def xla_call(function: Callable[..., Any], args: tuple[Any, ...], jax: Any) -> Callable[[], object]:
    compiled = jax.jit(function)
    placed = jax.device_put(args)
    return lambda: jax.block_until_ready(compiled(*placed))


def onnx_call(function: Callable[..., Any], args: tuple[Any, ...], folder: str) -> Callable[[], object]:
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(
        export.onnx(function, *args).serialize(), options, providers=["CPUExecutionProvider"]
    )
    feed = {i.name: np.asarray(a) for i, a in zip(session.get_inputs(), weft.tree.leaves(args), strict=True)}
    return lambda: session.run(None, feed)


def measure(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the least milliseconds of each side; they run in turns."""
    least = dict.fromkeys(sides, float("inf"))
    for side in sides.values():
        side()
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            least[name] = min(least[name], time.perf_counter() - start)
    return {name: seconds * 1e3 for name, seconds in least.items()}


def stripped_bytes(file: pathlib.Path) -> int:
    """Return the size of a library without symbols for debuggers."""
    strip = shutil.which("strip")
    if strip is None or file.suffix == ".wasm":
        return file.stat().st_size
    out = file.with_suffix(".stripped")
    subprocess.run([strip, "-o", out, file], check=True)
    return out.stat().st_size


LOOP = """
#include "add.h"
#include <stdio.h>
#include <time.h>
int main(void) {
  float x[4] = {1, 2, 3, 4}, y[4];
  double best = 1e9;
  for (int round = 0; round < 20; round++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int n = 0; n < 100000; n++) if (add(x, y, NULL)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &b);
    double spent = ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / 100000;
    if (spent < best) best = spent;
  }
  printf("%g", best);
  return 0;
}
"""


def call_nanoseconds(folder: pathlib.Path) -> float:
    """Return the time of a call of four additions from C."""
    export.library(lambda x: x + 1, weft.ShapeDtypeStruct((4,), np.float32), name="add").save(folder)
    (folder / "main.c").write_text(LOOP)
    subprocess.run(["cc", "-O2", "main.c", "add.o", "-o", "main"], cwd=folder, check=True)
    return float(subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    jax = importlib.import_module("jax") if libraries.installed("jax") else None
    ours = libraries.load("weft")
    results: dict[str, Any] = {}
    for name, (function, args, is_inference) in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            call = NativeCall(function(ours), args, folder)
            sides: dict[str, Callable[[], object]] = {"library": call}
            if jax is not None:
                sides["jax"] = xla_call(function(libraries.load("jax")), args, jax)
            if is_inference and libraries.installed("onnxruntime"):
                sides["onnxruntime"] = onnx_call(function(ours), args, folder)
            times = measure(sides, options.rounds)
            results[name] = {"milliseconds": times, "bytes": stripped_bytes(call.file)}
        ratios = ", ".join(
            f"{times['library'] / times[peer]:.2f} of {peer} (at most {MOST[peer]})" for peer in MOST if peer in times
        )
        print(f"{name:26} {times['library']:8.3f} ms, {ratios}; {results[name]['bytes']} bytes", flush=True)
    function, args, _ = cases()["transformer, train step"]
    for target, most in MOST_BYTES.items():
        with tempfile.TemporaryDirectory() as folder:
            files = export.library(function(ours), *args, name="f", target=target).save(folder)
            linked = next((path for path in files if path.suffix in (".so", ".wasm")), None)
            size = None if linked is None else stripped_bytes(linked)
        print(f"train step for {target}: {size} bytes (at most {most})")
        results[target] = size
    with tempfile.TemporaryDirectory() as folder:
        results["call"] = call_nanoseconds(pathlib.Path(folder))
    print(f"a call from C: {results['call']:.0f} ns (at most {MOST_CALL_NANOSECONDS:.0f})")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
