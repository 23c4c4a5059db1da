"""`custom_jvp`, `custom_vjp` and `custom_gradient`: functions with derivative rules of the user.

On concrete values the function and its rules run as plain Python, so that they may branch on numbers; otherwise the
function is staged to a jaxpr, once per signature.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar

from weft.api.custom_rules import (
    CustomVJPPrimal as CustomVJPPrimal,
    Promise,
    SymbolicZero as SymbolicZero,
    check_cotangents,
    check_jvp,
    check_pair,
    check_residuals,
    custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
    rule_name,
    zero_from_primal as zero_from_primal,
)
from weft.api.flat import (
    OutTree,
    adopt,
    check_leaves,
    flat_function,
    get_name,
    get_signature,
    parameter_names,
    wraps,
)
from weft.api.scopes import KnownTrace
from weft.base import tree
from weft.base.errors import ArgumentTypeError, CustomRuleError, NotSupportedError, UnexpectedTracerError
from weft.base.memo import Memo
from weft.base.settings import config
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, Trace, active, context, with_aval
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.ir.tangents import instantiate
from weft.ir.types import Type, get_aval
from weft.ir.zeros import Zero
from weft.primitives.control.custom import JvpRule, Mask, Pullback, VjpRule, custom_jvp_call, custom_vjp_call, inexact
from weft.trace.closed import stage_subjaxpr
from weft.trace.refs import Ref
from weft.trace.stage import stage
from weft.trace.tracer import Tracer
from weft.transforms.jvp import JVPTrace, JVPTracer
from weft.transforms.linearize import TangentTrace

LIMIT = 1024  # signatures cached per function


class MissingDerivativeError(CustomRuleError, AttributeError):
    """Raised if a function with custom derivatives is used before its rule is set; an `AttributeError`, as in JAX."""


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class CustomFunction(Generic[Parameters, Result]):
    """Base of `custom_jvp` and `custom_vjp`: non-differentiated arguments, and calls staged once per signature."""

    primitive: Any

    def __init__(
        self,
        fun: Callable[Parameters, Result],
        nondiff_argnums: Sequence[int] | int = (),
        nondiff_argnames: Sequence[str] = (),
    ):
        adopt(self, fun)
        self.fun = fun
        argnums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        signature = get_signature(fun)
        names = list(signature.parameters) if signature is not None else []
        self.nondiff_argnums = tuple(sorted({*argnums, *(names.index(n) for n in nondiff_argnames)}))
        self._cache: Memo[Any, Any] = Memo(LIMIT)

    def positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return all arguments by position, with defaults filled in, in the form that rules take."""
        signature = get_signature(self.fun)
        if signature is None:
            if kwargs:
                what = f"{get_name(self.fun)} has no readable signature, so its arguments must be passed by position."
                raise CustomRuleError(what, received=f"by name: {', '.join(kwargs)}", at=user_line())
            return args
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise CustomRuleError(
                f"{get_name(self.fun)} has keyword-only arguments, which custom rules cannot take.",
                received=", ".join(bound.kwargs),
                fix="make them positional parameters",
                at=user_line(),
            )
        return bound.args

    @boundary
    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        self.check_rules()
        operands = self.positional(args, kwargs)
        result: Result
        held = tuple(operands[i] for i in self.nondiff_argnums if i < len(operands))
        chosen = tuple(a for i, a in enumerate(operands) if i not in self.nondiff_argnums)
        leaves, in_tree = tree.flatten((chosen, {}))
        if any(isinstance(leaf, Ref) for leaf in leaves):
            chosen = tree.map(lambda leaf: HeldRef(leaf) if isinstance(leaf, Ref) else leaf, chosen)
            leaves, in_tree = tree.flatten((chosen, {}))
        check_leaves(self.fun, type(self).__name__, leaves, chosen, {}, self.chosen_names(len(operands)))
        if isinstance(context.trace, KnownTrace) and not any(isinstance(leaf, Tracer) for leaf in leaves):
            # Operations on concrete operands are evaluated at once under this trace.
            chosen, _ = tree.unflatten(in_tree, map(with_aval, leaves))
            result = self.with_held(self.fun, held, len(operands))(*chosen)
            return result
        if all(is_known(leaf) for leaf in leaves) and is_running(context.trace):
            result = self.run([with_aval(leaf) for leaf in leaves], in_tree, held, len(operands))
            return result
        jaxpr, constants, out_tree, rule = self.get_jaxpr(leaves, in_tree, held, len(operands))
        results = self.primitive(*constants, *leaves, call_jaxpr=jaxpr, rule=rule, num_consts=len(constants))
        result = tree.unflatten(out_tree, results)
        return result

    def chosen_names(self, count: int) -> list[str]:
        """Return the names of the differentiated arguments among `count` arguments."""
        names = parameter_names(self.fun, count) or [f"argument {i}" for i in range(count)]
        return [n for i, n in enumerate(names) if i not in self.nondiff_argnums]

    def run(self, leaves: Sequence[Any], in_tree: Any, held: tuple[Any, ...], count: int) -> Any:
        """Run the function on concrete values as plain Python, or its rule if it is differentiated."""
        promise = Promise()
        rule = self.make_rule(in_tree, [get_aval(leaf) for leaf in leaves], held, count, promise)
        out = OutTree()
        results = run_under(
            context.trace, flat_function(self.with_held(self.fun, held, count), in_tree, out), rule, leaves
        )
        return tree.unflatten(out.treedef if promise.treedef is None else promise.treedef, results)

    def get_jaxpr(self, leaves: Sequence[Any], in_tree: Any, held: tuple[Any, ...], count: int) -> Any:
        """Return the jaxpr of the function, its constants, its result tree and its rule, cached by signature."""
        types = tuple(get_aval(leaf) for leaf in leaves)
        key = self.cache_key(in_tree, types, held)
        found = self._cache.get(key) if key is not None else None
        if found is None:
            found = self.prepare(in_tree, types, held, count)
            if key is not None and not any(isinstance(c, Tracer) for c in found[1]):
                found = self._cache.keep(key, found)
        return found

    def cache_key(self, in_tree: Any, types: Any, held: tuple[Any, ...]) -> Any:
        """Return the key of a call, or None if the result cannot be cached."""
        if any(isinstance(leaf, Tracer) for leaf in tree.leaves(held)) or has_refs(in_tree):
            return None
        statics = tuple((type(h), h) for h in held)
        key = (in_tree, types, statics, config.key(), context.axes_key(), self.rules())
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def with_held(self, function: Callable[..., Any], held: tuple[Any, ...], count: int) -> Callable[..., Any]:
        """Return `function` of the differentiated arguments only."""
        by_index = dict(zip(self.nondiff_argnums, held, strict=False))

        @wraps(function)
        def partial(*chosen: Any) -> Any:
            rest = iter(unbox_refs(chosen))
            return function(*(by_index[i] if i in by_index else next(rest) for i in range(count)))

        return partial

    def prepare(self, in_tree: Any, types: tuple[Type, ...], held: tuple[Any, ...], count: int) -> Any:
        """Stage the function, and make the rule for its types."""
        out = OutTree()
        function = flat_function(self.with_held(self.fun, held, count), in_tree, out)
        where = f"{get_name(self.fun)}, {type(self).__name__} at {user_line()}"
        jaxpr, constants = stage(function, types, where=where, name=get_name(self.fun))
        rule = self.make_rule(in_tree, types, held, count, Promise(out.treedef, jaxpr.out_avals))
        return constants_to_arguments(jaxpr), constants, out.treedef, rule

    def rules(self) -> tuple[Any, ...]:
        """Return the user's rules, as part of a cache key."""
        raise NotSupportedError("A custom function must be a custom_jvp or a custom_vjp.")

    def check_rules(self) -> None:
        """Raise unless the rules are set."""
        raise NotSupportedError("A custom function must be a custom_jvp or a custom_vjp.")

    def make_rule(self, in_tree: Any, types: Any, held: Any, count: int, promise: Promise) -> Any:
        """Return the rule for arguments of this structure and these types, in the form that the primitive takes."""
        raise NotSupportedError("A custom function must be a custom_jvp or a custom_vjp.")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


