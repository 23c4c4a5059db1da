"""Same laws on small programs with control flow, custom rules, calls and collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.laws import laws
from tests.laws.samples import concrete
from weft import lax
from weft.api.custom import custom_gradient, custom_jvp, custom_vjp
from weft.api.remat import checkpoint, dots_saveable, nothing_saveable
from weft.base import tree
from weft.base.settings import enable_x64
from weft.ir.jaxpr import Jaxpr
from weft.ir.parser import equal, parse
from weft.ir.printer import to_text
from weft.ir.types import get_aval
from weft.ir.verifier import verify
from weft.trace.stage import stage

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with enable_x64(True):
        yield


VECTOR = np.array([0.4, -0.9, 1.3])
MATRIX = np.array([[0.4, -0.9, 1.3], [0.2, 0.7, -0.5]])
SCALAR = np.array(0.8)

PROGRAMS: dict[str, tuple[Function, tuple[Any, ...]]] = {}


def program(*args: Any) -> Callable[[Function], Function]:
    """Enter a function into the table, with the arguments on which the laws are checked."""

    def enter(function: Function) -> Function:
        PROGRAMS[function.__name__] = (function, args)
        return function

    return enter


def total(x: Any) -> Any:
    return lax.reduce_sum(x, tuple(range(len(np.shape(x)))))


# -- branches ----------------------------------------------------------------------------------------------------------


@program(VECTOR, SCALAR)
def cond_on_a_value(x: Any, y: Any) -> Any:
    return lax.cond(lax.gt(y, 0.5), lambda a, b: lax.mul(lax.sin(a), b), lambda a, b: lax.sub(a, b), x, y)


@program(VECTOR, np.array(True))
def cond_on_an_argument(x: Any, choice: Any) -> Any:
    return lax.cond(choice, lambda a: {"one": lax.sin(a), "two": a}, lambda a: {"one": a, "two": lax.cos(a)}, x)


@program(VECTOR, np.array(2, np.int32))
def switch_of_three(x: Any, index: Any) -> Any:
    return lax.switch(index, [lax.sin, lax.square, lambda a: lax.mul(a, total(a))], x)


@program(VECTOR, SCALAR)
def cond_that_closes_over(x: Any, y: Any) -> Any:
    scale = lax.exp(y)
    return lax.cond(lax.lt(y, 0.0), lambda: lax.neg(x), lambda: lax.mul(lax.square(x), scale))


@program(VECTOR, SCALAR)
def cond_in_cond(x: Any, y: Any) -> Any:
    def inner(a: Any) -> Any:
        return lax.cond(lax.gt(total(a), 100.0), lax.sin, lambda b: lax.mul(lax.cos(b), y), a)

    return lax.cond(lax.gt(y, 0.5), inner, lambda a: a, x)


# -- loops -------------------------------------------------------------------------------------------------------------


@program(VECTOR, SCALAR)
def while_until_large(x: Any, rate: Any) -> Any:
    """Double until large: the number of steps depends on the data."""

    def body(state: Any) -> Any:
        value, _ = state
        value = lax.add(lax.mul(value, lax.add(rate, 1.1)), lax.sin(value))
        return value, total(lax.square(value))

    return lax.while_loop(lambda state: lax.lt(state[1], 60.0), body, (x, total(lax.square(x))))


@program(VECTOR, np.array(3, np.int32))
def while_count_as_argument(x: Any, count: Any) -> Any:
    return lax.while_loop(
        lambda s: lax.lt(s[0], count), lambda s: (lax.add(s[0], 1), lax.mul(lax.sin(s[1]), s[1])), (np.int32(0), x)
    )[1]


@program(VECTOR)
def while_of_no_steps(x: Any) -> Any:
    return lax.while_loop(lambda s: lax.lt(s[1], 0.0), lambda s: (lax.sin(s[0]), s[1]), (x, 1.0))[0]


@program(VECTOR)
def fori_fixed(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, a: lax.add(lax.sin(a), lax.mul(a, lax.convert_element_type(i, a.dtype))), x)


@program(VECTOR, np.array(2, np.int32))
def fori_to_an_argument(x: Any, steps: Any) -> Any:
    return lax.fori_loop(0, steps, lambda i, a: lax.mul(lax.cos(a), a), x)


@program(MATRIX, VECTOR)
def scan_with_ys(xs: Any, start: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        carry = lax.add(lax.sin(carry), x)
        return carry, {"product": lax.mul(carry, x), "sum": total(carry)}

    return lax.scan(step, start, xs)


@program(MATRIX, VECTOR)
def scan_reversed(xs: Any, start: Any) -> Any:
    return lax.scan(lambda c, x: (lax.mul(c, lax.cos(x)), lax.square(c)), start, xs, reverse=True)


@program(MATRIX, VECTOR, SCALAR)
def scan_over_a_tree(xs: Any, weights: Any, scale: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        first, (second, third) = x["a"], x["b"]
        return lax.add(carry, lax.mul(lax.mul(first, second), scale)), lax.sub(third, carry)

    return lax.scan(step, lax.mul(weights, 0.5), {"a": xs, "b": (lax.sin(xs), lax.square(xs))}, unroll=2)


@program(VECTOR)
def scan_of_counts(x: Any) -> Any:
    """Scan with an integer and a float in the carry, without xs."""
    return lax.scan(
        lambda c, _: ((lax.add(c[0], 1), lax.mul(c[1], lax.cos(c[1]))), c[0]), (np.int32(0), x), None, length=3
    )


@program(MATRIX)
def map_of_a_function(xs: Any) -> Any:
    return lax.map(lambda row: lax.mul(row, total(row)), xs)


@program(MATRIX)
def associative_scan_of_products(xs: Any) -> Any:
    return lax.associative_scan(lax.mul, lax.add(lax.square(xs), 1.0), axis=1)


@program(MATRIX, SCALAR)
def cond_in_scan(xs: Any, y: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        result = lax.cond(
            lax.gt(total(x), 0.6), lambda a, c: lax.mul(a, c), lambda a, c: lax.sin(lax.add(a, c)), x, carry
        )
        return result, total(result)

    return lax.scan(step, lax.broadcast(y, (3,)), xs)


@program(MATRIX, SCALAR)
def scan_in_cond(xs: Any, y: Any) -> Any:
    def loop(a: Any, b: Any) -> Any:
        return lax.scan(lambda c, x: (lax.mul(lax.sin(c), total(x)), c), b, a)

    return lax.cond(lax.gt(y, 0.0), loop, lambda a, b: (b, lax.broadcast(b, (2,))), xs, y)


@program(MATRIX, SCALAR)
def while_in_scan(xs: Any, y: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        grown = lax.while_loop(
            lambda v: lax.lt(total(lax.square(v)), 5.0), lambda v: lax.mul(v, 1.4), lax.add(x, carry)
        )
        return lax.mul(total(grown), 0.2), grown

    return lax.scan(step, y, xs)


@program(VECTOR)
def while_in_while(x: Any) -> Any:
    def inner(v: Any) -> Any:
        return lax.while_loop(
            lambda s: lax.lt(s[1], 2), lambda s: (lax.mul(lax.sin(s[0]), 1.5), lax.add(s[1], 1)), (v, 0)
        )[0]

    return lax.while_loop(lambda s: lax.lt(s[1], 2), lambda s: (lax.add(inner(s[0]), x), lax.add(s[1], 1)), (x, 0))[0]


@program(VECTOR, SCALAR)
def scan_in_while(x: Any, y: Any) -> Any:
    def body(state: Any) -> Any:
        value, count = state
        value, _ = lax.scan(lambda c, r: (lax.add(lax.sin(c), r), None), lax.mul(value, y), lax.broadcast(value, (2,)))
        return value, lax.add(count, 1)

    return lax.while_loop(lambda s: lax.lt(s[1], 2), body, (x, 0))[0]


# -- calls and rules of users ------------------------------------------------------------------------------------------


@custom_jvp
def halved(x: Any, y: Any) -> Any:
    return lax.mul(lax.mul(x, y), 0.5)


@halved.defjvp
def halved_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return halved(x, y), lax.mul(lax.add(lax.mul(dx, y), lax.mul(x, dy)), 0.5)


@program(VECTOR, VECTOR[::-1].copy())
def custom_jvp_of_a_product(x: Any, y: Any) -> Any:
    return lax.sin(halved(lax.square(x), y))


@custom_vjp
def cubed(x: Any) -> Any:
    return lax.mul(lax.square(x), x)


cubed.defvjp(lambda x: (cubed(x), x), lambda x, ct: (lax.mul(lax.mul(lax.square(x), 3.0), ct),))


@program(VECTOR)
def custom_gradient_of_a_square(x: Any) -> Any:
    @custom_gradient
    def squared(a: Any) -> Any:
        return lax.square(a), lambda ct: (lax.mul(lax.mul(a, 2.0), ct),)

    return lax.sin(squared(x))


@program(VECTOR)
def custom_vjp_of_a_cube(x: Any) -> Any:
    return lax.mul(cubed(lax.sin(x)), total(x))


@program(MATRIX)
def custom_rule_in_scan(xs: Any) -> Any:
    return lax.scan(
        lambda c, x: (halved(lax.add(c, x), x), total(c)), lax.sin(lax.index_in_dim(xs, 0, keepdims=False)), xs
    )


@program(VECTOR)
def checkpointed(x: Any) -> Any:
    return checkpoint(lambda a: lax.sin(lax.mul(lax.cos(a), total(a))))(x)


@program(MATRIX)
def checkpoint_with_policies(x: Any) -> Any:
    @checkpoint(policy=dots_saveable)
    def first(a: Any) -> Any:
        return lax.sin(lax.dot(a, lax.transpose(lax.cos(a), (1, 0))))

    return total(checkpoint(lambda a: lax.exp(first(a)), policy=nothing_saveable)(x))


@program(MATRIX, VECTOR)
def checkpoint_in_scan(xs: Any, start: Any) -> Any:
    step = checkpoint(lambda c, x: (lax.sin(lax.mul(c, x)), total(c)))
    return lax.scan(step, start, xs)


@program(VECTOR, SCALAR)
def jit_in_jit(x: Any, y: Any) -> Any:
    inner = weft.jit(lambda a, b: (lax.mul(lax.sin(a), b), b))

    @weft.jit
    def outer(a: Any, b: Any) -> Any:
        first, second = inner(a, b)
        return inner(lax.add(first, a), second)[0]

    return outer(x, y)


@program(VECTOR)
def grad_in_jit(x: Any) -> Any:
    return weft.jit(weft.grad(lambda a: total(lax.mul(lax.sin(a), lax.square(a)))))(x)


@program(MATRIX, VECTOR)
def vmap_in_function(xs: Any, y: Any) -> Any:
    return weft.vmap(lambda row: lax.mul(lax.sin(row), total(lax.mul(row, y))))(xs)


# -- named axes --------------------------------------------------------------------------------------------------------


def mapped(function: Function) -> Function:
    return lambda xs: weft.vmap(function, axis_name="rows")(xs)


@program(MATRIX)
def collective_sum(xs: Any) -> Any:
    return mapped(lambda row: lax.mul(row, lax.psum(lax.sin(row), "rows")))(xs)


@program(MATRIX)
def collective_extrema(xs: Any) -> Any:
    return mapped(lambda row: (lax.pmax(lax.sin(total(row)), "rows"), lax.pmin(lax.square(total(row)), "rows")))(xs)


@program(MATRIX)
def collective_gather(xs: Any) -> Any:
    return mapped(lambda row: (lax.sin(lax.all_gather(row, "rows")), lax.all_gather(row, "rows", axis=0, tiled=True)))(
        xs
    )


@program(MATRIX)
def collective_permutation(xs: Any) -> Any:
    return mapped(lambda row: lax.mul(lax.ppermute(lax.sin(row), "rows", [(0, 1), (1, 0)]), row))(xs)


@program(np.concatenate([MATRIX, MATRIX * 0.5], 1)[:, :4])
def collective_transposes(xs: Any) -> Any:
    def row(x: Any) -> Any:
        split = lax.psum_scatter(lax.sin(x), "rows", tiled=True)
        return split, lax.all_to_all(lax.square(x), "rows", 0, 0, tiled=True)

    return mapped(row)(xs)


@program(MATRIX)
def collective_index(xs: Any) -> Any:
    return mapped(lambda row: lax.mul(lax.sin(row), lax.convert_element_type(lax.axis_index("rows"), row.dtype)))(xs)


# -- the laws ----------------------------------------------------------------------------------------------------------

# A custom_vjp has no forward mode, as in JAX.
REVERSE_ONLY = ("custom_gradient_of_a_square", "custom_vjp_of_a_cube")
FORWARD = [name for name in PROGRAMS if name not in REVERSE_ONLY]

every_program = pytest.mark.parametrize("name", PROGRAMS)
every_forward_program = pytest.mark.parametrize("name", FORWARD)


def flat(name: str) -> laws.Flat:
    function = PROGRAMS[name][0]
    return lambda *args: tree.leaves(function(*args))


def smooth(name: str) -> laws.Smooth:
    return laws.Smooth(flat(name), PROGRAMS[name][1])


@every_forward_program
def test_jvp_is_the_derivative(name: str, rng: np.random.Generator) -> None:
    laws.check_jvp(smooth(name), rng)


@every_forward_program
def test_reverse_is_the_adjoint_of_forward(name: str, rng: np.random.Generator) -> None:
    laws.check_adjoint(smooth(name), rng)


@every_program
def test_reverse_is_the_derivative(name: str, rng: np.random.Generator) -> None:
    laws.check_pullback(smooth(name), rng)


@every_forward_program
def test_second_order(name: str, rng: np.random.Generator) -> None:
    laws.check_second_order(smooth(name), rng)


@every_forward_program
def test_forward_over_reverse(name: str, rng: np.random.Generator) -> None:
    laws.check_forward_over_reverse(smooth(name), rng)


@every_program
def test_reverse_over_reverse(name: str, rng: np.random.Generator) -> None:
    laws.check_reverse_over_reverse(smooth(name), rng)


@every_program
def test_batch_is_a_loop(name: str, rng: np.random.Generator) -> None:
    laws.check_batch(flat(name), PROGRAMS[name][1], rng, limit=12)


@every_program
def test_batched_gradient_is_a_loop(name: str, rng: np.random.Generator) -> None:
    function = smooth(name)
    gradient = laws.gradient_of(function, rng)
    laws.check_batch(gradient, function.point, rng, 1e-9, limit=6)


@every_program
def test_jit_equals_eager(name: str) -> None:
    function, args = PROGRAMS[name]
    for one, other in zip(tree.leaves(weft.jit(function)(*args)), tree.leaves(function(*args)), strict=True):
        laws.assert_close(one, other)


@every_program
def test_jit_of_gradient_equals_eager(name: str, rng: np.random.Generator) -> None:
    function = smooth(name)
    gradient = laws.gradient_of(function, rng)
    for one, other in zip(weft.jit(gradient)(*function.point), gradient(*map(concrete, function.point)), strict=True):
        laws.assert_close(one, other, 1e-10)


def staged_programs(name: str, rng: np.random.Generator) -> list[Jaxpr]:
    """Return the program, its jvp where it has one, its gradient and its batched form."""
    function = smooth(name)
    args = [concrete(a) for a in PROGRAMS[name][1]]
    types, moving = [a.aval for a in args], [get_aval(concrete(p)) for p in function.point]
    result = [stage(flat(name), types)[0], stage(laws.gradient_of(function, rng), moving)[0]]
    if name in FORWARD:
        result.append(stage(lambda *a: laws.pushed_along(function, a, a), moving)[0])
    batched = [t.plain_of_shape((3, *t.shape)) for t in types]
    result.append(stage(lambda *a: laws.batched_at_front(flat(name), a), batched)[0])
    return result


@every_program
def test_text_and_verifier(name: str, rng: np.random.Generator) -> None:
    for staged in staged_programs(name, rng):
        verify(staged)
        table: list[Any] = []
        text = to_text(staged, full=True, table=table)
        assert equal(parse(text, table), staged), text
