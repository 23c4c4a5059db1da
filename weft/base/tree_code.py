"""Generated code for single tree structures, which replaces the generic traversals without loops and tests of kinds.

A `Reader` writes code that takes apart a value of an expected structure and leaves the function for any other
structure; `built` writes the expression that constructs a tree. The generated functions hold structures and static
data, never leaves. They are generated when a structure has been used often; the traversals in `tree_def` work for all
structures.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword
from operator import is_
from typing import TYPE_CHECKING, Any

from weft.base.codegen import Source
from weft.base.tree_keys import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey
from weft.base.tree_nodes import DICT, LEAF_TYPES, NONE, SEQUENCE, NodeKind, is_namedtuple_class
from weft.base.tree_tokens import token

if TYPE_CHECKING:
    from weft.base.tree_def import PyTreeDef

# Compiling code for larger structures costs more than it saves, and Python limits the nesting of expressions.
MOST_NODES, DEEPEST = 2000, 50
# Nodes with more children than this are read as a whole if all of them are leaves.
LONG = 16


def can_be_written(treedef: PyTreeDef) -> bool:
    """Return whether code can be generated for a structure."""
    return treedef.depth <= DEEPEST and _written_nodes(treedef) <= MOST_NODES


def _written_nodes(treedef: PyTreeDef) -> int:
    """Return the number of nodes that need a line of code."""
    if treedef._flat and len(treedef._children) > LONG and treedef._kind.code != DICT:  # type: ignore[union-attr]
        return 1
    return 1 + sum(map(_written_nodes, treedef._children))


def same_names(mapping: Any, names: Sequence[str]) -> bool:
    """Return whether the keys of a mapping are these strings, in this order."""
    return all(map(is_, mapping, names)) or ({*map(type, mapping)} == {str} and [*mapping] == names)


def _readable(names: Sequence[str]) -> bool:
    return all(name.isidentifier() and not iskeyword(name) for name in names)


class Unwritable(Exception):
    """Raised for structures with parts that code cannot be generated for."""


class Reader:
    """Generates lines that take apart a value of an expected structure, or leave.

    `miss` is the statement that leaves. With `exact`, static data and keys must be interchangeable with those of the
    structure, and example values show in which order dicts have their keys; otherwise they must be equal. With `asks`,
    `is_leaf` is called at each node before anything else, and `miss` may contain `{calls}`, the number of earlier
    calls. With `paths`, keys are read too, so that `found` has the constant paths of leaves.

    Without `asks`, the lines may raise ValueError, TypeError and KeyError for values of other structures.
    """

    def __init__(
        self,
        source: Source,
        miss: str,
        *,
        indent: int = 2,
        exact: bool = False,
        asks: bool = False,
        paths: bool = False,
        leaf: Callable[[str], None] | None = None,
    ) -> None:
        self.source, self.miss, self.indent = source, miss, indent
        self.exact, self.asks, self.paths = exact, asks, paths
        self.leaf = leaf
        self.found: list[str] = []  # expressions of the leaves
        self.where: list[tuple[Any, ...]] = []  # their paths
        self.answers: list[bool] = []  # the expected results of is_leaf
        self.leaf_types: dict[type, str] = {}
        self.count = 0

    def line(self, text: str) -> None:
        self.source.line(text, self.indent)

    def leaf_type(self, kind: type) -> str:
        if kind not in self.leaf_types:
            self.leaf_types[kind] = self.source.constant(kind)
        return self.leaf_types[kind]

    def leave_if(self, condition: str) -> None:
        self.line(f"if {condition}: {self.miss.format(calls=len(self.answers))}")

    def names(self, count: int) -> list[str]:
        first = self.count + 1
        self.count += count
        return [f"v{i}" for i in range(first, self.count + 1)]

    def unpack(self, count: int, values: str) -> list[str]:
        """Write code that assigns names to the values of an iterable; return the names."""
        names = self.names(count)
        self.line(f"{', '.join(names)}{',' if count == 1 else ''} = {values}" if names else f"() = {values}")
        return names

    # -- nodes ------------------------------------------------------------------------------------------------------

    def read(
        self, name: str, treedef: PyTreeDef, example: Any = None, path: tuple[Any, ...] = (), known: bool = False
    ) -> None:
        """Write code that reads the value called `name`; its type has been checked if `known`."""
        kind = treedef._kind
        if kind is None:
            return self.read_leaf(name, path, type(example))
        if self.asks:
            self.answers.append(False)
            self.line(f"if is_leaf({name}): return {2 * len(self.answers) + 1}")
        if kind.code == NONE:
            return self.leave_if(f"{name} is not None")
        if not known:
            self.leave_if(f"type({name}) is not {self.source.constant(kind.type)}")
        children = self.children(name, treedef, kind, example)
        if children is None:
            return None
        entries: Sequence[Any] = ()
        if self.paths:
            entries = kind.entries(example, treedef._data, len(children))
        examples = kind.flatten(example)[0] if self.exact else [None] * len(children)
        for i, (part, child) in enumerate(zip(children, treedef._children, strict=True)):
            self.read(part, child, examples[i], (*path, entries[i]) if self.paths else ())
        return None

    def read_leaf(self, name: str, path: tuple[Any, ...], example: type) -> None:
        if self.asks:
            self.answers.append(True)
            node = f"type({name}) not in LEAF_TYPES"
            if example in LEAF_TYPES:
                node = f"type({name}) is not {self.leaf_type(example)} and {node}"
            self.line(f"if not is_leaf({name}) and {node}: return {2 * len(self.answers)}")
        if self.leaf is not None:
            self.leaf(name)
        self.found.append(name)
        self.where.append(path)

    def children(self, name: str, treedef: PyTreeDef, kind: NodeKind, example: Any) -> list[str] | None:
        """Write code that takes one node apart; return the names of its children, or None if all were leaves."""
        count, data = len(treedef._children), treedef._data
        whole = treedef._flat and count > LONG and self.leaf is None and not (self.asks or self.paths)
        if kind.code == SEQUENCE or (kind.user is None and is_namedtuple_class(kind.type)):
            if self.asks or whole or not count:
                self.leave_if(f"len({name}) != {count}")
            if whole:
                self.found.append(f"*{name}")
                return None
            return self.unpack(count, name) if count else []
        if kind.code == DICT or (self.exact and kind.type in (OrderedDict, defaultdict)):
            return self.dict_children(name, kind, data, example)
        if kind.fields is not None and _readable([*kind.fields[0], *kind.fields[1]]):
            return self.dataclass_children(name, kind.fields, data)
        return self.custom_children(name, kind, data, count, example)

    def dict_children(self, name: str, kind: NodeKind, data: Any, example: Any) -> list[str]:
        keys: Sequence[Any] = data
        if kind.type is defaultdict:
            keys = data[1]
            (factory,) = self.names(1)
            self.line(f"{factory} = {name}.default_factory")
            self.same(factory, data[0])
        if self.asks or not self.exact or not keys or len(keys) > LONG:
            self.leave_if(f"len({name}) != {len(keys)}")
        if not keys:
            return []
        if not self.exact:
            names = self.names(len(keys))
            for part, key in zip(names, keys, strict=True):
                self.line(f"{part} = {name}[{self.constant(key)}]")
            return names
        order = list(example)
        if len(keys) > LONG and {*map(type, keys)} == {str}:
            self.leave_if(f"not same_names({name}, {self.source.constant(order)})")
        else:
            for part, key in zip(self.unpack(len(keys), name), order, strict=True):
                self.same(part, key)
        named = dict(zip(order, self.unpack(len(keys), f"{name}.values()"), strict=True))
        return [named[key] for key in keys]

    def dataclass_children(self, name: str, fields: tuple[Sequence[str], Sequence[str]], data: Any) -> list[str]:
        for field, value in zip(fields[1], data, strict=True):
            (part,) = self.names(1)
            self.line(f"{part} = {name}.{field}")
            self.same(part, value)
        names = self.names(len(fields[0]))
        for part, field in zip(names, fields[0], strict=True):
            self.line(f"{part} = {name}.{field}")
        return names

    def custom_children(self, name: str, kind: NodeKind, data: Any, count: int, example: Any) -> list[str]:
        result, static = self.names(2)
        with_keys = kind.user[2] if kind.user is not None and self.paths else None
        flatten = with_keys or (kind.flatten if kind.user is None else kind.user[0])
        self.line(f"{result} = {self.source.constant(flatten)}({name})")
        if kind.user is not None:
            self.leave_if(f"type({result}) is not tuple{f' or len({result}) != 2' if self.asks else ''}")
        self.line(f"{result}, {static} = {result}")
        self.same(static, data)
        if self.asks:
            self.leave_if(f"type({result}) is not tuple and type({result}) is not list or len({result}) != {count}")
        children = self.unpack(count, result)
        if with_keys is None:
            return children
        entries = kind.entries(example, data, count)
        return [self.pair(child, entry) for child, entry in zip(children, entries, strict=True)]

    def pair(self, name: str, entry: Any) -> str:
        """Write code for a child that comes with its key, which must be the expected one."""
        if type(entry) not in _ENTRIES:
            raise Unwritable
        self.leave_if(f"type({name}) is not tuple")
        key, child = self.unpack(2, name)
        self.leave_if(f"type({key}) is not {self.source.constant(type(entry))}")
        self.line(f"{key} = {key}._value")
        self.same(key, entry._value)
        return child

    # -- static data ------------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        return repr(value) if type(value) in (str, int, bool) else self.source.constant(value)

    def same(self, name: str, data: Any) -> None:
        """Write code that leaves if the value called `name` differs from static data of the structure."""
        if not self.exact:
            known = self.source.constant(data)
            return self.leave_if(f"{name} is not {known} and not {name} == {known}")
        kind = type(data)
        if kind is tuple:
            self.leave_if(f"type({name}) is not tuple{f' or len({name}) != {len(data)}' if self.asks else ''}")
            for part, value in zip(self.unpack(len(data), name), data, strict=True):
                self.same(part, value)
            return None
        if kind is bool or data is None:
            return self.leave_if(f"{name} is not {data}")
        known = self.source.constant(data)
        if kind is str or kind is int:
            other = f"type({name}) is not {kind.__name__} or {name} != {known}"
            return self.leave_if(f"{name} is not {known} and ({other})")
        if kind is float or kind is bytes:
            return self.leave_if(f"{name} is not {known} and token({name}) != {self.source.constant(token(data))}")
        return self.leave_if(f"{name} is not {known}")


# The kinds of key entries that generated code can compare.
_ENTRIES = frozenset({DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey})


def _source() -> Source:
    return Source({"LEAF_TYPES": LEAF_TYPES, "same_names": same_names, "token": token})


def _check_leaves(reader: Reader) -> None:
    """Write code that leaves if a leaf is a node by now. Leaf types are compared in runs, since most leaves are of few
    types."""
    names = [name for name in reader.found if name[0] != "*"]
    general = "not LEAF_TYPES.issuperset(map(type, leaves))"
    if len(names) == len(reader.found) > 1:
        alike = " is ".join(f"type({name})" for name in names)
        general = f"(not {alike} or type({names[0]}) not in LEAF_TYPES) and {general}"
    if names or reader.found:
        reader.leave_if(general)


def written_flatten(treedef: PyTreeDef, example: Any, result: Any) -> Callable[[Any], Any]:
    """Generate a function from trees like the example to (leaves, structure), which returns None for other trees.

    `result` is the structure, or a weak reference to it if the function must not keep it alive.
    """
    source = _source()
    reader = Reader(source, "return None", exact=True)
    source.line("try:")
    reader.read("tree", treedef, example)
    reader.line(f"leaves = [{', '.join(reader.found)}]")
    _check_leaves(reader)
    call = "" if result is treedef else "()"
    reader.line(f"return leaves, {source.constant(result)}{call}")
    source.line("except (ValueError, TypeError): return None")
    found: Callable[[Any], Any] = source.function("flatten_tree", "tree")
    return found


def written_flatten_until(treedef: PyTreeDef, example: Any, result: Any) -> tuple[Callable[..., Any], list[bool]]:
    """Generate a function like `written_flatten` with the additional argument `is_leaf`; return it and the results of
    `is_leaf` that it expects.

    For other trees it returns an integer: twice the number of calls of is_leaf, plus the last result. All earlier
    results were as expected.
    """
    source = _source()
    reader = Reader(source, "return {calls} * 2", indent=1, exact=True, asks=True)
    reader.read("tree", treedef, example)
    call = "" if result is treedef else "()"
    reader.line(f"return [{', '.join(reader.found)}], {source.constant(result)}{call}")
    return source.function("flatten_tree_until", "tree, is_leaf"), reader.answers


def written_flatten_with_path(treedef: PyTreeDef, example: Any, result: Any) -> Callable[[Any], Any]:
    """Generate a function like `written_flatten` that returns pairs (path, leaf)."""
    source = _source()
    reader = Reader(source, "return None", exact=True, paths=True)
    source.line("try:")
    reader.read("tree", treedef, example)
    reader.line(f"leaves = [{', '.join(reader.found)}]")
    _check_leaves(reader)
    pairs = [f"({source.constant(path)}, {name})" for path, name in zip(reader.where, reader.found, strict=True)]
    call = "" if result is treedef else "()"
    reader.line(f"return [{', '.join(pairs)}], {source.constant(result)}{call}")
    source.line("except (ValueError, TypeError): return None")
    found: Callable[[Any], Any] = source.function("flatten_tree_with_path", "tree")
    return found


def written_flatten_up_to(treedef: PyTreeDef) -> Callable[[Any], list[Any] | None]:
    """Generate a function from trees with this structure as a prefix to the subtrees at its leaves, which returns None
    for other trees."""
    source = _source()
    reader = Reader(source, "return None")
    source.line("try:")
    reader.read("tree", treedef)
    reader.line(f"return [{', '.join(reader.found)}]")
    source.line("except (ValueError, TypeError, KeyError): return None")
    result: Callable[[Any], list[Any] | None] = source.function("flatten_tree_up_to", "tree")
    return result


# Putting together


def written_unflatten(treedef: PyTreeDef) -> Callable[[Sequence[Any]], Any]:
    """Generate a function from the list of a structure's leaves to the tree."""
    source = _source()
    names = [f"v{i}" for i in range(treedef.num_leaves)]
    if treedef.num_leaves == _written_leaves(treedef):
        if names:
            source.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = leaves")
    else:
        names = [f"leaves[{i}]" for i in range(treedef.num_leaves)]
    source.line(f"return {built(source, treedef, names)}")
    result: Callable[[Sequence[Any]], Any] = source.function("unflatten_tree", "leaves")
    return result


