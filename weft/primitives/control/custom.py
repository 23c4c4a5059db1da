"""Calls with derivatives given by the user: `custom_jvp_call`, `custom_vjp_call`, and the linear call that waits for a
bwd rule.

Rules are objects that run the user's functions when they are needed, and stage them to closed jaxprs only for
batching, which wraps a rule in one that batches those jaxprs. The public functions are in `api/custom.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import CustomRuleError
from weft.ir.batching import batch_jaxpr
from weft.ir.context import current_line
from weft.ir.higher_order import HigherOrder, check_operands
from weft.ir.interpreter import replay, run
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.ir.primitive import Axis, No, Params, Primitive, primitive
from weft.ir.tangents import instantiate
from weft.ir.types import Type, get_aval
from weft.ir.varying import manual_state
from weft.ir.zeros import Linear, Zero
from weft.primitives.collectives import psum
from weft.primitives.control.call import batch_first, jit as jit_primitive
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import broadcast_in_dim, squeeze
from weft.primitives.movement.slicing import slice
from weft.primitives.reduction.reduce import reduce_sum
from weft.sharding.manual import ManualAxisType
from weft.trace.closed import stage_subjaxpr
from weft.trace.stage import stage

Mask = tuple[bool, ...]


class Rule:
    """Base of rules that stage jaxprs on demand and memoize them."""

    def __init__(self) -> None:
        self._jaxprs: dict[Any, Any] = {}

    def memoize(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the memoized value of a key, computing it at its first use."""
        found = self._jaxprs.get(key)
        if found is None:
            found = self._jaxprs.setdefault(key, make())
        return found


class JvpRule(Rule):
    """`jvp(nonzero)`: the jaxpr (arguments, their tangents) -> (results, their tangents), all instantiated.

    `call`, if given, is the user's rule itself, which runs directly under the active trace; batching needs the jaxpr.
    """

    def __init__(self, make: Callable[[Mask], Jaxpr], name: str, call: Callable[..., Any] | None = None):
        super().__init__()
        self._make, self.name, self._call = make, name, call

    def jvp(self, nonzero: Mask) -> Jaxpr:
        result: Jaxpr = self.memoize(nonzero, lambda: self._make(nonzero))
        return result

    def push(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the results and their tangents under the active trace; tangents may be `Zero`."""
        if self._call is not None:
            result: tuple[list[Any], list[Any]] = self._call(primals, tangents)
            return result
        jaxpr = self.jvp(tuple(type(t) is not Zero for t in tangents))
        results = replay(jaxpr, *primals, *(instantiate(t) for t in tangents))
        count = len(results) // 2
        return results[:count], [
            tangent_or_zero(t, v.aval) for t, v in zip(results[count:], jaxpr.outvars[:count], strict=True)
        ]

    def __repr__(self) -> str:
        return self.name


class VjpRule(Rule):
    """`forward(nonzero)`: arguments -> (results, residuals); `backward(nonzero)`: (residuals, cotangents) ->
    cotangents.

    `start`, if given, runs the user's forward rule directly and returns its results, residuals and pullback; batching
    needs the jaxprs. The first `count` results of `forward` are those of the function.
    """

    def __init__(
        self,
        forward: Callable[[Mask], Jaxpr],
        backward: Callable[[Mask, Mask], Jaxpr],
        name: str,
        count: int = 0,
        start: Callable[..., Any] | None = None,
    ):
        super().__init__()
        self._forward, self._backward, self.name, self._count, self._start = forward, backward, name, count, start

    def forward(self, nonzero: Mask) -> Jaxpr:
        result: Jaxpr = self.memoize(("forward", nonzero), lambda: self._forward(nonzero))
        return result

    def backward(self, nonzero: Mask, cotangents: Mask) -> Jaxpr:
        result: Jaxpr = self.memoize(("backward", nonzero, cotangents), lambda: self._backward(nonzero, cotangents))
        return result

    def push(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the results of the forward rule under the active trace, and tangents that wait for the backward
        rule."""
        nonzero = tuple(type(t) is not Zero for t in tangents)
        if self._start is not None:
            outs, residuals, pull = self._start(nonzero, primals)
        else:
            results = replay(self.forward(nonzero), *primals)
            outs, residuals = results[: self._count], results[self._count :]
            pull = Pullback(self.name, lambda saved, cts: self.pull(nonzero, saved, cts))
        types = [get_aval(o) for o in outs]
        nonzero_tangents = [t for t in tangents if type(t) is not Zero]
        pushed = custom_lin(
            *residuals, *nonzero_tangents,
            pull=pull, nonzero=nonzero, num_residuals=len(residuals), out_types=tuple(t.tangent() for t in types),
        )  # fmt: skip
        return outs, [tangent_or_zero(t, aval) for t, aval in zip(pushed, types, strict=True)]

    def pull(self, nonzero: Mask, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        jaxpr = self.backward(nonzero, tuple(type(c) is not Zero for c in cotangents))
        return replay(jaxpr, *residuals, *(instantiate(c) for c in cotangents))

    def __repr__(self) -> str:
        return self.name


class Pullback:
    """Function from residuals and cotangents of results (some `Zero`) to cotangents of all arguments, under the active
    trace."""

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]):
        self.name, self.call = name, call

    def __repr__(self) -> str:
        return self.name


