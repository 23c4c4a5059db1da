"""Many updates on a GPU are sorted by where they go: the bits of the CPU, whichever thread is first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import interpret
from tests.cuda.simulated import simulated_gpu
from tests.cuda.test_groups import compiled
from tests.cuda.test_sorts import SLOW, same_bits
from weft.errors import OutOfBoundsIndexError

Operands = tuple[Any, Any, Any]


def rows(cells: int, count: int, width: int = 3, dtype: str = "float32") -> Operands:
    """An array of rows, indices of which some are out of bounds and many equal, and updates."""
    rng = np.random.default_rng(0)
    indices = rng.integers(-3, cells + 2, count).astype(np.int32)
    indices[100:140] = 7
    x, updates = (rng.normal(size=(n, width)).astype(np.float32) for n in (cells, count))
    return np.asarray(wnp.asarray(x).astype(dtype)), indices, np.asarray(wnp.asarray(updates).astype(dtype))


SCATTERS: dict[str, Callable[..., Any]] = {
    "add": lambda x, i, u: x.at[i].add(u),
    "last": lambda x, i, u: x.at[i].set(u),
    "max": lambda x, i, u: x.at[i].max(u),
    "clipped": lambda x, i, u: x.at[i].add(u, mode="clip"),
    "columns": lambda x, i, u: x.T.at[:, i].multiply(u.T),
    "elements": lambda x, i, u: x.at[i, i % x.shape[1]].add(u[:, 0]),
    "two dimensions of indices": lambda x, i, u: x.at[i.reshape(2, -1)].add(u.reshape(2, -1, u.shape[-1])),
    "batches": lambda x, i, u: weft.vmap(lambda y, v: y.at[i].add(v), 1)(x, u),
}


@pytest.mark.parametrize("cells", [pytest.param(40, marks=SLOW), 5000])
@pytest.mark.parametrize("name", [n if n == "elements" else pytest.param(n, marks=SLOW) for n in SCATTERS])
def test_scatters_have_the_bits_of_the_cpu(name: str, cells: int) -> None:
    """By cells, if these are few, and by updates."""
    arrays = rows(cells, 1200)
    program, kernels = compiled(SCATTERS[name], *map(wnp.asarray, arrays))
    assert any(k.name == "sort_scatter" for k in kernels)
    (found,) = interpret(program, [a.copy() for a in arrays])
    same_bits(found, weft.jit(SCATTERS[name])(*map(wnp.asarray, arrays)))


def test_rows_by_cells() -> None:
    arrays = rows(40, 1100, 2)
    program, kernels = compiled(SCATTERS["add"], *map(wnp.asarray, arrays))
    assert "scatter_starts" in [k.name for k in kernels]
    same_bits(interpret(program, [a.copy() for a in arrays])[0], weft.jit(SCATTERS["add"])(*map(wnp.asarray, arrays)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float16", "complex64"])
def test_short_floats_are_accumulated_in_wide_ones(dtype: str) -> None:
    arrays = rows(40, 1100, 2, dtype)
    program, _ = compiled(SCATTERS["add"], *map(wnp.asarray, arrays))
    same_bits(interpret(program, [a.copy() for a in arrays])[0], weft.jit(SCATTERS["add"])(*map(wnp.asarray, arrays)))


def test_updates_out_of_bounds_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted updates show whether one is, since these come last."""
    x, indices, updates = rows(40, 1100, 1)
    inside = np.clip(indices, 0, 39)
    with simulated_gpu(monkeypatch) as (gpu, _):
        there = [weft.device_put(a, gpu) for a in (x, inside, updates)]
        same_bits(np.asarray(there[0].at[there[1]].add(there[2])), wnp.asarray(x).at[inside].add(updates))
        with pytest.raises(OutOfBoundsIndexError):
            np.asarray(there[0].at[weft.device_put(indices, gpu)].add(there[2]))
