"""Values: the text of an operand in LLVM with its type, and constants, exact to the bit."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from weft.base.errors import InternalError
from weft.base.memo import Memo
from weft.compiler.target.llvm.types import Type, vector


class Value:
    """Register, parameter, global or constant."""

    __slots__ = ("text", "type")

    def __init__(self, text: str, type: Type) -> None:
        self.text = text
        self.type = type

    def __repr__(self) -> str:
        return f"{self.type.text} {self.text}"


_constants: Memo[tuple[Type, bool | int | float], Value] = Memo(4096)


def constant(value: bool | int | float, type: Type) -> Value:
    """Return a number of a scalar type, or a vector of equal ones. Floats are rounded to the type once."""
    # Zeros of both signs are equal, and nan is not equal to itself, so neither can be looked up.
    if not value or value != value:
        return _constant(value, type)
    found = _constants.get((type, value))
    return found if found is not None else _constants.keep((type, value), _constant(value, type))


def _constant(value: bool | int | float, type: Type) -> Value:
    if type.kind == "float":
        text = float_text(float(value), type.element)
    elif type.kind == "int" and value == int(value):
        text = integer_text(int(value), type)
    else:
        raise InternalError(f"A constant {value!r} does not exist in the type {type}.")
    return Value(f"splat ({type.element.text} {text})" if type.is_vector else text, type)


def is_below(a: Value, b: Value) -> bool:
    """Return whether both values are integer constants, the first one smaller."""
    texts = a.text, b.text
    return all(text.lstrip("-").isdecimal() for text in texts) and int(texts[0]) < int(texts[1])


def constant_vector(values: Sequence[int | float], element: Type) -> Value:
    """Return a vector of these numbers."""
    texts = [f"{element.text} {constant(v, element).text}" for v in values]
    return Value(f"<{', '.join(texts)}>", vector(element, len(values)))


def zero(type: Type) -> Value:
    """Return the value whose bits are all zero; null for a pointer."""
    if type.is_vector:
        return Value("zeroinitializer", type)
    return Value("null", type) if type.kind == "ptr" else constant(0, type)


def poison(type: Type) -> Value:
    """Return an undefined value, for operands that are never read."""
    return Value("poison", type)


def integer_text(value: int, type: Type) -> str:
    """Write an integer in LLVM's syntax, in the signed range of its width."""
    bits = type.bits
    if bits == 1:
        if value not in (0, 1, -1):
            raise InternalError(f"The integer {value} does not fit into i1.")
        return "true" if value else "false"
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise InternalError(f"The integer {value} does not fit into {type.element}.")
    return str(value - (1 << bits) if value >= 1 << (bits - 1) else value)


def float_text(value: float, type: Type) -> str:
    """Write a float by its bits, which is exact: those of a half, or of the double with its value."""
    if type.bits == 64:
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    short = round_to_format(value, "f" if type.bits == 32 else "e")
    if type.bits == 16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', short))[0]:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', short))[0]:016X}"


def round_to_format(value: float, format: str) -> float:
    """Round to the nearest number of a shorter format (`f` or `e` of `struct`); overflow gives infinity."""
    try:
        result: float = struct.unpack(f"<{format}", struct.pack(f"<{format}", value))[0]
        return result
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
