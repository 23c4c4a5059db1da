"""Seed leads to the same weights and keys as in Flax: the key of each draw, and the bits of initializers.

Other peer tests compile JAX without optimization, which rounds otherwise; what is to agree to the bit runs in a process
of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as onp
import pytest

from tests.peer.compare import jax  # first of all: it says how JAX compiles

flax_linen = pytest.importorskip("flax.linen")

import weft  # noqa: E402
import weft.linen  # noqa: E402

# Each program defines `run(layer, x)`, where the layer draws two keys a call; it returns the keys it saw.
LAYER = """
class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        first, second = self.make_rng('noise'), self.make_rng('noise')
        nn.Dense(2, name='inner')(x)
        return x, (first, second, self.make_rng('other'))

class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return run(self, x)
"""
SPLIT = "variable_axes={'params': 0}, split_rngs={'noise': True, 'params': True}"
PROGRAMS = {
    "twice": """
def run(self, x):
    layer = Layer()
    return [layer(x)[1], layer(x)[1], Layer(name='ab')(x)[1], self.make_rng('noise'), self.make_rng()]
""",
    "nested, by setup, in lists and dicts": """
class Outer(nn.Module):
    def setup(self):
        self.parts = [Layer(), {'a': Layer()}]
        self.again = self.parts[0]
    def __call__(self, x):
        return [self.parts[0](x)[1], self.parts[1]['a'](x)[1], self.again(x)[1], self.make_rng('noise')]
def run(self, x):
    return [Outer()(x), Outer()(x)]
""",
    "remat": """
def run(self, x):
    layer = nn.remat(Layer)()
    return [layer(x)[1], layer(x)[1]]
""",
    "scan": f"""
def run(self, x):
    layer = nn.scan(Layer, {SPLIT}, length=3)()
    return [layer(x, None)[1], layer(x, None)[1], self.make_rng('noise')]
""",
    "scan without splitting": """
def run(self, x):
    layer = nn.scan(Layer, variable_broadcast='params', split_rngs={'noise': False, 'params': False}, length=3)()
    return [layer(x, None)[1], layer(x, None)[1]]
""",
    "scan in scan": f"""
def run(self, x):
    layer = nn.scan(nn.scan(Layer, {SPLIT}, length=2), {SPLIT}, length=3)()
    return layer(x, None)[1]
""",
    "scan of a function": f"""
def run(self, x):
    layer = Layer()
    return nn.scan(lambda layer, c, _: layer(c), {SPLIT}, length=2)(layer, x, None)[1]
""",
    "vmap": f"""
def run(self, x):
    layer = nn.vmap(Layer, {SPLIT})()
    return [layer(x)[1], layer(x)[1]]
""",
    "vmap of scan of remat": f"""
def run(self, x):
    layer = nn.vmap(nn.scan(nn.remat(Layer), {SPLIT}, length=2), in_axes=(0, None), {SPLIT})()
    return layer(x, None)[1]
""",
    "jit": """
def run(self, x):
    layer = nn.jit(Layer)()
    return [layer(x)[1], layer(x)[1]]
""",
    "fold_rngs": """
def run(self, x):
    layer = nn.fold_rngs(Layer)()
    return [layer(x)[1], layer(x)[1]]
""",
    "cond and switch": """
def run(self, x):
    layer = Layer()
    call = lambda layer, x: layer(x)[1]
    return [
        nn.cond(True, call, call, layer, x), nn.cond(False, call, call, layer, x),
        nn.switch(1, [call, call, call], layer, x), layer(x)[1],
    ]
""",
    "while_loop": """
def run(self, x):
    layer = Layer()
    seen = layer(x)[1]
    if self.is_initializing():
        return seen
    def body(layer, carry):
        i, keys = carry
        return i + 1, keys.at[i].set(np.stack([lib.random.key_data(key) for key in layer(x)[1][:2]]))
    keys = np.zeros((3, 2, 2), np.uint32)
    going = lambda layer, carry: carry[0] < 3
    split = {'noise': True, 'other': False}
    return seen, nn.while_loop(going, body, layer, (0, keys), split_rngs=split)[1], layer(x)[1]
