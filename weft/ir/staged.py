"""`staged_type`: the types of an operation's results, also where operands say where they are.

A card's type rule sees shapes and dtypes only. Where an operand's type says more, that is taken off, the card is asked,
and what the card's axis factors say of the results is put on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.base import dtypes
from weft.ir.primitive import Params, Primitive
from weft.ir.types import ArrayType, Type
from weft.sharding.infer import Operand, Operation, merged_state
from weft.sharding.mesh import AbstractMesh
from weft.sharding.shardings import NamedSharding


def staged_type(primitive: Primitive, types: Sequence[Type], params: Params) -> Any:
    """Result type(s) of an operation on operands of these types."""
    for t in types:
        if not t.is_plain:
            return _placed(primitive, types, params)
    return primitive.type(*types, **params)


def raise_named(primitive: Primitive, types: Sequence[Any], params: Params, names: Sequence[tuple[str, str]]) -> None:
    """Raise the error of operands whose shardings do not fit once more, with the names of the operands and where they
    got their shardings."""
    if not primitive.types_placement and any(not t.is_plain for t in types):
        _placed(primitive, types, params, names)


def _placed(
    primitive: Primitive, types: Sequence[Any], params: Params, names: Sequence[tuple[str, str]] | None = None
) -> Any:
    """The same where some operand's type is not plain."""
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
    manual = primitive.manual(merged_state(operation), params)
    memory = common_memory(operation, types)
    placed = [
        t.placed(sharding=sharding, manual=manual, memory_space=memory)
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
    """An operation as the rules of shardings see it."""
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
    """Whether nothing that is split flows back to an operand: it is a single number, or has no derivatives."""
    return not aval.shape or aval.tangent().dtype == dtypes.float0


def common_mesh(operation: Operation, types: Sequence[ArrayType]) -> AbstractMesh | None:
    """The mesh that operands are split over."""
    meshes = list(
        dict.fromkeys(t.explicit_sharding.mesh.abstract_mesh for t in types if t.explicit_sharding is not None)
    )
    if len(meshes) > 1:
        operation.fail(
            f"`{operation.name}` has operands on different meshes: {meshes[0]} and {meshes[1]}.",
            "make all shardings of one program with one mesh",
        )
    return meshes[0] if meshes else None


def common_memory(operation: Operation, types: Sequence[ArrayType]) -> Any:
    """The memory that operands are in; a single number is in any."""
    spaces = list(dict.fromkeys(t.memory_space for t in [t for t in types if t.shape] or types))
    if len(spaces) > 1:
        operation.fail(
            f"`{operation.name}` has operands in different memories.",
            "put all operands into one, with_memory_kind('device') of their shardings",
        )
    return spaces[0] if spaces else None
