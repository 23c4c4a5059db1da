"""Expert parallel: each device has some of the experts, and tokens are sent to the device of theirs and back."""

from __future__ import annotations

import sys

import numpy as np
from training import mesh, mlp_batches, report, sgd, train

import weft
import weft.numpy as wnp
from weft import parallel
from weft.sharding import PartitionSpec as P

EXPERTS, WIDTH = 16, 64


def expert(w, x):
    return wnp.tanh(x @ w)


def routed(params, x):
    """Choose the expert of each token; return it with its weight."""
    scores = weft.nn.softmax(x @ params["router"], -1)
    choice = wnp.argmax(scores, -1)
    return choice, wnp.take_along_axis(scores, choice[:, None], 1)


def whole_loss(params, x, y):
    choice, weight = routed(params, x)
    out = wnp.einsum("td,tde->te", x, params["experts"][choice])
    return ((x + weight * wnp.tanh(out) - y) ** 2).mean()


def loss(params, x, y):
    """Compute the loss on one device, which has a part of the tokens and of the experts."""
    choice, weight = routed(params, x)
    out = parallel.expert_parallel(expert, params["experts"], x, choice, "expert", capacity=x.shape[0])
    return weft.lax.pmean(((x + weight * out - y) ** 2).mean(), "expert")


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    random = np.random.RandomState(0)
    draw = lambda *shape: random.randn(*shape).astype(np.float32) / 8
    params = {"router": draw(WIDTH, EXPERTS), "experts": draw(EXPERTS, WIDTH, WIDTH)}
    expected = train(weft.jit(sgd(whole_loss)), params, mlp_batches(steps))

    specs, data = {"router": P(), "experts": P("expert")}, P("expert")
    mapped = weft.shard_map(loss, mesh=mesh(expert=8), in_specs=(specs, data, data), out_specs=P())
    step = weft.jit(sgd(mapped))
    losses = train(step, params, mlp_batches(steps))
    report("expert parallel", losses, expected, step, params, *next(mlp_batches(1)))


if __name__ == "__main__":
    main("--short" in sys.argv)