""",
    "map_variables": """
def run(self, x):
    layer = nn.map_variables(Layer, 'params', init=self.is_initializing(), mutable=True)()
    return [layer(x)[1], layer(x)[1]]
""",
    "derivatives": """
def run(self, x):
    layer = Layer()
    with_keys = lambda layer, x: (x.sum(), layer(x)[1])
    (_, first), _ = nn.value_and_grad(with_keys, layer, x, has_aux=True)
    _, _, second = nn.vjp(with_keys, layer, x, has_aux=True)
    return [first, second, layer(x)[1]]
""",
}
X = onp.arange(6, dtype=onp.float32).reshape(3, 2)


def keys_of(library: str, program: str) -> list[onp.ndarray]:
    """Return all keys that the program sees in `init` and in `apply`, and the parameters."""
    lib, nn = (weft, weft.linen) if library == "weft" else (jax, flax_linen)
    names = {"nn": nn, "np": lib.numpy, "lib": lib, "__name__": __name__}
    exec(LAYER + program, names)
    rngs = {name: lib.random.PRNGKey(seed) for seed, name in enumerate(("params", "noise", "other"))}
    module, x = names["Model"](), lib.numpy.asarray(X)
    first, variables = module.init_with_output(rngs, x)
    later = module.apply(variables, x, rngs=rngs)
    return [onp.asarray(leaf) for leaf in lib.tree.leaves((first, later, variables))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_draw_gets_the_key_of_flax(name: str) -> None:
    ours, theirs = keys_of("weft", PROGRAMS[name]), keys_of("jax", PROGRAMS[name])
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        if their.dtype == onp.uint32:
            onp.testing.assert_array_equal(our, their)
        else:
            onp.testing.assert_allclose(our, their, rtol=1e-6, atol=1e-7)


def test_initializers_and_networks_agree_to_the_bit() -> None:
    script = """
        import jax, numpy as onp, flax.linen, weft, weft.linen

        def same(ours, theirs, what):
            for our, their in zip(weft.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                assert onp.asarray(our).tobytes() == onp.asarray(their).tobytes(), what

        names = "glorot_normal glorot_uniform he_normal he_uniform lecun_normal lecun_uniform normal uniform"
        for name in f"{names} truncated_normal orthogonal delta_orthogonal".split():
            for shape in ((5, 7, 9), (3, 3, 16, 33)):
                for seed in range(3):
                    made = [
                        getattr(lib.nn.initializers, name)()(lib.random.PRNGKey(seed), shape, "float32")
                        for lib in (weft, jax)
                    ]
                    same(*made, (name, shape, seed))
        for name in ("uniform", "normal", "bits"):
            same(*[getattr(lib.random, name)(lib.random.key(5), (1001,)) for lib in (weft, jax)], name)

        def network(nn):
            class Network(nn.Module):
                @nn.compact
                def __call__(self, image, ids):
                    x = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Conv(8, (3, 3))(image))).mean((1, 2))
                    y = nn.MultiHeadDotProductAttention(2)(nn.Embed(11, 16)(ids))
                    y = nn.LayerNorm()(nn.RNN(nn.LSTMCell(8))(y))[:, -1] + nn.RNN(nn.GRUCell(8))(y)[:, -1]
                    return nn.Dropout(0.5, deterministic=False)(nn.Dense(5)(x + y))
            return Network()

        image, ids = onp.ones((2, 6, 6, 3), "float32"), onp.arange(6).reshape(2, 3)
        made = [
            network(nn).init({"params": lib.random.key(1), "dropout": lib.random.key(2)}, image, ids)
            for nn, lib in ((weft.linen, weft), (flax.linen, jax))
        ]
        same(*made, "network")
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
