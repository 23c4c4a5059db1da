"""Random programs of optimizers and losses, run by Weft and by Optax.

    python -m tests.peer.optim_programs --seeds 0:500          compare, print what differs
    python -m tests.peer.optim_programs --seeds 17 --show      the text of one program

A seed draws a program: an optimizer or a transformation of the public tables with random arguments, wrappers around it,
a tree of parameters, a dtype for parameters and one for gradients, and how it runs: under jit, with donation, in a
scan or in vmap, with a state from shapes alone. Both libraries evaluate
the same text, in which `o` is the library. A program that Optax refuses, or whose result is not finite there, is not
judged; Weft must do what Optax does, and in addition keep structure, shapes and dtypes of every state.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import random
import types
from typing import Any

import jax
import ml_dtypes
import numpy as onp

from tests.peer.compare import INPUTS  # noqa: F401  (sets up JAX's compilation cache before JAX is used)

jax.config.update("jax_platforms", "cpu")

import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
import optax.contrib  # noqa: E402

import weft  # noqa: E402
import weft.numpy as wnp  # noqa: E402
from weft import optim  # noqa: E402

SIDES = {
    "weft": types.SimpleNamespace(o=optim, np=wnp, lib=weft, onp=onp),
    "optax": types.SimpleNamespace(o=optax, np=jnp, lib=jax, onp=onp),
}
DTYPES = {
    "f32": onp.float32,
    "f16": onp.float16,
    "bf16": ml_dtypes.bfloat16,
    "c64": onp.complex64,
}
TOLERANCE = {"f32": 2e-4, "f16": 4e-2, "bf16": 1e-1, "c64": 5e-4}

REQUIRED = {
    "learning_rate": "0.1",
    "decay": "0.9",
    "max_delta": "0.5",
    "threshold": "0.5",
    "max_norm": "0.7",
    "step_size": "-0.3",
    "step_size_fn": "o.linear_schedule(0.1, 0.01, 3)",
    "clipping": "0.2",
    "eta": "0.01",
    "gamma": "0.55",
    "base_optimizer": "o.sgd(0.1)",
    "num_betas": "3",
}
"""Values of required parameters, by name."""

SKIPPED = {
    # Noise, whose bits are compared elsewhere; what needs a function or data of its own.
    "add_noise": "noise", "noisy_sgd": "noise", "dpsgd": "noise", "differentially_private_aggregate": "noise",
    "lookahead": "pairs of parameters", "sophia": "an objective", "hutchinson_estimator_diag_hessian": "an objective",
    "monitor": "functions", "snapshot": "functions", "measure_with_ema": "functions", "sam": "an own optimizer",
    "scale_by_backtracking_linesearch": "an objective", "scale_by_zoom_linesearch": "an objective",
    "lbfgs": "an objective", "galore": "no matrices of low rank", "scale_by_galore": "no matrices of low rank",
    "stateless": "functions", "stateless_with_tree_map": "functions", "partition": "wrapper", "masked": "wrapper",
    "multi_transform": "wrapper", "chain": "wrapper", "named_chain": "wrapper", "flatten": "wrapper",
    "apply_if_finite": "wrapper", "conditionally_mask": "wrapper", "conditionally_transform": "wrapper",
    "inject_hyperparams": "wrapper", "inject_stateful_hyperparams": "wrapper", "maybe_update": "wrapper",
    "selective_transform": "wrapper", "freeze": "wrapper", "mechanize": "wrapper", "schedule_free": "wrapper",
    "split_real_and_imaginary": "wrapper", "with_extra_args_support": "wrapper", "adadelta": "drawn with a rate only",
    "scale_by_distance_over_gradients": "Optax adds an axis to scalars", "scale_by_sm3": "Optax refuses scalars",
    "sm3": "Optax refuses scalars", "reduce_on_plateau": "needs value",
}  # fmt: skip

COMPLEX_ELSEWHERE = ("ademamix", "momo", "prodigy", "dadapt", "adadelta", "madgrad", "mechanize", "cocob", "MultiSteps")
"""What Optax does with complex gradients here is wrong: squares that are not of sizes, products that are not real, and
in MultiSteps sums without their imaginary parts."""

UNSTABLE = ("radam", "belief", "lion", "sign", "rprop", "optimistic", "schedule_free", "centered", "stddev", "novograd",
            "madgrad", "adafactor")  # fmt: skip
"""These amplify the rounding of half precision in the next step, on either side."""

WRAPPERS = [
    "o.chain({0}, o.scale(0.5))",
    "o.chain(o.clip_by_global_norm(1.0), {0})",
    "o.named_chain(('a', {0}), ('b', o.trace(0.9)))",
    "o.masked({0}, mask)",
    "o.masked({0}, lambda tree: lib.tree.map(lambda leaf: leaf.ndim != 1, tree))",
    "o.partition({{'x': {0}, 'y': o.adam(0.1)}}, lambda tree: lib.tree.map("
    "lambda leaf: 'x' if leaf.ndim > 1 else 'y', tree))",
    "o.selective_transform({0}, freeze_mask=mask)",
    "o.apply_if_finite({0}, 2)",
    "o.conditionally_transform({0}, lambda step: step % 2 == 0)",
    "o.conditionally_mask({0}, lambda step: step % 2 == 0)",
    "o.MultiSteps({0}, 2).gradient_transformation()",
    "o.MultiSteps({0}, 2, use_grad_mean=False).gradient_transformation()",
    "o.flatten({0})",
    "o.contrib.mechanize({0})",
    "o.contrib.schedule_free({0}, 0.1)",
    "o.contrib.split_real_and_imaginary({0})",
    "o.with_extra_args_support({0})",
]

TREES: dict[str, Any] = {
    "one": (3, 2),
    "scalar": (),
    "dict": {"w": (4, 3), "b": (3,)},
    "nested": {"layers": [{"w": (2, 3), "b": (3,)}, {"w": (3, 2), "b": (2,)}], "scale": ()},
    "ranks": [(), (2,), (2, 3), (2, 3, 2), (2, 1, 2, 3), (1, 2, 2, 1, 3)],
    "none": {"w": (2, 2), "skip": None, "b": (2,)},
    "empty": {"w": (2, 2), "rest": {}, "more": ()},
}
del TREES["empty"]["more"]


@dataclasses.dataclass(frozen=True)
class Program:
    """Optimizer as text, the parameters it steps, and how it is run."""

    seed: int
    text: str
    tree: str
    dtype: str
    grad_dtype: str
    mode: str

    def __str__(self) -> str:
        return f"{self.seed}: {self.text}   [{self.tree} {self.dtype}, gradients {self.grad_dtype}, {self.mode}]"


@functools.cache
def factories() -> dict[str, inspect.Signature]:
    """Public functions of Optax that make a transformation from numbers alone, found by calling them."""
    found = {}
    for prefix, module in (("o", optax), ("o.contrib", optax.contrib)):
        for name in sorted(vars(module)):
            function = getattr(module, name)
            if name in SKIPPED or not inspect.isfunction(function):
                continue
            ours = getattr(optim.contrib if prefix.endswith("contrib") else optim, name, None)
            try:
                signature = inspect.signature(function)
                arguments = {
                    p.name: eval(REQUIRED[p.name], {"o": optax})
                    for p in signature.parameters.values()
                    if p.default is p.empty
                }
                if isinstance(function(**arguments), optax.GradientTransformation) and ours is not None:
                    found[f"{prefix}.{name}"] = signature
            except Exception:
                continue
    return found


def draw_arguments(rng: random.Random, signature: inspect.Signature, is_complex: bool) -> str:
    """Draw required arguments, and now and then others near their defaults."""
    parts: list[str] = []
    for p in signature.parameters.values():
        if p.default is p.empty:
            value = REQUIRED[p.name]
            if p.name == "learning_rate" and rng.random() < 0.3:
                value = "o.linear_schedule(0.1, 0.01, 3)"
            parts.append(f"{p.name}={value}")
        elif isinstance(p.default, bool) and rng.random() < 0.25:
            if p.name != "verbose":
                parts.append(f"{p.name}={not p.default}")
        elif p.name == "weight_decay" and rng.random() < 0.3:
            parts.append(f"{p.name}=0.1")
        elif p.name in ("mask", "weight_decay_mask") and rng.random() < 0.3:
            parts.append(f"{p.name}=lambda tree: lib.tree.map(lambda leaf: leaf.ndim != 1, tree)")
        elif p.name in ("mu_dtype", "accumulator_dtype", "state_dtype") and rng.random() < 0.2 and not is_complex:
            parts.append(f"{p.name}=np.float32")
        elif p.name == "momentum" and rng.random() < 0.3:
            parts.append("momentum=0.9")
        elif p.name == "min_dim_size_to_factor" and rng.random() < 0.5:
            parts.append("min_dim_size_to_factor=2")
        elif p.name in ("eps", "eps_root") and rng.random() < 0.3:
            parts.append(f"{p.name}=1e-3")
        elif p.name in ("b1", "b2", "beta") and isinstance(p.default, float) and rng.random() < 0.2:
            parts.append(f"{p.name}=0.8")
    return ", ".join(parts)


def draw(seed: int) -> Program:
    """Draw the program of a seed."""
    rng = random.Random(seed)
    names = sorted(factories())
    name = names[seed % len(names)] if rng.random() < 0.7 else rng.choice(names)
    dtype = rng.choice(("f32", "f32", "f32", "bf16", "f16", "c64"))
    arguments = draw_arguments(rng, factories()[name], dtype == "c64")
    text = f"{name}({arguments})"
    if rng.random() < 0.15 and "lambda" not in arguments:
        text = f"o.inject_hyperparams({name}, hyperparam_dtype=np.float32)({arguments})"
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        text = rng.choice(WRAPPERS).format(text)
    grad = rng.choice((dtype, dtype, dtype, "f32")) if dtype in ("bf16", "f16") else dtype
    if dtype == "c64" and any(word in text for word in COMPLEX_ELSEWHERE):
        dtype = grad = "f32"
    if dtype in ("bf16", "f16") and any(word in text for word in UNSTABLE):
        dtype = grad = "f32"
    mode = rng.choice(("eager", "jit", "jit", "donated", "scan", "vmap", "shapes"))
    return Program(seed, text, rng.choice(sorted(TREES)), dtype, grad, mode)


def _is_shape(node: Any) -> bool:
    return isinstance(node, tuple) and all(isinstance(size, int) for size in node)


def arrays(tree: str, dtype: str, seed: int, batch: tuple[int, ...] = ()) -> Any:
    """Random NumPy arrays of a tree of shapes."""
    rng = onp.random.default_rng(seed)

    def leaf(shape: Any) -> Any:
        values = rng.normal(size=batch + shape)
        if dtype == "c64":
            values = values + 1j * rng.normal(size=batch + shape)
        return values.astype(DTYPES[dtype])

    return jax.tree.map(leaf, TREES[tree], is_leaf=_is_shape)


def mask_of(tree: str) -> Any:
    """Return a mask of alternating booleans."""
    count = iter(range(100))
    return jax.tree.map(lambda _: next(count) % 2 == 0, TREES[tree], is_leaf=_is_shape)


def run(side: str, program: Program) -> Any:
    """Three steps; the updates of each as NumPy arrays, and the types of the state before and after."""
    modules = SIDES[side]
    lib, o = modules.lib, modules.o
    put = functools.partial(lib.tree.map, modules.np.asarray)
    names = {**vars(modules), "mask": mask_of(program.tree)}
    optimizer = o.with_extra_args_support(eval(program.text, names))
    batch = (2,) if program.mode == "vmap" else ()
    params = put(arrays(program.tree, program.dtype, program.seed, batch))
    grads = [put(arrays(program.tree, program.grad_dtype, program.seed + i + 1, batch)) for i in range(3)]
    value = modules.np.float32(1.5)

    def step(gradient: Any, state: Any, params: Any) -> Any:
        updates, state = optimizer.update(gradient, state, params, value=value)
        return updates, state, o.apply_updates(params, updates)

    init = optimizer.init
    if program.mode == "vmap":
        init, step = lib.vmap(init), lib.vmap(step)
    if program.mode == "shapes":
        shapes = lib.tree.map(lambda x: lib.ShapeDtypeStruct(x.shape, x.dtype), params)
        before = init(shapes)
        # Some states hold the parameters themselves; all others are the ones of real parameters.
        types_of_shapes = kinds(lib, before)
        state = init(params)
        if side == "weft":
            assert [k for k in types_of_shapes] == kinds(lib, state), "a state from shapes has other types"
    else:
        state = init(params)
    first = kinds(lib, state)
    history = []
    if program.mode == "scan":
        stacked = lib.tree.map(lambda *leaves: modules.np.stack(leaves), *grads)

        def body(carry: Any, gradient: Any) -> Any:
            updates, state, params = step(gradient, *carry)
            return (state, params), updates

        (state, params), updates = lib.lax.scan(body, (state, params), stacked)
        history.append(updates)
    else:
        if program.mode in ("jit", "shapes"):
            step = lib.jit(step)
        if program.mode == "donated":
            step = lib.jit(step, donate_argnums=(1, 2))
        for gradient in grads:
            updates, state, params = step(gradient, state, params)
            history.append(updates)
    return [onp.asarray(leaf) for leaf in lib.tree.leaves((history, params))], first, kinds(lib, state)


def kinds(lib: Any, state: Any) -> list[str]:
    """Return the shapes and dtypes of a state."""
    return [f"{leaf.dtype}{leaf.shape}" if hasattr(leaf, "dtype") else "number" for leaf in lib.tree.leaves(state)]


def wide(array: Any) -> Any:
    """Return an array in double precision."""
    return array.astype(onp.complex128 if array.dtype.kind == "c" else onp.float64)


def difference(program: Program) -> str | None:
    """Describe where Weft differs from Optax; None where they agree or Optax has no answer."""
    try:
        theirs, their_first, their_last = run("optax", program)
    except Exception:
        return None
    if not all(onp.isfinite(wide(leaf)).all() for leaf in theirs):
        return None
    try:
        ours, first, last = run("weft", program)
    except Exception as error:
        return f"{type(error).__name__}: {' | '.join(str(error).splitlines()[:5])[:400]}"
    if first != last and their_first == their_last:
        changed = [f"{a} -> {b}" for a, b in zip(first, last, strict=False) if a != b]
        return f"the state changes its types: {changed[:3]}"
    if len(ours) != len(theirs):
        return f"{len(ours)} leaves, Optax {len(theirs)}"
    rtol = max(TOLERANCE[program.dtype], TOLERANCE[program.grad_dtype])
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape:
            return f"leaf {i}: shape {a.shape}, Optax {b.shape}"
        a, b = wide(a), wide(b)
        scale = onp.abs(b).max(initial=1e-3)
        if not onp.allclose(a, b, rtol=rtol, atol=rtol * scale):
            return f"leaf {i} of {len(ours)}: {a.ravel()[:3]}, Optax {b.ravel()[:3]}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:200", help="a seed, or first:last")
    parser.add_argument("--show", action="store_true", help="print the programs and run nothing")
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    failures = 0
    for seed in seeds:
        program = draw(seed)
        if options.show:
            print(program)
            continue
        found = difference(program)
        if found is not None:
            failures += 1
            print(f"{program}\n      {found}", flush=True)
    print(f"{len(seeds)} programs, {failures} differ")


if __name__ == "__main__":
    main()
