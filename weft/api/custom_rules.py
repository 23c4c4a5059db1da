"""Values that rules of `custom_jvp` and `custom_vjp` receive and return, and the checks of returned values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.api.flat import get_name, structure_differences
from weft.base import dtypes, tree
from weft.base.errors import ArgumentTypeError, CustomRuleError
from weft.base.source import Location, user_line
from weft.base.tree import map as map_tree
from weft.ir.context import with_aval
from weft.ir.tangents import instantiate
from weft.ir.types import Type, get_aval, is_value
from weft.ir.zeros import Zero
from weft.primitives.control.custom import inexact
from weft.primitives.elementwise.convert import convert_element_type
from weft.trace.refs import Ref


class SymbolicZero:
    """Zero tangent or cotangent, in rules that asked for symbolic zeros.

    Args:
        aval: the type of the zeros: shape and dtype.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> zero = weft.custom_derivatives.SymbolicZero(weft.typeof(wnp.ones(3)))
    >>> zero.shape, zero.instantiate()
    ((3,), Array([0., 0., 0.], dtype=float32))
    """

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
        return SymbolicZero(get_aval(value).tangent())

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.short()})"


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """Return a zero tangent for each value of a tree; with `symbolic_zeros` as a `SymbolicZero`."""

    def one(value: Any) -> Any:
        zero = SymbolicZero.from_primal_value(value)
        return zero if symbolic_zeros else zero.instantiate()

    return map_tree(one, val)


class CustomVJPPrimal:
    """Argument of a forward rule with symbolic zeros: its value, and whether it is differentiated (`perturbed`)."""

    def __init__(self, value: Any, perturbed: bool):
        self.value, self.perturbed = value, perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal(value={self.value!r}, perturbed={self.perturbed})"


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """Return the values of a tree of `CustomVJPPrimal`."""

    def get_value(leaf: Any) -> Any:
        if not isinstance(leaf, CustomVJPPrimal):
            what = "custom_vjp_primal_tree_values: the argument must be a tree of CustomVJPPrimal."
            raise ArgumentTypeError(what, received=f"{leaf!r} of type {type(leaf).__name__}")
        return leaf.value

    return map_tree(get_value, tree, is_leaf=lambda leaf: isinstance(leaf, CustomVJPPrimal))


class Promise:
    """Structure and types of the result of a function: known from staging it, or taken from the first results of its
    rule."""

    __slots__ = ("treedef", "types")

    def __init__(self, treedef: tree.PyTreeDef | None = None, types: Sequence[Type] | None = None):
        self.treedef, self.types = treedef, types

    def check(self, rule: str, result: Any) -> list[Any]:
        """Return the leaves of a rule's result; raise unless structure and types are those of the function's result."""
        leaves, treedef = tree.flatten(result)
        for path, leaf in tree.leaves_with_path(result):
            if not is_value(leaf):
                path_text = f"results{tree.keystr(path)}"
                raise mistake(f"{rule} must return arrays.", f"{leaf!r} of type {type(leaf).__name__} at {path_text}")
        types = [get_aval(leaf) for leaf in leaves]
        if self.treedef is None:
            self.treedef, self.types = treedef, types
        assert self.types is not None
        if treedef != self.treedef:
            what = f"{rule} must return results in the structure of the function's."
            raise mistake(what, structure_differences(self.treedef, treedef, ()))
        for i, (aval, expected) in enumerate(zip(types, self.types, strict=True)):
            if not expected.accepts(aval):
                what = f"{rule} must return results of the types of the function's."
                raise mistake(what, f"{aval.short()} for {expected.short()} at {path_in(self.treedef, i)}")
        return [with_aval(leaf) for leaf in leaves]


def path_in(treedef: tree.PyTreeDef, i: int, word: str = "result") -> str:
    """Return the path of leaf `i` of a structure."""
    paths = [p for p, _ in tree.leaves_with_path(tree.unflatten(treedef, range(treedef.num_leaves)))]
    return word + tree.keystr(paths[i])


def mistake(what: str, received: str, fix: str | None = None) -> CustomRuleError:
    """Return the error for a rule's mistake, with the user's line."""
    return CustomRuleError(what, received=received, fix=fix, at=user_line())


def rule_name(word: str, rule: Callable[..., Any], function: Callable[..., Any]) -> str:
    """Describe a rule in messages: kind, function and source line."""
    code = getattr(rule, "__code__", None)
    line = f", {Location(code, 0).file_and_line()}," if code is not None else ""
    return f"The {word} `{get_name(rule)}`{line} of `{get_name(function)}`"


def in_words(value: Any) -> str:
    """Describe the kind of a returned value."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"one array of type {get_aval(value).short()}" if is_value(value) else f"a {type(value).__name__}"


