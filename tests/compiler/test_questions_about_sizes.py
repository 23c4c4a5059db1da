"""What a function asks of its own sizes: `n == 64` and its relatives have the answer of the call, in declared families
and in automatic ones. A size that does not satisfy what was asked has another family, or a program of its own."""

from __future__ import annotations

import collections
import functools
import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from tests.compiler.test_families import bits, normal
from weft import export
from weft.base.errors import InvalidInputTypeError
from weft.base.settings import symbolic_sizes
from weft.indexing.inconclusive import ConstantSizeError, InconclusiveDimensionError

SIZES = (64, 3, 8, 9, 65, 2, 64, 7, 1)
inner = weft.jit(lambda x: x * 2 if x.shape[0] == 64 else x)
TABLE = collections.ChainMap({64: 5.0})


@functools.lru_cache
def cached(shape: tuple[int, ...]) -> float:
    return 2.0 if shape[0] == 64 else 1.0


def matched(x: Any) -> Any:
    match x.shape[0]:
        case 64:
            return x * 5
        case 3:
            return x * 7
    return x


# Functions of an array of shape (n, 3), and how often they are staged for all sizes from 2 on: families, and programs
# of sizes that have none.
QUESTIONS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "equal": (lambda x: x * 2 if x.shape[0] == 64 else x, 2),
    "not equal": (lambda x: x * 2 if x.shape[0] != 64 else x, 2),
    "reflected": (lambda x: x * 2 if onp.int64(64) == x.shape[0] else x, 2),
    "shapes": (lambda x: x * 2 if x.shape == (64, 3) else x, 2),
    "all elements": (lambda x: x * 2 if x.size == 192 else x, 2),
    "one of several": (lambda x: x * 2 if x.shape[0] in (1, 64) else x, 2),
    "count": (lambda x: x * [64, 3, x.shape[0]].count(64), 2),
    "less": (lambda x: x * 2 if x.shape[0] < 8 else x, 2),
    "multiple": (lambda x: x * 2 if x.shape[0] % 8 == 0 else x, 2),
    "half": (lambda x: x * 2 if x.shape[0] // 2 == 32 else x, 2),
    "truth": (lambda x: x * 2 if x.shape[0] - 64 else x, 2),
    "absolute": (lambda x: x * abs(x.shape[0] - 9), 2),
    "least": (lambda x: x[: min(x.shape[0], 8)], 2),
    "greatest": (lambda x: x * max(x.shape[0], 8), 2),
    "sorted": (lambda x: x * sorted([x.shape[0], 8, 64])[1], 3),
    "match": (matched, 3),
    "element": (lambda x: x[5] if x.shape[0] > 5 else x[0], 2),
    "called": (lambda x: inner(x) + 1, 2),
    # Beyond four families each size has its program.
    "thresholds": (lambda x: x * [2, 3, 7, 8, 64].index(min([2, 3, 7, 8, 64], key=lambda k: abs(x.shape[0] - k))), 7),
    # Tables may do anything with what is looked up.
    "set": (lambda x: x * 2 if x.shape[0] in {1, 64} else x, 7),
    "dict": (lambda x: x * {64: 3.0}.get(x.shape[0], 1.0), 7),
    "table in Python": (lambda x: x * TABLE.get(x.shape[0], 1.0), 7),
    "cached": (lambda x: x * cached(x.shape), 7),
}


def staged(jitted: Any) -> int:
    """How often a function was staged for sizes from 2 on, and not in vain."""
    return int(jitted.cache_report().total) - 1


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_of_declared_functions(name: str) -> None:
    function, count = QUESTIONS[name]
    declared = weft.jit(lambda x: function(x), dynamic={"x": "n, _"})
    for size in SIZES:
        x = normal(size, 3)
        assert bits(declared(x)) == bits(weft.jit(function)(x)), size
    assert staged(declared) <= count


