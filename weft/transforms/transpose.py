"""Transposition: turn a linear jaxpr into one that maps cotangents of its results to cotangents of its arguments."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from weft.base.errors import InternalError
from weft.ir.context import context, join_stacks, with_aval
from weft.ir.higher_order import HigherOrder
from weft.ir.interpreter import literal
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.ir.kinds import Resharding
from weft.ir.primitive import missing
from weft.ir.tangents import instantiate
from weft.ir.types import ArrayType, Type, get_aval
from weft.ir.zeros import Linear, Zero
from weft.primitives.movement.sharding_constraint import cast_to_type, drop_sharding, reshard, split_as
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec
from weft.trace.closed import stage_subjaxpr
from weft.transforms.masked import (
    Masked,
    add_cotangents,
    apply_choices,
    mask_arguments,
    mask_operands,
    mask_result,
    open_call,
)


def backward(
    jaxpr: Jaxpr,
    constants: Sequence[Any],
    args: Sequence[Any],
    cotangents: Sequence[Any],
    unwanted: Set[Atom] = frozenset(),
) -> list[Any]:
    """Return the cotangents of the arguments that are `Linear`, None for the others.

    `args` holds a value for each argument the jaxpr is not linear in. What depends on no linear argument is computed
    first; then the linear equations are transposed in reverse order. Cotangents of `unwanted` arguments are not
    computed.
    """
    return list(map(apply_choices, _backward(jaxpr, constants, args, cotangents, unwanted)))


def _backward(
    jaxpr: Jaxpr,
    constants: Sequence[Any],
    args: Sequence[Any],
    cotangents: Sequence[Any],
    unwanted: Set[Atom] = frozenset(),
) -> list[Any]:
    """Run `backward` with cotangents of results and arguments that may be masked."""
    run = _Backward(dict(zip(jaxpr.constvars, constants, strict=True)), unwanted)
    for v, a in zip(jaxpr.invars, args, strict=True):
        if type(a) is Linear:
            run.linear.add(v)
        else:
            run.values[v] = a
    try:
        equations = run.evaluate_nonlinear(jaxpr.eqns)
        for result, ct in zip(jaxpr.outvars, cotangents, strict=True):
            run.add(result, ct if ct is None or type(ct) in (Zero, Masked) else with_aval(ct))
        run.transpose_linear(equations)
    finally:
        context.source, context.stack = run.source, run.stack
    return [
        run.cotangents.get(v, Zero(v.aval.cotangent())) if type(a) is Linear else None
        for v, a in zip(jaxpr.invars, args, strict=True)
    ]


class _Backward:
    """State of one backward pass: the values of nonlinear variables, and the cotangents of linear variables summed so
    far."""

    def __init__(self, values: dict[Atom, Any], unwanted: Set[Atom] = frozenset()):
        self.values = values
        self.unwanted = set(unwanted)
        self.linear: set[Atom] = set()
        self.cotangents: dict[Atom, Any] = {}
        self.source, self.stack = context.source, context.stack

    def enter(self, equation: Equation) -> list[Any]:
        """Set the line and the name stack for equations recorded on behalf of `equation`; return its operands."""
        context.source = equation.source or self.source
        context.stack = join_stacks(self.stack, equation.stack)
        return [self.read(v) for v in equation.invars]

    def read(self, atom: Atom) -> Any:
        if type(atom) is Literal:
            return with_aval(literal(atom))
        return Linear(atom.aval) if atom in self.linear else self.values[atom]

    def evaluate_nonlinear(self, equations: Sequence[Equation]) -> list[Equation]:
        """Compute the values that depend on no linear argument; return the other equations."""
        linear, rest = self.linear, []
        for equation in equations:
            if any(v in linear for v in equation.invars):
                linear.update(equation.outvars)
                rest.append(equation)
                # What depends on unwanted arguments only has cotangents that end there.
                if self.unwanted and all(v in self.unwanted for v in equation.invars if v in linear):
                    self.unwanted.update(equation.outvars)
                continue
            results = context.trace.process(equation.primitive, self.enter(equation), equation.params)
            self.values.update(zip(equation.outvars, results, strict=True))
        return rest

    def add(self, atom: Atom, cotangent: Any) -> None:
        """Add to the cotangent of a variable, if it is linear."""
        if type(atom) is Literal or cotangent is None or type(cotangent) is Zero or atom not in self.linear:
            return
        if atom in self.unwanted:
            return
        before = self.cotangents.get(atom)
        self.cotangents[atom] = cotangent if before is None else add_cotangents(before, cotangent)

    def transpose_linear(self, equations: Sequence[Equation]) -> None:
        """Transpose the equations in reverse order, from the cotangents of results to those of the arguments."""
        for equation in reversed(equations):
            found = [self.cotangents.pop(v, None) for v in equation.outvars]
            if all(ct is None for ct in found):
                continue
            operands = self.enter(equation)
            cotangents = [
                Zero(v.aval.cotangent()) if ct is None else ct for v, ct in zip(equation.outvars, found, strict=True)
            ]
            masked = mask_result(equation, cotangents, operands)
            if masked is not None:
                results = _transpose(equation, [masked.value], operands)
                results = mask_operands(equation, masked, operands, results)
            elif (inner := open_call(equation, cotangents)) is not None:
                results = _backward(inner, inner.consts, operands, cotangents)
            else:
                results = _transpose(equation, list(map(apply_choices, cotangents)), operands)
                results = mask_arguments(equation, operands, results)
            for operand, ct in zip(equation.invars, results, strict=True):
                self.add(operand, ct)


def _transpose(equation: Equation, cotangents: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
    """Return the cotangents of an equation's operands, one for each, from those of its results, by the rule of its
    primitive."""
    primitive = equation.primitive
    if primitive.multilinear and sum(type(o) is Linear for o in operands) > 1:
        raise missing(
            f"`{primitive.name}` multiplies two values that depend on the arguments: the function is not linear."
        )
    typed = any(_sharding(v.aval) is not None for v in (*equation.invars, *equation.outvars))
    if isinstance(primitive, HigherOrder):
        found = primitive.transpose_through(transpose_jaxpr, cotangents, operands, **equation.params)
    elif typed and not (
        primitive.pointwise
        or isinstance(primitive, Resharding)
        or (primitive.copies == "all" and not _is_unreduced(cotangents))
    ):
        # Transpose with plain types: the sum of a contraction over a split dimension is determined by the type of the
        # operand whose cotangent it is, and zeros next to a cotangent would be added once for each device otherwise.
        cts = [ct if type(ct) is Zero else drop_sharding(ct) for ct in cotangents]
        args = [Linear(_unsplit(o.aval)) if type(o) is Linear else drop_sharding(o) for o in operands]
        found = primitive.transpose(cts if primitive.multiple_results else cts[0], *args, **equation.params)
        mesh = next(m for m in map(_mesh, (*equation.invars, *equation.outvars)) if m is not None)
        found = [_replicate(ct, v.aval, mesh) for ct, v in zip(found, equation.invars, strict=True)]
    else:
        found = primitive.transpose(
            cotangents if primitive.multiple_results else cotangents[0], *operands, **equation.params
        )
    if typed:
        # Pointwise operations take operands without a sharding next to split ones, and their cotangents are split as
        # those are.
        found = [
            ct if ct is None or type(ct) is Zero else split_as(ct, v.aval.cotangent())
            for ct, v in zip(found, equation.invars, strict=True)
        ]
    if len(found) != len(operands):
        raise InternalError(
            f"The transpose rule of {primitive.name} must return {len(operands)} cotangents, got {len(found)}."
        )
    return found


def _sharding(aval: Any) -> Any:
    """Return the sharding over Explicit axes that a type records, or None."""
    return getattr(aval, "explicit_sharding", None)


def _unsplit(aval: Any) -> Any:
    """Remove the sharding over Explicit axes from a type. Its state along Manual axes stays, because the transposes of
    collectives depend on it."""
    return aval.with_placement(sharding=None) if isinstance(aval, ArrayType) else aval.plain


def _mesh(v: Atom) -> Any:
    """Return the mesh of a variable's type, or None."""
    return getattr(_sharding(v.aval), "mesh", None)


