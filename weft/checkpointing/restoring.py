"""Restoring a tree: on any mesh, from a checkpoint of any other.

The requested tree is compared with the checkpoint before anything is read, and all differences are reported in one
error. Then each process reads only the boxes of arrays that its devices need.
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
from weft.checkpointing.saving import box_from_slices
from weft.checkpointing.source import Directory, Source
from weft.ir.types import ShapeDtypeStruct, array_type
from weft.runtime.array import ConcreteArray, copy_array
from weft.runtime.device import Placement, default_placement
from weft.runtime.padding import pad
from weft.runtime.sharded import ShardedArray, assemble, check_devices, on_device, type_with_sharding
from weft.sharding.device import Device
from weft.sharding.mesh import AbstractMesh
from weft.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding

_SHOWN = 50  # names that an error lists
_NUMBERS = (bool, int, float, complex)
_KINDS = {bool: "b", int: "iu", float: "f", complex: "c"}


class Metadata(NamedTuple):
    """Contents of a checkpoint without its arrays.

    Attributes:
        tree: the tree, with a `ShapeDtypeStruct` for each array.
        step: the step, or None.
        metadata: the metadata saved with the tree.
        metrics: the metrics that a manager saved with it.
    """

    tree: Any
    step: int | None
    metadata: Any
    metrics: Any


def metadata(path: str | os.PathLike[str]) -> Metadata:
    """Return tree, step, metadata and metrics of the checkpoint in a directory, without reading arrays."""
    return index_metadata(Directory(path).index)


def index_metadata(index: Index) -> Metadata:
    """Return the metadata of a checkpoint from its index."""
    tree = structures.rebuild(index.tree, lambda name: _abstract(index, name))
    return Metadata(tree, index.step, index.metadata, index.metrics)


def _abstract(index: Index, name: str) -> Any:
    if name in index.values:
        return index.values[name]
    entry = index.arrays[name]
    return ShapeDtypeStruct(entry.shape, entry.dtype, weak_type=entry.weak_type)


def restore(path: str | os.PathLike[str], like: Any = None, shardings: Any = None, *, partial: bool = False) -> Any:
    """Restore the tree that was saved to the directory `path`, with the same bits.

    Each process reads only the boxes of arrays that its devices need.

    Args:
        path: the directory.
        like: a tree with the same leaf names, which determines node types, types of leaves and destinations of arrays.
            Its leaves are arrays, `ShapeDtypeStruct`s (optionally with shardings), NumPy arrays or Python values,
            and must have the saved shapes and dtypes. Without it the result has plain dicts and lists.
        shardings: destinations of arrays: a sharding, a device, `np.ndarray` for NumPy arrays, or a tree of them that
            is a prefix of the tree. None uses those of `like`.
        partial: accept leaves in the checkpoint that `like` does not have.

    Returns:
        The tree.
    """
    return restore_from(Directory(path), like, shardings, partial)


def restore_from(source: Source, like: Any, shardings: Any, partial: bool) -> Any:
    """Restore the tree of a source (see `restore`)."""
    index = source.index
    if like is None:
        wanted: dict[str, Any] = dict.fromkeys(structures.leaf_names(index.tree))
        build: Callable[[dict[str, Any]], Any] = lambda leaves: structures.rebuild(index.tree, leaves.__getitem__)
    else:
        wanted, treedef = structures.leaves_by_name(like)
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
    """The differences between a checkpoint and the tree to restore."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.missing: Sequence[str] = ()
        self.unexpected: Sequence[str] = ()
        self.others: list[str] = []

    def check(self) -> None:
        """Raise one error that lists all differences, if there are any."""
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
            what = f"The checkpoint in {self.source.path} does not match the tree to restore."
            raise CheckpointMismatchError(what, received="\n".join(lines), fix=fix)


def _more(names: Sequence[str]) -> str:
    return f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""


# ------------------------------------------------------------------------------------------------------------- one leaf


def _plan(source: Source, name: str, leaf: Any, has_like: bool, asked: Any, problems: _Problems) -> Callable[[], Any]:
    """Return a function that restores a leaf, or add the reason why the leaf cannot be restored to `problems`."""
    found = source.index.values.get(name, source.index.arrays.get(name))
    if not isinstance(found, ArrayEntry) and (not has_like or type(leaf) is type(found)):
        return lambda: found
    if has_like and not _fits(found, leaf):
        shown = found.short() if isinstance(found, ArrayEntry) else type(found).__name__
        problems.others.append(f"{name}: {shown} in the checkpoint, {_short(leaf)} in like")
        return lambda: None
    read: Callable[[Box], np.ndarray] = functools.partial(source.read, name)
    if not isinstance(found, ArrayEntry):  # the checkpoint has a number, and `like` an array without dimensions
        scalar = np.array(found, leaf.dtype)
        read = lambda _: scalar
        found = ArrayEntry((), leaf.dtype, getattr(leaf, "weak_type", False))
    where = np.ndarray if type(leaf) in _NUMBERS else _destination(leaf, asked, found.numpy)
    reason = _refusal(found, where)
    if reason:
        problems.others.append(f"{name}: {reason}")
    return functools.partial(_place, found, where, type(leaf), read)


