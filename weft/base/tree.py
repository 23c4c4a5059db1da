"""Pytrees: nested containers with values at their leaves, and functions of them.

Arguments and results of all transformations are trees. Lists, tuples, dicts, None, OrderedDict, defaultdict, deque,
namedtuples and registered types are nodes; anything else is a leaf. The modules: `tree_keys` (key paths), `tree_nodes`
(kinds of nodes and their registration), `tree_def` (structures and the generic traversals), `tree_code` and
`tree_functions` (generated code for single structures, and its tables), `tree_mismatch` (errors).

Names follow `weft.tree`, so `map`, `all` and `reduce` here are functions over trees: import the module, not its names.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.base.arguments import described, function_of
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.tree_def import (
    LEAF as LEAF,
    PyTreeDef as PyTreeDef,
    flatten as flatten,
    flatten_up_to as flatten_up_to,
    flatten_with_path as flatten_with_path,
    make_treedef,
    unflatten as unflatten,
)
from weft.base.tree_keys import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    KeyEntry as KeyEntry,
    KeyPath as KeyPath,
    SequenceKey as SequenceKey,
    keystr as keystr,
)
from weft.base.tree_mismatch import (
    Difference as Difference,
    equality_errors as equality_errors,
    equality_errors_of_structures as equality_errors_of_structures,
    prefix_errors as prefix_errors,
    prefix_errors_of_structure as prefix_errors_of_structure,
)
from weft.base.tree_nodes import (
    KINDS,
    TUPLE_KIND,
    Partial as Partial,
    is_namedtuple_class,
    kind_of,
    register_dataclass as register_dataclass,
    register_pytree_node as register_pytree_node,
    register_pytree_node_class as register_pytree_node_class,
    register_pytree_with_keys as register_pytree_with_keys,
    register_pytree_with_keys_class as register_pytree_with_keys_class,
    register_static as register_static,
    same_data,
    static as static,
)

IsLeaf = Callable[[Any], bool] | None


class _Missing:
    """The default of arguments for which None is a valid value."""

    def __repr__(self) -> str:
        return "<not given>"


_MISSING = _Missing()


# Leaves and structures


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Return the leaves of a tree, in order.

    Args:
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        is_leaf: a function of a node that returns True where the node counts as a leaf.

    Returns:
        A list; of dicts, in the order of their sorted keys.

    >>> from weft import tree
    >>> tree.leaves({"b": 1, "a": (2, None)})
    [2, 1]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """Return the structure of a tree.

    Args:
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        is_leaf: a function of a node that returns True where the node counts as a leaf.

    Returns:
        A `PyTreeDef`.

    >>> from weft import tree
    >>> tree.structure({"b": 1, "a": (2, None)})
    PyTreeDef({'a': (*, None), 'b': *})
    """
    return flatten(tree, is_leaf)[1]


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the leaves of a tree as pairs (key path, leaf).

    Args:
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        is_leaf: a function of a node that returns True where the node counts as a leaf.
        is_leaf_takes_path: whether `is_leaf` takes the key path before the node.

    Returns:
        A list of pairs.

    >>> from weft import tree
    >>> from weft import tree_util
    >>> [(tree_util.keystr(path), leaf) for path, leaf in tree.leaves_with_path({"a": [1, 2]})]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Return whether no element of the iterable is a node (None is one)."""
    if is_leaf is None:
        return builtins.all(kind_of(element) is None for element in iterable)
    return builtins.all(is_leaf(element) or kind_of(element) is None for element in iterable)


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """Return the structure of a tuple whose elements have the given structures."""
    return make_treedef(TUPLE_KIND, None, tuple(map(checked_structure, treedefs)))


def checked_structure(treedef: Any) -> PyTreeDef:
    """Return an argument that must be a structure, or raise."""
    if not isinstance(treedef, PyTreeDef):
        fix = "tree.structure(tree)   makes one"
        raise ArgumentTypeError("The argument must be the structure of a tree.", received=described(treedef), fix=fix)
    return treedef


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """Return the structures of the children of a structure's root."""
    return checked_structure(treedef).children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Return whether the structure is that of a leaf, or of a node without children, such as None or ().

    Args:
        treedef: a structure.

    Returns:
        A Python bool.

    >>> from weft import tree
    >>> from weft import tree_util
    >>> tree_util.treedef_is_leaf(tree.structure(1))
    True
    """
    return checked_structure(treedef).num_nodes == 1


def is_tree_node(typ: Any) -> bool:
    """Return whether values of this type are nodes."""
    return typ in KINDS or is_namedtuple_class(typ)


# One level


def _one_level(tree: Any) -> tuple[Any, Any, Sequence[Any]]:
    kind = kind_of(tree)
    if kind is None:
        raise ArgumentError(f"cannot flatten a value of type {type(tree).__name__}: it is a leaf, not a tree node")
    children, data = kind.flatten(tree)
    return kind, data, children


def flatten_one_level(tree: Any) -> tuple[Sequence[Any], Any]:
    """Return the children and the static data of a tree's root (for a namedtuple, its class)."""
    kind, data, children = _one_level(tree)
    return children, kind.type if is_namedtuple_class(kind.type) else data


