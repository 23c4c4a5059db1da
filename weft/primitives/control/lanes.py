"""`lanes`: a function run for every lane of a batch, whose results count only in the lanes where a flag holds.

vmap creates it from a branch whose predicate differs between lanes, and from the body of a loop that lanes leave at
different times. It is a call of the batched jaxpr, and costs nothing more. Derivatives need it: in a lane without the
flag a derivative may be infinite or nan, and zero times that is nan, which would reach values that all lanes share. So
the transposed jaxpr reads 1 in place of the residuals of such a lane, and a cotangent of zero stays zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.ir.batching import batch_jaxpr
from weft.ir.context import EVALUATION, bind_axis, context
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, Var, drop_dead, named_axes
from weft.ir.partial_eval import partial_eval, remat_split_jaxpr
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import RematSplit, Split
from weft.ir.types import ArrayType, Type, get_aval
from weft.ir.unplaced import varying_along
from weft.ir.varying import manual_state
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.call import Call, batch_first, forward_residuals, jit as jit_primitive
from weft.primitives.control.masked import FLAG
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front
from weft.primitives.reduction.reduce_other import reduce_or

Flags = tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class Lane:
    """Program of one lane: a jaxpr of the flag and the operands. `axes` are the batches around it, outermost first;
    `batched` marks, for each operand, the axes over which it has a leading dimension, `forced`, for each result, those
    over which it must have one."""

    jaxpr: Jaxpr
    axes: tuple[Axis, ...]
    batched: tuple[Flags, ...]
    forced: tuple[Flags, ...]

    def over_all(self) -> tuple[Jaxpr, tuple[Flags, ...]]:
        """Return the jaxpr of all lanes, and for each result the axes over which it has a leading dimension."""
        return self.jaxpr.memoize(("lanes", self.axes, self.batched, self.forced), self._over_all)

    def _over_all(self) -> tuple[Jaxpr, tuple[Flags, ...]]:
        jaxpr = self.jaxpr
        found: list[Flags] = [() for _ in jaxpr.outvars]
        for i in reversed(range(len(self.axes))):
            batched, forced = [b[i] for b in self.batched], [f[i] for f in self.forced]
            jaxpr, out = batch_jaxpr(jaxpr, self.axes[i], batched, forced)
            found = [(o, *f) for o, f in zip(out, found, strict=True)]
        return jaxpr, tuple(found)

    @contextmanager
    def bind_names(self) -> Iterator[None]:
        """Bring the names of the axes into scope, so that the jaxpr can be traced."""
        with ExitStack() as stack:
            for axis in self.axes:
                if axis.name is not None:
                    stack.enter_context(bind_axis(axis.name, axis.size))
            yield

    def __repr__(self) -> str:
        return f"{'x'.join(str(a.size) for a in self.axes)}"


def run_lanes(jaxpr: Jaxpr, axis: Axis, flag: Any, operands: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Return the results, all batched, of a jaxpr of a flag and operands; they count in lanes where the flag holds."""
    jaxpr = varying_along(jaxpr, manual_state(get_aval(flag)).varying)
    forced = ((True,),) * len(jaxpr.outvars)
    lane = Lane(jaxpr, (axis,), ((True,), *((b,) for b in batched)), forced)
    whole, _ = lane.over_all()
    differentiable = any(map(is_inexact, jaxpr.in_avals)) and any(map(is_inexact, jaxpr.out_avals))
    if context.trace is EVALUATION or not differentiable:
        return replay(whole, flag, *operands)
    result: list[Any] = lanes(flag, *operands, jaxpr=whole, lane=lane, name=jaxpr.name)
    return result


def with_flag(jaxpr: Jaxpr, flag: Type = FLAG) -> Jaxpr:
    """Prepend an argument that the jaxpr does not read."""
    return jaxpr.replace(invars=(Var(flag), *jaxpr.invars))


def is_inexact(aval: Type) -> bool:
    return isinstance(aval, ArrayType) and dtypes.issubdtype(aval.dtype, np.inexact)


