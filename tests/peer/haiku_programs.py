"""Random functions of modules, transformed by `weft.haiku` and by Haiku.

    python -m tests.peer.haiku_programs --seeds 0:300

A seed draws a function of one array: layers with random options, inside of transformations, scopes, stacks and lifts.
Both libraries evaluate the same text. `init` must return the same paths and values (seeds are those of Haiku), `apply`
the same result, state and derivatives. A program that Haiku refuses is not judged.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import types
from typing import Any

import haiku
import jax
import jax.numpy as jnp
import numpy as onp

import weft
import weft.haiku as weft_haiku
import weft.numpy as wnp
from tests.peer.compare import INPUTS  # noqa: F401  (sets up JAX's compilation cache before JAX is used)

LAYERS = [
    "hk.Linear({n})(x)",
    "hk.Linear({n}, with_bias=False)(x)",
    "hk.Linear({n}, name='{name}')(x)",
    "hk.Linear({n}, w_init=hk.initializers.{init}, b_init=np.ones)(x)",
    "hk.Bias()(x)",
    "hk.nets.MLP([{n}, {m}])(x)",
    "hk.nets.MLP([{n}, {m}], activate_final=True, with_bias=False)(x)",
    "hk.LayerNorm(-1, True, True)(x)",
    "hk.LayerNorm(-1, create_scale=False, create_offset=True, eps=0.1)(x)",
    "hk.RMSNorm(-1)(x)",
    "hk.BatchNorm(True, True, 0.9)(x, is_training=train)",
    "hk.BatchNorm(False, True, 0.5, eps=0.1)(x, is_training=True)",
    "hk.GroupNorm(1)(x)",
    "hk.ExponentialMovingAverage(0.9)(x)",
    "hk.SpectralNorm()(x)",
    "hk.Conv1D({n}, 3)(x)",
    "hk.Conv1D({n}, 2, stride=1, padding='VALID', rate=1)(np.concatenate([x, x], -2))",
    "hk.SeparableDepthwiseConv2D(1, 2)(x[..., None])[..., 0]",
    "hk.MultiHeadAttention(2, {n}, w_init=hk.initializers.VarianceScaling(1.0))(x, x, x)",
    "hk.dynamic_unroll(core := hk.GRU({n}), x, core.initial_state(x.shape[1]))[0]",
    "hk.dynamic_unroll(core := hk.LSTM({n}), x, core.initial_state(x.shape[1]))[0]",
    "hk.static_unroll(core := hk.VanillaRNN({n}), x, core.initial_state(x.shape[1]))[0]",
    "hk.Embed(5, {n})((abs(x) * 3).astype(np.int32) % 5)[..., 0, :]",
    "hk.dropout(hk.next_rng_key(), 0.5, x)",
    "hk.Flatten(preserve_dims=-1)(x)",
    "np.tanh(x)",
    "x * hk.get_parameter('{name}', x.shape[-1:], init=np.ones)",
    "Count()(x)",
    "Twice({n})(x)",
    "hk.Sequential([hk.Linear({n}), np.tanh, hk.Linear({m})])(x)",
]
INITIALIZERS = ["RandomNormal()", "TruncatedNormal(0.5)", "Constant(0.3)", "VarianceScaling(2.0, 'fan_avg', 'uniform')",
                "Orthogonal()", "RandomUniform(-1, 1)"]  # fmt: skip

WRAPPERS = [
    "hk.remat(lambda x: {0})(x)",
    "hk.vmap(lambda x: {0}, split_rng=False)(x)",
    "hk.vmap(lambda x: {0}, split_rng=not hk.running_init())(x)",
    "scoped('{name}', lambda x: {0}, x)",
    "scoped('{name}/inner', lambda x: {0}, x)",
    "halved(lambda x: {0}, x)",
    "hk.to_module(lambda x: {0})('{name}')(x)",
    "lifted('{name}', lambda x: {0}, x)",
    "transparent(lambda x: {0}, x)",
]
LOOPS = [
    "hk.scan(lambda x, _: ({0}, None), x, None, length=3)[0]",
    "hk.scan(lambda x, _: ({0}, x.sum()), x, None, length=2, reverse=True)[1] + x.sum()",
    "hk.fori_loop(0, 3, lambda i, x: {0}, x)",
    "hk.experimental.layer_stack(2)(lambda x: {0})(x)",
    "hk.experimental.layer_stack(3)(lambda x: {0})(x)",
    "branched(lambda x: {0}, lambda x: {0}, x)",
    "x + hk.grad(lambda x: ({0}).sum())(x)",
]
"""Wrappers of what keeps the shape."""
SAME = [
    "hk.Linear(x.shape[-1])(x)",
    "Count()(x)",
    "np.tanh(hk.Linear(x.shape[-1], name='{name}')(x))",
    "hk.LayerNorm(-1, True, True)(x)",
    "hk.dropout(hk.next_rng_key(), 0.5, x)",
    "x + hk.nets.MLP([{n}, x.shape[-1]])(x)",
    "hk.BatchNorm(True, True, 0.9)(x, is_training=True)",
]


@dataclasses.dataclass(frozen=True)
class Program:
    """Function of `x` as text, and whether it is compiled."""

    seed: int
    text: str
    jit: bool

    def __str__(self) -> str:
        return f"{self.seed}: {self.text}{'   [jit]' if self.jit else ''}"


def draw(seed: int) -> Program:
    """Draw the program of a seed: two or three pieces, the result of each is `x` in the next."""
    rng = random.Random(seed)

    def fill(text: str) -> str:
        return (
            text.replace("{n}", str(rng.choice((2, 3, 4))))
            .replace("{m}", str(rng.choice((2, 4))))
            .replace("{name}", rng.choice(("a", "b", "linear", "layer_1", "layer_01")))
            .replace("{init}", rng.choice(INITIALIZERS))
        )

    def piece(depth: int) -> str:
        kind = rng.random()
        if depth and kind < 0.3:
            return fill(rng.choice(WRAPPERS).replace("{0}", piece(depth - 1)))
        if depth and kind < 0.5:
            return fill(rng.choice(LOOPS).replace("{0}", rng.choice(SAME)))
        return fill(rng.choice(LAYERS))

    pieces = [piece(2) for _ in range(rng.choice((1, 2, 2, 3)))]
    text = pieces[0]
    for following in pieces[1:]:
        text = f"(lambda x: {following})({text})"
    return Program(seed, text, rng.random() < 0.3)


def helpers(hk: Any, np: Any, lib: Any) -> dict[str, Any]:
    """Return what the texts use beside the library itself."""

    class Count(hk.Module):  # type: ignore[misc, name-defined]
        def __call__(self, x: Any) -> Any:
            count = hk.get_state("count", (), init=np.zeros)
            hk.set_state("count", count + 1)
            return x + count

    class Twice(hk.Module):  # type: ignore[misc, name-defined]
        def __init__(self, size: int):
            super().__init__()
            self.first = hk.Linear(size)

        def __call__(self, x: Any) -> Any:
            return self.second(self.first(x)) + self.second(self.first(x))

        def second(self, x: Any) -> Any:
            return hk.Linear(2, name="in_method")(x)

    def scoped(name: str, f: Any, x: Any) -> Any:
        with hk.name_scope(name):
            return f(x)

    def halved(f: Any, x: Any) -> Any:
        with hk.custom_getter(lambda following, value, context: 0.5 * following(value)):
            return f(x)

    def lifted(name: str, f: Any, x: Any) -> Any:
        inner = hk.transform(f)
        params = hk.lift(inner.init, name=name)(hk.next_rng_key() if hk.running_init() else None, x)
        return inner.apply(params, hk.next_rng_key(), x)

    def transparent(f: Any, x: Any) -> Any:
        inner = hk.transform(f)
        params = hk.transparent_lift(inner.init)(hk.next_rng_key() if hk.running_init() else None, x)
        return inner.apply(params, hk.next_rng_key(), x)

    def branched(f: Any, g: Any, x: Any) -> Any:
        if hk.running_init():
            f(x)
            return g(x)
        return hk.cond(x.sum() > 0, f, g, x)

    return {
        "hk": hk, "np": np, "lib": lib, "Count": Count, "Twice": Twice, "scoped": scoped, "halved": halved,
        "lifted": lifted, "transparent": transparent, "branched": branched, "train": True,
    }  # fmt: skip


SIDES = {
    "weft": types.SimpleNamespace(lib=weft, names=helpers(weft_haiku, wnp, weft), hk=weft_haiku, np=wnp),
    "haiku": types.SimpleNamespace(lib=jax, names=helpers(haiku, jnp, jax), hk=haiku, np=jnp),
}


def run(side: str, program: Program) -> Any:
    """Return parameters, initial state, two results, the last state, and derivatives, as NumPy arrays."""
    it = SIDES[side]
    model = it.hk.transform_with_state(lambda x: eval(program.text, {**it.names, "x": x}))
    x = it.np.asarray(onp.random.default_rng(program.seed).normal(size=(2, 3, 4)).astype(onp.float32))
    key = it.lib.random.PRNGKey(program.seed)
    apply = it.lib.jit(model.apply) if program.jit else model.apply
    params, first = model.init(key, x)
    result, state = apply(params, first, key, x)
    again, state = apply(params, state, key, x)
    gradient = it.lib.grad(lambda p: (apply(p, first, key, x)[0] ** 2).sum())(params)
    flat = lambda tree: {
        f"{path}/{name}": onp.asarray(v) for path, values in tree.items() for name, v in values.items()
    }
    return {
        **{f"params {name}": value for name, value in flat(params).items()},
        **{f"initial {name}": value for name, value in flat(first).items()},
        "result": onp.asarray(result),
        "second result": onp.asarray(again),
        **{f"state {name}": value for name, value in flat(state).items()},
        **{f"gradient {name}": value for name, value in flat(gradient).items()},
    }


def difference(program: Program) -> str | None:
    """Return what Weft does otherwise than Haiku; None where they agree or Haiku refuses."""
    try:
        theirs = run("haiku", program)
    except Exception:
        return None
    try:
        ours = run("weft", program)
    except Exception as error:
        return f"{type(error).__name__}: {' | '.join(str(error).splitlines()[:5])[:400]}"
    if sorted(ours) != sorted(theirs):
        return f"only Weft: {sorted(set(ours) - set(theirs))}, only Haiku: {sorted(set(theirs) - set(ours))}"
    # Haiku's init returns the state of a stack as it is after a call, Weft's as it is before, as of all other modules.
    first_state = any(name.startswith("initial") for name in theirs)
    for name, b in theirs.items():
        a = ours[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name}: {a.dtype}{a.shape}, Haiku {b.dtype}{b.shape}"
        if "layer_stack" in program.text and first_state and not name.startswith("params"):
            continue
        scale = max(onp.abs(c).max(initial=1e-3) for other, c in theirs.items() if other.split()[0] == name.split()[0])
        # Differences of rounding grow through normalizations and orthogonal matrices.
        if not onp.allclose(a, b, rtol=2e-3, atol=2e-3 * scale):
            return f"{name}: {a.ravel()[:4]}, Haiku {b.ravel()[:4]}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="a seed, or first:last")
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    failures = 0
    for seed in seeds:
        program = draw(seed)
        found = difference(program)
        if found is not None:
            failures += 1
            print(f"{program}\n      {found}", flush=True)
    print(f"{len(seeds)} programs, {failures} differ")


if __name__ == "__main__":
    main()
