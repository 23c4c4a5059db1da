"""`custom_linear_solve`: a linear system solved by the user's own solver, differentiated by the system it solves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.ir.higher_order import HigherOrder, check_operands
from weft.ir.interpreter import replay, run
from weft.ir.jaxpr import Jaxpr
from weft.ir.primitive import Axis, No, Params, primitive
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import Type, get_aval
from weft.ir.varying import manual_state
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.call import batch_first
from weft.primitives.elementwise.arithmetic import neg
from weft.primitives.movement.shape import move_batch_to_front
from weft.sharding.manual import ManualAxisType


@dataclass(frozen=True)
class Counts:
    """Numbers of constants of the operator, the solver, and the same two for the transposed system."""

    matvec: int
    solve: int
    vecmat: int
    transpose_solve: int

    def split(self, values: Sequence[Any]) -> list[list[Any]]:
        """Split operands into the constants of each of the four jaxprs, and the right-hand side."""
        parts, start = [], 0
        for count in (self.matvec, self.solve, self.vecmat, self.transpose_solve):
            parts.append(list(values[start : start + count]))
            start += count
        return [*parts, list(values[start:])]


@primitive
class custom_linear_solve(HigherOrder):
    """The x with `matvec(x) = b`, computed by `solve`. Operands: constants of the four jaxprs, then b.

    `solve` may return more than x: auxiliary results, which have no derivative.
    """

    def type(self, *types: Type, matvec: Jaxpr, solve: Jaxpr, counts: Counts, **params: Any) -> list[Type]:
        _, constants, _, _, b = counts.split(types)
        check_operands(self.name, [*constants, *b], solve.in_avals)
        return solve.out_avals

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        _, solve, _, _, b = params["counts"].split(types)
        return list(map(manual_state, [*types[: len(types) - len(b)], *params["solve"].in_avals[len(solve) :]]))

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["solve"].effects
        return result

    def eval(self, *arrays: Any, solve: Jaxpr, counts: Counts, **params: Any) -> list[Any]:
        _, constants, _, _, b = counts.split(arrays)
        return run(solve, (*constants, *b))

    def definition(self, *args: Any, solve: Jaxpr, counts: Counts, **params: Any) -> Any:
        """Return the results of the user's solver."""
        _, constants, _, _, b = counts.split(args)
        return replay(solve, *constants, *b)

    def as_call(self, operands: Sequence[Any], params: Params) -> tuple[Jaxpr, Sequence[Any]]:
        _, constants, _, _, b = params["counts"].split(operands)
        return params["solve"], (*constants, *b)

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        matvec: Jaxpr,
        counts: Counts,
        **params: Any,
    ) -> Any:
        """Solve A dx = db - dA x, which follows from A x = b: another system with the same operator."""
        results = self(*primals, matvec=matvec, counts=counts, **params)
        operator, _, _, _, b = counts.split(primals)
        d_operator, _, _, _, db = counts.split(tangents)
        size = len(b)
        x, missing = results[:size], [Zero.of(get_aval(r)) for r in results[size:]]
        right: list[Any] = list(db)
        varies = [type(t) is not Zero for t in d_operator]
        if any(varies):
            pushed, nonzero = through(matvec, [*varies, *[False] * size])
            operator_tangents = [t for t in d_operator if type(t) is not Zero]
            change = iter(replay(pushed, *operator, *x, *operator_tangents)[size:])
            right = [accumulate(t, neg(next(change))) if n else t for t, n in zip(right, nonzero, strict=True)]
        if all(type(t) is Zero for t in right):
            return results, [*(Zero.of(get_aval(v)) for v in x), *missing]
        constants = primals[: len(primals) - size]
        solved = self(*constants, *(instantiate(t) for t in right), matvec=matvec, counts=counts, **params)
        return results, [*solved[:size], *missing]

    def transpose_through(
        self,
        through: Any,
        cotangents: Sequence[Any],
        args: Sequence[Any],
        *,
        matvec: Jaxpr,
        solve: Jaxpr,
        vecmat: Jaxpr | None,
        transpose_solve: Jaxpr | None,
        counts: Counts,
    ) -> Any:
        """Solve the transposed system for the cotangent of b."""
        operator, solver, transposed, transposed_solver, b = counts.split(args)
        if vecmat is None or transpose_solve is None:
            what = "Reverse mode of lax.custom_linear_solve solves the transposed system, for which it has no solver."
            fix = "give transpose_solve, or symmetric=True if the operator is symmetric"
            raise ArgumentError(what, fix=fix)
        swapped = Counts(counts.vecmat, counts.transpose_solve, counts.matvec, counts.solve)
        found = self(
            *transposed, *transposed_solver, *operator, *solver,
            *(instantiate(c) for c in cotangents[: len(b)]),
            matvec=vecmat, solve=transpose_solve, vecmat=matvec, transpose_solve=solve, counts=swapped,
        )  # fmt: skip
        return [
            *[None] * (len(args) - len(b)),
            *(c if type(a) is Linear else None for c, a in zip(found, b, strict=False)),
        ]

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        counts: Counts,
        **jaxprs: Jaxpr | None,
    ) -> Any:
        operands = batch_first(args, dims)
        size = len(counts.split(args)[4])
        # The right-hand side and the solution are batched, whichever of the operands is.
        *constants, b = counts.split(operands)
        b = [
            move_batch_to_front(x, 0 if d is not None else None, axis)
            for x, d in zip(b, dims[len(args) - size :], strict=True)
        ]
        masks = counts.split([d is not None for d in dims])
        names = ("matvec", "solve", "vecmat", "transpose_solve")
        batched = {}
        for name, mask in zip(names, masks, strict=False):
            jaxpr = jaxprs[name]
            batched[name] = None if jaxpr is None else through(jaxpr, axis, [*mask, *[True] * size], True)[0]
        results = self(*(c for part in constants for c in part), *b, counts=counts, **batched)
        return results, [0] * len(results)

    factors = No("its solver sees the whole system")

    def samples(self) -> Any:
        return iter(())  # has sub-jaxprs; the tests of solvers cover it
