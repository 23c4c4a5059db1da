"""What the text of a jaxpr has as handles, as JSON: constants, symbolic sizes, and parameters that are objects.

Only objects that are data are written: arrays, dtypes, sizes, primitives by name, and the enumerations and tuples of
Weft that `CLASSES` lists. A function, or an object of somebody else's, is refused, and reading never runs code.
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
from weft.ir.types import ArrayType, array_type, type_of
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
    """An object that is not data, so that no file can have it."""


def check_exportable(jaxpr: Jaxpr, name: str) -> None:
    """Raise an error that names the user's line if an equation has a parameter that no file can have."""
    for equation in jaxpr.eqns:
        card = equation.primitive
        if isinstance(card, Callback):
            _refuse(equation, name, f"`{card.name}` calls a function of this process")
        if card.of_this_process or not type(card).__module__.startswith("weft."):
            _refuse(equation, name, f"`{card.name}` is an operation that this process defined")
        for word, value in equation.params.items():
            try:
                Encoder([]).value(value)
            except NotData as error:
                _refuse(equation, name, f"`{card.name}` has the parameter {word}={error}, which is no data")
        for inner in subjaxprs(equation.params):
            check_exportable(inner, name)
    for var in (*jaxpr.constvars, *jaxpr.invars, *(v for e in jaxpr.eqns for v in e.outvars)):
        if not var.aval.is_plain:
            what = f"{name} cannot be exported: a type says how a value is split over a mesh."
            raise NotSupportedError(what, received=var.aval.short(), fix="export the function of one device")


def _refuse(equation: Equation, name: str, why: str) -> None:
    raise NotSupportedError(
        f"{name} cannot be exported: {why}.",
        fix="leave it out of the function that is exported: call it before or after",
        at=None if equation.source is None else equation.source.describe(),
    )


class Encoder:
    """Writes objects as JSON; the elements of arrays go to `blocks`."""

    def __init__(self, blocks: list[np.ndarray]):
        self.blocks = blocks

    def value(self, value: Any) -> Any:
        """An object as JSON; `NotData` if it is none that files have."""
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
        raise NotData(f"{value!r} of type {kind.__name__}")

    def type(self, aval: ArrayType) -> Any:
        shape = [self.value(d) for d in aval.shape]
        return {"type": shape, "dtype": self.value(aval.dtype), "weak": aval.weak_type}

    def array(self, value: Any) -> Any:
        aval = type_of(value)
        if not isinstance(aval, ArrayType):
            raise NotData(f"{value!r} of type {type(value).__name__}")
        storage = np.ascontiguousarray(getattr(value, "_value", value))
        if storage.dtype.hasobject:
            raise NotData(f"an array of {storage.dtype}")
        if isinstance(value, (np.ndarray, np.generic)):
            aval = array_type(storage.shape, value.dtype)  # as it is, also where it is not canonical
        self.blocks.append(storage.reshape(aval.shape))
        plain = "array" if isinstance(value, ConcreteArray) else "numpy" if isinstance(value, np.ndarray) else "scalar"
        return {plain: len(self.blocks) - 1, **self.type(aval)}


class Decoder:
    """Reads what `Encoder` wrote."""

    def __init__(self, blocks: Sequence[memoryview], symbols: Mapping[str, Dimension]):
        self.blocks, self.symbols = blocks, symbols

    def value(self, value: Any) -> Any:
        """The object that JSON describes."""
        if value is None or type(value) in (bool, str):
            return value
        if not isinstance(value, dict):
            raise FileFormatError(f"An object in the file is {value!r}, which is none.")
        for word, read in self._READERS.items():
            if word in value:
                return read(self, value)
        raise FileFormatError(f"An object in the file is of no known kind: {', '.join(map(repr, value))}.")

    def _integer(self, value: Any) -> int:
        text = value["int"]
        if len(text) > 40:
            raise FileFormatError("An integer in the file has more than 40 digits.")
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
        return array_type(shape, dtype, value["weak"])

    def _array(self, value: Any) -> Any:
        aval = self._type(value)
        index = next(value[word] for word in ("array", "numpy", "scalar") if word in value)
        if type(index) is not int or not 0 <= index < len(self.blocks):
            raise FileFormatError(f"The file has no block {index!r}.")
        storage = dtypes.storage(aval.dtype)
        if storage.hasobject or any(isinstance(d, Expression) for d in aval.shape):
            raise FileFormatError(f"The file has a constant of type {aval.short()}, which none can have.")
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
        "dtype": lambda self, v: _DTYPES[v["dtype"]],
    }


def size_from_text(text: Any, symbols: Mapping[str, Dimension]) -> Dimension:
    """A size from its text, with symbols that the file declares."""
    if not isinstance(text, str) or len(text) > 1000:
        raise FileFormatError("A size in the file is no text, or too long.")
    size = parse_dimension(text, symbols)
    for symbol in size.symbols if isinstance(size, Expression) else ():
        if not isinstance(symbol, Symbol) or symbols.get(symbol.name) is not symbol:
            raise FileFormatError(f"The file has the size {text!r} with a symbol that it does not declare.")
    return size
