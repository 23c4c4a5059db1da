"""The fingerprint of a jaxpr: equal in every process for jaxprs that compile to the same code.

It covers types, operations, parameters and the values of literals, in order; names, source lines and rules of
differentiation do not change the code and are left out. A jaxpr with a parameter that only this process has, such as a
Python function, has no fingerprint.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import ExtendedDtype
from weft.indexing.expression import Expression
from weft.ir.jaxpr import Equation, Jaxpr, Literal
from weft.ir.primitive import Primitive
from weft.ir.registry import is_builtin
from weft.ir.types import ArrayType, TapeType, Type
from weft.sharding.mesh import AbstractMesh, BaseMesh, Mesh
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec, Unconstrained


class _NoFingerprint(Exception):
    """Raised for a value without a text that identifies it in every process."""


def fingerprint(jaxpr: Jaxpr) -> str | None:
    """Return a digest of the jaxpr, or None if it has no fingerprint."""
    # Memoized on the jaxpr, because sub-jaxprs are shared.
    found: list[str | None] = jaxpr.memoize("fingerprint", lambda: [_digest(jaxpr)])
    return found[0]


def write_value(value: Any) -> str | None:
    """Return a text that identifies a value, or None if it has none."""
    try:
        return _value(value)
    except _NoFingerprint:
        return None


def _digest(jaxpr: Jaxpr) -> str | None:
    """Compute the fingerprint."""
    try:
        text = "\n".join(_lines(jaxpr))
    except _NoFingerprint:
        return None
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _lines(jaxpr: Jaxpr) -> list[str]:
    """Write a jaxpr as lines of text, its variables as numbers in the order of their definition."""
    index_of: dict[Any, int] = {}
    types: dict[int, str] = {}  # by identity: a jaxpr has few distinct type objects

    def write_type(aval: Type) -> str:
        found = types.get(id(aval))
        if found is None:
            found = types[id(aval)] = _value(aval)
        return found

    def define(variables: Any) -> str:
        texts = []
        for v in variables:
            index_of[v] = len(index_of)
            texts.append(write_type(v.aval))
        return ",".join(texts)

    def read(atom: Any) -> str:
        if type(atom) is Literal:
            return f"{_value(atom.val)}:{write_type(atom.aval)}"
        return str(index_of[atom])

    lines = [define(jaxpr.constvars), define(jaxpr.invars)]
    lines += [_value(constant) for constant in jaxpr.consts]
    for equation in jaxpr.eqns:
        operands = ",".join([read(a) for a in equation.invars])
        lines.append(f"{_operation(equation)}({operands})->{define(equation.outvars)}")
    lines.append(",".join([read(a) for a in jaxpr.outvars]))
    return lines


def _operation(equation: Equation) -> str:
    primitive, params = equation.primitive, equation.params
    called = primitive.opens
    if called is not None:
        return f"call {_value(params[called])}"
    return f"{_primitive(primitive)} " + ";".join([f"{name}={_value(params[name])}" for name in sorted(params)])


def _primitive(primitive: Primitive) -> str:
    if not is_builtin(primitive):
        raise _NoFingerprint  # its definition may change without Weft's files
    return primitive.name


def _value(value: Any) -> str:
    """Write a value of a parameter as text that identifies it."""
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value)
    kind = type(value)
    if isinstance(value, np.dtype):
        return f"dtype {value.name}"
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise _NoFingerprint
        return f"array {array.dtype.name} {array.shape} {array.tobytes().hex()}"
    if isinstance(value, Primitive):
        return _primitive(value)
    if isinstance(value, ExtendedDtype):
        return f"{_class(kind)} {value.name}"
    if isinstance(value, enum.Enum):
        return f"{_class(kind)}.{value.name}"
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return f"{_class(kind)}{_sequence(value)}"
    if isinstance(value, Expression):
        bounds = [f"{s.name}:{_value(s.lower)}:{_value(s.upper)}" for s in value.symbols]
        return f"size {value} {','.join(bounds)}"
    if isinstance(value, type):
        return f"class {_class(value)}"
    if dataclasses.is_dataclass(value):
        fields = [f"{f.name}={_value(getattr(value, f.name))}" for f in dataclasses.fields(value) if f.compare]
        return f"{_class(kind)}[{';'.join(fields)}]"
    raise _NoFingerprint


def _class(kind: type) -> str:
    """Return the qualified name of a class of Weft or of its dependencies, which identifies it."""
    if kind.__module__.partition(".")[0] not in ("weft", "numpy", "ml_dtypes", "builtins"):
        raise _NoFingerprint
    return f"{kind.__module__}.{kind.__qualname__}"


def _sequence(values: Any) -> str:
    return f"({','.join([_value(v) for v in values])})"


def _mapping(values: dict[Any, Any]) -> str:
    return f"{{{','.join(sorted([f'{_value(k)}:{_value(v)}' for k, v in values.items()]))}}}"


def _jaxpr(jaxpr: Jaxpr) -> str:
    found = fingerprint(jaxpr)
    if found is None:
        raise _NoFingerprint
    return f"program {found}"


def _mesh(mesh: BaseMesh) -> str:
    devices = mesh.device_tuple if isinstance(mesh, Mesh) else ()
    return f"mesh {_sequence((mesh.axis_names, mesh.axis_sizes, mesh.axis_types, devices))}"


def _sharding(sharding: NamedSharding) -> str:
    return f"sharding {_sequence((sharding.mesh, sharding.spec, sharding.memory_kind))}"


_WRITERS: dict[type, Callable[[Any], str]] = {
    type(None): repr,
    bool: repr,
    int: repr,
    float: float.hex,
    complex: lambda value: f"{value.real.hex()}+{value.imag.hex()}j",
    str: repr,
    bytes: bytes.hex,
    tuple: _sequence,
    list: lambda values: f"list{_sequence(values)}",
    dict: _mapping,
    frozenset: lambda values: f"set({','.join(sorted([_value(v) for v in values]))})",
    slice: lambda value: f"slice{_sequence((value.start, value.stop, value.step))}",
    Jaxpr: _jaxpr,
    ArrayType: lambda t: _sequence((t.shape, t.dtype, t.weak_type, t.placement_text())),
    TapeType: lambda t: f"tape {_value(t.element)}",
    Mesh: _mesh,
    AbstractMesh: _mesh,
    NamedSharding: _sharding,
    PartitionSpec: lambda spec: f"spec {_sequence((spec.partitions, spec.unreduced, spec.reduced))}",
    Unconstrained: repr,
}
