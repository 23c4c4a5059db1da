"""Loops, branches, calls, custom derivatives, transformations inside of programs, random keys and callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.draw import ALL, WEIGHTS, Draw, Skip, Text, Value, literal
from tests.fuzz.elementwise import Drawing, is_wide
from tests.fuzz.numbers import SMALL


def operands_of(draw: Draw, count: int, kinds: str = ALL) -> list[Value]:
    """Draw the initial values of a loop or the arguments of a function, of limited size."""
    found = [draw.pick(kinds) for _ in range(count)]
    if sum(v.size for v in found) > draw.settings.most:
        raise Skip
    return [draw.within(v, SMALL) for v in found]


def next_carry(start: Sequence[Value]) -> Callable[[Draw], str]:
    """Return how a body ends: with values of the types of the initial carry."""

    def finish(inner: Draw) -> str:
        return literal(tuple(inner.like(v.shape, v.dtype, SMALL) for v in start))

    return finish


def some_results(count: int, kinds: str = ALL) -> Callable[[Draw], str]:
    def finish(inner: Draw) -> str:
        return literal(tuple(inner.result(kinds) for _ in range(count)))

    return finish


def keep_all(draw: Draw, values: Any, bound: float = math.inf) -> None:
    for value in values:
        draw.keep(value, bound)


def scan(draw: Draw) -> None:
    start = operands_of(draw, draw.between(1, 3))
    length = draw.one_of((0, 1, 2, 3, 3, 5))
    rows = [draw.like((length, *draw.shape(draw.below(3))), draw.dtype(), SMALL) for _ in range(draw.below(3))]
    rows = [r for r in rows if r.size <= draw.settings.most]
    results, params = draw.below(3), {"reverse": draw.flag(0.3), "unroll": draw.one_of((1, 1, 1, 2))}

    def finish(inner: Draw) -> str:
        return f"({next_carry(start)(inner)}, {some_results(results)(inner)})"

    body = draw.body(draw.between(1, 4), finish, draw.flag())
    carry, row = literal(tuple(start)), literal(tuple(rows))
    options = ", ".join(f"{k}={v!r}" for k, v in params.items())
    ends = draw.assign(f"(lambda r: (*r[0], *r[1]))(lax.scan({body}, {carry}, {row}, {length}, {options}))")
    keep_all(draw, ends[: len(start)], SMALL)
    keep_all(draw, ends[len(start) :])


def fori(draw: Draw) -> None:
    start = operands_of(draw, draw.between(1, 3))
    count = literal(draw.below(5) if draw.flag() else draw.limited(draw.index(), 4))
    body = draw.body(draw.between(1, 3), next_carry(start), draw.flag())
    keep_all(draw, draw.assign(f"lax.fori_loop(0, {count}, {body}, {literal(tuple(start))})"), SMALL)


def while_loop(draw: Draw) -> None:
    """Draw a loop that runs a number of iterations, or until a value of the carry ends it."""
    start = operands_of(draw, draw.between(1, 3))
    limit = draw.limited(draw.index(), 5)
    scalars = [n for n, v in enumerate(start) if not v.shape and v.kind in "fi" and is_wide(v)]
    going = draw.fresh("f")
    text = f"lambda state: state[0] < {limit.name}"
    if scalars:
        text = f"lambda state: (state[0] < {limit.name}) & ~(state[1][{scalars[0]}] >= 4)"
    draw.statement(f"{going} = {text}")
    body = draw.body(
        draw.between(1, 3), lambda inner: f"({inner.arguments[0].name} + 1, {next_carry(start)(inner)})", draw.flag()
    )
    draw.statement(f"{body}_ = lambda state: {body}(*state)")
    count, *ends = draw.assign(
        f"(lambda r: (r[0], *r[1]))(lax.while_loop({going}, {body}_, (onp.int32(0), {literal(tuple(start))})))"
    )
    draw.keep(count, 8.0)
    keep_all(draw, ends, SMALL)


def branch(draw: Draw) -> None:
    predicate: Value | None = None
    if draw.focus is not None and not draw.focus.shape and draw.focus.kind in "bi" and draw.flag():
        predicate = draw.pick("bi")
        if predicate.kind == "i" and predicate.dtype != np.int32:
            raise Skip
    args = operands_of(draw, draw.between(1, 2))
    results = [*args[:1], *(draw.pick() for _ in range(draw.below(2)))]
    switch = predicate.kind == "i" if predicate is not None else draw.flag()
    if predicate is None:
        predicate = draw.index() if switch else draw.like((), np.bool_)
    count = draw.between(1, 4) if switch else 2
    branches = [draw.body(draw.below(4), next_carry(results), draw.flag()) for _ in range(count)]
    function = "lax.switch" if switch else "lax.cond"
    chosen = [literal([Text(b) for b in branches])] if switch else list(branches)
    text = ", ".join([predicate.name, *chosen, *(v.name for v in args)])
    keep_all(draw, draw.assign(f"{function}({text})"), SMALL)


def call(name: str) -> Drawing:
    """Draw a call of a function that is jitted, or recomputed for its derivative."""

    def draw_it(draw: Draw) -> None:
        args = operands_of(draw, draw.between(1, 3))
        body = draw.body(draw.between(1, 3), some_results(draw.between(1, 2)))
        keep_all(draw, draw.assign(f"lib.{name}({body})({', '.join(v.name for v in args)})"))

    return draw_it


def mapped(draw: Draw) -> None:
    """Draw a function mapped over the first axis of its operands, inside of the program."""
    args = operands_of(draw, draw.between(1, 3))
    sizes = [v.shape[0] for v in args if v.shape]
    if not sizes:
        raise Skip
    axes = tuple(0 if v.shape and v.shape[0] == sizes[0] else None for v in args)
    body = draw.body(draw.between(1, 3), some_results(draw.between(1, 2)))
    keep_all(draw, draw.assign(f"lib.vmap({body}, {axes})({', '.join(v.name for v in args)})"))


def mapped_branch(draw: Draw) -> None:
    """Draw a branch whose predicate differs along the axis that it is mapped over."""
    x = draw.pick(rank=1, accepts=lambda v: v.size <= draw.settings.most)
    flags = draw.like(x.shape[:1], np.bool_)
    function = draw.fresh("f")
    row = f"onp.zeros({x.shape[1:]}, {literal(x.dtype)})"

    def finish(inner: Draw) -> str:
        return inner.like(x.shape[1:], x.dtype, SMALL).name

    first, second = (draw.body(draw.between(1, 3), finish) for _ in range(2))
    draw.evaluate(f"lib.eval_shape(lambda a: ({first}(a), {second}(a)), {row})")
    draw.statement(f"{function} = lambda p, a: lax.cond(p, {first}, {second}, a)")
    draw.keep(draw.assign(f"lib.vmap({function})({flags.name}, {draw.within(x, SMALL).name})"), SMALL)


def smooth_operands(draw: Draw) -> tuple[Value, list[Value]]:
    x = draw.pick("f", accepts=lambda v: is_wide(v) and v.size <= draw.settings.most)
    return draw.within(x, SMALL), operands_of(draw, draw.below(2))


def weighted_total(inner: Draw) -> str:
    """Reduce to a scalar float, with weights so that cotangents differ."""
    value = inner.result("f")
    return f"np.sum({value.name}.astype(onp.float32) * {WEIGHTS.format(value.shape)})"


def gradient(draw: Draw) -> None:
    """Draw a gradient inside of the program."""
    x, others = smooth_operands(draw)
    body = draw.body(draw.between(1, 3), weighted_total)
    text = ", ".join(v.name for v in (x, *others))
    draw.keep(draw.assign(f"lib.{draw.one_of(('grad', 'jacrev'))}({body})({text})"))


def tangent(draw: Draw) -> None:
    x, others = smooth_operands(draw)
    body = draw.body(draw.between(1, 3), some_results(1, "f"))
    function = draw.fresh("f")
    text = "".join(f", {v.name}" for v in others)
    draw.statement(f"{function} = lambda x: {body}(x{text})")
    result = draw.assign(
        f"(lambda r: (*r[0], *r[1]))(lib.jvp({function}, ({x.name},), ({draw.like(x.shape, x.dtype, 2).name},)))"
    )
    keep_all(draw, result)


def gradient_of_loop(name: str) -> Drawing:
    """Reverse mode through a loop of unknown length, mapped or not: its residuals go to tapes."""

    def draw_it(draw: Draw) -> None:
        x = draw.pick("f", accepts=lambda v: is_wide(v) and v.size <= draw.settings.most)
        limit = draw.limited(draw.index(), 4)
        body, total = draw.fresh("f"), draw.fresh("f")
        factor = draw.one_of(("c", "s", "c + s"))
        step = draw.one_of((f"c * ({factor})", "lax.sin(c) * s", "c - s * s", "lax.max(c, s) * s"))
        draw.statement(f"{body} = lambda i, c, s: {step}")
        loop = draw.one_of(
            (
                f"lax.fori_loop(0, n, lambda i, c: {body}(i, c, x), x * 0 + 1)",
                f"lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, {body}(s[0], s[1], x)), (0, x))[1]",
            )
        )
        draw.statement(f"{total} = lambda x, n: np.sum(({loop}).astype(onp.float32))")
        text = f"lib.grad({total})"
        if name == "mapped":
            if not x.shape:
                raise Skip
            counts = draw.limited(draw.like((x.shape[0],) if draw.flag() else (), np.int32), 4)
            text = f"lib.vmap({text}, (0, {0 if counts.shape else None}))"
            limit = counts
        elif name == "twice":
            text = f"lib.grad(lambda x, n: np.sum({text}(x, n).astype(onp.float32)))"
        draw.keep(draw.assign(f"{text}({x.name}, {limit.name})"))

    return draw_it


def custom_derivative(name: str) -> Drawing:
    """Draw a function with a custom derivative, called inside of a gradient or outside of one."""

    def draw_it(draw: Draw) -> None:
        x = draw.pick("f", accepts=lambda v: is_wide(v) and v.size <= draw.settings.most)
        x = draw.within(x, SMALL)
        f = draw.fresh("f")
        if name == "jvp":
            draw.statement(
                f"@lib.custom_jvp\ndef {f}(x):\n    return lax.mul(x, x)\n"
                f"{f}.defjvp(lambda primals, tangents: ({f}(*primals), lax.mul(primals[0], tangents[0])))"
            )
        else:
            draw.statement(
                f"@lib.custom_vjp\ndef {f}(x):\n    return lax.mul(x, x)\n"
                f"{f}.defvjp(lambda x: ({f}(x), x), lambda x, ct: (lax.mul(x, ct),))"
            )
        text = f"{f}({x.name})"
        if draw.flag():
            text = f"lib.grad(lambda x: np.sum({f}(x).astype(onp.float32)))({x.name})"
        draw.keep(draw.assign(text), x.bound**2)

    return draw_it


def implicit_solve(draw: Draw) -> None:
    """`custom_linear_solve` of a diagonal system."""
    b = draw.pick("f", accepts=lambda v: is_wide(v))
    d = draw.call("lax.add", draw.call("lax.square", draw.like(b.shape, b.dtype)), np.array(1, b.dtype))
    draw.keep(
        draw.assign(
            f"lax.custom_linear_solve(lambda x: lax.mul({d.name}, x), {b.name}, "
            f"lambda matvec, b: lax.div(b, {d.name}), symmetric=True)"
        )
    )


# ----------------------------------------------------------------------------------------------- keys and Python calls


def key(draw: Draw) -> Value:
    """Draw a random key: an existing one, else a new one."""
    if draw.focus is not None:
        return draw.pick("k")
    found = [v for v in draw.values if v.kind == "k"]
    return draw.one_of(found) if found and draw.flag(0.6) else draw.call("random.key", draw.below(1000))


def one_key(draw: Draw) -> Value:
    found = key(draw)
    if not found.shape:
        return found
    if not found.size:
        raise Skip
    return draw.assign(f"{found.name}[{', '.join('0' for _ in found.shape)}]")


def seeded(draw: Draw) -> None:
    """Draw a key of a number that the program computes."""
    x = draw.pick("iu", most=0, accepts=lambda v: v.bits >= 8)
    draw.keep(draw.call("random.key", x))


def wrapped(draw: Draw) -> None:
    words = draw.like((*draw.shape(draw.below(2)), 2), np.uint32) if draw.focus is None else draw.pick("u", rank=1)
    if words.dtype != np.uint32 or words.shape[-1] != 2:
        raise Skip
    draw.keep(draw.call("random.wrap_key_data", words))


def unwrapped(draw: Draw) -> None:
    draw.keep(draw.call("random.key_data", key(draw)))


def bits(draw: Draw) -> None:
    dtype = draw.one_of((np.uint32, np.uint32, np.uint8, np.uint16))
    draw.keep(draw.call("random.bits", one_key(draw), draw.shape(), np.dtype(dtype)))


def split_key(draw: Draw) -> None:
    draw.keep(draw.call("random.split", one_key(draw), draw.between(0, 3)))


def fold_in(draw: Draw) -> None:
    value = draw.focus if draw.focus is not None and draw.focus.kind in "iu" else None
    if value is not None:
        draw.focus = None
        if value.shape or value.bits < 8:
            raise Skip
    draw.keep(draw.call("random.fold_in", one_key(draw), value or draw.index(np.uint32)))


def clone(draw: Draw) -> None:
    draw.keep(draw.call("random.clone", key(draw)))


def distribution(draw: Draw) -> None:
    """Numbers of a distribution, which is a program of its own."""
    name = draw.one_of(("uniform", "normal", "bernoulli", "permutation", "randint"))
    found = one_key(draw)
    match name:
        case "bernoulli":
            draw.keep(draw.call("random.bernoulli", found, 0.5, draw.shape()))
        case "permutation":
            draw.keep(draw.call("random.permutation", found, draw.between(1, 9)))
        case "randint":
            draw.keep(draw.call("random.randint", found, draw.shape(), -3, 9))
        case _:
            draw.keep(draw.call(f"random.{name}", found, draw.shape()))


def callback(name: str) -> Drawing:
    """Draw a Python function that the program calls."""

    def draw_it(draw: Draw) -> None:
        x = draw.pick("fiub", accepts=lambda v: is_wide(v))
        y = draw.constant(x)
        if name == "debug":
            draw.statement(f"lib.debug.callback(lambda a: None, {y.name})")
            draw.keep(x, x.bound)
            return
        struct = f"lib.ShapeDtypeStruct({x.shape}, {literal(x.dtype)})"
        ways = {"pure": f"lib.pure_callback(onp.positive, {struct}, {y.name}, vmap_method='sequential')"}
        ways["io"] = f"io_callback(onp.positive, {struct}, {y.name})"
        if x.kind == "b":
            raise Skip
        draw.keep(draw.assign(ways[name]), x.bound)

    return draw_it
