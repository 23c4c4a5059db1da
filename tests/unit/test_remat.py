"""checkpoint: gradients are unchanged, fewer residuals are saved, and policies select them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.ad_checkpoint import (
    Offloadable,
    Recompute,
    Saveable,
    checkpoint_name,
    print_saved_residuals,
    saved_residuals,
)

policies = weft.checkpoint_policies


def network(x, w):
    """Contractions, one of them batched, elementwise steps, and a value with a name."""
    h = checkpoint_name(wnp.sin(x @ w), "hidden")
    h = wnp.cos(wnp.einsum("bi,bi->bi", h, h) @ w)
    scores = lax.dot_general(h[:, None, :], h[:, :, None], (((2,), (1,)), ((0,), (0,))))
    return wnp.sum(wnp.exp(scores))


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-0.5, 0.5, 16, dtype=np.float32).reshape(4, 4)

POLICIES = {
    "none": None,
    "everything": policies.everything_saveable,
    "nothing": policies.nothing_saveable,
    "dots": policies.dots_saveable,
    "checkpoint_dots": policies.checkpoint_dots,
    "dots without batch": policies.dots_with_no_batch_dims_saveable,
    "only hidden": policies.save_only_these_names("hidden"),
    "names but hidden": policies.save_any_names_but_these("hidden"),
    "all but hidden": policies.save_anything_except_these_names("hidden"),
    "dots or hidden": policies.save_from_both_policies(
        policies.dots_saveable, policies.save_only_these_names("hidden")
    ),
}


def residuals(function) -> list[str]:
    """Types of residuals that are not arguments."""
    return [
        aval.short() for aval, origin in saved_residuals(function, X, W) if not origin.startswith("from the argument")
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_are_unchanged(name: str) -> None:
    remat = weft.checkpoint(network, policy=POLICIES[name])
    expected = weft.grad(network, (0, 1))(X, W)
    for f in (weft.grad(remat, (0, 1)), weft.jit(weft.grad(remat, (0, 1))), weft.grad(weft.jit(remat), (0, 1))):
        for a, b in zip(f(X, W), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    stack = np.stack([X, 2 * X])
    np.testing.assert_allclose(
        weft.vmap(weft.grad(remat), (0, None))(stack, W),
        weft.vmap(weft.grad(network), (0, None))(stack, W),
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        weft.hessian(remat)(X[0, None], W), weft.hessian(network)(X[0, None], W), rtol=1e-3, atol=1e-3
    )


def test_saved_residuals() -> None:
    count = {name: len(residuals(weft.checkpoint(network, policy=policy))) for name, policy in POLICIES.items()}
    plain = len(residuals(network))
    assert count["none"] == count["nothing"] == count["names but hidden"] == 0
    assert count["everything"] == plain > count["dots"] > 0
    assert count["only hidden"] == 1
    assert residuals(weft.checkpoint(network, policy=POLICIES["only hidden"])) == ["f32[3,4]"]
    # einsum over two batched indices is a contraction too
    assert count["dots without batch"] == 2 and count["dots"] == count["checkpoint_dots"] == 4
    assert count["dots or hidden"] == count["dots"] + 1
    assert count["all but hidden"] == count["everything"]  # its operand is saved instead


def test_policies_see_into_jitted_functions() -> None:
    inner = weft.jit(lambda x, w: wnp.sin(x @ w))
    f = lambda x, w: wnp.sum(wnp.cos(inner(x, w)))
    assert residuals(weft.checkpoint(f)) == []
    assert residuals(weft.checkpoint(f, policy=policies.dots_saveable)) == ["f32[3,4]"]


def test_residuals_under_jit_and_scan() -> None:
    def deep(x, w, wrap):
        return wnp.sum(lax.scan(wrap(lambda h, _: (wnp.sin(wnp.cos(h @ w)), None)), x, None, length=5)[0])

    plain = residuals(lambda x, w: deep(x, w, lambda f: f))
    remat = residuals(lambda x, w: deep(x, w, weft.checkpoint))
    assert "f32[5,3,4]" in remat and remat.count("f32[5,3,4]") < plain.count("f32[5,3,4]")
    for wrap in (weft.checkpoint, lambda f: weft.jit(weft.checkpoint(f))):
        np.testing.assert_allclose(
            weft.grad(deep, 1)(X, W, wrap), weft.grad(deep, 1)(X, W, lambda f: f), rtol=1e-5, atol=1e-6
        )


def test_forward_values_are_recomputed() -> None:
    def sines(program) -> int:
        inner = [p for e in program.eqns for p in e.params.values() if hasattr(p, "eqns")]
        return sum(e.primitive.name == "sin" for e in program.eqns) + sum(map(sines, inner))

    f = lambda x: wnp.sin(wnp.sin(x))
    assert sines(weft.make_jaxpr(weft.grad(weft.checkpoint(f)))(1.0)) > sines(weft.make_jaxpr(weft.grad(f))(1.0))


def test_static_arguments_and_decorators() -> None:
    @functools.partial(weft.checkpoint, static_argnums=(1,), policy=policies.dots_saveable)
    def power(x, n):
        return x**n if n > 2 else x

    assert float(weft.grad(power)(2.0, 3)) == pytest.approx(12.0) and float(power(2.0, 1)) == 2.0
    assert float(weft.grad(lambda x: weft.remat(lambda x, y: x * y)(x, y=3.0))(2.0)) == 3.0
    with pytest.raises(errors.TracerBoolConversionError, match=r"checkpoint at test_remat\.py"):
        weft.checkpoint(lambda x: x if x > 0 else -x)(1.0)


def test_debugging_output_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        weft.debug.print("at {}", x)
        return wnp.sin(x)

    weft.grad(weft.checkpoint(f))(2.0)
    assert capsys.readouterr().out == "at 2.0\n"


def test_print_saved_residuals(capsys: pytest.CaptureFixture[str]) -> None:
    print_saved_residuals(lambda x, w: wnp.sum(wnp.sin(x) * w), X, X)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "f32[3,4] from the argument w" in lines
    assert any(line.startswith("f32[3,4] output of cos from test_remat.py:") for line in lines)
    print_saved_residuals(weft.checkpoint(network, policy=POLICIES["only hidden"]), X, W)
    assert "f32[3,4] named 'hidden' from test_remat.py:" in capsys.readouterr().out


def layer(x, w):
    return wnp.sin(x @ w)


V = wnp.array(np.random.RandomState(0).randn(5, 5).astype("f")) * 0.4
START = wnp.ones(5)

INSIDE = {
    "scan": lambda w: lax.scan(lambda x, _: (layer(x, w), None), START, None, length=2)[0].sum(),
    "named in a scan": lambda w: lax.scan(
        lambda x, _: (wnp.sin(checkpoint_name(x @ w, "hidden")) * 2, checkpoint_name(x.sum(), "other")),
        START,
        None,
        length=2,
    )[0].sum(),
    "cond": lambda w: lax.cond(
        w[0, 0] > -9, lambda x: layer(layer(x, w), w), lambda x: wnp.tanh(x @ w) + wnp.cos(x @ w @ w), START
    ).sum(),
    "jit in a scan": lambda w: lax.scan(lambda x, _: (weft.jit(layer)(x, w), None), START, None, length=2)[0].sum(),
    "scan in a scan": lambda w: lax.scan(
        lambda x, _: (lax.scan(lambda x, _: (layer(x, w), None), x, None, length=2)[0], None), START, None, length=2
    )[0].sum(),
    "while": lambda w: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, layer(s[1], w)), (0, START))[1].sum(),
    "lanes of a cond": lambda w: weft.vmap(
        lambda y: lax.cond(y[0] > 0, lambda x: layer(x, w), lambda x: wnp.cos(x @ w), y)
    )(w).sum(),
    "lanes of a while": lambda w: weft.vmap(
        lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, layer(s[1], w)), (0, START))[1].sum()
    )(wnp.arange(4)).sum(),
}
# How many products and sines the backward pass has: all, without those that a policy keeps.
COUNTS = {
    "scan": ((3, 1), (2, 1), (2, 0), (3, 1)),
    "named in a scan": ((3, 1), (2, 1), (2, 0), (2, 1)),
    "cond": ((12, 2), (7, 2), (7, 0), (12, 2)),
    "jit in a scan": ((3, 1), (2, 1), (2, 0), (3, 1)),
    "scan in a scan": ((3, 1), (2, 1), (2, 0), (3, 1)),
    "while": ((3, 1), (2, 1), (2, 0), (3, 1)),
    "lanes of a cond": None,
    "lanes of a while": ((3, 1), (2, 1), (2, 0), (3, 1)),
}


@pytest.mark.parametrize("name", list(INSIDE))
def test_policies_apply_inside_of_sub_jaxprs(name):
    f, expected = INSIDE[name], weft.grad(INSIDE[name])(V)
    chosen = (None, policies.dots_saveable, policies.everything_saveable, policies.save_only_these_names("hidden"))
    counts = []
    for policy in chosen:
        remat = weft.checkpoint(f, policy=policy)
        value, pull = weft.vjp(remat, V)
        np.testing.assert_allclose(pull(value / value)[0], expected, rtol=1e-4, atol=1e-5)
        text = str(weft.make_jaxpr(pull)(value))
        counts.append((text.count(" dot_general"), text.count(" sin ")))
    if COUNTS[name] is None:
        assert counts[1][0] < counts[0][0] and counts[2][1] == 0
    else:
        assert tuple(counts) == COUNTS[name]
    np.testing.assert_allclose(weft.jit(weft.grad(remat))(V), expected, rtol=1e-4, atol=1e-5)


def test_policies_that_offload() -> None:

    policy = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"],
        names_which_can_be_offloaded=["b"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def function(x):
        a = checkpoint_name(wnp.sin(x), "a")
        b = checkpoint_name(wnp.cos(a) * 2, "b")
        return (wnp.exp(b) * b * a).sum()

    x = wnp.ones(3)
    saved = [origin for _, origin in saved_residuals(weft.checkpoint(function, policy=policy), x)]
    assert sum("named" in origin for origin in saved) == 2
    wanted = weft.grad(function)(x)
    np.testing.assert_allclose(weft.jit(weft.grad(weft.checkpoint(function, policy=policy)))(x), wanted, rtol=1e-6)
    dots = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    both = policies.save_from_both_policies(policy_1=policy, policy_2=dots)
    plain = (((0,), (0,)), ((), ()))
    found = both(weft.lax.dot_general_p, dimension_numbers=plain)
    assert found == Offloadable(src="device", dst="pinned_host")
    assert both(weft.lax.add_p) is Recompute and not Recompute
    assert policy(weft.lax.optimization_barrier_p) is Recompute
    assert Saveable
    with pytest.raises(ValueError, match="either saved or offloaded"):
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"],
            names_which_can_be_offloaded=["a"],
            offload_src="device",
            offload_dst="pinned_host",
        )
    with pytest.raises(ValueError, match="memories"):
        policies.offload_dot_with_no_batch_dims("device", "attic")
