"""Symbolic integers, ranges, dimensions and index maps agree with NumPy on every value tried."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft.base.errors import InconclusiveDimensionOperation
from weft.indexing.dimension import (
    InconclusiveDimensionError,
    as_dimension,
    as_shape,
    ceil_divide,
    definitely_different,
    definitely_less,
    definitely_less_equal,
    divide_exactly,
    is_constant,
    is_symbolic,
    is_symbolic_shape,
    parse_dimension,
    parse_shape,
    product,
    same,
    same_shape,
    shape_symbols,
    shape_text,
    substitute_shape,
    symbol,
    symbols,
)
from weft.indexing.expression import Expression, Integer, Symbol, maximum, minimum, substitute, value_range
from weft.indexing.index_map import (
    Constraint,
    IndexMap,
    broadcast_map,
    compose,
    concatenate_map,
    grid,
    pad_map,
    read,
    reshape_map,
    reverse_map,
    slice_map,
    source,
    transpose_map,
)
from weft.indexing.ranges import INFINITY, Range

pytestmark = pytest.mark.tiny

i, j, k = Symbol("i", 0, 9), Symbol("j", 0, 7), Symbol("k", 0, 3)
x, y = Symbol("x"), Symbol("y")
b, t, s = symbols("b, t, s")


# --- ranges ---------------------------------------------------------------------------------------------------------


def test_ranges_contain_every_value() -> None:
    ends = (-5, -2, -1, 0, 1, 3, 4)
    ranges = [(low, high) for low in ends for high in ends if low <= high]
    for (a, c), (d, e) in itertools.product(ranges, ranges):
        left, right = np.meshgrid(np.arange(a, c + 1), np.arange(d, e + 1))
        results = [
            (Range(a, c) + Range(d, e), left + right, True),
            (Range(a, c) - Range(d, e), left - right, True),
            (Range(a, c) * Range(d, e), left * right, True),
            (Range(a, c).minimum(Range(d, e)), np.minimum(left, right), True),
            (Range(a, c).maximum(Range(d, e)), np.maximum(left, right), True),
        ]
        if not d <= 0 <= e:
            results += [
                (Range(a, c) // Range(d, e), left // right, True),
                (Range(a, c) % Range(d, e), left % right, False),
            ]
        for got, values, tight in results:
            assert got.lower <= values.min() and values.max() <= got.upper, (a, c, d, e, got)
            assert not tight or (got.lower, got.upper) == (values.min(), values.max()), (a, c, d, e, got)


def test_unbounded_ranges() -> None:
    positive = Range(1, INFINITY)
    assert positive + 3 == Range(4, INFINITY)
    assert positive * -2 == Range(-INFINITY, -2)
    assert positive * 0 == Range(0, 0)
    assert Range(-5, 7) // positive == Range(-5, 7)
    assert Range(2, INFINITY) // 2 == Range(1, INFINITY)
    assert Range() % 8 == Range(0, 7)
    assert Range(0, 20) % positive == Range(0, 20)
    assert Range(17, 20) % 8 == Range(1, 4)
    assert Range(-2, 3) ** 2 == Range(0, 9)
    assert Range(0, 3).intersect(Range(4, 5)) is None and Range(0, 4).intersect(Range(4, 9)) == Range(4, 4)
    assert str(Range(0, INFINITY)) == "[0, inf]" and 5 not in Range(0, 4) and Range(1, 2).within(Range(0, 2))


# --- expressions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (8 * i + j, "8*i + j"),
        (j + i * 8, "8*i + j"),
        (7 - i, "7 - i"),
        (-i - j, "-i - j"),
        ((b + 1) * (b - 1), "b**2 - 1"),
        (b * t * 2 - t * b * 2 + 5, "5"),
        ((8 * i + j) // 8, "i"),
        ((8 * i + j) % 8, "j"),
        ((16 * i + 8 * k + j) // 16, "i + k//2"),
        ((16 * i + 8 * k + j) % 16, "j + 8*(k%2)"),
        (x // 1, "x"),
        (x % 1, "0"),
        (x // -1, "-x"),
        ((x // 4) // 8, "x//32"),
        ((x // 4 + 1) // 2, "(x + 4)//8"),
        ((x + 17) // 8, "(x + 1)//8 + 2"),
        ((2 * x + 1) % 8, "2*(x%4) + 1"),
        (x % 64 % 8, "x%8"),
        ((x % 64 + y) % 8, "(x + y)%8"),
        (x % 64 // 8, "(x//8)%8"),
        (x // 8 * 8 + x % 8, "x"),
        (x // 64 * 64 + x // 8 % 8 * 8 + x % 8, "x"),
        (x - x // 8 * 8, "x%8"),
        (x - x % 8, "8*(x//8)"),
        (x // 8 - x // 64 * 8, "(x//8)%8"),
        (x % -8, "(x + 7)%8 - 7"),
        # what is rounded up
        (-(-x // 8), "(x + 7)//8"),
        (x + -x % 8, "8*((x + 7)//8)"),
        (-x % 8 - ((x + 7) // 8 * 8 - x), "0"),
        ((63 - x) // 8, "7 - x//8"),
        (i // 10, "0"),
        ((i + 20) % 40, "i + 20"),
        (minimum(i, 3, i, 20), "min(3, i)"),
        (maximum(b, 1), "b"),
        (minimum(i, maximum(b, 9)), "i"),
        (maximum(x, maximum(y, x + 1)), "max(x + 1, y)"),
        # sizes that are symbols
        (8 * b * t // t, "8*b"),
        ((b * t + t) // (b + 1), "t"),
        ((b * t + b) % (t + 1), "0"),
        ((6 * b + 3) // (2 * t), "(3*b + 1)//t"),
        (x // (b * t) * b * t + x // t % b * t + x % t, "x"),
        (x // t // b, "x//(b*t)"),
    ],
)
def test_normal_form(expression: Integer, text: str) -> None:
    assert str(expression) == text


def test_delinearizing_undoes_linearizing_with_symbolic_sizes() -> None:
    p, q, r = Symbol("p", 0, s - 1), Symbol("q", 0, b - 1), Symbol("r", 0, t - 1)
    position = (p * b + q) * t + r
    assert position // (b * t) is p
    assert position // t % b is q
    assert position % t is r


def test_a_divisor_that_may_be_zero_is_left_alone() -> None:
    n = Symbol("n", 0, 4)
    assert str(n * x // n) == "(n*x)//n"
    assert (n * x // n).substitute({n: 2, x: 7}) == 7
    with pytest.raises(ZeroDivisionError):
        (n * x // n).substitute({n: 0, x: 7})
    with pytest.raises(ZeroDivisionError):
        x // 0
    with pytest.raises(ZeroDivisionError):
        x % 0


def test_equal_expressions_are_one_object() -> None:
    result = (i + 2 * j) // 3 + minimum(x, y) % 4
    assert result is minimum(y, x) % 4 + (2 * j + i) // 3
    assert pickle.loads(pickle.dumps(result)) is result
    assert copy.deepcopy(result) is result
    assert Symbol("i", 0, 9) is i and Symbol("i", 0, 8) is not i
    assert len({result, i, result}) == 2 and i != 3 and i - i == 0

    found: list[Any] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        found.extend([(x + n) // 7 * y for n in range(50)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 400 and len({id(expression) for expression in found}) == 50


def test_operators_take_integers_on_either_side() -> None:
    three = np.int64(3)
    assert three + i is i + 3 and three * i is 3 * i and 3 - i is -(i - 3)
    assert divmod(8 * i + j, 8) == (i, j) and (b**2) is b * b
    assert (20 // b).substitute({b: 3}) == 6 and (20 % b).substitute({b: 3}) == 2
    assert divmod(20, b)[1] is 20 % b and +i is i
    for wrong in (1.5, "a", np.ones(2)):
        with pytest.raises(TypeError):
            i + wrong
        with pytest.raises(TypeError):
            wrong * i
    with pytest.raises(TypeError):
        b**-1


def random_expressions(rng: np.random.Generator, steps: int) -> tuple[dict[Symbol, np.ndarray], list[Any]]:
    """Bounded symbols with all their values, and (expression, its values by NumPy) built by random operations."""
    lows = rng.integers(-3, 3, 3)
    names = [Symbol(name, int(low), int(low + rng.integers(0, 10))) for name, low in zip("ijk", lows, strict=True)]
    values = np.meshgrid(*(np.arange(n.range.lower, n.range.upper + 1) for n in names), indexing="ij")
    pool: list[Any] = list(zip(names, values, strict=True))
    operations: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (lambda a, c: a + c, np.add),
        (lambda a, c: a - c, np.subtract),
        (lambda a, c: a * c, np.multiply),
        (lambda a, c: 4 * a + c, lambda a, c: 4 * a + c),
        (lambda a, c: 6 * a - c, lambda a, c: 6 * a - c),
        (minimum, np.minimum),
        (maximum, np.maximum),
    ] + 3 * [(lambda a, c: a // c, np.floor_divide), (lambda a, c: a % c, np.remainder)]
    for _ in range(steps):
        choice = int(rng.integers(len(operations)))
        symbolic, numeric = operations[choice]
        left, right = pool[rng.integers(len(pool))], pool[rng.integers(len(pool))]
        if choice >= 7 and (rng.random() < 0.8 or np.any(right[1] == 0)):
            constant = int(rng.choice([2, 3, 4, 6, 8, 12, -3, -4]))
            right = constant, np.asarray(constant)
        result = symbolic(left[0], right[0]), numeric(left[1], right[1])
        if len(str(result[0])) < 90:
            pool.append(result)
    return dict(zip(names, values, strict=True)), pool


def test_random_expressions_agree_with_numpy(rng: np.random.Generator) -> None:
    for _ in range(150):
        values, pool = random_expressions(rng, 12)
        for expression, expected in pool:
            got = np.broadcast_to(substitute(expression, values), expected.shape)
            np.testing.assert_array_equal(got, expected, err_msg=str(expression))
            known = value_range(expression)
            assert known.lower <= expected.min() and expected.max() <= known.upper, (str(expression), str(known))


def test_random_expressions_print_what_parses_back(rng: np.random.Generator) -> None:
    for _ in range(40):
        values, pool = random_expressions(rng, 10)
        for expression, _ in pool:
            assert parse_dimension(str(expression), {n.name: n for n in values}) == expression


def test_substitution_composes(rng: np.random.Generator) -> None:
    for _ in range(40):
        values, pool = random_expressions(rng, 8)
        first, second, _ = values
        wide = Symbol("w", -50, 50)
        start = values[second].ravel() + 3
        inside = (start >= first.range.lower) & (start <= first.range.upper)
        if not inside.any():
            continue
        points = {name: value.ravel()[inside] for name, value in values.items()} | {first: start[inside]}
        for expression, _ in pool:
            # Through a name with wider bounds and back, or directly: simplifications must not change values.
            through = substitute(substitute(expression, {first: wide + second}), {wide: 3})
            for result in (through, substitute(expression, {first: second + 3})):
                got = np.broadcast_to(substitute(result, points), start[inside].shape)
                np.testing.assert_array_equal(got, substitute(expression, points) + 0 * start[inside])


def test_substitute() -> None:
    assert (8 * i + j).substitute({"i": 2, j: 3}) == 19
    assert (8 * i + j).substitute({i: b}) is 8 * b + j
    got = (8 * i + j).substitute({i: np.arange(3, dtype=np.uint8) + 40, j: np.array(1, np.int8)})
    assert got.tolist() == [321, 329, 337]
    assert minimum(i, 4).substitute({i: np.arange(7)}).tolist() == [0, 1, 2, 3, 4, 4, 4]
    with pytest.raises(ValueError, match="no value for j"):
        (8 * i + j).substitute({i: np.arange(3)})
    with pytest.raises(TypeError, match="float64"):
        i.substitute({i: np.ones(2)})
    with pytest.raises(TypeError, match="must be replaced by"):
        i.substitute({i: 1.5})


def test_comparisons_decide_or_say_why_not() -> None:
    n = symbol("n", lower=4, upper=16)
    below = symbol("below", upper=n - 1)
    assert n >= 4 and not n < 4 and n <= 16 and n > 3 and 3 < n and n + b > 4
    assert below < n and not below >= n and 2 * below <= 2 * n - 2
    assert bool(b) and b != 3 and b != t
    with pytest.raises(InconclusiveDimensionError) as caught:
        bool(b < t)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, InconclusiveDimensionOperation)
    for part in ("b < t", "1 <= b", "constraints="):
        assert part in str(caught.value)
    with pytest.raises(InconclusiveDimensionError, match="b - 1 is zero"):
        bool(b - 1)


# --- dimensions -------------------------------------------------------------------------------------------------------


def test_dimension_questions() -> None:
    assert is_symbolic(b) and is_constant(3) and is_symbolic_shape((2, b)) and not is_symbolic_shape((2, 3))
    assert same(b + b, 2 * b) and not same(b, t) and not same(b, 3) and same_shape([b, 3], (b, 3))
    assert definitely_less(3, 4) and not definitely_less(4, 4) and definitely_less(b, b + t)
    assert not definitely_less(b, t) and not definitely_less(t, b) and definitely_less_equal(1, b)
    assert definitely_different(b, b + 1) and definitely_different(2, 3)
    assert not definitely_different(b, t) and not definitely_different(b, b)
    assert product(()) == 1 and product((2, 3)) == 6 and product((b, 2, t)) is 2 * b * t
    assert ceil_divide(7, 2) == 4 and ceil_divide(2 * b, 2) is b
    assert shape_symbols((2, t, b * t)) == (t, b) and shape_text((b,)) == "(b,)" and shape_text((b, 2)) == "(b, 2)"


def test_divide_exactly() -> None:
    assert divide_exactly(12, 4) == 3 and divide_exactly(8 * b * t, 2 * t) is 4 * b
    with pytest.raises(ValueError, match="12 is not a multiple of 5"):
        divide_exactly(12, 5)
    with pytest.raises(ValueError, match="is not a multiple"):
        divide_exactly(2 * b + 1, 2)
    with pytest.raises(ValueError, match="size 0"):
        divide_exactly(b, 0)
    with pytest.raises(InconclusiveDimensionError, match=r"whether b is a multiple of 4[\s\S]*4\*k"):
        divide_exactly(b, 4)


def test_as_shape_checks_its_argument() -> None:
    assert as_shape(3) == (3,) and as_shape([np.int32(2), b]) == (2, b) and as_shape(b) == (b,)
    assert type(as_shape([np.int32(2)])[0]) is int
    for wrong in (-1, -b, 2.0, "b"):
        with pytest.raises((TypeError, ValueError), match=r"dimension|Shapes must be"):
            as_dimension(wrong)


def test_parse_shape() -> None:
    assert parse_shape("(b, t, 2*b)") == (b, t, 2 * b) and parse_shape("b") == (b,)
    assert parse_shape("()") == () and parse_shape("8, floordiv(b, 2), max(b, t)") == (8, b // 2, maximum(b, t))
    assert parse_shape("b, ..., _", like=(2, 3, 4, 5)) == (b, 3, 4, 5) and parse_shape("...", like=()) == ()
    assert parse_shape("b + 1", known={"b": 4}) == (5,)
    first, second = parse_shape("b, t", constraints=["2*b >= 7", "t <= 4*b", "t > b", "b <= 64"])
    assert value_range(first) == Range(4, 64) and first < second and second <= 256 and second <= 4 * first
    for text in ("b.c", "b +", "f(b)", "b/2", "b, ...", "_", "..., ..."):
        with pytest.raises(ValueError):
            parse_shape(text)
    for constraints in (["b"], ["b*b == 4"], ["b*b < 9"], ["b <= t", "t <= 2*b"], ["b >= 5", "b <= 4"], ["1 < b < 3"]):
        with pytest.raises(ValueError):
            parse_shape("b, t", constraints=constraints)
    with pytest.raises(ValueError, match="identifier"):
        symbol("2b")


def test_substitute_shape_respects_bounds() -> None:
    first, second = parse_shape("b, t", constraints=["b <= 8", "t <= b"])
    assert substitute_shape((first, 2 * second, 3), {"b": 4, "t": 2}) == (4, 4, 3)
    assert substitute_shape((first, second), {"t": 2}) == (first, 2)
    for values in ({"b": 9, "t": 1}, {"b": 0, "t": 1}, {"b": 4, "t": 5}):
        with pytest.raises(ValueError, match="was declared with"):
            substitute_shape((first, second), values)


# --- index maps -------------------------------------------------------------------------------------------------------


def random_shape(rng: np.random.Generator, least: int = 0, most: int = 4, smallest: int = 0) -> tuple[int, ...]:
    return tuple(int(size) for size in rng.choice([smallest, 1, 2, 3, 4, 5], rng.integers(least, most + 1)))


def random_reshape(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Other sizes with the same product, ones thrown in."""
    if 0 in shape:
        return tuple(int(size) for size in rng.permutation([*shape, 7]))
    factors = [factor for size in shape for factor in {4: (2, 2)}.get(size, (size,)) if factor > 1]
    sizes = [1] * int(rng.integers(1 if factors else 0, 4))
    for factor in rng.permutation(factors):
        sizes[rng.integers(len(sizes))] *= int(factor)
    return tuple(sizes)


