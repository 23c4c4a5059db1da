"""Functions over trees, under short names: `weft.tree.map`, `weft.tree.leaves`, and so on."""

from weft.base.publish import publish as _publish
from weft.base.tree import (
    all as all,
    broadcast as broadcast,
    flatten as flatten,
    flatten_with_path as flatten_with_path,
    leaves as leaves,
    leaves_with_path as leaves_with_path,
    map as map,
    map_with_path as map_with_path,
    reduce as reduce,
    reduce_associative as reduce_associative,
    static as static,
    structure as structure,
    transpose as transpose,
    unflatten as unflatten,
)

_publish(__name__)