class HeldRef:
    """Mutable array among the arguments: a node without leaves, passed to rules unchanged."""

    __slots__ = ("ref",)

    def __init__(self, ref: Ref):
        ref.escaped = True
        self.ref = ref


tree.register_pytree_node(HeldRef, lambda held: ((), held.ref), lambda ref, _: HeldRef(ref))


def unbox_refs(value: Any) -> Any:
    """Replace each `HeldRef` of a tree by its mutable array."""
    is_box = lambda leaf: isinstance(leaf, HeldRef)
    return tree.map(lambda leaf: leaf.ref if is_box(leaf) else leaf, value, is_leaf=is_box)


def has_refs(treedef: tree.PyTreeDef) -> bool:
    """Return whether a structure contains mutable arrays."""
    node = treedef.node_data()
    return node is not None and (node[0] is HeldRef or any(map(has_refs, treedef.children())))


def is_known(value: Any) -> bool:
    """Return whether a value is concrete, apart from differentiation."""
    while type(value) is JVPTracer:
        value = value.primal
    return not isinstance(value, Tracer)


def is_running(trace: Trace) -> bool:
    """Return whether operations under this trace are evaluated at once, differentiated or not."""
    while isinstance(trace, (JVPTrace, TangentTrace)):
        trace = trace.parent
    return trace is EVALUATION


