"""Coordination of processes outside of programs: barriers, exchange and comparison of values on the host."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.runtime.processes.world as _world
from weft.api.process_data import make_array_from_process_local_data, process_slices
from weft.base import conversion, dtypes, tree
from weft.base.arguments import described
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    ProcessFailureError as ProcessFailureError,
    ProgramMismatchError,
)
from weft.base.publish import publish as _publish
from weft.base.source import user_line
from weft.ir.types import array_type
from weft.runtime.array import ConcreteArray
from weft.runtime.held import HeldArray
from weft.runtime.processes.agreement import compare
from weft.runtime.sharded import (
    ShardedArray,
    gather_value,
    make_array_from_single_device_arrays,
    split,
)
from weft.sharding import Mesh, NamedSharding, PartitionSpec

P = PartitionSpec


def sync_global_devices(name: str) -> None:
    """Return when all processes have called it. They must pass the same name.

    Args:
        name: a string, shown where a process does not come.

    >>> import weft
    >>> weft.experimental.multihost_utils.sync_global_devices("end of step 3")
    """
    with _world.together(None, f"sync_global_devices({name!r})", _world.digest_text("sync"), user_line()) as world:
        compare("sync_global_devices", [f"sync_global_devices({name!r})"], range(world.size))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """Gather each leaf of all processes as a NumPy array. Leaves are stacked along a new first dimension, with one
    entry for each process (also if there is only one), or with `tiled` concatenated along the first dimension. An array
    with shards in several processes needs `tiled`, and is returned whole.

    Args:
        in_tree: a tree of arrays.
        tiled: whether to concatenate.

    Returns:
        A tree of NumPy arrays.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.experimental.multihost_utils.process_allgather(wnp.ones(2)).shape
    (1, 2)
    """
    return tree.map(functools.partial(_gather_leaf, tiled), in_tree)


def _gather_leaf(tiled: bool, leaf: Any) -> np.ndarray:
    if isinstance(leaf, ShardedArray) and not leaf.is_fully_addressable:
        if not tiled:
            raise ArgumentError(
                "An array with shards in several processes cannot be stacked, only returned whole.",
                received=f"{leaf.aval.short()} with {leaf.sharding!r}",
                fix="process_allgather(x, tiled=True)",
            )
        if leaf.is_fully_replicated:
            return np.asarray(leaf)
        return gather_value(leaf, range(_world.current().size))
    values = _gather_values("process_allgather", _host_array(leaf))
    return np.concatenate(values) if tiled and values[0].ndim else np.stack(values)


def _host_array(leaf: Any) -> np.ndarray:
    value = conversion.canonical_array(np.asarray(leaf))
    if value.dtype.hasobject:
        raise ArgumentTypeError("Processes only exchange arrays and numbers.", received=described(leaf))
    return np.ascontiguousarray(value).reshape(value.shape)


def _gather_values(what: str, value: np.ndarray, sends: bool = True) -> list[np.ndarray]:
    """Gather the arrays of all processes, which must have one type. Processes with `sends=False` contribute an empty
    array."""
    header = json.dumps([dtypes.name(value.dtype), list(value.shape)]).encode()
    with _world.together(None, what, line=user_line()) as world:
        gathered = world.all_gather(header + b"\n" + (value.tobytes() if sends else b""), doing=what)
    values = []
    for rank, data in enumerate(gathered):
        other, _, content = data.partition(b"\n")
        if other != gathered[0].partition(b"\n")[0]:
            first = gathered[0].partition(b"\n")[0]
            raise ProgramMismatchError(
                f"{what} needs arrays of one shape and dtype on all processes.",
                received=f"process 0: {_describe_type(first)}; process {rank}: {_describe_type(other)}",
                fix="pad to one shape, and cast to one dtype",
            )
        shape = value.shape if content or not value.size else (0,)
        values.append(np.frombuffer(content, value.dtype).reshape(shape))
    return values


def _describe_type(header: bytes) -> str:
    dtype, shape = json.loads(header)
    return f"{dtype}{shape}"


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """Return the tree of one process on all of them, as NumPy arrays: of process 0, or of the one that passes
    `is_source=True`. The others pass a tree of the same structure, shapes and dtypes.

    Args:
        in_tree: a tree of arrays.
        is_source: whether this process is the one; by default process 0 is.

    Returns:
        A tree of NumPy arrays.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.experimental.multihost_utils.broadcast_one_to_all(wnp.ones(2))
    array([1., 1.], dtype=float32)
    """
    world = _world.current()
    own = world.rank == 0 if is_source is None else bool(is_source)
    with _world.together(None, "broadcast_one_to_all", line=user_line()):
        flags = world.all_gather(b"1" if own else b"0", doing="broadcast_one_to_all")
    if flags.count(b"1") != 1:
        sources = [rank for rank, flag in enumerate(flags) if flag == b"1"]
        raise ArgumentError(
            "broadcast_one_to_all needs one source.",
            received=f"processes {sources}",
            fix="is_source=True on one process",
        )
    source = flags.index(b"1")
    return tree.map(lambda leaf: _gather_values("broadcast_one_to_all", _host_array(leaf), own)[source], in_tree)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise AssertionError on all processes unless they all have the same tree; the message says which leaf differs
    where."""
    paths, structure = tree.flatten_with_path(in_tree)
    leaves = [(tree.keystr(path), _host_array(leaf)) for path, leaf in paths]
    described_leaves = [
        [name, dtypes.name(x.dtype), list(x.shape), _world.digest_text(x.tobytes().hex())] for name, x in leaves
    ]
    with _world.together(None, "assert_equal", line=user_line()) as world:
        gathered = world.all_gather(json.dumps([str(structure), described_leaves]).encode(), doing="assert_equal")
        seen = [json.loads(data) for data in gathered]
        for rank, other in enumerate(seen):
            if other != seen[0]:
                what = _difference(world, seen[0], other, rank, leaves)
                raise AssertionError(f"{fail_message or 'Processes have different values'}: {what}.")


