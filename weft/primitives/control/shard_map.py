"""`shard_map`: a function that runs on every device of a mesh, on its shard of the operands.

The body has local types. Along the manual axes a value of the body is the same on all devices (invariant) or varies;
with `check_vma` the types say which. Its meaning is `vmap` over the manual axes of shards that are stacked along them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from weft.base.errors import ArgumentError, JaxprTypeError
from weft.ir.batching import batch_jaxpr
from weft.ir.context import context, manual_axes
from weft.ir.higher_order import HigherOrder, check_operands
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, drop_dead, named_axes
from weft.ir.partial_eval import PartialJaxpr, partial_eval
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import Split
from weft.ir.types import ArrayType, Type, array_type
from weft.ir.unplaced import drop_placements, varying_along
from weft.ir.varying import cast_to_state, manual_state
from weft.ir.zeros import Linear, Zero
from weft.primitives.collectives import psum
from weft.primitives.control.call import batch_first, forward_residuals
from weft.primitives.elementwise.arithmetic import div
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.shape import reshape, transpose
from weft.primitives.movement.slicing import slice as slice_primitive
from weft.primitives.movement.terms import unsum
from weft.primitives.reduction.reduce import reduce_sum
from weft.sharding.manual import NONE, ManualAxisType
from weft.sharding.mesh import AxisType
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec, entry_axes, split_axes
from weft.trace.closed import stage_subjaxpr

Specs = tuple[PartitionSpec, ...]


@primitive
class shard_map(HigherOrder):
    """Run `jaxpr` on each device along `manual_axes` of `mesh`. An operand is split by its entry of `in_specs`, and
    replicated along axes that the entry does not name. Results are assembled by `out_specs`; a result is the same along
    axes that its entry does not name, which the types of the body show if `check_vma` is set."""

    staged_alone = True
    partitions = True

    def type(
        self,
        *types: Type,
        jaxpr: Jaxpr,
        mesh: Any,
        in_specs: Specs,
        out_specs: Specs,
        manual_axes: Any,
        check_vma: bool,
    ) -> list[Type]:
        for aval, spec in zip(types, in_specs, strict=True):
            check_divides(aval, spec, mesh)
        local = [local_type(t, s, mesh, manual_axes, check_vma) for t, s in zip(types, in_specs, strict=True)]
        check_operands(self.name, local, jaxpr.in_avals)
        return [
            global_type(t, s, mesh, manual_axes, check_vma) for t, s in zip(jaxpr.out_avals, out_specs, strict=True)
        ]

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        """Return the states along axes of a surrounding `shard_map`; along its own axes the specs determine them."""
        own = params["manual_axes"]
        states = [manual_state(t) for t in params["jaxpr"].in_avals]
        if all(s.vur <= own for s in states):
            return [NONE] * len(states)
        rest = [{k: getattr(s, k) - own for k in ("varying", "unreduced", "reduced")} for s in states]
        return [ManualAxisType(**r) for r in rest]

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["jaxpr"].effects
        return result

    def drop_placement(self, params: Params) -> Params:
        return {**params, "check_vma": False}

    def bound_axes(self, params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["manual_axes"]
        return result

    def eval(self, *arrays: Any, **params: Any) -> list[Any]:
        return self.definition(*arrays, **params)

    def definition(
        self, *args: Any, jaxpr: Jaxpr, mesh: Any, in_specs: Specs, out_specs: Specs, manual_axes: Any, check_vma: bool
    ) -> list[Any]:
        """Apply `vmap` of the body over the manual axes, the first one outermost."""
        axes = [a for a in mesh.axis_names if a in manual_axes]
        sizes = mesh.shape
        body = drop_placements(jaxpr)
        if any(s.unreduced for s in (*in_specs, *out_specs)):
            body = with_term_dimensions(body, in_specs, out_specs)
            args = tuple(split_terms(a, s, sizes) for a, s in zip(args, in_specs, strict=True))
        terms = [len(s.unreduced) for s in out_specs]
        in_specs, out_specs = (tuple(map(specs_of_terms, specs)) for specs in (in_specs, out_specs))
        wanted = [set(split_axes(s.partitions)) for s in out_specs]
        found: list[set[Any]] = [set() for _ in out_specs]
        for axis in reversed(axes):
            batched = [axis in split_axes(s.partitions) for s in in_specs]
            forced = [axis in w for w in wanted]
            body, batched_out = batch_jaxpr(body, Axis(sizes[axis], axis), batched, forced)
            for own, b in zip(found, batched_out, strict=True):
                own |= {axis} if b else set()
        stacked = [stack_parts(a, s, sizes, axes) for a, s in zip(args, in_specs, strict=True)]
        results = [
            join_parts(select_first_along(r, [a for a in axes if a in own], w), s, sizes, axes)
            for r, s, own, w in zip(replay(body, *stacked), out_specs, found, wanted, strict=True)
        ]
        return [reduce_sum(r, axes=tuple(range(n))) if n else r for r, n in zip(results, terms, strict=True)]

    # -- differentiate ---------------------------------------------------------------------------------------------

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Jaxpr, **params: Any
    ) -> Any:
        nonzero = [type(t) is not Zero for t in tangents]
        with in_scope(params):
            pushed, nonzero_out = through(jaxpr, nonzero)
        specs = {
            "in_specs": (*params["in_specs"], *chosen(params["in_specs"], nonzero)),
            "out_specs": (*params["out_specs"], *chosen(params["out_specs"], nonzero_out)),
        }
        results = self(*primals, *chosen(tangents, nonzero), jaxpr=pushed, **{**params, **specs})
        outs, rest = results[: len(jaxpr.outvars)], iter(results[len(jaxpr.outvars) :])
        types = [o.aval for o in outs]
        return outs, [next(rest) if n else Zero.of(t) for t, n in zip(types, nonzero_out, strict=True)]

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        """Split the body. Residuals leave the known body split, in their first dimension, over the axes along which
        they vary."""
        jaxpr: Jaxpr = params["jaxpr"]
        mesh, check, in_specs = params["mesh"], params["check_vma"], params["in_specs"]
        with in_scope(params):
            known, parts, positions = jaxpr.memoize(
                ("shard_map partial_eval", tuple(unknown)),
                lambda: forward_residuals(split_body(jaxpr, unknown), unknown),
            )
        stored: list[Any] = [t for t, r in zip(parts.residual_types, positions, strict=True) if r < 0]
        count = len(known.outvars) - len(stored)
        axes = params["manual_axes"] if check else params["manual_axes"] - context.batch_axes
        specs = tuple(residual_spec(t, mesh, axes, check) for t in stored)
        with_rank = lambda flat: [reshape(x, new_sizes=(1,), dimensions=None) if not x.shape else x for x in flat]
        first = jaxpr.memoize(
            ("shard_map known", tuple(unknown)),
            lambda: stage_subjaxpr(lambda *a: split_at(replay(known, *a), count, with_rank), known.in_avals),
        )
        waiting = jaxpr.memoize(
            ("shard_map unknown", tuple(unknown)), lambda: with_ranked_residuals(parts.unknown, positions)
        )
        rest = {k: v for k, v in params.items() if k not in ("jaxpr", "in_specs", "out_specs")}
        held = [in_specs[r] if r >= 0 else specs[~r] for r in positions]
        out_known = [not u for u in parts.unknown_out]
        residual_types = tuple(
            global_type(v.aval, s, mesh, params["manual_axes"], check)
            for v, s in zip(first.outvars[count:], specs, strict=True)
        )
        return Split(
            known=(
                self,
                {
                    **rest,
                    "jaxpr": first,
                    "in_specs": chosen(in_specs, [not u for u in unknown]),
                    "out_specs": (*chosen(params["out_specs"], out_known), *specs),
                },
            ),
            known_in=tuple(i for i, u in enumerate(unknown) if not u),
            unknown=(
                self,
                {
                    **rest,
                    "jaxpr": waiting,
                    "in_specs": (*held, *chosen(in_specs, unknown)),
                    "out_specs": chosen(params["out_specs"], parts.unknown_out),
                },
            ),
            unknown_in=(*positions, *(i for i, u in enumerate(unknown) if u)),
            unknown_out=parts.unknown_out,
            residual_types=residual_types,
        )

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], *, jaxpr: Jaxpr, **params: Any
    ) -> Any:
        in_specs, out_specs, mesh = params["in_specs"], params["out_specs"], params["mesh"]
        linear = [type(a) is Linear for a in args]
        nonzero = [type(c) is not Zero for c in cotangents]
        with in_scope(params):
            pulled, nonzero_out = through(jaxpr, linear, nonzero)
        held_specs = chosen(in_specs, [not n for n in linear])
        out_ct_specs = chosen(out_specs, nonzero)
        wanted = chosen(chosen(in_specs, linear), nonzero_out)
        if not params["check_vma"]:
            pulled = jaxpr.memoize(
                ("shard_map unchecked", tuple(linear), tuple(nonzero), in_specs, out_specs, mesh, context.batch_axes),
                lambda: sum_without_checks(
                    pulled, len(held_specs), out_ct_specs, wanted, mesh, params["manual_axes"] - context.batch_axes
                ),
            )
        specs = {
            "in_specs": (*held_specs, *(s.to_ct_spec() for s in out_ct_specs)),
            "out_specs": tuple(s.to_ct_spec() for s in wanted),
        }
        held = chosen(args, [not n for n in linear])
        results = iter(self(*held, *chosen(cotangents, nonzero), jaxpr=pulled, **{**params, **specs}))
        flags = iter(nonzero_out)
        return [
            (next(results) if next(flags) else Zero(a.aval.cotangent())) if n else None
            for a, n in zip(args, linear, strict=True)
        ]

    # -- vectorise, dead code ----------------------------------------------------------------------------------------

    def batch_through(
        self, through: Any, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: Jaxpr, **params: Any
    ) -> Any:
        batched = [d is not None for d in dims]
        over = self.batch_axes(axis, jaxpr, params)
        with in_scope(params):
            if over:
                count = math.prod(params["mesh"].shape[a] for a in over)
                one = Axis(axis.size // count, axis.name)
                body, batched_out = through(jaxpr, one, batched, True)
                batched_body = split_batch_body(body, batched, over, params["check_vma"])
            else:
                inside = dataclasses.replace(axis, sharding=sharding_inside(axis.sharding, params["manual_axes"]))
                batched_body, batched_out = through(jaxpr, inside, batched)
        specs = {
            "in_specs": with_front(params["in_specs"], batched, over or None),
            "out_specs": with_front(params["out_specs"], batched_out, over or None),
        }
        results = self(*batch_first(args, dims), jaxpr=batched_body, **{**params, **specs})
        return results, [0 if b else None for b in batched_out]

    def batch_axes(self, axis: Axis, jaxpr: Jaxpr, params: Params) -> tuple[Any, ...]:
        """Return the manual axes that a batch is split over: those of `spmd_axis_name`, or the Explicit ones of the
        mapped dimension's type that the body does not use."""
        axes = tuple(a for a in axis.spmd if a in params["manual_axes"])
        used = {a for s in (*params["in_specs"], *params["out_specs"]) for a in split_axes(s.partitions)}
        used |= set(named_axes(jaxpr))
        if not axes and axis.sharding is not None:
            own = entry_axes(axis.sharding.spec[0])
            axes = own if params["manual_axes"].issuperset(own) and not used.intersection(own) else ()
        taken = [a for a in axes if a in used]
        if taken:
            raise ArgumentError(
                f"vmap of a shard_map cannot split its batch over {taken[0]!r}, which the shard_map uses itself.",
                received=f"spmd_axis_name={axis.spmd!r}",
                fix="name an axis that is in no spec and no collective inside",
            )
        count = math.prod(params["mesh"].shape[a] for a in axes)
        if axis.size % count:
            raise ArgumentError(
                f"vmap of a shard_map: a batch of {axis.size} is not a multiple of {count}, the number of its parts.",
                received=f"spmd_axis_name={axis.spmd!r}",
            )
        return () if axis.name is not None and axis.name in named_axes(jaxpr) else axes

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        jaxpr: Jaxpr = params["jaxpr"]
        smaller, used = jaxpr.memoize(("drop_dead", tuple(live_results)), lambda: drop_dead(jaxpr, live_results, False))
        changed = {
            "jaxpr": smaller,
            "in_specs": chosen(params["in_specs"], used),
            "out_specs": chosen(params["out_specs"], live_results),
        }
        return used, {**params, **changed}, list(live_results)

    def samples(self) -> Any:
        return iter(())  # has a sub-jaxpr; tests/laws/test_shard_map.py covers it