def run_under(trace: Trace, function: Callable[..., list[Any]], rule: Any, values: Sequence[Any]) -> list[Any]:
    """Run a flat function on concrete values, by its rule if `trace` differentiates it."""
    if trace is EVALUATION:
        return function(*values)
    assert isinstance(trace, (JVPTrace, TangentTrace))
    with active(trace.parent):
        if isinstance(trace, TangentTrace):
            return run_under(trace.parent, function, rule, values)
        pairs = [trace.split(v) for v in values]
        primals = [p for p, _ in pairs]
        if all(type(t) is Zero for _, t in pairs):
            with name_closure(rule):
                return run_under(trace.parent, function, rule, primals)
        with name_closure(rule):
            results, tangents = rule.push(primals, [t for _, t in pairs])
    return [trace.join(r, t) for r, t in zip(results, tangents, strict=True)]


@contextmanager
def name_closure(rule: Any) -> Iterator[None]:
    """Replace the error for a traced value that a function with rules closes over by one that says what to do."""
    try:
        yield
    except UnexpectedTracerError as error:
        raise CustomRuleError(
            f"{rule} uses a value that is being differentiated but is not one of its arguments.",
            received=error.received,
            fix="pass the value as an argument of the function, or wrap it in lax.stop_gradient",
            at=error.at,
        ) from error


