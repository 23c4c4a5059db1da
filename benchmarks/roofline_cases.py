"""Cases of `roofline.py`: functions of one library over grids of shapes, axes, dtypes and neighbours that fuse."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from libraries import Library

Make = Callable[[Library], Callable[..., Any]]


class Case(NamedTuple):
    """Function to time with its arguments. `operations` and `bytes_moved` are what it must do at least; without
    `bytes_moved` it reads its arguments and writes its results once."""

    name: str
    make: Make
    arguments: tuple[np.ndarray, ...]
    operations: float = 0.0
    bytes_moved: float | None = None


DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32, "f64": np.float64}
_rng = np.random.default_rng(0)


@functools.cache
def draw(*shape: int, dtype: str = "f32") -> np.ndarray:
    """Return random values of a shape, the same ones each time."""
    if dtype[0] == "i":
        return _rng.integers(-100, 100, shape).astype(DTYPES[dtype])
    return _rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


# About a million elements: minor dimensions of 1 to 10, odd and prime ones, long rows, few rows.
SHAPES = [(1 << 20,), (1021, 1031), (1 << 19, 2), (349_525, 3), (131_071, 8), (8, 131_071), (104_729, 10), (3, 349_525)]
SHAPES += [(64, 128, 128), (128, 10, 819), (4096, 64, 4), (32, 3, 104, 104), (2, 1 << 19), (16, 65_536), (65_536, 16)]


def name(operation: str, shape: tuple[int, ...], *rest: Any) -> str:
    return " ".join([operation, "x".join(map(str, shape)), *map(str, rest)])


def cases() -> Iterator[Case]:
    """Yield all cases."""
    yield from reductions()
    yield from movement()
    yield from elementwise()
    yield from contractions()
    yield from indexing()
    yield from ordering()
    yield from linear_algebra()
    yield from neighbours()


def reductions() -> Iterator[Case]:
    def rule(operation: str, axes: tuple[int, ...]) -> Make:
        table: dict[str, Callable[[Library, Any], Any]] = {
            "sum": lambda f, x: x.sum(axes),
            "max": lambda f, x: x.max(axes),
            "square mean": lambda f, x: (x * x).mean(axes),
            "normalize": lambda f, x: (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1),
            "softmax": lambda f, x: f.nn.softmax(x, axes),
        }
        return lambda f: lambda x: table[operation](f, x)

    for shape in SHAPES:
        rank = len(shape)
        for count in range(1, rank + 1):
            for axes in itertools.combinations(range(rank), count):
                for operation in ("sum", "square mean", "normalize"):
                    yield Case(name(operation, shape, "over", *axes), rule(operation, axes), (draw(*shape),))
                if count == 1:
                    yield Case(name("softmax", shape, "over", *axes), rule("softmax", axes), (draw(*shape),))
                    for dtype in ("bf16", "i8"):
                        x = draw(*shape, dtype=dtype)
                        yield Case(name(f"max {dtype}", shape, "over", *axes), rule("max", axes), (x,))
        for axis in range(rank):
            for operation in ("argmax", "cumsum"):
                make = lambda f, operation=operation, axis=axis: lambda x: getattr(f.np, operation)(x, axis=axis)
                yield Case(name(operation, shape, "over", axis), make, (draw(*shape),))


def movement() -> Iterator[Case]:
    for shape in SHAPES:
        rank = len(shape)
        x = draw(*shape)
        for order in itertools.islice(itertools.permutations(range(rank)), 1, 6):
            yield Case(name("transpose", shape, *order), lambda f, o=order: lambda x: f.np.transpose(x, o), (x,))
        for axis in range(rank):
            n = shape[axis]
            table: dict[str, Make] = {
                "roll": lambda f, a=axis: lambda x: f.np.roll(x, 1, a),
                "flip": lambda f, a=axis: lambda x: f.np.flip(x, a),
                "concatenate": lambda f, a=axis: lambda x: f.np.concatenate([x, x], a),
                "stack": lambda f, a=axis: lambda x: f.np.stack([x, x + 1, x * 2], a),
                "repeat": lambda f, a=axis: lambda x: f.np.repeat(x, 2, a),
                "tile": lambda f, a=axis, r=rank: lambda x: f.np.tile(x, [1 + (i == a) for i in range(r)]),
                "pad": lambda f, a=axis, r=rank: lambda x: f.np.pad(x, [(int(i == a),) * 2 for i in range(r)]),
                "difference": lambda f, a=axis: lambda x: x - f.np.roll(x, 1, a),
                "laplacian": lambda f, a=axis: lambda x: f.np.roll(x, 1, a) + f.np.roll(x, -1, a) - 2 * x,
            }
            if n > 1:
                table["halves"] = lambda f, a=axis: (
                    lambda x: f.np.split(x[(slice(None),) * a + (slice(0, x.shape[a] // 2 * 2),)], 2, a)
                )
                table["every second"] = lambda f, a=axis: lambda x: x[(slice(None),) * a + (slice(None, None, 2),)] + 1
            for operation, make in table.items():
                yield Case(name(operation, shape, "along", axis), make, (x,))


def elementwise() -> Iterator[Case]:
    for shape in ((1 << 20,), (1021, 1031), (349_525, 3)):
        for operation in ("exp", "tanh", "sqrt", "floor", "sin", "logistic"):
            make: Make = lambda f, operation=operation: lambda x: getattr(f.lax, operation)(x)
            yield Case(name(operation, shape), make, (draw(*shape),))
        x, row, column = draw(*shape), draw(shape[-1]), draw(shape[0], *(1,) * (len(shape) - 1))
        yield Case(name("add", shape), lambda f: lambda x, y: x + y, (x, x + 1))
        yield Case(name("add row", shape), lambda f: lambda x, y: x + y, (x, row))
        yield Case(name("add column", shape), lambda f: lambda x, y: x + y, (x, column if len(shape) > 1 else x))
        for dtype in ("bf16", "i8", "f32"):
            y = draw(*shape, dtype=dtype)
            yield Case(name(f"scale {dtype}", shape), lambda f: lambda x: x * 2 + 1, (y,))
            yield Case(name(f"{dtype} to f32", shape), lambda f: lambda x: x.astype(np.float32) * 0.5, (y,))
    yield Case("select 1048576", lambda f: lambda c, x: f.np.where(c > 0, x, -x), (draw(1 << 20), draw(1 << 20)))
    for shape in ((1 << 20,), (1000, 3)):
        yield Case(
            name("random normal", shape),
            lambda f, s=shape: lambda k: f.random.normal(f.random.PRNGKey(k), s),
            (np.array(0),),
        )


def contractions() -> Iterator[Case]:
    sizes = [(1, 1024, 1024), (1, 4096, 4096), (2, 1024, 4096), (8, 1024, 1024), (16, 4096, 1024), (256, 256, 256)]
    sizes += [
        (1000, 10, 1000),
        (10, 1000, 1000),
        (1021, 3, 1031),
        (4096, 64, 64),
        (512, 512, 512),
        (100_000, 8, 8),
        (3, 100_000, 3),
    ]
    for m, n, k in sizes:
        operations = 2.0 * m * n * k
        for dtype in ("f32", "bf16"):
            a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)
            rest = (dtype,)
            yield Case(name("matmul", (m, n, k), *rest), lambda f: lambda a, b: a @ b, (a, b), operations)
            yield Case(name("matmul t", (m, n, k), *rest), lambda f: lambda a, b: a @ b.T, (a, b.T.copy()), operations)
        a, b = draw(m, k), draw(k, n)
        yield Case(name("matmul gelu", (m, n, k)), lambda f: lambda a, b: f.nn.gelu(a @ b), (a, b), operations)
        w = draw(k, n, dtype="i8")
        yield Case(
            name("matmul i8 weights", (m, n, k)), lambda f: lambda a, b: a @ b.astype(np.float32), (a, w), operations
        )
    for batch, m, n, k in ((64, 64, 64, 64), (1000, 8, 8, 8), (4096, 3, 3, 3), (12, 128, 128, 64), (256, 1, 64, 128)):
        a, b = draw(batch, m, k), draw(batch, k, n)
        yield Case(
            name("batched matmul", (batch, m, n, k)), lambda f: lambda a, b: a @ b, (a, b), 2.0 * batch * m * n * k
        )
    spatial: list[tuple[int, int, int, int, int, int]] = [
        (8, 32, 56, 32, 3, 1),
        (8, 64, 28, 64, 3, 1),
        (8, 64, 28, 64, 7, 64),
        (8, 64, 28, 64, 3, 8),
        (8, 3, 112, 32, 3, 1),
        (1, 256, 14, 256, 1, 1),
    ]
    for count, channels, side, out, window, groups in spatial:
        x, w = draw(count, side, side, channels), draw(window, window, channels // groups, out)
        operations = 2.0 * count * side * side * out * window * window * channels / groups
        convolve: Make = lambda f, g=groups: (
            lambda x, w: f.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=g
            )
        )
        yield Case(
            name("convolution", (count, side, side, channels, out), f"{window}^2", f"groups {groups}"),
            convolve,
            (x, w),
            operations,
        )


def indexing() -> Iterator[Case]:
    for rows, width, count in ((50_000, 64, 8192), (1_000_000, 1, 1 << 20), (1000, 1024, 1024), (4096, 4096, 64)):
        table, chosen = draw(rows, width), _rng.integers(0, rows, count)
        moved = 8.0 * count * width + 8.0 * count
        shape = (rows, width, count)
        yield Case(name("take", shape), lambda f: lambda t, i: t[i], (table, chosen), 0.0, moved)
        add = draw(count, width)
        scatter: Make = lambda f, r=rows: lambda u, i: f.np.zeros((r, u.shape[1]), u.dtype).at[i].add(u)
        yield Case(name("scatter add", shape), scatter, (add, chosen), 0.0, 4.0 * rows * width + 4.0 * count * width)
        gradient: Make = lambda f: f.top.grad(lambda t, i: (t[i] ** 2).sum())
        yield Case(name("embedding gradient", shape), gradient, (table, chosen), 0.0, 4.0 * rows * width + moved)
    data = _rng.integers(0, 100, 1 << 22).astype(np.int32)
    yield Case("histogram 4194304 into 100", lambda f: lambda i: f.np.bincount(i, length=100), (data,))
    yield Case("one hot 65536 of 100", lambda f: lambda i: f.nn.one_hot(i, 100), (data[:65_536],))
    x = draw(2048, 512)
    yield Case(
        "take along axis 2048x512",
        lambda f: lambda x, i: f.np.take_along_axis(x, i, 1),
        (x, _rng.integers(0, 512, (2048, 512))),
    )
    yield Case(
        "mask 1048576", lambda f: lambda x: f.np.where(x > 0, x, 0).sum() + f.np.count_nonzero(x > 1), (draw(1 << 20),)
    )


def ordering() -> Iterator[Case]:
    for shape in ((1 << 20,), (1024, 1024), (65_536, 16), (104_729, 10)):
        for operation in ("sort", "argsort", "median"):
            axis = {"axis": -1}
            yield Case(
                name(operation, shape),
                lambda f, o=operation, a=axis: lambda x: getattr(f.np, o)(x, **a),
                (draw(*shape),),
            )
        yield Case(name("top_k 8", shape), lambda f: lambda x: f.lax.top_k(x, 8), (draw(*shape),))
    yield Case("sort 1024x1024 axis 0", lambda f: lambda x: f.np.sort(x, axis=0), (draw(1024, 1024),))


def linear_algebra() -> Iterator[Case]:
    for count, n in ((1, 512), (64, 64), (4096, 32), (10_000, 4)):
        a = draw(count, n, n)
        spd = a @ a.transpose(0, 2, 1) + n * np.eye(n, dtype=np.float32)
        b = draw(count, n, 1)
        cube = float(count) * n**3
        yield Case(name("cholesky", (count, n, n)), lambda f: lambda a: f.np.linalg.cholesky(a), (spd,), cube / 3)
        yield Case(name("solve", (count, n, n)), lambda f: lambda a, b: f.np.linalg.solve(a, b), (spd, b), cube * 2 / 3)
        yield Case(name("inv", (count, n, n)), lambda f: lambda a: f.np.linalg.inv(a), (spd,), cube * 2)
        yield Case(name("det", (count, n, n)), lambda f: lambda a: f.np.linalg.det(a), (spd,), cube * 2 / 3)
        yield Case(name("qr", (count, n, n)), lambda f: lambda a: f.np.linalg.qr(a), (a,), cube * 8 / 3)
    for n in (512,):
        x = draw(n, n)
        flops = 5.0 * n * n * np.log2(n * n)
        yield Case(name("fft2", (n, n)), lambda f: lambda x: f.np.fft.fft2(x), (x,), flops)
        yield Case(
            name("fft filter", (n, n)), lambda f: lambda x: f.np.fft.irfft2(f.np.fft.rfft2(x) * 0.5), (x,), flops
        )
    yield Case("fft 4096x256", lambda f: lambda x: f.np.fft.fft(x), (draw(4096, 256),), 5.0 * 4096 * 256 * 8)


def neighbours() -> Iterator[Case]:
    """Yield operations with others that fuse into them."""
    x = draw(1024, 1024)
    y = draw(1024, 1024)
    yield Case(
        "layer norm 1024x1024",
        lambda f: lambda x: f.np.tanh((x - x.mean(-1, keepdims=True)) * f.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)),
        (x,),
    )
    yield Case("group norm 8x32x32x320", lambda f: lambda x: _group_norm(f, x, 32), (draw(8, 32, 32, 320),))
    yield Case(
        "group norm gradient 8x32x32x320",
        lambda f: f.top.grad(lambda x: (_group_norm(f, x, 32) ** 2).sum()),
        (draw(8, 32, 32, 320),),
    )
    yield Case("sum of transpose 1024x1024", lambda f: lambda x, y: (x.T * y).sum(0), (x, y))
    yield Case("two sums 1024x1024", lambda f: lambda x: (x.sum(0), (x * x).sum(0), x.max(1)), (x,))
    yield Case(
        "distances 2048x3",
        lambda f: lambda x: f.np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1) + 1).sum(1),
        (draw(2048, 3),),
        2048 * 2048 * 11.0,
    )
    yield Case("forces 2048x3", lambda f: _forces(f), (draw(2048, 3),), 2048 * 2048 * 20.0)
    yield Case(
        "stencil 128^3",
        lambda f: lambda u: sum(f.np.roll(u, s, a) for a in range(3) for s in (1, -1)) - 6 * u,
        (draw(128, 128, 128),),
    )
    yield Case(
        "lattice 256x256x9",
        lambda f: lambda x: f.np.stack([f.np.roll(x[..., i], (i % 3 - 1, i // 3 - 1), (0, 1)) for i in range(9)], -1),
        (draw(256, 256, 9),),
    )
    yield Case(
        "attention 8x256x64",
        _attention,
        (draw(8, 256, 64), draw(8, 256, 64), draw(8, 256, 64)),
        8 * 256 * 256 * 64 * 4.0,
    )
    yield Case(
        "loss of logits 1024x1000",
        lambda f: f.top.grad(lambda x: -f.nn.log_softmax(x)[f.np.arange(1024), f.np.arange(1024) % 1000].mean()),
        (draw(1024, 1000),),
    )
    yield Case(
        "max pool 8x56x56x64",
        lambda f: lambda x: f.lax.reduce_window(x, -np.inf, f.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        (draw(8, 56, 56, 64),),
    )
    yield Case(
        "scan of 512 rows",
        lambda f: lambda x: f.lax.scan(lambda c, r: (0.9 * c + r, c.sum()), x[0], x),
        (draw(512, 1024),),
    )


def _group_norm(f: Library, x: Any, groups: int) -> Any:
    count, height, width, channels = x.shape
    g = x.reshape(count, height, width, groups, channels // groups)
    g = (g - g.mean((1, 2, 4), keepdims=True)) * f.lax.rsqrt(g.var((1, 2, 4), keepdims=True) + 1e-5)
    return g.reshape(x.shape)


def _forces(f: Library) -> Callable[..., Any]:
    def forces(x: Any) -> Any:
        d = x[:, None] - x[None]
        weight = f.lax.rsqrt((d * d).sum(-1) + 0.1) ** 3
        return (d * weight[..., None]).sum(1), weight.sum(1)

    return forces


def _attention(f: Library) -> Callable[..., Any]:
    return lambda q, k, v: f.nn.softmax(q @ k.transpose(0, 2, 1) * 0.125, -1) @ v
