"""Functions with a user-defined batching rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.api.custom_rules import check_pair, mistake, path_in, rule_name
from weft.api.flat import adopt, check_callable, check_leaves, get_name, get_signature, structure_differences
from weft.base import tree
from weft.base.errors import CustomRuleError
from weft.base.publish import publish as _publish
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, context, with_aval
from weft.ir.jaxpr import Jaxpr
from weft.ir.primitive import Axis
from weft.ir.types import Type, get_aval, is_value
from weft.lax.bodies import trace_body
from weft.lax.control_flow import map as lax_map
from weft.primitives.control.custom_vmap import Mask, VmapRule, custom_vmap_call
from weft.trace.closed import stage_subjaxpr

__all__ = ["custom_vmap", "sequential_vmap"]


class MissingBatchRuleError(CustomRuleError, AttributeError):
    """Raised if a `custom_vmap` function is used before its rule is set; an `AttributeError`, as in JAX."""


class custom_vmap:
    """Function whose `vmap` is computed by a rule, which `def_vmap` sets.

    The rule is called with the size of the mapped axis, a list with a tree of flags for each argument (whether a leaf
    is mapped, along its first dimension), and the arguments. It returns the result and a tree of such flags for it.
    `jit`, `grad`, loops and further `vmap`s transform the computation of the rule.

    Args:
        fun: the function, used if nothing is mapped.

    >>> import weft, weft.numpy as wnp
    >>> from weft.custom_batching import custom_vmap
    >>> @custom_vmap
    ... def product(x, y):
    ...     return x * y
    >>> @product.def_vmap
    ... def product_of_batch(axis_size, in_batched, x, y):
    ...     return x * y + 100, True
    >>> weft.vmap(product, in_axes=(0, None))(wnp.arange(3), 2)
    Array([100, 102, 104], dtype=int32)
    """

    def __init__(self, fun: Callable[..., Any]):
        check_callable(fun, "custom_vmap")
        adopt(self, fun)
        self.fun = fun
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule, and return it, so that this can be a decorator."""
        check_callable(vmap_rule, f"def_vmap of {get_name(self.fun)}")
        self.vmap_rule = vmap_rule
        return vmap_rule

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.vmap_rule is None:
            name = get_name(self.fun)
            what = f"No batching rule is defined for the custom_vmap function {name}."
            raise MissingBatchRuleError(what, fix=f"{name}.def_vmap(rule)", at=user_line())
        args = self.positional(args, kwargs)
        leaves, in_tree = tree.flatten(args)
        check_leaves(self.fun, "custom_vmap", leaves, args, {})
        if context.trace is EVALUATION:
            return self.fun(*tree.unflatten(in_tree, map(with_aval, leaves)))
        types = [get_aval(leaf) for leaf in leaves]
        jaxpr, constants, out_tree, _ = trace_body(self.fun, in_tree, types, "custom_vmap of")
        rule = _Rule(self, in_tree, out_tree, jaxpr.out_avals, types, [get_aval(c) for c in constants])
        results = custom_vmap_call(
            *constants, *leaves,
            jaxpr=jaxpr, rule=VmapRule(rule.make, get_name(self.fun), rule.run), num_consts=len(constants),
        )  # fmt: skip
        return tree.unflatten(out_tree, results)

    def positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return all arguments by position, as the rule takes them."""
        if not kwargs:
            return args
        signature = get_signature(self.fun)
        if signature is None:
            raise mistake(f"{get_name(self.fun)} has no signature to read.", f"by name: {', '.join(kwargs)}")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            what = f"{get_name(self.fun)} has keyword-only arguments, which a batching rule cannot take."
            raise mistake(what, ", ".join(bound.kwargs), "make them positional parameters")
        return bound.args


class _Rule:
    """User's rule for arguments of one structure and of some types, which follow the constants of the function."""

    def __init__(
        self,
        function: custom_vmap,
        in_tree: Any,
        out_tree: Any,
        out_types: Sequence[Type],
        types: Sequence[Type],
        constants: Sequence[Type],
    ):
        assert function.vmap_rule is not None
        self.rule, self.in_tree, self.out_tree, self.out_types = function.vmap_rule, in_tree, out_tree, out_types
        self.types, self.constants = types, constants
        self.name = rule_name("batching rule", self.rule, function.fun)

    def run(self, axis: Axis, batched: Mask, args: Sequence[Any]) -> tuple[list[Any], Mask]:
        """Run the rule on arguments; raise unless its results have the types of the function."""
        count = len(self.constants)
        passed = tree.unflatten(self.in_tree, args[count:])
        flags = list(tree.unflatten(self.in_tree, batched[count:]))
        result, mapped = check_pair(
            self.rule(axis.size, flags, *passed), self.name, "result, which of its leaves are mapped"
        )
        leaves, treedef = tree.flatten(result)
        marks, marked = tree.flatten(mapped)
        if treedef != marked:
            what = f"{self.name} must say of each leaf of its result whether it is mapped."
            raise mistake(what, structure_differences(treedef, marked, ()))
        if treedef != self.out_tree:
            what = f"{self.name} must return a result in the structure of the function's."
            raise mistake(what, structure_differences(self.out_tree, treedef, ()))
        for i, (leaf, mark, expected) in enumerate(zip(leaves, marks, self.out_types, strict=True)):
            wanted = axis.insert_into(expected) if mark else expected
            if not is_value(leaf) or not wanted.matches(get_aval(leaf)):
                found = get_aval(leaf).short() if is_value(leaf) else f"{leaf!r} of type {type(leaf).__name__}"
                word = "mapped" if mark else "not mapped"
                raise mistake(
                    f"{self.name} must return arrays of the types of the function's results, mapped along their first "
                    "dimension where it says so.",
                    f"{found} for {wanted.short()}, {word}, at {path_in(treedef, i)}",
                )
        return [with_aval(leaf) for leaf in leaves], tuple(map(bool, marks))

    def make(self, axis: Axis, batched: Mask) -> tuple[Jaxpr, Mask]:
        """Stage the rule to a jaxpr."""
        types = [axis.insert_into(t) if b else t for t, b in zip([*self.constants, *self.types], batched, strict=True)]
        out: list[Mask] = []

        def function(*args: Any) -> list[Any]:
            results, marks = self.run(axis, batched, args)
            out.append(marks)
            return results

        jaxpr = stage_subjaxpr(function, types, name=get_name(self.rule))
        return jaxpr, out[0]


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """Return a function whose `vmap` is a loop over the elements.

    >>> import weft, weft.numpy as wnp
    >>> from weft.custom_batching import sequential_vmap
    >>> weft.vmap(sequential_vmap(lambda x: x + 1))(wnp.arange(3))
    Array([1, 2, 3], dtype=int32)
    """
    function = custom_vmap(f)

    @function.def_vmap
    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        leaves, in_tree = tree.flatten(args)
        flags = tree.leaves(list(in_batched))
        mapped = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]

        def one(slices: list[Any]) -> Any:
            rest = iter(slices)
            own = [next(rest) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]
            return function(*tree.unflatten(in_tree, own))

        result = lax_map(one, mapped)
        return result, tree.map(lambda leaf: True, result)

    return function


_publish(__name__)
