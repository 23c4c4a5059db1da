"""Restoring a tree: on any mesh, from a checkpoint of any other.

What is asked for is compared with what is there before anything is read, and all that does not fit is one error. Then
each array is read in the parts that its devices need.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.api.devices import is_destination
from weft.base import dtypes, tree as trees
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError, CheckpointMismatchError
from weft.checkpointing import structure as structures
from weft.checkpointing.index import ArrayEntry, Box, Index
from weft.checkpointing.saving import box_of
from weft.checkpointing.source import Directory, Source
from weft.ir.types import ShapeDtypeStruct, array_type
from weft.runtime.array import ConcreteArray, copied
from weft.runtime.device import Placement, default_placement
from weft.runtime.padding import padded
from weft.runtime.sharded import ShardedArray, assembled, check_devices, on_device, placed_type
from weft.sharding.device import Device
from weft.sharding.mesh import AbstractMesh
from weft.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding

_SHOWN = 50  # names in a list of an error
_NUMBERS = (bool, int, float, complex)
_KINDS = {bool: "b", int: "iu", float: "f", complex: "c"}


class Metadata(NamedTuple):
    """What a checkpoint says of itself: its tree, with a `ShapeDtypeStruct` for each array, its step, the metadata that
    were saved with it, and the metrics that a manager got with it."""

    tree: Any
    step: int | None
    metadata: Any
    metrics: Any


def metadata(path: str | os.PathLike[str]) -> Metadata:
    """What the checkpoint in a directory says of itself; no arrays are read."""
    return metadata_of(Directory(path).index)


def metadata_of(index: Index) -> Metadata:
    """What an index says of its checkpoint."""
    tree = structures.rebuild(index.tree, lambda name: _abstract(index, name))
    return Metadata(tree, index.step, index.metadata, index.metrics)


def _abstract(index: Index, name: str) -> Any:
    if name in index.values:
        return index.values[name]
    entry = index.arrays[name]
    return ShapeDtypeStruct(entry.shape, entry.dtype, weak_type=entry.weak_type)


def restore(path: str | os.PathLike[str], like: Any = None, shardings: Any = None, *, partial: bool = False) -> Any:
    """The tree that was saved to the directory `path`.

    `like` is a tree with the same names of leaves: it says the nodes, and where arrays go. Its leaves are arrays,
    `ShapeDtypeStruct`s (with a sharding, if they have one), NumPy arrays or Python values; the leaves of the result
    are of the same kind, and have the shapes and dtypes of `like`, bit by bit as they were saved. Without `like`
    nodes are plain dicts and lists, and what was a NumPy array is one. With `partial` the checkpoint may
    have leaves that `like` does not have.

    `shardings` says where arrays go: a sharding, a device, or `np.ndarray` for NumPy arrays, or a tree of them that
    is a prefix of the tree; None leaves it to `like`. Only what the devices of this process need is read.
    """
    return restore_from(Directory(path), like, shardings, partial)


def restore_from(source: Source, like: Any, shardings: Any, partial: bool) -> Any:
    """The tree of a source (see `restore`)."""
    index = source.index
    if like is None:
        wanted: dict[str, Any] = dict.fromkeys(structures.leaf_names(index.tree))
        build: Callable[[dict[str, Any]], Any] = lambda leaves: structures.rebuild(index.tree, leaves.__getitem__)
    else:
        wanted, treedef = structures.named_leaves(like)
        build = lambda leaves: trees.unflatten(treedef, leaves.values())
    if is_destination(shardings):
        asked = dict.fromkeys(wanted, shardings)
    else:
        names = build({name: name for name in wanted})
        by_leaf = trees.broadcast_prefix(shardings, names, is_leaf=is_destination)
        asked = dict(zip(trees.leaves(names), by_leaf, strict=True))
    problems = _Problems(source)
    there = index.arrays.keys() | index.values.keys()
    problems.missing = [name for name in wanted if name not in there]
    problems.unexpected = [] if partial else sorted(there - wanted.keys())
    plans = {
        name: _plan(source, name, leaf, like is not None, asked[name], problems)
        for name, leaf in wanted.items()
        if name in there
    }
    problems.check()
    return build({name: plan() for name, plan in plans.items()})


class _Problems:
    """All that does not fit."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.missing: Sequence[str] = ()
        self.unexpected: Sequence[str] = ()
        self.others: list[str] = []

    def check(self) -> None:
        """Raise if there are any."""
        lines = []
        for title, names in (("missing", self.missing), ("unexpected", self.unexpected)):
            if names:
                lines.append(f"{title}: {', '.join(names[:_SHOWN])}{_more(names)}")
        lines += self.others[:_SHOWN]
        if _more(self.others):
            lines.append(_more(self.others).strip(", "))
        if lines:
            fix = [f"{self.source.shown_by}   shows the contents of the checkpoint"]
            if self.unexpected and not self.missing and not self.others:
                fix = ["partial=True   to ignore unexpected leaves", *fix]
            what = f"The checkpoint in {self.source.path} does not have the leaves that were asked for."
            raise CheckpointMismatchError(what, received="\n".join(lines), fix=fix)


def _more(names: Sequence[str]) -> str:
    return f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""


# ------------------------------------------------------------------------------------------------------------- one leaf