def flatten_one_level_with_keys(tree: Any) -> tuple[Sequence[tuple[Any, Any]], Any]:
    """Flatten like `flatten_one_level`, with each child as a pair (key entry, child)."""
    kind, data, children = _one_level(tree)
    pairs = list(zip(kind.entries(tree, data, len(children)), children, strict=True))
    return pairs, kind.type if is_namedtuple_class(kind.type) else data


# Map and reduce


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to each leaf of `tree` and the subtree at the same path in each tree of `rest`.

    The structure of `tree` must be a prefix of those of `rest`; the result has the structure of `tree`.

    Args:
        f: a function of as many leaves as there are trees.
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        *rest: more trees.
        is_leaf: a function of a node that returns True where the node counts as a leaf.

    Returns:
        A tree of results.

    >>> from weft import tree
    >>> tree.map(lambda x, y: x + y, {"a": 1, "b": (2, 3)}, {"a": 10, "b": (20, 30)})
    {'a': 11, 'b': (22, 33)}
    """
    function_of(f, "The first argument of tree.map", "tree.map(f, tree, *others)")
    values, treedef = flatten(tree, is_leaf)
    if not rest:
        return unflatten(treedef, [f(value) for value in values])
    if len(rest) == 1:
        others = flatten_up_to(treedef, rest[0], "tree 2")
        return unflatten(treedef, [f(value, other) for value, other in zip(values, others, strict=True)])
    columns = [flatten_up_to(treedef, other, f"tree {i}") for i, other in enumerate(rest, 2)]
    return unflatten(treedef, [f(*row) for row in zip(values, *columns, strict=True)])


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Map like `map`, with the key path as the first argument of `f`.

    Args:
        f: a function of a key path and as many leaves as there are trees.
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        *rest: more trees.
        is_leaf: a function of a node that returns True where the node counts as a leaf.
        is_leaf_takes_path: whether `is_leaf` takes the key path before the node.

    Returns:
        A tree of results.

    >>> from weft import tree
    >>> from weft import tree_util
    >>> tree.map_with_path(lambda path, x: tree_util.keystr(path), {"a": [1, 2]})
    {'a': ["['a'][0]", "['a'][1]"]}
    """
    function_of(f, "The first argument of tree.map_with_path", "tree.map_with_path(f, tree, *others)")
    pairs, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [flatten_up_to(treedef, other, f"tree {i}") for i, other in enumerate(rest, 2)]
    return unflatten(treedef, [f(*pair, *row) for pair, *row in zip(pairs, *columns, strict=True)])


def reduce(function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _MISSING, is_leaf: IsLeaf = None) -> Any:
    """Combine the leaves from left to right, starting from `initializer` if given.

    Args:
        function: a function of what was combined so far and a leaf.
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        initializer: where to start; the first leaf by default.
        is_leaf: a function of a node that returns True where the node counts as a leaf.

    Returns:
        The combined value.

    >>> from weft import tree
    >>> tree.reduce(lambda total, x: total + x, {"a": 1, "b": (2, 3)})
    6
    """
    function_of(function, "The first argument of tree.reduce", "tree.reduce(function, tree, initializer)")
    values = leaves(tree, is_leaf)
    if initializer is not _MISSING:
        return functools.reduce(function, values, initializer)
    if not values:
        raise ArgumentTypeError("cannot reduce a tree without leaves: pass an initializer")
    return functools.reduce(function, values)


def reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _MISSING, is_leaf: IsLeaf = None
) -> Any:
    """Combine the leaves by halves, as a tree of logarithmic depth; `identity` is the result if there are no leaves."""
    values = leaves(tree, is_leaf)
    if values:
        return _by_halves(operation, values)
    if identity is _MISSING:
        raise ArgumentTypeError("cannot reduce a tree without leaves: pass identity")
    return identity


