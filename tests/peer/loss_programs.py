"""Random programs of losses, run by Weft and by Optax: values, and derivatives by every floating argument.

    python -m tests.peer.loss_programs --seeds 0:500

As `optim_programs`, with which it shares how results are compared: a seed draws a loss of Optax's public table, shapes
of batches and classes, dtypes, masks, options, and how it runs. Each loss of the table has a row in LOSSES, which a
test checks.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
from typing import Any

import numpy as onp
import optax

from tests.peer.optim_programs import DTYPES, SIDES, wide

TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 8e-2}

# The kinds of positional arguments, and options with their values. R: real numbers, P: probabilities, L: logarithms of
# probabilities, B: 0 or 1, S: -1 or 1, I: a class for each example, E: an example's class for pairs, J: shares of a
# class for each item.
LOSSES: dict[str, tuple[str, dict[str, list[str]]]] = {
    "binary_dice_loss": ("RB", {"smooth": ["0.5"], "apply_sigmoid": ["True"]}),
    "convex_kl_divergence": ("LP", {"where": ["mask"]}),
    "cosine_distance": ("RR", {"epsilon": ["0.1"], "axis": ["0"], "where": ["mask"]}),
    "cosine_similarity": ("RR", {"epsilon": ["0.1"], "axis": ["0"], "where": ["mask"]}),
    "dice_loss": ("RP", {"alpha": ["0.3"], "smooth": ["0.5"], "reduction": ["'sum'", "'none'"],
                         "ignore_background": ["True"]}),
    "generalized_kl_divergence": ("LP", {"axis": ["-1"], "where": ["mask"]}),
    "hinge_loss": ("RS", {}),
    "huber_loss": ("RR", {"delta": ["0.5"]}),
    "kl_divergence": ("LP", {"where": ["mask"], "axis": ["0"]}),
    "kl_divergence_with_log_targets": ("LL", {"where": ["mask"], "axis": ["0"]}),
    "l2_loss": ("RR", {}),
    "log_cosh": ("RR", {}),
    "multiclass_generalized_dice_loss": ("RP", {"smooth": ["0.5"], "ignore_background": ["True"]}),
    "multiclass_hinge_loss": ("RI", {}),
    "multiclass_perceptron_loss": ("RI", {}),
    "multiclass_sparsemax_loss": ("RI", {}),
    "ntxent": ("RE", {"temperature": ["0.5"]}),
    "perceptron_loss": ("RS", {}),
    "poly_loss_cross_entropy": ("RP", {"epsilon": ["0.5"], "axis": ["0"], "where": ["mask"]}),
    "ranking_softmax_loss": ("RJ", {"where": ["mask", "nothing"], "weights": ["weights"],
                                    "reduce_fn": ["np.sum", "None"]}),
    "safe_softmax_cross_entropy": ("RP", {}),
    "sigmoid_binary_cross_entropy": ("RB", {}),
    "sigmoid_focal_loss": ("RB", {"alpha": ["0.3"], "gamma": ["1.5"]}),
    "smooth_labels": ("P", {"alpha": ["0.1"], "axis": ["0"], "where": ["mask"]}),
    "softmax_cross_entropy": ("RP", {"axis": ["0"], "where": ["mask", "rows"]}),
    "softmax_cross_entropy_with_integer_labels": ("RI", {"where": ["mask", "rows"]}),
    "sparsemax_loss": ("RB", {}),
    "squared_error": ("RR", {}),
    "triplet_margin_loss": ("RRR", {"margin": ["0.5"], "norm_degree": ["2"]}),
}  # fmt: skip
NEEDED = {"smooth_labels": ("alpha",)}
ELSEWHERE = {
    "ctc_loss", "ctc_loss_with_forward_probs",  # paddings; tests/peer/test_optim_losses_schedules.py
    "make_fenchel_young_loss",  # of a function; drawn as a name of its own
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Program:
    """Call of a loss as text, the kinds and shape of its arguments, and how it runs."""

    seed: int
    text: str
    kinds: str
    shape: tuple[int, ...]
    dtype: str
    mode: str

    def __str__(self) -> str:
        return f"{self.seed}: {self.text}   [{self.kinds} {self.shape} {self.dtype}, {self.mode}]"


def draw(seed: int) -> Program:
    """Draw the program of a seed."""
    rng = random.Random(seed)
    names = [*sorted(LOSSES), "fenchel_young"]
    name = names[seed % len(names)]
    dtype = rng.choice(("f32", "f32", "bf16", "f16"))
    mode = rng.choice(("eager", "jit", "vmap"))
    if name == "fenchel_young":
        name, kinds, options = "make_fenchel_young_loss(lib.nn.logsumexp)", "RP", {}
        shape = rng.choice(((3,), (2, 3), (2, 1, 3)))
    else:
        kinds, options = LOSSES[name]
        shape = (4, 3) if name == "ntxent" else rng.choice(((2, 3), (3, 3), (2, 2, 3), (1, 2, 3, 2), (2, 0, 3), (5,)))
        if "dice" in name:
            shape = rng.choice(((2, 4, 3), (2, 3, 4, 2), (1, 5, 1)))
    chosen = {
        option: rng.choice(values)
        for option, values in options.items()
        if option in NEEDED.get(name, ()) or rng.random() < 0.35
    }
    arguments = [f"a{i}" for i in range(len(kinds))] + [f"{option}={value}" for option, value in chosen.items()]
    return Program(seed, f"o.losses.{name}({', '.join(arguments)})", kinds, tuple(shape), dtype, mode)


def argument(kind: str, shape: tuple[int, ...], dtype: str, rng: onp.random.Generator) -> Any:
    """Draw one argument as a NumPy array."""
    numbers = rng.normal(size=shape)
    shares = onp.exp(numbers) / onp.exp(numbers).sum(-1, keepdims=True)
    match kind:
        case "R":
            found = numbers
        case "P":
            hard = onp.eye(shape[-1])[rng.integers(0, shape[-1], shape[:-1])]
            found = hard if rng.random() < 0.5 else shares
        case "L":
            found = onp.log(shares)
        case "B":
            found = (numbers > 0) * 1.0
        case "S":
            found = onp.where(numbers > 0, 1.0, -1.0)
        case "J":
            found = rng.integers(0, 3, shape) * 1.0
        case "I":
            return rng.integers(0, shape[-1], shape[:-1]).astype(onp.int32)
        case _:
            return rng.integers(0, 2, shape[:1]).astype(onp.int32)
    return found.astype(DTYPES[dtype])


def run(side: str, program: Program) -> list[Any]:
    """Return the value and the derivatives by all floating arguments."""
    modules = SIDES[side]
    lib = modules.lib
    rng = onp.random.default_rng(program.seed)
    batch = 2 if program.mode == "vmap" else 1
    rows = [[argument(kind, program.shape, program.dtype, rng) for kind in program.kinds] for _ in range(batch)]
    mask = rng.random(program.shape) < 0.7
    names = {
        **vars(modules),
        "mask": modules.np.asarray(mask),
        "rows": modules.np.asarray(mask[..., 0]),
        "nothing": modules.np.zeros(program.shape, bool),
        "weights": modules.np.asarray(rng.random(program.shape).astype(onp.float32)),
    }

    def loss(*arguments: Any) -> Any:
        return eval(program.text, {**names, **{f"a{i}": value for i, value in enumerate(arguments)}})

    floating = tuple(i for i, kind in enumerate(program.kinds) if kind not in "IE")

    def both(*arguments: Any) -> Any:
        value = loss(*arguments)
        total = lambda *arguments: loss(*arguments).astype(modules.np.float32).sum()
        return value, lib.grad(total, argnums=floating)(*arguments)

    if program.mode == "vmap":
        arguments = [modules.np.asarray(onp.stack(column)) for column in zip(*rows, strict=True)]
        both = lib.vmap(both)
    else:
        arguments = [modules.np.asarray(value) for value in rows[0]]
        if program.mode == "jit":
            both = lib.jit(both)
    return [onp.asarray(leaf) for leaf in lib.tree.leaves(both(*arguments))]


def difference(program: Program) -> str | None:
    """Return what Weft does otherwise than Optax; None where they agree or Optax has no finite answer."""
    try:
        theirs = run("optax", program)
    except Exception:
        return None
    if not onp.isfinite(wide(theirs[0])).all():
        return None
    try:
        ours = run("weft", program)
    except Exception as error:
        return f"{type(error).__name__}: {' | '.join(str(error).splitlines()[:5])[:400]}"
    rtol = TOLERANCE[program.dtype]
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        what = "value" if i == 0 else f"derivative {i - 1}"
        if a.shape != b.shape:
            return f"{what}: shape {a.shape}, Optax {b.shape}"
        if i == 2 and "focal" in program.text:
            continue  # Optax drops the derivative of the weight by labels of exactly 0 and 1
        a, b = wide(a), wide(b)
        if not onp.isfinite(b).all():
            continue
        scale = onp.abs(b).max(initial=1e-3)
        if not onp.allclose(a, b, rtol=rtol, atol=rtol * scale):
            return f"{what}: {a.ravel()[:4]}, Optax {b.ravel()[:4]}"
    return None


def public_losses() -> set[str]:
    """Names of Optax's public losses."""
    return {name for name in vars(optax.losses) if callable(getattr(optax.losses, name)) and not name.startswith("_")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:200", help="a seed, or first:last")
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
