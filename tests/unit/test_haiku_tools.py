"""Tools around modules: data structures, policies, settings, tables, graphs, and conversion between linen and haiku."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.haiku as hk
import weft.linen as nn
import weft.numpy as wnp
from weft.errors import ParameterNotFoundError, ScopeLeakError
from weft.haiku import precision
from weft.haiku.experimental import flax, jaxpr_info
from weft.modules.convert import Pair, from_plain, haiku_to_linen, linen_to_haiku, to_plain

KEY = weft.random.PRNGKey(0)
X = wnp.asarray(np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32))
TREE = {"b": {"w": np.ones(2), "x": np.ones(3)}, "a": {"z": np.ones((4, 5))}}


def test_data_structures() -> None:
    data = hk.data_structures
    assert [(path, name) for path, name, _ in data.traverse(TREE)] == [("a", "z"), ("b", "w"), ("b", "x")]
    assert data.map(lambda path, name, _: path + name, TREE) == {"a": {"z": "az"}, "b": {"w": "bw", "x": "bx"}}
    yes, no = data.partition(lambda path, name, value: name == "w", TREE)
    assert (list(yes), {path: list(values) for path, values in no.items()}) == (["b"], {"a": ["z"], "b": ["x"]})
    merged = data.merge(yes, no)
    assert data.is_subset(subset=TREE, superset=merged) and data.is_subset(subset=merged, superset=TREE)
    assert not data.is_subset(subset=TREE, superset=yes)
    assert data.filter(lambda path, name, value: value.size > 2, TREE).keys() == {"a", "b"}
    assert (data.tree_size(TREE), data.tree_bytes(TREE)) == (25, 200)
    with pytest.raises(ValueError, match="a/b"):
        data.merge({"a": {"b": 1}}, {"a": {"b": 2}}, check_duplicates=True)
    frozen = data.to_immutable_dict(TREE)
    with pytest.raises(TypeError):
        frozen["c"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        frozen["b"]["w"] = 1  # type: ignore[index]
    assert data.to_immutable_dict({"a": {"b": 1}}) == {"a": {"b": 1}} != data.to_immutable_dict({"a": {"b": 2}})
    doubled = weft.tree.map(lambda x: 2 * x, frozen)
    assert float(data.to_mutable_dict(doubled)["b"]["w"][0]) == 2


def test_settings_last_as_long_as_their_with() -> None:
    def shown() -> str:
        return hk.testing.transform_and_run(lambda: repr(hk.Linear(3)))()

    assert shown() == "Linear(output_size=3)"
    with hk.config.context(module_auto_repr=False):
        assert shown().startswith("<")
    assert shown() == "Linear(output_size=3)"
    with hk.config.context(rng_reserve_size=3):
        sequence = hk.PRNGSequence(0)
        next(sequence)
        assert len(sequence.internal_state[1]) == 2
    for change in (hk.config.set, lambda **args: hk.config.context(**args).__enter__()):
        with pytest.raises(ValueError, match=r"(?s)restore_flatmap=True.*to_immutable_dict"):
            change(restore_flatmap=True)
    hk.config.set(restore_flatmap=False)


def test_leaks_are_found_on_request() -> None:
    def leaking() -> Any:
        weft.jit(lambda x: hk.set_state("a", x * 2))(1.0)

    with hk.config.context(check_jax_usage=True), pytest.raises(ScopeLeakError, match="side effect"):
        hk.transform_with_state(leaking).init(None)


TRANSFORMATIONS = {
    "jit": weft.jit,
    "vmap": weft.vmap,
    "grad": lambda f: weft.grad(lambda x: f(x).sum()),
    "remat": weft.checkpoint,
    "scan": lambda f: lambda x: weft.lax.scan(lambda c, y: (c, f(y)), None, x),
}
EFFECTS = {
    "get_parameter": lambda: hk.get_parameter("w", (), init=wnp.ones),
    "get_state": lambda: hk.get_state("s", (), init=wnp.ones),
    "set_state": lambda: hk.set_state("s", wnp.ones(())),
    "next_rng_key": hk.next_rng_key,
    "with_rng": lambda: hk.with_rng(KEY).__enter__(),
}


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_guarded_effects_are_refused_in_bare_transformations(transformation: str) -> None:
    for name, effect in EFFECTS.items():

        def f(effect: Any = effect) -> Any:
            return TRANSFORMATIONS[transformation](lambda x: [effect(), x][1])(wnp.ones(1))

        with hk.config.context(check_jax_usage=True), pytest.raises(ScopeLeakError, match=f"hk.{name} has a side"):
            hk.transform_with_state(f).init(KEY)


def test_guarded_modules_run_in_transformations_of_haiku() -> None:
    def f(x: Any) -> Any:
        layer = hk.Linear(6)
        y = hk.vmap(layer, split_rng=False)(x)
        y, _ = hk.scan(lambda c, _: (hk.remat(layer)(c), None), y, None, length=2)
        return y.sum() + hk.grad(lambda z: layer(z).sum())(x).sum()

    with hk.config.context(check_jax_usage=True):
        model = hk.transform(f)
        assert np.isfinite(weft.jit(model.apply)(model.init(KEY, X), None, X))


def test_policies() -> None:
    policy = precision.get_policy("params=float32,compute=bfloat16,output=float16")
    assert str(policy) == "p=full,c=bf16,o=f16"
    seen: list[Any] = []

    class Scaled(hk.Module):
        def __call__(self, x: Any) -> Any:
            w = hk.get_parameter("w", [], init=wnp.ones)
            seen.append((str(x.dtype), str(w.dtype), str(hk.mixed_precision.current_policy())))
            return x * w

    f = hk.transform(lambda x: Scaled()(x))
    with hk.mixed_precision.push_policy(Scaled, policy):
        params = f.init(None, X)
        assert str(f.apply(params, None, X).dtype) == "float16"
    assert str(params["scaled"]["w"].dtype) == "float32"
    assert seen == [("bfloat16", "bfloat16", str(policy))] * 2
    assert str(f.apply(params, None, X).dtype) == "float32"
    hk.mixed_precision.set_policy(Scaled, policy)
    assert hk.mixed_precision.get_policy(Scaled) == policy
    hk.mixed_precision.clear_policy(Scaled)
    assert hk.mixed_precision.get_policy(Scaled) is None
    with pytest.raises(ValueError, match="'float17'"):
        precision.get_policy("params=float17")


def test_loss_scale_shrinks_and_grows() -> None:
    scale = precision.DynamicLossScale(wnp.asarray(8.0), period=2)
    tree = {"a": wnp.ones(2)}
    np.testing.assert_allclose(scale.unscale(scale.scale(tree))["a"], tree["a"])
    step = weft.jit(lambda scale, finite: scale.adjust(finite))
    assert float(step(scale, False).loss_scale) == 4
    assert float(step(step(scale, True), True).loss_scale) == 16
    assert not bool(precision.all_finite({"a": wnp.asarray([1.0, np.inf])}))


def test_tables_and_graphs() -> None:
    def f(x: Any) -> Any:
        return hk.nets.MLP([2, 1])(x)

    table = hk.experimental.tabulate(f)(X)
    assert "mlp/~/linear_0 (Linear)" in table and "w: f32[6,2]" in table and "| 17 " in table
    calls = hk.experimental.eval_summary(f)(X)
    assert [call.context.module.module_name for call in calls] == ["mlp", "mlp/~/linear_0", "mlp/~/linear_1"]
    transformed = hk.transform(f)
    params = transformed.init(KEY, X)
    text = hk.to_dot(lambda params, x: transformed.apply(params, None, x))(params, X)
    assert text.startswith("digraph") and '"linear_0"' in text and text.count("{") == text.count("}")
    info = jaxpr_info.make_model_info(transformed.apply)(params, None, X)
    assert info.total_param_size == 17 and "linear_0" in jaxpr_info.format_module(info)
    assert "linear_1" in jaxpr_info.as_html_page(info, 0)


def test_optimized_use_of_keys_splits_once() -> None:
    def draws() -> Any:
        return [hk.next_rng_key() for _ in range(3)]

    jaxpr = weft.make_jaxpr(lambda key: hk.transform(hk.experimental.optimize_rng_use(draws)).apply({}, key))(KEY)
    plain = weft.make_jaxpr(lambda key: hk.transform(draws).apply({}, key))(KEY)
    assert len(jaxpr.eqns) < len(plain.eqns)


def test_deferred_module_is_created_when_used() -> None:
    def run(x: Any) -> Any:
        encoder = hk.Linear(2)
        decoder = hk.Deferred(lambda: hk.Linear(encoder.input_size))
        return decoder(encoder(x)).shape

    assert hk.testing.transform_and_run(run)(X) == (4, 6)


# ----------------------------------------------------------------------------------------------------------- converters


class Net(nn.Module):
    """Every kind of layer that both linen and haiku have."""

    @nn.compact
    def __call__(self, x: Any, ids: Any, is_training: bool) -> Any:
        image = wnp.reshape(nn.Dense(48)(x), (4, 4, 4, 3))
        image = nn.Conv(5, (3, 3))(image)
        image = nn.BatchNorm(use_running_average=not is_training, momentum=0.9, epsilon=1e-5)(image)
        image = nn.ConvTranspose(6, (2, 2), strides=(2, 2))(image)
        tokens = nn.Embed(7, 6)(ids) + wnp.mean(image, axis=(1, 2))[:, None]
        tokens = nn.LayerNorm(epsilon=1e-5)(tokens)
        tokens = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=6, out_features=6)(tokens, tokens)
        cell = nn.OptimizedLSTMCell(3)
        carry = (wnp.full((4, 3), 0.5), wnp.full((4, 3), 0.25))
        return cell(carry, tokens[:, 0])[1]


def same_in_haiku(x: Any, ids: Any, is_training: bool) -> Any:
    image = wnp.reshape(hk.Linear(48)(x), (4, 4, 4, 3))
    image = hk.Conv2D(5, 3)(image)
    image = hk.BatchNorm(True, True, 0.9)(image, is_training)
    image = hk.Conv2DTranspose(6, 2, stride=2)(image)
    tokens = hk.Embed(7, 6)(ids) + wnp.mean(image, axis=(1, 2))[:, None]
    tokens = hk.LayerNorm(-1, True, True)(tokens)
    attention = hk.MultiHeadAttention(2, 3, w_init=hk.initializers.VarianceScaling())
    tokens = attention(tokens, tokens, tokens)
    state = hk.LSTMState(cell=wnp.full((4, 3), 0.5), hidden=wnp.full((4, 3), 0.25))
    return hk.LSTM(3)(tokens[:, 0], state)[0]


PAIRS = [
    Pair("Dense_0", "linear"),
    Pair("Conv_0", "conv2_d"),
    Pair("BatchNorm_0", "batch_norm", rank=4),
    Pair("ConvTranspose_0", "conv2_d_transpose", "conv_transpose"),
    Pair("Embed_0", "embed"),
    Pair("LayerNorm_0", "layer_norm"),
    Pair("MultiHeadDotProductAttention_0", "multi_head_attention", heads=2),
    Pair("OptimizedLSTMCell_0", "lstm"),
]
IDS = wnp.asarray([[0, 1], [2, 3], [4, 5], [6, 0]])


def test_parameters_and_state_are_converted() -> None:
    variables = Net().init(KEY, X, IDS, True)
    f = hk.transform_with_state(same_in_haiku)
    params, state = linen_to_haiku(variables, PAIRS)
    shapes = weft.eval_shape(lambda: f.init(KEY, X, IDS, True))
    assert weft.tree.structure((params, state)) == weft.tree.structure(shapes)
    assert weft.tree.all(weft.tree.map(lambda a, b: a.shape == b.shape, (params, state), shapes))

    ours, after = f.apply(params, state, None, X, IDS, True)
    theirs, changed = Net().apply(variables, X, IDS, True, mutable=["batch_stats"])
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    # Running averages go on as they would have on the other side.
    back = haiku_to_linen(params, after, PAIRS)
    for name in ("mean", "var"):
        np.testing.assert_allclose(
            back["batch_stats"]["BatchNorm_0"][name], changed["batch_stats"]["BatchNorm_0"][name], rtol=1e-4, atol=1e-6
        )
    np.testing.assert_allclose(
        f.apply(params, after, None, X, IDS, False)[0], Net().apply(back, X, IDS, False), rtol=1e-4, atol=1e-5
    )


def test_conversion_round_trips() -> None:
    variables = Net().init(KEY, X, IDS, True)
    back = haiku_to_linen(*linen_to_haiku(variables, PAIRS), PAIRS)
    assert weft.tree.structure(back) == weft.tree.structure({**variables})
    weft.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), back, {**variables})


def test_plain_trees() -> None:
    params = hk.transform(lambda x: hk.nets.MLP([2])(x)).init(KEY, X)
    plain = to_plain(params)
    assert type(plain["mlp/~/linear_0"]["w"]) is np.ndarray
    restored = from_plain(plain)
    assert isinstance(restored["mlp/~/linear_0"]["w"], weft.Array)
    np.testing.assert_array_equal(restored["mlp/~/linear_0"]["w"], params["mlp/~/linear_0"]["w"])


@pytest.mark.parametrize(
    "module", [nn.Dense(3), nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=4)], ids=["linear", "attention"]
)
def test_a_module_that_is_the_whole_model_is_converted(module: Any) -> None:
    variables = module.init(weft.random.key(0), wnp.ones((2, 4)))
    pairs = [Pair("", "model", heads=2)]
    params, state = linen_to_haiku(variables, pairs)
    assert not state and all(path.split("/")[0] == "model" for path in params)
    again = haiku_to_linen(params, state, pairs)
    assert weft.tree.structure(again) == weft.tree.structure(variables)
    assert all(map(np.array_equal, weft.tree.leaves(again), weft.tree.leaves(variables)))


def test_converters_are_complete() -> None:
    variables = Net().init(KEY, X, IDS, True)
    with pytest.raises(ValueError, match="'Dense_0'"):
        linen_to_haiku(variables, PAIRS[1:])
    with pytest.raises(ParameterNotFoundError, match="'Dense_9'"):
        linen_to_haiku(variables, [Pair("Dense_9", "linear"), *PAIRS])
    params, state = linen_to_haiku(variables, PAIRS)
    with pytest.raises(ValueError, match="'lstm/linear'"):
        haiku_to_linen(params, state, PAIRS[:-1])
    with pytest.raises(ValueError, match="heads"):
        haiku_to_linen(params, state, [pair._replace(heads=None) for pair in PAIRS])


def test_linen_inside_and_outside() -> None:
    f = hk.transform_with_state(lambda x: flax.lift(nn.BatchNorm(use_running_average=False), name="norm")(x))
    params, state = f.init(KEY, X)
    assert sorted(params) == ["norm/~"] and sorted(state) == ["norm/batch_stats/~"]
    result, after = f.apply(params, state, None, X)
    np.testing.assert_allclose(np.mean(np.asarray(result), axis=0), 0, atol=1e-6)
    assert not np.allclose(after["norm/batch_stats/~"]["mean"], state["norm/batch_stats/~"]["mean"])

    module = flax.Module(hk.transform(lambda x: hk.Linear(2)(x)))
    variables = module.init(KEY, X)
    assert module.apply(variables, X).shape == (4, 2)
    assert flax.flatten_flax_to_haiku({"a": {"b": {"w": 1}}, "c": 2}) == {"a/b": {"w": 1}, "~": {"c": 2}}


def test_linen_modules_are_lifted_once_for_all_calls() -> None:
    def f(x: Any) -> Any:
        layer = flax.lift(nn.Dense(6), name="dense")
        return layer(layer(x))

    model = hk.transform(f)
    params = model.init(KEY, X)
    assert {path: sorted(values) for path, values in params.items()} == {"dense/~": ["bias", "kernel"]}
    assert model.apply(params, None, X).shape == X.shape
    unused = hk.transform_with_state(lambda: flax.lift(nn.Dense(1), name="dense") and None)
    assert unused.init(KEY) == ({}, {})
    module = flax.Module.create(hk.nets.MLP, [3])
    variables = module.init(KEY, X)
    assert sorted(variables["params"]["mlp"]["~"]["linear_0"]) == ["b", "w"]
    assert module.apply(variables, X).shape == (4, 3)


def test_state_of_a_module_for_linen_is_that_of_init() -> None:
    def count() -> Any:
        steps = hk.get_state("steps", (), init=wnp.zeros)
        hk.set_state("steps", steps + 1)
        return steps

    module = flax.Module(hk.transform_with_state(count))
    variables = module.init(KEY)
    assert variables == {"state": {"~": {"steps": 0}}}
    for i in range(3):
        steps, variables = module.apply(variables, mutable=["state"])
        assert int(steps) == i


def test_lifted_linen_modules_take_keys() -> None:
    class Noise(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return x + weft.random.normal(self.make_rng("noise"), x.shape)

    model = hk.transform(lambda x: flax.lift(Noise(), name="n")(x, rngs={"noise": hk.next_rng_key()}))
    assert model.apply(model.init(KEY, X), KEY, X).shape == X.shape


def test_tables_of_transformed_and_compiled_functions() -> None:
    model = hk.transform(lambda: hk.Linear(2)(X))
    rows = [row.module_details.module.module_name for row in hk.experimental.eval_summary(model)()]
    assert rows == ["linear"]
    for f in (model.init, model.apply, weft.jit(model.init), weft.jit(model.apply)):
        assert [row.module_details.module.module_name for row in hk.experimental.eval_summary(f)()] == rows
    compiled = weft.jit(hk.transform(lambda x: hk.Linear(2)(x)).apply)
    params = model.init(KEY)
    compiled(params, None, X)
    calls = hk.experimental.eval_summary(lambda x: compiled(params, None, x))(X)
    assert len(calls) == 1


def test_policies_that_were_pushed_can_be_cleared() -> None:
    class Half(hk.Module):
        def __call__(self) -> Any:
            return hk.get_parameter("w", (), init=wnp.ones)

    class Pushes(hk.Module):
        def __call__(self) -> None:
            with hk.mixed_precision.push_policy(Pushes, policy):
                pass

    policy = precision.get_policy("params=float16,compute=float16,output=float16")
    run = lambda: hk.testing.transform_and_run(lambda: Half()())().dtype
    with hk.mixed_precision.push_policy(Half, policy):
        assert run() == wnp.float16
        hk.mixed_precision.clear_policy(Half)
        assert run() == wnp.float32
    with pytest.raises(ValueError, match="inside of a method of the same class"):
        hk.testing.transform_and_run(lambda: Pushes()())()
