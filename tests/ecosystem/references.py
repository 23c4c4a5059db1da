"""Numbers that the programs give on JAX, in references.json.

python -m tests.ecosystem.references            run all of them on the installed JAX and write the file
python -m tests.ecosystem.references NAME ...   only these
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from tests.ecosystem.run import PROGRAMS

PATH = pathlib.Path(__file__).with_name("references.json")
ROOT = pathlib.Path(__file__).parents[2]
Numbers = dict[str, list[float]]


def command_of(name: str, *options: str, on_weft: bool) -> list[str]:
    """Return the command that runs a program in a process of its own, under Weft or under JAX."""
    prefix = ["-m", "weft.as_jax"] if on_weft else []
    return [sys.executable, "-W", "ignore", *prefix, "-m", "tests.ecosystem.run", name, *options]


def run_program(name: str, *options: str, on_weft: bool) -> dict[str, list[float]]:
    """Return the output of a program, run in a process of its own under Weft or under JAX."""
    command = command_of(name, *options, on_weft=on_weft)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def read_references() -> dict[str, Numbers]:
    """Return the stored references: {program: {name: numbers}}."""
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}


def main() -> None:
    references = read_references()
    for name in sys.argv[1:] or PROGRAMS:
        print(name, flush=True)
        references[name] = run_program(name, on_weft=False)
    lines = []
    for name in sorted(references):
        series = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in references[name].items()]
        lines.append(f"{json.dumps(name)}: {{\n" + ",\n".join(series) + "\n}")
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
