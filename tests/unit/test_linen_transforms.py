"""Lifted transformations return what the same modules return without them, one by one."""

from __future__ import annotations

import functools
import gc
from typing import Any

import numpy as np
import pytest

import weft
import weft.linen as nn
import weft.numpy as wnp

KEY = weft.random.key(0)
X = wnp.asarray(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))


def close(left: Any, right: Any) -> None:
    assert weft.tree.structure(left) == weft.tree.structure(right)
    weft.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), left, right)


def element(tree: Any, index: int, axis: int = 0) -> Any:
    return weft.tree.map(lambda leaf: wnp.take(leaf, index, axis), tree)


class Layer(nn.Module):
    """Carry, a state and a sown value."""

    @nn.compact
    def __call__(self, x: Any, _: Any = None) -> Any:
        count = self.variable("counts", "calls", lambda: wnp.zeros((), wnp.int32))
        count.value += 1
        self.sow("intermediates", "input", x)
        x = nn.Dense(4)(nn.tanh(x))
        return x, x.sum()


def test_vmap_is_a_loop_over_elements() -> None:
    for axis in (0, 1):
        many = nn.vmap(nn.Dense, variable_axes={"params": axis}, split_rngs={"params": True})(5, bias_init=nn.ones)
        variables = many.init(KEY, X)
        kernels = variables["params"]["kernel"]
        assert kernels.shape == ((3, 4, 5) if axis == 0 else (4, 3, 5))
        assert len({np.asarray(element(kernels, i, axis)).tobytes() for i in range(3)}) == 3
        rows = [nn.Dense(5).apply(element(variables, i, axis), X[i]) for i in range(3)]
        close(many.apply(variables, X), wnp.stack(rows))


def test_scan_is_a_loop_over_layers() -> None:
    loop = nn.scan(
        Layer,
        variable_axes={"params": 0, "intermediates": 0, "counts": 0},
        split_rngs={"params": True},
        length=3,
    )()
    variables = loop.init(KEY, X, None)
    (y, sums), changed = loop.apply(variables, X, None, mutable=["counts", "intermediates"])
    carry, expected = X, []
    for i in range(3):
        (carry, total), inner = Layer().apply(element(variables, i), carry, mutable=["counts", "intermediates"])
        expected.append((total, inner))
    close(y, carry)
    close(sums, wnp.stack([total for total, _ in expected]))
    for i in range(3):
        close(element(changed, i), expected[i][1])


