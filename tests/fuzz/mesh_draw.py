"""Random bodies for meshes: a list of steps that a library runs on each device, and NumPy on parts that are stacked
along the axes of the mesh. Steps are drawn with the shapes of parts and the axes along which values vary."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as onp

Shape = tuple[int, ...]
Axes = tuple[str, ...]
MOST_ELEMENTS = 512


@dataclass(frozen=True)
class Value:
    """Type of a value of a body: the shape of a part, and the axes along which parts differ."""

    shape: Shape
    varying: frozenset[str]


@dataclass
class Step:
    """Operation: the positions of its operands among the values so far, and its other arguments."""

    name: str
    operands: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Body:
    """Steps over arguments; results are positions among all values."""

    steps: list[Step]
    values: list[Value]


# -- stacked parts ----------------------------------------------------------------------------------------------------


class Stacked:
    """Collectives on arrays whose first dimensions are the axes of a mesh, by slices and concatenations of `np`."""

    def __init__(self, np: Any, sizes: dict[str, int]):
        self.np, self.sizes, self.names = np, sizes, tuple(sizes)

    def members(self, x: Any, axes: Axes) -> list[Any]:
        """Return the parts of the devices along `axes`, the last axis fastest; the other axes stay leading
        dimensions."""
        moved = self.np.moveaxis(x, [self.names.index(a) for a in axes], list(range(len(axes))))
        count = onp.prod([self.sizes[a] for a in axes], dtype=int)
        flat = self.np.reshape(moved, (count, *moved.shape[len(axes) :]))
        return [flat[i] for i in range(count)]

    def stacked(self, members: Sequence[Any], axes: Axes) -> Any:
        """Invert `members`."""
        flat = self.np.stack(list(members))
        moved = self.np.reshape(flat, (*(self.sizes[a] for a in axes), *flat.shape[1:]))
        return self.np.moveaxis(moved, list(range(len(axes))), [self.names.index(a) for a in axes])

    def each(self, x: Any, axes: Axes, function: Callable[[list[Any], int], Sequence[Any]]) -> Any:
        """Apply a collective, a function from the parts of all members to the results of each. `function` also takes
        the number of remaining leading dimensions."""
        return self.stacked(function(self.members(x, axes), len(self.names) - len(axes)), axes)

    def psum(self, x: Any, axes: Axes) -> Any:
        return self.each(x, axes, lambda m, _: [sum(m[1:], m[0])] * len(m))

    def pmean(self, x: Any, axes: Axes) -> Any:
        return self.each(x, axes, lambda m, _: [sum(m[1:], m[0]) / len(m)] * len(m))

    def all_gather(self, x: Any, axes: Axes, axis: int, tiled: bool) -> Any:
        join = self.np.concatenate if tiled else self.np.stack
        return self.each(x, axes, lambda m, first: [join(m, axis=first + axis)] * len(m))

    def psum_scatter(self, x: Any, axes: Axes, axis: int) -> Any:
        return self.each(x, axes, lambda m, first: self.np.split(sum(m[1:], m[0]), len(m), axis=first + axis))

    def ppermute(self, x: Any, axes: Axes, perm: Sequence[tuple[int, int]]) -> Any:
        source = {j: i for i, j in perm}
        return self.each(x, axes, lambda m, _: [m[source[j]] if j in source else m[0] * 0 for j in range(len(m))])

    def all_to_all(self, x: Any, axes: Axes, split: int, concat: int) -> Any:
        def exchange(members: list[Any], first: int) -> list[Any]:
            parts = [self.np.split(m, len(members), axis=first + split) for m in members]
            return [self.np.concatenate([p[j] for p in parts], axis=first + concat) for j in range(len(members))]

        return self.each(x, axes, exchange)

    def axis_index(self, axes: Axes, rank: int) -> Any:
        shape = tuple(self.sizes.values())
        found = onp.zeros(shape, onp.float32)
        for a in axes:
            i = self.names.index(a)
            own = onp.arange(shape[i]).reshape([-1 if k == i else 1 for k in range(len(shape))])
            found = found * shape[i] + own
        return self.np.asarray(found.reshape(*shape, *(1,) * rank).astype(onp.float32))

    def split(self, x: Any, spec: Sequence[Axes]) -> Any:
        """Split a whole array into parts."""
        shape: list[int] = []
        where: dict[str, int] = {}
        local: list[int] = []
        for i, size in enumerate(x.shape):
            for a in spec[i] if i < len(spec) else ():
                where[a] = len(shape)
                shape.append(self.sizes[a])
                size //= self.sizes[a]
            local.append(len(shape))
            shape.append(size)
        x = self.np.transpose(self.np.reshape(x, shape), [*(where[a] for a in self.names if a in where), *local])
        present = [self.sizes[a] if a in where else 1 for a in self.names]
        x = self.np.reshape(x, (*present, *x.shape[len(where) :]))
        return self.np.broadcast_to(x, (*self.sizes.values(), *x.shape[len(self.names) :]))

    def join(self, x: Any, spec: Sequence[Axes]) -> Any:
        """Join parts to the whole array; along axes that the spec does not name the first part is taken."""
        named = [a for entry in spec for a in entry]
        x = x[tuple(slice(None) if a in named else 0 for a in self.names)]
        leading = [a for a in self.names if a in named]
        order: list[int] = []
        shape: list[int] = []
        for i, size in enumerate(x.shape[len(leading) :]):
            axes = spec[i] if i < len(spec) else ()
            order += [*(leading.index(a) for a in axes), len(leading) + i]
            shape.append(int(size * onp.prod([self.sizes[a] for a in axes], dtype=int)))
        return self.np.reshape(self.np.transpose(x, order), shape)


# -- steps ------------------------------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "sin": lambda np, x: np.sin(x),
    "tanh": lambda np, x: np.tanh(x),
    "half": lambda np, x: x * 0.5,
    "negative": lambda np, x: -x,
    "cos": lambda np, x: np.cos(x) + 0.25,
}
BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda np, x, y: x + y,
    "sub": lambda np, x, y: x - 0.5 * y,
    "mul": lambda np, x, y: np.tanh(x) * y,
    "where": lambda np, x, y: np.where(x > 0.1, x, y),
}
REDUCING = ("sum", "mean")


def weight(rows: int, columns: int) -> onp.ndarray:
    """Return a small matrix that is the same on all devices."""
    return (onp.arange(rows * columns, dtype=onp.float32).reshape(rows, columns) % 5 - 2) / 4


def run_step(step: Step, values: Sequence[Any], np: Any, comm: Any, lead: int) -> Any:
    """Return the result of a step on parts whose local dimensions begin at `lead`; `comm` has the collectives."""
    own, o = [values[i] for i in step.operands], step.options
    x = own[0]
    name = step.name
    if name in UNARY:
        return UNARY[name](np, x)
    if name in BINARY:
        return BINARY[name](np, *own)
    if name in REDUCING:
        return getattr(np, name)(x, axis=lead + o["axis"], keepdims=o["keepdims"])
    if name == "matmul":
        return np.matmul(x, weight(*o["shape"]))
    if name == "transpose":
        return np.transpose(x, (*range(lead), *(lead + i for i in o["order"])))
    if name == "flat":
        return np.reshape(x, (*x.shape[:lead], -1))
    if name == "reversed":
        return np.flip(x, lead + o["axis"])
    if name == "cumsum":
        return np.cumsum(x, axis=lead + o["axis"]) * 0.5
    if name == "first":
        return x[(slice(None),) * (lead + o["axis"]) + (slice(0, o["size"]),)]
    if name == "concatenate":
        return np.concatenate(own, axis=lead + o["axis"])
    if name == "position":
        return x + 0.125 * comm.axis_index(o["axes"], x.ndim - lead)
    if name == "repeated":  # a loop of steps of one value
        return comm.loop(lambda c: run_steps(o["steps"], [c], np, comm, lead)[-1], x, o["count"])
    if name == "checkpoint":
        return comm.checkpoint(lambda c: run_steps(o["steps"], [c], np, comm, lead)[-1], x)
    return getattr(comm, name)(x, **o)


def run_steps(steps: Sequence[Step], arguments: Sequence[Any], np: Any, comm: Any, lead: int) -> list[Any]:
    """Return all values of a body."""
    values = list(arguments)
    for step in steps:
        values.append(run_step(step, values, np, comm, lead))
    return values


class Reference(Stacked):
    """Collectives, loops and checkpoints of stacked parts."""

    def loop(self, function: Any, x: Any, count: int) -> Any:
        for _ in range(count):
            x = function(x)
        return x

    def checkpoint(self, function: Any, x: Any) -> Any:
        return function(x)


class Collectives:
    """Collectives, loops and checkpoints of a library, inside of `shard_map`."""

    def __init__(self, lib: Any):
        self.lib, self.lax = lib, lib.lax

    def psum(self, x: Any, axes: Axes) -> Any:
        return self.lax.psum(x, axes)

    def pmean(self, x: Any, axes: Axes) -> Any:
        return self.lax.pmean(x, axes if len(axes) > 1 else axes[0])

    def all_gather(self, x: Any, axes: Axes, axis: int, tiled: bool) -> Any:
        return self.lax.all_gather(x, axes, axis=axis, tiled=tiled)

    def psum_scatter(self, x: Any, axes: Axes, axis: int) -> Any:
        return self.lax.psum_scatter(x, axes, scatter_dimension=axis, tiled=True)

    def ppermute(self, x: Any, axes: Axes, perm: Sequence[tuple[int, int]]) -> Any:
        return self.lax.ppermute(x, axes, perm)

    def all_to_all(self, x: Any, axes: Axes, split: int, concat: int) -> Any:
        return self.lax.all_to_all(x, axes, split, concat, tiled=True)

    def axis_index(self, axes: Axes, rank: int) -> Any:
        return self.lax.axis_index(axes).astype("float32")

    def loop(self, function: Any, x: Any, count: int) -> Any:
        return self.lax.scan(lambda c, _: (function(c), None), x, None, length=count)[0]

    def checkpoint(self, function: Any, x: Any) -> Any:
        return self.lib.checkpoint(function)(x)


# -- drawing ----------------------------------------------------------------------------------------------------------


def draw_axes(rng: random.Random, axes: Sequence[str]) -> Axes:
    """Draw one axis, or several in any order."""
    return tuple(rng.sample(list(axes), 1 if rng.random() < 0.7 else rng.randint(1, len(axes))))


def draw_body(rng: random.Random, arguments: Sequence[Value], sizes: dict[str, int], count: int) -> Body:
    """Draw steps that fit the arguments."""
    steps: list[Step] = []
    values = list(arguments)
    while len(steps) < count:
        drawn = draw_step(rng, values, sizes)
        if drawn is not None and onp.prod(drawn[1].shape, dtype=int) <= MOST_ELEMENTS:
            steps.append(drawn[0])
            values.append(drawn[1])
    return Body(steps, values)


def draw_step(rng: random.Random, values: Sequence[Value], sizes: dict[str, int]) -> tuple[Step, Value] | None:
    """Draw a step and its result; return None if the step does not fit."""
    i = rng.choice([rng.randrange(len(values)), len(values) - 1])
    x = values[i]
    kinds = ["unary"] * 3 + ["binary"] * 3 + ["local"] * 3 + ["loop", "checkpoint"]
    kinds += ["collective"] * 6 + ["position"] if sizes else []
    kind = rng.choice(kinds)
    if kind == "unary":
        return Step(rng.choice(list(UNARY)), (i,)), x
    if kind == "binary":
        others = [k for k, v in enumerate(values) if v.shape == x.shape]
        k = rng.choice(others)
        return Step(rng.choice(list(BINARY)), (i, k)), Value(x.shape, x.varying | values[k].varying)
    if kind == "local":
        return draw_local(rng, i, values)
    if kind == "position":
        axes = draw_axes(rng, list(sizes))
        return Step("position", (i,), {"axes": axes}), Value(x.shape, x.varying.union(axes))
    if kind == "collective":
        return draw_collective(rng, i, x, sizes)
    inner, steps = [x], []
    for _ in range(rng.randint(1, 3)):
        drawn = draw_step(rng, inner, sizes)
        if drawn is None or drawn[0].name in ("repeated", "checkpoint"):
            return None
        steps.append(drawn[0])
        inner.append(drawn[1])
    if kind == "checkpoint":
        return Step("checkpoint", (i,), {"steps": steps}), inner[-1]
    if inner[-1] != x:  # a carry keeps its type
        return None
    return Step("repeated", (i,), {"steps": steps, "count": rng.randint(1, 3)}), x


def draw_local(rng: random.Random, i: int, values: Sequence[Value]) -> tuple[Step, Value] | None:
    """Draw an operation on one device that changes shapes."""
    x = values[i]
    rank = len(x.shape)
    if not rank:
        return None
    axis = rng.randrange(rank)
    shape = list(x.shape)
    name = rng.choice([*REDUCING, "matmul", "transpose", "flat", "reversed", "cumsum", "first", "concatenate"])
    options: dict[str, Any] = {"axis": axis}
    operands: tuple[int, ...] = (i,)
    varying = x.varying
    if name in REDUCING:
        options["keepdims"] = rng.random() < 0.5
        shape[axis : axis + 1] = [1] if options["keepdims"] else []
    elif name == "matmul":
        columns = rng.choice([1, 2, 3, 4, 8])
        options = {"shape": (shape[-1], columns)}
        shape[-1] = columns
        if rank < 2:
            return None
    elif name == "transpose":
        options = {"order": tuple(rng.sample(range(rank), rank))}
        shape = [shape[k] for k in options["order"]]
    elif name == "flat":
        options, shape = {}, [int(onp.prod(shape, dtype=int))]
    elif name == "first":
        options["size"] = shape[axis] = rng.randint(1, shape[axis])
    elif name == "concatenate":
        others = [
            k
            for k, v in enumerate(values)
            if len(v.shape) == rank and all(d == axis or v.shape[d] == n for d, n in enumerate(x.shape))
        ]
        k = rng.choice(others)
        operands, varying = (i, k), varying | values[k].varying
        shape[axis] += values[k].shape[axis]
    return Step(name, operands, options), Value(tuple(shape), varying)


def draw_collective(rng: random.Random, i: int, x: Value, sizes: dict[str, int]) -> tuple[Step, Value] | None:
    """Draw a collective over one axis or several."""
    axes = draw_axes(rng, list(sizes))
    count = int(onp.prod([sizes[a] for a in axes], dtype=int))
    shape, rank = list(x.shape), len(x.shape)
    names = ["psum", "pmean", "ppermute", *(["all_gather", "psum_scatter", "all_to_all"] if rank else [])]
    name = rng.choice(names)
    options: dict[str, Any] = {"axes": axes}
    varying = x.varying.union(axes)
    if name in ("psum", "pmean"):
        if not x.varying.issuperset(axes):  # a library refuses sums over axes along which nothing varies
            return None
        return Step(name, (i,), options), Value(x.shape, x.varying.difference(axes))
    axis = rng.randrange(rank) if rank else 0
    if name == "ppermute":
        targets = rng.sample(range(count), count)
        options["perm"] = [(a, b) for a, b in enumerate(targets) if rng.random() < 0.8]
    elif name == "all_gather":
        options |= {"axis": axis, "tiled": rng.random() < 0.6}
        if options["tiled"]:
            shape[axis] *= count
        else:
            shape.insert(axis, count)
    elif shape[axis] % count:
        return None
    elif name == "psum_scatter":
        options["axis"] = axis
        shape[axis] //= count
    else:
        concat = rng.randrange(rank)
        options |= {"split": axis, "concat": concat}
        shape[axis] //= count
        shape[concat] *= count
    return Step(name, (i,), options), Value(tuple(shape), varying)
