"""Shared by all tests: seeds that can be replayed, and the rule that peer tests must not be skipped."""

from __future__ import annotations

import compileall
import contextlib
import gc
import importlib
import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent

# What files and folders need beside the requirements of the tests, where they do not skip themselves. The extras peer,
# peer-data and ecosystem have it; where some of it is missing there is nothing to compare with, or nothing to run, and
# modules cannot be imported.
_NEEDS = {
    "models/test_gguf.py": ("gguf",),
    "models/test_tokenizer.py": ("tokenizers",),
    "models/test_transformers.py": ("torch", "transformers"),
    "peer": ("jax",),
    "peer/test_checkpointing.py": ("optax", "safetensors"),
    "peer/test_data.py": ("keras", "pandas", "torch"),
    "peer/test_data_grain.py": ("grain",),
    "peer/test_data_huggingface.py": ("datasets",),
    "peer/test_data_tensorflow.py": ("tensorflow",),
    "peer/test_dlpack.py": ("torch",),
    "peer/test_keras_convert.py": ("flax", "haiku", "torch"),
    "peer/test_keras_fit.py": ("keras",),
    "peer/test_keras_ops.py": ("keras",),
    "peer/test_keras_tensorboard.py": ("tensorboard",),
    "peer/test_keras_vocabularies.py": ("tensorflow",),
    "peer/test_linen_fp8.py": ("flax",),
    "pjrt": ("xla_plugins",),
    "ecosystem": ("jax", "optax", "chex", "haiku", "flax", "keras", "equinox", "jaxtyping", "beartype", "numpyro",
                  "blackjax", "distrax", "diffrax", "optimistix", "lineax", "orbax"),
}  # fmt: skip
_missing = {
    path: ", ".join(missing)
    for path, names in _NEEDS.items()
    if (missing := [name for name in names if not importlib.util.find_spec(name)])
}
collect_ignore = list(_missing)

if importlib.util.find_spec("hypothesis"):
    import hypothesis

    # Time limits on single examples fail on busy machines; the blob replays a failure elsewhere.
    hypothesis.settings.register_profile("weft", deadline=None, print_blob=True)
    hypothesis.settings.load_profile("weft")


_CACHE = "WEFT_COMPILATION_CACHE_DIR"
_FUZZ = "WEFT_FUZZ_SEED"
FIRST_SEED = 10_000_000
"""Default of WEFT_FUZZ_SEED. A change is judged by the same tests and programs as the one before it, so that a failure
belongs to the change; the scheduled run sets the variable, and WEFT_TEST_ROTATION=0 to run every test."""
_folders: list[str] = []


def _set_environment() -> None:
    """Set variables so that processes of one run share their machine code, and nothing with other runs.

    Weft reads the variables when it is imported, which conftest.py of a folder may do. It is imported after this one.
    """
    # Tests of the tuner ask for it; nobody else's results may depend on what is quick today.
    os.environ.setdefault("WEFT_AUTOTUNE_MILLISECONDS", "0")
    # Arrays are on the first device unless somebody names another.
    os.environ.setdefault("WEFT_NUM_CPU_DEVICES", "8")
    # Test processes run side by side, so each gets threads for its share of the processors: two at least, since code
    # for several threads is to be tested. NumPy's BLAS reads the variable when NumPy is loaded, so it is set for
    # processes that are yet to be started.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        os.environ.setdefault("WEFT_NUM_THREADS", str(max(2, (os.cpu_count() or 1) // workers)))
    _store_bytecode()
    os.environ.setdefault(_FUZZ, str(FIRST_SEED))
    if _CACHE not in os.environ:
        _folders.append(tempfile.mkdtemp(prefix="weft-tests-"))
        os.environ[_CACHE] = _folders[0]


def _store_bytecode() -> None:
    """Write bytecode in tests even if Python is told not to: every worker and every process that a test starts would
    compile hundreds of files again. It goes to the usual place, since in a folder of its own the bytecode of installed
    packages would be missing."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config: pytest.Config) -> None:
    """Before workers start, the package is compiled to bytecode by all processors: each worker would do all of it."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        compileall.compile_dir(TESTS.parent / "weft", quiet=2, workers=0)


