"""Fused multiply-adds on machines without an instruction for them: elementary functions rely on the exact error of a
product, which a product and a sum that are rounded separately lose."""

from __future__ import annotations

from weft.base.errors import InternalError
from weft.compiler.target.llvm import Function, Parameter, Type, Value, constant, double, float_, vector

# Splits a double into two halves whose products are exact (Dekker).
_SPLIT = 134217729.0


def fma(f: Function, a: Value, b: Value, c: Value) -> Value:
    """Compute a * b + c with the error of little more than one rounding, and exactly where the result is the rounding
    error of a product."""
    type, element = a.type, a.type.element
    if element is float_:  # the product of two floats is exact in a double
        wide = vector(double, type.count)
        a, b, c = (f.fpext(x, wide) for x in (a, b, c))
        return f.fptrunc(f.fadd(f.fmul(a, b), c), type)
    if element is not double:
        raise InternalError(f"A fused multiply-add needs float or double; got {type}.", stage="llvm")
    parameters = [Parameter(name, type) for name in "abc"]
    name = f.module.helper(f"fma_f64_{type.count}", parameters, lambda helper: _write_double(helper, type), type)
    result = f.call(name, type, a, b, c)
    assert result is not None
    return result


def _write_double(f: Function, type: Type) -> None:
    a, b, c = f.arguments
    product = f.fmul(a, b)
    (a_high, a_low), (b_high, b_low) = _split(f, a, type), _split(f, b, type)
    error = f.fsub(f.fmul(a_high, b_high), product)
    for pair in ((a_high, b_low), (a_low, b_high), (a_low, b_low)):
        error = f.fadd(error, f.fmul(*pair))
    total = f.fadd(product, c)
    part = f.fsub(total, product)
    lost = f.fadd(f.fsub(product, f.fsub(total, part)), f.fsub(c, part))
    rest = f.fadd(lost, error)
    # Where halves overflow `rest` is a nan; where it is zero the sign of the sum must not change.
    usable = f.fcmp("one", rest, constant(0.0, type))
    f.ret(f.select(usable, f.fadd(total, rest), total))


def _split(f: Function, x: Value, type: Type) -> tuple[Value, Value]:
    scaled = f.fmul(x, constant(_SPLIT, type))
    high = f.fsub(scaled, f.fsub(scaled, x))
    return high, f.fsub(x, high)