@primitive
class lanes(Call):
    """Results of `jaxpr` on the flag and the operands. `lane` is the program of one lane; derivatives use it."""

    taylor_inside = False

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Jaxpr, lane: Lane, name: str
    ) -> Any:
        nonzero = [type(t) is not Zero for t in tangents]
        with lane.bind_names():
            pushed, nonzero_out = through(lane.jaxpr, nonzero)
        batched = (*lane.batched, *(b for b, n in zip(lane.batched, nonzero, strict=True) if n))
        forced = (*lane.forced, *(f for f, n in zip(lane.forced, nonzero_out, strict=True) if n))
        operands = (*primals, *(t for t, n in zip(tangents, nonzero, strict=True) if n))
        results = self.bound(operands, Lane(pushed, lane.axes, batched, forced), name)
        outs, rest = results[: len(jaxpr.outvars)], iter(results[len(jaxpr.outvars) :])
        return outs, [next(rest) if n else Zero.of(v.aval) for v, n in zip(jaxpr.outvars, nonzero_out, strict=True)]

    def bound(self, operands: Sequence[Any], lane: Lane, name: str) -> list[Any]:
        result: list[Any] = self(*operands, **self.make_params(lane, name))
        return result

    def make_params(self, lane: Lane, name: str) -> Params:
        with lane.bind_names():
            return {"jaxpr": lane.over_all()[0], "lane": lane, "name": name}

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        jaxpr: Jaxpr,
        lane: Lane,
        name: str,
    ) -> Any:
        flag = move_batch_to_front(args[0], dims[0], axis)
        batched = tuple((d is not None or i == 0, *b) for i, (d, b) in enumerate(zip(dims, lane.batched, strict=True)))
        outer = Lane(lane.jaxpr, (axis, *lane.axes), batched, tuple((False, *f) for f in lane.forced))
        results = self.bound((flag, *batch_first(args[1:], dims[1:])), outer, name)
        return results, [0 if b[0] else None for b in outer.over_all()[1]]

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        lane: Lane = params["lane"]
        if unknown[0]:
            return None
        known, waiting, residual_in, out = lane.jaxpr.memoize(
            ("split lanes", lane.axes, lane.batched, lane.forced, tuple(unknown)), lambda: split(lane, unknown)
        )
        known_params = self.make_params(known, params["name"])
        residuals = known_params["jaxpr"].out_avals[len(out) - sum(out) :]
        return Split(
            known=(self, known_params),
            known_in=tuple(i for i, u in enumerate(unknown) if not u),
            unknown=(self, self.make_params(waiting, params["name"])),
            unknown_in=(0, *residual_in, *(i for i, u in enumerate(unknown) if u)),
            unknown_out=out,
            residual_types=tuple(residuals),
        )

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Any) -> RematSplit | None:
        lane: Lane = params["lane"]
        with lane.bind_names():
            found = remat_split_jaxpr(lane.jaxpr, saveable)
        if found is None:
            return None
        first, second, stored = found
        free = (False,) * len(lane.axes)
        stores = Lane(first, lane.axes, lane.batched, (*lane.forced, *[free] * len(stored)))
        first_params, results = self.make_params(stores, params["name"]), len(lane.forced)
        batched = (*lane.batched, *stores.over_all()[1][results:])
        return RematSplit(
            first=(self, first_params),
            first_types=tuple(first_params["jaxpr"].out_avals),
            stored=tuple(range(results, results + len(stored))),
            second=(self, self.make_params(Lane(second, lane.axes, batched, lane.forced), params["name"])),
            second_in=(*range(len(types)), *(~k for k in range(len(stored)))),
        )

    def transpose_through(
        self,
        through: Any,
        cotangents: Sequence[Any],
        args: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        lane: Lane,
        name: str,
    ) -> Any:
        linear = [type(a) is Linear for a in args]
        # What does not depend on the linear operands is computed first, from the operands themselves.
        known, lane, residual_in, _ = split(lane, linear, True)
        held = [a for a, n in zip(args, linear, strict=True) if not n]
        saved = self.bound(held, known, name) if known.jaxpr.eqns else replay(known.over_all()[0], *held)
        operands = [args[0], *(args[p] if p >= 0 else saved[~p] for p in residual_in)]
        # Where lanes communicate, values sent by a lane count in others, even if its own flag is false.
        apart = not any(axis.name in named_axes(lane.jaxpr) for axis in lane.axes if axis.name is not None)
        safe = [
            mask_with_ones(args[0], a, b) if apart and is_inexact(get_aval(a)) else a
            for a, b in zip(operands, lane.batched, strict=False)
        ]
        with lane.bind_names():
            whole, _ = lane.over_all()
            count = len(whole.invars) - len(safe)
            nonzero = [type(c) is not Zero for c in cotangents]
            pulled, nonzero_out = through(whole, [*[False] * len(safe), *[True] * count], nonzero)
        nonzero_cotangents = (c for c, n in zip(cotangents, nonzero, strict=True) if n)
        results = iter(jit_primitive(*safe, *nonzero_cotangents, jaxpr=pulled, name=name))
        flags = iter(nonzero_out)
        return [
            (next(results) if next(flags) else Zero(a.aval.cotangent())) if n else None
            for a, n in zip(args, linear, strict=True)
        ]

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        lane: Lane = params["lane"]
        keep = [i == 0 for i in range(len(lane.batched))]
        smaller, used = drop_dead(lane.jaxpr, live_results, keep)
        batched = tuple(b for b, u in zip(lane.batched, used, strict=True) if u)
        forced = tuple(f for f, live in zip(lane.forced, live_results, strict=True) if live)
        # Results have the same leading dimensions as before, since their operands have.
        return used, self.make_params(Lane(smaller, lane.axes, batched, forced), params["name"]), list(live_results)


