"""Modules of `weft.linen`: variables, errors, copies, bindings and keys."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import weft
import weft.linen as nn
import weft.numpy as wnp
from weft import optim
from weft.errors import (
    ArgumentError,
    ImmutableCollectionError,
    MissingRngError,
    ModuleDefinitionError,
    NameInUseError,
    ParameterNotFoundError,
    ParameterShapeError,
    ScopeLeakError,
    UnboundModuleError,
)
from weft.linen.summary import make_table

T = TypeVar("T")
KEY = weft.random.key(0)
X = wnp.asarray(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))


def shapes(tree: Any) -> Any:
    return weft.tree.map(lambda leaf: tuple(leaf.shape), tree)


class Network(nn.Module):
    features: int = 5
    rate: float = 0.5

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.Dense(self.features)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.Dropout(self.rate, deterministic=not train)(nn.relu(x))
        return nn.Dense(2, name="out")(x)


# ------------------------------------------------------------------------------------------------------ what they are


def test_variables_have_the_layout_of_names() -> None:
    assert shapes(Network().init(KEY, X)) == {
        "params": {
            "Dense_0": {"kernel": (4, 5), "bias": (5,)},
            "BatchNorm_0": {"scale": (5,), "bias": (5,)},
            "out": {"kernel": (5, 2), "bias": (2,)},
        },
        "batch_stats": {"BatchNorm_0": {"mean": (5,), "var": (5,)}},
    }


def test_modules_are_values() -> None:
    assert Network(3) == Network(features=3) != Network(4)
    assert hash(Network(3)) == hash(Network(3))
    assert repr(Network(3)) == "Network(features=3, rate=0.5)"
    assert Network(3).clone(features=7) == Network(7)
    assert pickle.loads(pickle.dumps(nn.Dropout(0.5))) == nn.Dropout(0.5)


def test_init_is_the_same_under_jit_remat_and_with_any_input() -> None:
    model = Network()
    result = model.init(KEY, X)
    staged = weft.jit(lambda key: model.init(key, X))(KEY)
    remade = nn.remat(nn.Dense)(5).init(KEY, X)
    for other in (
        staged,
        model.init({"params": KEY}, X * 2),
        model.lazy_init(KEY, weft.ShapeDtypeStruct((3, 4), "f4")),
    ):
        assert weft.tree.structure(other) == weft.tree.structure(result)
        for left, right in zip(weft.tree.leaves(other), weft.tree.leaves(result), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-6)
    np.testing.assert_array_equal(remade["params"]["kernel"], nn.Dense(5).init(KEY, X)["params"]["kernel"])


def test_parameters_of_different_modules_differ() -> None:
    class Two(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(4)(x) + nn.Dense(4)(x)

    params = Two().init(KEY, X)["params"]
    assert not np.allclose(params["Dense_0"]["kernel"], params["Dense_1"]["kernel"])


def test_apply_writes_only_what_it_may_and_not_into_the_callers_dict() -> None:
    model = Network()
    variables = model.init(KEY, X)
    before = weft.tree.map(np.asarray, variables)
    quiet = model.apply(variables, X)
    loud, changed = model.apply(variables, X, train=True, mutable=["batch_stats"], rngs={"dropout": KEY})
    assert quiet.shape == loud.shape == (3, 2)
    assert list(changed) == ["batch_stats"]
    expected = 0.01 * (X @ variables["params"]["Dense_0"]["kernel"]).mean(0)
    np.testing.assert_allclose(changed["batch_stats"]["BatchNorm_0"]["mean"], expected, rtol=1e-4, atol=1e-7)
    weft.tree.map(np.testing.assert_array_equal, variables, before)


def test_keys_of_dropout_depend_on_the_call() -> None:
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            drop = nn.Dropout(0.5, deterministic=False)
            return drop(x), drop(x), nn.Dropout(0.5, deterministic=False)(x)

    ones = wnp.ones((40,))
    first, second, third = Twice().apply({}, ones, rngs={"dropout": KEY})
    assert len({np.asarray(x).tobytes() for x in (first, second, third)}) == 3
    again = Twice().apply({}, ones, rngs={"dropout": KEY})
    np.testing.assert_array_equal(again[0], first)
    assert set(np.unique(first)) == {0.0, 2.0}


def test_split_keys_differ_and_shared_keys_do_not() -> None:
    for split, distinct in ((True, 4), (False, 1)):
        loop = nn.vmap(nn.Dropout, variable_axes={}, split_rngs={"dropout": split})(0.5, deterministic=False)
        rows = np.asarray(loop.apply({}, wnp.ones((4, 50)), rngs={"dropout": KEY}))
        assert len({row.tobytes() for row in rows}) == distinct


def test_bound_modules_can_be_looked_into() -> None:
    class Coder(nn.Module):
        def setup(self) -> None:
            self.encoder = nn.Dense(3)
            self.decoder = nn.Dense(4)

        def __call__(self, x: Any) -> Any:
            return self.decoder(self.encoder(x))

    model = Coder()
    variables = model.init(KEY, X)
    bound = model.bind(variables)
    code = bound.encoder(X)
    np.testing.assert_allclose(bound.decoder(code), model.apply(variables, X), rtol=1e-6)
    encoder, inner = bound.encoder.unbind()
    np.testing.assert_allclose(encoder.apply(inner, X), code, rtol=1e-6)
    np.testing.assert_allclose(model.apply(variables, X, method=lambda m, x: m.encoder(x)), code, rtol=1e-6)
    assert bound.encoder.path == ("encoder",)
    with pytest.raises(AttributeError, match="inside of init and apply only"):
        model.encoder


def test_methods_by_name() -> None:
    class Model(nn.Module):
        def setup(self) -> None:
            self.dense = nn.Dense(3)

        def encode(self, x: Any) -> Any:
            return self.dense(x)

    variables = Model().init(KEY, X, method="encode")
    a = Model().apply(variables, X, method="encode")
    b = Model().apply(variables, X, method=Model.encode)
    c = Model().apply(variables, X, method=Model().encode)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)
    with pytest.raises(ModuleDefinitionError, match="Model must define __call__"):
        Model().apply(variables, X)


def test_nn_apply_and_init_take_functions() -> None:
    function = lambda module, x: module(x) * 2
    variables = nn.init(function, nn.Dense(3))(KEY, X)
    result, same = nn.init_with_output(function, nn.Dense(3))(KEY, X)
    weft.tree.map(np.testing.assert_array_equal, variables, same)
    np.testing.assert_array_equal(nn.apply(function, nn.Dense(3))(variables, X), result)


def test_interceptors_wrap_every_call() -> None:
    seen = []

    def note(proceed: Any, args: Any, kwargs: Any, context: Any) -> Any:
        seen.append((type(context.module).__name__, context.method_name))
        return proceed(*args, **kwargs) + (1 if isinstance(context.module, nn.Dense) else 0)

    variables = nn.Sequential([nn.Dense(3), nn.tanh]).init(KEY, X)
    plain = nn.Sequential([nn.Dense(3), nn.tanh])
    with nn.intercept_methods(note):
        result = plain.apply(variables, X)
    assert seen == [("Sequential", "__call__"), ("Dense", "__call__")]
    kernel = variables["params"]["layers_0"]["kernel"]
    np.testing.assert_allclose(result, np.tanh(np.asarray(X @ kernel) + 1), rtol=1e-5)

    class Uses(nn.Module):
        def setup(self) -> None:
            self.layer = nn.Dense(3)

        def __call__(self, x: Any) -> Any:
            return self.layer(x)

    def change(function: Any) -> Any:
        return lambda proceed, args, kwargs, context: function(proceed(*args, **kwargs))

    with nn.intercept_methods(change(lambda y: y + 1)), nn.intercept_methods(change(lambda y: y * 2)):
        assert nn.Sequential([lambda x: x]).apply({}, 7) == 15  # the outermost sees the result last
    methods: list[str] = []
    variables = Uses().init(KEY, X)
    with nn.intercept_methods(lambda p, args, kwargs, context: (methods.append(context.method_name), p(*args))[1]):
        Uses().apply(variables, X)
    assert methods == ["setup", "__call__", "__call__"]


def test_a_module_passed_twice_is_one_module() -> None:
    class Pair(nn.Module):
        left: nn.Module
        right: nn.Module

        def __call__(self, x: Any) -> Any:
            return self.left(x) + self.right(x)

    shared = nn.Dense(4)
    assert list(Pair(shared, shared).init(KEY, X)["params"]) == ["left"]
    assert sorted(Pair(nn.Dense(4), nn.Dense(4)).init(KEY, X)["params"]) == ["left", "right"]
    assert shared.scope is None, "the caller's module was bound"


def test_tabulate_counts_parameters_once() -> None:
    table = Network().tabulate(KEY, X)
    assert "Network Summary" in table and "out" in table and "float32[4,5]" in table
    total = sum(leaf.size for leaf in weft.tree.leaves(Network().init(KEY, X)))
    assert f"Total Parameters: {total} ({4 * total} B)" in table
    assert "Dense_0" not in Network().tabulate(KEY, X, depth=0).split("params")[0]
    assert sorted(Network().module_paths(KEY, X)) == ["", "BatchNorm_0", "Dense_0", "Dropout_0", "out"]


class TwoWays(nn.Module):
    """Two methods, each with submodules below its own name."""

    @nn.compact_name_scope
    def up(self, x: Any) -> Any:
        return nn.Dense(3)(x)

    @nn.compact_name_scope
    def down(self, x: Any) -> Any:
        return nn.Dense(4)(x)

    def __call__(self, x: Any) -> Any:
        return self.up(x), self.up(self.down(x))


def test_methods_with_names_of_their_own() -> None:
    variables = TwoWays().init(KEY, X)
    assert shapes(variables["params"]) == {
        "up": {"Dense_0": {"kernel": (4, 3), "bias": (3,)}},
        "down": {"Dense_0": {"kernel": (4, 4), "bias": (4,)}},
    }
    first, second = TwoWays().apply(variables, X)
    down = TwoWays().apply(variables, X, method="down")
    up = variables["params"]["up"]["Dense_0"]
    np.testing.assert_allclose(first, X @ up["kernel"] + up["bias"], rtol=1e-5)
    np.testing.assert_allclose(second, down @ up["kernel"] + up["bias"], rtol=1e-5)
    np.testing.assert_allclose(TwoWays().bind(variables).up(X), first, rtol=1e-6)
    with pytest.raises(ParameterNotFoundError, match="Module /up/Dense_0 has no parameter"):
        TwoWays().apply({}, X)
    with pytest.raises(UnboundModuleError, match="'up' of module TwoWays"):
        TwoWays().up(X)


def test_tabulate_counts_operations() -> None:
    from_sizes = 2 * 3 * 4 * 5 + 3 * 5  # a product and a sum for each weight and row, and the bias
    model = nn.Dense(5)
    table = model.tabulate(KEY, X, compute_flops=True, compute_vjp_flops=True)
    header, row = [line for line in table.split("\n") if "flops" in line or "Dense " in line][-2:]
    cells = dict(zip(*([cell.strip() for cell in line.split("│")] for line in (header, row)), strict=True))
    assert int(cells["flops"]) == from_sizes
    assert 2.5 * from_sizes < int(cells["vjp_flops"]) < 3.5 * from_sizes  # the value, and a product for each operand
    assert "flops" not in model.tabulate(KEY, X)
    assert "vjp_flops" not in model.tabulate(KEY, X, compute_flops=True)


class Lookup(nn.Module):
    """Arguments that are no arrays, keys of two streams, a collection besides parameters, no derivative."""

    @nn.compact
    def __call__(self, ids: Any, scale: int, train: bool = False) -> Any:
        self.variable("counts", "calls", lambda: wnp.zeros((), wnp.int32))
        noisy = nn.Dropout(0.5, deterministic=not train)(wnp.ones(ids.shape))
        return wnp.where(noisy > 1, ids * scale, ids)


def test_tabulate_counts_operations_of_any_call() -> None:
    rngs = {"params": KEY, "dropout": weft.random.key(1)}
    rows = make_table(Lookup(), rngs, compute_flops=True, compute_vjp_flops=True)(wnp.arange(6), 3, train=True)
    assert [row.path for row in rows] == [(), ("Dropout_0",)]
    assert rows[0].flops > rows[1].flops > 6 and rows[0].vjp_flops == 0 < rows[1].vjp_flops
    plain = make_table(Lookup(), rngs)(wnp.arange(6), 3)
    assert [(row.flops, row.vjp_flops) for row in plain] == [(-1, -1)] * 2


# -------------------------------------------------------------------------------------------------------------- errors


class Inner(nn.Module):
    size: int = 4

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(self.size)(x)


class Outer(nn.Module):
    size: int = 4

    def setup(self) -> None:
        self.block = Inner(self.size)

    def __call__(self, x: Any) -> Any:
        return self.block(x)


def test_errors_name_the_path_of_the_module() -> None:
    variables = Outer().init(KEY, X)
    with pytest.raises(ParameterShapeError, match=r"'kernel' of module /block/Dense_0 needs shape \(6, 4\)") as error:
        Outer().apply(variables, wnp.ones((3, 6)))
    assert "stored: (4, 4)" in str(error.value) and "test_linen_modules.py" in str(error.value)
    with pytest.raises(ParameterShapeError, match=r"/block/Dense_0 needs shape \(4, 5\)"):
        Outer(5).apply(variables, X)
    with pytest.raises(ParameterNotFoundError, match="Module /block/Dense_0 has no parameter 'kernel'"):
        Outer().apply({"params": {}}, X)
    with pytest.raises(MissingRngError, match="Module / needs a random key of stream 'dropout'"):
        nn.Dropout(0.5, deterministic=False).apply({}, X)
    model = nn.Sequential([nn.BatchNorm(use_running_average=False)])
    with pytest.raises(ImmutableCollectionError, match=r"Module /layers_0 writes variable 'mean' of collection 'batch"):
        model.apply(model.init(KEY, X), X)


def test_two_submodules_of_one_name() -> None:
    class Clash(nn.Module):
        first: str = "a"
        second: str = "a"

        @nn.compact
        def __call__(self, x: Any) -> Any:
            self.param("weight", nn.initializers.ones, (1,))
            return nn.Dense(4, name=self.first)(x) + nn.Dense(4, name=self.second)(x)

    with pytest.raises(NameInUseError, match="'a' cannot name a submodule of module /"):
        Clash().init(KEY, X)
    with pytest.raises(NameInUseError, match="'weight' cannot name a submodule of module /: a variable has"):
        Clash("b", "weight").init(KEY, X)
    assert sorted(Clash("b", "c").init(KEY, X)["params"]) == ["b", "c", "weight"]


def test_modules_that_are_bound_to_nothing() -> None:
    with pytest.raises(UnboundModuleError, match="'__call__' of module Dense needs variables"):
        nn.Dense(3)(X)
    with pytest.raises(UnboundModuleError, match="variables of module Dense"):
        nn.Dense(3).variables
    with pytest.raises(UnboundModuleError, match=r"nn\.scan got module Dense"):
        nn.scan(lambda m, c, x: (c, m(x)))(nn.Dense(3), 0.0, X)


def test_submodules_are_created_in_setup_or_in_the_compact_method() -> None:
    class Loose(nn.Module):
        def __call__(self, x: Any) -> Any:
            return nn.Dense(3)(x)

    with pytest.raises(ModuleDefinitionError, match=r"submodule Dense of module / \(Loose\) is made outside of setup"):
        Loose().init(KEY, X)

    class LooseParam(nn.Module):
        def __call__(self, x: Any) -> Any:
            return x * self.param("scale", nn.initializers.ones, (1,))

    with pytest.raises(ModuleDefinitionError, match=r"Parameter 'scale' of module / \(LooseParam\)"):
        LooseParam().init(KEY, X)


def test_a_module_may_have_several_compact_methods() -> None:
    class TwoCompact(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return self.other(nn.Dense(3)(x))

        @nn.compact
        def other(self, x: Any) -> Any:
            return nn.Dense(4)(x)

    variables = TwoCompact().init(KEY, X)
    assert list(variables["params"]) == ["Dense_0", "Dense_1"]
    assert list(TwoCompact().init(KEY, X, method="other")["params"]) == ["Dense_0"]


def test_attributes_are_set_in_setup_only() -> None:
    class Late(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            self.dense = nn.Dense(3)
            return x

    with pytest.raises(ModuleDefinitionError, match=r"Attribute 'dense' of module / \(Late\) is set outside of setup"):
        Late().init(KEY, X)

    class Overwrites(nn.Module):
        size: int = 3

        def setup(self) -> None:
            self.size = 4

        def __call__(self, x: Any) -> Any:
            return x

    with pytest.raises(ModuleDefinitionError, match="Field 'size'"):
        Overwrites().init(KEY, X)
    layer = nn.Dense(3)
    layer.features = 4  # belongs to no module yet
    assert layer.init(KEY, X)["params"]["kernel"].shape[1] == 4

    class Later(nn.Module):
        size: int = field(init=False)

        def setup(self) -> None:
            self.size = 4

        def __call__(self, x: Any) -> Any:
            return x * self.size

    np.testing.assert_array_equal(Later().apply({}, X), X * 4)


def test_bound_modules_have_no_hash() -> None:
    assert hash(nn.Dense(3)) == hash(nn.Dense(3))
    with pytest.raises(TypeError, match="Dense is bound to variables and cannot be hashed"):
        hash(nn.Dense(3).bind({}))


def test_setup_may_assign_generic_modules() -> None:
    class Identity(nn.Module, Generic[T]):
        def __call__(self, x: T) -> T:
            return x

    class Outer(nn.Module):
        def setup(self) -> None:
            self.inner = Identity[Any]()

        def __call__(self, x: Any) -> Any:
            return self.inner(x)

    np.testing.assert_array_equal(Outer().apply({}, X), X)


def test_fields_of_a_class_come_before_parent_and_name() -> None:
    class Base(nn.Module):
        size: int

    class Wide(Base):
        other: int

    assert [one.name for one in dataclasses.fields(Wide)] == ["size", "other", "parent", "name"]
    again = pickle.loads(pickle.dumps(nn.module.UNSPECIFIED))
    assert again is nn.module.UNSPECIFIED


def test_a_module_twice_in_a_dict_has_the_name_of_the_first_key() -> None:
    class Both(nn.Module):
        parts: Any

        @nn.compact
        def __call__(self, x: Any) -> Any:
            return self.parts["foo"](x) + self.parts["bar"](x)

    layer = nn.Dense(3)
    assert list(Both({"foo": layer, "bar": layer}).init(KEY, X)["params"]) == ["parts_bar"]


def test_lazy_init_refuses_parameters_that_depend_on_inputs() -> None:
    class Depends(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return x * self.param("scale", lambda key: x)

    shape = weft.ShapeDtypeStruct((2, 3), np.float32)
    assert nn.Dense(4).lazy_init(KEY, shape)["params"]["kernel"].shape == (3, 4)
    with pytest.raises(ArgumentError, match="cannot make 'params/scale'"):
        Depends().lazy_init(KEY, shape)


def test_perturbations_that_were_passed_must_be_there() -> None:
    class Perturbed(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return self.perturb("before", nn.Dense(3)(x))

    variables = Perturbed().init(KEY, X)
    Perturbed().apply({"params": variables["params"]}, X)
    with pytest.raises(ParameterNotFoundError, match="Perturbation collection"):
        Perturbed().apply({"params": variables["params"], "perturbations": {}}, X)


def test_fields_that_are_keyword_only_stay_so_in_subclasses() -> None:
    @nn.kw_only_dataclasses.dataclass
    class Base:
        rate: int = nn.kw_only_dataclasses.field(default=1, kw_only=True)

    @nn.kw_only_dataclasses.dataclass
    class Wide(Base):
        size: float
        rate: int = 2

    assert dataclasses.asdict(Wide(4)) == {"rate": 2, "size": 4}
    assert list(inspect.signature(Wide.__init__).parameters) == ["self", "size", "rate"]


def test_post_init_without_super_is_named() -> None:
    class Forgets(nn.Module):
        def __post_init__(self) -> None:
            pass

        def __call__(self, x: Any) -> Any:
            return x

    with pytest.raises(ModuleDefinitionError, match=r"super\(\).__post_init__"):
        Forgets()(X)


def test_modules_do_not_outlive_their_call() -> None:
    leaked = []

    class Keeps(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            leaked.append(nn.Dense(3))
            return leaked[0](x)

    Keeps().init(KEY, X)
    with pytest.raises(ScopeLeakError, match="Module /Dense_0 cannot use its variables here"):
        leaked[0](X)


def test_a_lifted_function_may_not_change_what_it_does_not_see() -> None:
    class Sneaks(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            hidden = nn.Dropout(0.5, deterministic=False)
            step = lambda module, carry, x: (carry, hidden(x) + module(x))
            loop = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
            return loop(nn.Dense(4), 0.0, x)

    with pytest.raises(ScopeLeakError, match=r"Module /Dropout_0 writes a variable or draws a key inside of nn.scan"):
        Sneaks().init({"params": KEY, "dropout": KEY}, X)


def test_options_passed_twice_or_not_at_all() -> None:
    with pytest.raises(ValueError, match=r"'deterministic' must be given .* in neither"):
        nn.Dropout(0.5).apply({}, X)
    with pytest.raises(ValueError, match="it was given in both"):
        nn.Dropout(0.5, deterministic=True).apply({}, X, deterministic=True)


def test_transformations_refuse_instances() -> None:
    with pytest.raises(TypeError, match="Pass the class"):
        nn.remat(nn.Dense(3))


# ------------------------------------------------------------------------------------------------------------ training


def test_a_train_state_steps() -> None:
    model = nn.Dense(1)
    state = nn.TrainState.create(apply_fn=model.apply, params=model.init(KEY, X)["params"], tx=optim.sgd(0.1))
    target = X.sum(1, keepdims=True)

    @weft.jit
    def step(state: Any) -> Any:
        loss = lambda params: ((state.apply_fn({"params": params}, X) - target) ** 2).mean()
        value, grads = weft.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    losses = []
    for _ in range(60):
        state, loss = step(state)
        losses.append(float(loss))
    assert int(state.step) == 60
    assert losses[-1] < 0.05 * losses[0]


def test_nn_jit_is_traced_once() -> None:
    traced = []

    class Counts(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            traced.append(1)
            return nn.Dense(4)(x)

    model = nn.jit(Counts)()
    variables = model.init(KEY, X)
    first = len(traced)
    a, b = model.apply(variables, X), model.apply(variables, X + 1)
    assert len(traced) == first + 1
    kernel = variables["params"]["Dense_0"]["kernel"]
    np.testing.assert_allclose(b - a, np.broadcast_to(np.asarray(kernel).sum(0), (3, 4)), rtol=1e-4, atol=1e-5)


def test_jitted_dropout_draws_new_keys() -> None:
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            drop = nn.jit(nn.Dropout)(0.5, deterministic=False)
            return drop(x), drop(x)

    for _ in range(2):
        first, second = Twice().apply({}, wnp.ones((50,)), rngs={"dropout": KEY})
        assert not np.array_equal(first, second)
