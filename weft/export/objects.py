"""JSON encoding of the objects that the text of a jaxpr has as handles: constants, symbolic sizes, and parameters.

Only objects that are data are written: arrays, dtypes, sizes, primitives by name, and the enumerations and tuples of
Weft that `CLASSES` lists. Functions and objects of other packages are refused, and reading never runs code.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import FileFormatError, NotSupportedError
from weft.base.promotion import DTYPES
from weft.indexing.dimension import Dimension, parse_dimension
from weft.indexing.expression import Expression, Symbol
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.ir.primitive import Primitive, lookup
from weft.ir.registry import is_builtin
from weft.ir.types import ArrayType, array_type, get_aval
from weft.lax.contraction import RaggedDotDimensionNumbers
from weft.lax.linalg import EighImplementation, EigImplementation, SvdAlgorithm
from weft.lax.scaled import AccuracyMode
from weft.primitives.contraction.convolution_shapes import ConvDimensionNumbers, Window
from weft.primitives.contraction.precision import DotAlgorithm, DotAlgorithmPreset, Precision
from weft.primitives.control.callback import Callback
from weft.primitives.elementwise.rounding import RoundingMethod
from weft.primitives.linalg.fft import FftType
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode
from weft.primitives.movement.scatter import ScatterDimensionNumbers
from weft.primitives.random.bits import IMPLEMENTATIONS, KeyDtype
from weft.runtime.array import ConcreteArray
from weft.sharding.device import Device, MemorySpace
from weft.sharding.manual import ManualAxisType
from weft.sharding.mesh import AbstractMesh, AxisType, Mesh
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import UNCONSTRAINED, PartitionSpec

# The classes of parameters that a file may name.
CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        AccuracyMode,
        ConvDimensionNumbers,
        DotAlgorithm,
        DotAlgorithmPreset,
        EigImplementation,
        EighImplementation,
        FftType,
        GatherDimensionNumbers,
        GatherScatterMode,
        Precision,
        RaggedDotDimensionNumbers,
        RoundingMethod,
        ScatterDimensionNumbers,
        SvdAlgorithm,
        Window,
    )
}


_DTYPES = {**DTYPES, "float0": dtypes.float0}


class NotData(Exception):
    """Raised for an object that cannot be stored, since it is not plain data."""


def check_exportable(jaxpr: Jaxpr, name: str, devices: Sequence[Device] = ()) -> None:
    """Raise an error that names the user's line if an equation has a parameter that no file can have. `devices` are
    those that the program is for."""
    for equation in jaxpr.eqns:
        primitive = equation.primitive
        if isinstance(primitive, Callback):
            _refuse(equation, name, f"`{primitive.name}` calls a function of this process")
        if not is_builtin(primitive):
            _refuse(equation, name, f"`{primitive.name}` is an operation that this process defined")
        for word, value in equation.params.items():
            try:
                Encoder([], devices).value(value)
            except NotData as error:
                _refuse(equation, name, f"`{primitive.name}` has the parameter {word}={error}, which cannot be stored")
        for inner in subjaxprs(equation.params):
            check_exportable(inner, name, devices)


def _refuse(equation: Equation, name: str, why: str) -> None:
    raise NotSupportedError(
        f"{name} cannot be exported: {why}.",
        fix="leave it out of the function that is exported: call it before or after",
        at=None if equation.source is None else equation.source.describe(),
    )


class Encoder:
    """Writes objects as JSON; the elements of arrays go to `blocks`, and devices are positions in `devices`."""

    def __init__(self, blocks: list[np.ndarray], devices: Sequence[Device] = ()):
        self.blocks = blocks
        self.positions = {device: i for i, device in enumerate(devices)}

    def value(self, value: Any) -> Any:
        """Encode an object as JSON; raise `NotData` if files cannot contain it."""
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return {"int": str(value)}
        if kind is float:
            return {"float": value.hex()}
        if kind is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if kind in (tuple, list):
            return {kind.__name__: [self.value(item) for item in value]}
        if isinstance(value, Jaxpr):
            return {"jaxpr": None}  # written in the text
        if isinstance(value, Expression):
            return {"size": str(value)}
        if isinstance(value, KeyDtype):
            return {"key": value.impl}
        if isinstance(value, np.dtype):
            return {"dtype": dtypes.name(value)}
        if isinstance(value, ArrayType):
            return self.type(value)
        if isinstance(value, Primitive):
            return {"primitive": value.name}
        if isinstance(value, enum.Enum) and CLASSES.get(kind.__name__) is kind:
            return {"enum": kind.__name__, "member": value.name}
        if isinstance(value, tuple) and CLASSES.get(kind.__name__) is kind:
            return {"fields": [self.value(item) for item in value], "of": kind.__name__}
        if isinstance(value, (np.ndarray, np.generic, ConcreteArray)):
            return self.array(value)
        return self.splitting(value)

    def splitting(self, value: Any) -> Any:
        """Encode a description of shardings: meshes, specs, shardings, names of axes."""
        if isinstance(value, (Mesh, AbstractMesh)):
            return self.mesh(value)
        if isinstance(value, NamedSharding):
            return {
                "sharding": self.mesh(value.mesh),
                "spec": self.splitting(value.spec),
                "memory": value._kind,
            }
        if isinstance(value, PartitionSpec):
            entries = [self.entry(e) for e in value.partitions]
            return {"parts": entries, "unreduced": self.axes(value.unreduced), "reduced": self.axes(value.reduced)}
        if isinstance(value, ManualAxisType):
            return {"manual": [self.axes(a) for a in (value.varying, value.unreduced, value.reduced)]}
        if isinstance(value, (set, frozenset)) and all(isinstance(a, str) for a in value):
            return {"axes": self.axes(value)}
        if isinstance(value, MemorySpace):
            return {"space": value.name}
        raise NotData(f"{value!r} of the unsupported type {type(value).__name__}")

    def mesh(self, mesh: Mesh | AbstractMesh) -> Any:
        """Encode the axes of a mesh, and the positions of its devices (None for an abstract mesh)."""
        positions = None
        if isinstance(mesh, Mesh):
            if any(d not in self.positions for d in mesh.device_tuple):
                raise NotData(f"{mesh!r}, whose devices differ from those of the first mesh of the program")
            positions = [self.positions[d] for d in mesh.device_tuple]
        kinds = [kind.name for kind in mesh.axis_types]
        return {"mesh": list(mesh.axis_sizes), "names": self.names(mesh.axis_names), "kinds": kinds, "at": positions}

    def names(self, names: Any) -> list[str]:
        """Return names of axes, which must be strings."""
        if not all(isinstance(name, str) for name in names):
            raise NotData(f"{names!r} with an axis whose name is no string")
        return list(names)

    def axes(self, axes: Any) -> list[str]:
        """Encode a set of axes, in an order that does not depend on hashes."""
        return sorted(self.names(axes))

    def entry(self, entry: Any) -> Any:
        """Encode an entry of a spec."""
        if entry is UNCONSTRAINED:
            return {"open": True}
        if entry is None or isinstance(entry, str):
            return entry
        return self.names(entry)

    def type(self, aval: ArrayType) -> Any:
        shape = [self.value(d) for d in aval.shape]
        found = {"type": shape, "dtype": self.value(aval.dtype), "weak": aval.weak_type}
        if not aval.is_plain:
            found["placement"] = [self.value(p) for p in (aval.explicit_sharding, aval.manual, aval.memory_space)]
        return found

    def array(self, value: Any) -> Any:
        aval = get_aval(value)
        if not isinstance(aval, ArrayType):
            raise NotData(f"{value!r} of the unsupported type {type(value).__name__}")
        storage = np.ascontiguousarray(getattr(value, "_value", value))
        if storage.dtype.hasobject:
            raise NotData(f"an array of the unsupported dtype {storage.dtype}")
        if isinstance(value, (np.ndarray, np.generic)):
            aval = array_type(storage.shape, value.dtype)  # as it is, also where it is not canonical
        self.blocks.append(storage.reshape(aval.shape))
        plain = "array" if isinstance(value, ConcreteArray) else "numpy" if isinstance(value, np.ndarray) else "scalar"
        return {plain: len(self.blocks) - 1, **self.type(aval)}


class Decoder:
    """Reads what `Encoder` wrote."""

    def __init__(self, blocks: Sequence[memoryview], symbols: Mapping[str, Dimension], devices: Sequence[Device] = ()):
        self.blocks, self.symbols, self.devices = blocks, symbols, devices

    def value(self, value: Any) -> Any:
        """Return the object that JSON describes."""
        if value is None or type(value) in (bool, str):
            return value
        if not isinstance(value, dict):
            raise FileFormatError(
                f"An object in the file must be JSON's null, a boolean, a string or an object, got {value!r}."
            )
        for word, read in self._READERS.items():
            if word in value:
                return read(self, value)
        raise FileFormatError(f"An object in the file is of no known kind: {', '.join(map(repr, value))}.")

    def _integer(self, value: Any) -> int:
        text = value["int"]
        if len(text) > 40:
            raise FileFormatError("An integer in the file must have at most 40 digits.")
        return int(text)

    def _key(self, value: Any) -> KeyDtype:
        return IMPLEMENTATIONS[value["key"]]

    def _size(self, value: Any) -> Dimension:
        return size_from_text(value["size"], self.symbols)

    def _member(self, value: Any) -> Any:
        return CLASSES[value["enum"]][value["member"]]

    def _fields(self, value: Any) -> Any:
        kind = CLASSES[value["of"]]
        if not issubclass(kind, tuple):
            raise FileFormatError(f"{value['of']} has no fields.")
        return kind(*(self.value(item) for item in value["fields"]))

    def _type(self, value: Any) -> ArrayType:
        shape = tuple(self.value(d) for d in value["type"])
        if not all(isinstance(d, Expression) or (type(d) is int and d >= 0) for d in shape):
            raise FileFormatError("A shape in the file has something that is no size.")
        dtype = self.value(value["dtype"])
        if not isinstance(dtype, (np.dtype, KeyDtype)) or type(value["weak"]) is not bool:
            raise FileFormatError("A type in the file has something that is no dtype.")
        plain = array_type(shape, dtype, value["weak"])
        if "placement" not in value:
            return plain
        sharding, manual, space = (self.value(p) for p in value["placement"])
        if not (
            isinstance(sharding, (NamedSharding, type(None)))
            and isinstance(manual, ManualAxisType)
            and isinstance(space, (MemorySpace, type(None)))
        ):
            raise FileFormatError("A type in the file says in no known way how values are split.")
        return plain.with_placement(sharding=sharding, manual=manual, memory_space=space)

    def _mesh(self, value: Any) -> Any:
        sizes, names, kinds, at = value["mesh"], self._names(value["names"]), value["kinds"], value["at"]
        if not all(type(n) is int and n > 0 for n in sizes):
            raise FileFormatError("A mesh in the file has something that is no size.")
        types = tuple(AxisType[kind] for kind in kinds)
        if at is None:
            return AbstractMesh(tuple(sizes), names, types)
        if not all(type(i) is int and 0 <= i < len(self.devices) for i in at):
            raise FileFormatError("A mesh in the file has devices that the export is not for.")
        grid = np.empty(len(at), object)
        grid[:] = [self.devices[i] for i in at]
        return Mesh(grid.reshape(sizes), names, types)

    def _names(self, names: Any) -> tuple[str, ...]:
        if type(names) is not list or not all(type(name) is str for name in names):
            raise FileFormatError("The file has something that is no list of axes.")
        return tuple(names)

    def _sharding(self, value: Any) -> Any:
        return NamedSharding(self._mesh(value["sharding"]), self._spec(value["spec"]), value["memory"])

    def _spec(self, value: Any) -> Any:
        summed = {word: frozenset(self._names(value[word])) for word in ("unreduced", "reduced")}
        return PartitionSpec(*(self._entry(e) for e in value["parts"]), **summed)

    def _entry(self, value: Any) -> Any:
        if isinstance(value, dict):
            return UNCONSTRAINED
        return value if value is None or type(value) is str else self._names(value)

    def _manual(self, value: Any) -> Any:
        varying, unreduced, reduced = map(self._names, value["manual"])
        return ManualAxisType(varying=varying, unreduced=unreduced, reduced=reduced)

    def _array(self, value: Any) -> Any:
        aval = self._type(value)
        index = next(value[word] for word in ("array", "numpy", "scalar") if word in value)
        if type(index) is not int or not 0 <= index < len(self.blocks):
            raise FileFormatError(f"The file has no block {index!r}.")
        storage = dtypes.storage(aval.dtype)
        if storage.hasobject or any(isinstance(d, Expression) for d in aval.shape):
            raise FileFormatError(f"A constant in the file must not be of type {aval.short()}.")
        elements = np.frombuffer(self.blocks[index], storage)
        array = elements.reshape(aval.shape)
        array.flags.writeable = False
        if "array" in value:
            return ConcreteArray(array, aval)
        return array if "numpy" in value else array[()]

    _READERS: Any = {
        "int": _integer,
        "float": lambda self, v: float.fromhex(v["float"]),
        "complex": lambda self, v: complex(*map(float.fromhex, v["complex"])),
        "tuple": lambda self, v: tuple(self.value(item) for item in v["tuple"]),
        "list": lambda self, v: [self.value(item) for item in v["list"]],
        "size": _size,
        "key": _key,
        "primitive": lambda self, v: lookup(v["primitive"]),
        "enum": _member,
        "fields": _fields,
        "array": _array,
        "numpy": _array,
        "scalar": _array,
        "type": _type,
        "sharding": _sharding,
        "mesh": _mesh,
        "parts": _spec,
        "manual": _manual,
        "axes": lambda self, v: frozenset(self._names(v["axes"])),
        "space": lambda self, v: MemorySpace[v["space"]],
        "dtype": lambda self, v: _DTYPES[v["dtype"]],
    }


def size_from_text(text: Any, symbols: Mapping[str, Dimension]) -> Dimension:
    """Parse a size from its text, with symbols that the file declares."""
    if not isinstance(text, str) or len(text) > 1000:
        raise FileFormatError("A size in the file is no text, or too long.")
    size = parse_dimension(text, symbols)
    for symbol in size.symbols if isinstance(size, Expression) else ():
        if not isinstance(symbol, Symbol) or symbols.get(symbol.name) is not symbol:
            raise FileFormatError(f"The file has the size {text!r} with a symbol that it does not declare.")
    return size