def _plan(source: Source, name: str, leaf: Any, has_like: bool, asked: Any, problems: _Problems) -> Callable[[], Any]:
    """A function that restores a leaf. What does not fit is added to the problems, and then it is not called."""
    found = source.index.values.get(name, source.index.arrays.get(name))
    if not isinstance(found, ArrayEntry) and (not has_like or type(leaf) is type(found)):
        return lambda: found
    if has_like and not _fits(found, leaf):
        shown = found.short() if isinstance(found, ArrayEntry) else type(found).__name__
        problems.others.append(f"{name}: {shown} in the checkpoint, {_short(leaf)} in like")
        return lambda: None
    read: Callable[[Box], np.ndarray] = functools.partial(source.read, name)
    if not isinstance(found, ArrayEntry):  # a number, where like has an array without dimensions
        scalar = np.array(found, leaf.dtype)
        read = lambda _: scalar
        found = ArrayEntry((), leaf.dtype, getattr(leaf, "weak_type", False))
    where = np.ndarray if type(leaf) in _NUMBERS else _destination(leaf, asked, found.numpy)
    reason = _refusal(found, where)
    if reason:
        problems.others.append(f"{name}: {reason}")
    return functools.partial(_placed, found, where, type(leaf), read)


def _fits(found: Any, leaf: Any) -> bool:
    """Whether what is in a checkpoint can be restored as what `like` has: with the same shape and dtype. Numbers and
    arrays without dimensions can be each other, if that is exact."""
    if not isinstance(found, ArrayEntry):
        return type(found) in _NUMBERS and _is_exact(found, leaf)
    if type(leaf) in _NUMBERS:
        return not found.shape and dtypes.kind(found.dtype) in _KINDS[type(leaf)]
    return _is_array(leaf) and tuple(leaf.shape) == found.shape and dtypes.dtype(leaf) == found.dtype


def _is_exact(value: Any, leaf: Any) -> bool:
    """Whether a Python number is the same in an array like `leaf`."""
    if not _is_array(leaf) or tuple(leaf.shape) or dtypes.kind(leaf.dtype) not in _KINDS[type(value)]:
        return False
    try:
        with np.errstate(over="ignore"):
            back = np.array(value, leaf.dtype).item()
    except OverflowError:
        return False
    return back == value or (value != value and back != back)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _placed(entry: ArrayEntry, where: Any, kind: type, read: Callable[[Box], np.ndarray]) -> Any:
    """An array where it should go; for `np.ndarray` as a NumPy array, or as what `kind` is of Python or NumPy."""
    if where is np.ndarray:
        value = read(entry.box)
        if kind in _NUMBERS:
            return kind(value.item())
        if issubclass(kind, np.generic):
            return value[()]
        return value if value.flags.writeable else value.copy()
    aval = array_type(entry.shape, entry.dtype, entry.weak_type)
    if isinstance(where, Placement):
        return copied(read(entry.box), aval, where)
    slices = where.addressable_devices_indices_map(entry.shape)
    by_box: dict[Box, list[Device]] = {}
    for device, index in slices.items():
        by_box.setdefault(box_of(index, entry.shape), []).append(device)
    parts: dict[Device, ConcreteArray] = {}
    for box, devices in by_box.items():
        value = padded(read(box), where.shard_shape(entry.shape))
        parts |= {device: on_device(value, aval, device) for device in devices}
    return assembled(aval, where, [parts[device] for device in slices])


def _destination(leaf: Any, asked: Any, numpy: bool) -> Any:
    """Where an array goes: a sharding, a placement, or `np.ndarray`. `numpy` says that it was a NumPy array, which
    counts if nobody says otherwise."""
    if isinstance(asked, Device):
        return SingleDeviceSharding(asked)
    if asked is np.ndarray or isinstance(asked, Sharding):
        return asked
    if asked is not None:
        what = "shardings has shardings, devices, np.ndarray and None."
        raise ArgumentTypeError(what, received=described(asked), fix="NamedSharding(mesh, P('x')), weft.devices()[0]")
    if isinstance(leaf, (np.ndarray, np.generic)):
        return np.ndarray
    if isinstance(leaf, ConcreteArray):
        return leaf._placement
    sharding = getattr(leaf, "sharding", None) if isinstance(leaf, (ShardedArray, ShapeDtypeStruct)) else None
    # What has a type only, such as a result of `eval_shape`, may be split over a mesh that has no devices.
    if sharding is not None and not (isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)):
        return sharding
    as_saved = leaf is None or isinstance(leaf, ShapeDtypeStruct)
    return np.ndarray if numpy and as_saved else default_placement()


def _refusal(entry: ArrayEntry, where: Any) -> str | None:
    """Why an array cannot go where it should."""
    if where is np.ndarray:
        return "random keys have no NumPy form" if isinstance(entry.dtype, dtypes.ExtendedDtype) else None
    if dtypes.canonicalize_dtype(entry.dtype, allow_extended_dtype=True) != entry.dtype:
        return f"{entry.short()} needs enable_x64; NumPy arrays can have it (shardings=np.ndarray)"
    if isinstance(where, Sharding):
        try:
            check_devices(where)
            placed_type(array_type(entry.shape, entry.dtype), where)
        except ArgumentError as error:
            return f"{error.what} ({error.received})"
    return None


def _short(leaf: Any) -> str:
    """A leaf of `like` in an error."""
    return ArrayEntry(tuple(leaf.shape), dtypes.dtype(leaf)).short() if _is_array(leaf) else type(leaf).__name__