def _fits(found: Any, leaf: Any) -> bool:
    """Return whether a value of a checkpoint can be restored as the leaf of `like`.

    Shape and dtype must be equal. Python numbers and arrays without dimensions are interchangeable if that is exact.
    """
    if not isinstance(found, ArrayEntry):
        return type(found) in _NUMBERS and _is_exact(found, leaf)
    if type(leaf) in _NUMBERS:
        return not found.shape and dtypes.kind(found.dtype) in _KINDS[type(leaf)]
    return _is_array(leaf) and tuple(leaf.shape) == found.shape and dtypes.dtype(leaf) == found.dtype


def _is_exact(value: Any, leaf: Any) -> bool:
    """Return whether an array with the type of `leaf` represents a Python number exactly."""
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


def _place(entry: ArrayEntry, where: Any, kind: type, read: Callable[[Box], np.ndarray]) -> Any:
    """Read an array and put it on its devices, or return it as a NumPy array or as a number of type `kind`."""
    if where is np.ndarray:
        value = read(entry.box)
        if kind in _NUMBERS:
            return kind(value.item())
        if issubclass(kind, np.generic):
            return value[()]
        return value if value.flags.writeable else value.copy()
    aval = array_type(entry.shape, entry.dtype, entry.weak_type)
    if isinstance(where, Placement):
        return copy_array(read(entry.box), aval, where)
    slices = where.addressable_devices_indices_map(entry.shape)
    by_box: dict[Box, list[Device]] = {}
    for device, index in slices.items():
        by_box.setdefault(box_from_slices(index, entry.shape), []).append(device)
    parts: dict[Device, ConcreteArray] = {}
    for box, devices in by_box.items():
        value = pad(read(box), where.shard_shape(entry.shape))
        parts |= {device: on_device(value, aval, device) for device in devices}
    return assemble(aval, where, [parts[device] for device in slices])


def _destination(leaf: Any, asked: Any, numpy: bool) -> Any:
    """Return the destination of an array: a sharding, a placement, or `np.ndarray`.

    `numpy` says that it was saved from a NumPy array; it becomes one again unless `asked` or `leaf` says otherwise.
    """
    if isinstance(asked, Device):
        return SingleDeviceSharding(asked)
    if asked is np.ndarray or isinstance(asked, Sharding):
        return asked
    if asked is not None:
        what = "shardings must contain shardings, devices, np.ndarray and None only."
        raise ArgumentTypeError(what, received=described(asked), fix="NamedSharding(mesh, P('x')), weft.devices()[0]")
    if isinstance(leaf, (np.ndarray, np.generic)):
        return np.ndarray
    if isinstance(leaf, ConcreteArray):
        return leaf._placement
    sharding = getattr(leaf, "sharding", None) if isinstance(leaf, (ShardedArray, ShapeDtypeStruct)) else None
    # The sharding of a ShapeDtypeStruct, such as a result of `eval_shape`, may be over a mesh without devices.
    if sharding is not None and not (isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)):
        return sharding
    as_saved = leaf is None or isinstance(leaf, ShapeDtypeStruct)
    return np.ndarray if numpy and as_saved else default_placement()


def _refusal(entry: ArrayEntry, where: Any) -> str | None:
    """Return the reason why an array cannot be restored to a destination, or None."""
    if where is np.ndarray:
        return "random keys have no NumPy form" if isinstance(entry.dtype, dtypes.ExtendedDtype) else None
    if dtypes.canonicalize_dtype(entry.dtype, allow_extended_dtype=True) != entry.dtype:
        return f"{entry.short()} needs enable_x64; NumPy arrays can have it (shardings=np.ndarray)"
    if isinstance(where, Sharding):
        try:
            check_devices(where)
            type_with_sharding(array_type(entry.shape, entry.dtype), where)
        except ArgumentError as error:
            return f"{error.what} ({error.received})"
    return None


def _short(leaf: Any) -> str:
    """Describe a leaf of `like` for an error."""
    return ArrayEntry(tuple(leaf.shape), dtypes.dtype(leaf)).short() if _is_array(leaf) else type(leaf).__name__
