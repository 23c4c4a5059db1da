"""Programs of modules against Flax: the same text, the same tree of variables, the same results and gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as onp
import pytest

jax = pytest.importorskip("jax")
flax_linen = pytest.importorskip("flax.linen")

import weft  # noqa: E402
import weft.linen  # noqa: E402
import weft.optim  # noqa: E402
from tests.peer.compare import assert_same  # noqa: E402
from tests.peer.test_linen_layers import assert_same_gradients  # noqa: E402

# Each program defines `Model`; `nn`, `np`, `lib` and `lax` are those of the library. The call is Model()(x).
PROGRAMS = {
    "methods with names of their own": """
class Model(nn.Module):
    def setup(self):
        self.last = nn.Dense(2)
    @nn.compact_name_scope
    def up(self, x):
        return nn.Dense(4)(nn.relu(nn.Dense(3)(x)))
    @nn.compact_name_scope
    def down(self, x):
        return nn.Dense(4)(x) + self.up(x)
    def __call__(self, x):
        return self.last(self.up(x) + self.down(self.up(x)))
""",
    "shared submodule": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(4)
        return layer(nn.relu(layer(x)))
""",
    "setup with lists and dicts": """
class Model(nn.Module):
    def setup(self):
        self.layers = [nn.Dense(4), nn.Dense(4, use_bias=False)]
        self.heads = {'a': nn.Dense(2), 'b': [nn.Dense(3)]}
        self.same = self.layers[0]
        self.scale = self.param('scale', nn.initializers.ones, (4,))
    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        x = self.same(x) * self.scale
        return self.heads['a'](x), self.heads['b'][0](x)
""",
    "modules as fields": """
class Wrapped(nn.Module):
    inner: nn.Module
    others: tuple = ()
    def __call__(self, x):
        x = self.inner(x)
        for other in self.others:
            x = other(x)
        return x
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        mine = nn.Dense(4)
        shared = nn.Dense(4, parent=None)
        x = Wrapped(mine)(x)
        x = Wrapped(shared, (nn.Dense(4, parent=None), nn.relu))(x)
        x = Wrapped(nn.Sequential([nn.Dense(4), nn.tanh]))(x)
        return Wrapped(shared)(x) + mine(x)
""",
    "inheritance and names": """
class Base(nn.Module):
    features: int = 4
    @nn.compact
    def __call__(self, x):
        return self.finish(nn.Dense(self.features, name='first')(x))
    def finish(self, x):
        return nn.Dense(self.features)(x)
class Model(Base):
    extra: int = 3
    def finish(self, x):
        return nn.Dense(self.extra, name='last')(x)
""",
    "state": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        count = self.variable('state', 'count', lambda: np.zeros(()))
        mean = self.variable('state', 'mean', np.zeros, x.shape[-1:])
        if not self.is_initializing():
            count.value += 1
            mean.value = 0.9 * mean.value + 0.1 * x.mean(0)
        self.sow('intermediates', 'seen', x)
        self.sow('intermediates', 'seen', 2 * x)
        self.sow('sums', 'total', x.sum(), reduce_fn=lambda a, b: a + b, init_fn=lambda: 0.0)
        return nn.BatchNorm(use_running_average=False)(nn.Dense(4)(x) - mean.value)
""",
    "remat of a class, a method and a function": """
class Model(nn.Module):
    @nn.remat
    @nn.compact
    def __call__(self, x):
        x = nn.remat(nn.Dense)(4)(x)
        x = nn.checkpoint(nn.BatchNorm)(use_running_average=False)(x)
        inner = nn.Dense(4)
        return nn.remat(lambda module, x: module(nn.relu(x)))(inner, x)
""",
    "remat with a static argument": """
class Block(nn.Module):
    @nn.compact
    def __call__(self, x, double):
        x = nn.Dense(4)(x)
        return 2 * x if double else x
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.remat(Block, static_argnums=(2,))()(x, True)
""",
    "scan over layers": """
class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        self.sow('intermediates', 'mean', x.mean())
        x = nn.Dense(4)(nn.LayerNorm()(x)) + x
        return x, x.sum()
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.scan(Layer, variable_axes={'params': 0, 'intermediates': 0}, split_rngs={'params': True},
                       length=3)()(x, None)