def chosen(items: Sequence[Any], flags: Sequence[bool]) -> tuple[Any, ...]:
    """Return the items whose flag is set."""
    return tuple(x for x, flag in zip(items, flags, strict=True) if flag)


def in_scope(params: Params) -> Any:
    """Bring the manual axes into scope, as they are for a body: rules that users wrote are traced when they are
    needed."""
    mesh, manual = params["mesh"], params["manual_axes"]
    return manual_axes({a: mesh.shape[a] for a in mesh.axis_names if a in manual}, params["check_vma"])


def split_body(jaxpr: Jaxpr, unknown: Sequence[bool]) -> PartialJaxpr:
    """Evaluate a body partially. Residuals that no spec can describe do not leave it and are computed again: tapes, and
    values that are unreduced or reduced."""
    parts = partial_eval(jaxpr, unknown)
    if all(map(can_leave, parts.residual_types)):
        return parts
    return partial_eval(jaxpr, unknown, saveable=lambda e: all(can_leave(v.aval) for v in e.outvars))


def can_leave(aval: Type) -> bool:
    """Return whether a value of a body can be a result of `shard_map`."""
    return isinstance(aval, ArrayType) and not (aval.manual.unreduced or aval.manual.reduced)


def split_batch_body(body: Jaxpr, batched: Sequence[bool], axes: tuple[Any, ...], check_vma: bool) -> Jaxpr:
    """Return a batched body whose batch is split over manual axes: all its values vary along them, except operands
    without a batch."""
    if not check_vma:
        return body
    own = varying_along(body, frozenset(axes))
    types = [v.aval if b else plain.aval for v, plain, b in zip(own.invars, body.invars, batched, strict=True)]
    return stage_subjaxpr(lambda *a: replay(own, *map(cast_to_state, a, own.in_avals)), types, name=body.name)


