"""cond, switch, while_loop, fori_loop, scan, map, associative_scan: values, derivatives against unrolled Python,
mistakes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.messages import without_source
from weft import errors, lax


def ramp(*shape: int) -> weft.Array:
    return wnp.arange(float(np.prod(shape))).reshape(shape)


def names_this_file(error: BaseException) -> bool:
    return "  at        test_control_flow.py:" in str(error)


def same(first, second, tolerance: float = 2e-5) -> None:
    for a, b in zip(weft.tree.leaves(first), weft.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def same_to_second_order(loop, unrolled, x) -> None:
    """Values, first and second derivatives in every mode, alone and under jit and vmap."""
    same(loop(x), unrolled(x))
    gradient = weft.grad(unrolled)(x)
    same(weft.grad(loop)(x), gradient)
    same(weft.jit(weft.grad(loop))(x), gradient)
    same(weft.grad(weft.jit(loop))(x), gradient)
    same(weft.jvp(loop, (x,), (wnp.ones_like(x),)), weft.jvp(unrolled, (x,), (wnp.ones_like(x),)))
    curvature = weft.hessian(unrolled)(x)
    same(weft.jacrev(weft.grad(loop))(x), curvature)
    same(weft.jacfwd(weft.grad(loop))(x), curvature)
    same(weft.jacfwd(weft.jacfwd(loop))(x), curvature)
    points = wnp.stack([x, 0.7 * x, 1.2 * x])
    same(weft.vmap(weft.grad(loop))(points), wnp.stack([weft.grad(unrolled)(p) for p in points]))
    same(weft.grad(lambda p: wnp.sum(weft.vmap(loop)(p)))(points), wnp.stack([weft.grad(unrolled)(p) for p in points]))


# -- branches ---------------------------------------------------------------------------------------------------------


def test_cond() -> None:
    double = lambda x: x * 2
    assert float(lax.cond(True, double, lambda x: x, 3.0)) == 6.0
    assert float(lax.cond(0, double, lambda x: x, 3.0)) == 3.0
    assert float(lax.cond(True, lambda: 1.0, lambda: 2.0)) == 1.0
    assert float(lax.cond(True, double, lambda x: x, operand=3.0)) == 6.0
    tree = lax.cond(False, lambda d: {"a": d, "b": (1, None)}, lambda d: {"a": d + 1, "b": (2, None)}, 1.0)
    assert float(tree["a"]) == 2.0 and int(tree["b"][0]) == 2 and tree["b"][1] is None


def test_cond_of_closures_under_every_transformation() -> None:
    def f(x, y):
        return lax.cond(x > 0, lambda z: z * y, lambda z: z + x, 2.0)

    assert [float(g) for g in weft.grad(f, (0, 1))(1.0, 3.0)] == [0.0, 2.0]
    assert [float(g) for g in weft.grad(f, (0, 1))(-1.0, 3.0)] == [1.0, 0.0]
    assert weft.vmap(f)(wnp.array([1.0, -1.0]), wnp.array([3.0, 4.0])).tolist() == [6.0, 1.0]
    assert float(weft.grad(weft.grad(lambda x: lax.cond(x > 0, wnp.sin, wnp.cos, x)))(1.0)) == pytest.approx(
        -np.sin(1.0), rel=1e-5
    )
    assert weft.vmap(weft.grad(lambda x: lax.cond(x > 0, lambda x: x * x, wnp.sin, x)))(
        wnp.array([3.0, 0.0])
    ).tolist() == [6.0, 1.0]


def test_branches_of_which_one_has_no_derivative() -> None:
    value, tangent = weft.jvp(lambda x: lax.cond(False, lambda x: (x * 2, 3), lambda x: (1.0, 4), x), (2.0,), (1.0,))
    assert [float(v) for v in value] == [1.0, 4.0] and float(tangent[0]) == 0.0
    assert float(weft.grad(lambda x: lax.cond(True, lambda x: (x * 2, 3), lambda x: (1.0, 4), x)[0])(2.0)) == 2.0


def test_results_that_differ_in_weak_type_only_become_strong() -> None:
    result = lax.cond(True, lambda x: 2.0, lambda x: x, wnp.float32(1))
    assert float(result) == 2.0 and not result.weak_type
    assert lax.cond(True, lambda x: 2.0, lambda x: x, 1.0).weak_type


def test_switch() -> None:
    branches = [lambda x: x, lambda x: x * 2, lambda x: x * 3]
    assert [float(lax.switch(i, branches, 2.0)) for i in (-1, 0, 1, 2, 9)] == [2.0, 2.0, 4.0, 6.0, 6.0]
    for dtype in ("int32", "uint8"):
        found = weft.vmap(lambda i: lax.switch(i, branches, 2.0))(wnp.array([0, 1, 2, 5], dtype))
        assert found.tolist() == [2.0, 4.0, 6.0, 6.0]
    assert float(weft.grad(lambda x: lax.switch(1, [wnp.sin, lambda x: x**2, wnp.cos], x))(3.0)) == pytest.approx(6.0)
    assert float(lax.switch(7, branches[1:2], 2.0)) == 4.0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"b": x}, 1.0), r"result: .*\['b'\].*\['a'\]"),
        (lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"a": wnp.ones(2)}, 1.0), r"result\['a'\]"),
        (
            lambda: lax.cond(True, lambda x: x, lambda x: wnp.int32(1), 1.0),
            r"i32\[\] from false_fun and f32\[\] from true_fun",
        ),
        (
            lambda: lax.switch(0, [lambda x: x, lambda x: x, lambda x: (x,)], 1.0),
            r"switch branch outputs must have the same pytree structure.*branches\[0\] and branches\[2\]",
        ),
    ],
)
def test_branches_that_differ(call, text: str) -> None:
    with pytest.raises(errors.BranchMismatchError, match=text) as caught:
        call()
    assert names_this_file(caught.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lax.cond(wnp.ones(3) > 0, wnp.sin, wnp.cos, 1.0), r"must be a scalar\.\n.*\n  received  bool\[3\]"),
        (lambda: lax.cond("yes", wnp.sin, wnp.cos, 1.0), "'yes' of type str"),
        (lambda: lax.cond(None, wnp.sin, wnp.cos, 1.0), r"predicate is None(.*\n)*.*None of type NoneType"),
        (lambda: lax.cond(True, 1, 2, 1.0), "two functions"),
        (lambda: lax.cond(True, lambda x: "a", lambda x: "b", 1.0), "'a' of type str"),
        (lambda: lax.switch(1.0, [wnp.sin, wnp.cos], 1.0), r"must be an integer, got 1.0.*\n.*\n  received  f32\[\]"),
        (
            lambda: lax.while_loop(lambda c: c, lambda c: c + 1, 0),
            r"boolean scalar, but got output type i32\[\]\.\n.*\n  received  i32\[\]",
        ),
        (lambda: lax.while_loop(lambda c: c < 3, lambda c: c + 1, ramp(2)), r"bool\[2\]"),
        (lambda: lax.while_loop(lambda c: (c < 3, c), lambda c: c + 1, 0), r"\(\*, \*\)"),
        (lambda: lax.fori_loop(0.0, 3, lambda i, c: c, 0), r"f32\[\]"),
        (lambda: lax.scan(lambda c, x: c, 0.0, ramp(3)), "must return a pair"),
        (lambda: lax.scan(3, 0.0, ramp(3)), "must be a function"),
        (lambda: lax.scan(lambda c, x: (c, "y"), 0.0, ramp(3)), r"result\[1\]"),
        (lambda: lax.scan(lambda c, x: (c, x), "text", ramp(3)), "'text' of type str"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, None, length=2.5), "2.5 of type float"),
        (lambda: lax.associative_scan(lambda a, b: (a, b), ramp(3)), "structure of its arguments"),
        (lambda: lax.map(3, ramp(3)), "must be a function"),
    ],
)
def test_wrong_types(call, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert re.search(text, without_source(caught.value)) and names_this_file(caught.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lax.switch(0, [], 1.0), "Empty branch sequence"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, {"a": ramp(3), "b": ramp(4)}), r"xs\['a'\] has 3, xs\['b'\] has 4"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, ramp(3), length=4), "xs has 3, length is 4"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, [1.0, 2.0]), r"xs\[0\] has none"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0), "xs or length"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, ramp(3), unroll=-1), "not negative"),
        (lambda: lax.map(wnp.sin, ramp(3), batch_size=-1), "positive"),
        (lambda: lax.associative_scan(wnp.add, (ramp(3), ramp(4))), "sizes 3, 4"),
        (lambda: weft.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, 0, unroll=2))(3), "both bounds are known"),
    ],
)
def test_wrong_values(call, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert re.search(text, without_source(caught.value)) and names_this_file(caught.value)


# -- carries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1], 1), (0, 1.0)),
            "a tuple of length 2 goes in, a tuple of length 3",
        ),
        (
            lambda: lax.while_loop(
                lambda c: c["n"] < 3, lambda c: {"n": c["n"] + 1, "v": c["v"].astype(int)}, {"n": 0, "v": ramp(2)}
            ),
            r"carry\['v'\] goes in as f32\[2\] and comes out as i32\[2\]",
        ),
        (
            lambda: lax.scan(lambda c, x: ({"n": c["n"] + x}, x), {"n": wnp.int32(0)}, ramp(3)),
            r"carry\['n'\] goes in as i32\[\] and comes out as f32",
        ),
        (
            lambda: lax.scan(lambda c, x: (wnp.stack([c, c]), x), 0.0, ramp(3)),
            r"carry goes in as f32\[\] and comes out as f32\[2\]",
        ),
        (
            lambda: lax.fori_loop(0, 3, lambda i, c: (c, c), 1.0),
            r"lax.fori_loop body .* same pytree structure.*\n.*\n  received  carry: a leaf goes in",
        ),
        (
            lambda: lax.fori_loop(0, 3, lambda i, c: {"w": c["w"] > 0}, {"w": 1.0}),
            r"carry\['w'\] goes in as f32\[\] and comes out as bool",
        ),
        (
            lambda: weft.jit(lambda n: lax.fori_loop(0, n, lambda i, c: {"w": c["w"] > 0}, {"w": 1.0}))(3),
            r"lax.fori_loop body .*\n.*\n.*carry\['w'\]",
        ),
    ],
)
def test_carries_that_change(call, text: str) -> None:
    with pytest.raises(errors.CarryMismatchError, match=text) as caught:
        call()
    assert names_this_file(caught.value)


def test_weak_carries_take_the_type_of_the_body() -> None:
    assert lax.while_loop(lambda c: c < 3, lambda c: c + wnp.float32(1), 0.0).dtype == np.float32
    assert float(lax.while_loop(lambda c: c < 3, lambda c: c + 1.5, 0)) == 3.0
    carry, ys = lax.scan(lambda c, x: (c + x, c), 0, wnp.ones(3, "bfloat16"))
    assert carry.dtype == ys.dtype == wnp.bfloat16 and not carry.weak_type
    assert lax.scan(lambda c, x: (c + 1, None), 0, ramp(3))[0].weak_type
    assert lax.fori_loop(0, 3, lambda i, c: i, 0).weak_type


def test_carries_of_every_kind_beside_differentiated_ones() -> None:
    key = weft.random.key(0)

    def body(carry, _):
        flag, count, key, x = carry
        return (~flag, count + 1, weft.random.split(key)[0], wnp.where(flag, x * w, x) * count), flag

    def f(v):
        global w
        w = v
        return lax.scan(body, (True, 1, key, 1.0), None, length=4)[0][3]

    same(weft.grad(f)(0.5), 2 * 0.5 * 24)
    same(weft.vmap(weft.grad(f))(ramp(2)), 48 * ramp(2))


# -- loops ------------------------------------------------------------------------------------------------------------


def test_while_loop() -> None:
    assert int(lax.while_loop(lambda c: c < 10, lambda c: c + 3, 0)) == 12
    tree = lax.while_loop(
        lambda c: c["i"] < 5, lambda c: {"i": c["i"] + 1, "x": c["x"] * 2}, {"i": 0, "x": wnp.ones(2)}
    )
    assert tree["x"].tolist() == [32.0, 32.0]
    counts, powers = weft.vmap(lambda n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, 1.0)))(
        wnp.arange(4)
    )
    assert counts.tolist() == [0, 1, 2, 3] and powers.tolist() == [1.0, 2.0, 4.0, 8.0]


def collatz(x):
    """Run a loop whose length depends on the value that is differentiated."""
    return lax.while_loop(
        lambda c: c[1] < 30.0, lambda c: (c[0] * wnp.sin(c[1]) + x, c[1] * (1.5 + 0.1 * c[0])), (x, x * x + 1)
    )[0]


def collatz_unrolled(x):
    a, b = x, x * x + 1
    while b < 30.0:
        a, b = a * wnp.sin(b) + x, b * (1.5 + 0.1 * a)
    return a


def loop_in_loop(x):
    def outer(c):
        inner = lax.while_loop(lambda d: d[0] < c[0], lambda d: (d[0] + 1, wnp.cos(d[1] * x) + c[1]), (0, c[1]))
        return c[0] + 1, inner[1]

    return lax.while_loop(lambda c: c[0] < 4, outer, (1, x))[1]


def loop_in_loop_unrolled(x):
    value = x
    for n in range(1, 4):
        start = value
        for _ in range(n):
            value = wnp.cos(value * x) + start
    return value


def while_in_scan(x):
    def body(c, y):
        _, d = lax.while_loop(lambda s: s[0] < wnp.int32(y), lambda s: (s[0] + 1, s[1] * wnp.sin(x * s[1] + y)), (0, c))
        return d + x, d

    carry, ys = lax.scan(body, x, ramp(4))
    return carry + wnp.sum(ys**2)


def while_in_scan_unrolled(x):
    c, total = x, 0.0
    for y in range(4):
        d = c
        for _ in range(y):
            d = d * wnp.sin(x * d + y)
        c, total = d + x, total + d**2
    return c + total


def scan_in_while(x):
    def body(c):
        return c[0] + 1, lax.scan(lambda d, y: (wnp.sin(d * x + y), None), c[1], ramp(3))[0]

    return lax.while_loop(lambda c: c[0] < 3, body, (0, x))[1]


def scan_in_while_unrolled(x):
    value = x
    for _ in range(3):
        for y in range(3):
            value = wnp.sin(value * x + y)
    return value


def branch_in_while(x):
    step = lambda c: (c[0] + 1, lax.cond(c[0] % 2 == 0, lambda v: v * x, lambda v: wnp.sin(v) + x, c[1]))
    return lax.while_loop(lambda c: c[0] < 5, step, (0, x))[1]


def branch_in_while_unrolled(x):
    value = x
    for i in range(5):
        value = value * x if i % 2 == 0 else wnp.sin(value) + x
    return value


def traced_fori(x):
    count = wnp.int32(wnp.floor(3 + 0 * x))
    return lax.fori_loop(0, count, lambda i, c: wnp.sin(c * x) + i * x, x)


def traced_fori_unrolled(x):
    value = x
    for i in range(3):
        value = wnp.sin(value * x) + i * x
    return value


PAIRS = {
    "length depends on the value": (collatz, collatz_unrolled),
    "while in while": (loop_in_loop, loop_in_loop_unrolled),
    "while in scan": (while_in_scan, while_in_scan_unrolled),
    "scan in while": (scan_in_while, scan_in_while_unrolled),
    "cond in while": (branch_in_while, branch_in_while_unrolled),
    "fori_loop with a traced bound": (traced_fori, traced_fori_unrolled),
}


@pytest.mark.parametrize("name", PAIRS)
def test_reverse_mode_through_unbounded_loops(name: str) -> None:
    same_to_second_order(*PAIRS[name], wnp.float32(0.8))


@pytest.mark.parametrize("name", PAIRS)
def test_loops_in_branches_chosen_per_element(name: str) -> None:
    loop, unrolled = PAIRS[name]
    points = wnp.array([[0.8, 0.5, 0.3], [0.7, 0.9, 1.1]])
    chosen = lambda x: lax.switch(wnp.int32(x * 4), [wnp.sin, wnp.cos, loop, lambda x: loop(x) * x], x)
    known = lambda x: [wnp.sin, wnp.cos, unrolled, lambda x: unrolled(x) * x][min(int(x * 4), 3)](x)
    gradients = wnp.stack([wnp.stack([weft.grad(known)(x) for x in row]) for row in points])
    same(weft.vmap(weft.vmap(weft.grad(chosen)))(points), gradients)
    same(weft.grad(lambda p: wnp.sum(weft.vmap(weft.vmap(chosen))(p)))(points), gradients)
    same(weft.vmap(weft.grad(lambda row: wnp.sum(lax.map(chosen, row))))(points), gradients)
    curvature = wnp.stack([weft.grad(weft.grad(known))(x) for x in points[0]])
    same(weft.vmap(weft.grad(weft.grad(chosen)))(points[0]), curvature, 1e-4)


def test_reverse_mode_through_while_with_arrays_and_constants(rng: np.random.Generator) -> None:
    matrix = wnp.asarray(rng.standard_normal((3, 3)).astype(np.float32) / 3)

    def loop(m, v):
        return wnp.sum(lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, wnp.tanh(m @ c[1])), (0, v))[1])

    def unrolled(m, v):
        for _ in range(4):
            v = wnp.tanh(m @ v)
        return wnp.sum(v)

    v = ramp(3)
    same(weft.grad(loop, (0, 1))(matrix, v), weft.grad(unrolled, (0, 1))(matrix, v))
    same(weft.jit(weft.hessian(loop))(matrix, v), weft.hessian(unrolled)(matrix, v))


def test_loop_that_does_not_run() -> None:
    assert float(weft.grad(lambda x: lax.while_loop(lambda c: c < 0, lambda c: c * c, x))(3.0)) == 1.0
    assert float(weft.grad(lambda x: lax.fori_loop(3, 2, lambda i, c: c * c, x))(3.0)) == 1.0
    assert float(weft.grad(lambda x: lax.scan(lambda c, y: (c * c, None), x, None, length=0)[0])(3.0)) == 1.0


def test_fori_loop() -> None:
    assert int(lax.fori_loop(0, 5, lambda i, c: c + i, 0)) == 10
    assert int(lax.fori_loop(5, 2, lambda i, c: c + i, 7)) == 7
    assert int(lax.fori_loop(0, 5, lambda i, c: c + i, 0, unroll=2)) == 10
    assert int(weft.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(5)) == 10
    assert weft.vmap(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(wnp.arange(4)).tolist() == [0, 0, 1, 3]
    assert lax.fori_loop(0, 3, lambda i, c: c.at[i].set(i * 2.0), wnp.ones(3)).tolist() == [0.0, 2.0, 4.0]
    assert [
        e.primitive.name for e in weft.make_jaxpr(lambda x: lax.fori_loop(0, 3, lambda i, c: c * x, x))(1.0).eqns
    ] == ["scan"]


def test_the_index_of_fori_loop() -> None:
    """Of known integers it is weakly typed, whatever their dtypes are; traced bounds give it their type."""
    seen: list[weft.Array] = []

    def total(lower, upper, start=0):
        def body(i, carry):
            seen.append(i)
            return carry + i

        return lax.fori_loop(lower, upper, body, start)

    for lower, upper in [(0, 3), (np.int16(0), np.int16(3)), (0, wnp.int8(3)), (np.uint8(0), np.uint8(3))]:
        assert total(lower, upper) == 3 and (seen[-1].dtype, seen[-1].weak_type) == (np.int32, True)
        with weft.disable_jit():
            assert total(lower, upper) == 3 and (seen[-1].dtype, seen[-1].weak_type) == (np.int32, True)
    assert total(np.int16(0), np.int16(3), wnp.int8(1)).dtype == np.int8
    with weft.enable_x64(True):
        assert total(np.int16(0), np.int16(3)) == 3 and (seen[-1].dtype, seen[-1].weak_type) == (np.int64, True)
    with pytest.raises(errors.CarryMismatchError):
        lax.fori_loop(np.int16(0), np.int16(3), lambda i, c: i, wnp.int16(0))
    large = np.uint32(2**31)  # no int32
    assert total(large, large + np.uint32(2), wnp.uint32(0)) == 1 and seen[-1].dtype == np.uint32
    for lower, upper, expected in [
        (0, 3, (np.int32, True)),
        (0, np.int32(3), (np.int32, True)),
        (np.int32(0), 3, (np.int32, False)),
        (0, np.int16(3), (np.int16, False)),
        (np.int16(0), np.int16(3), (np.int16, False)),
    ]:
        assert weft.jit(total)(lower, upper) == 3 and (seen[-1].dtype, seen[-1].weak_type) == expected
        assert weft.jit(lambda n, lower=lower: total(lower, n))(upper) == 3
        assert (seen[-1].dtype, seen[-1].weak_type) == expected


# -- scan, map, associative_scan --------------------------------------------------------------------------------------


def test_scan_in_both_directions_over_trees() -> None:
    carry, ys = lax.scan(
        lambda c, x: ({"a": c["a"] + x[0]}, (x[1]["k"], c["a"])), {"a": 0.0}, (ramp(3), {"k": ramp(3, 2)})
    )
    assert float(carry["a"]) == 3.0 and ys[0].tolist() == ramp(3, 2).tolist() and ys[1].tolist() == [0.0, 0.0, 1.0]
    assert lax.scan(lambda c, x: (c + x, c), 0.0, ramp(4), reverse=True)[1].tolist() == [6.0, 5.0, 3.0, 0.0]
    for unroll in (2, 9, True, 0):
        assert float(lax.scan(lambda c, x: (c + x, None), 0.0, ramp(5), unroll=unroll)[0]) == 10.0
    assert lax.scan(lambda c, x: [c + 1, c], 0, None, length=3)[1].tolist() == [0, 1, 2]
    assert lax.scan(lambda c, x: (None, x * 2), None, ramp(2))[1].tolist() == [0.0, 2.0]


def test_scan_of_length_zero() -> None:
    carry, ys = lax.scan(lambda c, x: (c + x, {"y": c, "z": wnp.ones(2)}), 0.0, ramp(0))
    assert float(carry) == 0.0 and ys["y"].shape == (0,) and ys["z"].shape == (0, 2)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("options", [{}, {"unroll": 2}])
def test_derivatives_of_scan(reverse: bool, options: dict) -> None:
    xs = [0.3, -0.2, 0.9]

    def loop(w):
        carry, ys = lax.scan(lambda c, x: (wnp.sin(c * w + x), c * x), w, wnp.array(xs), reverse=reverse, **options)
        return carry + wnp.sum(ys * ramp(3))

    def unrolled(w):
        c, total = w, 0.0
        for i in reversed(range(3)) if reverse else range(3):
            total, c = total + c * xs[i] * i, wnp.sin(c * w + xs[i])
        return c + total

    same_to_second_order(loop, unrolled, wnp.float32(0.5))


def test_scan_over_what_is_differentiated_and_integers() -> None:
    f = lambda xs: lax.scan(lambda c, x: (c * x[0] * x[1], c), 1.0, (xs, wnp.arange(1, 4)))[0]
    assert weft.grad(f)(wnp.array([2.0, 3.0, 4.0])).tolist() == [72.0, 48.0, 36.0]
    ws, xs = ramp(2), ramp(2, 3)
    found = weft.vmap(lambda w, xs: lax.scan(lambda c, x: (c * w + x, c), 0.0, xs))(ws, xs)
    assert found[0].tolist() == [2.0, 12.0] and found[1].tolist() == [[0.0, 0.0, 1.0], [0.0, 3.0, 7.0]]


def test_map() -> None:
    assert lax.map(lambda d: d["a"] + d["b"], {"a": ramp(3), "b": ramp(3)}).tolist() == [0.0, 2.0, 4.0]
    for count in (5, 4, 2, 0):
        assert lax.map(lambda x: x * 2, ramp(count), batch_size=2).tolist() == (2 * ramp(count)).tolist()
    assert (
        weft.grad(lambda xs: wnp.sum(lax.map(lambda x: x * x, xs, batch_size=2)))(ramp(5)).tolist()
        == (2 * ramp(5)).tolist()
    )


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_associative_scan(count: int) -> None:
    x = np.arange(1.0, count + 1, dtype=np.float32)
    assert np.array_equal(lax.associative_scan(wnp.multiply, x), np.cumprod(x))
    assert np.array_equal(lax.associative_scan(wnp.add, x, reverse=True), np.cumsum(x[::-1])[::-1])
    table = np.stack([x, 2 * x])
    assert np.array_equal(lax.associative_scan(wnp.add, table, axis=-1), np.cumsum(table, 1))


def test_associative_scan_of_trees_and_its_derivative() -> None:
    affine = lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])
    gradients, offsets = lax.associative_scan(affine, (ramp(4) + 1, wnp.ones(4)))
    assert gradients.tolist() == [1.0, 2.0, 6.0, 24.0] and offsets.tolist() == [1.0, 3.0, 10.0, 41.0]
    gradient = weft.grad(lambda x: wnp.sum(lax.associative_scan(wnp.multiply, x)))(wnp.array([1.0, 2.0, 3.0]))
    assert gradient.tolist() == [9.0, 4.0, 2.0]


def test_a_carry_that_only_becomes_strong_is_traced_once() -> None:
    traced: list[Any] = []
    half = wnp.ones((), "bfloat16")

    def body(carry: Any, x: Any) -> Any:
        traced.append(weft.typeof(carry).weak_type)
        return carry + x, (carry, carry * half)

    values = wnp.arange(3.0)
    total, (before, halves) = lax.scan(body, 0.0, values)
    # As in JAX the body sees a weakly typed number, which takes the other operand's dtype.
    assert traced == [True] and not weft.typeof(total).weak_type
    assert before.dtype == np.float32 and halves.dtype == wnp.bfloat16
    np.testing.assert_array_equal(before, [0, 0, 1])
    assert weft.grad(lambda w: lax.scan(body, w, values)[0])(1.0) == 1.0
    np.testing.assert_array_equal(weft.vmap(lambda w: lax.scan(body, w, values)[0])(values), values + 3)

    def strong(carry: Any) -> Any:
        traced.append(weft.typeof(carry).weak_type)
        return carry + np.float32(1)

    del traced[:]
    assert lax.while_loop(lambda c: c < 3, strong, 0.0) == 3 and traced == [True]
    assert lax.fori_loop(0, 2, lambda _, c: strong(c), 0.0) == 2 and traced == [True, True]


def test_branches_that_differ_in_weakness_return_what_the_first_does() -> None:
    strong, weak = (lambda: np.float32(1)), (lambda: 2.0)
    for true_fun, false_fun in ((strong, weak), (weak, strong)):
        for is_true in (False, True):
            result = lax.cond(is_true, true_fun, false_fun)
            assert weft.typeof(result).weak_type == (false_fun is weak)
            assert result == (true_fun() if is_true else false_fun())
    assert weft.typeof(weft.jit(lambda i: lax.switch(i, [weak, strong, strong]))(1)).weak_type
    assert not weft.typeof(weft.jit(lambda i: lax.switch(i, [strong, weak]))(1)).weak_type