""",
    "scan with axes, broadcast and carried variables": """
class Step(nn.Module):
    @nn.compact
    def __call__(self, carry, x, shift):
        stats = self.variable('stats', 'last', np.zeros, (4,))
        stats.value = x[0]
        y = nn.Dense(4)(carry + x) + shift
        return y, y
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        loop = nn.scan(Step, variable_broadcast='params', variable_axes={'stats': 1},
                       split_rngs={'params': False}, in_axes=(1, nn.broadcast), out_axes=1)
        xs = np.stack([x, x + 1, x * 2], 1)
        count = self.variable('counter', 'count', lambda: np.zeros((), np.int32))
        def step(self, carry, x):
            now = self.get_variable('counter', 'count')
            self.put_variable('counter', 'count', now + 1)
            return carry + x, now
        counted = nn.scan(step, variable_carry='counter', variable_broadcast=('params', 'stats'),
                          split_rngs={'params': False})(self, np.zeros((4,)), x)
        return loop()(np.zeros((3, 4)), xs, np.ones((4,))), counted
""",
    "scan of a function, in reverse": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        cell = nn.GRUCell(4)
        def body(cell, carry, x):
            return cell(carry, x)
        return nn.scan(body, variable_broadcast='params', split_rngs={'params': False}, reverse=True, unroll=2)(
            cell, np.zeros((4,)), x)
""",
    "scan over remat": """
class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(nn.tanh(x)), None
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.scan(nn.remat(Block), variable_axes={'params': 0}, split_rngs={'params': True}, length=2)()(x)[0]
""",
    "remat_scan": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.remat_scan(nn.Dense, lengths=(2, 3))(4)(x)
""",
    "vmap": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        many = nn.vmap(nn.Dense, variable_axes={'params': 0}, split_rngs={'params': True}, in_axes=None, axis_size=5)
        one = nn.vmap(nn.Dense, variable_axes={'params': None}, split_rngs={'params': False})
        norm = nn.vmap(nn.BatchNorm, variable_axes={'params': 1, 'batch_stats': 0}, split_rngs={'params': True},
                       in_axes=0, out_axes=1)
        y = many(4)(x)
        y = one(3)(y)
        return norm(use_running_average=False)(y)
""",
    "vmap with an axis name": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        norm = nn.vmap(nn.BatchNorm, variable_axes={'params': None, 'batch_stats': None},
                       split_rngs={'params': False}, axis_name='batch')
        return norm(use_running_average=False, axis_name='batch')(x[:, None] * np.ones((1, 5, 1)))
""",
    "nested transforms": """
class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        many = nn.vmap(nn.Dense, variable_axes={'params': 0}, split_rngs={'params': True})
        return nn.jit(many)(4)(x), None
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        loop = nn.scan(Layer, variable_axes={'params': 0}, split_rngs={'params': True}, length=2)
        return loop()(np.stack([x, -x]), None)[0]
""",
    "jit of methods": """
class Model(nn.Module):
    def setup(self):
        self.dense = nn.Dense(4)
        self.norm = nn.BatchNorm(use_running_average=False)
    @nn.jit
    def encode(self, x):
        return self.norm(self.dense(x))
    @nn.jit
    def __call__(self, x):
        return self.encode(x) + self.dense(x)
""",
    "cond and switch": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(4)
        def yes(layer, x):
            return layer(x)
        def no(layer, x):
            return layer(-x) * 2
        first = nn.cond(x.sum() > 0, yes, no, layer, x)
        heads = [nn.Dense(4) for _ in range(3)]
        branches = [lambda self, x, i=i: heads[i](x) for i in range(3)]
        if self.is_initializing():
            for head in heads:
                head(x)
        return first, nn.switch(1, [yes, no], layer, x)
""",
    "while_loop": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(4)
        steps = self.variable('state', 'steps', lambda: np.zeros((), np.int32))
        if self.is_initializing():
            return layer(x)
        def goes_on(module, carry):
            return module.get_variable('state', 'steps') < 3
        def body(module, carry):
            module.put_variable('state', 'steps', module.get_variable('state', 'steps') + 1)
            return np.tanh(carry)
        return nn.while_loop(goes_on, body, self, x, carry_variables='state', broadcast_variables='params')
