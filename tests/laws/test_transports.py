"""All ways of running a program for many devices have the same bits: the driver, in any order of its devices and with
any number of threads, and `vmap` over the axes of the mesh. tests/processes compares it with several processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from tests.laws.samples import Case, every_sample
from weft.base import dtypes
from weft.base.settings import overrides
from weft.primitives.collectives.base import Collective
from weft.runtime.cpu import spmd
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

RANDOM = onp.random.RandomState(2)
A, W = RANDOM.randn(16, 16).astype(onp.float32), RANDOM.randn(16, 16).astype(onp.float32)


def mesh_of(**sizes: int) -> Mesh:
    count = int(onp.prod(list(sizes.values())))
    devices = onp.array(weft.devices()[:count]).reshape(*sizes.values())
    return Mesh(devices, tuple(sizes), (AxisType.Auto,) * len(sizes))


def is_collective(case: Case) -> bool:
    return isinstance(case.primitive, Collective) and bool(case.environment) and case.primitive.name != "axis_index"


def exact(x: onp.ndarray) -> onp.ndarray:
    """Numbers whose sums are exact, in any order."""
    if dtypes.kind(x.dtype) not in "fc":
        return x
    return onp.round(onp.real(x) * 3).astype(x.dtype)


@every_sample(is_collective)
def test_devices_have_the_bits_of_vmap(case: Case) -> None:
    """Each collective, between devices and between elements of a batch."""
    axes = tuple(case.environment)
    arrays = [exact(a) for a in case.arrays]
    expected = case.meaning(arrays, case.params)
    spec = P(*axes)

    def body(*args: Any) -> Any:
        results = case.alone(*(a.reshape(t.shape) for a, t in zip(args, case.types, strict=True)))
        return [r.reshape((1,) * len(axes) + r.shape) for r in results]

    f = weft.shard_map(body, mesh=mesh_of(**case.environment), in_specs=spec, out_specs=spec, check_vma=False)
    for found, wanted in zip(weft.jit(f)(*arrays), expected, strict=True):
        onp.testing.assert_array_equal(onp.asarray(found), wanted)


@pytest.mark.parametrize("count", [2, 3, 5, 6, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_sums_are_trees(count: int, dtype: str) -> None:
    """Balanced trees over the positions along the axis; floats of few bits are rounded once."""
    x = (RANDOM.randn(count, 33) * 10 ** RANDOM.uniform(-3, 3, (count, 33))).astype(onp.float32)
    x = np.asarray(x).astype(dtype)

    def tree(parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        half = 1 << ((len(parts) - 1).bit_length() - 1)
        return tree(parts[:half]) + tree(parts[half:])

    wide = onp.float32 if dtype == "bfloat16" else onp.dtype(dtype)
    expected = np.asarray(tree([onp.asarray(part).astype(wide) for part in x])).astype(dtype)
    found = weft.shard_map(lambda a: lax.psum(a, "x"), mesh=mesh_of(x=count), in_specs=P("x"), out_specs=P())(x)
    onp.testing.assert_array_equal(onp.asarray(found[0]), onp.asarray(expected))


# ------------------------------------------------------------------------------------------------------------- programs


def training(mesh: Mesh, a: Any = A, bend: Any = np.sin) -> Any:
    """Run a step whose parameters are split, with a loop over layers."""

    def loss(w: Any, x: Any) -> Any:
        return np.mean(lax.scan(lambda h, _: (np.tanh(h @ w), h.sum()), x, None, length=3)[0] ** 2)

    put = lambda v, *spec: weft.device_put(v, NamedSharding(mesh, P(*spec)))
    return weft.jit(lambda w, x: weft.value_and_grad(loss)(w, x)), (put(W / 4, "y", "x"), put(A, ("x", "y")))


def collectives(mesh: Mesh, a: Any = A, bend: Any = np.sin) -> Any:
    """Apply each collective along both axes, in a loop."""

    def body(a: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            c = bend(lax.psum(c, "x") + lax.ppermute(c, "y", [(0, 1), (1, 0)]))
            c = c + lax.psum_scatter(lax.all_gather(c, "x", tiled=True), "x", tiled=True)
            rows = lax.all_to_all(np.concatenate([c, c * 2], 1), "y", 1, 1, tiled=True)
            return c * 0.25 + rows[:, ::2] * 0.125, lax.pmax(c, ("x", "y"))[0]

        return lax.scan(step, a, None, length=4)

    f = weft.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=(P("x", "y"), P(None, "y")), check_vma=False)
    return weft.jit(f), (a,)


def divergent(mesh: Mesh, a: Any = A, bend: Any = np.sin) -> Any:
    """Devices along y go other ways, and meet along x."""

    def body(a: Any) -> Any:
        y = lax.axis_index("y")
        branch = lax.cond(y == 0, lambda v: lax.psum(v, "x"), lambda v: lax.ppermute(v, "x", [(0, 3), (3, 0)]), a)
        more = lax.while_loop(lambda c: c[0] <= 2 * y, lambda c: (c[0] + 1, bend(lax.psum(c[1], "x"))), (0, a))
        return branch + more[1]

    f = weft.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
    return weft.jit(f), (a,)


PROGRAMS: list[Callable[..., Any]] = [training, collectives, divergent]


class Shuffled(spmd._State):
    """Run in which the driver visits the devices in random order."""

    order = random.Random(0)

    def __init__(self, program: Any) -> None:
        super().__init__(program)
        count = program.count
        order = onp.array(self.order.sample(range(count), count))
        position = onp.argsort(order)
        self.files[:] = self.files[order]
        for collective in self._collectives:
            for members in collective.members.values():
                members[:] = position[members]
            collective.groups[:] = collective.groups[order]


def bits(value: Any) -> list[bytes]:
    return [onp.asarray(leaf).tobytes() for leaf in weft.tree.leaves(value)]


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_bits_do_not_depend_on_order_and_threads(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = mesh_of(x=4, y=2)
    f, args = make(mesh)
    expected = bits(f(*args))
    for threads in (1, 2, 4):
        with overrides(num_threads=threads):
            assert bits(make(mesh)[0](*args)) == expected, threads
    programs: list[Any] = []
    monkeypatch.setattr(spmd, "_State", lambda program: programs.append(program) or Shuffled(program))
    for parallel in (False, True):
        monkeypatch.setattr(spmd, "WORTH_THREADS", -1 if parallel else float("inf"))
        again = make(mesh)[0]
        for _ in range(6):
            assert bits(again(*args)) == expected
            programs[-1]._free.clear()  # each run has an order of its own
    assert len(programs) == 12 and programs[-1].parallel and not programs[0].parallel


@pytest.mark.parametrize("make", PROGRAMS[1:], ids=lambda f: f.__name__)
def test_programs_have_the_bits_of_vmap(make: Callable[..., Any]) -> None:
    """Without devices, on an abstract mesh, a body runs under `vmap`. Sums are of numbers for which they are exact."""
    mesh, whole, bend = mesh_of(x=4, y=2), onp.round(A * 3), lambda v: v % 8
    (f, args), (g, _) = make(mesh, whole, bend), make(mesh.abstract_mesh, whole, bend)
    assert bits(f(*args)) == bits(g(*args))
