"""Tables of generated code for tree structures (`tree_code`): which functions are tried on a tree, and how long they
live."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

from weft.base.forks import held
from weft.base.tree_code import Unwritable, can_be_written, written_flatten_until
from weft.base.tree_nodes import when_leaves_become_nodes

if TYPE_CHECKING:
    from weft.base.tree_def import PyTreeDef

# Functions that flatten trees (see `tree_code`), to be tried in turn, by the type of the root; for types with many
# structures also by its length.
FLATTEN: dict[type, Any] = {}
FLATTEN_WITH_PATH: dict[type, Any] = {}
# By the type of the root and the id of is_leaf's code: a function and the results of is_leaf that it expects. Only one
# function, because is_leaf must not be called twice for a node.
FLATTEN_UNTIL: dict[Any, tuple[Callable[..., Any], list[bool]]] = {}
# Code is generated after this many traversals of a structure. A structure may have several functions, because they
# depend on the order of keys in dicts.
_OFTEN, _MOST_TRIED, _MOST_OF_STRUCTURE, _MOST_HINTS, _MOST_PURPOSES = 16, 4, 8, 4096, 256
_BY_LENGTH = frozenset({dict, list, tuple})
when_leaves_become_nodes.append(FLATTEN_UNTIL.clear)  # these functions assume types of leaves
_set = object.__setattr__
_LOCK = held(Lock())


def forget_functions() -> None:
    """Empty the tables."""
    for table in (FLATTEN, FLATTEN_UNTIL, FLATTEN_WITH_PATH):
        table.clear()


def often(treedef: PyTreeDef, purpose: Any) -> bool:
    """Count a use of a structure; return whether code should be generated now."""
    seen = treedef._seen
    if seen is None:
        _set(treedef, "_seen", seen := {})
    elif len(seen) > _MOST_PURPOSES:
        seen.clear()
    count = seen[purpose] = seen.get(purpose, 0) + 1
    return count % _OFTEN == 0


def _held(treedef: PyTreeDef) -> Any:
    """Return the structure, or a weak reference to it if functions in tables must not keep it alive."""
    return treedef if treedef._lasts else ref(treedef)


def _weakly(treedef: PyTreeDef, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function for a table, so that code of a structure with user objects lives only as long as the
    structure."""
    if treedef._lasts:
        return function
    with _LOCK:
        i = len(treedef._written)
        _set(treedef, "_written", (*treedef._written, function))
    holder = ref(treedef)

    def run(*args: Any) -> Any:
        found = holder()
        return None if found is None else found._written[i](*args)

    return run


def _may_be_written(treedef: PyTreeDef, write: Callable[..., Any]) -> bool:
    """Count a generated function; return False if the structure has enough, or cannot have any."""
    seen: Any = treedef._seen
    count = seen[write] = seen.get(write, 0) + 1
    return count <= _MOST_OF_STRUCTURE and can_be_written(treedef)


def add_function(
    table: dict[type, Any], treedef: PyTreeDef, example: Any, write: Callable[[PyTreeDef, Any, Any], Callable[..., Any]]
) -> None:
    """Generate code that flattens trees like `example`, and add it to a table."""
    if not _may_be_written(treedef, write):
        return
    try:
        function = _weakly(treedef, write(treedef, example, _held(treedef)))
    except Unwritable:
        return
    root = type(example)
    if len(table) >= _MOST_HINTS:
        table.clear()
    if root in _BY_LENGTH:
        lengths = table.setdefault(root, {})
        if len(lengths) >= _MOST_HINTS:
            lengths.clear()
        lengths[len(example)] = (function, *lengths.get(len(example), ())[: _MOST_TRIED - 1])
    else:
        table[root] = (function, *table.get(root, ())[: _MOST_TRIED - 1])


def add_until(hint: Any, treedef: PyTreeDef, example: Any) -> None:
    """Generate code that flattens trees like `example` with an `is_leaf` like this one, and add it to the table."""
    if not _may_be_written(treedef, written_flatten_until):
        return
    function, answers = written_flatten_until(treedef, example, _held(treedef))
    if len(FLATTEN_UNTIL) >= _MOST_HINTS:
        FLATTEN_UNTIL.clear()
    FLATTEN_UNTIL[hint] = (_weakly(treedef, function), answers)


class Answered:
    """An `is_leaf` whose first results are known."""

    def __init__(self, answers: list[bool], is_leaf: Callable[[Any], bool]) -> None:
        self.answers, self.is_leaf = iter(answers), is_leaf

    def __call__(self, node: Any) -> bool:
        answer = next(self.answers, None)
        return self.is_leaf(node) if answer is None else answer
