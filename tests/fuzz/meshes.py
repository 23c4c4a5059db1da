"""Random programs for meshes as users write them: `shard_map` with collectives, loops and checkpoints; `jit` of arrays
that are split over Auto or Explicit axes, evenly or not; each forward, in reverse mode, in forward mode, mapped, or
exported, read back and called. They return what NumPy computes of stacked parts, and derivatives those of one device.

`python -m tests.fuzz.meshes [--first F] [--count N] [--processes P] [SEED ...]`
"""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as onp

from tests.fuzz.mesh_draw import (
    Axes,
    Body,
    Collectives,
    Reference,
    Value,
    draw_axes,
    draw_body,
    run_steps,
)
from tests.fuzz.seeds import main

Spec = tuple[Axes, ...]
Function = Callable[..., Any]
MESHES = ((2,), (4,), (8,), (3,), (2, 2), (2, 4), (4, 2), (3, 2), (2, 2, 2), (1, 4), (1,))
WAYS = (
    "forward",
    "forward",
    "grad",
    "grad",
    "jvp",
    "vmap",
    "vmap of grad",
    "grad of vmap",
    "export",
    "export",
    "hessian",
)
TOLERANCE = 2e-4


@dataclass
class Program:
    """Program of a seed: a mesh, arguments and their shardings, a body, and transformations."""

    kind: str  # "shard_map" or "jit"
    shape: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]  # "Auto" or "Explicit", of each axis
    manual: dict[str, int]  # the axes of the shard_map, with their sizes
    check_vma: bool
    arguments: list[tuple[int, ...]]  # whole shapes
    in_specs: list[Spec]
    out_specs: list[Spec]
    results: list[int]  # positions of the results among the values of the body
    body: Body
    constraints: dict[int, Spec]  # of values, by position
    way: str
    is_jitted: bool
    seed: int

    def text(self) -> str:
        """Format the program for readers."""
        axes = ", ".join(f"{n}={s} {t}" for n, s, t in zip(self.names, self.shape, self.types, strict=True))
        lines = [f"{self.way} of {self.kind} over {axes}, manual {self.manual}, check_vma={self.check_vma}"]
        lines.append(f"arguments {self.arguments} split {self.in_specs}, results {self.results} {self.out_specs}")
        lines.append(f"constraints {self.constraints}, {'jitted' if self.is_jitted else 'eager'}")
        first = len(self.arguments)
        steps = enumerate(self.body.steps, first)
        lines += [f"  v{i} = {s.name}{s.operands} {s.options or ''} : {self.body.values[i]}" for i, s in steps]
        return "\n".join(lines)


# -- drawing ----------------------------------------------------------------------------------------------------------


def draw_spec(rng: random.Random, rank: int, axes: Sequence[str], least: float = 0.25) -> Spec:
    """Axes for dimensions; an axis is left out now and then."""
    entries: list[Axes] = [()] * rank
    for axis in rng.sample(list(axes), len(axes)):
        if rank and rng.random() > least:
            i = rng.randrange(rank)
            entries[i] = (*entries[i], axis)
    return tuple(entries)


def parts(spec: Spec, sizes: dict[str, int]) -> list[int]:
    """Into how many parts each dimension is split."""
    return [math.prod(sizes[a] for a in entry) for entry in spec]


def program(seed: int) -> Program:
    """Generate the program of a seed."""
    rng = random.Random(seed)
    shape = rng.choice(MESHES)
    names = tuple("xyz"[: len(shape)])
    sizes = dict(zip(names, shape, strict=True))
    kind = rng.choice(("shard_map", "shard_map", "jit"))
    types = (rng.choice(("Auto", "Explicit")),) * len(names)
    way, is_jitted = rng.choice(WAYS), rng.random() < 0.8
    manual = sizes
    if kind == "shard_map" and len(names) > 1 and rng.random() < 0.3:  # the compiler splits over the other axes
        manual = {n: sizes[n] for n in names if n in draw_axes(rng, names)}
        is_jitted = True
    check_vma = rng.random() < 0.8
    local, specs, whole = [], [], []
    is_even = kind == "shard_map" or types[0] == "Explicit" or rng.random() < 0.5
    for _ in range(rng.randint(1, 3)):
        own = tuple(rng.choice((1, 2, 2, 3, 4, 8)) for _ in range(rng.randint(0 if rng.random() < 0.2 else 1, 3)))
        spec = draw_spec(rng, len(own), tuple(manual))
        specs.append(spec)
        counts = parts(spec, manual)
        whole.append(tuple(n * c if is_even else n + c for n, c in zip(own, counts, strict=True)))
        local.append(Value(own, frozenset(a for e in spec for a in e)))
    if kind == "jit":
        local = [Value(w, frozenset()) for w in whole]
    body = draw_body(rng, local, manual if kind == "shard_map" else {}, rng.randint(1, 7))
    positions = list(range(len(local), len(body.values)))
    results = [positions[-1], *([rng.choice(positions)] if rng.random() < 0.4 else [])]
    out_specs, constraints = [], {}
    for i in results:
        value = body.values[i]
        spec = draw_out_spec(rng, value, manual if kind == "shard_map" else {})
        if spec is None:  # nothing to put the parts together along: another program
            return program(seed + 1_000_003)
        out_specs.append(spec)
    if kind == "jit" and types[0] == "Auto":
        for i in positions:
            if rng.random() < 0.3:
                constraints[i] = draw_spec(rng, len(body.values[i].shape), names)
    return Program(
        kind, shape, names, types, manual, check_vma, whole, specs, out_specs, results, body, constraints, way,
        is_jitted, seed,
    )  # fmt: skip


