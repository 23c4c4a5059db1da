"""Transformed functions: arguments, results and errors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import weft
import weft.haiku as hk
import weft.numpy as wnp
from weft.errors import (
    ImmutableCollectionError,
    MissingRngError,
    ModuleDefinitionError,
    NameInUseError,
    ParameterNotFoundError,
    ParameterShapeError,
    UnboundModuleError,
    WeftError,
)

KEY = weft.random.PRNGKey(0)
X = wnp.ones((2, 3))


def count() -> Any:
    """Count the calls in a state."""
    value = hk.get_state("count", [], wnp.int32, init=wnp.zeros)
    hk.set_state("count", value + 1)
    return value


def test_init_and_apply() -> None:
    f = hk.transform(lambda x: hk.nets.MLP([4, 2])(x))
    params = f.init(KEY, X)
    assert {path: {name: value.shape for name, value in values.items()} for path, values in params.items()} == {
        "mlp/~/linear_0": {"w": (3, 4), "b": (4,)},
        "mlp/~/linear_1": {"w": (4, 2), "b": (2,)},
    }
    hidden = np.maximum(np.asarray(X) @ np.asarray(params["mlp/~/linear_0"]["w"]), 0)
    expected = hidden @ np.asarray(params["mlp/~/linear_1"]["w"])
    np.testing.assert_allclose(f.apply(params, None, X), expected, rtol=1e-5)
    np.testing.assert_allclose(weft.jit(f.apply)(params, None, X), expected, rtol=1e-5)
    np.testing.assert_allclose(hk.without_apply_rng(f).apply(params, X), expected, rtol=1e-5)


def test_keys_may_be_seeds_typed_or_raw() -> None:
    f = hk.transform(lambda: weft.random.uniform(hk.next_rng_key()))
    numbers = [float(f.apply({}, rng)) for rng in (7, weft.random.PRNGKey(7), weft.random.key(7))]
    assert numbers[0] == numbers[1] == numbers[2]
    assert numbers[0] != float(f.apply({}, 8))


def test_state_goes_in_and_out() -> None:
    f = hk.transform_with_state(count)
    params, state = f.init(None)
    assert params == {}
    for expected in range(3):
        assert int(state["~"]["count"]) == expected
        value, state = f.apply(params, state, None)
        assert int(value) == expected


def test_initial_and_current_state() -> None:
    def run() -> Any:
        count()
        count()
        return hk.get_initial_state()["~"]["count"], hk.get_current_state()["~"]["count"]

    f = hk.transform_with_state(run)
    _, state = f.init(None)
    assert int(state["~"]["count"]) == 0
    (first, last), state = f.apply({}, {"~": {"count": wnp.asarray(5)}}, None)
    assert (int(first), int(last), int(state["~"]["count"])) == (5, 7, 7)


def test_apply_leaves_its_arguments_alone() -> None:
    f = hk.transform_with_state(count)
    _, state = f.init(None)
    f.apply({}, state, None)
    assert int(state["~"]["count"]) == 0


def test_with_and_without_state() -> None:
    params, state = hk.with_empty_state(hk.transform(lambda x: hk.Linear(2)(x))).init(KEY, X)
    assert state == {} and list(params) == ["linear"]
    f = hk.without_state(hk.transform_with_state(lambda x: hk.Linear(2)(x)))
    assert f.apply(f.init(KEY, X), None, X).shape == (2, 2)
    with pytest.raises(ImmutableCollectionError, match="'~' use state"):
        hk.without_state(hk.transform_with_state(count)).init(None)
    with pytest.raises(ParameterNotFoundError, match="no state"):
        hk.with_empty_state(hk.transform(lambda: 0)).apply({}, {"a": {"b": 1}}, None)


def test_multi_transform() -> None:
    def f() -> Any:
        encoder, decoder = hk.Linear(1, name="encoder"), hk.Linear(3, name="decoder")
        return lambda x: decoder(encoder(x)), {"encode": encoder, "decode": decoder}

    result = hk.multi_transform(f)
    params = result.init(KEY, X)
    assert sorted(params) == ["decoder", "encoder"]
    code = result.apply["encode"](params, None, X)
    assert code.shape == (2, 1) and result.apply["decode"](params, None, code).shape == (2, 3)

    def counting() -> Any:
        return lambda: count(), (count,)

    stateful = hk.multi_transform_with_state(counting)
    params, state = stateful.init(None)
    _, state = stateful.apply[0](params, state, None)
    assert int(state["~"]["count"]) == 1


def test_gradients_and_a_step_of_training() -> None:
    f = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(1, w_init=wnp.ones)(x)))
    params = f.init(None, X)

    def loss(params: Any) -> Any:
        return wnp.mean(f.apply(params, X) ** 2)

    gradients = weft.jit(weft.grad(loss))(params)
    np.testing.assert_allclose(gradients["linear"]["w"], np.full((3, 1), 6.0), rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------ lifting


def test_loops_create_parameters_in_their_first_iteration() -> None:
    def run(x: Any) -> Any:
        x, sums = hk.scan(lambda c, _: (hk.Linear(3)(c), wnp.sum(c)), x, None, length=3)
        x = hk.fori_loop(0, 2, lambda _, c: hk.Linear(3)(c), x)
        x = hk.while_loop(lambda c: wnp.sum(c) < -1e9, lambda c: hk.Linear(3)(c), x)
        return hk.Linear(2)(x), sums

    f = hk.transform(run)
    params = f.init(KEY, X)
    assert sorted(params) == ["linear", "linear_1", "linear_2", "linear_3"]
    result, sums = f.apply(params, None, X)
    w = [np.asarray(params[name]["w"]) for name in ("linear", "linear_1", "linear_3")]
    x = np.asarray(X)
    np.testing.assert_allclose(result, x @ w[0] @ w[0] @ w[0] @ w[1] @ w[1] @ w[2], rtol=1e-4, atol=1e-6)
    assert sums.shape == (3,)


@pytest.mark.parametrize("loop", ["scan", "reverse", "fori", "while"])
def test_state_goes_through_loops(loop: str) -> None:
    def run() -> Any:
        if loop in ("scan", "reverse"):
            return hk.scan(lambda c, _: (c, count()), 0.0, None, length=4, reverse=loop == "reverse")[1]
        if loop == "fori":
            return hk.fori_loop(0, 4, lambda _, c: c + count(), 0)
        return hk.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] + count()), (0, 0))[1]

    f = hk.transform_with_state(run)
    params, state = f.init(None)
    assert int(state["~"]["count"]) == 0
    result, state = weft.jit(f.apply)(params, state, None)
    assert int(state["~"]["count"]) == 4
    assert int(wnp.sum(result)) == 0 + 1 + 2 + 3


def test_branches_create_all_parameters_and_update_state_of_one() -> None:
    def run(index: Any, x: Any) -> Any:
        def branch(name: str) -> Any:
            def taken(x: Any) -> Any:
                with hk.name_scope(name):
                    count()
                    return hk.Linear(2, name="linear")(x)

            return taken

        return hk.switch(index, [branch("a"), branch("b")], x), hk.cond(index > 0, lambda: 1, lambda: 0)

    f = hk.transform_with_state(run)
    params, state = f.init(KEY, 0, X)
    assert sorted(params) == ["a/linear", "b/linear"]
    (result, flag), state = weft.jit(f.apply)(params, state, KEY, 1, X)
    np.testing.assert_allclose(result, np.asarray(X) @ np.asarray(params["b/linear"]["w"]), rtol=1e-6)
    assert int(flag) == 1 and (int(state["a"]["count"]), int(state["b"]["count"])) == (0, 1)


def test_remat_grad_and_vmap_keep_state() -> None:
    def run(x: Any) -> Any:
        def f(x: Any) -> Any:
            count()
            return wnp.sum(hk.Linear(1)(x) ** 2)

        value, gradient = hk.value_and_grad(hk.remat(f))(x)
        return value, gradient, hk.vmap(lambda row: row + count() * 0, split_rng=False)(x)

    f = hk.transform_with_state(run)
    params, state = f.init(KEY, X)
    (value, gradient, _), after = weft.jit(f.apply)(params, state, KEY, X)
    assert int(after["~"]["count"]) - int(state["~"]["count"]) == 2
    w = np.asarray(params["linear"]["w"])
    np.testing.assert_allclose(gradient, 2 * (np.asarray(X) @ w) @ w.T, rtol=1e-5)
    np.testing.assert_allclose(value, np.sum((np.asarray(X) @ w) ** 2), rtol=1e-5)


def test_layer_stack_is_a_loop_over_layers() -> None:
    f = hk.transform(lambda x: hk.layer_stack(3, name="stack")(lambda a: wnp.tanh(hk.Linear(3)(a)))(x))
    params = f.init(KEY, X)
    x = np.asarray(X)
    for w in np.asarray(params["stack/linear"]["w"]):
        x = np.tanh(x @ w)
    np.testing.assert_allclose(f.apply(params, None, X), x, rtol=1e-5)


def test_transparent_layer_stack_names_layers_as_a_loop_would() -> None:
    class Mapping:
        def stacked_to_flat(self, stacked_module_name: str, scan_idx: int) -> str:
            return stacked_module_name.replace("layer_0", f"layer_{scan_idx}")

        def flat_to_stacked(self, unstacked_module_name: str) -> tuple[str, int]:
            return "layer_0", int(unstacked_module_name.rpartition("_")[2])

    def stacked(x: Any) -> Any:
        stack = hk.layer_stack(3, transparent=True, transparency_map=Mapping())
        return stack(lambda a: hk.Linear(3, name="layer_0")(a))(x)

    def looped(x: Any) -> Any:
        for i in range(3):
            x = hk.Linear(3, name=f"layer_{i}")(x)
        return x

    f, g = hk.transform(stacked), hk.transform(looped)
    params = f.init(KEY, X)
    assert sorted(params) == ["layer_0", "layer_1", "layer_2"]
    np.testing.assert_allclose(f.apply(params, None, X), g.apply(params, None, X), rtol=1e-6)


def test_lift_creates_an_ensemble() -> None:
    def ensemble(x: Any) -> Any:
        member = hk.transform(lambda x: hk.nets.MLP([4, 1])(x))
        keys = hk.next_rng_keys(5) if hk.running_init() else None
        params = hk.lift(weft.vmap(member.init, in_axes=(0, None)), name="ensemble")(keys, x)
        return weft.vmap(member.apply, in_axes=(0, None, None))(params, None, x)

    f = hk.transform(ensemble)
    params = f.init(KEY, X)
    assert params["ensemble/mlp/~/linear_0"]["w"].shape == (5, 3, 4)
    assert f.apply(params, None, X).shape == (5, 2, 1)


# ------------------------------------------------------------------------------------------------- creators, getters


def test_custom_creators_getters_and_setters_run_from_the_outside_in() -> None:
    seen: list[str] = []

    def creator(name: str) -> Any:
        def create(following: Any, shape: Any, dtype: Any, init: Any, context: Any) -> Any:
            seen.append(f"{name} {context.full_name}")
            return following(shape, dtype, init)

        return create

    def getter(following: Any, value: Any, context: Any) -> Any:
        seen.append(f"get {context.module_name} {context.name}")
        return following(value * 2)

    def setter(following: Any, value: Any, context: Any) -> Any:
        return following(value + 10)

    def run() -> Any:
        with hk.custom_creator(creator("first")), hk.custom_creator(creator("second")), hk.custom_getter(getter):
            value = hk.get_parameter("a", [], init=wnp.ones)
        with hk.custom_setter(setter):
            hk.set_state("b", wnp.asarray(1.0))
        return value

    f = hk.transform_with_state(run)
    params, state = f.init(None)
    assert seen == ["first ~/a", "second ~/a", "get ~ a"]
    assert float(state["~"]["b"]) == 11
    assert float(f.apply(params, state, None)[0]) == 2


def test_do_not_store() -> None:
    def creator(following: Any, shape: Any, dtype: Any, init: Any, context: Any) -> Any:
        return hk.DO_NOT_STORE if context.module_name == "torso" else following(shape, dtype, init)

    def getter(following: Any, value: Any, context: Any) -> Any:
        return following(wnp.ones(context.original_shape) if value is hk.DO_NOT_STORE else value)

    def run(x: Any) -> Any:
        with hk.custom_creator(creator), hk.custom_getter(getter):
            return hk.Linear(1, name="tail")(hk.Linear(4, name="torso")(x))

    f = hk.transform(run)
    params = f.init(KEY, X)
    assert list(params) == ["tail"]
    np.testing.assert_allclose(f.apply(params, None, X), np.full((2, 4), 4.0) @ np.asarray(params["tail"]["w"]))


def test_interceptors_see_every_method() -> None:
    seen: list[tuple[str, str]] = []

    def interceptor(following: Any, args: Any, kwargs: Any, context: hk.MethodContext) -> Any:
        seen.append((type(context.module).__name__, context.method_name))
        result = following(*args, **kwargs)
        return result * 2 if context.method_name == "__call__" and isinstance(context.module, hk.Linear) else result

    def run(x: Any) -> Any:
        layer = hk.Linear(1, w_init=wnp.ones)
        with hk.intercept_methods(interceptor):
            return layer(x)

    f = hk.transform(run)
    np.testing.assert_allclose(f.apply(f.init(None, X), None, X), np.full((2, 1), 6.0))
    assert seen == [("Linear", "__call__")] * 2


# ------------------------------------------------------------------------------------------------------------ modules


@dataclasses.dataclass
class Sized(hk.Module):
    size: int
    name: str | None = None

    def __call__(self, x: Any) -> Any:
        return hk.Linear(self.size)(x)


def test_modules_may_be_dataclasses() -> None:
    def run(x: Any) -> Any:
        x = Sized(size=4)(x)
        x = Sized(3)(x)
        return Sized(2, name="other")(x), repr(Sized(5))

    f = hk.transform(run)
    params = f.init(KEY, X)
    assert {path: values["w"].shape for path, values in params.items()} == {
        "sized/linear": (3, 4),
        "sized_1/linear": (4, 3),
        "other/linear": (3, 2),
    }
    assert f.apply(params, None, X)[1] == "Sized(size=5)"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("MLP", "mlp"),
        ("ResNetV2", "res_net_v2"),
        ("ConvNet2D", "conv_net2_d"),
        ("HTTPServer", "http_server"),
        ("GRU4Rec", "gru4_rec"),
        ("_Foo", "__foo"),
        ("foo_Bar", "foo__bar"),
    ],
)
def test_default_names(name: str, path: str) -> None:
    result = hk.testing.transform_and_run(lambda: type(hk.Module)(name, (hk.Module,), {})().module_name)
    assert result() == path


def test_params_and_state_of_a_module() -> None:
    def run(x: Any) -> Any:
        norm, network = hk.BatchNorm(True, False, 0.9), hk.nets.MLP([2])
        network(norm(x, True))
        return sorted(network.params_dict()), sorted(norm.params_dict()), sorted(norm.state_dict())

    params, scale, state = hk.testing.transform_and_run(run)(X)
    assert params == ["mlp/~/linear_0/b", "mlp/~/linear_0/w"] and scale == ["batch_norm/scale"]
    assert state == [
        f"batch_norm/~/{kind}_ema/{name}" for kind in ("mean", "var") for name in ("average", "counter", "hidden")
    ]


def test_a_failure_leaves_nothing_behind() -> None:
    class Failing(hk.Module):
        def __call__(self) -> None:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        hk.transform(lambda: Failing()()).init(None)
    with pytest.raises(UnboundModuleError):
        hk.running_init()
    assert list(hk.transform(lambda: hk.Linear(2)(X)).init(KEY)) == ["linear"]


def test_transforms_may_be_nested() -> None:
    inner = hk.transform(lambda x: hk.Linear(2)(x))

    def outer(x: Any) -> Any:
        own = hk.Linear(3)(x)
        return inner.apply(inner.init(KEY, own), None, own), hk.running_init()

    f = hk.transform(outer)
    params = f.init(KEY, X)
    assert list(params) == ["linear"]
    result, initializing = f.apply(params, None, X)
    assert result.shape == (2, 2) and initializing is False


def test_lifted_transformations_do_not_leak() -> None:
    def run(x: Any) -> Any:
        x = hk.scan(lambda c, _: (c + count() * weft.random.uniform(hk.next_rng_key()), None), x, None, length=2)[0]
        x = hk.remat(lambda x: hk.BatchNorm(True, True, 0.9)(x, True))(x)
        x = hk.vmap(lambda row: hk.Linear(2)(row), split_rng=False)(x)
        return hk.cond(wnp.sum(x) > 0, lambda x: x * count(), lambda x: x - 1, x)

    f = hk.transform_with_state(run)
    with hk.config.context(check_jax_usage=True):
        params, state = weft.jit(f.init)(KEY, X)
        weft.jit(f.apply)(params, state, KEY, X)
        result, _ = f.apply(params, state, KEY, X)
    assert result.shape == (2, 2)


# ------------------------------------------------------------------------------------------------------------- errors


class NoName(hk.Module):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        (lambda: hk.Linear(3), UnboundModuleError, "Linear"),
        (lambda: hk.next_rng_key(), UnboundModuleError, "hk.next_rng_key"),
        (lambda: hk.transform(lambda: hk.Linear(3)(X)).init(None), MissingRngError, "'linear'"),
        (lambda: hk.transform(lambda: hk.Linear(3)(X)).init(X), MissingRngError, "init"),
        (lambda: hk.transform(lambda: hk.nets.MLP([3])(X)).apply({}, None), ParameterNotFoundError, "mlp/~/linear_0"),
        (
            lambda: hk.transform(lambda: hk.Linear(3)(X)).apply({"linear": {"w": wnp.ones((2, 2))}}, None),
            ParameterShapeError,
            "'w' of module 'linear'",
        ),
        (lambda: hk.transform(lambda: hk.Linear(3)(X)).apply(KEY, {}), TypeError, r"apply\(params, rng"),
        (lambda: hk.transform(lambda: 0).apply({"a": wnp.ones(2)}, None), TypeError, "'a'"),
        (lambda: hk.transform(count).init(None), ImmutableCollectionError, "transform_with_state"),
        (lambda: hk.transform_with_state(lambda: hk.get_state("a")).init(None), ParameterNotFoundError, "'a'"),
        (lambda: hk.transform(lambda: NoName()).init(None), ModuleDefinitionError, "NoName"),
        (lambda: hk.transform(lambda: hk.Linear(3, name="a b")).init(None), ModuleDefinitionError, "'a b'"),
        (
            lambda: hk.transform(lambda: [hk.Linear(3, name="a_2") for _ in "ab"]).init(None),
            NameInUseError,
            "'a_2'",
        ),
        (lambda: hk.transform(hk.transform(lambda: 0)), TypeError, "transformed already"),
        (lambda: hk.transform(lambda: hk.Conv2D(3, 3)(X)).init(KEY), ValueError, "'conv2_d'"),
        (lambda: hk.transform(lambda: hk.Linear(3)(wnp.ones((2, 3), int))).init(KEY), TypeError, "'linear'"),
        (lambda: hk.dropout(KEY, 1.5, X), ValueError, "1.5"),
        (
            lambda: hk.transform(lambda: hk.vmap(hk.Linear(3), split_rng=True)(X)).init(KEY),
            MissingRngError,
            "running_init",
        ),
        (
            lambda: hk.transform_with_state(
                lambda: hk.lift_with_state(hk.transform_with_state(count).init, name="q")[0](None)
            ).init(None),
            ParameterNotFoundError,
            "'q'",
        ),
        (
            lambda: hk.transform(
                lambda: [hk.transparent_lift(hk.transform(lambda: hk.Linear(3)(X)).init)(KEY) for _ in "ab"]
            ).init(None),
            NameInUseError,
            "'linear'",
        ),
    ],
)
def test_mistakes_raise_errors(run: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        run()
    if isinstance(caught.value, WeftError):
        assert caught.value.fix


def test_a_loop_may_not_create_state_that_init_did_not() -> None:
    f = hk.transform_with_state(lambda: hk.scan(lambda c, _: (c, count()), 0.0, None, length=2))
    with pytest.raises(ParameterNotFoundError, match="~/count"):
        f.apply({}, {}, None)