def tangent_or_zero(tangent: Any, aval: Type) -> Any:
    """Return the tangent of a value; for integers it is a symbolic zero."""
    return tangent if inexact(aval) else Zero.of(aval)


class CustomCall(HigherOrder):
    """Base of both calls: outside of differentiation they are the call of `call_jaxpr`."""

    opens = "call_jaxpr"

    def type(self, *types: Type, call_jaxpr: Jaxpr, **params: Any) -> list[Type]:
        check_operands(self.name, types, call_jaxpr.in_avals)
        return call_jaxpr.out_avals

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        return list(map(manual_state, params["call_jaxpr"].in_avals))

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["call_jaxpr"].effects
        return result

    def eval(self, *arrays: Any, call_jaxpr: Jaxpr, **params: Any) -> list[Any]:
        return run(call_jaxpr, arrays)

    def as_call(self, operands: Sequence[Any], params: Params) -> tuple[Jaxpr, Sequence[Any]]:
        return params["call_jaxpr"], operands

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        call_jaxpr: Jaxpr,
        rule: JvpRule | VjpRule,
        num_consts: int,
    ) -> Any:
        self.check_constants(tangents, num_consts, rule)
        return rule.push(primals[num_consts:], tangents[num_consts:])

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], *, call_jaxpr: Jaxpr, **params: Any
    ) -> Any:
        """Transpose the function itself. A function applied to tangents is linear; its rules are for differentiating
        it, and are not used here."""
        call: Any = jit_primitive
        return call.transpose_through(through, cotangents, args, jaxpr=call_jaxpr, name=call_jaxpr.name)

    def samples(self) -> Any:
        return iter(())  # has a sub-jaxpr; the composition tests cover it

    def check_constants(self, tangents: Sequence[Any], num_consts: int, rule: Any) -> None:
        if any(type(t) is not Zero for t in tangents[:num_consts]):
            raise CustomRuleError(
                f"{rule} is differentiated in a value that it closes over, which its custom rule does not cover.",
                fix="pass the value as an argument of the function, or wrap it in stop_gradient",
                at=current_line(),
            )


def with_batched_results(jaxpr: Jaxpr, batched: Sequence[bool], wanted: Sequence[bool]) -> Jaxpr:
    """Take the first element of results of a batched rule that the function itself has without a batch."""
    if list(batched) == list(wanted):
        return jaxpr

    def function(*args: Any) -> list[Any]:
        results = zip(replay(jaxpr, *args), batched, wanted, strict=True)
        return [element_of_batch(r) if b and not w else r for r, b, w in results]

    return stage_subjaxpr(function, jaxpr.in_avals, name=jaxpr.name)