def draw_out_spec(rng: random.Random, value: Value, sizes: dict[str, int]) -> Spec | None:
    """Draw a spec that names the axes along which a value varies."""
    axes = [a for a in sizes if a in value.varying]
    if axes and not value.shape:
        return None
    return draw_spec(rng, len(value.shape), axes, 0.0)


# -- building ---------------------------------------------------------------------------------------------------------


def mesh_of(lib: Any, p: Program) -> Any:
    devices = onp.array(lib.devices()[: math.prod(p.shape)]).reshape(p.shape)
    kinds = tuple(getattr(lib.sharding.AxisType, t) for t in p.types)
    return lib.sharding.Mesh(devices, p.names, axis_types=kinds)


def spec_of(lib: Any, spec: Spec) -> Any:
    return lib.sharding.PartitionSpec(*(e or None for e in spec))


def on_mesh(lib: Any, p: Program, mesh: Any) -> Function:
    """Return the program as a function of whole arrays, on a mesh."""
    comm = Collectives(lib)
    if p.kind == "shard_map":

        def body(*args: Any) -> list[Any]:
            values = run_steps(p.body.steps, args, lib.numpy, comm, 0)
            return [values[i] for i in p.results]

        specs = tuple(spec_of(lib, s) for s in p.in_specs), [spec_of(lib, s) for s in p.out_specs]
        options = {} if len(p.manual) == len(p.names) else {"axis_names": set(p.manual)}
        return lib.shard_map(body, mesh=mesh, in_specs=specs[0], out_specs=specs[1], check_vma=p.check_vma, **options)

    def function(*args: Any) -> list[Any]:
        values = list(args)
        for step in p.body.steps:
            values = run_steps([step], values, lib.numpy, comm, 0)
            spec = p.constraints.get(len(values) - 1)
            if spec is not None:
                sharding = lib.sharding.NamedSharding(mesh, spec_of(lib, spec))
                values[-1] = lib.lax.with_sharding_constraint(values[-1], sharding)
        return [values[i] for i in p.results]

    return function


def on_parts(np: Any, p: Program) -> Function:
    """Return the program as a function of whole arrays on one device, by stacked parts."""
    reference = Reference(np, p.manual if p.kind == "shard_map" else {})

    def function(*args: Any) -> list[Any]:
        stacked = [reference.split(a, s if reference.sizes else ()) for a, s in zip(args, p.in_specs, strict=True)]
        values = run_steps(p.body.steps, stacked, np, reference, len(reference.sizes))
        return [reference.join(values[i], s) for i, s in zip(p.results, p.out_specs, strict=True)]

    return function


def loss_of(np: Any, function: Function) -> Function:
    def loss(*args: Any) -> Any:
        total = 0.0
        for r in function(*args):
            factors = (onp.arange(math.prod(r.shape), dtype=onp.float32).reshape(r.shape) % 7 - 3) / 4
            total = total + (r * factors).sum()
        return total

    return loss


