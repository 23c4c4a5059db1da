"""`custom_jvp`, `custom_vjp` and `custom_gradient`: functions whose derivatives the user writes."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from weft.api.flat import OutTree, check_leaves, flat_function, name_of, signature_of
from weft.base import tree
from weft.base.errors import CustomRuleError
from weft.base.settings import config
from weft.base.source import user_line
from weft.ir.context import context
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.ir.primitive import instantiate
from weft.ir.types import Type, type_of
from weft.ir.zeros import Zero
from weft.ops.convert import convert_element_type
from weft.ops.custom import JvpRule, Mask, VjpRule, custom_jvp_call, custom_vjp_call, inexact
from weft.trace.closed import stage_closed
from weft.trace.stage import stage
from weft.trace.tracer import Tracer

LIMIT = 1024  # signatures remembered per function


class SymbolicZero:
    """Stands for a tangent or cotangent that is zero, in rules that asked for symbolic zeros."""

    def __init__(self, aval: Type):
        self.aval = aval

    @property
    def shape(self) -> Any:
        return self.aval.shape  # type: ignore[attr-defined]

    @property
    def dtype(self) -> Any:
        return self.aval.dtype  # type: ignore[attr-defined]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def instantiate(self) -> Any:
        return instantiate(Zero(self.aval))

    @staticmethod
    def from_primal_value(value: Any) -> SymbolicZero:
        return SymbolicZero(type_of(value).tangent())

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.short()})"


def zero_from_primal(value: Any, symbolic_zeros: bool = False) -> Any:
    """A zero tangent for a value."""
    zero = SymbolicZero.from_primal_value(value)
    return zero if symbolic_zeros else zero.instantiate()


class CustomVJPPrimal:
    """What a forward rule with symbolic zeros receives for an argument: its value, and whether it is differentiated."""

    def __init__(self, value: Any, perturbed: bool):
        self.value, self.perturbed = value, perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal(value={self.value!r}, perturbed={self.perturbed})"


class CustomFunction:
    """What both kinds share: arguments that are not differentiated, and calls staged once per signature."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] | int = (), nondiff_argnames: Sequence[str] = ()):
        functools.update_wrapper(self, fun)
        self.fun = fun
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        signature = signature_of(fun)
        names = list(signature.parameters) if signature is not None else []
        self.nondiff_argnums = tuple(sorted({*numbers, *(names.index(n) for n in nondiff_argnames)}))
        self._cache: OrderedDict[Any, Any] = OrderedDict()

    def positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in, as the rules take them."""
        signature = signature_of(self.fun)
        if signature is None:
            if kwargs:
                raise CustomRuleError(f"{name_of(self.fun)} has no signature to read, so pass its arguments by position.")
            return args
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise CustomRuleError(
                f"{name_of(self.fun)} has keyword-only arguments ({', '.join(bound.kwargs)}), which custom rules cannot take.",
                fix="make them positional parameters",
                at=user_line(),
            )
        return bound.args

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], primitive: Any) -> Any:
        args = self.positional(args, kwargs)
        held = tuple(args[i] for i in self.nondiff_argnums if i < len(args))
        chosen = tuple(a for i, a in enumerate(args) if i not in self.nondiff_argnums)
        leaves, in_tree = tree.flatten((chosen, {}))
        check_leaves(self.fun, type(self).__name__, leaves, chosen, {})
        types = tuple(type_of(leaf) for leaf in leaves)
        key = self.cache_key(in_tree, types, held)
        found = self._cache.get(key) if key is not None else None
        if found is None:
            found = self.prepare(in_tree, types, held, len(args))
            if key is not None and not any(isinstance(c, Tracer) for c in found[1]):
                self._cache[key] = found
                if len(self._cache) > LIMIT:
                    self._cache.popitem(last=False)
        program, constants, out_tree, rule = found
        results = primitive(*constants, *leaves, call_jaxpr=program, rule=rule, num_consts=len(constants))
        return tree.unflatten(out_tree, results)

    def cache_key(self, in_tree: Any, types: Any, held: tuple[Any, ...]) -> Any:
        if any(isinstance(leaf, Tracer) for leaf in tree.leaves(held)):
            return None
        key = (in_tree, types, tuple((type(h), h) for h in held), config.key(), tuple(context.axes.items()), self.rules())
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def rules(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def with_held(self, function: Callable[..., Any], held: tuple[Any, ...], count: int) -> Callable[..., Any]:
        """`function` of the differentiated arguments alone."""
        places = dict(zip(self.nondiff_argnums, held, strict=False))

        @functools.wraps(function)
        def partial(*chosen: Any) -> Any:
            given = iter(chosen)
            return function(*(places[i] if i in places else next(given) for i in range(count)))

        return partial

    def prepare(self, in_tree: Any, types: tuple[Type, ...], held: tuple[Any, ...], count: int) -> Any:
        out = OutTree()
        function = flat_function(self.with_held(self.fun, held, count), in_tree, out)
        program, constants = stage(function, types, where=name_of(self.fun), name=name_of(self.fun))
        rule = self.make_rule(in_tree, types, held, count, out.treedef, program)
        return constants_to_arguments(program), constants, out.treedef, rule

    def make_rule(self, in_tree: Any, types: Any, held: Any, count: int, out_tree: Any, program: Jaxpr) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


class custom_jvp(CustomFunction):
    """A function with its own forward-mode rule: set it with `defjvp` or, per argument, `defjvps`.

    The rule takes `(primals, tangents)`, after the arguments in `nondiff_argnums`, and returns the results and their tangents.
    """

    jvp: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule; gives it back, so that it can decorate."""
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule per argument: `rule(tangent, result, *arguments)` gives its part of the tangent; None means zero."""
        if self.nondiff_argnums:
            raise TypeError("defjvps does not go with nondiff_argnums; use defjvp.")

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            result = self(*primals)
            parts = [rule(t, result, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            zero = tree.map(lambda x: instantiate(Zero.of(type_of(x))), result)
            return result, functools.reduce(lambda a, b: tree.map(_add, a, b), parts) if parts else zero

        self.jvp = jvp

    def rules(self) -> tuple[Any, ...]:
        return (self.jvp, self.symbolic_zeros)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise AttributeError(f"No jvp is defined for {name_of(self.fun)}: give one with {name_of(self.fun)}.defjvp.")
        return self.call(args, kwargs, custom_jvp_call)

    def make_rule(self, in_tree: Any, types: Any, held: Any, count: int, out_tree: Any, program: Jaxpr) -> JvpRule:
        jvp, symbolic = self.jvp, self.symbolic_zeros
        name = name_of(self.fun)
        assert jvp is not None

        def make(nonzero: Mask) -> Jaxpr:
            def function(*flat: Any) -> list[Any]:
                primals, _ = tree.unflatten(in_tree, flat[: len(types)])
                given = [
                    t if n or not symbolic else SymbolicZero(type_of(p).tangent())
                    for p, t, n in zip(flat[: len(types)], flat[len(types) :], nonzero, strict=True)
                ]
                tangents, _ = tree.unflatten(in_tree, given)
                pair = jvp(*held, tuple(primals), tuple(tangents))
                return checked_jvp(name, pair, out_tree, program)

            return stage_closed(function, [*types, *(t.tangent() for t in types)], name=f"jvp of {name}")

        return JvpRule(make, name)


def _add(a: Any, b: Any) -> Any:
    return a + b


def checked_jvp(name: str, pair: Any, out_tree: Any, program: Jaxpr) -> list[Any]:
    """Results and tangents of a custom jvp rule, checked against the function."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise CustomRuleError(f"The custom jvp rule of {name} must return a pair (results, tangents).", received=f"{type(pair).__name__}")
    results, result_tree = tree.flatten(pair[0])
    tangents, tangent_tree = tree.flatten(pair[1], is_leaf=lambda x: isinstance(x, SymbolicZero))
    for found, word in ((result_tree, "results"), (tangent_tree, "tangents")):
        if found != out_tree:
            raise CustomRuleError(
                f"The custom jvp rule of {name} must return {word} in the structure of the function's result.", received=f"{found} for {out_tree}"
            )
    flat = []
    for v, r, t in zip(program.outvars, results, tangents, strict=True):
        expected = v.aval.tangent()
        if not v.aval.matches(type_of(r)):
            raise CustomRuleError(f"The custom jvp rule of {name} must return results of the function's types.", received=f"{type_of(r).short()} for {v.aval.short()}")
        if isinstance(t, SymbolicZero) or not inexact(v.aval):
            t = instantiate(Zero(expected))
        elif not expected.matches(type_of(t)):
            if type_of(t).shape == expected.shape and getattr(type_of(t), "weak_type", False):  # type: ignore[attr-defined]
                t = convert_element_type(t, new_dtype=expected.dtype, weak_type=False)  # type: ignore[attr-defined]
            else:
                raise CustomRuleError(
                    f"The custom jvp rule of {name} must return tangents of the shape and dtype of the results.",
                    received=f"{type_of(t).short()} for {expected.short()}",
                )
        flat.append(t)
    return [*results, *flat]