def _replicate(cotangent: Any, aval: Any, mesh: Any) -> Any:
    """Replicate a cotangent if its value is replicated: the value's type has no sharding, and all axes of the mesh are
    Explicit."""
    if (
        cotangent is None
        or type(cotangent) is Zero
        or not isinstance(aval, ArrayType)
        or aval.explicit_sharding is not None
        or not mesh.are_all_axes_explicit
    ):
        return cotangent
    return reshard(cotangent, sharding=NamedSharding(mesh, PartitionSpec(*[None] * len(aval.shape))), source=None)


def _is_unreduced(cotangents: Sequence[Any]) -> bool:
    """Return whether some cotangent is unreduced: a sum over mesh axes is pending."""
    shardings = [None if type(ct) is Zero else _sharding(get_aval(ct)) for ct in cotangents]
    return any(s is not None and s.spec.unreduced for s in shardings)


def transpose_jaxpr(
    jaxpr: Jaxpr,
    linear: Sequence[bool],
    nonzero: Sequence[bool],
    instantiated: bool | Sequence[bool] = False,
    takes_refs: bool = False,
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Transpose a jaxpr that is linear in the marked arguments.

    Return a jaxpr from its other arguments and the nonzero cotangents of its results, to the nonzero cotangents
    of its linear arguments, and for each linear argument whether its cotangent is among them; those marked in
    `instantiated` (one flag per linear argument) always are. If `takes_refs`, the jaxpr may use mutable arrays that
    backward rules touch: `get_touched_refs` returns them.
    """
    count = sum(linear)
    force = (instantiated,) * count if isinstance(instantiated, bool) else tuple(instantiated)
    key = ("transpose", tuple(linear), tuple(nonzero), force, takes_refs)
    return jaxpr.memoize(key, lambda: _transpose_jaxpr(jaxpr, tuple(linear), tuple(nonzero), force, takes_refs))


def _transpose_jaxpr(
    jaxpr: Jaxpr, linear: tuple[bool, ...], nonzero: tuple[bool, ...], force: tuple[bool, ...], takes_refs: bool
) -> tuple[Jaxpr, tuple[bool, ...]]:
    held: list[Type] = [v.aval for v, n in zip(jaxpr.invars, linear, strict=True) if not n]
    incoming: list[Type] = [v.aval.cotangent() for v, n in zip(jaxpr.outvars, nonzero, strict=True) if n]
    nonzero_out: list[bool] = []

    def function(*flat: Any) -> list[Any]:
        known, rest = iter(flat[: len(held)]), iter(flat[len(held) :])
        args = [Linear(v.aval) if n else next(known) for v, n in zip(jaxpr.invars, linear, strict=True)]
        cts = [next(rest) if n else Zero(v.aval.cotangent()) for v, n in zip(jaxpr.outvars, nonzero, strict=True)]
        outs = [ct for ct, n in zip(backward(jaxpr, jaxpr.consts, args, cts), linear, strict=True) if n]
        nonzero_out.extend(type(ct) is not Zero or f for ct, f in zip(outs, force, strict=True))
        types = [v.aval.cotangent() for v, n in zip(jaxpr.invars, linear, strict=True) if n]
        return [cast_to_type(instantiate(ct), t) for ct, t, n in zip(outs, types, nonzero_out, strict=True) if n]

    result = stage_subjaxpr(function, [*held, *incoming], name=jaxpr.name, takes_refs=takes_refs)
    return result, tuple(nonzero_out)


def backward_to_arrays(
    jaxpr: Jaxpr, constants: Sequence[Any], cotangents: Sequence[Any], wanted: Sequence[bool] | None = None
) -> list[Any]:
    """Return the cotangents of all arguments of a jaxpr that is linear in all of them, as arrays; zeros, without
    computing anything, for arguments that are not `wanted`."""
    args = [Linear(v.aval) for v in jaxpr.invars]
    unwanted = {v for v, w in zip(jaxpr.invars, wanted or (), strict=False) if not w}
    found = backward(jaxpr, constants, args, cotangents, unwanted)
    return [_replicate_like(instantiate(ct), v.aval) for ct, v in zip(found, jaxpr.invars, strict=True)]


def _replicate_like(cotangent: Any, aval: Any) -> Any:
    """Replicate a cotangent if its value is replicated. Inside of a backward pass it may be split like its other
    factor, so that it is not communicated before it is summed."""
    sharding = _sharding(get_aval(cotangent))
    return cotangent if sharding is None else _replicate(cotangent, aval, sharding.mesh)
