"""Runs a library's own tests on JAX and on Weft, and says which share of those that pass on JAX pass on Weft.

    python -m tests.ecosystem.suite optax                 all of them, on both; results in build/suites/optax
    python -m tests.ecosystem.suite optax --part 10       every tenth test
    python -m tests.ecosystem.suite optax --part 10 --offset 3    every tenth, and none of those
    python -m tests.ecosystem.suite optax --only weft     again on Weft, compared with what JAX gave before
    python -m tests.ecosystem.suite optax --files 'alias_test|update_test' --show

The tests are those of the source distribution of the installed version, which pip downloads. Each file runs in a
process of its own with a limit of time; outcomes of a file that is cut short count as far as they go.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "build" / "suites"


class Suite(NamedTuple):
    """Location of a library's tests in its source distribution."""

    package: str
    pattern: str
    """A regular expression that paths of test files match."""
    without: str = "$^"
    """... and that of those left out, which need other libraries."""


SUITES = {
    "optax": Suite("optax", r"^optax/.*_test\.py$"),
    "chex": Suite("chex", r"^chex/.*_test\.py$"),
    "haiku": Suite("dm-haiku", r"^haiku/.*_test\.py$", "jax2tf|doctest|integration/checkpoint"),
    "linen": Suite("flax", r"^tests/(linen|core)/.*_test\.py$", "tensorboard"),
    "nnx": Suite("flax", r"^tests/nnx/.*_test\.py$"),
    "equinox": Suite("equinox", r"^tests/test_.*\.py$", "onnx"),
    "jaxtyping": Suite("jaxtyping", r"^test/test_.*\.py$"),
    "numpyro": Suite("numpyro", r"^test/.*test_.*\.py$", "contrib|funsor|pickle"),
    "blackjax": Suite("blackjax", r"^tests/.*test_.*\.py$"),
    "distrax": Suite("distrax", r"^distrax/.*_test\.py$"),
    "keras": Suite("keras", r"^keras/.*_test\.py$", "tensorflow|torch|openvino|tfjs|tflite|litert"),
    "diffrax": Suite("diffrax", r"^test/test_.*\.py$"),
    "optimistix": Suite("optimistix", r"^tests/test_.*\.py$"),
    "lineax": Suite("lineax", r"^tests/test_.*\.py$"),
}


def source_of(package: str) -> pathlib.Path:
    """Return the unpacked source distribution of the installed version, downloaded if it is not there."""
    version = importlib.metadata.version(package)
    folder = FOLDER / "sources"
    unpacked = folder / f"{package.replace('-', '_')}-{version}"
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = ["--no-deps", "--no-binary", package, f"{package}=={version}"]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), *wanted], check=True)
        for archive in folder.glob(f"{unpacked.name}.tar.gz"):
            with tarfile.open(archive) as file:
                file.extractall(folder, filter="data")
    return unpacked


def test_files(suite: Suite, source: pathlib.Path, only: str) -> list[str]:
    """Paths of test files, relative to the source distribution."""
    paths = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    wanted, without, files = re.compile(suite.pattern), re.compile(suite.without), re.compile(only)
    return [path for path in paths if wanted.search(path) and not without.search(path) and files.search(path)]


def run_file(
    source: pathlib.Path, path: str, outcomes: pathlib.Path, *, on_weft: bool, part: int, offset: int, limit: int
) -> None:
    """Run one test file; what its tests give is appended to `outcomes`."""
    # The folder of the plugin comes last: a library may have a package `tests` of its own.
    paths = [ROOT, source, pathlib.Path(__file__).parent]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "WEFT_OUTCOMES": str(outcomes),
        "WEFT_OUTCOMES_PART": str(part),
        "WEFT_OUTCOMES_OFFSET": str(offset),
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8" if "flax" in source.name else "",
    }
    plugins = ["-p", "weft.compat.pytest_plugin"] if on_weft else []
    plugins += ["-p", "outcomes", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-W", "ignore", *plugins, path]
    try:
        subprocess.run(command, cwd=source, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        with outcomes.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": path, "outcome": "cut short", "text": ""}) + "\n")


def read_outcomes(path: pathlib.Path) -> dict[str, dict[str, str]]:
    """Return the last outcome of each test."""
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {record["id"]: record for record in records}


def report(folder: pathlib.Path, show: bool, files: str) -> None:
    """Print the share, and with `show` the tests that pass on JAX and not on Weft."""
    jax, ours = (read_outcomes(folder / f"{name}.jsonl") for name in ("jax", "weft"))
    good = [test for test, record in jax.items() if record["outcome"] == "passed" and re.search(files, test)]
    cut = {test for test, record in ours.items() if record["outcome"] == "cut short"}
    broken = {test for test, record in ours.items() if record["outcome"] == "not collected"}
    ran = [test for test in good if test in ours or test.partition("::")[0] in broken]
    lost = [test for test in ran if test not in ours or ours[test]["outcome"] != "passed"]
    share = 100 * (len(ran) - len(lost)) / max(len(ran), 1)
    print(f"{folder.name}: {len(ran) - len(lost)} of {len(ran)} tests that pass on JAX pass on Weft: {share:.1f} %")
    print(f"  {len(good) - len(ran)} more were not run on Weft; cut short: {', '.join(sorted(cut)) or 'none'}")
    for test in lost if show else ():
        text = ours.get(test, {"text": "not collected"})["text"].strip().splitlines()
        errors = [line for line in text if line.startswith("E ")]
        print(f"  {test}\n      {(errors or text or [''])[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=SUITES)
    parser.add_argument("--part", type=int, default=1, help="run every n-th test only")
    parser.add_argument("--offset", type=int, default=0, help="... beginning with another one")
    parser.add_argument("--only", choices=["jax", "weft", "report"], help="run on one of the two, or on none")
    parser.add_argument("--files", default="", help="a regular expression for paths of files")
    parser.add_argument("--limit", type=int, default=600, help="seconds for each file")
    parser.add_argument("--show", action="store_true", help="print the tests that fail on Weft only")
    options = parser.parse_args()
    folder = FOLDER / options.library
    folder.mkdir(parents=True, exist_ok=True)
    if options.only != "report":
        source = source_of(SUITES[options.library].package)
        sample = {"part": options.part, "offset": options.offset, "limit": options.limit}
        for path in test_files(SUITES[options.library], source, options.files):
            for name in ("jax", "weft"):
                if options.only in (None, name):
                    run_file(source, path, folder / f"{name}.jsonl", on_weft=name == "weft", **sample)
    report(folder, options.show, options.files)


if __name__ == "__main__":
    main()