def random_operation(rng: np.random.Generator, array: np.ndarray) -> tuple[IndexMap, np.ndarray]:
    """Return the map of a random operation without padding, and NumPy's result for the array."""
    shape, rank = array.shape, array.ndim
    kind = rng.integers(5)
    if kind == 0:
        order = tuple(int(axis) for axis in rng.permutation(rank))
        return transpose_map(shape, order), array.transpose(order)
    if kind == 1:
        axes = tuple(axis for axis in range(rank) if rng.random() < 0.5)
        return reverse_map(shape, axes), np.flip(array, axes)
    if kind == 2:
        new_shape = random_reshape(rng, shape)
        return reshape_map(shape, new_shape), array.reshape(new_shape)
    if kind == 3:
        start = [int(rng.integers(0, size + 1)) for size in shape]
        limit = [int(rng.integers(low, size + 1)) for low, size in zip(start, shape, strict=True)]
        strides = [int(rng.integers(1, 4)) for _ in shape]
        pieces = tuple(slice(*bounds) for bounds in zip(start, limit, strides, strict=True))
        return slice_map(shape, start, limit, strides), array[pieces]
    new_rank = rank + int(rng.integers(0, 2))
    axes = sorted(int(axis) for axis in rng.choice(new_rank, rank, replace=False))
    new_shape = [int(size) for size in rng.integers(1, 4, new_rank)]
    lifted = [1] * new_rank
    for axis, size in zip(axes, shape, strict=True):
        lifted[axis] = size
        new_shape[axis] = size if size != 1 else new_shape[axis]
    return broadcast_map(shape, new_shape, axes), np.broadcast_to(array.reshape(lifted), new_shape)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array whose elements are all different."""
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def test_maps_read_what_numpy_reads(rng: np.random.Generator) -> None:
    for _ in range(150):
        array = numbered(random_shape(rng))
        index_map, expected = random_operation(rng, array)
        assert index_map.shape == expected.shape
        got = read(expected.shape, [source(0, index_map)], [array])
        np.testing.assert_array_equal(got, expected, err_msg=str(index_map))


def test_composed_maps_read_what_numpy_reads(rng: np.random.Generator) -> None:
    for _ in range(60):
        array = result = numbered(random_shape(rng, smallest=1))
        maps = []
        for _ in range(int(rng.integers(2, 5))):
            index_map, result = random_operation(rng, result)
            maps.append(index_map)
        composed = compose(*reversed(maps))
        got = read(result.shape, [source(0, composed)], [array])
        np.testing.assert_array_equal(got, result, err_msg=str(composed))


def test_pad_reads_what_numpy_reads(rng: np.random.Generator) -> None:
    for _ in range(60):
        array = numbered(random_shape(rng, least=1, most=3)) + 1
        config = [(int(rng.integers(-1, 3)), int(rng.integers(-1, 3)), int(rng.integers(0, 3))) for _ in array.shape]
        dilated = np.full([size + max(size - 1, 0) * c[2] for size, c in zip(array.shape, config, strict=True)], -1)
        dilated[tuple(slice(None, None, interior + 1) for *_, interior in config)] = array
        expected = np.pad(dilated, [(max(low, 0), max(high, 0)) for low, high, _ in config], constant_values=-1)
        for axis, (low, high, _) in enumerate(config):
            expected = np.take(expected, range(max(-low, 0), expected.shape[axis] - max(-high, 0)), axis)
        index_map = pad_map(array.shape, config)
        assert index_map.shape == expected.shape
        fallback = IndexMap.over(index_map.shape, ())
        sources = [source(0, index_map), source(1, fallback)]
        np.testing.assert_array_equal(read(expected.shape, sources, [array, np.array(-1)]), expected)
        # A slice that takes the padding off again leaves the identity: every condition is seen to hold.
        low_high = [(max(low, 0), max(high, 0), 0) for low, high, _ in config]
        limits = [low + size for size, (low, _, _) in zip(array.shape, low_high, strict=True)]
        off = slice_map(pad_map(array.shape, low_high).shape, [low for low, _, _ in low_high], limits)
        if array.size:
            assert off.then(pad_map(array.shape, low_high)).is_identity


def test_concatenate_reads_what_numpy_reads(rng: np.random.Generator) -> None:
    for _ in range(60):
        shape = random_shape(rng, least=1, most=3)
        axis = int(rng.integers(len(shape)))
        pieces = [numbered((*shape[:axis], int(n), *shape[axis + 1 :])) + 100 * int(n) for n in rng.integers(0, 4, 3)]
        expected = np.concatenate(pieces, axis)
        sources = [source(n, concatenate_map([p.shape for p in pieces], axis, n)) for n in range(3)]
        np.testing.assert_array_equal(read(expected.shape, sources, pieces), expected)
        # Each index belongs to exactly one piece.
        index = grid(expected.shape)
        assert np.all(sum(where.map.holds(index).astype(int) for where in sources) == 1)
    with pytest.raises(ValueError, match="No source holds at index"):
        read((4,), [source(0, concatenate_map([(2,), (2,)], 0, 0))], [np.ones(2)])


def test_bijections(rng: np.random.Generator) -> None:
    answers = []
    for _ in range(100):
        array = numbered(random_shape(rng))
        index_map, result = random_operation(rng, array)
        expected = sorted(result.ravel().tolist()) == list(range(array.size))
        assert index_map.is_bijection(array.shape) == expected, str(index_map)
        answers.append(expected)
    assert {True, False} == set(answers)
    piece = concatenate_map([(2, 3), (4, 3)], 0, 1)
    assert piece.is_bijection((4, 3)) and not piece.is_bijection((5, 3)) and not piece.is_bijection((3, 3))
    assert IndexMap.identity((b, 3)).is_bijection((b, 3)) and not IndexMap.identity((b, 3)).is_bijection((t, 3))
    with pytest.raises(ValueError, match="substitute the symbols"):
        reshape_map((b, 3), (3 * b,)).is_bijection((b, 3))
    with pytest.raises(ValueError, match="at most"):
        reverse_map((2048, 2048), (0,)).is_bijection((2048, 2048))


def test_identity_and_permutation(rng: np.random.Generator) -> None:
    for _ in range(60):
        shape = random_shape(rng, smallest=1)
        order = tuple(int(axis) for axis in rng.permutation(len(shape)))
        forth, back = transpose_map(shape, order), transpose_map([shape[axis] for axis in order], np.argsort(order))
        assert IndexMap.identity(shape).is_identity and back.then(forth).is_identity
        assert forth.is_permutation and IndexMap.permutation(forth.shape, np.argsort(order)) == forth
        new_shape = random_reshape(rng, shape)
        there_and_back = reshape_map(new_shape, shape).then(reshape_map(shape, new_shape))
        for got, expected in zip(there_and_back.evaluate(grid(shape)), grid(shape), strict=True):
            np.testing.assert_array_equal(got, expected)
        assert reverse_map(shape, (0,) if shape else ()).then(reverse_map(shape, (0,) if shape else ())).is_identity
    assert transpose_map((2, 3, 4), (2, 0, 1)).as_permutation() == (1, 2, 0)
    assert not transpose_map((2, 2), (1, 0)).is_identity and not reverse_map((3,), (0,)).is_permutation
    assert not broadcast_map((1, 3), (2, 3), (0, 1)).is_permutation
    with pytest.raises(ValueError, match="not a permutation"):
        transpose_map((2, 3), (0, 0))


@pytest.mark.parametrize(
    ("shape", "new_shape"),
    [
        ((6,), (2, 3)),
        ((4, 6), (24,)),
        ((4, 6), (2, 12)),
        ((2, 3, 4), (4, 3, 2)),
        ((8, 9, 10), (10, 9, 8)),
        ((4, 3, 5), (10, 2, 3)),
        ((2, 5, 2, 3), (4, 3, 5)),
        ((2, 4, 3, 3), (3, 12, 2)),
        ((4, 3, 2, 3), (6, 3, 4)),
        ((1, 5, 1), (5,)),
        ((), (1, 1)),
    ],
)
def test_a_reshape_and_its_inverse_are_seen_to_cancel(shape: tuple[int, ...], new_shape: tuple[int, ...]) -> None:
    assert reshape_map(new_shape, shape).then(reshape_map(shape, new_shape)).is_identity
    assert reshape_map(shape, new_shape).then(reshape_map(new_shape, shape)).is_identity


@pytest.mark.parametrize(
    "make",
    [
        lambda b, t: transpose_map((b, 3, t), (2, 0, 1)),
        lambda b, t: broadcast_map((b, 1), (t, b, 4), (1, 2)),
        lambda b, t: reverse_map((b, t), (1,)),
        lambda b, t: slice_map((2 * b, t), (b, 0), (2 * b, t), (2, 1)),
        lambda b, t: pad_map((b, t), [(1, 2, 1), (t, 0, 0)]),
        lambda b, t: concatenate_map([(b, 3), (t, 3), (b, 3)], 0, 1),
        lambda b, t: reshape_map((b, t, 6), (b * t, 2, 3)),
        lambda b, t: reshape_map((b * t, 6), (t, b, 3, 2)),
        lambda b, t: reshape_map((2 * b, t), (b, 2 * t)),
        lambda b, t: reshape_map((b, t, 2), (b, t, 2)).then(transpose_map((t, b, 2), (1, 0, 2))),
    ],
)
def test_substituting_sizes_returns_the_concrete_map(make: Callable[..., IndexMap]) -> None:
    symbolic = make(b, t)
    for sizes in itertools.product((1, 2, 5), (1, 3, 4)):
        got = symbolic.substitute(dict(zip((b, t), sizes, strict=True)))
        expected = make(*sizes)
        assert got.shape == expected.shape and is_symbolic_shape(symbolic.shape)
        index = grid(expected.shape)
        where = expected.holds(index)
        np.testing.assert_array_equal(got.holds(index), where)
        for one, other in zip(got.evaluate(index), expected.evaluate(index), strict=True):
            np.testing.assert_array_equal(one[where], other[where])


def test_reshape_keeps_axes_that_stay() -> None:
    assert str(reshape_map((b, 6, t), (b, 2, 3, t)).results) == "(d0, 3*d1 + d2, d3)"
    assert str(reshape_map((b, 2, 3), (b, 6)).results) == "(d0, d1//3, d1%3)"
    assert reshape_map((2, b, 1, 3), (2, 1, b, 3)).apply((1, 0, 7, 2)) == (1, 7, 0, 2)
    flat = reshape_map((s, b, t), (s * b * t,))
    assert reshape_map((s * b * t,), (s, b, t)).then(flat).is_identity
    assert flat.then(reshape_map((s * b * t,), (s, b, t))).is_identity
    with pytest.raises(ValueError, match="must keep the number of elements"):
        reshape_map((2, 3), (5,))


def test_constraints_narrow_what_follows() -> None:
    index = Symbol("d0", 0, 63)
    inside = IndexMap.over((64,), (index // 8, index % 8), [Constraint(2 * index - 1, 15, 30)]).simplify()
    assert str(inside) == "(d0) -> (1, d0 - 8), d0 in [0, 63], 15 <= 2*d0 - 1 <= 30"
    narrow = IndexMap.over((64,), (index // 8, index % 8), [Constraint(index, 8, 15), Constraint(index, 0, 99)])
    assert str(narrow.simplify()) == "(d0) -> (1, d0 - 8), d0 in [0, 63], 8 <= d0 <= 15"
    assert narrow.simplify().simplify() == narrow.simplify()
    never = IndexMap.over((64,), (index,), [Constraint(index, 64, 70)])
    assert never.is_empty and not narrow.is_empty


def test_map_text_and_mistakes() -> None:
    assert str(transpose_map((6, 4), (1, 0))) == "(d0, d1) -> (d1, d0), d0 in [0, 3], d1 in [0, 5]"
    assert str(pad_map((3,), [(1, 1, 1)])) == ("(d0) -> ((d0 + 1)//2 - 1), d0 in [0, 6], 1 <= d0 <= 5, (d0 + 1)%2 == 0")
    assert str(reverse_map((b,), (0,))) == "(d0) -> (b - d0 - 1), d0 in [0, b - 1]"
    with pytest.raises(ValueError, match="different names"):
        IndexMap((("d", 2), ("d", 3)), ())
    with pytest.raises(ValueError, match="cannot follow"):
        IndexMap.identity((2, 3)).then(IndexMap.identity((2,)))
    with pytest.raises(ValueError, match="needs 2 starts"):
        slice_map((2, 3), (0,), (1,))
    assert isinstance(IndexMap.identity((b,)).results[0], Expression)
