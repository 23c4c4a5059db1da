"""What a CPU offers, and what the environment may ask for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from weft.compiler.target.cpu.features import ASKED, host_avx2

CODE = (
    "import numpy as np, weft; from weft.compiler.target.cpu.features import host;"
    "x = np.linspace(-1, 1, 37, dtype=np.float32).reshape(1, 37);"
    "y = weft.jit(lambda x: weft.numpy.exp(x) @ x.T)(x); np.testing.assert_allclose(y, np.exp(x) @ x.T, rtol=1e-5);"
    "print(host().vector_bits)"
)


@pytest.mark.skipif(host_avx2().vector_bits != 256, reason="the machine has no AVX2")
def test_programs_for_an_older_machine_run_here() -> None:
    environment = {**os.environ, ASKED: "avx2"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "256"


def test_other_names_are_refused() -> None:
    environment = {**os.environ, ASKED: "mmx"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "it can be avx2" in done.stderr
