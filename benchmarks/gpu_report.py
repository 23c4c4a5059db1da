"""Reports of a run of `gpu.py`: a table as text, a table of a page, and a file of the history.

python benchmarks/gpu_report.py FILE.json      the table as text
python benchmarks/gpu_report.py FILE.json --record      write benchmarks/history/gpu-VERSION.json and docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from gpu_gates import GATES, duration
from gpu_lines import LINES
from libraries import TITLES
from report import HISTORY, replaced

PAGE = HISTORY.parents[1] / "docs" / "benchmarks.md"


def rates() -> dict[str, tuple[float, str]]:
    """Return the work of each line in a call, and the unit of its rate."""
    found = {line.name: (line.bytes / 1e9, "GB/s") for line in LINES if line.traffic}
    return found | {line.name: (line.flops / 1e12, "TFLOP/s") for line in LINES if line.flops}


def rows_of(run: Mapping[str, Any]) -> list[list[str]]:
    """Return for each line its name, the time of each library, the rate of Weft, the goal, and whether it is met."""
    seconds, known = run["seconds"], rates()
    rows = []
    for name in dict.fromkeys(name for times in seconds.values() for name in times):
        times = {library: found[name] for library, found in seconds.items() if name in found}
        own, (work, unit) = times.get("weft"), known.get(name, (0.0, ""))
        rate = work / own if own and work else None
        gate = GATES.get(name)
        met = None if gate is None or own is None else gate.is_met(own, rate, times)
        rows.append(
            [
                name,
                *(duration(times[library]) if library in times else "" for library in seconds),
                "" if rate is None else f"{rate:.0f} {unit}",
                "" if gate is None else gate.text(unit),
                "" if met is None else "met" if met else "missed",
            ]
        )
    return rows


def heads(run: Mapping[str, Any]) -> list[str]:
    return ["", *(TITLES[library] for library in run["seconds"]), "", "bound", ""]


def text_table(run: Mapping[str, Any]) -> str:
    """Format the table for a terminal."""
    table = [heads(run), *rows_of(run)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    last = sum(row[-1] == "missed" for row in table)
    rows = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in table
    ]
    return "\n".join([*rows, f"{sum(row[-1] == 'met' for row in table)} bounds met, {last} missed"])


def page_table(run: Mapping[str, Any]) -> str:
    """Format the table of a page, with the machine and the date."""
    versions = ", ".join(f"{TITLES[library]} {version}" for library, version in run["versions"].items())
    head = heads(run)
    rows = [head, ["---", *["---:"] * (len(head) - 2), "---"], *rows_of(run)]
    return "\n".join([f"{versions}; {run['gpu']}.", "", *("| " + " | ".join(row) + " |" for row in rows)])


def record(run: Mapping[str, Any]) -> None:
    """Write a run to the history, and its table to the page."""
    release = re.match(r"\d+(\.\d+)*", run["versions"]["weft"])  # without the mark of a version that is being developed
    assert release is not None
    path = HISTORY / f"gpu-{release[0]}.json"
    path.write_text(json.dumps(run, indent=1) + "\n")
    PAGE.write_text(replaced(PAGE.read_text(), "gpu", page_table(run)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    run = json.loads(options.file.read_text())
    print(text_table(run))
    if options.record:
        record(run)


if __name__ == "__main__":
    main()