def _hear_interrupts() -> None:
    """Handle SIGINT, by which tests interrupt endless programs: processes in the background ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _no_gpu() -> bool:
    """Return whether Weft's driver finds no GPU. It is imported here, since it reads the variables."""
    from weft.runtime.cuda import driver

    return not driver.count()


_set_environment()
_hear_interrupts()
if "peer" not in _missing and _no_gpu():
    collect_ignore.append("peer/test_gpu_sharing.py")


def pytest_unconfigure(config: pytest.Config) -> None:
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_report_header() -> list[str]:
    """Report the files that are left out although libraries to compare with are installed."""
    shown = {} if "peer" in _missing else _missing
    return [f"{path} is left out: {names} not installed" for path, names in shown.items()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="added to the seed of every random test (default 0)")
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails")
    parser.addoption("--update-text", action="store_true", help="rewrite the expected texts under tests/text")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Workers that collect all tests compile the files: each begins elsewhere, and finds what others have compiled."""
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{part}", "0") for part in ("", "_COUNT"))
    if int(workers) < 2 or TESTS not in map(pathlib.Path, map(os.path.abspath, session.config.args)):
        return
    paths = [path for path in sorted(TESTS.glob("*/test_*.py")) if path.parent.name not in ("peer", "ecosystem")]
    first = len(paths) * int(worker.removeprefix("gw")) // int(workers)
    for path in paths[first:] + paths[:first]:
        # What cannot be imported, or not without a warning, or skips itself, is reported where it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception), warnings.catch_warnings(action="error"):
            importlib.import_module(f"tests.{path.parent.name}.{path.stem}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Tens of thousands of tests are collected, and none of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# Files whose tests start processes by a launcher; and those with tests that take seconds: they start other processes,
# train, or run programs by an interpreter.
LAUNCHES = "processes/*"
LONG = ("fuzz/*", "compiler/test_cache.py", "compiler/test_stored.py", "compiler/test_guarded*.py",
        "unit/test_examples.py", "unit/test_checkpointing.py", "unit/test_parallel.py", "unit/test_forks.py",
        "unit/test_interrupts.py", "compiler/test_lanes.py", "compiler/test_pool.py")  # fmt: skip


# Of these files `make test` runs a fixed sample, one test in 2, 3, ... 24; `make test-all` runs all of them. Keyed by
# the number, the folder and the name between test_ and .py.
_ROTATED = {
    2: {
        "compiler": "ahead emit_argmax emit_matrices events halo_programs halos index_programs kernel_interleaved "
                    "kernel_machines kernel_operations kernel_random outside_primitives partition pool "
                    "questions_about_sizes split_transforms stored stored_partitions targets",
        "cuda": "convolutions meshes scatters",
        "fuzz": "concurrency partitioned",
        "keras": "backup layer_behavior metrics saving",
        "laws": "collectives families",
        "processes": "bits gpus keras resuming",
        "unit": "asynchrony bit_generators checkify checkpointing compat convolution devices divergent_lanes "
                "documentation elementwise_values explain export image interrupts jet linen_modules "
                "optim_optimizers remat reproducible scipy_interpolation scipy_rotations scipy_signal "
                "strict_promotion tree_code",
    },
    3: {
        "compiler": "memory",
        "cuda": "nodes sorts tensor_cores",
        "keras": "fit ops",
        "processes": "failures",
        "unit": "benchmarks contraction control_flow short_floats",
    },
    4: {
        "compiler": "cache emit_convolution emit_movement emit_row emit_scatter emit_tiles emit_window empty grid "
                    "guarded kernel_interpreter lanes library passes_laws",
        "cuda": "attention meaning",
        "data": "loader",
        "keras": "distribution",
        "laws": "batching compiled devices explicit_derivatives",
        "unit": "docstring_examples examples numpy_functions ode parallel random uneven_arrays",
    },
    6: {
        "compiler": "automatic_families checks emit_contraction emit_cumulative emit_sort families flags "
                    "lanes_special math_accuracy",
        "cuda": "groups matmuls",
        "fuzz": "structure",
        "keras": "layers",
        "laws": "compositions derivatives programs shard_map",
        "unit": "linalg scipy_solvers sparse special",
    },
    8: {
        "cuda": "ptx",
        "laws": "eager partition",
        "unit": "stats",
    },
    24: {
        "compiler": "guarded_samples",
    },
}  # fmt: skip
ROTATED = {
    TESTS / folder / f"test_{name}.py": count
    for count, folders in _ROTATED.items()
    for folder, names in folders.items()
    for name in names.split()
}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[object]:
    peer = str(TESTS / "peer") + os.sep
    for item in items:
        if str(item.path).startswith(peer):
            item.add_marker(pytest.mark.peer)
    if os.environ.get("WEFT_TEST_ROTATION", "1") != "0":
        _rotate(items, int(os.environ[_FUZZ]) // 10)
    outcome = yield
    items[:] = _long_ones_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    return outcome


def _rotate(items: list[pytest.Item], offset: int) -> None:
    """Mark the tests of ROTATED outside of the sample slow.

    Every file keeps some tests, and every test function with many cases at least one. Tests of `make tiny` stay.
    """
    files: dict[pathlib.Path, list[pytest.Item]] = {}
    for item in items:
        if item.path in ROTATED and not any(item.get_closest_marker(name) for name in ("slow", "timing", "tiny")):
            files.setdefault(item.path, []).append(item)
    for path, own in files.items():
        # Cases are in the order of their hashes: grids repeat themselves, and all that are left would be alike.
        own.sort(key=lambda item: (getattr(item, "originalname", item.name), zlib.crc32(item.name.encode())))
        for index, item in enumerate(own):
            if (index + offset) % min(ROTATED[path], len(own)):
                item.add_marker(pytest.mark.slow)


def _long_ones_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order tests such that every worker's initial part has its share of long ones, since workers start with a part of
    the list and take from others when they are done: no worker is left with a long one in the end. Tests that launch
    processes are the share of one worker in four, since their processes keep several cores busy."""
    if workers < 2:
        return items
    kinds: dict[str, list[pytest.Item]] = {"launches": [], "long": [], "others": []}
    kind_of = {path: _kind(path) for path in {item.path for item in items}}
    for item in items:
        kinds[kind_of[item.path]].append(item)
    launching = max(1, workers // 4)
    shares = [kinds["launches"][n::launching] if n < launching else [] for n in range(workers)]
    for item in kinds["long"]:
        min(shares, key=len).append(item)
    size, others, ordered = -(-len(items) // workers), kinds["others"], []
    for share in shares:
        room = max(0, size - len(share))
        ordered += share + others[:room]
        others = others[room:]
    return ordered + others


def _kind(path: pathlib.Path) -> str:
    """Return whether tests of a file start processes by a launcher, or take long."""
    own = path.relative_to(TESTS) if path.is_relative_to(TESTS) else path
    return "launches" if own.match(LAUNCHES) else "long" if any(map(own.match, LONG)) else "others"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Seed that depends on the test's name and on --seed only; printed, so it is shown when the test fails."""
    base = request.config.getoption("--seed")
    value = (zlib.crc32(request.node.name.encode()) + base) % 2**31
    print(f"seed {value} (replay this test with --seed={base})")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Random numbers that are the same in every run of the same test."""
    return np.random.default_rng(seed)


@pytest.fixture
def by_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations outside of programs are computed by their `eval` rules alone. The laws of transformation rules are
    about these rules: so they are judged by the oracle, and nothing is compiled for the many shapes that they try. The
    laws of passes compare programs under one interpreter, which constant folding must use too."""
    from weft.base.memo import Memo
    from weft.runtime import evaluate

    monkeypatch.setattr(evaluate, "native_run", lambda *_: None)
    monkeypatch.setattr(evaluate, "_plans", Memo(4096, lasting=True))


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    # A test that is expected to fail reports itself as skipped, but it did run.
    if config.getoption("--no-skips") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"{report.nodeid} was skipped, and --no-skips says that nothing may be: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    _fail_if_skipped(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    _fail_if_skipped(report, collector.config)
    return report