def test_another_function_has_asked_before() -> None:
    """What is remembered of a function that both call must not hide its question from the second."""
    first, second = (weft.jit(lambda x, c=c: inner(x) + c, dynamic={"x": "n, _"}) for c in (1, 2))
    for size in (5, 64, 6):
        x = normal(size, 3)
        doubled = x * 2 if size == 64 else x
        assert bits(first(x)) == bits(doubled + 1)
        assert bits(second(x)) == bits(doubled + 2), size


def test_transformations_ask_too() -> None:
    def loss(x: Any) -> Any:
        return ((x * 3 if x.shape[0] == 64 else x) ** 2).sum()

    gradient, mapped = (weft.jit(f, dynamic={0: "n, _"}) for f in (weft.grad(loss), weft.vmap(loss, in_axes=1)))
    outside = weft.grad(weft.jit(loss, dynamic={0: "n, _"}))
    for size in (5, 64, 65):
        x = normal(size, 3)
        assert bits(gradient(x)) == bits(outside(x)) == bits(weft.grad(loss)(x)), size
        assert np.allclose(mapped(x), weft.vmap(loss, in_axes=1)(x)), size


def test_numbers_are_errors_of_declared_functions() -> None:
    for function in (lambda x: x * int(x.shape[0]), lambda x: sum(x[i] for i in range(len(x))), lambda x: "ab"[len(x)]):
        with pytest.raises(ConstantSizeError, match="needs a size that is a number"):
            weft.jit(function, dynamic={0: "n, _"})(np.ones((5, 3)))
    # Computing with a size is no question.
    assert weft.jit(lambda x: x.sum() * 0.5 / x.shape[0], dynamic={0: "n, _"})(np.ones((4, 3))) == 1.5


@pytest.mark.parametrize("printed", [str, repr, "{}".format, lambda n: f"{n:3}", lambda n: f"{(n, 2)}"])
def test_printed_sizes_of_automatic_functions_are_numbers(printed: Callable[[Any], str]) -> None:
    automatic = weft.jit(lambda x: x * len(printed(x.shape[0])))
    for size in (7, 8, 11, 100, 1000):
        assert automatic(np.ones(size))[0] == len(printed(size))


def test_log_compiles_says_what_was_asked(caplog: pytest.LogCaptureFixture) -> None:
    with weft.log_compiles(True), caplog.at_level(logging.WARNING, "weft"):
        weft.jit(QUESTIONS["equal"][0], dynamic={0: "n, _"})(np.ones((5, 3)))
        weft.jit(QUESTIONS["set"][0], dynamic={0: "n, _"})(np.ones((5, 3)))
    assert "compiled once for all sizes n with n - 64 != 0" in caplog.text
    assert "compiled for each of its sizes n: the size n is needed as a number at test_questions" in caplog.text


def test_exports_assume_and_calls_check() -> None:
    """An export has one program: where it is not known whether sizes are equal they are not, and other calls raise."""
    spec = weft.ShapeDtypeStruct(export.symbolic_shape("n, 3"), np.float32)
    for question in ("equal", "not equal", "reflected", "shapes", "all elements", "one of several", "called", "match"):
        function = QUESTIONS[question][0]
        exported = export.export(weft.jit(lambda x: function(x)))(spec)  # noqa: B023
        for again in (exported, export.deserialize(exported.serialize(vjp_order=1))):
            for size in (5, 7):
                x = normal(size, 3)
                assert np.allclose(again.call(x), function(x)) and np.allclose(weft.jit(again.call)(x), function(x))
                gradient = weft.grad(lambda x: again.call(x).sum())(x)  # noqa: B023
                assert np.allclose(gradient, weft.grad(lambda x: function(x).sum())(x))  # noqa: B023
            for call in (again.call, weft.jit(again.call), weft.grad(lambda x: again.call(x).sum())):  # noqa: B023
                with pytest.raises(InvalidInputTypeError, match="it asks whether they are equal at test_questions"):
                    call(normal(64, 3))
    # What Weft itself asks is about all sizes, and what is decided by bounds is no assumption.
    wide = weft.ShapeDtypeStruct(export.symbolic_shape("n, 3", constraints=["n >= 65"]), np.float32)
    assert not export.export(weft.jit(QUESTIONS["equal"][0]))(wide).assumptions
    assert not export.export(weft.jit(lambda x: (x @ x.T).mean() + x[:1]))(spec).assumptions