def check_pair(value: Any, rule: str, parts: str) -> tuple[Any, Any]:
    """Return the two parts of a pair; raise if a rule returned something else."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise mistake(f"{rule} must return a pair ({parts}).", in_words(value), f"return {parts}")
    return value[0], value[1]


def convert_tangent(value: Any, expected: Any, precision: bool = False) -> Any:
    """Convert a tangent to the expected type; None if that is not possible. A Python number takes any dtype, and with
    `precision` so does an array of the same kind."""
    aval: Any = get_aval(value)
    if expected.accepts(aval):
        return with_aval(value)
    alike = precision and dtypes.kind(aval.dtype) == dtypes.kind(expected.dtype)
    if aval.shape == expected.shape and (aval.weak_type or alike):
        return convert_element_type(value, new_dtype=expected.dtype, weak_type=False)
    return None


def is_zero(leaf: Any) -> bool:
    return isinstance(leaf, SymbolicZero)


def check_jvp(rule: str, pair: Any, promise: Promise) -> tuple[list[Any], list[Any]]:
    """Return results and tangents (some of them `Zero`) of a jvp rule; raise if it did not return these."""
    result, tangent = check_pair(pair, rule, "results, tangents")
    results = promise.check(rule, result)
    tangents, tangent_tree = tree.flatten(tangent, is_leaf=is_zero)
    assert promise.treedef is not None
    if tangent_tree != promise.treedef:
        what = f"{rule} must return tangents in the structure of the results."
        raise mistake(what, structure_differences(promise.treedef, tangent_tree, ()))
    values = []
    for i, (r, t) in enumerate(zip(results, tangents, strict=True)):
        expected = get_aval(r).tangent()
        value = Zero(expected) if is_zero(t) or not inexact(get_aval(r)) else convert_tangent(t, expected)
        if value is None:
            what = f"{rule} must return tangents of the shape and dtype of the results."
            received = f"{get_aval(t).short()} for {expected.short()} at {path_in(promise.treedef, i, 'tangents')}"
            raise mistake(what, received, "convert the tangent, for example with .astype")
        values.append(value)
    return results, values


class Residuals:
    """Structure of the residuals of a forward rule. Python numbers among them stay numbers, so that the backward rule
    may branch on them."""

    __slots__ = ("scalars", "treedef")

    def __init__(self, treedef: tree.PyTreeDef, scalars: dict[int, Any]):
        self.treedef, self.scalars = treedef, scalars

    def restore(self, arrays: Sequence[Any]) -> Any:
        """Return the residuals, from their arrays."""
        rest, scalars = iter(arrays), self.scalars
        leaves = [scalars[i] if i in scalars else next(rest) for i in range(self.treedef.num_leaves)]
        return tree.unflatten(self.treedef, leaves)


def check_residuals(rule: str, residuals: Any) -> tuple[list[Any], Residuals]:
    """Return the arrays among a forward rule's residuals, and their structure."""
    for path, leaf in tree.leaves_with_path(residuals):
        if not is_value(leaf) and not isinstance(leaf, Ref):
            received = f"{leaf!r} of type {type(leaf).__name__} at residuals{tree.keystr(path)}"
            raise mistake(f"{rule} must save arrays.", received, "pass other objects as arguments in nondiff_argnums")
    leaves, treedef = tree.flatten(residuals)
    scalars = {i: leaf for i, leaf in enumerate(leaves) if type(leaf) in (bool, int, float, complex, Ref)}
    return [with_aval(leaf) for i, leaf in enumerate(leaves) if i not in scalars], Residuals(treedef, scalars)


def match_cotangents(part: tree.PyTreeDef, value: Any) -> list[Any] | None:
    """Return a cotangent for each leaf of an argument of structure `part`, None for zeros; None if the structures
    differ. None stands for the zeros of a whole subtree, and a number for a subtree with one leaf."""
    if value is None or is_zero(value):
        return [None] * part.num_leaves
    if part.num_leaves == 1 and is_value(value):
        return [value]
    if tree.treedef_is_leaf(part) and part.num_leaves:  # a node without children is no leaf
        return [value]
    leaves: list[Any] = []
    children = tree.treedef_children(part)
    one_level = tree.structure(value, is_leaf=lambda x: x is not value)
    template = tree.unflatten(part, [0] * part.num_leaves)
    if one_level != tree.structure(template, is_leaf=lambda x: x is not template):
        return None
    parts = tree.leaves(value, is_leaf=lambda x: x is not value)
    for child, own in zip(children, parts, strict=True):
        found = match_cotangents(child, own)
        if found is None:
            return None
        leaves.extend(found)
    return leaves


def zeros_for(value: Any, aval: Type) -> Any:
    """Return the zero cotangent that a backward rule means by None or a symbolic zero. For None it is an array of
    zeros, so that the backward rule of the function that computed the argument runs, which may return other cotangents
    than zeros."""
    zero = Zero(aval.cotangent())
    return instantiate(zero) if value is None and inexact(aval) else zero


def check_cotangents(
    rule: str, found: Any, in_tree: Any, types: Sequence[Type], names: Callable[[int], str]
) -> list[Any]:
    """Return one cotangent (or `Zero`) per argument leaf; None and symbolic zeros mean zeros, also for a whole
    argument."""
    parts = tree.treedef_children(tree.treedef_children(in_tree)[0])
    if not isinstance(found, (tuple, list)) or len(found) != len(parts):
        what = f"{rule} must return a tuple with one cotangent for each of the {len(parts)} differentiated arguments."
        raise mistake(
            what, in_words(found), "return (cotangent,)" if len(parts) == 1 else "return None where it is zero"
        )
    flat: list[Any] = []
    for i, (part, value) in enumerate(zip(parts, found, strict=True)):
        own = types[len(flat) : len(flat) + part.num_leaves]
        if value is None or is_zero(value):
            flat.extend(zeros_for(value, t) for t in own)
            continue
        leaves = match_cotangents(part, value)
        if leaves is None:
            what = f"{rule} must return the cotangent of `{names(i)}` in its structure."
            structure = tree.structure(value, is_leaf=lambda x: x is None or is_zero(x))
            raise mistake(what, structure_differences(part, structure, ()))
        for k, (leaf, t) in enumerate(zip(leaves, own, strict=True)):
            zero = leaf is None or is_zero(leaf) or not inexact(t)
            ct = zeros_for(leaf, t) if zero else convert_tangent(leaf, t.cotangent(), True)
            if ct is None:
                argument = path_in(part, k, names(i))
                what = f"{rule} must return a cotangent of the shape and dtype of `{argument}`."
                raise mistake(what, f"{get_aval(leaf).short()} for {t.cotangent().short()}")
            flat.append(ct)
    return flat
