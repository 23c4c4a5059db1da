"""Lifting: passing the variables and keys of scopes through a transformation of a function.

A `Lift` extracts the variables below some scopes as plain trees, one group for each way in which the transformation
treats them. Groups and keys become arguments and results of the transformed function. Inside it, scopes with the same
paths refer to a `Call` of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import weft
from weft.errors import ScopeLeakError, user_line
from weft.modules.filters import Filter, group, intersect, matches
from weft.modules.scope import Call, Path, Scope, copy_mappings

# For each collection, the subtree below each root of the lift.
Group = dict[str, tuple[Any, ...]]


class Lift:
    """The scopes that pass through a transformation, with their variables and keys in groups."""

    def __init__(
        self,
        transformation: str,
        scopes: Sequence[Scope],
        variables: Sequence[Filter] = (True,),
        rngs: Sequence[Filter] = (True,),
    ):
        self.transformation = transformation
        self.scopes = list(scopes)
        calls = {id(scope.call): scope.call for scope in scopes}
        if len(calls) != 1:
            raise ScopeLeakError(
                f"{transformation} got modules of {len(calls)} different calls; they must belong to one.",
                at=user_line(),
                received=", ".join(scope.path_text for scope in scopes) or "no bound module",
                fix="pass modules bound by the same init or apply",
            )
        (self.call,) = calls.values()
        self.roots = topmost([scope.path for scope in scopes])
        parts = {name: self._parts(tree) for name, tree in self.call.collections.items()}
        self.variables: tuple[Group, ...] = group({name: part for name, part in parts.items() if any(part)}, variables)
        self.rngs: tuple[dict[str, Any], ...] = group(self.call.rngs, rngs)
        self.origins = self.call.origins

    def _parts(self, tree: Any) -> tuple[Any, ...]:
        return tuple(copy_mappings(below(tree, root)) for root in self.roots)

    def _covers(self, path: Path) -> bool:
        return any(path[: len(root)] == root for root in self.roots)

    def relative(self, path: Path) -> tuple[int, Path] | None:
        """Return a path as the index of a root and the path below it, or None if it is below none."""
        found = ((i, path[len(root) :]) for i, root in enumerate(self.roots) if path[: len(root)] == root)
        return next(found, None)

    def absolute(self, path: tuple[int, Path]) -> Path:
        """Return the path that `relative` has split."""
        return (*self.roots[path[0]], *path[1])

    def split(self, rngs: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Split the key of each stream into `count` keys. Draws inside fold their path and counter into these."""
        return {stream: weft.random.split(key, count) for stream, key in rngs.items()}

    def fork_keys(self) -> None:
        """Draw new keys of all streams from the first scope; paths inside are relative to the lifted scopes."""
        drawn = {stream: self.scopes[0].make_rng(stream) for stream in self.call.rngs}
        self.rngs = tuple({stream: drawn[stream] for stream in some} for some in self.rngs)
        self.origins = tuple(self.roots)

    def inside(self, variables: Sequence[Group], rngs: Sequence[Mapping[str, Any]], mutable: Filter = True) -> Call:
        """Return the call over the groups that the transformed function received.

        A collection is mutable inside if it is in `mutable` and mutable outside.
        """
        collections: dict[str, Any] = {}
        for one in variables:
            for name, parts in one.items():
                tree = collections.setdefault(name, {})
                for root, part in zip(self.roots, parts, strict=True):
                    insert(tree, root, part)
        keys = {stream: key for some in rngs for stream, key in some.items()}
        call = Call(collections, keys, intersect(self.call.mutable, mutable), self.call.flags, self.call.frontend)
        call.flags = self.call.flags  # shared: flags that a frontend sets inside apply to the whole call
        call.origins = self.origins
        call.counters = {where: count for where, count in self.call.counters.items() if self._covers(where[0])}
        return call

    def collect(self, call: Call, outs: Sequence[Filter]) -> tuple[Group, ...]:
        """Return the collections that were written inside, in groups, and take over the counters of drawn keys."""
        self.call.counters.update(call.counters)
        written = {name: self._parts(tree) for name, tree in call.collections.items() if matches(call.mutable, name)}
        groups = group({name: parts for name, parts in written.items() if any(parts)}, outs)
        call.close()
        return groups

    def put_back(self, groups: Sequence[Group]) -> None:
        """Write the results of the transformation into the scopes outside."""
        for one in groups:
            for name, parts in one.items():
                for root, part in zip(self.roots, parts, strict=True):
                    if part:
                        node = Scope(self.call, root).mutable_node(name)
                        node.clear()
                        node.update(copy_mappings(part))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context for the transformed function, in which changes that bypass the lift are errors."""
        call = self.call
        before, call.lifting = call.lifting, self.transformation
        try:
            yield
        finally:
            call.lifting = before


def topmost(paths: Sequence[Path]) -> list[Path]:
    """Return the paths that are not below another one, in the given order."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not any(path != other and path[: len(other)] == other for other in unique)]


def below(tree: Any, path: Path) -> Any:
    """Return the subtree at a path; {} if it is missing."""
    for part in path:
        if not isinstance(tree, Mapping):
            return {}
        tree = tree.get(part)
    return tree if isinstance(tree, Mapping) else {}


def insert(tree: dict[str, Any], path: Path, part: Any) -> None:
    """Insert a subtree into a tree at a path."""
    if not path:
        tree.update(part)
        return
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = part
