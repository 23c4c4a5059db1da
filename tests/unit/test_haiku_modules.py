"""weft.haiku: modules that are used by others, names, loops without steps, and stacks of stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.haiku as hk
import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError, MissingRngError

KEY = weft.random.PRNGKey(0)
X = wnp.ones((2, 3))


class Count(hk.Module):
    """Counts its calls in a state."""

    def __call__(self, x: Any) -> Any:
        count = hk.get_state("count", (), init=wnp.zeros)
        hk.set_state("count", count + 1)
        return x


def run(f: Any, *args: Any) -> Any:
    return hk.testing.transform_and_run(f)(*args)


def test_params_of_a_module_have_those_of_modules_it_used() -> None:
    def f(x: Any) -> list[str]:
        net = hk.Sequential([hk.Linear(2), hk.Sequential([lambda y: hk.Linear(2)(y)])])
        for _ in range(2):
            net(x)
        return sorted(net.params_dict())

    names = run(lambda x: f(x), X)
    assert names == ["linear/b", "linear/w", "sequential/linear/b", "sequential/linear/w"]

    def g() -> Any:
        outer = hk.Sequential([Count()])
        outer(wnp.ones(()))
        return sorted(outer.state_dict())

    assert run(g) == ["count/count"]


def test_names_with_leading_zeros_are_not_numbers() -> None:
    assert run(lambda: [hk.Linear(1, name="layer_007").module_name for _ in range(2)]) == ["layer_007", "layer_007_1"]


def test_assignments_to_a_deferred_module_reach_it() -> None:
    def f(x: Any) -> None:
        layer = hk.experimental.layer_stack and hk.Deferred(lambda: hk.Linear(2))
        layer(x)
        layer.note = 3
        assert layer.target.note == 3
        del layer.note
        assert not hasattr(layer.target, "note")

    run(f, X)


def test_a_scan_without_steps_makes_its_state() -> None:
    def f(xs: Any) -> Any:
        count = Count()
        return hk.scan(lambda c, x: (c, count(x)), (), xs)[1]

    model = hk.transform_with_state(f)
    params, state = model.init(None, wnp.zeros((0, 2)))
    out, state = model.apply(params, state, None, wnp.zeros((0, 2)))
    assert out.shape == (0, 2)
    assert float(state["count"]["count"]) == 0


def test_branches_get_arrays() -> None:
    def f(x: Any) -> Any:
        def keep(x: Any) -> Any:
            hk.set_state("x", x)
            return x.ndim + 0 * x

        return hk.switch(0, [keep, keep], x)

    _, state = hk.transform_with_state(f).init(None, 3)
    assert int(state["~"]["x"]) == 3


def test_a_function_in_several_branches_is_traced_once() -> None:
    calls: list[int] = []

    def f(x: Any) -> Any:
        calls.append(1)
        return x

    model = hk.transform(lambda i: hk.switch(i, [f, f, f], X))
    params = model.init(None, 0)
    calls.clear()
    model.apply(params, None, 1)
    assert len(calls) == 1


def test_vmap_splits_keys_while_initializing() -> None:
    model = hk.transform(lambda x: hk.vmap(lambda _: hk.next_rng_key(), split_rng=True)(x))
    keys: Any = []
    hk.transform(lambda: keys.append(hk.vmap(lambda _: hk.next_rng_key(), split_rng=True)(wnp.arange(3)))).init(KEY)
    assert len({tuple(np.asarray(key)) for key in keys[0]}) == 3
    assert model.init(KEY, wnp.arange(2)) == {}
    mapped = hk.transform(lambda x: hk.vmap(hk.Linear(2), split_rng=True)(x))
    with pytest.raises(MissingRngError, match="parameters are shared"):
        mapped.init(KEY, X)
    with pytest.raises(ArgumentTypeError, match="require_split_rng = False"):
        hk.vmap(lambda x: x)
    hk.vmap.require_split_rng = False
    try:
        same = hk.transform(hk.vmap(hk.next_rng_key, axis_size=2)).apply({}, KEY)
    finally:
        hk.vmap.require_split_rng = True
    np.testing.assert_array_equal(same[0], same[1])


def test_unrolls_run_outside_of_transformed_functions() -> None:
    outputs, state = hk.dynamic_unroll(lambda x, s: (x + s, s + 1), wnp.zeros(4), 0.0)
    np.testing.assert_array_equal(outputs, [0.0, 1.0, 2.0, 3.0])
    assert float(state) == 4


def test_a_stack_of_stacks() -> None:
    def f(x: Any) -> Any:
        inner = hk.experimental.layer_stack(2)(lambda x: hk.Linear(3)(x))
        return hk.experimental.layer_stack(4)(inner)(x)

    model = hk.transform(f)
    params = model.init(KEY, X)
    (values,) = params.values()
    assert values["w"].shape == (4, 2, 3, 3)
    assert model.apply(params, KEY, X).shape == X.shape


def test_layers_of_scalars_and_without_updates() -> None:
    def f(x: Any) -> Any:
        average = hk.ExponentialMovingAverage(0.9)
        average.initialize(x)
        norm = hk.SpectralNorm()
        norm(X, update_stats=False)
        return average(x), norm.sigma, hk.BatchNorm(True, True, 0.9)(x, True)

    average, sigma, normalized = run(f, wnp.ones(()))
    assert (float(average), float(sigma), normalized.shape) == (1.0, 1.0, ())


@pytest.mark.parametrize("axis", ["bad", ["b"], 1.5])
def test_axes_of_norms_are_checked_where_they_are_chosen(axis: Any) -> None:
    for make in (
        lambda: hk.LayerNorm(axis, False, False),
        lambda: hk.RMSNorm(axis),
        lambda: hk.GroupNorm(2, axis, False, False),
    ):
        with pytest.raises(ArgumentError, match="needs axis as an int"):
            run(make)


@pytest.mark.parametrize(("data_format", "index"), [("NC", 1), ("NCDHW", 1), ("TBD", -1), ("BTWHD", -1), ("NWC", -1)])
def test_formats_with_channels(data_format: str, index: int) -> None:
    assert hk.get_channel_index(data_format) == index


def test_shapes_inside_of_a_transformed_function() -> None:
    model = hk.transform(lambda x: print(hk.experimental.fast_eval_shape(hk.Linear(2), x).shape) or hk.Linear(2)(x))
    assert list(model.init(KEY, X)) == ["linear_1"]  # the module without a call is the first


def test_updaters_are_used_once_where_they_belong() -> None:
    inner = hk.transform_with_state(lambda: None)

    def twice() -> None:
        updater = hk.lift_with_state(inner.init)[1]
        updater.update({})
        updater.ignore_update()

    def elsewhere() -> None:
        updater = hk.lift_with_state(inner.init)[1]
        hk.transform(lambda: updater.ignore_update()).init(None)

    with pytest.raises(ArgumentError, match="used a second time"):
        hk.transform_with_state(twice).init(None)
    with pytest.raises(ArgumentError, match="inside of another transformed function"):
        hk.transform_with_state(elsewhere).init(None)


def test_creators_know_the_prefix_of_transparent_lifts() -> None:
    prefixes: list[Any] = []

    def creator(following: Any, shape: Any, dtype: Any, init: Any, context: Any) -> Any:
        prefixes.append(context.lifted_prefix_name)
        return following(shape, dtype, init)

    class Outer(hk.Module):
        def __call__(self, x: Any) -> Any:
            inner = hk.transform(lambda x: hk.Linear(2)(x))
            with hk.custom_creator(creator):
                params = hk.transparent_lift(inner.init)(KEY, x)
            return inner.apply(params, None, x)

    hk.transform(lambda x: Outer()(x)).init(None, X)
    assert prefixes == ["outer/", "outer/"]


def test_hooks_belong_to_a_run() -> None:
    for hook in (hk.custom_creator, hk.custom_getter, hk.custom_setter):
        with pytest.raises(ValueError, match="inside of a transformed function only"), hook(lambda *_: None):
            pass


def test_compiled_functions_are_not_transformed() -> None:
    with pytest.raises(ArgumentTypeError, match="compiled already"):
        hk.transform(weft.jit(lambda x: hk.Linear(2)(x)))


def test_raw_keys_of_the_default_generator() -> None:
    with weft.default_prng_impl("rbg"):
        key = weft.random.PRNGKey(1)
        assert hk.transform(hk.next_rng_key).apply({}, key).shape == key.shape == (4,)


def test_local_statistics_need_no_state() -> None:
    model = hk.transform(lambda x: hk.BatchNorm(True, True, 0.9)(x, is_training=False, test_local_stats=True))
    assert model.apply(model.init(None, X), None, X).shape == X.shape


def test_layers_without_rank_promotion() -> None:
    layers = [
        lambda x: hk.LayerNorm(-1, True, True)(x),
        lambda x: hk.RMSNorm(-1)(x),
        lambda x: hk.GroupNorm(1)(x),
        lambda x: hk.GRU(4)(x[:, 0], wnp.zeros((2, 4)))[0],
    ]
    with weft.numpy_rank_promotion("raise"):
        for layer in layers:
            model = hk.transform(layer)
            model.apply(model.init(KEY, wnp.ones((2, 3, 4))), None, wnp.ones((2, 3, 4)))


def test_paddings_are_tuples() -> None:
    assert hk.pad.create_from_padfn(hk.pad.same, 3, 1, 2) == ((1, 1), (1, 1))
    assert hk.pad.create_from_tuple((1, 2), 2) == ((1, 2), (1, 2))
