"""Programs on eight devices return what JAX returns: those of `mesh_programs`, run by JAX in a process of its own."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
import types
from typing import Any

import numpy as onp
import pytest

from tests.peer import mesh_arrays, mesh_bodies, mesh_loops, mesh_programs

assert mesh_arrays and mesh_bodies and mesh_loops  # they add programs
PROGRAMS = mesh_programs.PROGRAMS

# Each device rounds its part of a sum of short floats.
ROUGH = {"dtypes": 0.02}


def namespace(library: str) -> types.SimpleNamespace:
    """Return the modules of one library."""
    if library == "jax":
        import flax.linen as linen
        import haiku
        import jax as lib
        import optax as optim
        from jax import lax, nn, numpy as np
        from jax.ad_checkpoint import checkpoint_name
        from jax.experimental.pjit import pjit
        from jax.experimental.shard_map import shard_map
    else:
        import weft as lib
        from weft import haiku, lax, linen, nn, numpy as np, optim
        from weft.ad_checkpoint import checkpoint_name
        from weft.experimental.pjit import pjit
        from weft.experimental.shard_map import shard_map
    found = types.SimpleNamespace(lib=lib, np=np, lax=lax, nn=nn, optim=optim, linen=linen, haiku=haiku, pjit=pjit)
    found.P, found.old_shard_map, found.checkpoint_name = lib.sharding.PartitionSpec, shard_map, checkpoint_name
    return found


def answer(name: str, modules: types.SimpleNamespace) -> Any:
    """Return the leaves of a program's result: arrays, and texts of other values."""
    leaves = modules.lib.tree.leaves(PROGRAMS[name](modules))
    return [x if isinstance(x, str) else onp.asarray(x) for x in leaves]


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return JAX's results for all of them; the text of an error where it raises one."""
    file = tmp_path_factory.mktemp("jax") / "answers.pickle"
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-W", "ignore", __file__, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pickle.loads(file.read_bytes())


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, peers: dict[str, Any]) -> None:
    expected = peers[name]
    assert not isinstance(expected, str), expected
    found = answer(name, namespace("weft"))
    assert len(found) == len(expected)
    tolerance = ROUGH.get(name, 2e-4)
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        if isinstance(y, str) or y.dtype.kind not in "fciub":
            assert str(x) == str(y)
        else:
            assert x.dtype == y.dtype and x.shape == y.shape, i
            onp.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance / 10, err_msg=f"leaf {i}")


def write_answers(file: pathlib.Path) -> None:
    modules, found = namespace("jax"), {}
    for name in PROGRAMS:
        try:
            found[name] = answer(name, modules)
        except Exception as error:
            found[name] = f"JAX raises {error!r}"
    file.write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    write_answers(pathlib.Path(sys.argv[1]))