def test_questions_that_exports_cannot_answer_raise() -> None:
    spec = weft.ShapeDtypeStruct(export.symbolic_shape("n, 3"), np.float32)
    for question in ("less", "least", "truth", "thresholds"):
        with pytest.raises(InconclusiveDimensionError, match="depends on the value of n"):
            export.export(weft.jit(QUESTIONS[question][0]))(spec)


def random_function(generator: random.Random) -> Callable[[Any], Any]:
    """A function whose branches depend on its size."""

    def any_size() -> int:
        return generator.choice((2, 3, 4, 7, 8, 9, 16, 64, generator.randrange(2, 70)))

    def integer() -> str:
        k = any_size()
        return generator.choice(
            ("n", "n", f"n // {k}", f"n % {k}", f"n - {k}", f"n * {k}", f"-n % {k}", f"abs(n - {k})", f"min(n, {k})")
            + (f"max(n, {k})", f"n * n - {k}", f"divmod(n, {k})[1]", "x.size", "2 * n + m", "n - m", "x.shape[::-1][1]")
        )

    def condition(level: int = 0) -> str:
        i, k = integer(), any_size()
        options = [f"({i}) {generator.choice(('==', '!=', '<', '<=', '>', '>='))} {k}", f"({i}) == ({integer()})"]
        options += [f"({i}) in (1, {k}, {any_size()})", f"bool({i})", f"{any_size() // 3} < ({i}) < {k}"]
        options += [f"({i}, m) == ({k}, {any_size()})", f"({i}) in {{{k}, {any_size()}}}"]
        if level < 2:
            options += [f"({condition(level + 1)}) {generator.choice(('and', 'or'))} ({condition(level + 1)})"]
            options += [f"not ({condition(level + 1)})"]
        return generator.choice(options)

    def branch() -> str:
        k = any_size()
        return generator.choice(
            (f"x * {k}", f"x[:min(n, {k})]", f"x + ({integer()})", "x.sum(0)", f"x[:: min({k}, 4)]")
        )

    body = f"{branch()} if {condition()} else {branch()} if {condition()} else {branch()}"
    text = f"lambda x: (lambda n, m: {body})(*x.shape)"
    function: Callable[[Any], Any] = eval(text)
    function.__doc__ = text
    return function


def check_random(seed: int) -> None:
    function = random_function(random.Random(seed))
    with symbolic_sizes("declared"):
        declared = weft.jit(lambda x: function(x), dynamic={0: "n, m"})
        concrete = weft.jit(lambda x: function(x))
    automatic = weft.jit(lambda x: function(x))
    generator = random.Random(seed)
    for _ in range(9):
        shape = (generator.choice((2, 3, 7, 8, 9, 16, 63, 64)), generator.choice((2, 3, 8, 64)))
        x = np.asarray(onp.arange(shape[0] * shape[1], dtype=onp.int32).reshape(shape))
        with symbolic_sizes("declared"):
            expected = bits(concrete(x)), concrete(x).shape
            assert (bits(declared(x)), declared(x).shape) == expected, (seed, shape, function.__doc__)
        assert (bits(automatic(x)), automatic(x).shape) == expected, (seed, shape, function.__doc__)


@pytest.mark.parametrize("seed", range(4))
def test_random_questions(seed: int) -> None:
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 400, 50))
def test_many_random_questions(first: int) -> None:
    for seed in range(first, first + 50):
        check_random(seed)