""",
    "map_variables": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        transpose = lambda tree: lib.tree_util.tree_map(lambda leaf: leaf.T, tree)
        x = nn.map_variables(nn.Dense, 'params', transpose, transpose, init=self.is_initializing())(4)(x)
        dense = nn.Dense(4, use_bias=False)
        y = dense(x)
        back = nn.map_variables(lambda layer, x: layer(x), 'params', transpose, init=False)
        return back(dense, y)
""",
    "derivatives": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(4)
        layer(x)
        def loss(layer, x):
            return (layer(x) ** 2).sum()
        value, backward = nn.vjp(loss, layer, x)
        of_params, of_x = backward(np.ones(()))
        both = nn.value_and_grad(loss, layer, x)
        only = nn.grad(loss, layer, x)
        ones = lib.tree_util.tree_map(np.ones_like, layer.variables['params'])
        forward = nn.jvp(loss, layer, (x,), (np.ones_like(x),), {'params': ones})
        return value, of_params['params']['kernel'], of_x, both, only, forward
""",
    "custom_vjp": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        def f(module, x):
            return module(x)
        def forward(module, x):
            return nn.vjp(f, module, x)
        def backward(vjp_fn, cotangent):
            params, *inputs = vjp_fn(cotangent)
            return (lib.tree_util.tree_map(np.sign, params), *inputs)
        return nn.custom_vjp(f, forward_fn=forward, backward_fn=backward)(nn.Dense(4), x)
""",
    "share_scope": """
class Model(nn.Module):
    def setup(self):
        self.dense = nn.Dense(4)
        nn.share_scope(self, self.dense)
    def __call__(self, x):
        return self.dense(x)
""",
    "modules that are called by another method": """
class Model(nn.Module):
    def setup(self):
        self.embed = nn.Embed(10, 4)
        self.out = nn.Dense(3)
    def encode(self, x):
        return self.out(self.embed(np.abs(x * 3).astype(int) % 10))
    @nn.nowrap
    def plain(self, x):
        return 2 * x
    @property
    def doubled(self):
        return self.out
    def __call__(self, x):
        return self.plain(self.embed.attend(x)), self.doubled(x), self.encode(x)
""",
    "batch apply and pooling": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        image = np.reshape(np.concatenate([x] * 8), (2, 6, 8, 1))
        pools = (nn.max_pool(image, (2, 2), (2, 2)), nn.avg_pool(image, (3, 2), padding='SAME'),
                 nn.avg_pool(image, (3, 2), strides=(1, 2), padding='SAME', count_include_pad=False),
                 nn.max_pool(image[0], (2, 2), padding=((1, 0), (0, 1))))
        return nn.BatchApply(nn.Dense(3))(np.stack([x, x])), pools
""",
    "attention functions": """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        q, k, v = (np.reshape(nn.Dense(12)(x), (1, 3, 2, 6)) for _ in range(3))
        causal = nn.make_causal_mask(np.ones((1, 3)))
        pad = nn.make_attention_mask(np.array([[1, 1, 0]]), np.array([[1, 1, 0]]))
        mask = nn.combine_masks(causal, pad, None)
        weights = nn.dot_product_attention_weights(q, k, mask=mask, deterministic=True)
        return weights, nn.dot_product_attention(q, k, v, bias=np.ones((1, 1, 3, 3)), mask=mask), mask
