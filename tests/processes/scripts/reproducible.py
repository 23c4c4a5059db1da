"""Steps of training in eight parts; writes the losses and parameters to the file that is the first argument."""

from __future__ import annotations

import sys
from typing import Any

import numpy as onp

import weft
import weft.numpy as np
from weft.experimental import multihost_utils
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

weft.distributed.initialize()
mesh = weft.make_mesh((weft.device_count(),), ("d",), (AxisType.Auto,))
random = onp.random.default_rng(0)
X, Y = (random.normal(size=(32, n)).astype(onp.float32) for n in (24, 8))
PARAMS = [random.normal(size=shape).astype(onp.float32) / 4 for shape in ((24, 40), (40, 8))]


def loss(params: Any, x: Any, y: Any) -> Any:
    return np.mean((np.tanh(x @ params[0]) @ params[1] - y) ** 2)


def step(params: Any, x: Any, y: Any) -> Any:
    value, gradients = weft.value_and_grad(loss)(params, x, y)
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


results = []
function = weft.jit(step, reproducible=8)
for spec in (P(), P("d"), P(None, "d")):
    params = weft.device_put(PARAMS, NamedSharding(mesh, spec))
    x, y = weft.device_put((X, Y), NamedSharding(mesh, P("d")))
    for _ in range(3):
        params, value = function(params, x, y)
        results.append(value)
    results += params
results = [onp.asarray(multihost_utils.process_allgather(r, tiled=True)) for r in results]
if weft.process_index() == 0:
    onp.savez(sys.argv[1], *results)