def _by_halves(operation: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    return operation(_by_halves(operation, values[:middle]), _by_halves(operation, values[middle:]))


def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Return whether all leaves are true.

    Args:
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        is_leaf: a function of a node that returns True where the node counts as a leaf.

    Returns:
        A Python bool.

    >>> from weft import tree
    >>> tree.all({"a": True, "b": [True, False]})
    False
    """
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any) -> Any:
    """Turn a tree of structure `outer` whose leaves are trees of structure `inner` inside out.

    Without `inner_treedef`, it is read from the first subtree.
    """
    values, treedef = flatten(pytree_to_transpose)
    if inner_treedef is None:
        subtrees = flatten_up_to(outer_treedef, pytree_to_transpose, "pytree_to_transpose")
        if not subtrees:
            raise ArgumentError("cannot read inner_treedef from a tree whose outer structure has no leaves: pass it")
        inner_treedef = structure(subtrees[0])
    size, count = checked_structure(inner_treedef).num_leaves, checked_structure(outer_treedef).num_leaves
    if treedef.num_leaves != size * count:
        raise ArgumentTypeError(
            f"expected {count} x {size} leaves in the structure {outer_treedef.compose(inner_treedef)}, "
            f"got {treedef.num_leaves} in {treedef}"
        )
    columns = [[values[row * size + column] for row in range(count)] for column in range(size)]
    return unflatten(inner_treedef, [unflatten(outer_treedef, column) for column in columns])


# Prefixes


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Return the leaves of `prefix_tree`, each repeated for every leaf of `full_tree` below it."""
    prefix_leaves, prefix_treedef = flatten(prefix_tree, is_leaf)
    result: list[Any] = []
    if not _broadcast_leaves(prefix_treedef, structure(full_tree), iter(prefix_leaves), result):
        lines = prefix_errors(prefix_tree, full_tree, is_leaf, "prefix_tree")
        raise ArgumentError("prefix_tree must be a prefix of full_tree:" + "".join([f"\n  {line}" for line in lines]))
    return result


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """Return a tree with the structure of `full_tree`, and at each leaf the leaf of `prefix_tree` above it."""
    return unflatten(structure(full_tree), broadcast_prefix(prefix_tree, full_tree, is_leaf))


def _broadcast_leaves(prefix: PyTreeDef, full: PyTreeDef, values: Any, result: list[Any]) -> bool:
    """Repeat each value for the leaves below it; return False if `prefix` is not a prefix of `full`."""
    if prefix._kind is None:
        result.extend([next(values)] * full.num_leaves)
        return True
    if prefix._kind is not full._kind or len(prefix._children) != len(full._children):
        return False
    if not same_data(prefix._data, full._data):
        return False
    pairs = zip(prefix._children, full._children, strict=True)
    return builtins.all(_broadcast_leaves(child, other, values, result) for child, other in pairs)


def flatten_axes(name: str, treedef: PyTreeDef, axis_tree: Any, kws: bool = False) -> list[Any]:
    """Return one axis specification for each leaf of `treedef`, from a tree prefix of specifications.

    None in `axis_tree` is a specification for the whole subtree below it. With `kws`, both are pairs (positional,
    keyword), and errors refer to the positional part, which the user wrote. `name` is used in errors.
    """
    is_none = lambda node: node is None
    values, axis_treedef = flatten(axis_tree, is_none)
    result: list[Any] = []
    if _broadcast_leaves(axis_treedef, treedef, iter(values), result):
        return result
    lines = prefix_errors_of_structure(axis_tree, treedef, is_none, name)
    if kws:
        positional, positional_treedef = axis_tree[0], treedef.children()[0]
        positional_lines = prefix_errors_of_structure(positional, positional_treedef, is_none, name)
        if positional_lines:
            axis_tree, treedef, lines = positional, positional_treedef, positional_lines
    raise ArgumentError(
        f"{name} must be a tree prefix of the value that it describes; "
        f"got {axis_tree!r} for a value of structure {treedef}:" + "".join([f"\n  {line}" for line in lines])
    )


# The registry as an object


class PyTreeRegistry:
    """The table of node types as an object; `default_registry` is the only one."""

    def register_node(
        self,
        nodetype: type,
        to_iterable: Callable[[Any], Any],
        from_iterable: Callable[[Any, Any], Any],
        to_iterable_with_keys: Callable[[Any], Any] | None = None,
    ) -> None:
        """Register a node type, like `register_pytree_node`."""
        register_pytree_node(nodetype, to_iterable, from_iterable, to_iterable_with_keys)

    def register_dataclass_node(self, nodetype: type, data_fields: Sequence[str], meta_fields: Sequence[str]) -> None:
        """Register a dataclass, like `register_dataclass`."""
        register_dataclass(nodetype, data_fields, meta_fields)

    def is_node(self, node_type: type) -> bool:
        """Return whether values of this type are nodes."""
        return is_tree_node(node_type)

    def flatten(self, tree: Any, leaf_predicate: IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
        """Return the leaves and the structure of a tree."""
        return flatten(tree, leaf_predicate)

    def flatten_with_path(
        self, tree: Any, leaf_predicate: Callable[..., bool] | None = None, leaf_predicate_takes_path: bool = False
    ) -> tuple[list[tuple[tuple[Any, ...], Any]], PyTreeDef]:
        """Return the leaves with their key paths, and the structure of a tree."""
        return flatten_with_path(tree, leaf_predicate, leaf_predicate_takes_path)

    def flatten_one_level(self, tree: Any) -> tuple[Sequence[Any], Any] | None:
        """Return the children and static data of a node, or None for a leaf."""
        return None if kind_of(tree) is None else flatten_one_level(tree)

    def flatten_one_level_with_keys(self, tree: Any) -> tuple[Sequence[tuple[Any, Any]], Any] | None:
        """Return the named children and static data of a node, or None for a leaf."""
        return None if kind_of(tree) is None else flatten_one_level_with_keys(tree)


default_registry = PyTreeRegistry()
