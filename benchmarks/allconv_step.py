"""Training step of an all-convolutional network for CIFAR-10 on a GPU: convolutions, biases, relu, SGD.

    python benchmarks/allconv_step.py [--library weft|jax|torch] [--batch 128,...] [--dtype float32,bfloat16]

Features are last. It prints the milliseconds of a step, the best of five rounds, and the seconds of the first call.
float32 is computed in tf32 by all three libraries.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Each layer: the size of its window, its features, its stride.
LAYERS = (*[(3, 96, 1)] * 2, (3, 96, 2), *[(3, 192, 1)] * 2, (3, 192, 2), (3, 192, 1), (1, 192, 1), (1, 10, 1))
CLASSES, RATE = 10, 0.01


def initial() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return kernels (height, width, inputs, outputs) and biases."""
    rng, before, found = np.random.default_rng(0), 3, []
    for size, features, _ in LAYERS:
        scale = np.sqrt(2 / (size * size * before))
        kernel = rng.standard_normal((size, size, before, features), np.float32) * scale
        found.append((kernel.astype(np.float32), np.zeros(features, np.float32)))
        before = features
    return found


def data(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels."""
    rng = np.random.default_rng(1)
    return rng.standard_normal((batch, 32, 32, 3), np.float32), rng.integers(0, CLASSES, batch).astype(np.int32)


def step_of_arrays(library: Any, numpy: Any, batch: int, dtype: str, device: str) -> Callable[[], Any]:
    """Make a step of Weft, or of JAX, which has the same names."""
    layout = ("NHWC", "HWIO", "NHWC")

    def logits(parameters: Any, x: Any) -> Any:
        for n, ((kernel, bias), (_, _, stride)) in enumerate(zip(parameters, LAYERS, strict=True)):
            x = library.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=layout) + bias
            x = library.nn.relu(x) if n + 1 < len(LAYERS) else x
        return x.mean((1, 2)).astype("float32")

    def loss(parameters: Any, x: Any, labels: Any) -> Any:
        found = library.nn.log_softmax(logits(parameters, x))
        return -numpy.take_along_axis(found, labels[:, None], 1).mean()

    def step(parameters: Any, x: Any, labels: Any) -> Any:
        value, gradients = library.value_and_grad(loss)(parameters, x, labels)
        return library.tree.map(lambda p, g: p - RATE * g, parameters, gradients), value

    x, labels = data(batch)
    arrays = library.tree.map(lambda a: numpy.asarray(a).astype(dtype), (initial(), x))
    (parameters, images), labels = library.device_put((arrays, labels), library.devices(device)[0])
    run = library.jit(step, donate_argnums=0)

    def once() -> Any:
        nonlocal parameters
        parameters, value = run(parameters, images, labels)
        return value

    return once


def step_of_torch(batch: int, dtype: str) -> Callable[[], Any]:
    """Make a step of PyTorch with its compiler."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    kind, last = getattr(torch, dtype), torch.channels_last
    parameters = []
    for kernel, bias in initial():
        own = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()).to("cuda", kind).to(memory_format=last)
        parameters.append((own.requires_grad_(), torch.from_numpy(bias).to("cuda", kind).requires_grad_()))
    x, labels = data(batch)
    images = torch.from_numpy(x).permute(0, 3, 1, 2).to("cuda", kind).to(memory_format=last)
    targets = torch.from_numpy(labels).to("cuda", torch.int64)

    def loss(x: Any) -> Any:
        for n, ((kernel, bias), (size, _, stride)) in enumerate(zip(parameters, LAYERS, strict=True)):
            # SAME: with a stride of two, one more column on the right.
            if stride == 2:
                x = torch.nn.functional.pad(x, (0, 1, 0, 1))
            x = torch.nn.functional.conv2d(x, kernel, bias, stride, 0 if stride == 2 else size // 2)
            x = torch.relu(x) if n + 1 < len(LAYERS) else x
        return torch.nn.functional.cross_entropy(x.mean((2, 3)).float(), targets)

    compiled = torch.compile(loss)
    optimizer = torch.optim.SGD([p for pair in parameters for p in pair], lr=RATE, fused=True)

    def once() -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = compiled(images)
        value.backward()
        optimizer.step()
        return value.detach()

    return once


def step_of(library: str, batch: int, dtype: str, device: str) -> Callable[[], Any]:
    """Make a step of a library."""
    if library == "torch":
        return step_of_torch(batch, dtype)
    module, numpy = (importlib.import_module(name) for name in (library, f"{library}.numpy"))
    return step_of_arrays(module, numpy, batch, dtype, device)


def measure(title: str, run: Callable[[], Any], steps: int) -> None:
    """Print the time of the first call and of a step."""
    start = time.perf_counter()
    value = float(run())
    print(f"{title}: first call {time.perf_counter() - start:.2f} s, loss {value:.4f}", flush=True)
    for _ in range(3):
        value = float(run())
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(steps):
            result = run()
        value = float(result)
        best = min(best, (time.perf_counter() - start) / steps)
    print(f"{title}: {1e3 * best:.3f} ms a step, loss {value:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="weft", choices=("weft", "jax", "torch"))
    parser.add_argument("--batch", default="128")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="gpu")
    options = parser.parse_args()
    for batch in options.batch.split(","):
        for dtype in options.dtype.split(","):
            run = step_of(options.library, int(batch), dtype, options.device)
            measure(f"{options.library}, {batch} x {dtype}", run, options.steps)


if __name__ == "__main__":
    main()