class custom_jvp(CustomFunction[Parameters, Result]):
    """Function with its own forward-mode rule: set it with `defjvp` or, per argument, `defjvps`.

    The rule takes `(primals, tangents)`, after the arguments in `nondiff_argnums`, and returns results and tangents.

    Args:
        fun: the function.
        nondiff_argnums: positions of arguments that are not differentiated; the rule receives them first.
        nondiff_argnames: the same by name.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> @weft.custom_jvp
    ... def safe_log(x):
    ...     return wnp.log(x)
    >>> @safe_log.defjvp
    ... def safe_log_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return safe_log(x), t / wnp.maximum(x, 0.01)
    >>> weft.grad(safe_log)(0.0)
    Array(100., dtype=float32, weak_type=True)
    """

    primitive = custom_jvp_call
    jvp: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule, and return it, so that this can be a decorator."""
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set a rule per argument: `rule(tangent, result, *arguments)` returns its part of the tangent; None means
        zero."""
        if self.nondiff_argnums:
            raise ArgumentTypeError("defjvps cannot be combined with nondiff_argnums.", fix="use defjvp")

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            call: Callable[..., Any] = self
            result = call(*primals)
            parts = [rule(t, result, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            zero = tree.map(lambda x: instantiate(Zero.of(get_aval(x))), result)
            return result, functools.reduce(lambda a, b: tree.map(_add, a, b), parts) if parts else zero

        self.jvp = jvp

    def rules(self) -> tuple[Any, ...]:
        return (self.jvp, self.symbolic_zeros)

    def check_rules(self) -> None:
        if self.jvp is None:
            name = get_name(self.fun)
            raise MissingDerivativeError(f"No jvp is defined for {name}.", fix=f"{name}.defjvp(rule)")

    def make_rule(self, in_tree: Any, types: Any, held: Any, count: int, promise: Promise) -> JvpRule:
        jvp, symbolic = self.jvp, self.symbolic_zeros
        assert jvp is not None
        rule = rule_name("jvp rule", jvp, self.fun)

        def call(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            full = [(SymbolicZero(t.aval) if symbolic else instantiate(t)) if type(t) is Zero else t for t in tangents]
            pair = jvp(*held, tree.unflatten(in_tree, primals)[0], tree.unflatten(in_tree, full)[0])
            return check_jvp(rule, pair, promise)

        def make(nonzero: Mask) -> Jaxpr:
            def function(*flat: Any) -> list[Any]:
                half = len(types)
                tangents = [t if n else Zero(t.aval) for t, n in zip(flat[half:], nonzero, strict=True)]
                results, pushed = call(flat[:half], tangents)
                return [*results, *(instantiate(t) for t in pushed)]

            return stage_subjaxpr(
                function, [*types, *(t.tangent() for t in types)], name=f"jvp of {get_name(self.fun)}"
            )

        return JvpRule(make, get_name(self.fun), call)


def _add(a: Any, b: Any) -> Any:
    return a + b


class custom_vjp(CustomFunction[Parameters, Result]):
    """Function with its own reverse-mode rules: set them with `defvjp(fwd, bwd)`.

    `fwd` takes the function's arguments and returns (results, residuals); `bwd` takes the arguments in
    `nondiff_argnums`, the residuals and the cotangents of the results, and returns one cotangent per differentiated
    argument.

    Args:
        fun: the function.
        nondiff_argnums: positions of arguments that are not differentiated; `bwd` receives them first.
        nondiff_argnames: the same by name.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> @weft.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, g: (wnp.clip(g, -1.0, 1.0),))
    >>> weft.grad(lambda x: 10.0 * clipped(x))(3.0)
    Array(1., dtype=float32, weak_type=True)
    """

    primitive = custom_vjp_call
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set both rules."""
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def rules(self) -> tuple[Any, ...]:
        return (self.fwd, self.bwd, self.symbolic_zeros)

    def check_rules(self) -> None:
        if self.fwd is None or self.bwd is None:
            name = get_name(self.fun)
            raise MissingDerivativeError(f"No vjp is defined for {name}.", fix=f"{name}.defvjp(fwd, bwd)")

    def make_rule(self, in_tree: Any, types: Any, held: Any, count: int, promise: Promise) -> VjpRule:
        rules = _UserRules(self, in_tree, types, held, count, promise)
        return VjpRule(rules.forward, rules.backward, get_name(self.fun), len(promise.types or ()), rules.start)


class _UserRules:
    """The two rules of a `custom_vjp` for arguments of one structure."""

    def __init__(
        self,
        function: custom_vjp[Any, Any],
        in_tree: Any,
        types: Sequence[Type],
        held: Any,
        count: int,
        promise: Promise,
    ):
        assert function.fwd is not None and function.bwd is not None
        self.function, self.in_tree, self.types, self.held, self.count = function, in_tree, types, held, count
        self.promise, self.symbolic = promise, function.symbolic_zeros
        self.fwd, self.bwd = function.with_held(function.fwd, held, count), function.bwd
        self.saved: dict[Mask, tuple[Any, list[Type]]] = {}  # structure and types of residuals, for staged rules

    def run_forward(self, nonzero: Mask, args: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        """Return results, residuals and the structure of the residuals."""
        passed = [CustomVJPPrimal(x, n) for x, n in zip(args, nonzero, strict=True)] if self.symbolic else args
        rule = rule_name("forward rule", self.function.fwd, self.function.fun)  # type: ignore[arg-type]
        result, residuals = check_pair(self.fwd(*tree.unflatten(self.in_tree, passed)[0]), rule, "results, residuals")
        return self.promise.check(rule, result), *check_residuals(rule, residuals)

    def run_backward(self, structure: Any, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return a cotangent, or `Zero`, for each argument leaf."""
        symbolic = self.symbolic
        passed = [(SymbolicZero(c.aval) if symbolic else instantiate(c)) if type(c) is Zero else c for c in cotangents]
        assert self.promise.treedef is not None
        result = tree.unflatten(self.promise.treedef, passed)
        found = self.bwd(*self.held, structure.restore(residuals), result)
        rule = rule_name("backward rule", self.bwd, self.function.fun)
        names = lambda i: self.function.chosen_names(self.count)[i]
        return check_cotangents(rule, found, self.in_tree, self.types, names)

    def start(self, nonzero: Mask, args: Sequence[Any]) -> tuple[list[Any], list[Any], Pullback]:
        """Run the forward rule; return results, residuals and the pullback."""
        results, residuals, structure = self.run_forward(nonzero, args)
        pull = Pullback(get_name(self.function.fun), lambda saved, cts: self.run_backward(structure, saved, cts))
        return results, residuals, pull

    def forward(self, nonzero: Mask) -> Jaxpr:
        """Stage the forward rule."""

        def function(*flat: Any) -> list[Any]:
            results, residuals, structure = self.run_forward(nonzero, flat)
            self.saved[nonzero] = (structure, [get_aval(r) for r in residuals])
            return [*results, *residuals]

        return stage_subjaxpr(function, self.types, name=f"forward of {get_name(self.function.fun)}")

    def backward(self, nonzero: Mask, cotangents: Mask) -> Jaxpr:
        """Stage the backward rule."""
        if nonzero not in self.saved:
            self.forward(nonzero)
        structure, types = self.saved[nonzero]
        incoming = [t.cotangent() for t in self.promise.types or ()]

        def function(*flat: Any) -> list[Any]:
            passed = [ct if n else Zero(ct.aval) for ct, n in zip(flat[len(types) :], cotangents, strict=True)]
            return [instantiate(ct) for ct in self.run_backward(structure, flat[: len(types)], passed)]

        return stage_subjaxpr(function, [*types, *incoming], name=f"backward of {get_name(self.function.fun)}")


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Use the pullback that a function returns as its derivative.

    Args:
        fun: a function that returns its result and a pullback, from a cotangent of the result to a tuple of cotangents
            of the arguments (or one, for one argument).

    Returns:
        A function that returns the result only.

    >>> import weft
    >>> f = weft.custom_gradient(lambda x: (x**2, lambda g: g * 100.0))
    >>> f(3.0), weft.grad(f)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(100., dtype=float32, weak_type=True))
    """

    @boundary
    @wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        pullbacks: list[tuple[Jaxpr, Any]] = []

        def value(*chosen: Any) -> Any:
            return fun(*chosen, **kwargs)[0]

        def forward(*chosen: Any) -> Any:
            results, pullback = check_pair(fun(*chosen, **kwargs), f"`{get_name(fun)}`", "results, pullback")
            leaves, out_tree = tree.flatten(results)
            out = OutTree()

            def flat(*cotangents: Any) -> list[Any]:
                found = pullback(tree.unflatten(out_tree, cotangents))
                cotangents_in, out.treedef = tree.flatten(found if isinstance(found, (tuple, list)) else (found,))
                return cotangents_in

            types = [get_aval(r).tangent() for r in leaves]
            jaxpr, constants = stage(flat, types, where=f"the pullback of {get_name(fun)}")
            pullbacks[:] = [(constants_to_arguments(jaxpr), out.treedef)]
            return results, constants

        def backward(residuals: Any, cotangents: Any) -> Any:
            jaxpr, treedef = pullbacks[0]
            return tuple(tree.unflatten(treedef, replay(jaxpr, *residuals, *tree.leaves(cotangents))))

        function = custom_vjp(wraps(fun)(value))
        function.positional = lambda args, kwargs: args  # type: ignore[method-assign]
        function.defvjp(forward, backward)
        return function(*args)

    return with_gradient


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Convert the traced closure of a function to arguments; return a function of its arguments and the captured
    values, and these values."""
    leaves, in_tree = tree.flatten((example_args, {}))
    check_leaves(fun, "closure_convert", leaves, example_args, {})
    out = OutTree()
    types = [get_aval(leaf) for leaf in leaves]
    jaxpr, constants = stage(flat_function(fun, in_tree, out), types, where=get_name(fun))
    hoisted = [isinstance(c, Tracer) and inexact(get_aval(c)) for c in constants]
    held = [c for c, h in zip(constants, hoisted, strict=True) if not h]
    opened = constants_to_arguments(jaxpr)

    def of_arguments(*args_and_constants: Any) -> Any:
        count = len(example_args)
        args, captured = args_and_constants[:count], iter(args_and_constants[count:])
        others = iter(held)
        flat, treedef = tree.flatten((tuple(args), {}))
        if treedef != in_tree:
            what = f"The arguments of the converted {get_name(fun)} must have the structure of the example."
            raise ArgumentTypeError(what, received=f"{treedef} for {in_tree}")
        values = [next(captured) if h else next(others) for h in hoisted]
        return tree.unflatten(out.treedef, replay(opened, *values, *flat))

    return of_arguments, [c for c, h in zip(constants, hoisted, strict=True) if h]
