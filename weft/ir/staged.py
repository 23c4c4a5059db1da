"""Result types of operations whose operands may have placements (`infer_type`).

Type rules of most primitives see shapes and dtypes only. Placements are removed from operand types before the rule
runs, and the placements of results are derived from the primitive's axis factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.base import dtypes
from weft.ir.primitive import Params, Primitive
from weft.ir.types import ArrayType, Type
from weft.sharding.infer import Operand, Operation, infer_manual_type
from weft.sharding.mesh import AbstractMesh
from weft.sharding.shardings import NamedSharding


def infer_type(primitive: Primitive, types: Sequence[Type], params: Params) -> Any:
    """Return the result type(s) of an operation on operands of these types."""
    for t in types:
        if not t.is_plain:
            return _infer_with_placement(primitive, types, params)
    return primitive.type(*types, **params)


def raise_with_names(
    primitive: Primitive, types: Sequence[Any], params: Params, names: Sequence[tuple[str, str]]
) -> None:
    """Raise a sharding error again, now with the names of operands and the source of their shardings; return if there
    is no error."""
    if not primitive.types_placement and any(not t.is_plain for t in types):
        _infer_with_placement(primitive, types, params, names)


def _infer_with_placement(
    primitive: Primitive, types: Sequence[Any], params: Params, names: Sequence[tuple[str, str]] | None = None
) -> Any:
    """Return the result type(s) for operands with placements; `names` are used in errors."""
    if primitive.types_placement:
        return primitive.type(*types, **params)
    plain = [t.plain for t in types]
    types_out = primitive.type(*plain, **params)
    results = list(types_out) if primitive.multiple_results else [types_out]
    linear = primitive.linear_operands(plain, params)
    operation = operation_on(primitive.name, types, names, linear, primitive.multilinear)
    shardings: Sequence[NamedSharding | None] = [None] * len(results)
    mesh = common_mesh(operation, types)
    if mesh is not None:
        specs = primitive.explicit_specs(operation, plain, results, params)
        shardings = [NamedSharding(mesh, spec) for spec in specs]
    manual = primitive.manual(infer_manual_type(operation), params)
    memory = common_memory(operation, types)
    placed = [
        t.with_placement(sharding=sharding, manual=manual, memory_space=memory)
        for t, sharding in zip(results, shardings, strict=True)
    ]
    return placed if primitive.multiple_results else placed[0]


def operation_on(
    name: str,
    types: Sequence[Any],
    names: Sequence[tuple[str, str]] | None = None,
    linear: Iterable[int] = (),
    apart: bool = False,
) -> Operation:
    """Describe an operation for the sharding rules."""
    operands = tuple(
        Operand(t.short(), t.shape, t.dtype.itemsize, t.spec, t.manual, is_constant(t), *(names[i] if names else ()))
        for i, t in enumerate(types)
    )
    operation = Operation(name, operands, frozenset(linear), apart)
    mesh = common_mesh(operation, types)
    if mesh is not None:
        operation.sizes.update(mesh.shape)
    return operation


def is_constant(aval: ArrayType) -> bool:
    """Return whether no cotangent flows back to an operand: it is a scalar, or not differentiable."""
    return not aval.shape or aval.tangent().dtype == dtypes.float0


def common_mesh(operation: Operation, types: Sequence[ArrayType]) -> AbstractMesh | None:
    """Return the mesh that operands are split over, or None; raise if there are several."""
    meshes = list(
        dict.fromkeys(t.explicit_sharding.mesh.abstract_mesh for t in types if t.explicit_sharding is not None)
    )
    if len(meshes) > 1:
        operation.fail(
            f"All operands of `{operation.name}` must be on one mesh; got {meshes[0]} and {meshes[1]}.",
            "make all shardings of one program with one mesh",
        )
    return meshes[0] if meshes else None


def common_memory(operation: Operation, types: Sequence[ArrayType]) -> Any:
    """Return the memory space of the operands, ignoring scalars unless all are; raise if there are several."""
    spaces = list(dict.fromkeys(t.memory_space for t in [t for t in types if t.shape] or types))
    if len(spaces) > 1:
        operation.fail(
            f"All operands of `{operation.name}` must be in one memory space; got several.",
            "put all operands into one, with_memory_kind('device') of their shardings",
        )
    return spaces[0] if spaces else None