def test_a_carried_variable_is_passed_between_iterations() -> None:
    class Counter(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            self.variable("state", "total", wnp.zeros, (4,))

            def step(module: Any, carry: Any, x: Any) -> Any:
                total = module.get_variable("state", "total") + x
                module.put_variable("state", "total", total)
                return carry + 1, total

            return nn.scan(step, variable_carry="state")(self, 0, x)

    variables = Counter().init(KEY, X)
    (count, totals), changed = Counter().apply({"state": {"total": wnp.ones(4)}}, X, mutable=["state"])
    assert int(count) == 3 and list(variables) == ["state"]
    close(totals, 1 + wnp.cumsum(X, 0))
    close(changed, {"state": {"total": 1 + X.sum(0)}})


@pytest.mark.parametrize("lift", [nn.remat, nn.jit, nn.fold_rngs])
def test_calls_change_nothing_but_how_it_is_computed(lift: Any) -> None:
    plain, lifted = Layer(), lift(Layer)()
    variables = plain.init(KEY, X)
    if lift is nn.remat:  # the others draw keys of their own first, as in Flax
        close(lifted.init(KEY, X), variables)
    mutable = ["counts", "intermediates"]
    close(lifted.apply(variables, X, mutable=mutable), plain.apply(variables, X, mutable=mutable))
    others = {"counts": variables["counts"]}

    def loss(module: Any) -> Any:
        run = lambda params: (module.apply({"params": params, **others}, X, mutable=mutable)[0][0] ** 2).sum()
        return weft.grad(run)(variables["params"])

    close(loss(lifted), loss(plain))


def test_remat_computes_again_in_the_backward_pass() -> None:
    def products(module: Any) -> int:
        variables = module.init(KEY, X)
        text = str(weft.make_jaxpr(weft.grad(lambda v: (module.apply(v, X) ** 2).sum()))(variables))
        return text.count("dot_general")

    class Deep(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(3):
                x = nn.tanh(nn.Dense(4)(x))
            return x

    assert products(nn.remat(Deep)()) > products(Deep())


def test_branches_share_their_variables() -> None:
    class Either(nn.Module):
        @nn.compact
        def __call__(self, x: Any, index: Any) -> Any:
            layer, bias = nn.Dense(4), nn.Dense(4)
            run = [lambda m, x: m[0](x), lambda m, x: m[1](x) * 2, lambda m, x: m[0](m[1](x))]
            for one in (layer, bias):
                one(x)
            by_switch = nn.switch(index, run, (layer, bias), x)
            return by_switch, nn.cond(index == 0, run[0], run[1], (layer, bias), x)

    variables = Either().init(KEY, X, 0)
    params = variables["params"]
    first = lambda x: nn.Dense(4).apply({"params": params["Dense_0"]}, x)
    second = lambda x: nn.Dense(4).apply({"params": params["Dense_1"]}, x)
    run = weft.jit(Either().apply)
    close(run(variables, X, 0), (first(X), first(X)))
    close(run(variables, X, 1), (second(X) * 2, second(X) * 2))
    close(run(variables, X, 2), (first(second(X)), second(X) * 2))


def test_a_branch_that_writes_nothing_keeps_what_was_there() -> None:
    class Maybe(nn.Module):
        @nn.compact
        def __call__(self, x: Any, yes: Any) -> Any:
            self.variable("state", "count", lambda: wnp.zeros(()))

            def count(module: Any, x: Any) -> Any:
                module.put_variable("state", "count", module.get_variable("state", "count") + 1)
                return x

            return nn.cond(yes, count, lambda module, x: -x, self, x)

    variables = Maybe().init(KEY, X, False)
    for yes in (True, False):
        _, changed = Maybe().apply(variables, X, yes, mutable=["state"])
        assert float(changed["state"]["count"]) == float(yes)


def test_while_loop_splits_keys_by_iteration() -> None:
    class Noise(nn.Module):
        @nn.compact
        def __call__(self) -> Any:
            def body(module: Any, carry: Any) -> Any:
                i, drawn = carry
                draw = weft.random.normal(module.make_rng("noise"))
                return i + 1, drawn.at[i].set(draw)

            start = (wnp.asarray(0), wnp.zeros(4))
            return nn.while_loop(lambda m, c: c[0] < 4, body, self, start, split_rngs={"noise": True})

    _, drawn = Noise().apply({}, rngs={"noise": KEY})
    assert len(set(np.asarray(drawn).tolist())) == 4


def test_map_variables_ties_weights() -> None:
    class Tied(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            transpose = lambda tree: weft.tree.map(lambda leaf: leaf.T, tree)
            dense = nn.Dense(7, use_bias=False)
            code = dense(x)
            back = nn.map_variables(lambda m, y: m.clone(features=4, parent=m.scope)(y), "params", transpose)
            return code, back(dense, code)

    variables = Tied().init(KEY, X)
    kernel = variables["params"]["Dense_0"]["kernel"]
    _, back = Tied().apply(variables, X)
    close(back, X @ kernel @ kernel.T)


def test_derivatives_of_modules() -> None:
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            layer = nn.Dense(2)
            layer(x)
            loss = lambda layer, x: (layer(x) ** 2).sum()
            value, backward = nn.vjp(loss, layer, x)
            ones = weft.tree.map(wnp.ones_like, layer.variables["params"])
            _, tangent = nn.jvp(loss, layer, (x,), (wnp.ones_like(x),), {"params": ones})
            return backward(wnp.ones_like(value)), nn.grad(loss, layer, x), tangent

    variables = Model().init(KEY, X)
    (of_variables, of_x), (alone,), tangent = Model().apply(variables, X)
    inner = {"params": variables["params"]["Dense_0"]}
    loss = lambda v, x: (nn.Dense(2).apply(v, x) ** 2).sum()
    expected = weft.grad(loss, (0, 1))(inner, X)
    close((of_variables, of_x), expected)
    close(alone, expected[1])
    close(tangent, sum(leaf.sum() for leaf in weft.tree.leaves(expected)))


def test_custom_vjp_uses_the_rule() -> None:
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            run = lambda module, x: module(x)
            forward = lambda module, x: nn.vjp(run, module, x)

            def backward(vjp_fn: Any, cotangent: Any) -> Any:
                params, *inputs = vjp_fn(cotangent)
                return (weft.tree.map(lambda leaf: leaf * 100, params), *inputs)

            return nn.custom_vjp(run, forward, backward)(nn.Dense(2), x)

    variables = Model().init(KEY, X)
    plain = lambda v, x: nn.Dense(2).apply({"params": v["params"]["Dense_0"]}, x).sum()
    expected = weft.grad(plain, (0, 1))(variables, X)
    got = weft.grad(lambda v, x: Model().apply(v, x).sum(), (0, 1))(variables, X)
    close(got[0], weft.tree.map(lambda leaf: leaf * 100, expected[0]))
    close(got[1], expected[1])


def test_remat_scan_applies_a_layer_many_times() -> None:
    deep = nn.remat_scan(nn.Dense, lengths=(2, 3))(4)
    variables = deep.init(KEY, X)
    assert variables["params"]["kernel"].shape == (2, 3, 4, 4)
    y = X
    for outer in range(2):
        for inner in range(3):
            y = nn.Dense(4).apply(element(element(variables, outer), inner), y)
    close(deep.apply(variables, X), y)


def test_names_can_be_turned_off() -> None:
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(4, name="projection")(x)

    variables = Model().init(KEY, X)
    with nn.override_named_call(False):
        close(Model().apply(variables, X), nn.Dense(4).apply({"params": variables["params"]["projection"]}, X))


def test_loops_say_what_they_need() -> None:
    with pytest.raises(TypeError, match=r"must return \(carry, ys\), got"):
        nn.scan(nn.Dense, variable_broadcast="params", split_rngs={"params": False}, length=2)(4).init(KEY, X)
    with pytest.raises(ValueError, match=r"nn\.vmap needs a mapped array"):
        nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None)(4).init(KEY, X)
    with pytest.raises(ValueError, match="at least one length"):
        nn.remat_scan(nn.Dense)(4).init(KEY, X)


def test_equal_modules_under_jit_are_traced_once() -> None:
    traces = []

    class Block(nn.Module):
        size: int

        @nn.jit
        @nn.compact
        def __call__(self, x: Any) -> Any:
            traces.append(1)
            return nn.Dropout(0.5, deterministic=False)(nn.Dense(self.size)(x))

    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(3):
                x = Block(4)(x)
            return x

    keys = {"params": KEY, "dropout": weft.random.key(1)}
    variables = Stack().init(keys, X)
    assert len(traces) == 1
    kernels = [variables["params"][f"Block_{i}"]["Dense_0"]["kernel"] for i in range(3)]
    assert not np.array_equal(kernels[0], kernels[1])
    plain = nn.jit(Stack)().apply(variables, X, rngs=keys)
    assert plain.shape == (3, 4)


def test_a_jitted_helper_names_its_submodules_anew_in_each_call() -> None:
    class Twice(nn.Module):
        @nn.jit
        def helper(self, x: Any) -> Any:
            return nn.Dense(4)(x)

        @nn.compact
        def __call__(self, x: Any) -> Any:
            return self.helper(self.helper(x))

    class Plain(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Dense(4)(x)
            return nn.Dense(4)(x)

    variables = Twice().init(KEY, X)
    assert list(variables["params"]) == ["Dense_0", "Dense_1"]
    for _ in range(2):
        np.testing.assert_allclose(Twice().apply(variables, X), Plain().apply(variables, X), rtol=1e-6)


def test_references_to_variables_go_through_transformations() -> None:
    class Adds(nn.Module):
        total: Any

        @nn.jit
        def __call__(self, x: Any) -> Any:
            self.total.value += x
            return self.total.value

    class Outer(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            total = self.variable("state", "total", wnp.zeros, x.shape)
            Adds(total)(x)
            return self.more(x, total)

        @nn.jit
        def more(self, x: Any, total: Any) -> Any:
            total.value += x
            return total.value

    result, written = Outer().apply({"state": {"total": wnp.ones(2)}}, wnp.ones(2), mutable="state")
    np.testing.assert_array_equal(result, [3.0, 3.0])
    np.testing.assert_array_equal(written["state"]["total"], [3.0, 3.0])


def test_branches_find_variables_of_their_module_and_may_be_bound_methods() -> None:
    class Counts(nn.Module):
        def setup(self) -> None:
            self.dense = nn.Dense(3)

        def double(self, x: Any) -> Any:
            return self.dense(x) * 2

        def single(self, x: Any) -> Any:
            return self.dense(x)

        @nn.compact
        def __call__(self, x: Any, index: Any) -> Any:
            for i in range(2):
                self.variable("state", f"count_{i}", lambda: 0)

            def branch(i: int) -> Any:
                def run(module: Any, x: Any) -> Any:
                    module.variable("state", f"count_{i}").value += 1
                    return module.dense(x)

                return run

            chosen = nn.switch(index, [branch(0), branch(1)], self, x)
            return chosen, nn.cond(index > 0, self.double, self.single, self, x)

    variables = Counts().init(KEY, X, 0)
    assert variables["state"] == {"count_0": 1, "count_1": 0}
    (once, twice), written = Counts().apply(variables, X, 1, mutable="state")
    assert written["state"] == {"count_0": 1, "count_1": 1}
    np.testing.assert_allclose(twice, once * 2, rtol=1e-6)


def test_partial_classes_unbound_modules_and_first_calls_are_transformed() -> None:
    layers = nn.vmap(
        functools.partial(nn.Dense, use_bias=False), variable_axes={"params": 0}, split_rngs={"params": True}
    )
    assert weft.tree.map(np.shape, layers(4).init(KEY, wnp.ones((3, 4, 4)))) == {"params": {"kernel": (3, 4, 4)}}

    class Compiled(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(2)(x)

        @nn.jit
        def init_with_output(self, rngs: Any, *args: Any, **kwargs: Any) -> Any:
            return super().init_with_output(rngs, *args, **kwargs)

    assert Compiled().init_with_output(KEY, X)[0].shape == (3, 2)

    class Moved(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            dense = nn.Dense(4)
            tangents = weft.tree.map(wnp.ones_like, dense.variables.get("params", {}))
            return nn.jvp(nn.Dense.__call__, dense, (x,), (wnp.zeros_like(x),), {"params": tangents})[1]

    variables = Moved().init(KEY, X)
    np.testing.assert_allclose(Moved().apply(variables, X)[:, 0], np.sum(X, 1) + 1, rtol=1e-5)


def test_no_traced_value_outlives_init() -> None:
    model = nn.Sequential([nn.Dense(5)])

    @weft.jit
    def sample(key: Any, x: Any) -> Any:
        return model.apply(model.init(key, x), x)

    gc.disable()
    try:
        with weft.checking_leaks():
            sample(KEY, X)
    finally:
        gc.enable()
