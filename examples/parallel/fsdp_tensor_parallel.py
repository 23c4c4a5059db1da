"""FSDP x tensor parallel: over one axis parameters are computed with in parts, over the other they are stored so."""

from __future__ import annotations

import sys

from tensor_parallel import RULES
from training import mesh, report, sgd, train, transformer_batches, transformer_loss, transformer_params

import weft
from weft import parallel


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(data=4, model=2)
    step = weft.jit(sgd(transformer_loss))
    expected = train(step, transformer_params(), transformer_batches(steps))

    shardings = parallel.tensor_parallel(transformer_params(), devices, RULES)
    shardings = parallel.fsdp(transformer_params(), devices, base=shardings)
    params = weft.device_put(transformer_params(), shardings)
    put = lambda batch: weft.device_put(batch, parallel.data_parallel(batch, devices))
    losses = train(step, params, transformer_batches(steps), put)
    weft.debug.visualize_array_sharding(params["layers"][0]["up"])
    report("fsdp x tensor parallel", losses, expected, step, params, *put(next(transformer_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