def element_of_batch(value: Any) -> Any:
    """Return the first element along dimension 0."""
    shape = value.aval.shape
    first = slice(value, start_indices=(0,) * len(shape), limit_indices=(1, *shape[1:]), strides=None)
    return squeeze(first, dimensions=(0,))


def first_of_batch(value: Any, size: Any) -> Any:
    """Return a batch with `value` as its first element and zeros as the others."""
    aval = value.aval
    zero = instantiate(Zero(aval.with_dimension(0, size - 1)))
    first = broadcast_in_dim(value, shape=(1, *aval.shape), broadcast_dimensions=tuple(range(1, len(aval.shape) + 1)))
    return concatenate(first, zero, dimension=0)


@primitive
class custom_jvp_call(CustomCall):
    """Call whose tangents come from the user's rule."""

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        call_jaxpr: Jaxpr,
        rule: JvpRule,
        num_consts: int,
    ) -> Any:
        batched = tuple(d is not None for d in dims)
        batched_call, out = through(call_jaxpr, axis, batched, False)

        def batch_rule(nonzero: Mask) -> Jaxpr:
            own = batched[num_consts:]
            # Every tangent is instantiated by the caller, in the shape of its primal.
            both = [*out, *out]
            jaxpr, found = through(rule.jvp(nonzero), axis, [*own, *own], both)
            return with_batched_results(jaxpr, found, both)

        results = custom_jvp_call(
            *batch_first(args, dims),
            call_jaxpr=batched_call,
            rule=JvpRule(batch_rule, rule.name),
            num_consts=num_consts,
        )
        return results, [0 if b else None for b in out]


@primitive
class custom_vjp_call(CustomCall):
    """Call whose cotangents come from the user's forward and backward rules."""

    taylor_inside = True  # there is no rule for tangents

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        call_jaxpr: Jaxpr,
        rule: VjpRule,
        num_consts: int,
    ) -> Any:
        batched = tuple(d is not None for d in dims)
        own = batched[num_consts:]
        batched_call, out = through(call_jaxpr, axis, batched, False)
        count = len(call_jaxpr.outvars)

        def forward(nonzero: Mask) -> Jaxpr:
            plain = rule.forward(nonzero)
            wanted = [*out, *[True] * (len(plain.outvars) - count)]
            jaxpr, found = through(plain, axis, own, wanted)
            return with_batched_results(jaxpr, found, wanted)

        def backward(nonzero: Mask, cotangents: Mask) -> Jaxpr:
            plain = rule.backward(nonzero, cotangents)
            saved = len(plain.invars) - count
            batch: Jaxpr
            batch, found = through(plain, axis, [*[True] * saved, *out], own)
            if list(found) == list(own):
                return batch
            # An argument that all elements share gets the sum of their cotangents. If it depends on the cotangent of a
            # shared result too, only the first element gets that one: the rule is linear, so the sum counts it once.
            types = batch.in_avals
            first_only = not all(out)
            if first_only:
                batch, found = through(plain, axis, [True] * len(plain.invars), True)

            def sum_over_batch(*values: Any) -> list[Any]:
                cts = values[saved:]
                if first_only:
                    cts = tuple(ct if b else first_of_batch(ct, axis.size) for ct, b in zip(cts, out, strict=True))
                results = zip(replay(batch, *values[:saved], *cts), found, own, strict=True)
                return [reduce_sum(ct, axes=(0,)) if f and not b else ct for ct, f, b in results]

            return stage_subjaxpr(sum_over_batch, types, name=plain.name)

        results = custom_vjp_call(
            *batch_first(args, dims),
            call_jaxpr=batched_call,
            rule=VjpRule(forward, backward, rule.name, count),
            num_consts=num_consts,
        )
        return results, [0 if b else None for b in out]


