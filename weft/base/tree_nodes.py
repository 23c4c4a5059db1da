"""The kinds of tree nodes, and the table that maps Python types to kinds.

Types without a kind are leaves. Types are matched exactly, so a subclass of `list` or `dict` is a leaf until it is
registered; only namedtuple classes are recognised without registration.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter, methodcaller
from threading import Lock
from typing import Any, TypeVar

from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.forks import held
from weft.base.tree_keys import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

Class = TypeVar("Class", bound=type)
Children = Sequence[Any]

# The cases of the flattening traversal; all other kinds are CUSTOM.
NONE, SEQUENCE, DICT, CUSTOM = range(4)


class FlatKind:
    """The header token of a node of this kind whose children are all leaves, in signatures."""

    __slots__ = ("kind",)

    def __init__(self, kind: NodeKind) -> None:
        self.kind = kind


class NodeKind:
    """How nodes of one type are flattened and unflattened. Compared by identity.

    `user` and `fields` serve generated code: the functions that the user registered (flatten, unflatten of a tuple, and
    flatten with keys or None), whose results are not checked, and the names of a dataclass's data and static fields.
    """

    __slots__ = ("code", "entries", "fields", "flat", "flatten", "label", "type", "unflatten", "user")

    def __init__(
        self,
        node_type: type,
        flatten: Callable[[Any], tuple[Children, Any]],
        unflatten: Callable[[Any, Iterable[Any]], Any],
        entries: Callable[[Any, Any, int], Sequence[Any]],
        code: int = CUSTOM,
        label: str | None = None,
        *,
        user: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any] | None] | None = None,
        fields: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
    ) -> None:
        self.type = node_type
        self.flatten = flatten  # node -> (children, static data)
        self.unflatten = unflatten  # (static data, children) -> node
        self.entries = entries  # (node or None, static data, number of children) -> one key entry a child
        self.code = code
        self.label = node_type.__name__ if label is None else label
        self.flat = FlatKind(self)
        self.user = user
        self.fields = fields

    def __repr__(self) -> str:
        return f"NodeKind({self.label})"


KINDS: dict[type, NodeKind] = {}
# Types that are known leaves. A set, so that checking all children is a single call that runs in C.
LEAF_TYPES: set[type] = {int, float, complex, bool, str}
_LEAF_TYPES_LIMIT = 4096
# Called when a type that was a leaf is registered as a node.
when_leaves_become_nodes: list[Callable[[], None]] = []
_LOCK = held(Lock())


def is_namedtuple_class(node_type: Any) -> bool:
    """Return whether the class is a namedtuple or `typing.NamedTuple` class, or a subclass of one."""
    return isinstance(node_type, type) and issubclass(node_type, tuple) and hasattr(node_type, "_fields")


def classify(node_type: type) -> NodeKind | None:
    """Return the kind of a type, or None for a leaf; the answer for new types is cached."""
    with _LOCK:
        kind = KINDS.get(node_type)
        if kind is None and is_namedtuple_class(node_type):
            kind = KINDS[node_type] = _namedtuple_kind(node_type)
        if kind is None:
            if len(LEAF_TYPES) > _LEAF_TYPES_LIMIT:
                LEAF_TYPES.clear()
            LEAF_TYPES.add(node_type)
        return kind


def kind_of(value: Any) -> NodeKind | None:
    """Return the kind of a value's type, or None if the value is a leaf."""
    node_type = type(value)
    if node_type in LEAF_TYPES:
        return None
    return KINDS.get(node_type) or classify(node_type)


def _add(kind: NodeKind) -> None:
    """Add a kind to the table; raise if its type has one already, since meanings never change within a process."""
    with _LOCK:
        if kind.type in KINDS:
            raise ArgumentError(
                f"{kind.type!r} is already registered as a tree node. A type can be registered once; "
                "remove the second registration or register a subclass."
            )
        KINDS[kind.type] = kind
        if kind.type in LEAF_TYPES:
            LEAF_TYPES.discard(kind.type)
            for forget in when_leaves_become_nodes:
                forget()


# Built-in kinds


def sorted_keys(mapping: dict[Any, Any]) -> list[Any]:
    """Return the keys in the order in which a mapping is flattened."""
    try:
        return sorted(mapping)
    except TypeError as error:
        types = sorted({type(key).__name__ for key in mapping})
        raise ArgumentError(
            f"the keys of a {type(mapping).__name__} in a tree must be sortable, since leaves are taken in the order "
            f"of sorted keys; got keys of type {', '.join(types)} ({error}). Use keys of one type, or an OrderedDict, "
            "which keeps its own order."
        ) from None


def _index_entries(node: Any, data: Any, count: int) -> list[Any]:
    return [SequenceKey(index) for index in range(count)]


