"""Run the peers' own test suites on Weft's floors and print how many tests differ.

    python -m tests.suites                            Keras, Optax, Flax and Haiku; results in build/suites/floors
    python -m tests.suites optax --files losses       files of one library whose names match
    python -m tests.suites keras --side peer          on Keras itself: tests that fail there do not count
    python -m tests.suites --report                   the table of what was measured before

In a test of the peer, the peer's name means Weft's floor (`import keras` is `weft.keras`) and `jax` means Weft. The
tests are those of the source distribution of the installed version, which pip downloads.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

from tests.ecosystem.suite import source_of
from tests.suites.classify import table, write_failures
from tests.suites.libraries import LIBRARIES, ROOT, Library

CONFTEST = """import pytest


def skip_if_backend(given_backend, reason):
    from keras.src.backend import backend

    return pytest.mark.skipif(backend() == given_backend, reason=reason)
"""
"""Keras's tests import this from the conftest.py at the root of its repository."""


def prepare(library: Library, source: pathlib.Path) -> pathlib.Path:
    """Write the table of the peer's names and lay out its tests in one flat folder; return the folder."""
    folder = library.folder / "tests"
    if not library.table.exists():
        environment = {**os.environ, "KERAS_BACKEND": "jax"}
        command = [sys.executable, "-m", "tests.suites.surface", library.name]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    base = source / library.prefix
    for path in sorted(base.rglob("*.py")):
        relative = path.relative_to(base).as_posix()
        if re.search(library.tests, relative) and not re.search(library.excluded, relative):
            # In a flat folder no package of the peer comes onto the path.
            shutil.copy(path, folder / relative.replace("/", "__"))
    if library.name == "keras":
        (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    return folder


def run(library: Library, source: pathlib.Path, files: list[pathlib.Path], options: argparse.Namespace) -> None:
    """Run test files; outcomes replace those of an earlier run."""
    outcomes = library.folder / f"{options.side}.jsonl"
    outcomes.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(library.folder / "tests"))),
        "WEFT_SUITE": library.name,
        "WEFT_SUITE_SOURCE": str(source),
        "WEFT_SUITE_OUTCOMES": str(outcomes),
        "WEFT_SUITE_SIDE": options.side,
        "JAX_PLATFORMS": "cpu",
        "MPLBACKEND": "Agg",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={library.devices}",
    }
    environment.pop("KERAS_BACKEND", None)
    if options.side == "peer":
        environment["KERAS_BACKEND"] = "jax"
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-W", "ignore"]
    command += ["-p", "tests.suites.plugin", "-p", "no:cacheprovider", "--timeout", str(options.timeout)]
    command += ["--rootdir", str(library.folder)]
    alone = [path for path in files if re.search(library.alone, path.name)]
    shared = [path for path in files if path not in alone]
    with (library.folder / f"{options.side}.log").open("w", encoding="utf-8") as log:
        for workers, some in ((options.workers, shared), ("0", alone)):
            if some:
                whole = [*command, "-n", workers, "--max-worker-restart", "30", *map(str, some)]
                subprocess.run(whole, cwd=library.folder, env=environment, stdout=log, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", choices=[*LIBRARIES, []], help="default: all")
    parser.add_argument("--files", default="", help="regular expression for names of test files")
    parser.add_argument("--side", choices=["weft", "peer"], default="weft", help="what the peer's name means")
    parser.add_argument("--workers", default="auto", help="number of processes")
    parser.add_argument("--timeout", type=int, default=90, help="seconds for each test")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args()
    chosen = [LIBRARIES[name] for name in options.libraries or LIBRARIES]
    for library in chosen if not options.report else ():
        source = source_of(library.package)
        folder = prepare(library, source)
        files = [path for path in sorted(folder.glob("*_test.py")) if re.search(options.files, path.name)]
        if not files:
            raise SystemExit(f"No test file of {library.name} matches {options.files!r}.")
        run(library, source, files, options)
    print(table([library.folder for library in chosen]))
    for library in chosen:
        print(f"{library.name}: {write_failures(library.folder)}")


if __name__ == "__main__":
    main()