@primitive
class custom_lin(Primitive):
    """Tangents of a call with a custom vjp: never computed, only transposed, by the user's backward rule."""

    multiple_results = True
    types_placement = True

    def type(self, *types: Type, out_types: tuple[Type, ...], **params: Any) -> list[Type]:
        return list(out_types)

    def eval(self, *arrays: Any, pull: Pullback, **params: Any) -> Any:
        raise forward_mode_error(pull)

    def jvp(self, tangents: Any, out: Any, *args: Any, pull: Pullback, **params: Any) -> Any:
        raise forward_mode_error(pull)

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, pull: Pullback, nonzero: Mask, num_residuals: int, out_types: Any
    ) -> Any:
        """Batch lazily: the backward rule of one element is batched when it is needed."""
        batched = [d is not None for d in dims]
        operands = batch_first(args, dims)
        own = [drop_batch(get_aval(a), b) for a, b in zip(operands, batched, strict=True)]

        def pull_batch(residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            present = [type(c) is not Zero for c in cotangents]

            def one(*values: Any) -> list[Any]:
                remaining = iter(values[num_residuals:])
                cts = [next(remaining) if g else Zero(t) for g, t in zip(present, out_types, strict=True)]
                return [instantiate(ct) for ct in pull.call(values[:num_residuals], cts)]

            types = [*own[:num_residuals], *(t for t, g in zip(out_types, present, strict=True) if g)]
            jaxpr, constants = stage(one, types, where=f"the backward rule of {pull.name}")
            flags = [*[False] * len(constants), *batched[:num_residuals], *[True] * sum(present)]
            jaxpr, _ = batch_jaxpr(constants_to_arguments(jaxpr), axis, flags)
            values = replay(jaxpr, *constants, *residuals, *(c for c, g in zip(cotangents, present, strict=True) if g))
            shared = iter(not b for b in batched[num_residuals:])
            # An argument that is the same for all elements gets the sum of their cotangents.
            return [
                reduce_sum(ct, axes=(0,)) if n and next(shared) else ct for ct, n in zip(values, nonzero, strict=True)
            ]

        results = custom_lin(
            *operands,
            pull=Pullback(pull.name, pull_batch),
            nonzero=nonzero,
            num_residuals=num_residuals,
            out_types=tuple(axis.insert_into(t) for t in out_types),
        )
        return results, [0] * len(results)

    factors = No("its backward rule is opaque")

    def transpose(
        self, cotangents: Any, *args: Any, pull: Pullback, nonzero: Mask, num_residuals: int, out_types: Any
    ) -> Sequence[Any]:
        results = pull.call(args[:num_residuals], cotangents)
        wanted = [ct for ct, n in zip(results, nonzero, strict=True) if n]
        operands = args[num_residuals:]
        return [
            *[None] * num_residuals,
            *(sum_to(ct, a.aval) if type(a) is Linear else None for ct, a in zip(wanted, operands, strict=True)),
        ]

    def samples(self) -> Any:
        return iter(())  # only custom_vjp binds it; its tests cover it


def sum_to(cotangent: Any, tangent: Type) -> Any:
    """Sum the cotangent of an argument, computed by a backward rule on each device, along the manual axes along which
    it varies and the argument does not."""
    if type(cotangent) is Zero or cotangent is None:
        return cotangent
    extra = manual_state(get_aval(cotangent)).varying - manual_state(tangent).vur
    return psum(cotangent, axes=tuple(sorted(extra, key=str))) if extra else cotangent


def drop_batch(aval: Any, batched: bool) -> Type:
    result: Type = aval.without_dimension(0) if batched else aval
    return result


def forward_mode_error(rule: Pullback) -> CustomRuleError:
    return CustomRuleError(
        f"Forward-mode differentiation reached {rule}, which has a custom vjp and so no forward-mode derivative.",
        fix="use reverse mode (grad, vjp, jacrev), or define the function with custom_jvp, which serves both modes",
        at=current_line(),
    )


def inexact(aval: Type) -> bool:
    return aval.tangent() is aval or aval.tangent() == aval
