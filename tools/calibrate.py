"""Measure the cost constants of a target on this machine and print them beside those that ship.

    python tools/calibrate.py                       every constant of this CPU (about a minute on an idle machine)
    python tools/calibrate.py --quick               the same with few runs: whether the script works, not for figures
    python tools/calibrate.py --only matmul.load    constants whose name contains a text
    python tools/calibrate.py --target cuda         what ships for GPUs, and why this script does not measure it
    python tools/calibrate.py --write FILE          also write the table with measured values, the date and the machine

Constants that cannot be measured keep their value and its date. Run it on an idle machine with a fixed clock, and
compare `benchmarks/matmul_grid.py` and `make bench` before and after a table is replaced: the constants are the model
that chooses among schedules, and a figure that is right on its own can still choose worse.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import platform
import time

from calibration.catalogue import CATALOGUE, Session
from calibration.tables import TABLES, read_provenance, write_literal, write_table

from weft.compiler.target.cpu import targets as cpu
from weft.compiler.target.cuda import targets as cuda
from weft.compiler.target.target import Target


def machine_name() -> str:
    """Return the model of this machine's processor."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def shorten(value: object) -> str:
    """Write a value in at most 18 characters."""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 18 else text[:15] + "..."


def measure(name: str, session: Session) -> tuple[object, str]:
    """Measure a constant: its value, rounded to the type of the shipped one, and a remark."""
    constant = CATALOGUE[name]
    if constant.measure is None:
        return None, constant.note
    found = constant.measure(session)
    value, remark = found if isinstance(found, tuple) else (found, "")
    return value, remark or constant.note


def get_target(name: str) -> Target:
    """Return the target of a table: this CPU, or an H200."""
    return cpu.host() if name == "cpu" else cuda.hopper()


def main() -> None:
    """Print the constants and write the table if the command line says so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=sorted(TABLES), default="cpu")
    parser.add_argument("--quick", action="store_true", help="few runs of each measurement")
    parser.add_argument("--only", default="", help="constants whose name contains this")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the table with measured values")
    options = parser.parse_args()
    table, target = TABLES[options.target], get_target(options.target)
    session = Session(target, options.quick)
    values = read_provenance(table.path.read_text(encoding="utf-8"))
    provenance = f"{datetime.date.today().isoformat()} {machine_name()}"
    begin = time.perf_counter()
    for name in CATALOGUE:
        if options.only not in name:
            continue
        record, _, field = name.partition(".")
        shipped = getattr(getattr(target, record), field)
        measured, remark = (None, table.unmeasured) if table.unmeasured else measure(name, session)
        print(
            f"{name:32}{shorten(shipped):>18}  {'' if measured is None else shorten(measured):>10}  {remark}",
            flush=True,
        )
        if measured is not None and name in values:
            own = type(shipped)(measured)  # type: ignore[call-arg]
            values[name] = write_literal(round(own, 2) if isinstance(own, float) else own), provenance
    print(f"{time.perf_counter() - begin:.0f} s on {machine_name()}")
    if options.write:
        options.write.write_text(write_table(table, values), encoding="utf-8")


if __name__ == "__main__":
    main()
