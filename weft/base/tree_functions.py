"""The tables of code for structures (`tree_code`): which functions are tried on a tree, and who holds them."""

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

# Code that takes trees apart (see `tree_code`), by what the root shows at a glance: functions to try in turn, by the
# type of the root, and for types of which there are many structures by its length too.
FLATTEN: dict[type, Any] = {}
FLATTEN_WITH_PATH: dict[type, Any] = {}
# By the type of the root and the identity of is_leaf's code: a function and the answers it expects. One only, since
# is_leaf must not be asked twice.
FLATTEN_UNTIL: dict[Any, tuple[Callable[..., Any], list[bool]]] = {}
# A structure gets code when it was taken apart by the loops so often. There may be several functions for one, since
# they know the order in which dicts have their keys.
_OFTEN, _MOST_TRIED, _MOST_OF_STRUCTURE, _MOST_HINTS, _MOST_PURPOSES = 16, 4, 8, 4096, 256
_BY_LENGTH = frozenset({dict, list, tuple})
when_leaves_become_nodes.append(FLATTEN_UNTIL.clear)  # it knows types of leaves
_set = object.__setattr__
_LOCK = held(Lock())


def forget_functions() -> None:
    """Empty the tables."""
    for table in (FLATTEN, FLATTEN_UNTIL, FLATTEN_WITH_PATH):
        table.clear()


def often(treedef: PyTreeDef, purpose: Any) -> bool:
    """Count that a structure was used; True when it is time to write code."""
    seen = treedef._seen
    if seen is None:
        _set(treedef, "_seen", seen := {})
    elif len(seen) > _MOST_PURPOSES:
        seen.clear()
    count = seen[purpose] = seen.get(purpose, 0) + 1
    return count % _OFTEN == 0


def _held(treedef: PyTreeDef) -> Any:
    """A structure as functions hold it that tables hold."""
    return treedef if treedef._lasts else ref(treedef)


def _weakly(treedef: PyTreeDef, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as a table may hold it: code of a structure with objects of the user's lives as long as that."""
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
    """Count that code is written; False when there was enough."""
    seen: Any = treedef._seen
    count = seen[write] = seen.get(write, 0) + 1
    return count <= _MOST_OF_STRUCTURE and can_be_written(treedef)


def add_function(
    table: dict[type, Any], treedef: PyTreeDef, example: Any, write: Callable[[PyTreeDef, Any, Any], Callable[..., Any]]
) -> None:
    """Have trees like this one taken apart by code."""
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
    """The same for trees that are taken apart with an `is_leaf` like this one."""
    if not _may_be_written(treedef, written_flatten_until):
        return
    function, answers = written_flatten_until(treedef, example, _held(treedef))
    if len(FLATTEN_UNTIL) >= _MOST_HINTS:
        FLATTEN_UNTIL.clear()
    FLATTEN_UNTIL[hint] = (_weakly(treedef, function), answers)


class Answered:
    """`is_leaf` of which the first answers are known."""

    def __init__(self, answers: list[bool], is_leaf: Callable[[Any], bool]) -> None:
        self.answers, self.is_leaf = iter(answers), is_leaf

    def __call__(self, node: Any) -> bool:
        answer = next(self.answers, None)
        return self.is_leaf(node) if answer is None else answer