def _written_leaves(treedef: PyTreeDef) -> int:
    """Return the number of leaves that are not taken as slices."""
    if treedef._kind is None:
        return 1
    if treedef._flat and len(treedef._children) > LONG:
        return 0
    return sum(map(_written_leaves, treedef._children))


def built(source: Source, treedef: PyTreeDef, leaves: Sequence[str]) -> str:
    """Return the expression that constructs a tree from expressions of its leaves: names, or elements of a list
    `leaves`."""
    return _built(source, treedef, iter(leaves))


def _built(source: Source, treedef: PyTreeDef, leaves: Iterator[str]) -> str:
    kind = treedef._kind
    if kind is None:
        return next(leaves)
    if kind.code == NONE:
        return "None"
    parts = [_built(source, child, leaves) for child in treedef._children]
    whole = None
    if treedef._flat and len(parts) > LONG and parts[0].startswith("leaves["):
        whole = f"{parts[0][:-1]}:{int(parts[0][7:-1]) + len(parts)}]"
    if kind.type is list:
        return whole or f"[{', '.join(parts)}]"
    if kind.code == DICT:
        if whole is not None:
            return f"dict(zip({source.constant(treedef._data)}, {whole}))"
        keys = [repr(key) if type(key) is str else source.constant(key) for key in treedef._data]
        return "{" + ", ".join(f"{key}: {part}" for key, part in zip(keys, parts, strict=True)) + "}"
    children = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})" if whole is None else f"tuple({whole})"
    if kind.type is tuple:
        return children
    if kind.user is None and is_namedtuple_class(kind.type):
        return f"{source.constant(kind.type)}({', '.join(parts) if whole is None else f'*{whole}'})"
    if kind.fields is not None and _readable([*kind.fields[1], *kind.fields[0]]):
        values = [*map(source.constant, treedef._data), *parts]
        named = [f"{name}={value}" for name, value in zip((*kind.fields[1], *kind.fields[0]), values, strict=True)]
        return f"{source.constant(kind.type)}({', '.join(named)})"
    unflatten = kind.unflatten if kind.user is None else kind.user[1]
    return f"{source.constant(unflatten)}({source.constant(treedef._data)}, {children})"
