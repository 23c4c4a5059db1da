"""Benchmarks in which users found Weft slower than JAX: times and first calls of both in one process.

python benchmarks/reported.py [--only WORD ...]

For first calls without a disk cache, set `WEFT_COMPILATION_CACHE_DIR` to an empty folder. The libraries are timed
alternately, after a warm-up and after Weft's optimized code is in use.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from libraries import Library, load
from measure import Line, compare

from weft.runtime.cpu import tiers

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]
LAYOUT = ("NHWC", "HWIO", "NHWC")


def normal(*shape: int, scale: float = 0.1) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def mask(f: Library) -> Case:
    chosen, values = np.random.default_rng(0).random(1 << 20) < 0.3, normal(1 << 20)

    def work(m: Any, v: Any) -> Any:
        where = f.np.nonzero(m, size=400_000)[0]
        return f.np.where(m, v, 0.0).sum(), f.np.cumsum(m)[-1], v[where]

    return work, (chosen, values)


def spectrum(f: Library) -> Case:
    return lambda x, g: f.np.fft.irfft2(f.np.fft.rfft2(x) * g), (normal(512, 512), normal(512, 257))


def lorenz(f: Library) -> Case:
    def derivative(s: Any) -> Any:
        x, y, z = s
        return f.np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(s: Any, _: Any) -> Any:
        h = 0.01
        k1 = derivative(s)
        k2 = derivative(s + h / 2 * k1)
        k3 = derivative(s + h / 2 * k2)
        k4 = derivative(s + h * k3)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return s, s

    return f.top.vmap(lambda s: f.lax.scan(step, s, None, length=500)[1]), (normal(1000, 3, scale=1.0),)


def _combine(left: Any, right: Any) -> Any:
    return left[0] * right[0], right[0] * left[1] + right[1]


def recurrence(f: Library) -> Case:
    loss = lambda a, b: f.lax.associative_scan(_combine, (a, b), axis=1)[1].sum()
    return f.top.grad(loss, (0, 1)), (abs(normal(4, 256, 128, 8)), normal(4, 256, 128, 8))


def state_space(f: Library) -> Case:
    def loss(step: Any, decay: Any, enter: Any, x: Any, leave: Any) -> Any:
        a = f.np.exp(f.np.einsum("bld,dn->bldn", step, decay))
        b = f.np.einsum("bld,bln->bldn", step * x, enter)
        state = f.lax.associative_scan(_combine, (a, b), axis=1)[1]
        return (f.np.einsum("bldn,bln->bld", state, leave) ** 2).sum()

    arguments = (
        abs(normal(4, 256, 128)),
        -abs(normal(128, 8)),
        normal(4, 256, 8),
        normal(4, 256, 128),
        normal(4, 256, 8),
    )
    return f.top.grad(loss, (0, 1, 2, 3, 4)), arguments


def attention(f: Library) -> Case:
    def loss(q: Any, k: Any, v: Any) -> Any:
        weights = f.nn.softmax(f.np.einsum("bqhd,bkhd->bhqk", q, k) / 8.0)
        return (f.np.einsum("bhqk,bkhd->bqhd", weights, v) ** 2).sum()

    return f.top.grad(loss, (0, 1, 2)), (normal(4, 128, 8, 64), normal(4, 128, 8, 64), normal(4, 128, 8, 64))


def strided(f: Library) -> Case:
    def loss(x: Any, w: Any) -> Any:
        return (f.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=LAYOUT) ** 2).sum()

    return f.top.grad(loss, (0, 1)), (normal(8, 32, 32, 16), normal(5, 5, 16, 32))


def separable(f: Library) -> Case:
    def loss(x: Any, w: Any, u: Any) -> Any:
        deep = f.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUT, feature_group_count=32)
        return (f.nn.relu(f.lax.conv_general_dilated(deep, u, (1, 1), "SAME", dimension_numbers=LAYOUT)) ** 2).sum()

    return f.top.grad(loss, (0, 1, 2)), (normal(8, 32, 32, 32), normal(3, 3, 1, 32), normal(1, 1, 32, 64))


def lstm(f: Library) -> Case:
    def loss(w: Any, u: Any, b: Any, xs: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, g, k, o = f.np.split(x @ w + h @ u + b, 4, -1)
            c = f.nn.sigmoid(g) * c + f.nn.sigmoid(i) * f.np.tanh(k)
            h = f.nn.sigmoid(o) * f.np.tanh(c)
            return (h, c), h

        zero = f.np.zeros((32, 128))
        return (f.lax.scan(cell, (zero, zero), xs)[1] ** 2).sum()

    return f.top.grad(loss, (0, 1, 2)), (normal(64, 512), normal(128, 512), normal(512), normal(50, 32, 64))


LINES: dict[str, Callable[[Library], Case]] = {
    "where, cumsum, nonzero of a mask of 1M": mask,
    "irfft2(rfft2(x) * g), 512 x 512": spectrum,
    "svd 300": lambda f: (f.np.linalg.svd, (normal(300, 300),)),
    "eigh 300": lambda f: (lambda x: f.np.linalg.eigh(x + x.T), (normal(300, 300),)),
    "RK4 of Lorenz in a scan, vmapped 1000": lorenz,
    "associative_scan, gradient": recurrence,
    "state space model, gradient": state_space,
    "attention, gradient": attention,
    "5 x 5 strided convolution, gradient": strided,
    "separable convolution, gradient": separable,
    "LSTM, gradient": lstm,
    "softmax of 1000 columns": lambda f: (f.nn.softmax, (normal(1000, 1000),)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="only lines with one of these words in their names")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    libraries = {name: load(name) for name in ("weft", "jax")}
    for f in libraries.values():
        f.top.block_until_ready(f.top.jit(lambda x: x * x - 3)(f.np.arange(5.0)))
    print(f"{'':42s} {'weft':>9s} {'jax':>9s}  ratio   first: {'weft':>6s} {'jax':>6s}  ratio")
    for name, make in LINES.items():
        if args.only and not any(word in name for word in args.only):
            continue
        sides: dict[str, Callable[[], object]] = {}
        first: dict[str, float] = {}
        for library, f in libraries.items():
            function, arrays = make(f)
            arguments = f.top.block_until_ready([f.np.asarray(a) for a in arrays])
            jitted = f.top.jit(function)
            start = time.perf_counter()
            f.top.block_until_ready(jitted(*arguments))
            first[library] = time.perf_counter() - start
            sides[library] = lambda f=f, jitted=jitted, arguments=arguments: f.top.block_until_ready(jitted(*arguments))
        for _ in range(3):  # Weft recompiles with optimization in the background
            for side in sides.values():
                side()
            time.sleep(0.2)
            tiers.wait(60)
        times = compare(Line(name, sides, repeats=args.repeats)).times
        ms = {library: 1e3 * times[library].median for library in libraries}
        print(
            f"{name:42s} {ms['weft']:9.3f} {ms['jax']:9.3f}  {ms['weft'] / ms['jax']:5.2f}   "
            f"       {1e3 * first['weft']:6.0f} {1e3 * first['jax']:6.0f}  {first['weft'] / first['jax']:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