class custom_vjp(CustomFunction):
    """A function with its own reverse-mode rules: set them with `defvjp(fwd, bwd)`.

    `fwd` takes the function's arguments and returns (results, residuals); `bwd` takes the arguments in `nondiff_argnums`,
    the residuals and the cotangents of the results, and returns one cotangent per differentiated argument.
    """

    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any], symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set both rules."""
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def rules(self) -> tuple[Any, ...]:
        return (self.fwd, self.bwd, self.symbolic_zeros)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No vjp is defined for {name_of(self.fun)}: give one with {name_of(self.fun)}.defvjp(fwd, bwd).")
        return self.call(args, kwargs, custom_vjp_call)

    def make_rule(self, in_tree: Any, types: Any, held: Any, count: int, out_tree: Any, program: Jaxpr) -> VjpRule:
        fwd, bwd, symbolic = self.fwd, self.bwd, self.symbolic_zeros
        name = name_of(self.fun)
        assert fwd is not None and bwd is not None
        residual_trees: dict[Mask, Any] = {}
        residual_types: dict[Mask, list[Type]] = {}

        def forward(nonzero: Mask) -> Jaxpr:
            def function(*flat: Any) -> list[Any]:
                given = [CustomVJPPrimal(x, n) for x, n in zip(flat, nonzero, strict=True)] if symbolic else flat
                args, _ = tree.unflatten(in_tree, given)
                pair = self.with_held(fwd, held, count)(*args)
                if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                    raise CustomRuleError(f"The forward rule of {name} must return a pair (results, residuals).", received=type(pair).__name__)
                results, found = tree.flatten(pair[0])
                if found != out_tree:
                    raise CustomRuleError(f"The forward rule of {name} must return results in the structure of the function's.", received=f"{found} for {out_tree}")
                for v, r in zip(program.outvars, results, strict=True):
                    if not v.aval.matches(type_of(r)):
                        raise CustomRuleError(f"The forward rule of {name} must return results of the function's types.", received=f"{type_of(r).short()} for {v.aval.short()}")
                residuals, residual_trees[nonzero] = tree.flatten(pair[1])
                residual_types[nonzero] = [type_of(r) for r in residuals]
                return [*results, *residuals]

            return stage_closed(function, types, name=f"forward of {name}")

        def backward(nonzero: Mask, cotangents: Mask) -> Jaxpr:
            rule.forward(nonzero)
            saved = residual_types[nonzero]

            def function(*flat: Any) -> list[Any]:
                residuals = tree.unflatten(residual_trees[nonzero], flat[: len(saved)])
                given = [
                    ct if n or not symbolic else SymbolicZero(v.aval.tangent())
                    for v, ct, n in zip(program.outvars, flat[len(saved) :], cotangents, strict=True)
                ]
                found = bwd(*held, residuals, tree.unflatten(out_tree, given))
                return checked_cotangents(name, found, in_tree, types)

            return stage_closed(function, [*saved, *(v.aval.tangent() for v in program.outvars)], name=f"backward of {name}")

        rule = VjpRule(forward, backward, name)
        return rule


def checked_cotangents(name: str, found: Any, in_tree: Any, types: Sequence[Type]) -> list[Any]:
    """One cotangent per argument leaf: None (or a symbolic zero) stands for zeros of a whole argument."""
    args_tree = tree.treedef_children(in_tree)[0]
    parts = tree.treedef_children(args_tree)
    if isinstance(found, list):
        found = tuple(found)
    if not isinstance(found, tuple) or len(found) != len(parts):
        raise CustomRuleError(
            f"The backward rule of {name} must return a tuple with one cotangent per differentiated argument ({len(parts)}).",
            received=f"a {type(found).__name__}" + (f" of length {len(found)}" if isinstance(found, tuple) else ""),
        )
    flat: list[Any] = []
    for number, (part, value) in enumerate(zip(parts, found, strict=True)):
        own = types[len(flat) : len(flat) + part.num_leaves]
        if value is None:
            flat.extend(instantiate(Zero(t.tangent())) for t in own)
            continue
        leaves, structure = tree.flatten(value, is_leaf=lambda x: x is None or isinstance(x, SymbolicZero))
        if structure != part:
            raise CustomRuleError(f"The backward rule of {name} must return the cotangent of argument {number} in its structure.", received=f"{structure} for {part}")
        for leaf, t in zip(leaves, own, strict=True):
            expected = t.tangent()
            if leaf is None or isinstance(leaf, SymbolicZero) or not inexact(t):
                flat.append(instantiate(Zero(expected)))
            elif expected.matches(type_of(leaf)):
                flat.append(leaf)
            elif type_of(leaf).shape == expected.shape and getattr(type_of(leaf), "weak_type", False):  # type: ignore[attr-defined]
                flat.append(convert_element_type(leaf, new_dtype=expected.dtype, weak_type=False))  # type: ignore[attr-defined]
            else:
                raise CustomRuleError(
                    f"The backward rule of {name} must return a cotangent of the shape and dtype of argument {number}.",
                    received=f"{type_of(leaf).short()} for {expected.short()}",
                )
    return flat


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns `(results, pullback)` turned into one with that pullback as its derivative."""

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        pullbacks: list[tuple[Jaxpr, Any]] = []

        def value(*chosen: Any) -> Any:
            return fun(*chosen, **kwargs)[0]

        def forward(*chosen: Any) -> Any:
            results, pullback = fun(*chosen, **kwargs)
            leaves, out_tree = tree.flatten(results)
            out = OutTree()

            def flat(*cotangents: Any) -> list[Any]:
                found = pullback(tree.unflatten(out_tree, cotangents))
                results, out.treedef = tree.flatten(found if isinstance(found, (tuple, list)) else (found,))
                return results

            program, constants = stage(flat, [type_of(r).tangent() for r in leaves], where=f"the pullback of {name_of(fun)}")
            pullbacks[:] = [(constants_to_arguments(program), out.treedef)]
            return results, constants

        def backward(residuals: Any, cotangents: Any) -> Any:
            program, treedef = pullbacks[0]
            return tuple(tree.unflatten(treedef, replay(program, *residuals, *tree.leaves(cotangents))))

        function = custom_vjp(functools.wraps(fun)(value))
        function.positional = lambda a, k: a  # type: ignore[method-assign]
        function.defvjp(forward, backward)
        return function(*args)

    return wrapped


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` without its traced closure: a function of its arguments and the values it closed over, and those values."""
    leaves, in_tree = tree.flatten((example_args, {}))
    out = OutTree()
    program, constants = stage(flat_function(fun, in_tree, out), [type_of(leaf) for leaf in leaves], where=name_of(fun))
    hoisted = [isinstance(c, Tracer) and inexact(type_of(c)) for c in constants]
    held = [c for c, h in zip(constants, hoisted, strict=True) if not h]
    lifted = constants_to_arguments(program)

    def converted(*args_and_constants: Any) -> Any:
        count = len(example_args)
        args, given = args_and_constants[:count], iter(args_and_constants[count:])
        kept = iter(held)
        flat, treedef = tree.flatten((tuple(args), {}))
        if treedef != in_tree:
            raise TypeError(f"The converted {name_of(fun)} takes arguments in the structure of the example: {in_tree}, got {treedef}.")
        values = [next(given) if h else next(kept) for h in hoisted]
        return tree.unflatten(out.treedef, replay(lifted, *values, *flat))

    return converted, [c for c, h in zip(constants, hoisted, strict=True) if h]


