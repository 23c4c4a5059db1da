"""Law of evaluation: an operation returns the same bits outside of `jit` as inside.

NaN equals NaN, and zeros have signs. Over every sample, at the edges of every dtype, under transformations, and for
functions of the library on arrays that are longer than registers, where the order of sums shows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.scipy.linalg as wsl
from tests.laws.samples import CASES, Case, concrete, differentiable, is_inexact
from tests.laws.test_compiled import GROUPS, merged
from weft import lax, nn, random
from weft.base import dtypes
from weft.base.settings import enable_x64
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import NO_EFFECTS
from weft.primitives.elementwise.elementwise import Elementwise
from weft.runtime.execute import get_executable


def assert_same_bits(actual: Any, expected: Any, what: str) -> None:
    """Equal shapes, dtypes and bits; any NaN equals any other."""
    actual, expected = (v._value if hasattr(v, "_value") else np.asarray(v) for v in (actual, expected))
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), what
    if dtypes.kind(actual.dtype) == "c":
        assert_same_bits(actual.real.copy(), expected.real.copy(), f"real part of {what}")
        assert_same_bits(actual.imag.copy(), expected.imag.copy(), f"imaginary part of {what}")
        return
    same = np.asarray(actual == expected)
    if not actual.dtype.names and dtypes.kind(actual.dtype) == "f":
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        same = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    if not same.all():
        first = tuple(np.argwhere(~same)[0])
        assert same.all(), (
            f"{what}: {int((~same).sum())} of {same.size} elements differ between eager and compiled, the first at "
            f"{first}: {actual[first]!r} and {expected[first]!r}"
        )


# -- every sample -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [cases for _, cases in GROUPS], ids=[name for name, _ in GROUPS])
def test_eager_equals_compiled(group: list[Case]) -> None:
    results = iter(get_executable(merged(group))([a for case in group for a in case.arrays]))
    for case in group:
        for i, actual in enumerate(case.bind(*case.operands)):
            assert_same_bits(actual, next(results), f"{case}, result {i}")


# -- the edges of dtypes ----------------------------------------------------------------------------------------------

DTYPES = ("bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn")
MORE_DTYPES = ("int16", "uint16", "int64", "uint64", "float64", "complex128", "float8_e5m2", "int4", "uint4")


@functools.cache
def edges(name: str) -> np.ndarray:
    """Return the numbers of a dtype at which something changes, and a few between them."""
    dtype, rng = dtypes.as_dtype(name), np.random.default_rng(0)
    match dtypes.kind(dtype):
        case "b":
            return np.array([True, False])
        case "i" | "u":
            low, high = int(dtypes.iinfo(dtype).min), int(dtypes.iinfo(dtype).max)
            numbers = (low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 7, -1, -2, -3, -7, 31, 32, 33, 63, 64, high // 3)
            wide = np.uint64 if high > 2**63 else np.int64
            return np.array([n for n in numbers if low <= n <= high], wide).astype(dtype)
        case "f":
            limits = dtypes.finfo(dtype)
            steps = [0, 0.5, 1, 1.5, 2.5, 3, np.inf, limits.max, limits.tiny, limits.smallest_subnormal, 1e9, 1e-5, 88]
            steps += [2.0**31, 2.0**32, 2.0**63, 127.5, 0.1]
            numbers = np.array([*map(float, steps), *rng.standard_normal(9), *(10 * rng.standard_normal(5))])
            with np.errstate(all="ignore"):
                return np.concatenate([numbers, -numbers, [np.nan]]).astype(dtype)
    parts = np.array([0.0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 1e30, 1e-30, 0.7])
    real, imaginary = np.meshgrid(parts, parts)
    result = np.empty(real.size, dtype)
    result.real, result.imag = real.reshape(-1), imaginary.reshape(-1)
    return result


def at_edges(case: Case, name: str) -> list[np.ndarray] | None:
    """Operands for a primitive in a dtype: all pairs of edges, or many; None if it does not take them."""
    numbers, rng = edges(name), np.random.default_rng(1)
    count = len(case.arrays)
    if count == 1:
        operands = [numbers]
    elif count == 2:
        operands = [a.reshape(-1) for a in np.meshgrid(numbers, numbers)]
    else:
        operands = [rng.choice(numbers, 3000) for _ in range(count)]
        if case.primitive.name == "select_n":
            operands[0] = rng.integers(0, 2, 3000).astype(bool)
    try:
        case.primitive.type(*(concrete(a).aval for a in operands), **case.params)
    except (TypeError, ValueError):
        return None
    return operands


def elementwise_cases() -> dict[str, list[Case]]:
    """Return one sample for each primitive, number of operands and parameters."""
    found: dict[str, dict[Any, Case]] = {}
    for case in CASES:
        if isinstance(case.primitive, Elementwise):
            found.setdefault(case.primitive.name, {}).setdefault((len(case.arrays), repr(case.params)), case)
    return {name: list(cases.values()) for name, cases in found.items()}


ELEMENTWISE = elementwise_cases()


def check_edges(cases: Sequence[Case], names: Sequence[str]) -> None:
    chosen = [(c, n, o) for c, n in itertools.product(cases, names) if (o := at_edges(c, n)) is not None]
    invars, outvars, equations = [], [], []
    for case, _, operands in chosen:
        variables = [Var(concrete(a).aval) for a in operands]
        result = Var(case.primitive.type(*(v.aval for v in variables), **case.params))
        equations.append(Equation(variables, [result], case.primitive, case.params, NO_EFFECTS))
        invars += variables
        outvars.append(result)
    program = Jaxpr((), invars, outvars, equations)
    compiled = get_executable(program)([concrete(a)._value for _, _, operands in chosen for a in operands])
    for (case, name, operands), expected in zip(chosen, compiled, strict=True):
        arrays = [concrete(a) for a in operands]
        (whole,) = case.bind(*arrays)
        assert_same_bits(whole, expected, f"{case} of {name}")
        # Few elements at a time: NumPy has other code for them.
        for start in (0, 1, len(operands[0]) // 2):
            few = [concrete(a[start : start + 3]) for a in operands]
            assert_same_bits(case.bind(*few)[0], expected._value[start : start + 3], f"{case} of {name}, few elements")


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_edges(name: str) -> None:
    check_edges(ELEMENTWISE[name], DTYPES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_edges_of_more_dtypes(name: str) -> None:
    with enable_x64(True):
        check_edges(ELEMENTWISE[name], MORE_DTYPES)


# -- scalars beside arrays --------------------------------------------------------------------------------------------


def beside_scalars(case: Case) -> list[list[Any]]:
    """Yield operands with one array and scalars, or one scalar and arrays, as far as the primitive accepts them."""
    arrays = [np.resize(a if a.size else np.ones((), a.dtype), 5) for a in case.arrays]
    count = len(arrays)
    chosen = {frozenset([i]) for i in range(count)} | {frozenset(range(count)) - {i} for i in range(count)}
    mixed = [[concrete(a[0] if i in scalar else a) for i, a in enumerate(arrays)] for scalar in chosen if scalar]
    found = []
    for operands in mixed:
        try:
            case.primitive.type(*(a.aval for a in operands), **case.params)
        except (TypeError, ValueError):
            continue
        found.append(operands)
    return found


# Those that are more than one kernel are compiled for their shapes, as other programs are.
SEVERAL_OPERANDS = [
    name
    for name, cases in ELEMENTWISE.items()
    if cases[0].primitive.one_kernel and any(len(c.arrays) > 1 for c in cases)  # type: ignore[attr-defined]
]


@pytest.mark.parametrize("name", SEVERAL_OPERANDS)
def test_scalars_beside_arrays(name: str) -> None:
    cases = [(case, operands) for case in ELEMENTWISE[name] for operands in beside_scalars(case)]
    assert cases
    compiled = weft.jit(lambda operands: [case.bind(*args)[0] for (case, _), args in zip(cases, operands, strict=True)])
    for (case, operands), expected in zip(cases, compiled([operands for _, operands in cases]), strict=True):
        assert_same_bits(case.bind(*operands)[0], expected, f"{case} of {[a.shape for a in operands]}")


# -- transformations --------------------------------------------------------------------------------------------------


def smooth_cases() -> list[Case]:
    """For each primitive with a derivative, the first sample that has elements."""
    found: dict[str, Case] = {}
    for case in CASES:
        if differentiable(case) and all(a.size for a in case.arrays):
            found.setdefault(case.primitive.name, case)
    return list(found.values())


@pytest.mark.parametrize("case", smooth_cases(), ids=str)
def test_transformations(case: Case) -> None:
    moving = [i for i, t in enumerate(case.types) if is_inexact(t.dtype)]

    def function(*args: Any) -> list[Any]:
        inputs = list(case.operands)
        for i, a in zip(moving, args, strict=True):
            inputs[i] = a
        return [r for r in case.bind(*inputs) if is_inexact(r.dtype)]

    def transformed(*args: Any) -> Any:
        results, tangents = weft.jvp(function, args, tuple(a * 0.5 for a in args))
        back = weft.vjp(function, *args)[1]([r * 0.25 for r in results])
        batch = weft.vmap(function)(*(wnp.stack([a, a * 1.5]) for a in args))
        return tangents, back, batch

    point = [case.operands[i] for i in moving]
    eager, compiled = transformed(*point), weft.jit(transformed)(*point)
    for actual, expected in zip(weft.tree.leaves(eager), weft.tree.leaves(compiled), strict=True):
        assert_same_bits(actual, expected, f"a derivative or the batch of {case}")


# -- functions on arrays ----------------------------------------------------------------------------------------------


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    result = rng.standard_normal(shape)
    if dtypes.kind(dtypes.as_dtype(dtype)) == "c":
        result = result + 1j * rng.standard_normal(shape)
    return wnp.asarray(result.astype(dtypes.as_dtype(dtype)))


def zeros_of_both_signs(*shape: int, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(0)
    result = np.where(rng.random(shape) < 0.5, 0.0, -0.0)
    return wnp.asarray(np.where(rng.random(shape) < 0.2, -1.5, result).astype(dtypes.as_dtype(dtype)))


Function = tuple[Callable[..., Any], tuple[Any, ...]]


def functions() -> dict[str, Function]:
    """Functions of the library that are one operation or a few, with operands."""
    found: dict[str, Function] = {}

    def add(name: str, function: Callable[..., Any], *args: Any) -> None:
        found[name] = (function, args)

    for dtype in ("float32", "bfloat16", "complex64"):
        for shape, axis in (((1000,), 0), ((17, 19), 0), ((40, 100), 1), ((30, 5, 6), 1), ((3, 70), None)):
            x = normal(*shape, dtype=dtype)
            for f in (wnp.sum, wnp.prod, wnp.cumsum, wnp.cumprod):
                add(f"{f.__name__} {dtype} {shape} {axis}", functools.partial(f, axis=axis), x)
    for dtype in ("float32", "float16", "bfloat16"):
        zeros = zeros_of_both_signs(9, 33, dtype=dtype)
        for f in (wnp.max, wnp.min, wnp.argmax, wnp.argmin, wnp.sort, wnp.argsort):
            add(f"{f.__name__} {dtype} zeros", functools.partial(f, axis=1), zeros)
            add(f"{f.__name__} {dtype} -zeros", functools.partial(f, axis=0), -zeros)
        for g in (lax.cummax, lax.cummin):
            add(f"{g.__name__} {dtype} zeros", functools.partial(g, axis=1), zeros)
        add(f"windows {dtype} zeros", lambda x: nn.max_pool(x[None, ..., None], (2, 2)), zeros)
        add(f"top_k {dtype} zeros", lambda x: lax.top_k(x, 5), zeros)
        indices = np.random.default_rng(0).integers(0, 9, 50)
        rows = normal(50, 33, dtype=dtype, seed=1)
        add(f"scatter add {dtype}", lambda x, u, i=indices: x.at[i].add(u), normal(9, 33, dtype=dtype), rows)
        add(f"scatter mul {dtype}", lambda x, u, i=indices: x.at[i].multiply(u), normal(9, 33, dtype=dtype), rows)
        add(f"scatter max {dtype}", lambda x, u, i=indices: x.at[i].max(u * 0), zeros, rows)
        add(f"scatter min {dtype}", lambda x, u, i=indices: x.at[i].min(u * 0), -zeros, rows)
    for dtype in ("float32", "bfloat16", "float16", "complex64"):
        for m, k, n in ((3, 4, 5), (33, 17, 9), (1, 1000, 1), (5, 700, 3), (40, 300, 40)):
            add(f"matmul {dtype} {m, k, n}", wnp.matmul, normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1))
    image, filters = normal(2, 8, 12, 12), normal(6, 8, 3, 3, seed=1)
    add("conv", lambda x, k: lax.conv_general_dilated(x, k, (2, 2), "SAME"), image, filters)
    add("conv_transpose", lambda x, k: lax.conv_transpose(x, k, (2,), "SAME"), normal(1, 9, 3), normal(4, 3, 2))
    for n in (3, 17):
        a, b = normal(n, n), normal(n, 2, seed=1)
        spd, batch, c = a @ a.T + n * wnp.eye(n), normal(3, n, n, seed=2), normal(n, n, dtype="complex64")
        matrices = wnp.linalg
        for h in (matrices.qr, matrices.eig, matrices.svd, matrices.inv, matrices.det, wsl.lu, wsl.schur):
            add(f"{h.__name__} {n}", h, a)
            if h is not wsl.schur:
                add(f"{h.__name__} batch {n}", h, batch)
            add(f"{h.__name__} complex {n}", h, c)
        for h in (matrices.cholesky, matrices.eigh, matrices.eigvalsh, matrices.slogdet):
            add(f"{h.__name__} {n}", h, spd)
        add(f"solve {n}", matrices.solve, a, b)
        add(f"solve_triangular {n}", functools.partial(wsl.solve_triangular, lower=True), a, b)
    for length in (33, 1000):
        add(f"fft {length}", wnp.fft.fft, normal(3, length))
        add(f"rfft {length}", wnp.fft.rfft, normal(3, length))
        add(f"irfft {length}", wnp.fft.irfft, normal(3, length, dtype="complex64"))
    x = normal(8, 9)
    for f in (nn.relu, nn.gelu, nn.silu, nn.softplus, nn.sigmoid, nn.elu, nn.log_sigmoid, nn.leaky_relu, nn.soft_sign):
        add(f"nn.{f.__name__}", f, x)
    for f in (
        wnp.arctan2,
        wnp.hypot,
        wnp.power,
        wnp.floor_divide,
        wnp.remainder,
        wnp.fmod,
        wnp.copysign,
        wnp.heaviside,
    ):
        add(f"numpy.{f.__name__}", lambda a, b, f=f: f(a, b), x, normal(8, 9, seed=1))
    key = random.key(7)
    for f in (random.normal, random.uniform, random.exponential, random.gumbel, random.laplace, random.cauchy):
        add(f"random.{f.__name__}", functools.partial(f, shape=(50,)), key)
    add("random.gamma", lambda k: random.gamma(k, 2.0, (20,)), key)
    add("random.permutation", lambda k: random.permutation(k, 40), key)
    return found


FUNCTIONS = functions()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, args = FUNCTIONS[name]
    eager, compiled = function(*args), weft.jit(lambda *a: function(*a))(*args)
    for actual, expected in zip(weft.tree.leaves(eager), weft.tree.leaves(compiled), strict=True):
        assert_same_bits(actual, expected, name)
