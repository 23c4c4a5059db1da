"""Trees under their long names, with key paths, structures and the registration of new node types."""

from weft.base.publish import publish as _publish
from weft.base.tree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyEntry,
    KeyPath,
    Partial,
    PyTreeDef,
    SequenceKey,
    all_leaves,
    default_registry,
    flatten_one_level,
    flatten_one_level_with_keys,
    is_tree_node,
    keystr,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
    treedef_children,
    treedef_is_leaf,
    treedef_tuple,
)
from weft.base.tree import all as tree_all
from weft.base.tree import broadcast as tree_broadcast
from weft.base.tree import flatten as tree_flatten
from weft.base.tree import flatten_with_path as tree_flatten_with_path
from weft.base.tree import leaves as tree_leaves
from weft.base.tree import leaves_with_path as tree_leaves_with_path
from weft.base.tree import map as tree_map
from weft.base.tree import map_with_path as tree_map_with_path
from weft.base.tree import reduce as tree_reduce
from weft.base.tree import reduce_associative as tree_reduce_associative
from weft.base.tree import structure as tree_structure
from weft.base.tree import transpose as tree_transpose
from weft.base.tree import unflatten as tree_unflatten

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "default_registry",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]

_publish(__name__)
