"""Programs on 8 devices, in as many processes as this script is started in; the first one writes the results, the
same bits for any number of processes. With a second argument the devices are simulated GPUs, whose sums have another
order."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as onp

import weft
import weft.numpy as np
from weft import lax
from weft.experimental import multihost_utils
from weft.primitives.collectives.base import Collective
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

PLATFORM = "gpu" if len(sys.argv) > 2 else "cpu"
if PLATFORM == "gpu":
    from tests.cuda.queued import install

    install(8)
weft.distributed.initialize()
RANDOM = onp.random.RandomState(0)
A, W = RANDOM.randn(8, 16).astype(onp.float32), RANDOM.randn(16, 8).astype(onp.float32)
results: dict[str, onp.ndarray] = {}


def mesh_of(*shape: int) -> Mesh:
    names, kinds = ("x", "y", "z")[: len(shape)], (AxisType.Auto,) * len(shape)
    return weft.make_mesh(shape, names, kinds, devices=weft.devices(PLATFORM))


def put(value: Any, mesh: Mesh, *spec: Any) -> Any:
    return weft.device_put(value, NamedSharding(mesh, P(*spec)))


def note(name: str, value: Any) -> None:
    for i, leaf in enumerate(weft.tree.leaves(value)):
        results[f"{name} {i}"] = multihost_utils.process_allgather(leaf, tiled=True) if leaf.ndim else onp.asarray(leaf)


def collectives() -> None:
    """Compute every collective along every axis of some meshes: groups inside of a process, across, and both."""

    def body(axis: Any, a: Any) -> Any:
        size = lax.axis_size(axis)
        one = axis if isinstance(axis, str) else axis[0]
        sums = lax.psum(a, axis), lax.pmax(a, axis), lax.pmean(a * a, axis)
        rows = np.concatenate([a * (i + 1) for i in range(lax.axis_size(one))])
        return (
            *sums,
            lax.all_gather(a, one, tiled=True),
            lax.psum_scatter(rows, one, tiled=True),
            lax.all_to_all(rows, one, 0, 1, tiled=True),
            lax.ppermute(a, one, [(i, (i + 1) % lax.axis_size(one)) for i in range(lax.axis_size(one))]),
            lax.ppermute(a, one, [(0, lax.axis_size(one) - 1)]),
            a * lax.axis_index(one) + size,
        )

    for shape, axes in (((8,), ["x"]), ((2, 4), ["x", "y", ("x", "y")]), ((2, 2, 2), ["y", "z"])):
        mesh = mesh_of(*shape)
        everything = P(mesh.axis_names)
        for axis in axes:
            f = weft.shard_map(
                lambda a, axis=axis: weft.tree.map(lambda v: v.ravel()[None], body(axis, a)),
                mesh=mesh,
                in_specs=everything,
                out_specs=everything,
                check_vma=False,
            )
            note(f"{shape} {axis}", weft.jit(f)(put(A, mesh, mesh.axis_names)))


def samples() -> None:
    """Return the samples of all collectives, on devices of all processes in turn: those with the same axes in one
    program."""
    from tests.laws.samples import CASES, Case  # it makes arrays, which comes after `initialize`

    together: dict[tuple[tuple[str, int], ...], list[Case]] = {}
    for case in CASES:
        if isinstance(case.primitive, Collective) and case.environment and case.types:
            together.setdefault(tuple(case.environment.items()), []).append(case)
    devices = sorted(weft.devices(PLATFORM), key=lambda d: (d.id % 4, d.id))
    for environment, own in together.items():
        names, shape = zip(*environment, strict=True)
        count = int(onp.prod(shape))
        if count < 4:
            continue  # not on all processes
        mesh = Mesh(onp.array(devices[:count]).reshape(shape), names, (AxisType.Auto,) * len(shape))

        def body(*args: Any, own: list[Case] = own, rank: int = len(shape)) -> Any:
            results, left = [], list(args)
            for case in own:
                operands = [left.pop(0).reshape(t.shape) for t in case.types]
                results.append([r.reshape((1,) * rank + r.shape) for r in case.alone(*operands)])
            return results

        arrays = [put(a, mesh, *names) for case in own for a in case.arrays]
        f = weft.shard_map(body, mesh=mesh, in_specs=P(*names), out_specs=P(*names), check_vma=False)
        note(f"samples {environment}", weft.jit(f)(*arrays))


def bodies_in_loops() -> None:
    """Use the result of a `shard_map` as the next value of a carry; gradients through that, with groups of devices."""
    mesh, groups = mesh_of(8), [[0, 3, 4, 7], [1, 2, 5, 6]]

    def body(a: Any) -> Any:
        return lax.psum(a, "x") * 0.1 + lax.psum(a, "x", axis_index_groups=groups)

    one = weft.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)

    @weft.jit
    def scanned(a: Any) -> Any:
        return lax.scan(lambda c, _: (one(c), np.sin(c).sum()), a, None, length=3)

    a = put(A, mesh, "x")
    note("bodies in loops", (scanned(a), weft.jit(weft.grad(lambda a: scanned(a)[1].sum()))(a)))


def training() -> None:
    """Run steps of a small model, split in different ways."""

    def loss(params: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return np.tanh(h @ w @ params["out"]), None

        h, _ = lax.scan(layer, x, params["layers"])
        return np.mean(h**2)

    @weft.jit
    def step(params: Any, x: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(params, x)
        return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    mesh = mesh_of(4, 2)
    layers = RANDOM.randn(3, 16, 8).astype(onp.float32) / 4
    for name, specs in (("replicated", ((), ())), ("split", ((None, "x", "y"), ("y",)))):
        params = {"layers": put(layers, mesh, *specs[0]), "out": put(W.T / 4, mesh, *specs[1])}
        x = put(onp.tile(A, (4, 1)), mesh, "x")
        for _ in range(3):
            params, value = step(params, x)
        note(f"training {name}", (params, value))


def halos() -> None:
    """Windows and shifts along split dimensions: edges go to neighbours in other processes too."""
    mesh = mesh_of(4, 2)
    grid = RANDOM.randn(32, 64).astype(onp.float32)

    def step(i: int, u: Any) -> Any:
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + u.at[:, 1:-1].set(u[:, 2:] + u[:, :-2])
        return lax.reduce_window(u + 0.1 * around, -onp.inf, lax.max, (3, 3), (1, 1), "SAME")

    for spec in (("x", "y"), (("y", "x"),)):
        note(f"halos {spec}", weft.jit(lambda u: lax.fori_loop(0, 3, step, u))(put(grid, mesh, *spec)))


def divergent() -> None:
    """Branches and loops that differ along one axis, with collectives along the other."""
    mesh = mesh_of(2, 4)

    def body(a: Any) -> Any:
        y = lax.axis_index("y")
        branch = lax.cond(y % 2 == 0, lambda v: lax.psum(v, "x"), lambda v: lax.ppermute(v, "x", [(0, 1), (1, 0)]), a)
        count = lax.while_loop(lambda c: c[0] < y + 1, lambda c: (c[0] + 1, lax.psum(c[1], "x") * 0.5 + c[0]), (0, a))
        return branch + count[1]

    f = weft.shard_map(body, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")), check_vma=False)
    note("divergent", weft.jit(f)(put(A, mesh, ("x", "y"))))


def large() -> None:
    """Reductions that many processes do in pieces."""
    mesh = mesh_of(8)
    for dtype in ("float32", "bfloat16"):
        a = put(RANDOM.randn(8, 331, 101).astype(dtype), mesh, "x")
        body = lambda v: (lax.psum(v, "x"), lax.pmax(v, "x"))
        note(f"large {dtype}", weft.jit(weft.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P()))(a))


def arrays() -> None:
    """Operations outside of programs, other shardings, donated arguments, other types."""
    mesh = mesh_of(4, 2)
    a = put(A, mesh, "x", "y")
    note("eager", (a + 1, a.sum(0), a.T, a @ put(W, mesh, "y")))
    note("resharded", put(a, mesh, "y", "x"))
    specs: list[tuple[Any, ...]] = [
        (),
        ("x",),
        (None, "y"),
        (("x", "y"),),
        (("y", "x"),),
        ("y", "x"),
        (None, ("x", "y")),
    ]
    for i, (before, after) in enumerate(itertools.permutations(specs, 2)):
        note(f"resharded {i}", put(put(A * i, mesh, *before), mesh if i % 2 else mesh_of(4, 2), *after))
    note("replicated", put(a, mesh))
    large = put(onp.tile(A, (64, 16)), mesh, "x")
    note("donated", weft.jit(lambda v: v * 2 + v.sum(), donate_argnums=0)(large))
    for dtype in ("bfloat16", "int8", "bool", "complex64"):
        note(dtype, weft.jit(lambda v: v.sum(0))(put(A.astype(dtype) if dtype != "bool" else A > 0, mesh, "x")))


for programs in (collectives, training, bodies_in_loops, halos, large, arrays):
    programs()
if PLATFORM == "cpu":  # all GPUs go on in the same way
    divergent()
if weft.process_index() == 0:
    stored = {f"{k}: {v.dtype}": onp.atleast_1d(v).view(onp.uint8) for k, v in results.items()}
    onp.savez(sys.argv[1], **stored)
