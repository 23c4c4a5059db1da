"""Tree structures (`PyTreeDef`) and the generic traversals that flatten and unflatten trees.

Flattening is part of every call of a compiled function. One traversal collects the leaves and writes the structure as a
flat list of tokens, its signature. Structures are interned by signature, so that equal structures are nearly always the
same object: hashes are computed once, and comparisons compare identities.

`flatten` and `unflatten` are recursive, which is fastest; trees deeper than Python's stack use iterative versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from types import FunctionType
from typing import Any
from weakref import ref

from weft.base.arguments import described, function_of
from weft.base.errors import ArgumentError, ArgumentTypeError, TreeMismatchError
from weft.base.source import user_line
from weft.base.tree_code import (
    can_be_written,
    written_flatten,
    written_flatten_up_to,
    written_flatten_with_path,
    written_unflatten,
)
from weft.base.tree_functions import (
    FLATTEN,
    FLATTEN_UNTIL,
    FLATTEN_WITH_PATH,
    Answered,
    add_function,
    add_until,
    forget_functions,
    often,
)
from weft.base.tree_mismatch import prefix_mismatches
from weft.base.tree_nodes import (
    CUSTOM,
    DICT,
    DICT_KIND,
    KINDS,
    LEAF_TYPES,
    LIST_KIND,
    NONE,
    SEQUENCE,
    TUPLE_KIND,
    FlatKind,
    NodeKind,
    classify,
    kind_of,
    same_data,
    sorted_keys,
)
from weft.base.tree_tokens import Exact, Identity, token

IsLeaf = Callable[[Any], bool]


class PyTreeDef:
    """The structure of a tree without its leaves. Immutable and hashable.

    Created by `structure` and `flatten`. Two structures are equal if their nodes have the same types, equal static data
    (for a dict: its keys) and equal children.

    >>> from weft import tree
    >>> structure = tree.structure({"a": 1, "b": (2, 3)})
    >>> structure
    PyTreeDef({'a': *, 'b': (*, *)})
    >>> structure.num_leaves, structure.unflatten([10, 20, 30])
    (3, {'a': 10, 'b': (20, 30)})
    """

    __slots__ = (
        "__weakref__",
        "_children",
        "_data",
        "_flat",
        "_hash",
        "_kind",
        "_lasts",
        "_seen",
        "_unflatten",
        "_up_to",
        "_written",
        "depth",
        "num_leaves",
        "num_nodes",
    )

    _kind: NodeKind | None
    _data: Any
    _children: tuple[PyTreeDef, ...]
    _flat: bool
    _hash: int
    # Generated code for this structure if it was used often, and its functions in the tables of such code.
    _unflatten: Callable[[Sequence[Any]], Any] | None
    _up_to: Callable[[Any], list[Any] | None] | None
    _written: tuple[Callable[..., Any], ...]
    _seen: dict[Any, int] | None  # number of uses by purpose
    _lasts: bool  # tables may hold strong references to it
    depth: int
    num_leaves: int
    num_nodes: int

    def __new__(cls) -> PyTreeDef:
        raise ArgumentTypeError("A PyTreeDef cannot be created directly: use weft.tree.structure(tree).")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a PyTreeDef is immutable; cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a PyTreeDef is immutable; cannot delete {name}")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PyTreeDef):
            return NotImplemented
        pairs = [(self, other)]
        while pairs:
            a, b = pairs.pop()
            if a is b:
                continue
            if a._kind is not b._kind or a._hash != b._hash or len(a._children) != len(b._children):
                return False
            if not same_data(a._data, b._data):
                return False
            pairs.extend(zip(a._children, b._children, strict=True))
        return True

    def __repr__(self) -> str:
        return f"PyTreeDef({_text(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._kind is None:
            return _restore, (None, None, ())
        return _restore, (self._kind.type, self._data, self._children)

    def __copy__(self) -> PyTreeDef:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PyTreeDef:
        return self

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Return the tree with this structure and the given leaves."""
        return unflatten(self, leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return the subtrees of `tree` at the leaves of this structure."""
        return flatten_up_to(self, tree)

    def children(self) -> list[PyTreeDef]:
        """Return the structures of the root's children."""
        return list(self._children)

    def node_data(self) -> tuple[type, Any] | None:
        """Return the root's type and static data, or None for a leaf."""
        if self._kind is None:
            return None
        return self._kind.type, list(self._data) if self._kind is DICT_KIND else self._data

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        """Return this structure with `inner` in place of each leaf."""
        result: PyTreeDef = _bottom_up(
            self, lambda: inner, lambda node, parts: make_treedef(node._kind, node._data, tuple(parts))
        )
        return result

    @staticmethod
    def from_node_data_and_children(
        registry: Any, node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """Return the structure with the given `node_data()` and `children()`."""
        if node_data is None:
            return LEAF
        node_type, data = node_data
        return _restore(node_type, tuple(data) if node_type is dict else data, tuple(children))


_set = object.__setattr__


def _lenient_hash(data: Any) -> int:
    """Return the hash of static data; 0 for unhashable data, which `==` still distinguishes."""
    try:
        return hash(data)
    except TypeError:
        return 0


def make_treedef(kind: NodeKind | None, data: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    """Create a structure with a node at its root, without checking the arguments."""
    treedef = object.__new__(PyTreeDef)
    count, nodes, flat, depth = 0, 1, kind is not None, 0
    for child in children:
        count += child.num_leaves
        nodes += child.num_nodes
        depth = max(depth, child.depth)
        flat = flat and child._kind is None
    _set(treedef, "_kind", kind)
    _set(treedef, "_data", data)
    _set(treedef, "_children", children)
    _set(treedef, "_flat", flat)  # all children are leaves
    _set(treedef, "_hash", hash((kind, _lenient_hash(data), children)))
    _set(treedef, "num_leaves", 1 if kind is None else count)
    _set(treedef, "num_nodes", nodes)
    _set(treedef, "depth", depth + 1)
    _set(treedef, "_unflatten", None)
    _set(treedef, "_up_to", None)
    _set(treedef, "_written", ())
    _set(treedef, "_seen", None)
    _set(treedef, "_lasts", True)
    return treedef


LEAF = make_treedef(None, None, ())


def _restore(node_type: type | None, data: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    """Build a structure from picklable parts."""
    if node_type is None:
        return LEAF
    kind = KINDS.get(node_type) or classify(node_type)
    if kind is None:
        raise ArgumentError(
            f"{node_type!r} is not registered as a tree node; register it before loading this structure"
        )
    return make_treedef(kind, data, children)


def _bottom_up(treedef: PyTreeDef, leaf: Callable[[], Any], combine: Callable[[PyTreeDef, list[Any]], Any]) -> Any:
    """Combine the root and the results for its children by `combine`; `leaf` is called for each leaf, in order."""
    results: list[Any] = []
    around: list[tuple[PyTreeDef, Iterator[PyTreeDef], list[Any]]] = []
    node, parts = treedef, results
    while True:
        if node._kind is None:
            parts.append(leaf())
        else:
            around.append((node, iter(node._children), parts))
            parts = []
        while around:
            outer, children, before = around[-1]
            child = next(children, None)
            if child is not None:
                node = child
                break
            around.pop()
            before.append(combine(outer, parts))
            parts = before
        else:
            return results[0]


def _text(treedef: PyTreeDef) -> str:
    result: str = _bottom_up(treedef, lambda: "*", _node_text)
    return result


def _node_text(treedef: PyTreeDef, parts: list[str]) -> str:
    kind: Any = treedef._kind
    if kind.code == NONE:
        return "None"
    if kind is TUPLE_KIND:
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if kind is DICT_KIND:
        return "{" + ", ".join([f"{key!r}: {part}" for key, part in zip(treedef._data, parts, strict=True)]) + "}"
    if kind is LIST_KIND:
        return f"[{', '.join(parts)}]"
    # A namedtuple has no static data, and its label already ends with the name in brackets.
    label = kind.label if kind.label.startswith("namedtuple[") else f"{kind.label}[{treedef._data}]"
    return f"CustomNode({label}, [{', '.join(parts)}])"


# Signatures


class _LeafToken:
    """The token of a leaf in a signature."""

    __slots__ = ()


_LEAF_TOKEN = _LeafToken()
# Tokens of these types are equal only if they are interchangeable (unlike 1 == True == 1.0).
_PLAIN = frozenset({str, int, type(None), NodeKind, FlatKind, _LeafToken, Exact})
_INTERNED: dict[tuple[Any, ...], PyTreeDef] = {}
_MOST_INTERNED = 4096
# Structures that hold user objects are referenced weakly.
_INTERNED_BY_IDENTITY: dict[tuple[Any, ...], ref[PyTreeDef]] = {}


def _intern(signature: list[Any], datas: list[Any]) -> PyTreeDef:
    """Return the interned structure of a signature; `datas` contains the static data of its custom nodes in order."""
    tokens = tuple(signature)
    if not _PLAIN.issuperset(map(type, tokens)):
        tokens = tuple([t if type(t) in _PLAIN or type(t) is Identity else token(t) for t in tokens])
        if not _PLAIN.issuperset(map(type, tokens)):
            return _intern_by_identity(tokens, signature, datas)
    found = _INTERNED.get(tokens)
    if found is None:
        if len(_INTERNED) >= _MOST_INTERNED:
            _INTERNED.clear()
            forget_functions()  # they would return structures that are no longer interned
        found = _INTERNED.setdefault(tokens, _read(signature, datas))
    return found


def _intern_by_identity(tokens: tuple[Any, ...], signature: list[Any], datas: list[Any]) -> PyTreeDef:
    """Intern a signature that contains identities.

    A structure holds its data, so no other object has their identities while it lives; afterwards its entry is a dead
    reference.
    """
    entry = _INTERNED_BY_IDENTITY.get(tokens)
    found = None if entry is None else entry()
    if found is None:

        def forget(dead: ref[PyTreeDef]) -> None:
            if _INTERNED_BY_IDENTITY.get(tokens) is dead:
                _INTERNED_BY_IDENTITY.pop(tokens, None)

        found = _read(signature, datas)
        _set(found, "_lasts", False)
        _INTERNED_BY_IDENTITY[tokens] = ref(found, forget)
    return found


def _read(tokens: list[Any], datas: list[Any]) -> PyTreeDef:
    """Build the structure of a signature."""
    position = 0
    remaining_datas = iter(datas)

    around: list[tuple[NodeKind, Any, int, list[PyTreeDef]]] = []  # nodes whose children have not all been read
    while True:
        token = tokens[position]
        position += 1
        data: Any = None
        count = 0
        if type(token) is _LeafToken:
            node = LEAF
        else:
            flat = type(token) is FlatKind
            kind: NodeKind = token.kind if flat else token
            if kind.code == DICT:
                start = position
                while position < len(tokens) and type(tokens[position]) not in _STRUCTURE:
                    position += 1
                data = tuple(tokens[start:position])
                count = len(data)
            elif kind.code == SEQUENCE:
                count = tokens[position]
                position += 1
            elif kind.code == CUSTOM:
                data = next(remaining_datas)
                count = tokens[position]
                position += 2
            if not flat and count:
                around.append((kind, data, count, []))
                continue
            node = make_treedef(kind, data, (LEAF,) * count)
        while around:
            kind, data, count, children = around[-1]
            children.append(node)
            if len(children) < count:
                break
            around.pop()
            node = make_treedef(kind, data, tuple(children))
        else:
            return node


_STRUCTURE = (NodeKind, FlatKind, _LeafToken)


# Taking apart


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], PyTreeDef]:
    """Return the leaves of a tree, in order, and its structure. `is_leaf` stops the traversal where it returns True.

    Args:
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        is_leaf: a function of a node that returns True where the node counts as a leaf.

    Returns:
        A pair of a list of leaves and a `PyTreeDef`.

    >>> from weft import tree
    >>> tree.flatten({"b": 1, "a": (2, 3)})
    ([2, 3, 1], PyTreeDef({'a': (*, *), 'b': *}))
    """
    if is_leaf is not None:
        return _flatten_asking(tree, is_leaf)
    found = FLATTEN.get(type(tree))
    if found is not None:
        for function in found if type(found) is tuple else found.get(len(tree), ()):
            result: tuple[list[Any], PyTreeDef] | None = function(tree)
            if result is not None:
                return result
    kind = kind_of(tree)
    if kind is None:
        return [tree], LEAF
    signature: list[Any] = []
    datas: list[Any] = []
    leaves: list[Any] = []
    try:
        _flatten_node(tree, kind, leaves, signature, datas)
    except RecursionError:
        leaves, signature, datas = [], [], []
        _flatten_until(tree, None, leaves, signature, datas, None)
    treedef = _intern(signature, datas)
    if often(treedef, flatten):
        add_function(FLATTEN, treedef, tree, written_flatten)
    return leaves, treedef


def _flatten_asking(tree: Any, is_leaf: IsLeaf) -> tuple[list[Any], PyTreeDef]:
    """Flatten with `is_leaf`, which is called once for each node, in order."""
    asked = is_leaf
    if type(is_leaf) is FunctionType:
        hint = (type(tree), id(is_leaf.__code__))
    else:
        function_of(is_leaf, "is_leaf", "is_leaf=lambda node: isinstance(node, Mine)")
        hint = (type(tree), 0)
    found = FLATTEN_UNTIL.get(hint)
    if found is not None:
        result = found[0](tree, is_leaf)
        if type(result) is tuple:
            return result
        if result is not None:  # reuse the results of the calls so far
            asked = Answered([*found[1][: result // 2 - 1], bool(result % 2)], is_leaf)
    signature: list[Any] = []
    datas: list[Any] = []
    leaves: list[Any] = []
    _flatten_until(tree, None, leaves, signature, datas, lambda path, node: asked(node))
    if signature[0] is _LEAF_TOKEN:
        return leaves, LEAF
    treedef = _intern(signature, datas)
    if often(treedef, hint):
        add_until(hint, treedef, tree)
    return leaves, treedef


def _flatten_node(node: Any, kind: NodeKind, leaves: list[Any], signature: list[Any], datas: list[Any]) -> None:
    """Append the leaves below a node and the tokens of its structure."""
    code = kind.code
    children: Iterable[Any]
    header: Sequence[Any]
    if code == DICT:
        try:
            header = sorted(node)
        except TypeError:
            header = sorted_keys(node)  # raises the user's error
        children = map(node.__getitem__, header)
        flat = LEAF_TYPES.issuperset(map(type, node.values()))
    elif code == SEQUENCE:
        children = node
        header = (len(node),)
        flat = LEAF_TYPES.issuperset(map(type, node))
    elif code == NONE:
        signature.append(kind.flat)
        return
    else:
        children, data = kind.flatten(node)
        header = (len(children), token(data))
        datas.append(data)
        flat = LEAF_TYPES.issuperset(map(type, children))
    if flat:
        signature.append(kind.flat)
        signature += header
        leaves += children
        return
    start = len(signature)
    signature.append(kind)
    signature += header
    first = len(signature)
    for child in children:
        child_type = type(child)
        if child_type not in LEAF_TYPES:
            child_kind = KINDS.get(child_type) or classify(child_type)
            if child_kind is not None:
                _flatten_node(child, child_kind, leaves, signature, datas)
                continue
        leaves.append(child)
        signature.append(_LEAF_TOKEN)
    _shorten(signature, kind, start, first)


def _shorten(signature: list[Any], kind: NodeKind, start: int, first: int) -> None:
    """Replace the header of a node whose children are all leaves by the flat form, so that a structure has only one
    signature."""
    empty = first == len(signature)
    if empty or (signature[-1] is _LEAF_TOKEN and all(token is _LEAF_TOKEN for token in signature[first:])):
        signature[start] = kind.flat
        del signature[first:]


def _flatten_until(
    node: Any,
    path: tuple[Any, ...] | None,
    leaves: list[Any],
    signature: list[Any],
    datas: list[Any],
    is_leaf: Callable[[Any, Any], bool] | None,
) -> None:
    """Append leaves and tokens like `_flatten_node`, calling `is_leaf(path, node)` at each node; with a path, leaves
    are pairs (path, leaf)."""
    # Ancestors of the current node: remaining children with their paths, and the offset in the signature.
    around: list[tuple[Iterator[tuple[Any, Any]], NodeKind, int, int]] = []
    while True:
        kind = None if is_leaf is not None and is_leaf(path, node) else kind_of(node)
        if kind is None:
            leaves.append(node if path is None else (path, node))
            signature.append(_LEAF_TOKEN)
        else:
            children, data = kind.flatten(node)
            count = len(children)
            start = len(signature)
            signature.append(kind)
            if kind.code == DICT:
                signature += data
            elif kind.code == SEQUENCE:
                signature.append(count)
            elif kind.code == CUSTOM:
                signature += (count, token(data))
                datas.append(data)
            paths: Iterable[Any] = repeat(None)
            if path is not None:
                paths = [(*path, entry) for entry in kind.entries(node, data, count)]
            around.append((iter(list(zip(paths, children))), kind, start, len(signature)))  # noqa: B905
        while around:
            following, kind, start, first = around[-1]
            child = next(following, None)
            if child is not None:
                path, node = child
                break
            around.pop()
            _shorten(signature, kind, start, first)
        else:
            return


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[tuple[Any, ...], Any]], PyTreeDef]:
    """Flatten a tree to pairs (key path, leaf) and its structure; `is_leaf` may take the path as its first argument.

    Args:
        tree: a tree: nested lists, tuples, dicts, named tuples and registered classes; None has no leaves.
        is_leaf: a function of a node that returns True where the node counts as a leaf.
        is_leaf_takes_path: whether `is_leaf` takes the key path before the node.

    Returns:
        A pair of a list of pairs (key path, leaf) and a `PyTreeDef`.

    >>> from weft import tree
    >>> pairs, structure = tree.flatten_with_path({"a": [1, 2]})
    >>> pairs[0]
    ((DictKey(key='a'), SequenceKey(idx=0)), 1)
    """
    asked = is_leaf
    if is_leaf is None:
        found = FLATTEN_WITH_PATH.get(type(tree))
        if found is not None:
            for function in found if type(found) is tuple else found.get(len(tree), ()):
                result: tuple[list[tuple[tuple[Any, ...], Any]], PyTreeDef] | None = function(tree)
                if result is not None:
                    return result
    elif not is_leaf_takes_path:
        asked = lambda path, node: is_leaf(node)
    signature: list[Any] = []
    datas: list[Any] = []
    leaves: list[Any] = []
    _flatten_until(tree, (), leaves, signature, datas, asked)
    if signature[0] is _LEAF_TOKEN:
        return leaves, LEAF
    treedef = _intern(signature, datas)
    if is_leaf is None and often(treedef, flatten_with_path):
        add_function(FLATTEN_WITH_PATH, treedef, tree, written_flatten_with_path)
    return leaves, treedef


class _NoPrefix(Exception):
    """Ends a traversal at the first mismatch. The differences are computed only afterwards, for the error."""


def flatten_up_to(treedef: PyTreeDef, tree: Any, name: str = "the tree") -> list[Any]:
    """Return the subtrees of `tree` at the leaves of `treedef`, which must be a prefix of it; `name` is used in
    errors."""
    if treedef._kind is None:
        return [tree]
    if treedef._up_to is not None:
        found = treedef._up_to(tree)
        if found is not None:
            return found
    elif often(treedef, flatten_up_to) and can_be_written(treedef):
        _set(treedef, "_up_to", written_flatten_up_to(treedef))
    subtrees: list[Any] = []
    try:
        _flatten_up_to(treedef, tree, subtrees)
    except _NoPrefix:
        raise TreeMismatchError(
            f"{name} does not have the structure {treedef}, nor continues it below its leaves.",
            received="\n".join(prefix_mismatches(treedef, tree, name)),
            fix="trees of the same containers and keys: tuple for tuple, list for list; tree.structure shows them",
            at=user_line(),
        ) from None
    return subtrees


def _flatten_up_to(treedef: PyTreeDef, node: Any, subtrees: list[Any]) -> None:
    pairs = [(treedef, node)]
    while pairs:
        treedef, node = pairs.pop()
        kind: Any = treedef._kind
        if kind is None:
            subtrees.append(node)
            continue
        if type(node) is not kind.type:
            raise _NoPrefix
        children: Sequence[Any]
        if kind.code == DICT:
            # Keys that are equal as sets have the same sorted order.
            if len(node) != len(treedef._data):
                raise _NoPrefix
            try:
                children = [node[key] for key in treedef._data]
            except KeyError:
                raise _NoPrefix from None
        elif kind.code == SEQUENCE:
            children = node
        else:
            children, data = kind.flatten(node)
            if not same_data(treedef._data, data):
                raise _NoPrefix
        if len(children) != len(treedef._children):
            raise _NoPrefix
        if treedef._flat:
            subtrees += children
        else:  # reversed, because the last pair is popped next
            pairs.extend(zip(reversed(treedef._children), reversed(list(children)), strict=True))


# Putting together


def unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """Build the tree of a structure from its leaves.

    Args:
        treedef: a structure.
        leaves: one value for each leaf of the structure.

    Returns:
        A tree.

    >>> from weft import tree
    >>> tree.unflatten(tree.structure({"a": 1, "b": (2, 3)}), [10, 20, 30])
    {'a': 10, 'b': (20, 30)}
    """
    if type(leaves) is not list:
        leaves = list(leaves)
    try:
        count = treedef.num_leaves
    except AttributeError:
        fix = "tree.unflatten(tree.structure(tree), leaves)"
        what = "The first argument of tree.unflatten must be a structure."
        raise ArgumentTypeError(what, received=described(treedef), fix=fix) from None
    if len(leaves) != count:
        raise ArgumentError(
            f"expected {treedef.num_leaves} leaves for the structure {treedef}, got {len(leaves)}",
            fix=f"{treedef.num_leaves} leaves, in the order of tree.leaves",
        )
    if treedef._unflatten is not None:
        return treedef._unflatten(leaves)
    if treedef._kind is None:
        return leaves[0]
    if often(treedef, unflatten) and can_be_written(treedef):
        _set(treedef, "_unflatten", written_unflatten(treedef))
    try:
        return _assemble(treedef, iter(leaves))
    except RecursionError:
        return _bottom_up(treedef, iter(leaves).__next__, _node_of)


def _assemble(treedef: PyTreeDef, leaves: Iterator[Any]) -> Any:
    """Build a node, taking its leaves from the iterator."""
    kind: Any = treedef._kind
    children = treedef._children
    if treedef._flat:
        if kind.code == DICT:
            # zip advances the keys first, so it stops without consuming an additional leaf.
            return dict(zip(treedef._data, leaves))  # noqa: B905
        parts = list(islice(leaves, len(children)))
    else:
        parts = [next(leaves) if child is LEAF else _assemble(child, leaves) for child in children]
    return _node_of(treedef, parts)


def _node_of(treedef: PyTreeDef, parts: list[Any]) -> Any:
    """Build a node with the structure's root and the given children."""
    kind: Any = treedef._kind
    if kind.code == DICT:
        return dict(zip(treedef._data, parts))  # noqa: B905
    return parts if kind is LIST_KIND else kind.unflatten(treedef._data, parts)
