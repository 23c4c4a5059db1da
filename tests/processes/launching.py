"""Real processes for tests: scripts under `weft.launch`, which end in time or are killed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np
import pytest

from weft.launch import by_mpi

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = pathlib.Path(__file__).parent / "scripts"

HAS_MPI4PY = importlib.util.find_spec("mpi4py") is not None
needs_mpi = pytest.mark.skipif(not HAS_MPI4PY, reason="needs mpi4py and an MPI: pip install 'weft-jit[mpi]'")


def is_open_mpi() -> bool:
    """Return whether the launcher is Open MPI's, which lets processes survive the death of others."""
    return by_mpi.is_open_mpi()


needs_mpich = pytest.mark.skipif(
    not HAS_MPI4PY or is_open_mpi(),
    reason="needs MPICH and mpi4py: pip install 'weft-jit[mpi]'; Open MPI joins below its own launcher",
)


class Finished(NamedTuple):
    """Result of a launch: its code, its output, and the time of its end (`time.time`)."""

    code: int
    out: str
    errors: str
    ended: float


def environment(devices: int = 1, **settings: str) -> dict[str, str]:
    """Return the environment of a launcher, whose processes have `devices` devices each."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "WEFT_NUM_THREADS": "1",
        "WEFT_NUM_CPU_DEVICES": str(devices),
        # Open MPI asks for these where root runs the tests, as in containers, or where there are few cores.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        **settings,
    }


def launched(
    count: int,
    script: pathlib.Path,
    *arguments: str,
    devices: int = 1,
    restarts: int = 0,
    timeout: float = 150.0,
    **settings: str,
) -> Finished:
    """Run a script in `count` processes with some devices each. Machines may be slow, so the time limit is generous;
    processes that remain then are killed."""
    command = [sys.executable, "-m", "weft.launch", "-n", str(count)]
    command += [*(["--restarts", str(restarts)] if restarts else []), str(script), *arguments]
    process = subprocess.Popen(
        command,
        env=environment(devices, **settings),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        pytest.fail(f"{script.name} {arguments} did not end in {timeout} s\n{out}\n{errors}")
    return Finished(process.returncode, out, errors, time.time())


def results_of_bits(
    count: int, folder: pathlib.Path, transport: str = "auto", platform: str = "cpu"
) -> dict[str, np.ndarray]:
    """Return the results of scripts/bits.py in `count` processes."""
    file = folder / f"{count}.npz"
    settings = {"WEFT_DISTRIBUTED_TRANSPORT": transport}
    arguments = [str(file), *([platform] if platform != "cpu" else [])]
    done = launched(count, SCRIPTS / "bits.py", *arguments, devices=8 // count, **settings)
    assert done.code == 0, done.errors
    with np.load(file) as stored:
        return dict(stored)
