"""`jit`: a call of a staged function as one equation, so that equal calls are traced, transformed and compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft.ir.higher_order import HigherOrder, check_operands
from weft.ir.interpreter import run
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.partial_eval import PartialJaxpr, partial_eval, remat_split_jaxpr
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import RematSplit, Split
from weft.ir.types import Type
from weft.ir.varying import manual_state
from weft.ir.zeros import Linear, Zero
from weft.primitives.movement.shape import move_axis
from weft.sharding.manual import ManualAxisType
from weft.trace.refs import get_touched_refs, ref_values, write_back


class Call(HigherOrder):
    """Call of `jaxpr`. Parameters besides `jaxpr` and `donated` pass through every transformation."""

    opens: ClassVar[str | None] = "jaxpr"
    taylor_inside = True

    def type(self, *types: Type, jaxpr: Jaxpr, **params: Any) -> list[Type]:
        check_operands(self.name, types, jaxpr.in_avals)
        return jaxpr.out_avals

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        return list(map(manual_state, params["jaxpr"].in_avals))

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["jaxpr"].effects
        return result

    def eval(self, *arrays: Any, jaxpr: Jaxpr, **params: Any) -> list[Any]:
        return run(jaxpr, arrays)

    def as_call(self, operands: Sequence[Any], params: Params) -> tuple[Jaxpr, Sequence[Any]]:
        return params["jaxpr"], operands

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Jaxpr, **params: Any
    ) -> Any:
        nonzero = [type(t) is not Zero for t in tangents]
        pushed, nonzero_out = through(jaxpr, nonzero)
        results = self(
            *primals, *(t for t in tangents if type(t) is not Zero), jaxpr=pushed, **self.derive_params(params)
        )
        outs, rest = results[: len(jaxpr.outvars)], iter(results[len(jaxpr.outvars) :])
        return outs, [next(rest) if n else Zero.of(v.aval) for v, n in zip(jaxpr.outvars, nonzero_out, strict=True)]

    def batch_through(
        self, through: Any, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: Jaxpr, **params: Any
    ) -> Any:
        batched, batched_out = through(jaxpr, axis, [d is not None for d in dims])
        results = self(*batch_first(args, dims), jaxpr=batched, **self.derive_params(params))
        return results, [0 if b else None for b in batched_out]

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        jaxpr: Jaxpr = params["jaxpr"]
        known, parts, residuals = jaxpr.memoize(
            ("partial_eval", tuple(unknown)), lambda: forward_residuals(partial_eval(jaxpr, unknown), unknown)
        )
        rest = self.derive_params({k: v for k, v in params.items() if k != "jaxpr"})
        return split_call(
            (self, {**rest, "jaxpr": known}), (self, {**rest, "jaxpr": parts.unknown}), parts, residuals, unknown
        )

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Any) -> RematSplit | None:
        found = remat_split_jaxpr(params["jaxpr"], saveable)
        if found is None:
            return None
        first, second, stored = found
        rest = self.derive_params({k: v for k, v in params.items() if k != "jaxpr"})
        count, results = len(types), len(params["jaxpr"].outvars)
        return RematSplit(
            first=(self, {**rest, "jaxpr": first}),
            first_types=tuple(first.out_avals),
            stored=tuple(range(results, results + len(stored))),
            second=(self, {**rest, "jaxpr": second}),
            second_in=(*range(count), *(~k for k in range(len(stored)))),
            whole=tuple(k for k, v in enumerate(params["jaxpr"].outvars) if v in stored),
        )

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], *, jaxpr: Jaxpr, **params: Any
    ) -> Any:
        linear = [type(a) is Linear for a in args]
        nonzero = [type(c) is not Zero for c in cotangents]
        pulled, nonzero_out = through(jaxpr, linear, nonzero, takes_refs=True)
        held = [a for a, n in zip(args, linear, strict=True) if not n]
        touched = get_touched_refs(pulled)
        incoming = (*(c for c in cotangents if type(c) is not Zero), *ref_values(touched))
        found = self(*held, *incoming, jaxpr=pulled, **self.derive_params(params))
        write_back(touched, found[sum(nonzero_out) :])
        results, flags = iter(found), iter(nonzero_out)
        return [
            (next(results) if next(flags) else Zero(a.aval.cotangent())) if n else None
            for a, n in zip(args, linear, strict=True)
        ]

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        jaxpr: Jaxpr = params["jaxpr"]
        smaller, used = jaxpr.memoize(("drop_dead", tuple(live_results)), lambda: drop_dead(jaxpr, live_results, False))
        return used, self.derive_params({**params, "jaxpr": smaller}), list(live_results)

    def derive_params(self, params: Params) -> Params:
        """Return the parameters of a call derived from this one: nothing is donated there."""
        return params

    def samples(self) -> Any:
        return iter(())  # has a sub-jaxpr; the composition tests cover it


def forward_residuals(parts: PartialJaxpr, unknown: Sequence[bool]) -> tuple[Jaxpr, PartialJaxpr, tuple[int, ...]]:
    """Remove residuals that are arguments of the known jaxpr. Return it, and for each residual its source on the
    unknown side: the index of an operand of the equation, or `~k` for remaining residual k."""
    operand_index = dict(zip(parts.known.invars, (i for i, u in enumerate(unknown) if not u), strict=True))
    count = len(parts.known.outvars) - len(parts.residual_types)
    remaining: list[Any] = []
    found: list[int] = []
    for v in parts.known.outvars[count:]:
        if v in operand_index:
            found.append(operand_index[v])
        else:
            found.append(~len(remaining))
            remaining.append(v)
    return parts.known.replace(outvars=[*parts.known.outvars[:count], *remaining]), parts, tuple(found)


def split_call(
    known: Any, waiting: Any, parts: PartialJaxpr, residuals: Sequence[int], unknown: Sequence[bool]
) -> Split:
    """Return the split of a call whose known and unknown parts are calls again."""
    return Split(
        known=known,
        known_in=tuple(i for i, u in enumerate(unknown) if not u),
        unknown=waiting,
        unknown_in=(*residuals, *(i for i, u in enumerate(unknown) if u)),
        unknown_out=parts.unknown_out,
        residual_types=tuple(t for t, r in zip(parts.residual_types, residuals, strict=True) if r < 0),
    )


def batch_first(args: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """Move the batch dimensions of operands to the front."""
    return [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]


@primitive
class jit(Call):
    """Call of a staged function by name. `donated` marks operands whose buffers the call may overwrite."""

    staged_alone = True

    def derive_params(self, params: Params) -> Params:
        return {k: v for k, v in params.items() if k != "donated"}
