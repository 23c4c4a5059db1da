"""Results of partitioning on disk: a later process runs the program of a mesh without partitioning it again.

The steps of the program are stored like those of one device (`compiler/load.py`). A partition has the shardings of
arguments and results, their types on one device, and the key of the steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.compile_options import CompileOptions
from weft.compiler import cache
from weft.compiler.compilation import Compilation
from weft.compiler.fingerprint import fingerprint, write_value
from weft.compiler.load import compile_again, from_types, is_storing, load_program
from weft.compiler.program.stored import NotStored, from_json, to_json, type_from_json, type_to_json
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr, Var, constants_to_arguments
from weft.ir.types import Type, array_type
from weft.sharding.mesh import Mesh

# Jaxprs with larger constants are not stored.
MOST_CONSTANT_BYTES = 1 << 16


class StoredPartition(NamedTuple):
    """Shardings of arguments and results, their types on one device, which arguments are donated, the constants of
    the jaxpr of one device, and the key of the steps.
    """

    in_dims: tuple[Any, ...]
    out_dims: tuple[Any, ...]
    in_types: tuple[Type, ...]
    out_types: tuple[Type, ...]
    taken: tuple[bool, ...]
    constants: tuple[np.ndarray, ...]
    program: str


def partition_key(
    jaxpr: Jaxpr,
    mesh: Mesh,
    in_dims: Sequence[Any],
    out_dims: Sequence[Any],
    donated: Sequence[bool],
    target: Target,
    options: CompileOptions,
) -> str | None:
    """Return the key of the partition of a call on a mesh; None if it has none, or nothing is stored."""
    if not is_storing(options) or mesh.is_multi_process:
        return None
    meaning = fingerprint(jaxpr)
    rest = write_value((mesh, tuple(in_dims), tuple(out_dims), tuple(donated), options.tracing))
    if meaning is None or rest is None:
        return None
    return cache.program_key(f"partition {meaning} {rest}", target)


def load(key: str) -> StoredPartition | None:
    """Read the partition under a key, or return None."""
    content = cache.read(key + cache.PARTITION, cache.PARTITION_MAGIC)
    if content is None:
        return None
    head = json.loads(content)
    return StoredPartition(
        from_json(head["in_dims"]),
        from_json(head["out_dims"]),
        tuple(map(type_from_json, head["in_types"])),
        tuple(map(type_from_json, head["out_types"])),
        from_json(head["taken"]),
        tuple(_constant(*row) for row in head["constants"]),
        head["program"],
    )


def read(
    key: str, name: str, target: Target, options: CompileOptions, partitioned: Callable[[], Any]
) -> tuple[StoredPartition, Jaxpr, Compilation] | None:
    """Read the partition under a key; return it with a jaxpr of its types and constants, and its program.

    None if any of it is missing. `partitioned` repeats the partitioning if the program is inspected.
    """
    found = load(key)
    program = None if found is None else load_program(found.program, name)
    if found is None or program is None:
        return None
    constants = [array_type(c.shape, c.dtype) for c in found.constants]
    flags = (*[False] * len(constants), *found.taken) if any(found.taken) else ()
    schedules = program.schedules
    recompile = lambda: compile_again(constants_to_arguments(partitioned().jaxpr), flags, target, options, schedules)
    types = [*constants, *found.in_types], found.out_types
    compilation = from_types(name, *types, flags, program, target, options, recompile)
    compilation.key = found.program
    constvars, invars, outvars = ([Var(t) for t in side] for side in (constants, found.in_types, found.out_types))
    return found, Jaxpr(constvars, invars, outvars, [], found.constants, name), compilation


def _constant_row(array: np.ndarray) -> list[Any]:
    if array.nbytes > MOST_CONSTANT_BYTES or array.dtype.hasobject:
        raise NotStored
    return [array.dtype.name, list(array.shape), np.ascontiguousarray(array).tobytes().hex()]


def _constant(dtype: str, shape: Sequence[int], content: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(content), np.dtype(dtype)).reshape(shape)


def store(key: str, found: StoredPartition) -> None:
    """Write a partition to disk, if all of it can be stored."""
    try:
        head = {
            "in_dims": to_json(found.in_dims),
            "out_dims": to_json(found.out_dims),
            "in_types": list(map(type_to_json, found.in_types)),
            "out_types": list(map(type_to_json, found.out_types)),
            "taken": to_json(found.taken),
            "constants": list(map(_constant_row, found.constants)),
            "program": found.program,
        }
    except NotStored:
        return
    cache.write(key + cache.PARTITION, cache.PARTITION_MAGIC, json.dumps(head, separators=(",", ":")).encode())