def split(lane: Lane, unknown: Sequence[bool], instantiate: bool = False) -> tuple[Lane, Lane, tuple[int, ...], Flags]:
    """Split a lane into the computation on its known operands and the rest. Return both, the source of each residual
    that the rest reads (the index of an operand, or `~k` for a saved value), and which results are unknown."""
    with lane.bind_names():
        known_jaxpr, parts, residual_in = forward_residuals(
            partial_eval(lane.jaxpr, unknown, instantiate=instantiate), unknown
        )
        batched = tuple(b for b, u in zip(lane.batched, unknown, strict=True) if not u)
        results = tuple(f for f, u in zip(lane.forced, parts.unknown_out, strict=True) if not u)
        free = (False,) * len(lane.axes)
        known = Lane(known_jaxpr, lane.axes, batched, (*results, *[free] * (len(known_jaxpr.outvars) - len(results))))
        saved = known.over_all()[1][len(results) :]
    waiting = Lane(
        with_flag(parts.unknown, lane.jaxpr.in_avals[0]),
        lane.axes,
        (
            lane.batched[0],
            *(lane.batched[p] if p >= 0 else saved[~p] for p in residual_in),
            *(b for b, u in zip(lane.batched, unknown, strict=True) if u),
        ),
        tuple(f for f, u in zip(lane.forced, parts.unknown_out, strict=True) if u),
    )
    return known, waiting, residual_in, parts.unknown_out


def mask_with_ones(flag: Any, value: Any, batched: Flags) -> Any:
    """Replace a value by 1 in lanes without the flag, where every derivative is then finite. A value that several lanes
    share is kept if the flag holds in one of them."""
    shared = tuple(i for i, b in enumerate(batched) if not b)
    mask = reduce_or(flag, axes=shared) if shared else flag
    shape = value.shape
    mask = broadcast_in_dim(mask, shape=shape, broadcast_dimensions=tuple(range(len(mask.shape))))
    one = np.ones((), dtypes.storage(value.dtype))
    return select_n(mask, broadcast_in_dim(one, shape=shape, broadcast_dimensions=()), value)