def _flat_entries(node: Any, data: Any, count: int) -> list[Any]:
    return [FlattenedIndexKey(index) for index in range(count)]


def _key_entries(node: Any, data: Any, count: int) -> list[Any]:
    return [DictKey(key) for key in data]


def _flatten_dict(node: dict[Any, Any]) -> tuple[Children, Any]:
    keys = sorted_keys(node)
    return [node[key] for key in keys], tuple(keys)


def _flatten_defaultdict(node: defaultdict[Any, Any]) -> tuple[Children, Any]:
    keys = sorted_keys(node)
    return [node[key] for key in keys], (node.default_factory, tuple(keys))


def _namedtuple_kind(node_type: Any) -> NodeKind:
    names: tuple[str, ...] = node_type._fields
    return NodeKind(
        node_type,
        lambda node: (tuple(node), None),
        lambda data, children: node_type(*children),
        lambda node, data, count: [GetAttrKey(name) for name in names],
        label=f"namedtuple[{node_type.__name__}]",
    )


NONE_KIND = NodeKind(type(None), lambda node: ((), None), lambda data, children: None, _index_entries, NONE)
LIST_KIND = NodeKind(list, lambda node: (node, None), lambda data, children: list(children), _index_entries, SEQUENCE)
TUPLE_KIND = NodeKind(
    tuple, lambda node: (node, None), lambda data, children: tuple(children), _index_entries, SEQUENCE
)
DICT_KIND = NodeKind(
    dict, _flatten_dict, lambda keys, children: dict(zip(keys, children, strict=True)), _key_entries, DICT
)
ORDERED_DICT_KIND = NodeKind(
    OrderedDict,
    lambda node: (list(node.values()), tuple(node)),
    lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
    _key_entries,
)
DEFAULT_DICT_KIND = NodeKind(
    defaultdict,
    _flatten_defaultdict,
    lambda data, children: defaultdict(data[0], zip(data[1], children, strict=True)),
    lambda node, data, count: [DictKey(key) for key in data[1]],
)
_DEQUE_KIND = NodeKind(
    deque, lambda node: (list(node), node.maxlen), lambda maxlen, children: deque(children, maxlen), _index_entries
)
for _kind in (NONE_KIND, LIST_KIND, TUPLE_KIND, DICT_KIND, ORDERED_DICT_KIND, DEFAULT_DICT_KIND, _DEQUE_KIND):
    _add(_kind)


# Registration


def _checked(node_type: type, result: Any, function: str) -> tuple[list[Any], Any]:
    """Check and normalise what a user's flatten function returned to (list of children, static data)."""
    if type(result) is not tuple or len(result) != 2:
        raise ArgumentError(
            f"the {function} function of {node_type.__name__} must return a tuple (children, static data), "
            f"got {result!r}"
        )
    children, data = result
    try:
        return list(children), data
    except TypeError:
        raise ArgumentError(
            f"the {function} function of {node_type.__name__} must return (children, static data) with children "
            f"iterable, got children {children!r}"
        ) from None


def _with_keys(node_type: type, flatten_with_keys: Callable[[Any], Any]) -> Callable[[Any], tuple[list[Any], Any]]:
    """Wrap a user's flatten function whose children are pairs (key, child), with checks of its results."""

    def flatten(node: Any) -> tuple[list[Any], Any]:
        pairs, data = _checked(node_type, flatten_with_keys(node), "flatten_with_keys")
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ArgumentError(
                    f"the flatten_with_keys function of {node_type.__name__} must return children as pairs "
                    f"(key, child), got {pair!r}"
                )
        return pairs, data

    return flatten


def register_pytree_node(
    nodetype: Class,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None,
) -> None:
    """Make a type a tree node.

    `flatten_func(node)` returns (children, static data), where static data has `==` and a hash;
    `unflatten_func(static data, children)` returns the node. `flatten_with_keys_func` returns the children
    as pairs (key, child) and so names them in key paths.

    Args:
        nodetype: a class.
        flatten_func: a function of a node that returns children and static data.
        unflatten_func: a function of static data and children that returns a node.
        flatten_with_keys_func: the same with children as pairs (key, child).

    >>> from weft import tree
    >>> from weft import tree_util
    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> tree_util.register_pytree_node(Pair, lambda p: ((p.x, p.y), None), lambda _, children: Pair(*children))
    >>> tree.leaves(Pair(1, [2, 3]))
    [1, 2, 3]
    """
    if not isinstance(nodetype, type):
        raise ArgumentTypeError(
            f"register_pytree_node needs a type, got {nodetype!r} of type {type(nodetype).__name__}"
        )
    entries: Callable[[Any, Any, int], Sequence[Any]] = _flat_entries
    if flatten_with_keys_func is not None:
        flatten_pairs = _with_keys(nodetype, flatten_with_keys_func)

        def entries(node: Any, data: Any, count: int) -> Sequence[Any]:
            if node is None:  # there is only a structure, which does not store names
                return _flat_entries(node, data, count)
            keys = [key for key, _ in flatten_pairs(node)[0]]
            if len(keys) != count:
                name = nodetype.__name__
                raise ArgumentError(
                    f"flatten_with_keys of {name} must return {count} children, as its flatten function does; "
                    f"got {len(keys)}"
                )
            return keys

    _add(
        NodeKind(
            nodetype,
            lambda node: _checked(nodetype, flatten_func(node), "flatten"),
            lambda data, children: unflatten_func(data, tuple(children)),
            entries,
            user=(flatten_func, unflatten_func, flatten_with_keys_func),
        )
    )


