"""Precision of contractions and convolutions: names, algorithms, and their canonical form."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.base.settings import config


class Precision(Enum):
    """How exact products are where hardware has shorter formats; `Precision("float32")` reads an alias.

    >>> from weft import lax
    >>> lax.Precision("float32") is lax.Precision.HIGHEST
    True
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        name = _ALIASES.get(value)
        return None if name is None else cls[name]

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


_ALIASES: dict[Any, str] = {
    None: "DEFAULT",
    "default": "DEFAULT",
    "fastest": "DEFAULT",
    "bfloat16": "DEFAULT",
    "high": "HIGH",
    "bfloat16_3x": "HIGH",
    "tensorfloat32": "HIGH",
    "highest": "HIGHEST",
    "float32": "HIGHEST",
}


class DotAlgorithm(NamedTuple):
    """Exact recipe for a contraction: in which types operands are multiplied and summed, and in how many parts."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(Enum):
    """Recipes that hardware has: operand types, then the type of accumulation, then the number of products."""

    DEFAULT = 1
    ANY_F8_ANY_F8_F32 = 2
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 3
    ANY_F8_ANY_F8_ANY = 4
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 5
    F16_F16_F16 = 6
    F16_F16_F32 = 7
    BF16_BF16_BF16 = 8
    BF16_BF16_F32 = 9
    BF16_BF16_F32_X3 = 10
    BF16_BF16_F32_X6 = 11
    BF16_BF16_F32_X9 = 12
    TF32_TF32_F32 = 13
    TF32_TF32_F32_X3 = 14
    F32_F32_F32 = 15
    F64_F64_F64 = 16

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    def __str__(self) -> str:
        return self.name


PrecisionLike: TypeAlias = (
    str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset | None
)
CanonicalPrecision: TypeAlias = tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset | None


def canonical_precision(precision: PrecisionLike) -> CanonicalPrecision:
    """Return the form that equations carry: a precision for each operand, or an algorithm; None takes the setting."""
    if precision is None:
        precision = config.default_matmul_precision
        if precision is None:
            return None
    if isinstance(precision, Precision):
        return precision, precision
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str):
        if precision in _ALIASES:
            named = Precision(precision)
            return named, named
        if precision in DotAlgorithmPreset.__members__:
            return DotAlgorithmPreset[precision]
    elif isinstance(precision, (tuple, list)) and len(precision) == 2:
        pair = [
            p if isinstance(p, Precision) else Precision(p)
            for p in precision
            if isinstance(p, Precision) or (p in _ALIASES and p)
        ]
        if len(pair) == 2:
            return pair[0], pair[1]
    names = ", ".join(repr(name) for name in _ALIASES if name)
    raise ArgumentError(
        f"precision got {precision!r}. It is None, one of {names}, a lax.Precision, a pair of those, "
        "or a lax.DotAlgorithm, a lax.DotAlgorithmPreset or the name of one."
    )


def allows_tf32(dtype: Any, precision: CanonicalPrecision) -> bool:
    """Return whether float32 may be multiplied in the short format of matrix units, with 10 bits of mantissa: by
    default, and if the precision requests it."""
    if dtype != dtypes.float32:
        return False
    if isinstance(precision, DotAlgorithmPreset):
        return precision in (DotAlgorithmPreset.DEFAULT, DotAlgorithmPreset.TF32_TF32_F32)
    if isinstance(precision, DotAlgorithm):
        return dtypes.name(precision.lhs_precision_type) not in ("float32", "float64")
    return precision is None or all(each is Precision.DEFAULT for each in precision)
