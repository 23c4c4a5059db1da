"""`make roofline`: kernels against the limits of the machine, over a grid of operations, shapes, axes and dtypes.

Each case has a least time, from the bytes that it must read and write and the operations that it must do. The report
ranks cases by the time that is lost, and marks those that take more than three times the least time although they do
more than 20 us of work. REASONS says why a case may. With `--model` nothing runs: kernels compiled for a GPU are
checked for their threads and memory transactions, which needs no GPU.

python benchmarks/roofline.py [--only TEXT] [--json FILE] [--device cpu|gpu] [--model] [--peer] [--quick]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from libraries import Library, installed, load
from roofline_cases import Case, cases

import weft
from weft.compiler.compile import compile_program
from weft.compiler.kernel.transactions import Transactions, count_transactions
from weft.compiler.program.ir import Call, Launch
from weft.compiler.target.cuda.targets import hopper
from weft.ir.jaxpr import constants_to_arguments
from weft.runtime.execution_backend import execution_backend

# More times the least time than this is reported, for cases with more than `LEAST_WORK` seconds of it.
MOST_TIMES, LEAST_WORK = 3.0, 20e-6
# Why cases take longer, by a pattern of their names.
REASONS: dict[str, str] = {
    r"^(sort|argsort|top_k|unique|median)": "compares elements log n times; the least time counts one pass",
    r"^(sin|exp|erf|tanh|logistic|pow|cbrt|gamma|log)": "elementary functions, whose operations are not counted",
    r"^random": "threefry rounds are not counted",
    r"^(fft|rfft)": "library, on one thread",
    r"^(solve|inv|svd|eigh|qr|lu)": "LAPACK, whose panels have less than matrix speed",
    r"^scan": "small steps, which wait for each other",
}


class Row(NamedTuple):
    """Case with its time, the least time, and a peer's time if there is one."""

    name: str
    seconds: float
    least: float
    peer: float | None = None

    @property
    def times(self) -> float:
        """How many times the least time a case takes."""
        return self.seconds / self.least

    @property
    def lost(self) -> float:
        """Seconds above the least time."""
        return self.seconds - self.least

    @property
    def reason(self) -> str:
        """Why it may take longer, or nothing."""
        return next((why for pattern, why in REASONS.items() if re.search(pattern, self.name)), "")


def least_seconds(case: Case, results: Sequence[Any], limits: Any) -> float:
    """Return the least time of a case, by its arguments, results and operations."""
    moved = case.bytes_moved
    if moved is None:
        moved = sum(a.nbytes for a in case.arguments) + sum(r.nbytes for r in results)
    return max(moved / limits.bandwidth(moved), case.operations / limits.flops, 1e-9)


def time_call(call: Callable[[], Any], rounds: int) -> float:
    """Return the least time of a call, after calls until its optimized code is ready."""
    deadline = time.monotonic() + 0.4
    samples: list[float] = []
    while len(samples) < rounds or (time.monotonic() < deadline and len(samples) < 8 * rounds):
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return min(samples)


def measure(case: Case, library: Library, limits: Any, peer: Library | None, rounds: int) -> Row:
    """Time one case."""

    def prepare(of: Library) -> tuple[Callable[[], Any], Any]:
        function = of.top.jit(case.make(of))
        arguments = [of.np.asarray(a) for a in case.arguments]
        result = of.top.block_until_ready(function(*arguments))
        return lambda: of.top.block_until_ready(function(*arguments)), result

    call, result = prepare(library)
    least = least_seconds(case, weft.tree.leaves(result), limits)
    theirs = None if peer is None else time_call(prepare(peer)[0], rounds)
    return Row(case.name, time_call(call, rounds), least, theirs)


def report(rows: Sequence[Row]) -> int:
    """Print all rows by lost time; return how many exceed the limit without a reason."""
    print(f"{'case':56} {'time':>10} {'least':>10} {'times':>6} {'peer':>6}")
    unexplained = 0
    for row in sorted(rows, key=lambda row: -row.lost):
        over = row.times > MOST_TIMES and row.seconds > LEAST_WORK
        mark = (row.reason or "WITHOUT A REASON") if over else ""
        unexplained += over and not row.reason
        ratio = "" if row.peer is None else f"{row.seconds / row.peer:6.2f}"
        print(f"{row.name:56} {row.seconds * 1e6:8.1f}us {row.least * 1e6:8.1f}us {row.times:6.1f} {ratio:>6} {mark}")
    ratios = [row.times for row in rows]
    median = statistics.median(ratios)
    print(f"\n{len(rows)} cases, median {median:.2f} times the least time; {unexplained} over the limit")
    return unexplained


# ----------------------------------------------------------------------------------------------------- without a device


class KernelRow(NamedTuple):
    """Kernel of a case on a GPU: its threads, and the share of the bytes in its memory transactions that it uses."""

    case: str
    kernel: str
    found: Transactions


def gpu_kernels(case: Case) -> Iterator[KernelRow]:
    """Yield the kernels of a case, compiled for a GPU that need not be there."""
    function = case.make(load("weft"))
    jaxpr = constants_to_arguments(weft.make_jaxpr(function)(*case.arguments))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), hopper()).program
    for step in program.all_steps():
        if isinstance(step, Launch):
            yield KernelRow(case.name, step.full.name, count_transactions(step.full))
        elif isinstance(step, Call):
            yield KernelRow(case.name, step.routine, Transactions(0, 0, 0))


def report_model(selected: Sequence[Case]) -> int:
    """Print kernels that use few threads, or few bytes of their transactions; return their number."""
    found = 0
    for case in selected:
        for row in gpu_kernels(case):
            if row.found.is_wasteful:
                found += 1
                print(f"{row.case:56} {row.kernel:24} {row.found}")
    print(f"\n{found} kernels of {len(selected)} cases use few threads or parts of transactions")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--model", action="store_true", help="check kernels for GPUs, without running them")
    parser.add_argument("--peer", action="store_true", help="time JAX too")
    parser.add_argument("--quick", action="store_true", help="every seventh case")
    options = parser.parse_args()
    selected = [case for case in cases() if options.only in case.name][:: 7 if options.quick else 1]
    if options.model:
        report_model(selected)
        return
    device = weft.devices(options.device)[0]
    weft.config.update("default_device", device)
    limits = execution_backend(device).limits(device)
    peer = load("jax") if options.peer and installed("jax") else None
    library = load("weft")
    rows = [measure(case, library, limits, peer, rounds=5) for case in selected]
    report(rows)
    if options.json:
        content = {"machine": platform.processor() or platform.machine(), "version": weft.__version__}
        lines = [row._asdict() for row in rows]
        options.json.write_text(json.dumps({**content, "rows": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