def _check_methods(cls: Any, *names: str) -> None:
    """Raise unless a class has the methods that its registration needs."""
    lacking = [name for name in names if not isinstance(cls, type) or not hasattr(cls, name)]
    if lacking:
        raise ArgumentTypeError(
            f"The class must have the methods {' and '.join(names)}.",
            received=repr(cls),
            fix="tree_flatten(self) returns (children, data); tree_unflatten(cls, data, children) is a classmethod",
        )


def register_pytree_node_class(cls: Class) -> Class:
    """Class decorator: make a class with methods `tree_flatten` and `tree_unflatten` a tree node.

    Args:
        cls: a class with the methods.

    Returns:
        The class.

    >>> from weft import tree
    >>> from weft import tree_util
    >>> @tree_util.register_pytree_node_class
    ... class Scaled:
    ...     def __init__(self, value, factor):
    ...         self.value, self.factor = value, factor
    ...     def tree_flatten(self):
    ...         return (self.value,), self.factor
    ...     @classmethod
    ...     def tree_unflatten(cls, factor, children):
    ...         return cls(*children, factor)
    >>> tree.map(lambda x: 2 * x, Scaled(3, "m")).value
    6
    """
    _check_methods(cls, "tree_flatten", "tree_unflatten")
    register_pytree_node(cls, methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys(
    nodetype: Class,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """Make a type a tree node whose children have names in key paths; see `register_pytree_node`.

    Args:
        nodetype: a class.
        flatten_with_keys: a function of a node that returns children as pairs (key, child), and static data.
        unflatten_func: a function of static data and children that returns a node.
        flatten_func: the same without keys, which is faster.

    >>> from weft import tree
    >>> from weft import tree_util
    >>> class Point:
    ...     def __init__(self, x):
    ...         self.x = x
    >>> flatten = lambda point: (((tree_util.GetAttrKey("x"), point.x),), None)
    >>> tree_util.register_pytree_with_keys(Point, flatten, lambda _, children: Point(*children))
    >>> tree_util.keystr(tree.leaves_with_path(Point(1))[0][0])
    '.x'
    """
    if flatten_func is None:

        def flatten_func(node: Any) -> tuple[Iterable[Any], Hashable]:
            pairs, data = _with_keys(nodetype, flatten_with_keys)(node)
            return [child for _, child in pairs], data

    register_pytree_node(nodetype, flatten_func, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Class) -> Class:
    """Class decorator: make a class with `tree_flatten_with_keys` and `tree_unflatten` a tree node.

    Args:
        cls: a class with the methods.

    Returns:
        The class.

    >>> from weft import tree
    >>> from weft import tree_util
    >>> @tree_util.register_pytree_with_keys_class
    ... class Point:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def tree_flatten_with_keys(self):
    ...         return ((tree_util.GetAttrKey("x"), self.x),), None
    ...     @classmethod
    ...     def tree_unflatten(cls, _, children):
    ...         return cls(*children)
    >>> tree.leaves(Point(5))
    [5]
    """
    flatten = methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
    _check_methods(cls, "tree_flatten_with_keys", "tree_unflatten")
    register_pytree_with_keys(cls, methodcaller("tree_flatten_with_keys"), cls.tree_unflatten, flatten)  # type: ignore[attr-defined]
    return cls


def _attributes(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads the named attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda node: ()
    (name,) = names
    return lambda node: (getattr(node, name),)


def _dataclass_fields(
    nodetype: Any, data_fields: Sequence[str] | None, meta_fields: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the data fields and the static fields, from the arguments or from the dataclass."""
    if (data_fields is None) != (meta_fields is None):
        raise ArgumentTypeError(
            "register_dataclass needs data_fields and meta_fields together or neither; "
            f"got data_fields={data_fields!r} and meta_fields={meta_fields!r}"
        )
    if data_fields is not None and meta_fields is not None:
        return tuple(data_fields), tuple(meta_fields)
    if not dataclasses.is_dataclass(nodetype):
        raise ArgumentTypeError(
            f"register_dataclass needs data_fields and meta_fields for {nodetype!r}, which is not a dataclass"
        )
    fields = dataclasses.fields(nodetype)
    static = tuple(field.name for field in fields if field.metadata.get("static", False))
    return tuple(field.name for field in fields if field.name not in static), static


def register_dataclass(
    nodetype: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Class:
    """Make a dataclass a tree node, and return it, so that this is also a class decorator.

    Fields in `data_fields` are children, fields in `meta_fields` are static data, fields in `drop_fields` are omitted
    and get their default value when the node is rebuilt. Without lists, fields with `metadata={"static": True}` are
    static and all others are data.

    Args:
        nodetype: a dataclass.
        data_fields: names of the fields that are children.
        meta_fields: names of the fields that are static data.
        drop_fields: names of the fields that are left out.

    Returns:
        The class.

    >>> from weft import tree
    >>> from weft import tree_util
    >>> import dataclasses
    >>> @tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> tree.map(lambda x: 2 * x, Layer(3.0, "first"))
    Layer(weight=6.0, name='first')
    """
    data_names, meta_names = _dataclass_fields(nodetype, data_fields, meta_fields)
    if not isinstance(nodetype, type):
        raise ArgumentTypeError(f"register_dataclass needs a class, got {nodetype!r}")
    both = sorted(set(data_names) & set(meta_names))
    if both:
        raise ArgumentError(
            f"data_fields and meta_fields of {nodetype.__name__} must not share fields; both have {both}"
        )
    if dataclasses.is_dataclass(nodetype):
        expected = {field.name for field in dataclasses.fields(nodetype) if field.init} - set(drop_fields)
        missing = sorted(expected - {*data_names, *meta_names})
        unknown = sorted({*data_names, *meta_names} - expected)
        if missing or unknown:
            raise ArgumentError(
                "data_fields and meta_fields together must name each field that the constructor of "
                f"{nodetype.__name__} takes; missing: {missing}, not taken: {unknown}. "
                "A field left out on purpose goes in drop_fields."
            )
    names = meta_names + data_names
    read_data, read_meta = _attributes(data_names), _attributes(meta_names)
    entries = [GetAttrKey(name) for name in data_names]
    _add(
        NodeKind(
            nodetype,
            lambda node: (read_data(node), read_meta(node)),
            lambda meta, children: nodetype(**dict(zip(names, (*meta, *children), strict=True))),
            lambda node, data, count: entries,
            fields=(data_names, meta_names),
        )
    )
    return nodetype


def register_static(cls: Class) -> Class:
    """Class decorator: make instances tree nodes without leaves, whose static data is the instance itself.

    The class needs `==` and a hash.
    """
    _add(NodeKind(cls, lambda node: ((), node), lambda node, children: node, _index_entries))
    return cls


def static(**kwargs: Any) -> Any:
    """Return a `dataclasses.field` that `register_dataclass` treats as static data; arguments are those of
    `dataclasses.field`."""
    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return dataclasses.field(metadata=metadata, **kwargs)


def same_data(a: Any, b: Any) -> bool:
    """Compare static data; an object equals itself, whatever its `==` returns."""
    return a is b or bool(a == b)


# Partial


class _OpaqueCallable:
    """Hides a `functools.partial`, which the constructor of an outer partial would otherwise merge."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OpaqueCallable) and self.function == other.function

    def __hash__(self) -> int:
        return hash((_OpaqueCallable, self.function))

    def __repr__(self) -> str:
        return repr(self.function)


class Partial(functools.partial[Any]):
    """A `functools.partial` that is a tree node: the bound arguments are children, the function is static data.

    It can be passed into and out of transformed functions. Two Partials have the same structure if their functions are
    equal, which functions that are defined anew on each call are not.

    Args:
        func: a function.
        *args, **kw: arguments to bind.

    >>> import weft
    >>> from weft import tree_util
    >>> double = tree_util.Partial(lambda x, y: x * y, 2)
    >>> weft.jit(lambda f, y: f(y))(double, 5)
    Array(10, dtype=int32, weak_type=True)
    """

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **kw: Any) -> Partial:
        if isinstance(func, functools.partial):
            func = _OpaqueCallable(func)
        return super().__new__(cls, func, *args, **kw)


register_pytree_node(
    Partial,
    lambda node: ((node.args, node.keywords), node.func),
    lambda function, children: Partial(function, *children[0], **children[1]),
)
