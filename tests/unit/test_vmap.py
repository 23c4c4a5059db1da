"""vmap: axes of arguments and results as trees, named axes with every collective, and mistakes that name the
argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax

pytestmark = pytest.mark.tiny


def ramp(*shape: int) -> weft.Array:
    return wnp.arange(float(np.prod(shape))).reshape(shape)


def names_this_file(error: BaseException) -> bool:
    return "  at        test_vmap.py:" in str(error)


# -- axes -------------------------------------------------------------------------------------------------------------


def test_axes_of_arguments() -> None:
    times = lambda x, y: x * y
    assert weft.vmap(times, in_axes=(0, None))(ramp(3), 2.0).tolist() == [0.0, 2.0, 4.0]
    assert weft.vmap(times, in_axes=[0, None])(ramp(3), 2.0).tolist() == [0.0, 2.0, 4.0]
    assert weft.vmap(lambda x: x.sum(), in_axes=-1)(ramp(2, 3)).tolist() == [3.0, 5.0, 7.0]
    found = weft.vmap(lambda d, y: d["a"] * d["b"] + y, in_axes=({"a": 0, "b": None}, 1))(
        {"a": ramp(3), "b": 2.0}, ramp(2, 3)
    )
    assert found.tolist() == [[0.0, 3.0], [3.0, 6.0], [6.0, 9.0]]
    assert weft.vmap(lambda d: d["a"] + d["b"], in_axes=(0,))({"a": ramp(2), "b": ramp(2)}).tolist() == [0.0, 2.0]
    assert weft.vmap(times, in_axes=(None,))(2.0, y=ramp(3)).tolist() == [0.0, 2.0, 4.0]


def test_axes_of_results() -> None:
    assert weft.vmap(lambda x: x, out_axes=-1)(ramp(2, 3)).tolist() == ramp(2, 3).T.tolist()
    found = weft.vmap(lambda x: {"a": x, "b": (x, 1.0)}, out_axes={"a": 1, "b": (0, None)})(ramp(2, 3))
    assert found["a"].shape == (3, 2) and found["b"][0].shape == (2, 3) and found["b"][1].shape == ()
    assert weft.vmap(lambda x: 1.0)(ramp(3)).tolist() == [1.0, 1.0, 1.0]
    assert weft.vmap(lambda x: None)(ramp(3)) is None


def test_axis_size_and_empty_batches() -> None:
    assert weft.vmap(lambda: 1.0, axis_size=3)().tolist() == [1.0, 1.0, 1.0]
    assert weft.vmap(lambda x: x * 2, in_axes=None, axis_size=2)(ramp(2)).shape == (2, 2)
    assert weft.vmap(lambda x: x * 2)(ramp(0, 2)).shape == (0, 2)


def test_what_is_not_mapped_may_be_any_object() -> None:
    f = lambda x, mode, flag: -x if mode == "negative" and flag is None else x
    assert weft.vmap(f, in_axes=(0, None, None))(ramp(2), "negative", None).tolist() == [0.0, -1.0]
    with pytest.raises(errors.InvalidInputTypeError, match="vmap of <lambda> got a value that is not an array at mode"):
        weft.vmap(f)(ramp(2), "negative", None)


def test_nesting() -> None:
    table = weft.vmap(weft.vmap(lambda x, y: x - y, (0, None)), (None, 0))(ramp(3), ramp(2))
    assert table.tolist() == [[0.0, 1.0, 2.0], [-1.0, 0.0, 1.0]]
    assert weft.vmap(weft.grad(lambda x: wnp.sum(x**3)))(ramp(2, 2)).tolist() == [[0.0, 3.0], [12.0, 27.0]]
    values, gradients = weft.vmap(weft.value_and_grad(lambda w, x: wnp.sum(w * x)), in_axes=(None, 0))(
        ramp(2), ramp(2, 2)
    )
    assert values.tolist() == [1.0, 3.0] and gradients.tolist() == ramp(2, 2).tolist()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: weft.vmap(lambda a, b: a)({"p": ramp(3), "q": ramp(4)}, ramp(3)),
            r"size 4: axis 0 of a\['q'\], f32\[4\]",
        ),
        (lambda: weft.vmap(lambda x, y: x, in_axes=(0, 0))(ramp(3), 2.0), "`y` has no axis 0 to map over"),
        (lambda: weft.vmap(lambda x: x, in_axes=2)(ramp(3)), "`x` has no axis 2"),
        (lambda: weft.vmap(lambda x: x, in_axes=(0, 0))(ramp(3)), "2 entries for 1 positional arguments"),
        (lambda: weft.vmap(lambda d: d, in_axes=({"c": 0},))({"a": ramp(3)}), r"at in_axes\[0\]: .*\['c'\].*\['a'\]"),
        (lambda: weft.vmap(lambda x: x, in_axes=0.5)(ramp(3)), "0.5 of type float"),
        (lambda: weft.vmap(lambda x: x, in_axes=None)(ramp(3)), "maps over nothing"),
        (lambda: weft.vmap(lambda x: x, axis_size=4)(ramp(3)), "size 4: axis_size"),
        (lambda: weft.vmap(lambda x: x, out_axes=None)(ramp(3)), "differs between elements"),
        (lambda: weft.vmap(lambda x: x, out_axes=3)(ramp(3)), "out_axes 3 does not exist"),
        (lambda: weft.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(ramp(3)), "prefix of the result's structure"),
    ],
)
def test_axes_that_do_not_fit(call, text: str) -> None:
    with pytest.raises(errors.AxisSpecError, match=text) as caught:
        call()
    assert names_this_file(caught.value)


def test_python_control_flow_on_an_element() -> None:
    with pytest.raises(
        errors.TracerBoolConversionError, match=r"one element of 3 in vmap\(<lambda>\), called at test_vmap.py"
    ):
        weft.vmap(lambda x: x if x > 0 else -x)(ramp(3))


# -- named axes -------------------------------------------------------------------------------------------------------


def named(function, *args, **options) -> np.ndarray:
    return np.asarray(weft.vmap(function, axis_name="i", **options)(*args))


X = np.arange(9.0, dtype=np.float32).reshape(3, 3)
SLABS = np.arange(18.0, dtype=np.float32).reshape(3, 2, 3)
CUBE = np.arange(24.0, dtype=np.float32).reshape(2, 4, 3)

COLLECTIVES = {
    "psum": (lambda x: lax.psum(x, "i"), X, np.tile(X.sum(0), (3, 1))),
    "psum of a number": (lambda x: x * lax.psum(1, "i"), X, X * 3),
    "psum of a boolean": (lambda x: lax.psum(x > 4, "i"), X, np.tile((X > 4).sum(0), (3, 1))),
    "psum of an unmapped array": (lambda x: x + lax.psum(np.float32(2), "i"), X, X + 6),
    "pmean": (lambda x: lax.pmean(x, "i"), X, np.tile(X.mean(0), (3, 1))),
    "pmean of integers": (lambda x: lax.pmean(x, "i"), np.array([1, 2]), np.array([1.5, 1.5])),
    "pmax": (lambda x: lax.pmax(x, "i"), X, np.tile(X.max(0), (3, 1))),
    "pmin": (lambda x: lax.pmin(x, "i"), X, np.tile(X.min(0), (3, 1))),
    "axis_index": (lambda x: lax.axis_index("i"), X, np.arange(3)),
    "axis_size": (lambda x: x * lax.axis_size("i"), X, X * 3),
    "all_gather": (lambda x: lax.all_gather(x, "i"), X, np.tile(X, (3, 1, 1))),
    "all_gather last": (lambda x: lax.all_gather(x, "i", axis=-1), X, np.tile(X.T, (3, 1, 1))),
    "all_gather tiled": (lambda x: lax.all_gather(x, "i", tiled=True), X, np.tile(X.ravel(), (3, 1))),
    "ppermute": (lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), X, X[[2, 0, 1]]),
    "ppermute to some": (lambda x: lax.ppermute(x, "i", [(2, 0)]), X, np.stack([X[2], 0 * X[0], 0 * X[0]])),
    "pshuffle": (lambda x: lax.pshuffle(x, "i", [1, 2, 0]), X, X[[1, 2, 0]]),
    "pswapaxes": (lambda x: lax.pswapaxes(x, "i", 0), X, X.T),
    "all_to_all": (lambda x: lax.all_to_all(x, "i", 1, 0), SLABS, np.stack([SLABS[:, :, b] for b in range(3)])),
    "all_to_all tiled": (
        lambda x: lax.all_to_all(x, "i", 0, 1, tiled=True),
        CUBE,
        np.stack([CUBE[:, :2], CUBE[:, 2:]]).transpose(0, 2, 1, 3).reshape(2, 2, 6),
    ),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "i"), X, X.sum(0)),
    "psum_scatter tiled": (
        lambda x: lax.psum_scatter(x, "i", tiled=True),
        X[:, [0, 1, 2, 0, 1, 2]],
        X.sum(0)[[0, 1, 2, 0, 1, 2]].reshape(3, 2),
    ),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str) -> None:
    function, x, expected = COLLECTIVES[name]
    assert np.array_equal(named(function, x), expected)
    assert np.array_equal(named(weft.jit(function), x), expected)


FLAT = ("psum of a boolean", "pmean of integers", "axis_index")  # nothing to differentiate


@pytest.mark.parametrize("name", [n for n in COLLECTIVES if n not in FLAT])
def test_derivatives_of_collectives_are_each_others_transpose(name: str, rng: np.random.Generator) -> None:
    function, x, _ = COLLECTIVES[name]
    x = rng.permutation(x.ravel()).reshape(x.shape).astype(np.float32)
    whole = lambda x: weft.vmap(function, axis_name="i")(x)
    y, push = weft.linearize(whole, x)
    _, pull = weft.vjp(whole, x)
    t, ct = rng.standard_normal(x.shape).astype(np.float32), rng.standard_normal(y.shape).astype(np.float32)
    assert np.vdot(push(t), ct) == pytest.approx(np.vdot(t, pull(ct)[0]), rel=1e-4, abs=1e-4)


def test_derivatives_inside_the_map() -> None:
    assert named(weft.grad(lambda x: lax.psum(x * x, "i")), X[0]).tolist() == (6 * X[0]).tolist()
    assert named(weft.grad(lambda x: lax.pmean(x * x, "i")), X[0]).tolist() == (2 * X[0]).tolist()


def test_collectives_in_loops_branches_and_rules() -> None:
    x = X[0]
    loop = lambda x: lax.scan(lambda c, y: (c + lax.psum(y * x, "i"), None), 0.0, wnp.ones(2))[0]
    assert named(loop, x).tolist() == [6.0] * 3
    assert named(lambda x: lax.cond(True, lambda x: lax.psum(x, "i"), lambda x: x, x), x).tolist() == [3.0] * 3
    assert named(weft.grad(weft.checkpoint(lambda x: lax.psum(x * x, "i"))), x).tolist() == (6 * x).tolist()
    counted = lambda x: lax.while_loop(lambda c: c < 10, lambda c: c + lax.psum(1.0, "i"), 0.0) + x
    assert named(counted, x).tolist() == (12 + x).tolist()


def test_nested_names() -> None:
    both = lambda f: np.asarray(weft.vmap(weft.vmap(f, axis_name="j"), axis_name="i")(X[:2]))
    assert np.array_equal(both(lambda x: lax.psum(x, "i")), np.tile(X[:2].sum(0), (2, 1)))
    assert np.array_equal(both(lambda x: lax.psum(x, ("i", "j"))), np.full((2, 3), X[:2].sum()))
    assert np.array_equal(both(lambda x: lax.axis_index(("i", "j"))), np.arange(6).reshape(2, 3))
    assert np.array_equal(both(lambda x: lax.all_gather(x, ("i", "j"))), np.broadcast_to(X[:2].ravel(), (2, 3, 6)))
    shadowed = weft.vmap(weft.vmap(lambda x: lax.psum(x, "i"), axis_name="i"), axis_name="i")(X[:2])
    assert np.array_equal(shadowed, np.tile(X[:2].sum(1)[:, None], (1, 3)))


def test_results_that_are_equal_for_all_need_no_axis() -> None:
    assert named(lambda x: lax.psum(x, "i"), X, out_axes=None).tolist() == X.sum(0).tolist()
    assert named(lambda x: lax.all_gather(x, "i"), X, out_axes=None).tolist() == X.tolist()


@pytest.mark.parametrize(
    "call", [lambda: lax.psum(1.0, "z"), lambda: lax.axis_index("z"), lambda: weft.jit(lambda x: lax.pmax(x, "z"))(1.0)]
)
def test_unbound_axis(call) -> None:
    with pytest.raises(errors.UnboundAxisError, match="no axis named 'z' here; in scope: none") as caught:
        call()
    assert names_this_file(caught.value) and "axis_name='z'" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: lax.ppermute(x, "i", [(0, 1), (0, 2)]), "every source must appear once"),
        (lambda x: lax.all_to_all(x[:2], "i", 0, 0), "must be equal to 3, the size of 'i'"),
        (lambda x: lax.psum_scatter(x[:2], "i"), "must be equal to 3"),
        (lambda x: lax.psum(x, "i", axis_index_groups=[[0], [1, 1]]), "axis_index_groups must have every position"),
        (lambda x: lax.all_gather(x, "i", axis_index_groups=[[0], [1, 2]]), "axis_index_groups must be of one size"),
        (lambda x: lax.pshuffle(x, "i", [0, 0, 1]), "permutation"),
    ],
)
def test_collectives_that_do_not_fit(function, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        named(function, X)
    assert names_this_file(caught.value)


def test_results_are_summed_where_asked() -> None:
    x = wnp.arange(6.0).reshape(2, 3)
    function = lambda x: (x, x * 2, 5.0)
    total, each, constant = weft.vmap(function, out_axes=(None, 0, None), sum_match=True)(x)
    np.testing.assert_array_equal(total, x.sum(0))
    np.testing.assert_array_equal(each, x * 2)
    assert constant == 5.0
    gradient = weft.jit(weft.grad(lambda x: weft.vmap(wnp.sin, out_axes=None, sum_match=True)(x).sum()))(x)
    np.testing.assert_allclose(gradient, np.cos(x), rtol=1e-6)


def test_what_is_not_mapped_is_passed_as_it_is() -> None:
    seen: list[Any] = []

    def scale(x: Any, tree: Any) -> Any:
        seen.append(tree)
        return x * sum(tree["sizes"])

    values = {"sizes": (2, 2.5, np.float32(1.5)), "table": np.arange(3), "name": "linear", "large": 2**40}
    result = weft.vmap(scale, in_axes=(0, None))(wnp.arange(3.0), values)
    np.testing.assert_array_equal(result, 6 * np.arange(3.0))
    assert [type(leaf) for leaf in seen[0]["sizes"]] == [int, float, np.float32]
    assert seen[0]["table"] is values["table"] and seen[0]["large"] == 2**40
    # So a number can be a static argument further in, or the size of an array.
    inner = weft.jit(lambda x, size: x + wnp.ones(size), static_argnums=1)
    assert weft.vmap(inner, in_axes=(0, None))(wnp.arange(3.0), 4).shape == (3, 4)
    assert weft.vmap(lambda x, y: y, in_axes=(0, None))(wnp.arange(3.0), 4).tolist() == [4, 4, 4]
    assert weft.vmap(lambda x: x, in_axes=None, out_axes=None, axis_size=2)(4) == 4
