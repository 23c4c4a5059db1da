"""Matrix multiplications of many shapes: Weft's own kernels, Weft with BLAS, and NumPy.

Prints for each shape the best and median time of each in microseconds, and the ratios of our own kernels to NumPy; then
the geometric means of the ratios and the worst ratios of best times, which are least affected by noise. Layouts say
which operands are transposed: nt is `a @ b.T`. Schedules are the default ones, without autotuning.

python benchmarks/matmul_grid.py [--repeats N] [--only TEXT]
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from measure import Line, Result, compare

import weft
from weft.base.settings import config
from weft.compiler.compile import compile_program
from weft.compiler.schedules import LIBRARY
from weft.compiler.target.cpu.targets import host
from weft.runtime.cpu import tiers
from weft.runtime.cpu.executable import Executable

Case = tuple[str, str, tuple[int, int, int]]

SQUARES = (32, 64, 100, 128, 192, 256, 300, 384, 512, 768, 1000, 1024)
# Rows, columns, K.
SKEWED = (
    (16, 3000, 512),
    (3000, 16, 512),
    (16, 16, 3000),
    (64, 64, 3000),
    (64, 256, 8192),
    (100, 3000, 64),
    (100, 400, 3000),
    (256, 100, 1000),
    (256, 1000, 100),
    (512, 3000, 16),
    (1000, 64, 512),
    (1000, 256, 256),
    (1000, 700, 300),
    (1000, 1000, 16),
    (1000, 1000, 100),
    (2000, 500, 100),
    (3000, 100, 256),
    (3000, 64, 64),
    (3000, 1000, 64),
)
TRANSPOSED = ((100, 100, 100), (256, 256, 256), (512, 512, 512), (1000, 100, 256), (100, 1000, 512), (64, 64, 3000))


def cases() -> Iterator[Case]:
    """Return dtype, layout, and (m, n, k) of each line."""
    for dtype in ("float32", "float64"):
        for size in SQUARES:
            yield dtype, "nn", (size, size, size)
        for shape in SKEWED:
            yield dtype, "nn", shape
        for layout in ("nt", "tn", "tt"):
            for shape in TRANSPOSED:
                yield dtype, layout, shape


def name_of(case: Case) -> str:
    dtype, layout, shape = case
    return f"{dtype:8} {layout} {'x'.join(map(str, shape)):>15}"


def line(case: Case, repeats: int) -> Line:
    """Make the benchmark of one multiplication, compiled and warm."""
    dtype, layout, (m, n, k) = case
    rng = np.random.default_rng(0)
    a = rng.normal(size=(k, m) if layout[0] == "t" else (m, k)).astype(dtype)
    b = rng.normal(size=(n, k) if layout[1] == "t" else (k, n)).astype(dtype)

    def matmul(a: Any, b: Any) -> Any:
        return (a.T if layout[0] == "t" else a) @ (b.T if layout[1] == "t" else b)

    ours, left, right = weft.jit(matmul), weft.numpy.asarray(a), weft.numpy.asarray(b)
    for _ in range(3):  # Weft recompiles with optimization when a function is called again
        ours(left, right)
    tiers.wait()
    sides: dict[str, Callable[[], object]] = {
        "weft": lambda: ours(left, right).block_until_ready(),
        "numpy": lambda: matmul(a, b),
    }
    library = by_library(matmul, a, b)
    if library is not None:
        sides["library"] = lambda: library([a, b])
    difference = np.abs(np.asarray(ours(left, right)) - matmul(a, b)).max()
    assert difference < (1e-3 if dtype == "float32" else 1e-10) * math.sqrt(k), name_of(case)
    return Line(name_of(case), sides, repeats=repeats)


def by_library(matmul: Callable[..., Any], a: np.ndarray, b: np.ndarray) -> Executable | None:
    """Return the program that calls BLAS, without a dispatcher, which adds overhead to small ones."""
    traced = weft.make_jaxpr(matmul)(a, b)
    keys = compile_program(traced, (), host()).program.schedules
    if len(keys) != 1:
        return None
    return Executable(compile_program(traced, (), host(), schedules=dict.fromkeys(keys, LIBRARY)))


def shown(result: Result) -> str:
    cells = []
    for side in ("weft", "library", "numpy"):
        times = result.times.get(side)
        cells.append(" " * 19 if times is None else f"{times.best * 1e6:9.1f} {times.median * 1e6:9.1f}")
    return f"{result.name}  {'  '.join(cells)}  {of_best(result):6.2f} {result.ratio('numpy') or 0.0:6.2f}"


def of_best(result: Result) -> float:
    """Return our best time over NumPy's."""
    return result.times["weft"].best / result.times["numpy"].best


def mean(ratios: Iterable[float]) -> float:
    return statistics.geometric_mean(ratios)


def summary(results: list[Result]) -> str:
    """Return the geometric means of the ratios to NumPy, and the worst of them."""
    best, median = mean(map(of_best, results)), mean(r.ratio("numpy") or 1.0 for r in results)
    worst = sorted(results, key=of_best, reverse=True)[:10]
    rows = "\n".join(f"  {r.name}  {of_best(r):.2f}" for r in worst)
    return f"{len(results)} multiplications, ratios to NumPy: best {best:.2f}, median {median:.2f}; the worst:\n{rows}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="only lines whose name contains this")
    options = parser.parse_args()
    start = time.perf_counter()
    print(f"{'rows x columns x K':>29}{'own: best, median':>19}{'library':>21}{'NumPy':>21}{'own / NumPy':>15}")
    results = []
    # For the whole process, since settings of a `with` block are looked up in every call.
    config.update("autotune_milliseconds", 0)
    config.update("enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        config.update("compilation_cache_dir", folder)
        for case in cases():
            if options.only in name_of(case):
                results.append(compare(line(case, options.repeats)))
                print(shown(results[-1]), flush=True)
    if results:
        print(summary(results))
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
