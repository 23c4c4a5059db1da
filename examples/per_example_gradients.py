"""Per-example gradients: `vmap` of `grad` computes the gradient of each example instead of their mean.

They show which training examples the model disagrees with. Twelve flowers get a wrong label; after a short training
most of them are among those with the largest gradients. Clipping per-example gradients bounds the influence of each
example, as differentially private training does.
"""

from __future__ import annotations

import sys

import numpy as np
import picture
from iris import load

import weft
import weft.numpy as wnp
from weft import optim, random

WRONG = 12


def init(key: weft.Array) -> dict:
    first, second = random.split(key)
    return {
        "hidden": {"w": 0.5 * random.normal(first, (4, 16)), "b": wnp.zeros(16)},
        "output": {"w": 0.5 * random.normal(second, (16, 3)), "b": wnp.zeros(3)},
    }


def loss(params: dict, x: weft.Array, y: weft.Array) -> weft.Array:
    """Return the loss of one flower, without a batch dimension."""
    hidden = wnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["output"]["w"] + params["output"]["b"]
    return optim.softmax_cross_entropy_with_integer_labels(logits, y)


gradients = weft.vmap(weft.grad(loss), in_axes=(None, 0, 0))


def main(short: bool = False) -> picture.Panel:
    x, y, _, _ = load(seed=0, unseen=0)
    mistaken = random.permutation(random.key(1), len(y))[:WRONG]
    labels = y.at[mistaken].set((y[mistaken] + 1) % 3)

    params = init(random.key(0))
    each = gradients(params, x, labels)
    whole = weft.grad(lambda p: wnp.mean(weft.vmap(loss, (None, 0, 0))(p, x, labels)))(params)
    for one, mean in zip(weft.tree.leaves(each), weft.tree.leaves(whole), strict=True):
        assert one.shape == (len(y), *mean.shape)
        assert wnp.allclose(one.mean(0), mean, atol=1e-5)
    print(f"{len(y)} gradients of {sum(leaf.size for leaf in weft.tree.leaves(params))} elements")

    @weft.jit
    def step(params: dict, bound: float, rate: float) -> tuple[dict, weft.Array]:
        """Take one step along the mean of the gradients, each clipped to the norm `bound`."""
        each = gradients(params, x, labels)
        lengths = weft.vmap(optim.global_norm)(each)
        shrink = wnp.minimum(1.0, bound / wnp.maximum(lengths, 1e-12))
        mean = weft.tree.map(lambda g: wnp.tensordot(shrink, g, axes=1) / len(shrink), each)
        return weft.tree.map(lambda p, m: p - rate * m, params, mean), lengths

    for i in range(150 if short else 400):
        params, lengths = step(params, 1.0, 0.5)
        if i % 50 == 0:
            clipped = float(wnp.mean(lengths > 1.0))
            print(f"step {i:3d}  mean norm {float(lengths.mean()):.3f}  clipped {clipped:.0%}")

    suspects = np.asarray(wnp.argsort(-lengths))[:WRONG]
    found = len(set(suspects.tolist()) & set(np.asarray(mistaken).tolist()))
    print(f"final: of the {WRONG} flowers with the largest gradients, {found} have a wrong label")
    assert found >= WRONG * 2 // 3

    order = np.argsort(-np.asarray(lengths))
    is_wrong = np.isin(order, np.asarray(mistaken))
    panel = picture.Panel("Norm of each flower's gradient", across="flower, by norm", up="norm", log=True)
    for wrong, colour, label in ((False, picture.BLUE, "right label"), (True, picture.RED, "wrong label")):
        chosen = np.flatnonzero(is_wrong == wrong)
        panel.dots(chosen, np.asarray(lengths)[order[chosen]], colour, label=label)
    return panel


if __name__ == "__main__":
    picture.save("per_example_gradients", main(short="--short" in sys.argv))
