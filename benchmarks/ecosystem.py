"""Step times of programs written with libraries for JAX, on Weft and on JAX, in turns.

    python benchmarks/ecosystem.py [NAME ...] [--rounds 3] [--json build/ecosystem.json]

Each program of tests/ecosystem/programs runs in processes of its own; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.ecosystem.references import run_program
from tests.ecosystem.run import PROGRAMS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = {}
    print(f"{'program':<24}{'Weft ms':>10}{'JAX ms':>10}{'ratio':>8}")
    for name in options.programs or PROGRAMS:
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(options.rounds):
            for on_weft in (True, False):
                times[on_weft] += run_program(name, "--time", on_weft=on_weft)["times"]
        weft, jax = statistics.median(times[True]), statistics.median(times[False])
        rows[name] = {"weft_ms": weft, "jax_ms": jax, "ratio": weft / jax}
        print(f"{name:<24}{weft:>10.3f}{jax:>10.3f}{weft / jax:>8.2f}", flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
