"""Sizes that become symbols by themselves from the second distinct size on: same bits, never an error of their own."""

from __future__ import annotations

import logging
import numbers
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from tests.compiler.test_families import PROGRAMS, bits, softmax
from weft import lax
from weft.base.settings import symbolic_sizes
from weft.indexing.expression import Symbol
from weft.indexing.guards import NOT_NEGATIVE, ZERO, Guard
from weft.ir.at_sizes import JaxprAtSizes, equal_sizes


def families(jitted: Any) -> int:
    """How many families a function has."""
    return sum(len(found) for found in jitted._cache.automatic._families.values())


def is_instance(jitted: Any, *args: Any) -> bool:
    return isinstance(jitted._find(args, {})[0].jaxpr, JaxprAtSizes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_automatic_families_have_the_bits_of_concrete_programs(name: str) -> None:
    function, _, argument = PROGRAMS[name]
    automatic, concrete = weft.jit(lambda x: function(x)), weft.jit(lambda x: function(x))
    for size in (5, 7, 33):
        with symbolic_sizes("declared"):
            expected = bits(concrete(argument(size)))
        assert bits(automatic(argument(size))) == expected, size
    assert not is_instance(concrete, argument(33))


# What is left of an argument may be one element, or as long as another argument.
CUT: dict[str, Any] = {
    "sum": lambda x, y: (x[1:] + x[:-1]).sum(),
    "softmax": lambda x, y: softmax(x[1:]),
    "columns": lambda x, y: (x[1:, None] * np.ones(3)).sum(0),
    "rows": lambda x, y: (x[:, None] * x[None, 1:]).sum(1),
    "middle": lambda x, y: x[1:-1].max(initial=0.5),
    "argmax": lambda x, y: (x[1:, None] * np.arange(3.0)).argmax(0),
    "loop": lambda x, y: lax.fori_loop(0, 3, lambda i, c: c + (x[1:] * c).sum(), 1.0),
    "gradient": lambda x, y: weft.grad(lambda z: (z[1:] ** 2).mean())(x),
    "neighbours": lambda x, y: (x[1:, None] * np.ones(3) * y[:, None]).sum(0),
    "second neighbours": lambda x, y: (x[2:, None] * np.ones(3) * y[1:, None]).sum(0),
    "neighbours of neighbours": lambda x, y: (np.outer(x[1:], y)[None] * np.outer(y, y)[:, :, None].T).sum(),
}


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("name", CUT)
def test_what_is_left_of_an_argument(name: str, declared: bool) -> None:
    function = weft.jit(lambda x, y: CUT[name](x, y), **({"dynamic": {"x": "n", "y": "n - 1"}} if declared else {}))
    for size in (5, 6, 2, 3):
        x, y = np.arange(0.5, size), np.arange(1.0, size)
        onp.testing.assert_allclose(function(x, y), CUT[name](x, y), rtol=1e-6)


@pytest.mark.parametrize("name", ["neighbours", "second neighbours", "neighbours of neighbours"])
def test_sizes_that_a_trace_found_equal_are_equal_for_the_compiler(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function = weft.jit(lambda x, y: CUT[name](x, y))
    with weft.log_compiles(True), caplog.at_level(logging.WARNING):
        for size in (5, 6, 9, 33):
            function(np.arange(0.5, size), np.arange(1.0, size))
    assert families(function) == 1
    assert not [r.message for r in caplog.records if "is compiled for each" in r.message]


def test_equal_sizes() -> None:
    a, b, c = (Symbol(name, 2) for name in "abc")
    difference = Guard(a - b - 1, ZERO)
    assert equal_sizes([difference, Guard(b - a + 1, ZERO)]) == {a: b + 1}  # b has values that a - 1 has not
    assert equal_sizes([difference, Guard(a * b - c, ZERO)]) == {a: b + 1, c: b * (b + 1)}
    assert equal_sizes([Guard(b - c, ZERO), difference]) in ({b: c, a: c + 1}, {c: b, a: b + 1})
    for unsolved in (a % 2, 2 * a - 3 * b, a + b - 10, 2 * a - 5, a - 1):
        assert not equal_sizes([Guard(unsolved, ZERO)])
    assert equal_sizes([Guard(2 * a - 10, ZERO), Guard(a - b, ZERO)]) == {a: 5, b: 5}
    assert not equal_sizes([Guard(a - b, NOT_NEGATIVE)])


def test_from_the_second_size_on() -> None:
    traces = []

    @weft.jit
    def f(x: Any, y: Any) -> Any:
        traces.append(x.shape)
        return softmax(x) @ y

    for size in (5, 6, 7, 8, 9):
        x = np.ones((3, size))
        assert np.allclose(f(x, np.ones((size, 2))), 1)
        assert is_instance(f, x, np.ones((size, 2))) == (size > 5)
    # One trace for the first size, one for all others; sizes that were equal are one symbol.
    assert len(traces) == 2 and families(f) == 1 and f.cache_size() == 5
    # Another axis differs: a family of both.
    assert f(np.ones((4, 7)), np.ones((7, 2))).shape == (4, 2)
    assert f(np.ones((6, 3)), np.ones((3, 2))).shape == (6, 2)
    assert len(traces) == 3 and families(f) == 2
    # Sizes 0 and 1 have programs of their own, and so has another dtype.
    assert f(np.ones((4, 1)), np.ones((1, 2))).shape == (4, 2)
    assert f(np.ones((4, 7), "int32"), np.ones((7, 2))).dtype == np.float32
    assert len(traces) == 5 and families(f) == 2


def test_guards_have_families_of_their_own() -> None:
    @weft.jit
    def f(x: Any) -> Any:
        if x.shape[0] == 64:
            return x * 3
        return x * 2 if x.shape[0] > 8 else x + 1

    for size in (4, 5, 6, 9, 64, 10, 64, 7, 100):
        assert f(np.full(size, 5.0))[0] == (15 if size == 64 else 10 if size > 8 else 6), size
    assert 2 <= families(f) <= 4


def test_sizes_that_are_needed_as_numbers(caplog: pytest.LogCaptureFixture) -> None:
    @weft.jit
    def loops(x: Any) -> Any:
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total + x[i]
        return total

    with weft.log_compiles(True), caplog.at_level(logging.WARNING):
        for size in (3, 4, 5, 6):
            assert loops(np.ones(size)) == size
    said = [r.message for r in caplog.records if "is compiled for each of its sizes" in r.message]
    assert len(said) == 1 and "x.shape[0] (3, 4)" in said[0] and "for i in range" in said[0]
    assert families(loops) == 0
    # What Python computes of a size in double precision has the bits that it had.
    scaled = weft.jit(lambda x: (x * (1.0 / x.shape[0])).sum())
    for size in (3, 7, 11):
        x = onp.linspace(0, 1, size, dtype="float32")
        assert bits(scaled(x)) == bits((np.asarray(x) * (1.0 / size)).sum())


@pytest.mark.parametrize(
    "scale",
    [
        lambda n: {4: 3.0, 8: 5.0}.get(n, 1.0),
        lambda n: {8: 3.0, 16: 5.0}.get(2 * n, 1.0),
        lambda n: {(4,): 3.0}.get((n,), 1.0),
        lambda n: {"4": 3.0}.get(f"{n}", 1.0),
        lambda n: float(len(str(n) + repr(n))),
        lambda n: 3.0 if n in {4, 8} else 1.0,
    ],
)
def test_tables_of_sizes(scale: Any) -> None:
    """No question is asked of a size that is looked up in a table of others, or printed."""
    f = weft.jit(lambda x: x * scale(x.shape[0]))
    for size in (3, 5, 4, 8, 16, 6):
        assert f(np.ones(size))[0] == scale(size), size


def test_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    f = weft.jit(lambda x: x + 1 if x.shape[0] < 50 else x)
    with weft.log_compiles(True), caplog.at_level(logging.WARNING):
        for size in (3, 4, 5):
            f(np.ones(size))
    (said,) = [r.message for r in caplog.records if "compiled once" in r.message]
    assert said.endswith("for all sizes x.shape[0] (3, 4) from 2 on, if 49 - x.shape[0] >= 0")


def test_it_can_be_switched_off() -> None:
    f = weft.jit(lambda x: x + 1)
    with symbolic_sizes("declared"):
        for size in (3, 4, 5):
            assert f(np.ones(size)).shape == (size,)
            assert not is_instance(f, np.ones(size))
    assert families(f) == 0


def test_errors_are_those_of_the_function() -> None:
    @weft.jit
    def f(x: Any) -> Any:
        assert isinstance(x.shape[0], int), "a number"
        if x.shape[0] == 5:
            raise ValueError("five")
        return x * 2

    for size in (3, 4, 6):
        assert f(np.ones(size)).shape == (size,)
    with pytest.raises(ValueError, match="five"):
        f(np.ones(5))


def test_trees_donation_keys_and_static_arguments() -> None:
    def step(state: Any, x: Any, key: Any, scale: float) -> Any:
        noise = weft.random.normal(key, x.shape)
        return {"w": state["w"] + ((x + noise) * scale).mean(0), "n": state["n"] + x.shape[0]}

    jitted = weft.jit(step, static_argnums=3, donate_argnums=0)
    for size in (4, 6, 7, 8):
        states = [{"w": np.zeros(3), "n": np.zeros((), "int32")} for _ in range(2)]
        args = (np.arange(3.0 * size).reshape(size, 3), weft.random.key(size), 2.0)
        got = jitted(states[0], *args)
        with symbolic_sizes("declared"):
            expected = weft.jit(step, static_argnums=3)(states[1], *args)
        assert bits(got) == bits(expected)
    assert families(jitted) == 1


def test_jitted_functions_inside_ask_too() -> None:
    """What an inner function has remembered for sizes must not hide what it asks."""
    inner = weft.jit(lambda x: x * 2 if x.shape[0] > 6 else x + 1)
    outers = [weft.jit(lambda x: inner(x) + 0), weft.jit(lambda x: inner(x) + 1)]
    for size in (4, 5, 9, 6, 7):
        for extra, outer in enumerate(outers):
            assert outer(np.full(size, 5.0))[0] == (10 if size > 6 else 6) + extra, size


def test_explanations_of_misses_add_no_guards() -> None:
    inner = weft.jit(lambda x: np.tanh(x) * 2.0)
    for size in (5, 6):
        with symbolic_sizes("declared"):
            inner(np.arange(0.5, size))  # a signature that the next trace of `inner` is compared with
    outer = weft.jit(lambda x: inner(x).sum())
    for size in (7, 6, 5, 9):
        outer(np.arange(0.5, size))
    assert families(outer) == 1


def test_constant_indices_out_of_bounds_raise() -> None:
    """As they do in a trace for the size, whatever sizes came before."""
    functions = (
        lambda x: x[5] * 2,
        lambda x: x[-6] * 2,
        lambda x: x[onp.array([0, 5])],
        lambda x: x[onp.array([-6, 1])],
    )
    for function in functions:
        f = weft.jit(lambda x, function=function: function(x))
        for size in (8, 9, 6, 10):
            assert bits(f(np.arange(1.0 * size))) == bits(function(np.arange(1.0 * size)))
        with pytest.raises(IndexError):
            f(np.arange(4.0))
        assert f(np.arange(7.0)).shape == f(np.arange(8.0)).shape


@pytest.mark.parametrize("dynamic", [None, {0: "t"}])
def test_indices_are_checked_where_that_is_asked_for(dynamic: Any) -> None:
    with weft.checks("all"):
        f = weft.jit(lambda x, i: x[i] * 2, dynamic=dynamic)
        for size in (5, 6, 7):
            assert f(np.ones(size), np.array([1, 2])).shape == (2,)
            with pytest.raises(IndexError):
                f(np.ones(size), np.array([1, 20]))


@pytest.mark.parametrize("dynamic", [None, {0: "t"}])
def test_nans_are_found_in_families(dynamic: Any) -> None:
    f = weft.jit(lambda x: np.log(x) + 1, dynamic=dynamic)
    for size in (3, 4, 5):
        assert f(np.ones(size))[0] == 1
    with weft.debug_nans(True):
        assert f(np.ones(5))[0] == 1
        for size in (5, 6):
            with pytest.raises(FloatingPointError):
                f(-np.ones(size))


OF_SIZES: dict[str, Any] = {
    "an equal float": lambda x: x * 2 if x.shape[0] == 7.0 else x,
    "an equal complex number": lambda x: x * 2 if x.shape[0] == 7 + 0j else x,
    "no integer": lambda x: x * 2 if x.shape[0] in (7.5, float("nan"), float("inf")) else x,
    "a large product": lambda x: x + x.shape[0] * 300_000_000,
    "products": lambda x: x * x.shape[0],
    "filled": lambda x: np.full_like(x, x.shape[0]),
    "bits": lambda x: x * ((x.shape[0] >> 1) + (x.shape[0] << 2) + (x.shape[0] & 7) + ~x.shape[0]),
    "other bits": lambda x: x * ((x.shape[0] & 5) + (7 & x.shape[0]) + (x.shape[0] | 1)),
    "a dtype": lambda x: np.asarray(x.shape[0], np.int8),
    "a NumPy integer": lambda x: x * onp.prod(x.shape),
    "a printed type": lambda x: x * len(str(x.aval) + repr(x.aval) + x.aval.str_short()),
    "a printed array": lambda x: x * (f"{x}".count("7") + repr(x).count("7")),
}


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int32", "bool", "bfloat16"])
@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes_are_the_integers_that_they_were(name: str, dtype: str) -> None:
    """In comparisons, in dtypes that cannot represent them and in print: same bits, dtypes and errors."""
    automatic, concrete = (weft.jit(lambda x: OF_SIZES[name](x)) for _ in range(2))

    def attempt(function: Any, x: Any) -> Any:
        try:
            out = function(x)
        except OverflowError as error:
            return str(error).partition("\n")[0]
        return out.dtype, out.weak_type, bits(out)

    for size in (5, 7, 6, 200, 7, 300):
        x = np.ones(size, dtype)
        with symbolic_sizes("declared"):
            expected = attempt(concrete, x)
        assert attempt(automatic, x) == expected, size


@pytest.mark.parametrize(
    "function", [lambda x: np.argsort(x, 1), lambda x: np.sort(x, 0), lambda x: lax.sort((x.astype("int32"), x))]
)
def test_long_rows_are_sorted_otherwise(function: Any) -> None:
    automatic, concrete = (weft.jit(lambda x: function(x)) for _ in range(2))
    for size in (2, 3, 130, 257):
        x = np.asarray(onp.random.default_rng(size).standard_normal((size, size)).astype("float32"))
        with symbolic_sizes("declared"):
            expected = bits(concrete(x))
        assert bits(automatic(x)) == expected, size


def test_types_that_hold_for_some_sizes_can_be_verified() -> None:
    function = weft.jit(lambda x: x[: x.shape[0] // 2].squeeze(0) if x.shape[0] // 2 == 1 else x.sum())
    with weft.enable_checks(True):
        for size in (4, 3, 2, 5):
            assert function(np.ones(size)) == (1 if size < 4 else size)


# What programs that are written for any length do: one family each, with the bits of concrete programs.
WRITTEN_FOR_ANY_LENGTH: dict[str, Any] = {
    "padding to a multiple": lambda x: np.pad(x, ((0, -x.shape[0] % 8), (0, 0))).sum(0),
    "blocks": lambda x: np.pad(x, ((0, -x.shape[0] % 8), (0, 0))).reshape(-1, 8, 4).max(1),
    "blocks, counted": lambda x: np.pad(x, ((0, (x.shape[0] + 7) // 8 * 8 - x.shape[0]), (0, 0))).reshape(-1, 32),
    "blocks, counted otherwise": lambda x: np.pad(x, ((0, -x.shape[0] % 8), (0, 0))).reshape((x.shape[0] + 7) // 8, 32),
    "reflection": lambda x: np.pad(x, ((2, 3), (0, 0)), mode="reflect"),
    "symmetric": lambda x: np.pad(x, ((2, 3), (0, 0)), mode="symmetric"),
    "wrapped": lambda x: np.pad(x, ((2, 3), (0, 0)), mode="wrap"),
    "means around": lambda x: np.pad(x, ((2, 3), (0, 0)), mode="mean"),
    "room for more": lambda x: np.pad(x, ((0, 512 - x.shape[0]), (0, 0))),
    "the last is set": lambda x: x.at[-1].set(0.0),
    "the middle is set": lambda x: x.at[x.shape[0] // 2].add(1.0),
    "a slice in the middle": lambda x: lax.dynamic_slice_in_dim(x, x.shape[0] // 2, 2, 0),
    "an update at the end": lambda x: lax.dynamic_update_slice_in_dim(x, x[:2], x.shape[0] - 2, 0),
    "linspace": lambda x: x * np.linspace(0.0, 1.0, x.shape[0])[:, None],
    "linspace to a size": lambda x: np.linspace(0, x.shape[0] - 1, 10),
    "interp": lambda x: np.interp(np.linspace(0, x.shape[0] - 1, 10), np.arange(x.shape[0]), x[:, 0]),
    "arange in steps": lambda x: x[np.arange(0, x.shape[0], 2)],
    "relative positions": lambda x: np.arange(1 - x.shape[0], x.shape[0]),
    "arange downwards": lambda x: x[np.arange(x.shape[0] - 1, -1, -1)],
    "clip": lambda x: np.clip(np.arange(60), 0, x.shape[0] - 1),
    "clamp": lambda x: lax.clamp(0, np.arange(60), x.shape[0] - 1),
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda n: n * 2, lambda n: n, x.shape[0]),
    "while": lambda x: lax.while_loop(lambda n: n > 3, lambda n: n // 2, x.shape[0] - 1),
    "scan": lambda x: lax.scan(lambda n, row: (n + 1, n * row), x.shape[0], x),
    "jit": lambda x: weft.jit(lambda x, n: x * n)(x, x.shape[0] // 2),
    "checkpoint": lambda x: weft.checkpoint(lambda x, n: x * n)(x, x.shape[0] - 1),
    "a size is returned": lambda x: (x.shape[0], x.shape[0] // 2, x.sum()),
    "segments": lambda x: weft.ops.segment_sum(x, np.arange(x.shape[0]) // 2, x.shape[0]),
    "bins": lambda x: np.bincount(np.arange(9), length=x.shape[0]),
    "nonzero": lambda x: np.nonzero(x[:, 0] > 0, size=x.shape[0], fill_value=-1),
    "unique": lambda x: np.unique(np.round(x[:, 0]), size=x.shape[0], fill_value=9.0),
    "repeat": lambda x: np.repeat(np.arange(3), np.array([5, 6, 4]), total_repeat_length=x.shape[0]),
    "randint": lambda x: weft.random.randint(weft.random.key(0), (4,), 0, x.shape[0]),
    "choice": lambda x: weft.random.choice(weft.random.key(0), x.shape[0], (3,)),
    "median": lambda x: np.median(x, 0),
    "quantile": lambda x: np.quantile(x, 0.3, axis=0),
    "window": lambda x: x * np.hanning(x.shape[0])[:, None],
    "three factors": lambda x: np.einsum("nd,md,mk->nk", x, x, x),
}


@pytest.mark.parametrize("name", WRITTEN_FOR_ANY_LENGTH)
def test_programs_that_are_written_for_any_length_are_compiled_once(name: str) -> None:
    function = WRITTEN_FOR_ANY_LENGTH[name]
    jitted = weft.jit(lambda x: function(x))
    for size in (33, 37, 42, 63):  # none a multiple of 8, and all of as many bits
        x = np.asarray(onp.random.default_rng(size).normal(size=(size, 4)).astype("float32"))
        with symbolic_sizes("declared"):
            expected = bits(weft.jit(lambda x: function(x))(x))
        assert bits(jitted(x)) == expected, size
    assert families(jitted) == 1
    assert is_instance(jitted, x)


class Tagged:
    """An array, and static data beside it."""

    def __init__(self, value: Any, tag: Any) -> None:
        self.value, self.tag = value, tag


weft.tree_util.register_pytree_node(Tagged, lambda t: ((t.value,), t.tag), lambda tag, leaves: Tagged(leaves[0], tag))

TAGS: dict[str, Any] = {
    "shape": lambda x: x.shape,
    "a size in a table": lambda x: {"length": x.shape[0]},
    "a type": lambda x: [weft.ShapeDtypeStruct(x.shape, x.dtype)],
    "a structure": lambda x: weft.tree.structure(Tagged(x, x.shape)),
    "a function": lambda x: (lambda n: lambda: (n,))(x.shape[0]),
    "a jaxpr": lambda x: weft.make_jaxpr(np.sin)(x),
}


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("name", TAGS)
def test_static_data_of_results_is_of_the_call(name: str, declared: bool) -> None:
    function = weft.jit(lambda x: Tagged(x * 2, TAGS[name](x)), **({"dynamic": {"x": "n"}} if declared else {}))
    for size in (3, 5, 7):
        tag = function(np.ones(size)).tag
        assert str(size) in str(tag() if name == "a function" else tag)
        assert "size_" not in str(tag)


@weft.custom_jvp
def with_a_rule(x: Any) -> Any:
    return np.sin(x)


@with_a_rule.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return with_a_rule(x), t * np.cos(x) * x.shape[0]


@weft.custom_vjp
def with_a_backward_rule(x: Any) -> Any:
    return np.sin(x)


with_a_backward_rule.defvjp(
    lambda x: (with_a_backward_rule(x), x), lambda x, cotangent: (cotangent * np.cos(x) * x.shape[0],)
)


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("function", [with_a_rule, with_a_backward_rule])
def test_rules_of_a_program_for_all_sizes(function: Any, declared: bool) -> None:
    jitted = weft.jit(lambda x: function(x) * 2, **({"dynamic": {"x": "n"}} if declared else {}))
    for size in (3, 4, 5):
        x = np.arange(1.0, size + 1)
        jitted(x)
        expected = onp.cos(onp.arange(1.0, size + 1)) * 2 * size
        for differentiated in (weft.grad(lambda x: jitted(x).sum()), weft.jit(weft.grad(lambda x: jitted(x).sum()))):
            onp.testing.assert_allclose(differentiated(x), expected, rtol=1e-5)
        onp.testing.assert_allclose(weft.vmap(differentiated)(x[None])[0], expected, rtol=1e-5)


def matched_class(n: Any) -> bool:
    match n:
        case int():
            return True
    return False


CLASSES: dict[str, Any] = {
    "isinstance": lambda n: isinstance(n, int),
    "an abstract class": lambda n: isinstance(n, numbers.Integral),
    "match": matched_class,
    "class": lambda n: n.__class__ is int,
    "type": lambda n: type(n) is int,
    "map": lambda n: next(map(type, (n,))) is int,
    "a method": lambda n: hasattr(n, "to_bytes"),
    "type, from a size on": lambda n: n > 5 and type(n) is int,
    "a sum": lambda n: isinstance(n + 1, int),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_size_is_an_integer_whichever_came_before(name: str) -> None:
    asks = CLASSES[name]
    jitted = weft.jit(lambda x: x * (2.0 if asks(x.shape[0]) else 3.0))
    for size in (5, 6, 7, 2, 9):
        assert jitted(np.ones(size))[0] == (2.0 if asks(size) else 3.0), size


def test_closed_over_arrays_may_change_between_sizes() -> None:
    held = [np.arange(3.0)]
    jitted = weft.jit(lambda x: x.sum() * held[0])
    for size in (5, 6, 7):
        jitted(np.ones(size))
        held[0] = held[0] + 1
    assert families(jitted) == 1
