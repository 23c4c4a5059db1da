"""Structures of trees as JSON: tuples, lists, dicts and None by themselves, other nodes by the names under which they
were registered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from weft.base.errors import ArgumentError, FileFormatError, NotSupportedError
from weft.base.tree import PyTreeDef, default_registry
from weft.base.tree_def import LEAF

Node = TypeVar("Node", bound=type[Any])


class _Registered(NamedTuple):
    node_type: type[Any]
    name: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    from_children: Callable[[Any, Sequence[Any]], Any] | None


_by_type: dict[type[Any], _Registered] = {}
_by_name: dict[str, _Registered] = {}


def register_pytree_node_serialization(
    nodetype: Node,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> Node:
    """Say how structures with nodes of a class are written to files: under a name, with the static data of a node as
    bytes. The class must be registered as a tree node too, also where the file is read. `from_children` is
    accepted for JAX's programs and ignored: nodes are made by the function that was registered with the class."""
    for known in (_by_type.get(nodetype), _by_name.get(serialized_name)):
        if known is not None:
            raise ArgumentError(
                f"Duplicate serialization registration for type `{nodetype.__name__}` and serialized_name "
                f"`{serialized_name}`: `{known.node_type.__name__}` is registered as `{known.name}`."
            )
    entry = _Registered(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata, from_children)
    _by_type[nodetype] = _by_name[serialized_name] = entry
    return nodetype


def register_namedtuple_serialization(nodetype: Node, *, serialized_name: str) -> Node:
    """Register a class of `collections.namedtuple` or `typing.NamedTuple`, whose nodes have no static data, to be
    written to files."""
    return register_pytree_node_serialization(
        nodetype, serialized_name=serialized_name, serialize_auxdata=lambda _: b"", deserialize_auxdata=lambda _: None
    )


def to_json(structure: PyTreeDef, plain: bool = False) -> Any:
    """Encode a tree structure as JSON. A node that is not registered raises an error, or is a tuple if `plain`."""
    data = structure.node_data()
    if data is None:
        return "*"
    kind, aux = data
    children = [to_json(child, plain) for child in structure.children()]
    if kind is type(None):
        return None
    if kind in (tuple, list):
        return {"node": kind.__name__, "children": children}
    if kind in (dict, OrderedDict):
        return {"node": kind.__name__, "keys": [_key_to_json(key) for key in aux], "children": children}
    found = _by_type.get(kind)
    if found is None and plain:
        return {"node": "tuple", "children": children}
    if found is None:
        raise ArgumentError(
            f"Cannot serialize PyTreeDef containing an unregistered type `{kind.__module__}.{kind.__qualname__}`.",
            fix="weft.export.register_pytree_node_serialization, or register_namedtuple_serialization",
        )
    return {"node": "registered", "name": found.name, "data": found.serialize(aux).hex(), "children": children}


def _key_to_json(key: Any) -> Any:
    if type(key) in (str, int, bool):
        return [type(key).__name__, key]
    raise NotSupportedError(f"A dict with the key {key!r} cannot be written to a file: keys are strings and integers.")


def from_json(value: Any) -> PyTreeDef:
    """Decode the tree structure that JSON describes."""
    if value == "*":
        return LEAF
    if value is None:
        return _node((type(None), None), ())
    children = [from_json(child) for child in value["children"]]
    match value["node"]:
        case "tuple":
            return _node((tuple, None), children)
        case "list":
            return _node((list, None), children)
        case "dict" | "OrderedDict" as name:
            kinds = {"str": str, "int": int, "bool": bool}
            keys = [kinds[kind](key) for kind, key in value["keys"]]
            if len(set(keys)) != len(keys) or len(keys) != len(children):
                raise FileFormatError("A dict in the file has a key twice, or not as many keys as values.")
            if name == "OrderedDict":
                return _node((OrderedDict, tuple(keys)), children)
            return _node((dict, keys), children)
        case "registered":
            found = _by_name.get(value["name"])
            if found is None:
                raise FileFormatError(
                    f"The file has a structure with nodes named {value['name']!r}, which are not registered here.",
                    fix="weft.export.register_pytree_node_serialization, as where the file was written",
                )
            return _node((found.node_type, found.deserialize(bytes.fromhex(value["data"]))), children)
    raise FileFormatError(f"A structure in the file has a node of an unknown kind: {value['node']!r}.")


def _node(data: Any, children: Sequence[PyTreeDef]) -> PyTreeDef:
    return PyTreeDef.from_node_data_and_children(default_registry, data, children)
