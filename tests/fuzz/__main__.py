"""Random programs: replay one (`python -m tests.fuzz SEED`), check many (`--count N`), or see what they cover
(`--coverage`).

A seed is printed as Python and as a jaxpr, and judged; a failure is made small.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import sys
import traceback

from tests.fuzz.campaign import STATE, campaign
from tests.fuzz.checks import case_of, check_case, check_checked, check_jit
from tests.fuzz.coverage import Coverage, coverage_of
from tests.fuzz.generator import NO_RULE, generate
from tests.fuzz.reference import expected_of
from tests.fuzz.shrink import report, standalone


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="the program to replay")
    parser.add_argument("--most", type=int, help="the largest size of a dimension")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--count", type=int, help="check so many seeds, those that the state file has not")
    parser.add_argument("--first", type=int, default=0, help="the first of those seeds (default 0)")
    parser.add_argument("--state", type=pathlib.Path, default=STATE, help=f"the state file (default {STATE})")
    parser.add_argument("--processes", type=int, help="how many processes (default: one for each core)")
    parser.add_argument("--coverage", type=int, nargs="?", const=10_000, metavar="N", help="what N seeds cover")
    options = parser.parse_args()
    if options.coverage is not None:
        return print_coverage(options.first, options.coverage, options.processes)
    if options.count is not None:
        return campaign(options.count, options.first, options.state, options.processes)
    if options.seed is None:
        parser.error("a seed, --count or --coverage is needed")
    return replay(options.seed, options.most, not options.no_shrink)


def replay(seed: int, most: int | None, shrinks: bool) -> int:
    program = generate(seed, most)
    print(standalone(program))
    try:
        case = case_of(program)
    except NO_RULE as error:
        print(f"no rule: {error}")
        return 0
    print(case.jaxpr)
    try:
        if program.checks:
            print(check_checked(program))
            return 0
        expected = expected_of(case)
        print(check_case(case, True, expected))
        check_jit(program, expected)
        return 0
    except Exception:
        traceback.print_exc()
    if shrinks:
        print(report(program))
    return 1


def print_coverage(first: int, count: int, processes: int | None) -> int:
    """Print the report, and write it as JSON to build/."""
    chunks = [range(n, min(n + 100, first + count)) for n in range(first, first + count, 100)]
    total = Coverage()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for found in pool.imap_unordered(coverage_of, chunks):
            total.merge(found)
    path = pathlib.Path("build/fuzz-coverage.json")
    total.write(path)
    print(total.report())
    print(f"every count is in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