def _difference(world: _world.World, one: Any, other: Any, rank: int, leaves: Sequence[Any]) -> str:
    """Describe the first difference between process 0 and another one."""
    if one[0] != other[0]:
        return f"the structure is {one[0]} on process 0 and {other[0]} on process {rank}"
    index = next(i for i, (a, b) in enumerate(zip(one[1], other[1], strict=True)) if a != b)
    name, *mine = one[1][index]
    theirs = other[1][index][1:]
    if mine[:2] != theirs[:2]:
        types = f"{mine[0]}{mine[1]} on process 0 and {theirs[0]}{theirs[1]} on process {rank}"
        return f"leaf {name or 'itself'} is {types}"
    value = leaves[index][1]
    # All processes see the same digests, so all of them come here.
    gathered = world.all_gather(value.tobytes(), doing="assert_equal")
    a, b = (np.frombuffer(gathered[r], value.dtype).reshape(value.shape) for r in (0, rank))
    differs = np.frombuffer(a.tobytes(), np.uint8).reshape(max(a.size, 1), -1) != np.frombuffer(
        b.tobytes(), np.uint8
    ).reshape(max(b.size, 1), -1)
    where = np.unravel_index(int(np.argmax(differs.any(axis=1))), value.shape) if value.ndim else ()
    at = f"[{', '.join(str(int(i)) for i in where)}]" if where else ""
    return f"leaf {name or 'itself'}{at} is {a[where]} on process 0 and {b[where]} on process {rank}"


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Assemble global arrays from the part of each process: the elements that its devices of the mesh hold together.
    `pspecs`, a tree prefix of `local_inputs`, has the shardings."""
    specs = tree.broadcast_prefix(pspecs, local_inputs, is_leaf=_is_spec)
    leaves, structure = tree.flatten(local_inputs)
    return tree.unflatten(
        structure, [_to_global(leaf, global_mesh, spec) for leaf, spec in zip(leaves, specs, strict=True)]
    )


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Return the part of global arrays that the devices of this process hold together, as arrays on the local mesh."""
    specs = tree.broadcast_prefix(pspecs, global_inputs, is_leaf=_is_spec)
    leaves, structure = tree.flatten(global_inputs)
    return tree.unflatten(
        structure, [_to_local(leaf, global_mesh, spec) for leaf, spec in zip(leaves, specs, strict=True)]
    )


def _is_spec(value: Any) -> bool:
    return value is None or isinstance(value, PartitionSpec)


def _to_global(leaf: Any, mesh: Mesh, spec: PartitionSpec | None) -> Any:
    if isinstance(leaf, ShardedArray) and not leaf.is_fully_addressable:
        return leaf
    return make_array_from_process_local_data(NamedSharding(mesh, spec or PartitionSpec()), _host_array(leaf))


def _to_local(leaf: Any, mesh: Mesh, spec: PartitionSpec | None) -> Any:
    spec = spec or PartitionSpec()
    sharding = NamedSharding(mesh, spec)
    if not isinstance(leaf, HeldArray):
        raise ArgumentTypeError("global_array_to_host_local_array needs arrays on a mesh.", received=described(leaf))
    array = split(leaf, sharding)
    local = NamedSharding(mesh.local_mesh, spec)
    shards = array.addressable_shards
    if sharding.is_even(array.shape):
        counts = zip(local.partition_counts(array.ndim), sharding.partition_counts(array.ndim), strict=True)
        shape = tuple(n * here // everywhere for n, (here, everywhere) in zip(array.shape, counts, strict=True))
        return make_array_from_single_device_arrays(shape, local, [shard.data for shard in shards])
    own = process_slices(sharding, array.shape)
    # Shards of the local part may begin elsewhere than shards of the whole array.
    value = np.empty([part.stop - part.start for part in own], dtypes.storage(array.dtype))
    for shard in shards:
        bounds = [(i.indices(n), o.start) for i, n, o in zip(shard.index, array.shape, own, strict=True)]
        value[tuple(slice(low - start, high - start) for (low, high, _), start in bounds)] = shard.data._value
    return split(ConcreteArray(value, array_type(value.shape, array.dtype, array.weak_type)), local)


def reached_preemption_sync_point(step_id: int) -> bool:
    """Return whether to save and stop at this step: True on all processes at the same step, soon after one of them
    received the signal SIGTERM. Call it once in every step, with steps that increase by one."""
    control = _world.current().control
    if control is None:
        raise RuntimeError("reached_preemption_sync_point needs weft.distributed.initialize().")
    return control.reached_sync_point(step_id)


_publish(__name__)
