"""`custom_vmap_call`: a call whose batch the user's rule computes.

Calls derived from it (tangents, cotangents) have rules derived from the user's: the derivative of a batch is the
derivative of the function that the rule computes. So reverse mode does not save intermediate values of the function:
the backward call takes its arguments, and computes again what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import CustomRuleError
from weft.ir.context import current_line
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.partial_eval import partial_eval
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import RematSplit, Split
from weft.ir.types import Type
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.call import Call, batch_first
from weft.primitives.control.custom import inexact
from weft.primitives.control.loop_bodies import others, pick
from weft.primitives.movement.shape import move_batch_to_front
from weft.trace.closed import stage_subjaxpr

Mask = tuple[bool, ...]
# From an axis and which arguments are batched, to the jaxpr over them and which of its results are batched.
Make = Callable[[Axis, Mask], tuple[Jaxpr, Mask]]
# The same, on arguments.
Run = Callable[[Axis, Mask, Sequence[Any]], tuple[Sequence[Any], Mask]]


class VmapRule:
    """Batching rule of a call; batch dimensions are the first ones. `run`, if given, computes the batch directly.
    `primal` is the pair (arguments, results) of a jvp: its first `results` depend only on its first `arguments`."""

    def __init__(self, make: Make, name: str, run: Run | None = None, primal: tuple[int, int] | None = None):
        self._make, self.name, self.run, self.primal = make, name, run, primal
        self._results: dict[Any, tuple[Jaxpr, Mask]] = {}

    def jaxpr(self, axis: Axis, batched: Sequence[bool]) -> tuple[Jaxpr, Mask]:
        """Return the jaxpr for arguments batched as marked, and which of its results are batched."""
        key = (axis, tuple(batched))
        found = self._results.get(key)
        if found is None:
            found = self._results[key] = self._make(*key)
        return found

    def apply(self, axis: Axis, batched: Sequence[bool], args: Sequence[Any]) -> tuple[Sequence[Any], Mask]:
        """Return the results for batched arguments, and which of them are batched."""
        if self.run is not None:
            return self.run(axis, tuple(batched), args)
        jaxpr, out = self.jaxpr(axis, batched)
        return replay(jaxpr, *args), out

    def __repr__(self) -> str:
        return self.name

    # -- rules of derived calls --------------------------------------------------------------------------------------

    def jvp(self, through: Any, nonzero: Sequence[bool], instantiated: Sequence[bool]) -> VmapRule:
        """Return the rule of the jvp: a tangent is batched as its primal is."""
        count = len(nonzero)

        def make(axis: Axis, batched: Mask) -> tuple[Jaxpr, Mask]:
            tangents = iter(batched[count:])
            both = [b or (n and next(tangents)) for b, n in zip(batched[:count], nonzero, strict=True)]
            jaxpr, out = self.jaxpr(axis, both)
            result, _ = through(jaxpr, list(nonzero), list(instantiated))
            return broadcast_arguments(result, axis, batched, [*both, *pick(both, nonzero)]), (
                *out,
                *pick(out, instantiated),
            )

        return VmapRule(make, self.name, primal=(count, len(instantiated)))

    def transpose(self, through: Any, linear: Sequence[bool], nonzero: Sequence[bool]) -> VmapRule:
        """Return the rule of the transpose: all cotangents are batched."""

        def make(axis: Axis, batched: Mask) -> tuple[Jaxpr, Mask]:
            held = iter(batched[: len(linear) - sum(linear)])
            jaxpr, out = self.jaxpr(axis, [n or next(held) for n in linear])
            jaxpr = batch_results(jaxpr, axis, out)
            result, _ = through(jaxpr, list(linear), list(nonzero), True)
            rest = len(batched) - sum(nonzero)
            return broadcast_arguments(result, axis, batched, [*batched[:rest], *[True] * sum(nonzero)]), (True,) * sum(
                linear
            )

        return VmapRule(make, self.name)

    def restrict(self, arguments: Sequence[bool], results: Sequence[bool]) -> VmapRule:
        """Return the rule of a call with some of the results, which needs some of the arguments only."""

        def make(axis: Axis, batched: Mask) -> tuple[Jaxpr, Mask]:
            rest = iter(batched)
            jaxpr, out = self.jaxpr(axis, [a and next(rest) for a in arguments])
            smaller, used = drop_dead(jaxpr, results, list(arguments))
            if any(u and not a for u, a in zip(used, arguments, strict=True)):
                raise CustomRuleError(
                    f"The batching rule of {self.name} lets results depend on arguments that they do not depend on in "
                    "the function itself.",
                    at=current_line(),
                )
            return smaller, tuple(pick(out, results))

        return VmapRule(make, self.name)


def broadcast_arguments(jaxpr: Jaxpr, axis: Axis, batched: Sequence[bool], wanted: Sequence[bool]) -> Jaxpr:
    """Return the jaxpr with arguments batched as `batched` marks, broadcasting them to its own, batched as `wanted`
    marks."""
    if tuple(batched) == tuple(wanted):
        return jaxpr
    flags = list(zip(batched, wanted, strict=True))

    def function(*args: Any) -> list[Any]:
        pairs = zip(args, flags, strict=True)
        return replay(jaxpr, *(move_batch_to_front(a, None, axis) if w and not b else a for a, (b, w) in pairs))

    types: list[Any] = jaxpr.in_avals
    types = [t.without_dimension(0) if w and not b else t for t, (b, w) in zip(types, flags, strict=True)]
    return stage_subjaxpr(function, types, name=jaxpr.name)


def batch_results(jaxpr: Jaxpr, axis: Axis, batched: Sequence[bool]) -> Jaxpr:
    """Return the jaxpr with all results batched."""
    if all(batched):
        return jaxpr

    def function(*args: Any) -> list[Any]:
        outs = zip(replay(jaxpr, *args), batched, strict=True)
        return [r if b else move_batch_to_front(r, None, axis) for r, b in outs]

    return stage_subjaxpr(function, jaxpr.in_avals, name=jaxpr.name)


@primitive
class custom_vmap_call(Call):
    """Call of `jaxpr`, whose first `num_consts` arguments are what the function closes over; `rule` batches it."""

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        rule: VmapRule,
        num_consts: int,
        **params: Any,
    ) -> Any:
        if any(d is not None for d in dims[:num_consts]):
            raise make_closure_error(rule, "batched")
        results, batched = rule.apply(axis, [d is not None for d in dims], batch_first(args, dims))
        return results, [0 if b else None for b in batched]

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        rule: VmapRule,
        num_consts: int,
        **params: Any,
    ) -> Any:
        nonzero = [type(t) is not Zero for t in tangents]
        if any(nonzero[:num_consts]):
            raise make_closure_error(rule, "differentiated")
        instantiated = [inexact(t) for t in jaxpr.out_avals]
        pushed, _ = through(jaxpr, nonzero, instantiated)
        results = self(
            *primals, *pick(tangents, nonzero),
            jaxpr=pushed, rule=rule.jvp(through, nonzero, instantiated), num_consts=num_consts, **params,
        )  # fmt: skip
        count = len(jaxpr.outvars)
        rest = iter(results[count:])
        types = zip(jaxpr.out_avals, instantiated, strict=True)
        return results[:count], [next(rest) if i else Zero.of(t) for t, i in types]

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        jaxpr: Jaxpr = params["jaxpr"]
        unknown_out = partial_eval(jaxpr, unknown).unknown_out
        known_out = [not u for u in unknown_out]
        everything, known_in = [True] * len(types), [not u for u in unknown]
        known, _ = drop_dead(jaxpr, known_out, known_in)
        waiting, _ = drop_dead(jaxpr, unknown_out, True)
        rule: VmapRule = params["rule"]
        return Split(
            known=(self, {**params, "jaxpr": known, "rule": rule.restrict(known_in, known_out)}),
            known_in=tuple(i for i, u in enumerate(unknown) if not u),
            unknown=(self, {**params, "jaxpr": waiting, "rule": rule.restrict(everything, unknown_out)}),
            unknown_in=tuple(range(len(types))),
            unknown_out=unknown_out,
        )

    def transpose_through(
        self,
        through: Any,
        cotangents: Sequence[Any],
        args: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        rule: VmapRule,
        num_consts: int,
        **params: Any,
    ) -> Any:
        linear = [type(a) is Linear for a in args]
        nonzero = [type(c) is not Zero for c in cotangents]
        pulled, _ = through(jaxpr, linear, nonzero, True)
        results = self(
            *others(args, linear), *pick(cotangents, nonzero),
            jaxpr=pulled, rule=rule.transpose(through, linear, nonzero), num_consts=num_consts, **params,
        )  # fmt: skip
        rest = iter(results)
        return [next(rest) if n else None for n in linear]

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Any) -> RematSplit | None:
        return None

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        rule: VmapRule = params["rule"]
        arguments = [True] * len(params["jaxpr"].invars)  # the rule may read arguments that the function does not
        if rule.primal is not None and not any(live_results[rule.primal[1] :]):
            arguments = [i < rule.primal[0] for i in range(len(arguments))]
        smaller, _ = drop_dead(params["jaxpr"], live_results, arguments)
        changed = {**params, "jaxpr": smaller, "rule": rule.restrict(arguments, live_results)}
        return arguments, changed, list(live_results)


def make_closure_error(rule: VmapRule, word: str) -> CustomRuleError:
    """Create the error for a closed-over value that the rule does not receive."""
    return CustomRuleError(
        f"{rule.name}, a custom_vmap function, closes over a value that is {word}, which its rule does not get.",
        fix="pass the value as an argument of the function",
        at=current_line(),
    )