""",
}

X = onp.random.default_rng(5).normal(size=(3, 4)).astype(onp.float32)


def model(library: str, program: str) -> Any:
    if library == "weft":
        names = {"nn": weft.linen, "np": weft.numpy, "lib": weft, "lax": weft.lax}
    else:
        names = {"nn": flax_linen, "np": jax.numpy, "lib": jax, "lax": jax.lax}
    names["__name__"] = __name__
    exec(program, names)
    return names["Model"]()


def describe(tree: Any) -> dict[str, Any]:
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): (onp.shape(leaf), str(onp.asarray(leaf).dtype)) for path, leaf in pairs}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    theirs, ours = model("jax", PROGRAMS[name]), model("weft", PROGRAMS[name])
    their_variables = theirs.init(jax.random.key(0), X)
    out = ours.init(weft.random.key(0), X)
    assert describe(weft.tree.map(onp.asarray, out)) == describe(their_variables)
    assert_same(out, their_variables, 3e-5, weak=False)  # the same key: see test_seeds.py

    variables = jax.tree.map(lambda leaf: weft.numpy.asarray(onp.asarray(leaf)), their_variables)
    mutable = sorted({*their_variables, "intermediates", "sums"} - {"params"})

    def loss(library: Any, module: Any, others: Any) -> Any:
        def of(params: Any, x: Any) -> Any:
            result, changed = module.apply({**others, "params": params}, x, mutable=mutable)
            leaves = [leaf for leaf in library.tree_util.tree_leaves(result) if leaf.dtype == onp.float32]
            weights = onp.random.default_rng(2).normal(size=1000).astype(onp.float32)
            total = sum((leaf * onp.resize(weights, leaf.shape)).sum() for leaf in leaves)
            return total, (result, changed)

        return of

    others = {key: value for key, value in their_variables.items() if key != "params"}
    if "while" in name:  # it has no reverse mode
        expected, changed = theirs.apply(their_variables, X, mutable=mutable)
    else:
        their_loss = jax.grad(loss(jax, theirs, others), (0, 1), has_aux=True)
        gradient, (expected, changed) = jax.jit(their_loss)(their_variables["params"], X)
    ours_others = {key: value for key, value in variables.items() if key != "params"}
    x = weft.numpy.asarray(X)
    if "while" in name:
        got, got_changed = weft.jit(lambda v, x: ours.apply(v, x, mutable=mutable))(variables, x)
    else:
        our_loss = weft.grad(loss(weft, ours, ours_others), (0, 1), has_aux=True)
        got_gradient, (got, got_changed) = weft.jit(our_loss)(variables["params"], x)
        assert_same_gradients(got_gradient, gradient, 1e-3)
    assert_same(got, expected, 5e-5, weak=False)
    assert describe(weft.tree.map(onp.asarray, got_changed)) == describe(changed)
    assert_same(got_changed, changed, 5e-5, weak=False, path="changed")
    eager, _ = ours.apply(variables, x, mutable=mutable)
    assert_same(eager, expected, 5e-5, weak=False, path="eager")


def test_intermediates_are_captured_alike() -> None:
    program = PROGRAMS["setup with lists and dicts"]
    theirs, ours = model("jax", program), model("weft", program)
    variables = theirs.init(jax.random.key(0), X)
    ours_variables = jax.tree.map(lambda leaf: weft.numpy.asarray(onp.asarray(leaf)), variables)
    expected = theirs.apply(variables, X, capture_intermediates=True)[1]
    got = ours.apply(ours_variables, weft.numpy.asarray(X), capture_intermediates=True)[1]
    assert describe(weft.tree.map(onp.asarray, got)) == describe(expected)
    assert_same(got, expected, 3e-5, weak=False)


def test_perturbations_are_gradients_of_values() -> None:
    program = """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = self.perturb('hidden', nn.Dense(4)(x))
        return (nn.tanh(h) ** 2).sum()
"""
    theirs, ours = model("jax", program), model("weft", program)
    variables = theirs.init(jax.random.key(0), X)
    ours_variables = jax.tree.map(lambda leaf: weft.numpy.asarray(onp.asarray(leaf)), variables)
    assert describe(weft.tree.map(onp.asarray, ours.init(weft.random.key(1), weft.numpy.asarray(X)))) == describe(
        variables
    )
    expected = jax.grad(lambda v: theirs.apply(v, X))(variables)
    got = weft.grad(lambda v: ours.apply(v, weft.numpy.asarray(X)))(ours_variables)
    assert_same(got, expected, 1e-4, weak=False)


RULES = (("batch", "data"), ("embed", "model"), ("mlp", "model"), ("embed", "data"), ("kv", ("x", "y")))


@pytest.mark.parametrize("names", list(itertools.permutations(["batch", "embed", "mlp", "kv", None, "unknown"], 3)))
def test_logical_axes_lie_alike(names: tuple[Any, ...]) -> None:
    expected = tuple(flax_linen.logical_to_mesh_axes(names, RULES))
    assert tuple(weft.linen.logical_to_mesh_axes(names, RULES)) == expected


def test_training_goes_the_same_way() -> None:
    """Five steps of a train state with momentum, from the same variables, on the same batches."""
    optax = pytest.importorskip("optax")
    train_state = pytest.importorskip("flax.training.train_state")
    program = """
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Dense(8)(x)))
        return nn.Dense(1)(x)
