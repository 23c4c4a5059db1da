"""Values: the text that names one in LLVM, with its type; and constants, exact to the bit."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from weft.base.errors import InternalError
from weft.compiler.target.llvm.types import Type


class Value:
    """A register, a parameter, a global or a constant."""

    __slots__ = ("text", "type")

    def __init__(self, text: str, type: Type) -> None:
        self.text = text
        self.type = type

    def __repr__(self) -> str:
        return f"{self.type.text} {self.text}"


_constants: dict[tuple[Type, object, int], Value] = {}


def constant(value: bool | int | float, type: Type) -> Value:
    """A number of a scalar type, or a vector of equal ones. Floats are rounded to the type once."""
    # The sign of a zero is no part of equality, and 1 == 1.0 == True: the text decides.
    if type.kind == "float":
        text = float_text(float(value), type.element)
    elif type.kind == "int" and value == int(value):
        text = integer_text(int(value), type)
    elif type.kind == "ptr" and value == 0:
        text = "null"
    else:
        raise InternalError(f"A constant {value!r} does not exist in the type {type}.")
    return Value(f"splat ({type.element.text} {text})" if type.is_vector else text, type)


def constant_vector(values: Sequence[int | float], type: Type) -> Value:
    """A vector of given numbers; `type` is that of the elements."""
    from_element = [f"{type.text} {constant(v, type).text}" for v in values]
    return Value(f"<{', '.join(from_element)}>", vector_of(type, len(values)))


def zero(type: Type) -> Value:
    """All bits zero."""
    return Value("zeroinitializer" if type.is_vector else "null" if type.kind == "ptr" else constant(0, type).text, type)


def integer_text(value: int, type: Type) -> str:
    """An integer as LLVM reads it: in the signed range of its width."""
    bits = type.bits
    if bits == 1:
        if value not in (0, 1, -1):
            raise InternalError(f"The integer {value} does not fit into i1.")
        return "true" if value else "false"
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise InternalError(f"The integer {value} does not fit into {type.element}.")
    return str(value - (1 << bits) if value >= 1 << (bits - 1) else value)


def float_text(value: float, type: Type) -> str:
    """A float by its bits, so that nothing is lost in decimal: those of a half, or of the double with its value."""
    if type.bits == 16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if type.bits == 32:
        value = round_to_single(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def round_to_single(value: float) -> float:
    """The float32 nearest to a float64; what is too large becomes infinite."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
