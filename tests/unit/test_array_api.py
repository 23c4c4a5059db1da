"""Python array API standard, 2024.12: names, parameters, and the results and dtypes that it defines.

NumPy implements the standard, so results are compared with it, under `enable_x64`, where the default dtypes are
those of NumPy.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp

# name: positional parameters; parameters by name. A star marks those that are positional only in the standard.
ELEMENTWISE = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_invert",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "square",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]
SIGNATURES = """
arange start stop step dtype= device=
asarray * dtype= device= copy=
empty shape dtype= device=
empty_like * dtype= device=
eye n_rows* n_cols* k= dtype= device=
from_dlpack * device= copy=
full shape fill_value dtype= device=
full_like * fill_value dtype= device=
linspace * * * dtype= device= endpoint=
meshgrid indexing=
ones shape dtype= device=
ones_like * dtype= device=
tril * k=
triu * k=
zeros shape dtype= device=
zeros_like * dtype= device=
astype * * copy= device=
broadcast_arrays
broadcast_to * shape
can_cast * *
finfo *
iinfo *
isdtype * *
result_type
take * * axis=
take_along_axis * * axis=
matmul * *
matrix_transpose *
tensordot * * axes=
vecdot * * axis=
concat * axis=
expand_dims * axis=
flip * axis=
moveaxis * * *
permute_dims * *
repeat * * axis=
reshape * shape copy=
roll * * axis=
squeeze * *
stack * axis=
tile * *
unstack * axis=
argmax * axis= keepdims=
argmin * axis= keepdims=
count_nonzero * axis= keepdims=
nonzero *
searchsorted * * side= sorter=
where * * *
unique_all *
unique_counts *
unique_inverse *
unique_values *
argsort * axis= descending= stable=
sort * axis= descending= stable=
cumulative_prod * axis= dtype= include_initial=
cumulative_sum * axis= dtype= include_initial=
max * axis= keepdims=
mean * axis= keepdims=
min * axis= keepdims=
prod * axis= dtype= keepdims=
std * axis= correction= keepdims=
sum * axis= dtype= keepdims=
var * axis= correction= keepdims=
all * axis= keepdims=
any * axis= keepdims=
diff * axis= n= prepend= append=
linalg.cholesky * upper=
linalg.cross * * axis=
linalg.det *
linalg.diagonal * offset=
linalg.eigh *
linalg.eigvalsh *
linalg.inv *
linalg.matmul * *
linalg.matrix_norm * keepdims= ord=
linalg.matrix_power * *
linalg.matrix_rank * rtol=
linalg.matrix_transpose *
linalg.outer * *
linalg.pinv * rtol=
linalg.qr * mode=
linalg.slogdet *
linalg.solve * *
linalg.svd * full_matrices=
linalg.svdvals *
linalg.tensordot * * axes=
linalg.trace * offset= dtype=
linalg.vecdot * * axis=
linalg.vector_norm * axis= keepdims= ord=
fft.fft * n= axis= norm=
fft.ifft * n= axis= norm=
fft.fftn * s= axes= norm=
fft.ifftn * s= axes= norm=
fft.rfft * n= axis= norm=
fft.irfft * n= axis= norm=
fft.rfftn * s= axes= norm=
fft.irfftn * s= axes= norm=
fft.hfft * n= axis= norm=
fft.ihfft * n= axis= norm=
fft.fftfreq * d= dtype= device=
fft.rfftfreq * d= dtype= device=
fft.fftshift * axes=
fft.ifftshift * axes=
""".strip().splitlines()
METHODS = [
    "abs",
    "add",
    "and",
    "array_namespace",
    "bool",
    "complex",
    "dlpack",
    "dlpack_device",
    "eq",
    "float",
    "floordiv",
    "ge",
    "getitem",
    "gt",
    "index",
    "int",
    "invert",
    "le",
    "lshift",
    "lt",
    "matmul",
    "mod",
    "mul",
    "ne",
    "neg",
    "or",
    "pos",
    "pow",
    "rshift",
    "setitem",
    "sub",
    "truediv",
    "xor",
    "radd",
    "rsub",
    "rmul",
    "rtruediv",
    "rfloordiv",
    "rpow",
    "rmod",
    "rand",
    "ror",
    "rxor",
    "rlshift",
    "rrshift",
    "rmatmul",
]


@pytest.fixture(autouse=True)
def wide() -> Any:
    with weft.enable_x64(True):
        yield


def resolve(name: str) -> Any:
    thing: Any = wnp
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("line", SIGNATURES, ids=lambda line: line.split()[0])
def test_parameters(line: str) -> None:
    name, *wanted = line.split()
    parameters = inspect.signature(resolve(name)).parameters
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for i, parameter in enumerate(wanted):
        if parameter.endswith("*"):
            assert i < len(positional), f"{name} takes fewer than {i + 1} positional arguments"
            continue
        own = parameters.get(parameter.rstrip("="))
        assert own is not None and own.kind is not own.POSITIONAL_ONLY, f"{name} does not take {parameter} by name"
        assert parameter.endswith("=") or positional[i].name == parameter


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_names(name: str) -> None:
    assert callable(resolve(name))


def test_constants_dtypes_and_methods() -> None:
    for name in ("e", "inf", "nan", "pi"):
        np.testing.assert_equal(float(resolve(name)), getattr(np, name))
    assert wnp.newaxis is None
    array = wnp.ones((2, 3))
    for method in METHODS:
        assert hasattr(array, f"__{method}__"), method
    for attribute in ("dtype", "device", "mT", "ndim", "shape", "size", "T", "to_device"):
        assert hasattr(array, attribute), attribute
    for operation in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
        "matmul",
    ):
        # Arrays are immutable: an in-place operator binds the name to a new array.
        assert not hasattr(array, f"__i{operation}__")
    assert array.__array_namespace__() is wnp and array.__array_namespace__(api_version="2024.12") is wnp
    with pytest.raises(ValueError, match="1999"):
        array.__array_namespace__(api_version="1999.01")


def test_information() -> None:
    info = wnp.__array_namespace_info__()
    assert wnp.__array_api_version__ == "2024.12"
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.devices()[1:] == weft.devices() and info.default_device() in info.devices()
    defaults = info.default_dtypes()
    assert [defaults[k].name for k in ("real floating", "complex floating", "integral", "indexing")] == [
        "float64",
        "complex128",
        "int64",
        "int64",
    ]
    assert wnp.zeros(1).dtype == defaults["real floating"] and wnp.arange(3).dtype == defaults["integral"]
    assert wnp.argmax(wnp.ones(3)).dtype == defaults["indexing"]
    assert list(info.dtypes(kind="real floating")) == ["float32", "float64"]
    assert set(info.dtypes(kind=("bool", "unsigned integer"))) == {"bool", "uint8", "uint16", "uint32", "uint64"}
    assert len(info.dtypes()) == 13
    for name, dtype in info.dtypes(device=weft.devices()[0]).items():
        assert getattr(wnp, "bool_" if name == "bool" else name) == dtype
    with pytest.raises(ValueError, match="nothing"):
        info.dtypes(kind="nothing")
    with weft.enable_x64(False):
        assert info.default_dtypes()["integral"].name == "int32" and "int64" not in info.dtypes()


# ------------------------------------------------------------------------------------------------ results and dtypes

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")


def values(dtype: str, other: bool = False) -> np.ndarray:
    if dtype == "bool":
        return np.array([True, False, True, True]) if other else np.array([True, True, False, False])
    if dtype in INTEGERS:
        return np.array([1, 2, 3, 2] if other else [5, 3, 0, 7], dtype)
    found = np.array([0.5, 2.0, 1.5, 0.25] if other else [0.75, 0.125, 0.5, 0.25], dtype)
    return found + np.array(0.25j, dtype) if dtype in COMPLEX else found


def check(found: Any, expected: Any, what: str = "") -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected), what
        for a, b in zip(found, expected, strict=True):
            check(a, b, what)
        return
    assert found.dtype == expected.dtype, f"{what}: {found.dtype} for {expected.dtype}"
    assert found.shape == expected.shape, what
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=what)


UNARY = {
    "abs": INTEGERS + FLOATS,
    "positive": INTEGERS + FLOATS + COMPLEX,
    "negative": INTEGERS[:4] + FLOATS + COMPLEX,
    "ceil": INTEGERS + FLOATS,
    "floor": INTEGERS + FLOATS,
    "trunc": INTEGERS + FLOATS,
    "round": INTEGERS + FLOATS + COMPLEX,
    "sign": INTEGERS + FLOATS + COMPLEX,
    "square": INTEGERS + FLOATS + COMPLEX,
    "bitwise_invert": ("bool", *INTEGERS),
    "logical_not": ("bool",),
    "isfinite": INTEGERS + FLOATS + COMPLEX,
    "isinf": INTEGERS + FLOATS + COMPLEX,
    "isnan": INTEGERS + FLOATS + COMPLEX,
    "signbit": FLOATS,
    "reciprocal": FLOATS + COMPLEX,
    "conj": COMPLEX,
    "real": COMPLEX,
    "imag": COMPLEX,
    **dict.fromkeys(
        [
            "acos",
            "asin",
            "atan",
            "acosh",
            "asinh",
            "atanh",
            "cos",
            "cosh",
            "exp",
            "expm1",
            "log",
            "log1p",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
        ],
        FLOATS + COMPLEX,
    ),
    **dict.fromkeys(("log2", "log10"), FLOATS + COMPLEX),
}
BINARY = {
    **dict.fromkeys(["add", "subtract", "multiply"], INTEGERS + FLOATS + COMPLEX),
    **dict.fromkeys(["divide", "pow"], FLOATS + COMPLEX),
    **dict.fromkeys(
        ["floor_divide", "remainder", "maximum", "minimum", "greater", "greater_equal", "less", "less_equal"],
        INTEGERS + FLOATS,
    ),
    **dict.fromkeys(["equal", "not_equal"], ("bool", *INTEGERS, *FLOATS, *COMPLEX)),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], ("bool", *INTEGERS)),
    **dict.fromkeys(["bitwise_left_shift", "bitwise_right_shift"], INTEGERS),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], ("bool",)),
    **dict.fromkeys(["atan2", "copysign", "hypot", "logaddexp", "nextafter"], FLOATS),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name: str) -> None:
    for dtype in UNARY[name]:
        x = values(dtype)
        x = x + np.array(1, dtype) if name == "acosh" else x
        check(getattr(wnp, name)(wnp.asarray(x)), np.asarray(getattr(np, name)(x)), f"{name} of {dtype}")


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_promote_within_a_kind(name: str) -> None:
    for first in BINARY[name]:
        for second in BINARY[name]:
            if np.dtype(first).kind != np.dtype(second).kind or ("shift" in name and first != second):
                continue
            x, y = values(first), values(second, True)
            expected = np.asarray(getattr(np, name)(x, y))
            check(getattr(wnp, name)(wnp.asarray(x), wnp.asarray(y)), expected, f"{name} of {first} and {second}")


OPERATORS = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "**": lambda x, y: x**y,
    "==": lambda x, y: x == y,
    "<": lambda x, y: x < y,
    ">=": lambda x, y: x >= y,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
}


@pytest.mark.parametrize("symbol", OPERATORS)
def test_operators_take_python_numbers(symbol: str) -> None:
    """A Python scalar takes the dtype of the array."""
    f = OPERATORS[symbol]
    allowed = (
        ("bool", *INTEGERS) if symbol in "&|^" else INTEGERS if symbol in ("<<", ">>") else INTEGERS + FLOATS + COMPLEX
    )
    for dtype in allowed:
        if (dtype in COMPLEX and symbol in ("//", "%", "<", ">=")) or (symbol == "/" and dtype in INTEGERS):
            continue
        scalars = [True] if dtype == "bool" else [2] if dtype in INTEGERS else [2, 1.5]
        for scalar in scalars:
            x = values(dtype)
            check(f(wnp.asarray(x), scalar), f(x, scalar), f"{dtype} {symbol} {scalar}")
            other = x if dtype == "bool" else x + np.array(1, dtype)
            check(f(scalar, wnp.asarray(other)), f(scalar, other), f"{scalar} {symbol} {dtype}")


REDUCTIONS = {
    "sum": INTEGERS + FLOATS + COMPLEX,
    "prod": INTEGERS + FLOATS + COMPLEX,
    "mean": FLOATS + COMPLEX,
    "max": INTEGERS + FLOATS,
    "min": INTEGERS + FLOATS,
    "std": FLOATS,
    "var": FLOATS,
    "all": ("bool", *INTEGERS),
    "any": ("bool", *INTEGERS),
    "argmax": INTEGERS + FLOATS,
    "argmin": INTEGERS + FLOATS,
    "count_nonzero": ("bool", *INTEGERS),
    "cumulative_sum": INTEGERS + FLOATS,
    "cumulative_prod": INTEGERS + FLOATS,
    "argsort": INTEGERS + FLOATS,
    "sort": INTEGERS + FLOATS,
    "unique_values": INTEGERS + FLOATS,
    "unique_counts": INTEGERS,
    "unique_inverse": INTEGERS,
    "unique_all": INTEGERS,
    "nonzero": ("bool", *INTEGERS),
    "flip": INTEGERS,
    "diff": INTEGERS + FLOATS,
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_functions_of_one_array(name: str) -> None:
    for dtype in REDUCTIONS[name]:
        x = values(dtype)
        expected = getattr(np, name)(x)
        found = getattr(wnp, name)(wnp.asarray(x))
        if isinstance(expected, tuple):
            check(tuple(found), tuple(expected), f"{name} of {dtype}")
            if hasattr(expected, "_fields"):
                assert found._fields == expected._fields
        else:
            # The standard leaves the order of unique values open.
            check(found, np.sort(expected) if name == "unique_values" else np.asarray(expected), f"{name} of {dtype}")


def test_options() -> None:
    x = np.arange(6.0).reshape(2, 3)
    cases = {
        "astype": lambda xp, x: xp.astype(x, xp.int32, copy=True),
        "asarray copy": lambda xp, x: xp.asarray(x, copy=True),
        "std": lambda xp, x: xp.std(x, axis=1, correction=1, keepdims=True),
        "sort": lambda xp, x: xp.sort(x, axis=0, stable=True)[::-1],
        "cumulative": lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True),
        "take": lambda xp, x: xp.take(x, xp.asarray([2, 0]), axis=1),
        "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1),
        "searchsorted": lambda xp, x: xp.searchsorted(x[0], xp.asarray([0.5, 2.0]), side="right"),
        "permute_dims": lambda xp, x: xp.permute_dims(x, (1, 0)),
        "concat": lambda xp, x: xp.concat([x, x], axis=None),
        "reshape": lambda xp, x: xp.reshape(x, (3, 2), copy=True),
        "vecdot": lambda xp, x: xp.vecdot(x, x, axis=0),
        "tensordot": lambda xp, x: xp.tensordot(x, x, axes=((1,), (1,))),
        "clip": lambda xp, x: xp.clip(x, 1, 3.5),
        "where": lambda xp, x: xp.where(x > 2, x, 0.0),
        "unstack": lambda xp, x: xp.unstack(x, axis=1),
        "repeat": lambda xp, x: xp.repeat(x, xp.asarray([1, 2]), axis=0),
        "mask": lambda xp, x: x[x > 2],
        "diff": lambda xp, x: xp.diff(x, axis=1, prepend=xp.zeros((2, 1)), n=2),
        "cross": lambda xp, x: xp.linalg.cross(x[:1], x[1:]),
        "norm": lambda xp, x: xp.linalg.vector_norm(x, axis=1, ord=1, keepdims=True),
        "matrix norm": lambda xp, x: xp.linalg.matrix_norm(x, ord="nuc"),
        "pinv": lambda xp, x: xp.linalg.pinv(x),
        "svdvals": lambda xp, x: xp.linalg.svdvals(x),
        "slogdet": lambda xp, x: tuple(xp.linalg.slogdet(x @ x.mT + xp.eye(2))),
        "cholesky": lambda xp, x: xp.linalg.cholesky(x @ x.mT + xp.eye(2), upper=True),
        "fftfreq": lambda xp, x: xp.fft.fftfreq(5, d=0.5),
        "rfft": lambda xp, x: xp.fft.rfft(x.astype(xp.float32)),
        "linspace": lambda xp, x: xp.linspace(0, 1, 5, endpoint=False, dtype=xp.float32),
        "meshgrid": lambda xp, x: list(xp.meshgrid(x[0], x[1], indexing="ij")),
        "full": lambda xp, x: xp.full((2,), True),
        "tril": lambda xp, x: xp.tril(x, k=1),
    }
    for name, f in cases.items():
        expected = f(np, x)
        check(f(wnp, wnp.asarray(x)), expected if isinstance(expected, (list, tuple)) else np.asarray(expected), name)


def test_dtypes_are_described() -> None:
    for dtype in FLOATS + COMPLEX:
        found, expected = wnp.finfo(dtype), np.finfo(dtype)
        for field in ("bits", "eps", "max", "min", "smallest_normal", "dtype"):
            assert getattr(found, field) == getattr(expected, field)
    for dtype in INTEGERS:
        for field in ("bits", "max", "min", "dtype"):
            assert getattr(wnp.iinfo(dtype), field) == getattr(np.iinfo(dtype), field)
    for first in ("bool", *INTEGERS, *FLOATS, *COMPLEX):
        for second in ("bool", *INTEGERS, *FLOATS, *COMPLEX):
            assert wnp.can_cast(wnp.dtype(first), wnp.dtype(second)) == np.can_cast(first, second), (first, second)
        for kind in (
            "bool",
            "signed integer",
            "unsigned integer",
            "integral",
            "real floating",
            "complex floating",
            "numeric",
        ):
            assert wnp.isdtype(wnp.dtype(first), kind) == np.isdtype(np.dtype(first), kind)
        assert wnp.isdtype(wnp.dtype(first), ("bool", wnp.dtype(first)))
    assert wnp.result_type(wnp.ones(1, "float32"), 1.0) == np.float32
    assert wnp.result_type(wnp.int8, wnp.uint8) == np.int16
    with pytest.raises(TypeError):
        wnp.asarray(1.0).__index__()
    assert (
        int(wnp.asarray(3)) == 3
        and float(wnp.asarray(2.5)) == 2.5
        and complex(wnp.asarray(1j)) == 1j
        and bool(wnp.asarray(1))
    )
    assert range(5)[wnp.asarray(3)] == 3


def test_devices_and_sharing() -> None:
    device = weft.devices()[0]
    for array in (
        wnp.zeros(3, device=device),
        wnp.asarray([1], device=device),
        wnp.arange(3, device=device),
        wnp.ones_like(wnp.ones(2), device=device),
    ):
        assert array.device == device
        assert array.to_device(device).device == device
    x = np.arange(3.0)
    np.testing.assert_array_equal(wnp.from_dlpack(x), x)
    np.testing.assert_array_equal(np.from_dlpack(wnp.asarray(x)), x)
    assert wnp.from_dlpack(x, copy=True, device=device).device == device