"""
    sides = {
        "jax": (jax, model("jax", program), train_state.TrainState, optax.sgd(0.05, momentum=0.9)),
        "weft": (weft, model("weft", program), weft.linen.TrainState, weft.optim.sgd(0.05, momentum=0.9)),
    }
    first = sides["jax"][1].init(jax.random.key(0), X)
    ends = {}
    for name, (lib, module, state_class, optimizer) in sides.items():
        variables = jax.tree.map(lambda leaf, lib=lib: lib.numpy.asarray(onp.asarray(leaf)), first)
        state = state_class.create(apply_fn=module.apply, params=variables["params"], tx=optimizer)
        stats = variables["batch_stats"]

        def step(state: Any, stats: Any, x: Any, lib: Any = lib) -> Any:
            def loss(params: Any) -> Any:
                y, changed = state.apply_fn({"params": params, "batch_stats": stats}, x, mutable=["batch_stats"])
                return ((y[:, 0] - x.sum(1)) ** 2).mean(), changed["batch_stats"]

            (value, stats_after), grads = lib.value_and_grad(loss, has_aux=True)(state.params)
            return state.apply_gradients(grads=grads), stats_after, value

        run = lib.jit(step)
        values = []
        for i in range(5):
            state, stats, value = run(state, stats, lib.numpy.asarray(X * (1 + 0.1 * i)))
            values.append(float(value))
        ends[name] = (state.params, stats, values, int(state.step))
    assert_same_gradients(ends["weft"][:2], ends["jax"][:2], 1e-4)
    onp.testing.assert_allclose(ends["weft"][2], ends["jax"][2], rtol=1e-4)
    assert ends["weft"][3] == ends["jax"][3] == 5


TABULATED = {
    "dense": ("nn.Dense(5)", (3, 2, 4)),
    "layer norm": ("nn.LayerNorm()", (3, 2, 5)),
    "batch norm": ("nn.BatchNorm(use_running_average=False)", (2, 8, 8, 4)),
    "convolution": ("nn.Conv(8, (3, 3), padding='VALID')", (2, 8, 8, 3)),
    "two layers": ("nn.Sequential([nn.Dense(16), nn.relu, nn.Dense(2)])", (8, 4)),
}


@pytest.mark.parametrize("name", TABULATED)
def test_operations_are_counted_about_alike(name: str) -> None:
    """XLA counts before it optimizes, we after; we count padding, as of gradients of windows, in full."""
    text, shape = TABULATED[name]
    x = onp.ones(shape, onp.float32)
    ours = weft.linen.summary.make_table(
        eval(text, {"nn": weft.linen}), weft.random.key(0), compute_flops=True, compute_vjp_flops=True
    )(x)
    theirs = eval(text, {"nn": flax_linen}).tabulate(
        jax.random.key(0), x, compute_flops=True, compute_vjp_flops=True, console_kwargs={"width": 240}
    )
    lines = [[cell.strip() for cell in line.split("│")[1:]] for line in theirs.split("\n") if line.startswith("│")]
    counted = [tuple(map(int, cells[4:6])) for cells in lines if cells[1] and cells[4].isdigit()]
    assert len(counted) == len(ours)
    for row, (flops, vjp_flops) in zip(ours, counted, strict=True):
        assert row.flops == pytest.approx(flops, rel=0.1)
        assert row.vjp_flops == pytest.approx(vjp_flops, rel=0.3)