def transformed(lib: Any, function: Function, p: Program, count: int) -> Function:
    """Apply the transformations of the program to a function of `count` arguments."""
    np, all_of_them = lib.numpy, tuple(range(count))
    loss = loss_of(np, function)
    grad = lib.grad(loss, all_of_them)
    twice = lambda f: lib.vmap(f)
    if p.way == "grad":
        return grad
    if p.way == "jvp":
        return lambda *args: lib.jvp(function, args, tuple(np.cos(a) for a in args))
    if p.way == "vmap":
        return lambda *args: twice(function)(*(np.stack([a, 0.5 * a]) for a in args))
    if p.way == "vmap of grad":
        return lambda *args: twice(grad)(*(np.stack([a, 0.5 * a]) for a in args))
    if p.way == "grad of vmap":
        mapped = lambda *args: [r.sum(0) for r in twice(function)(*(np.stack([a, 0.5 * a]) for a in args))]
        return lib.grad(loss_of(np, mapped), all_of_them)
    if p.way == "hessian":  # in one direction
        return lambda *args: lib.jvp(lambda *a: grad(*a), args, tuple(np.cos(a) for a in args))[1]
    return function


def values_of(p: Program) -> list[onp.ndarray]:
    rng = onp.random.default_rng(p.seed)
    return [rng.uniform(-1, 1, shape).astype(onp.float32) for shape in p.arguments]


def placed_arguments(lib: Any, p: Program, mesh: Any, args: Sequence[Any]) -> list[Any]:
    """Arguments as the program has them: split as the specs say, otherwise, or not at all."""
    rng = random.Random(p.seed + 1)
    found = []
    for a, spec in zip(args, p.in_specs, strict=True):
        kind = rng.random()
        own: Spec = spec if p.types[0] == "Explicit" or kind < 0.6 else ()
        if p.types[0] == "Auto" and kind > 0.85:
            own = draw_spec(rng, a.ndim, p.names)
        found.append(lib.device_put(a, lib.sharding.NamedSharding(mesh, spec_of(lib, own))))
    return found


def exported_call(lib: Any, function: Function, args: Sequence[Any], derive: bool) -> Any:
    """Return the results, or the gradient, of a function that is exported, written, read and called."""
    from weft.export import deserialize, export

    again = deserialize(export(lib.jit(function))(*args).serialize(vjp_order=1 if derive else 0))
    if derive:
        return lib.grad(loss_of(lib.numpy, again.call), tuple(range(len(args))))(*args)
    return again.call(*args)


def run_program(lib: Any, p: Program) -> list[onp.ndarray]:
    """Return the results of a library on a mesh."""
    mesh = mesh_of(lib, p)
    with lib.set_mesh(mesh):
        args = placed_arguments(lib, p, mesh, values_of(p))
        function = on_mesh(lib, p, mesh)
        if p.way == "export":
            found = exported_call(lib, function, args, derive=p.seed % 2 == 0)
        else:
            whole = transformed(lib, function, p, len(args))
            found = (lib.jit(whole) if p.is_jitted else whole)(*args)
        return [onp.asarray(x) for x in lib.tree.leaves(found)]


def expected_of(lib: Any, p: Program) -> list[onp.ndarray]:
    """Return the results of one device on stacked parts, by NumPy itself if nothing is differentiated."""
    if p.way == "forward" or (p.way == "export" and p.seed % 2):
        return [onp.asarray(x) for x in on_parts(onp, p)(*values_of(p))]
    function = on_parts(lib.numpy, p)
    args = [lib.numpy.asarray(a) for a in values_of(p)]
    if p.way == "export":
        found = lib.jit(lib.grad(loss_of(lib.numpy, function), tuple(range(len(args)))))(*args)
    else:
        found = lib.jit(transformed(lib, function, p, len(args)))(*args)
    return [onp.asarray(x) for x in lib.tree.leaves(found)]


def compare(found: Sequence[onp.ndarray], expected: Sequence[onp.ndarray]) -> None:
    """Raise unless values are the same but for rounding."""
    assert len(found) == len(expected), f"{len(found)} results, expected {len(expected)}"
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape, f"result {i}: {a.shape}, expected {b.shape}"
        scale = max(1.0, float(onp.abs(b[onp.isfinite(b)]).max(initial=0.0)))
        onp.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=f"result {i}")


def check_seed(seed: int) -> str:
    """Return the outcome of a seed in words; a failure begins with `failed`."""
    import weft
    from weft.errors import CarryMismatchError, ShardingTypeError

    p = program(seed)
    try:
        compare(run_program(weft, p), expected_of(weft, p))
    except ShardingTypeError:
        return "refused by types"
    except Exception as error:
        # A body that transposes a split carry changes its type, which JAX refuses as well.
        if isinstance(error, CarryMismatchError) and p.kind == "jit" and "Explicit" in p.types:
            return "refused by types"
        return f"failed: {p.text()}\n{traceback.format_exc(limit=-6)}"
    return f"{p.kind}, {p.types[0]}, {p.way}"


if __name__ == "__main__":
    main(check_seed, __doc__)
