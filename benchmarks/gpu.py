"""`make bench-gpu`: Weft on an NVIDIA GPU beside JAX and PyTorch: dispatch, memory-bound kernels, libraries, loops,
steps of training, and first calls.

    python benchmarks/gpu.py [--parts lines,steps,first] [--only NAME,...] [--all] [--libraries weft,jax,torch]
                             [--within SECONDS] [--json FILE] [--record]

Each library runs in processes of its own; one that is not installed, or fails, has no times. It prints a table with the
bound of each line (`gpu_gates.py`) and whether it is met; `--record` writes it to benchmarks/history/ and
docs/benchmarks.md, as `gpu_report.py` does with a file. `--all` measures lines without a bound too. `--within` ends
what is not over by then: Weft comes first, then what bounds compare it with.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpu_report import record, text_table

FOLDER = pathlib.Path(__file__).resolve().parent
PARTS = ("lines", "steps", "first")
# Seconds after which a process of one part is given up.
PATIENCE = 240.0
NETWORK, MODEL = "all-convolutional network", "GPT-2 small"


def rows_of(command: Sequence[str], patience_s: float, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the lines that a process prints; end it after `patience_s` seconds."""
    if patience_s <= 0:
        return
    whole = {**os.environ, **(environment or {})}
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=whole) as process:
        assert process.stdout is not None
        patience = threading.Timer(patience_s, process.kill)
        patience.start()
        yield from process.stdout
        patience.cancel()
    if process.returncode:
        print(f"{' '.join(command)} ended with {process.returncode}", file=sys.stderr, flush=True)


class Results:
    """Seconds by library and line, printed as they arrive; versions, and the name of the GPU."""

    def __init__(self, libraries: Sequence[str], within: float = math.inf) -> None:
        self._end = time.monotonic() + within
        self.seconds: dict[str, dict[str, float]] = {library: {} for library in libraries}
        self.versions: dict[str, str] = {}
        self.gpu = ""

    @property
    def patience(self) -> float:
        """Seconds that a process may take."""
        return min(PATIENCE, self._end - time.monotonic())

    def add(self, library: str, name: str, seconds: float) -> None:
        self.seconds[library][name] = seconds
        print(f"{library:8}{name:62}{seconds * 1e6:14.1f} us", file=sys.stderr, flush=True)

    def to_json(self) -> dict[str, Any]:
        return {"gpu": self.gpu, "versions": self.versions, "seconds": self.seconds}


def measure_lines(results: Results, library: str, options: Any) -> None:
    """Measure short programs."""
    command = [str(FOLDER / "gpu_lines.py"), library, "--only", options.only, *(["--all"] if options.all else [])]
    for row in rows_of(command, results.patience):
        if row.startswith("{"):
            about = json.loads(row)
            results.versions[library], results.gpu = about["version"], results.gpu or about["gpu"]
        elif row.startswith("["):
            results.add(library, *json.loads(row))
    own = results.seconds[library]
    forward, both = own.get("attention, 8 x 1024 x 12 x 64 bf16"), own.get("attention with gradients")
    if forward is not None and both is not None:
        results.add(library, "attention, its gradients alone", both - forward)


def measure_steps(results: Results, library: str) -> None:
    """Measure steps of training a convolutional network."""
    sizes = ["--batch", "128,1024", "--dtype", "float32,bfloat16"]
    for row in rows_of([str(FOLDER / "allconv_step.py"), "--library", library, *sizes], results.patience):
        if found := re.search(r", (\d+ x \w+): ([\d.]+) ms a step", row):
            results.add(library, f"{NETWORK}, {found[1]}: a step", float(found[2]) / 1e3)


def measure_first(results: Results, library: str) -> None:
    """Measure steps of training a language model, and its first calls: with nothing on disk, and for Weft in a second
    process, which no goal compares with others."""
    if library == "torch":  # the model is written in linen
        return
    calls = ("first call", "first call of a second process")
    with tempfile.TemporaryDirectory() as folder:
        for name in calls if library == "weft" else calls[:1]:
            script = [str(FOLDER / "gpt2_step.py"), "--library", library]
            for row in rows_of(script, results.patience, {"WEFT_COMPILATION_CACHE_DIR": folder}):
                if found := re.search(r"first call ([\d.]+) s", row):
                    results.add(library, f"{MODEL}: {name}", float(found[1]))
                if found := re.search(r"([\d.]+) ms a step", row):
                    results.add(library, f"{MODEL}: a step", float(found[1]) / 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--only", default="", help="words of the names of lines, separated by commas; only lines then")
    parser.add_argument("--all", action="store_true", help="lines without a gate too")
    parser.add_argument("--libraries", default="weft,jax,torch")
    parser.add_argument("--within", type=float, default=math.inf, help="seconds that all of it may take")
    parser.add_argument("--json")
    parser.add_argument("--record", action="store_true", help="write the history and the page")
    options = parser.parse_args()
    parts = ["lines"] if options.only else options.parts.split(",")
    results = Results(options.libraries.split(","), options.within)
    # Weft's first calls have bounds; those of others are told beside them.
    order = sorted(
        ((library, part) for library in results.seconds for part in PARTS if part in parts),
        key=lambda each: each[0] != "weft" and each[1] == "first",
    )
    for library, part in order:
        if part == "lines":
            measure_lines(results, library, options)
        elif part == "steps":
            measure_steps(results, library)
        else:
            measure_first(results, library)
        if options.json:  # what is there, should the next part take too long
            pathlib.Path(options.json).write_text(json.dumps(results.to_json(), indent=1))
    print(text_table(results.to_json()))
    if options.record:
        record(results.to_json())


if __name__ == "__main__":
    main()
