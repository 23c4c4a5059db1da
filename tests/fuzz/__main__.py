"""Replay a random program: `python -m tests.fuzz SEED` prints it and checks it; a failure is made small and printed."""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.fuzz.checks import case_of, check_case, check_jit
from tests.fuzz.generator import generate
from tests.fuzz.shrink import fails, script, shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--most", type=int, help="the largest size of a dimension")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    program = generate(options.seed, options.most)
    case = case_of(program)
    print(f"# seed {program.seed}, {program.transformation}, x64 {program.wide}, donated {case.donated}")
    print(case.jaxpr)
    try:
        print(check_case(case))
        check_jit(program)
        return 0
    except Exception:
        traceback.print_exc()
    if options.no_shrink:
        return 1
    for most in () if options.most else (2, 3, 5, 9):
        smaller = case_of(generate(options.seed, most))
        if fails(smaller):
            case = smaller
            break
    print(script(shrink(case)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
