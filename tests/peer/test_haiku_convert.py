"""Parameters are converted between Weft, Haiku and Flax, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.peer.haiku_cases import HAIKU, LIBRARIES, jax, weft
from weft.modules.convert import Pair, from_plain, haiku_to_linen, linen_to_haiku, to_plain

X = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)


def network(hk: Any, lib: Any) -> Any:
    def run(x: Any) -> Any:
        x = lib.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Conv2D(5, 3)(x), True))
        return hk.nets.MLP([4, 2])(hk.Flatten()(hk.LayerNorm(-1, True, True)(x)))

    return hk.transform_with_state(run)


@pytest.mark.parametrize(("source", "target"), [("jax", "weft"), ("weft", "jax")])
def test_haiku_trees(source: str, target: str) -> None:
    out, other = (network(HAIKU[library], LIBRARIES[library]) for library in (source, target))
    params, state = out.init(LIBRARIES[source].random.PRNGKey(1), X)
    expected, after = out.apply(params, state, None, X)
    carried, carried_state = to_plain(params), to_plain(state)
    if target == "weft":
        carried, carried_state = from_plain(carried), from_plain(carried_state)
    result, result_after = other.apply(carried, carried_state, None, X)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    ours, theirs = to_plain(result_after), to_plain(after)
    for path, values in theirs.items():
        for name, value in values.items():
            np.testing.assert_allclose(ours[path][name], value, rtol=1e-4, atol=1e-6, err_msg=f"{path}/{name}")


PAIRS = [
    Pair("Conv_0", "conv2_d"),
    Pair("BatchNorm_0", "batch_norm", rank=4),
    Pair("LayerNorm_0", "layer_norm"),
    Pair("Dense_0", "mlp/~/linear_0"),
    Pair("Dense_1", "mlp/~/linear_1"),
]


def flax_network() -> Any:
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(nn.Conv(5, (3, 3))(x)))
            x = nn.LayerNorm(epsilon=1e-5)(x).reshape((4, -1))
            x = nn.relu(nn.Dense(4)(x))
            return nn.Dense(2)(x)

    return Net()


def test_flax_trees_become_ours() -> None:
    net = flax_network()
    variables = net.init(jax.random.PRNGKey(2), X)
    expected, changed = net.apply(variables, X, mutable=["batch_stats"])
    params, state = linen_to_haiku(from_plain(variables), PAIRS)
    result, after = network(HAIKU["weft"], weft).apply(params, state, None, X)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    back = haiku_to_linen(params, after, PAIRS)
    for name in ("mean", "var"):
        ours, theirs = (tree["batch_stats"]["BatchNorm_0"][name] for tree in (back, changed))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_our_trees_become_flax_ones() -> None:
    net = flax_network()
    f = network(HAIKU["weft"], weft)
    params, state = f.init(weft.random.PRNGKey(3), X)
    expected, _ = f.apply(params, state, None, X)
    variables = to_plain(haiku_to_linen(params, state, PAIRS))
    result, _ = net.apply(variables, X, mutable=["batch_stats"])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