def split_at(items: Sequence[Any], count: int, function: Any) -> list[Any]:
    """Return the first `count` items, followed by `function` of the others."""
    return [*items[:count], *function(items[count:])]


def with_front(specs: Specs, batched: Sequence[bool], entry: Any) -> Specs:
    """Insert an entry for a batch dimension at the front of the specs of batched values."""
    return tuple(s.update(partitions=(entry, *s.partitions)) if b else s for s, b in zip(specs, batched, strict=True))


# -- types ---------------------------------------------------------------------------------------------------------


def shards_along(spec: PartitionSpec, mesh: Any, rank: int) -> list[int]:
    """Return the number of shards along each dimension."""
    counts = [math.prod(mesh.shape[a] for a in entry_axes(e)) for e in spec.partitions]
    return counts + [1] * (rank - len(counts))


def check_divides(aval: Type, spec: PartitionSpec, mesh: Any) -> None:
    """Raise unless dimensions are multiples of the number of shards: a body has the same static shapes on every
    device."""
    assert isinstance(aval, ArrayType)
    if len(spec) > aval.ndim:
        raise ArgumentError(
            f"shard_map: a spec has {len(spec)} entries for an operand of rank {aval.ndim}.",
            received=f"{spec} for {aval.short()}",
            fix="at most one entry for each dimension" if aval.ndim else "consider using an in_specs entry of `P()`",
        )
    for dim, (size, count) in enumerate(zip(aval.shape, shards_along(spec, mesh, aval.ndim), strict=True)):
        if size % count:
            padded = -(-size // count) * count
            raise ArgumentError(
                f"shard_map: dimension {dim} of size {size} is not a multiple of {count}, the number of its parts.",
                received=f"{spec} for {aval.short()} on {mesh}",
                fix=f"pad dimension {dim} to {padded}, or use jit with shardings, which takes any size",
            )


def sharding_inside(sharding: NamedSharding | None, manual_axes: Any) -> NamedSharding | None:
    """Return a sharding over Explicit axes as it is inside of a body, where `manual_axes` are Manual."""
    if sharding is None:
        return None
    mesh = sharding.mesh.abstract_mesh.update_axis_types(dict.fromkeys(manual_axes, AxisType.Manual))
    rest = [tuple(a for a in entry_axes(e) if a not in manual_axes) for e in sharding.spec.partitions]
    return NamedSharding(mesh, PartitionSpec(*rest))


def local_type(aval: Type, spec: PartitionSpec, mesh: Any, manual_axes: Any, check_vma: bool) -> ArrayType:
    """Return the type of a shard. Over Explicit axes that are not manual it is split as the whole is."""
    assert isinstance(aval, ArrayType)
    sharding = sharding_inside(aval.explicit_sharding, manual_axes)
    shape = tuple(d // n for d, n in zip(aval.shape, shards_along(spec, mesh, aval.ndim), strict=True))
    manual = aval.manual
    if check_vma:
        manual = ManualAxisType(
            varying=manual.varying | set(split_axes(spec.partitions)),
            unreduced=manual.unreduced | spec.unreduced,
            reduced=manual.reduced | spec.reduced,
        )
    return array_type(shape, aval.dtype, aval.weak_type, sharding, manual, aval.memory_space)


def global_type(aval: Type, spec: PartitionSpec, mesh: Any, manual_axes: Any, check_vma: bool) -> ArrayType:
    """Return the type of the value that shards of a type are assembled to."""
    assert isinstance(aval, ArrayType)
    if check_vma:
        named = {*split_axes(spec.partitions), *spec.unreduced}
        extra = ((aval.manual.varying | aval.manual.unreduced) & manual_axes) - named
        if extra:
            raise JaxprTypeError(
                f"shard_map: a result varies along {sorted(map(str, extra))}, which its out_spec does not name.",
                received=f"{aval.short()} for {spec}",
            )
    shape = tuple(d * n for d, n in zip(aval.shape, shards_along(spec, mesh, aval.ndim), strict=True))
    rest = {k: getattr(aval.manual, k) - manual_axes for k in ("varying", "unreduced", "reduced")}
    entries = [entry_axes(spec[i]) if i < len(spec) else () for i in range(aval.ndim)]
    inside = [tuple(a for a in entry_axes(e) if a not in manual_axes) for e in aval.spec.partitions]
    whole = [(*own, *more) for own, more in zip(entries, inside, strict=True)]
    sharding = NamedSharding(mesh.abstract_mesh, PartitionSpec(*whole, unreduced=spec.unreduced, reduced=spec.reduced))
    return array_type(shape, aval.dtype, aval.weak_type, sharding, ManualAxisType(**rest), aval.memory_space)


def residual_spec(aval: ArrayType, mesh: Any, manual_axes: Any, check_vma: bool) -> PartitionSpec:
    """Return the spec of a residual outside: split over the axes along which it varies, or over all axes without
    `check_vma`."""
    axes = tuple(a for a in mesh.axis_names if a in manual_axes and (not check_vma or a in aval.manual.varying))
    return PartitionSpec(axes)


def with_ranked_residuals(unknown: Jaxpr, positions: Sequence[int]) -> Jaxpr:
    """Return the unknown jaxpr with stored scalars as arrays of one element."""
    types: list[Any] = [
        v.aval.with_dimension(0, 1) if i < len(positions) and positions[i] < 0 and not v.aval.shape else v.aval  # type: ignore[attr-defined]
        for i, v in enumerate(unknown.invars)
    ]

    def function(*args: Any) -> list[Any]:
        plain = [
            a if a.aval.shape == v.aval.shape else reshape(a, new_sizes=(), dimensions=None)  # type: ignore[attr-defined]
            for a, v in zip(args, unknown.invars, strict=True)
        ]
        return replay(unknown, *plain)

    return stage_subjaxpr(function, types, name=unknown.name)


def sum_without_checks(body: Jaxpr, held: int, ct_specs: Specs, wanted: Specs, mesh: Any, manual_axes: Any) -> Jaxpr:
    """Return a transposed body without `check_vma`. The cotangent of a result that all devices share is divided among
    them, and the cotangents of an operand that all share are summed."""

    def left_out(spec: PartitionSpec) -> tuple[Any, ...]:
        named = set(split_axes(spec.partitions))
        return tuple(a for a in mesh.axis_names if a in manual_axes and a not in named)

    def function(*args: Any) -> list[Any]:
        parts = list(args[:held])
        for cotangent, spec in zip(args[held:], ct_specs, strict=True):
            count = math.prod(mesh.shape[a] for a in left_out(spec))
            divisor = convert_element_type(count, new_dtype=cotangent.dtype, weak_type=False)
            parts.append(cotangent if count == 1 else div(cotangent, divisor))
        results = replay(body, *parts)
        return [psum(r, axes=left_out(s)) if left_out(s) else r for r, s in zip(results, wanted, strict=True)]

    return stage_subjaxpr(function, body.in_avals, name=body.name)


# -- meaning: sums that are still to be done --------------------------------------------------------------------------


def specs_of_terms(spec: PartitionSpec) -> PartitionSpec:
    """Return the spec of a value with its terms along new first dimensions, one for each axis over which it is
    unreduced."""
    return PartitionSpec(*term_axes(spec), *spec.partitions)


def term_axes(spec: PartitionSpec) -> tuple[Any, ...]:
    """Return the axes over which a spec is unreduced, sorted."""
    return tuple(sorted(spec.unreduced, key=str))


def split_terms(x: Any, spec: PartitionSpec, sizes: Any) -> Any:
    """Convert an operand to terms whose sum it is."""
    axes = term_axes(spec)
    return unsum(x, axes=axes, sizes=tuple(sizes[a] for a in axes)) if axes else x


def with_term_dimensions(body: Jaxpr, in_specs: Specs, out_specs: Specs) -> Jaxpr:
    """Return a body whose unreduced operands and results have a first dimension of size 1 for each axis that they are
    unreduced over."""
    count = [len(s.unreduced) for s in in_specs]
    types: list[Any] = [
        t.plain_of_shape((*(1,) * n, *t.shape)) if n else t  # type: ignore[attr-defined]
        for t, n in zip(body.in_avals, count, strict=True)
    ]

    def function(*args: Any) -> list[Any]:
        own = [reshape(a, new_sizes=a.shape[n:], dimensions=None) if n else a for a, n in zip(args, count, strict=True)]
        return [
            reshape(r, new_sizes=(*(1,) * len(s.unreduced), *r.shape), dimensions=None) if s.unreduced else r
            for r, s in zip(replay(body, *own), out_specs, strict=True)
        ]

    return stage_subjaxpr(function, types, name=body.name)


# -- meaning: parts stacked along axes -------------------------------------------------------------------------------


def stack_parts(x: Any, spec: PartitionSpec, sizes: Any, axes: Sequence[Any]) -> Any:
    """Split an array into shards, stacked along leading dimensions: one for each axis that the spec names."""
    shape: list[Any] = []
    where: dict[Any, int] = {}
    local: list[int] = []
    for dim, size in enumerate(x.shape):
        names = entry_axes(spec[dim]) if dim < len(spec) else ()
        for name in names:
            where[name] = len(shape)
            shape.append(sizes[name])
        local.append(len(shape))
        shape.append(size // math.prod(sizes[n] for n in names))
    if not where:
        return x
    x = reshape(x, new_sizes=tuple(shape), dimensions=None)
    return transpose(x, permutation=(*(where[a] for a in axes if a in where), *local))


def join_parts(x: Any, spec: PartitionSpec, sizes: Any, axes: Sequence[Any]) -> Any:
    """Assemble shards that are stacked along the axes of a spec to one array."""
    named = split_axes(spec.partitions)
    if not named:
        return x
    leading = [a for a in axes if a in named]
    local = x.shape[len(leading) :]
    order: list[int] = []
    shape: list[Any] = []
    for dim, size in enumerate(local):
        names = entry_axes(spec[dim]) if dim < len(spec) else ()
        order += [*(leading.index(n) for n in names), len(leading) + dim]
        shape.append(size * math.prod(sizes[n] for n in names))
    return reshape(transpose(x, permutation=tuple(order)), new_sizes=tuple(shape), dimensions=None)


def select_first_along(x: Any, stacked: Sequence[Any], wanted: set[Any]) -> Any:
    """Return the first shard along leading dimensions of axes that are not in `wanted`: all shards along them are
    equal."""
    for dim in reversed(range(len(stacked))):
        if stacked[dim] not in wanted:
            limits = tuple(1 if i == dim else d for i, d in enumerate(x.shape))
            x = slice_primitive(x, start_indices=(0,) * len(limits), limit_indices=limits, strides=None)
            x = reshape(x, new_sizes=(*limits[:dim], *limits[dim + 1 :]), dimensions=None)
    return x
