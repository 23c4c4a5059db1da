"""Programs for the tests of fusion: named, and random from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft.api.callbacks import io_callback
from weft.api.inspect import make_jaxpr
from weft.ir.jaxpr import Jaxpr


def array(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Numbers of both signs that are nowhere near zero."""
    draws = np.random.default_rng(seed + len(shape)).uniform(0.25, 2.0, shape)
    signs = np.where(np.arange(draws.size).reshape(shape) % 3 == 1, -1.0, 1.0)
    return (draws * signs).astype(dtype)


def softmax(x: Any) -> Any:
    shifted = lax.exp(x - wnp.max(x, -1, keepdims=True))
    return shifted / wnp.sum(shifted, -1, keepdims=True)


def logsumexp(x: Any) -> Any:
    most = lax.stop_gradient(wnp.max(x, -1, keepdims=True))
    return lax.log(wnp.sum(lax.exp(x - most), -1)) + wnp.squeeze(most, -1)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - wnp.mean(x, -1, keepdims=True)
    variance = wnp.mean(centred * centred, -1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale + shift


def rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt(wnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    for weights, bias in params:
        x = lax.tanh(x @ weights + bias)
    return wnp.mean((x - y) ** 2)


def mlp_params(layers: int, width: int = 16) -> Any:
    return [(array(width, width, seed=n), array(width, seed=n)) for n in range(layers)]


def mlp_gradient(layers: int, width: int = 16, batch: int = 8) -> Jaxpr:
    arguments = mlp_params(layers, width), array(batch, width), array(batch, width, seed=5)
    return make_jaxpr(weft.value_and_grad(mlp_loss))(*arguments)


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    batch, length, width = x.shape
    heads = 2

    def split(a: Any) -> Any:
        return wnp.transpose(wnp.reshape(a, (batch, length, heads, width // heads)), (0, 2, 1, 3))

    query, key, value = split(x @ wq), split(x @ wk), split(x @ wv)
    logits = wnp.einsum("bhqd,bhkd->bhqk", query, key) * 0.5
    row, column = lax.broadcasted_iota(np.int32, logits.shape, 2), lax.broadcasted_iota(np.int32, logits.shape, 3)
    weights = softmax(lax.select(row >= column, logits, wnp.full_like(logits, -1e9)))
    mixed = wnp.transpose(wnp.einsum("bhqk,bhkd->bhqd", weights, value), (0, 2, 1, 3))
    return x + wnp.reshape(mixed, (batch, length, width)) @ wo


def attention_arguments() -> tuple[Any, ...]:
    return (array(2, 6, 8), *(array(8, 8, seed=n) for n in range(4)))


def written_in_scan(x: Any) -> Any:
    def step(carry: Any, i: Any) -> Any:
        table, total = carry
        row = lax.sin(total) * 2.0
        table = lax.dynamic_update_slice(table, row[None], (i, np.int32(0)))
        return (table, total + row), wnp.sum(row)

    start = (wnp.zeros((5, *x.shape), np.float32), x)
    return lax.scan(step, start, np.arange(5, dtype=np.int32))


def filled_table(x: Any) -> Any:
    """Each row is made from the one before: the table must be read before it is written in place."""

    def step(table: Any, i: Any) -> Any:
        row = lax.dynamic_slice(table, (i, np.int32(0)), (1, x.shape[0]))
        return lax.dynamic_update_slice(table, lax.sin(row) * 2.0 + x, (i + 1, np.int32(0))), None

    return lax.scan(step, wnp.ones((6, *x.shape), np.float32), np.arange(5, dtype=np.int32))[0]


def recurrent_loss(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = lax.tanh(h @ w + x)
        return h, wnp.sum(h * h)

    return wnp.sum(lax.scan(step, wnp.zeros_like(xs[0]), xs)[1])


def adam(g: Any, m: Any, v: Any, p: Any, t: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    step = (m / (1 - 0.9**t)) / (lax.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p - 1e-3 * step, m, v


def clipped(*gradients: Any) -> Any:
    norm = lax.sqrt(sum(wnp.sum(g * g) for g in gradients))
    scale = wnp.minimum(1.0, 1.0 / norm)
    return [g * scale for g in gradients], norm


def with_effects(x: Any) -> Any:
    kinds = weft.ShapeDtypeStruct(x.shape, x.dtype)
    a = io_callback(lambda v: v + 1, kinds, lax.sin(x) * 2, ordered=True)
    b = io_callback(lambda v: v * 3, kinds, x + 1, ordered=True)
    return lax.cos(b) + x, a * 2 + lax.cos(b)


def convolved(x: Any, w: Any, b: Any) -> Any:
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = nn.relu(y + b)
    return lax.reduce_window(y, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def embedded(table: Any, indices: Any) -> Any:
    return lax.sin(table[indices] * 2.0) + 1.0


def fenced(x: Any) -> Any:
    y = lax.sin(x) + 1.0
    z = lax.optimization_barrier(y)
    return lax.cos(z) * y


def branched(x: Any, n: Any) -> Any:
    return lax.switch(n, [lambda v: lax.sin(v) + 1, lambda v: softmax(v) * 2, lambda v: v - wnp.max(v)], x)


def repeated(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, lax.tanh(s[1]) * 1.5 + x), (0, x))


def pieces(x: Any) -> Any:
    y = lax.sin(x)
    first, second, third = wnp.split(y, 3, axis=1)
    return first @ second.T, wnp.concatenate([third, first * 2], 1) + 1, lax.pad(second, 0.0, ((1, 0, 0), (0, 2, 1)))


def reshaped(x: Any) -> Any:
    return wnp.sum(wnp.reshape(lax.sin(x), (2, 3, 5, 2)), (1, 3)) * wnp.reshape(wnp.ravel(x)[:10], (2, 5))


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    def scalar(*args: Any) -> Any:
        leaves = [wnp.sum(lax.sin(leaf)) for leaf in weft.tree.leaves(function(*args))]
        return sum(leaves[1:], leaves[0])

    return scalar


ROWS = array(6, 10)
VECTOR = array(10)
INDICES = np.array([[3, 0, 5], [1, 1, 4]], np.int32)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (lambda x, y: lax.exp(lax.sin(x * y + 1.0) - y) * 0.5, (ROWS, array(6, 10, seed=1))),
    "scalars": (lambda a, b: (a * b + 1.0, lax.sin(a)), (np.float32(2), np.float32(3))),
    "softmax": (softmax, (ROWS,)),
    "softmax of a vector": (softmax, (VECTOR,)),
    "softmax gradient": (weft.grad(total(softmax)), (ROWS,)),
    "logsumexp": (weft.value_and_grad(total(logsumexp)), (ROWS,)),
    "layer norm": (layer_norm, (ROWS, VECTOR, VECTOR)),
    "layer norm gradient": (weft.grad(total(layer_norm), (0, 1, 2)), (ROWS, VECTOR, VECTOR)),
    "layer norm jvp": (lambda x, t: weft.jvp(lambda v: layer_norm(v, VECTOR, VECTOR), (x,), (t,)), (ROWS, ROWS)),
    "layer norm mapped": (weft.vmap(layer_norm, (1, None, 0), 2), (array(6, 4, 10), VECTOR, array(4, 10))),
    "rms norm": (weft.value_and_grad(total(rms_norm), (0, 1)), (array(2, 3, 10), VECTOR)),
    "batch norm": (lambda x: (x - wnp.mean(x, 0)) / (wnp.std(x, 0) + 1e-3), (ROWS,)),
    "mlp": (weft.value_and_grad(mlp_loss), (mlp_params(3), array(8, 16), array(8, 16, seed=1))),
    "mlp hessian": (weft.hessian(lambda w, x: wnp.sum(lax.tanh(x @ w))), (array(3), array(4, 3))),
    "attention": (attention, attention_arguments()),
    "attention gradient": (weft.grad(total(attention), (0, 1, 3)), attention_arguments()),
    "attention mapped": (weft.vmap(attention, (0, *[None] * 4)), (array(3, 2, 6, 8), *attention_arguments()[1:])),
    "two siblings": (lambda x: (lax.sin(x), wnp.sum(x * x, 0), x + 1), (ROWS,)),
    "several results": (lambda x: (lax.sin(x), lax.cos(lax.sin(x)), wnp.sum(lax.sin(x), 0)), (ROWS,)),
    "diamond": (lambda x: lax.exp(lax.sin(x)) + lax.log(lax.abs(lax.sin(x)) + 1) * wnp.sum(x), (ROWS,)),
    "barrier": (fenced, (ROWS,)),
    "effects": (with_effects, (VECTOR,)),
    "gather": (embedded, (array(7, 5), INDICES)),
    "gather gradient": (weft.grad(total(embedded)), (array(7, 5), INDICES)),
    "written in scan": (written_in_scan, (array(4),)),
    "table in scan": (filled_table, (array(4),)),
    "scan gradient": (weft.value_and_grad(recurrent_loss), (array(4, 4), array(5, 3, 4))),
    "scan mapped": (weft.vmap(recurrent_loss, (None, 0)), (array(4, 4), array(2, 5, 3, 4))),
    "while": (repeated, (VECTOR,)),
    "while gradient": (
        weft.grad(lambda x: lax.while_loop(lambda v: wnp.sum(v) < 50.0, lambda v: lax.cos(v) + v * v + 1.0, x)[0]),
        (np.abs(array(3)),),
    ),
    "branches": (branched, (ROWS, np.int32(1))),
    "branches gradient": (weft.grad(total(branched)), (ROWS, np.int32(2))),
    "rematerialised": (weft.grad(total(weft.checkpoint(lambda x: lax.sin(lax.cos(x) * x)))), (ROWS,)),
    "convolution": (convolved, (array(2, 6, 6, 3), array(3, 3, 3, 4), array(4))),
    "convolution gradient": (weft.grad(total(convolved), (0, 1, 2)), (array(2, 6, 6, 3), array(3, 3, 3, 4), array(4))),
    "pieces": (pieces, (array(4, 9),)),
    "pieces gradient": (weft.grad(total(pieces)), (array(4, 9),)),
    "transposed": (lambda x, y: lax.exp(x.T * 2) + y + wnp.sum(x, 1), (array(70, 70), array(70, 70))),
    "reshaped": (reshaped, (ROWS,)),
    "cumulative": (weft.value_and_grad(total(lambda x: wnp.cumsum(lax.sin(x), 1) * 2)), (ROWS,)),
    "sorted": (lambda x: (wnp.sort(lax.sin(x), 1) + 1, wnp.argsort(x, 0), lax.top_k(x, 3)), (ROWS,)),
    "arg max": (lambda x: (wnp.argmax(lax.sin(x), 1) + 1, wnp.argmin(x)), (ROWS,)),
    "adam": (adam, (ROWS, ROWS, np.abs(ROWS), ROWS, np.float32(3))),
    "clipped": (clipped, (ROWS, VECTOR, array(3, 4))),
    "random": (lambda n: weft.random.normal(weft.random.PRNGKey(n), (6, 7)) * 2, (np.int32(3),)),
    "factored": (lambda x: wnp.linalg.cholesky(x @ x.T + 5 * wnp.eye(4, dtype=np.float32)) * 2, (array(4, 4),)),
    "transformed": (lambda x: wnp.abs(wnp.fft.fft(lax.sin(x))) + 1, (VECTOR,)),
    "half precision": (lambda x: softmax(x * 2) + wnp.sum(x, 0), (array(6, 10, dtype=ml_dtypes.bfloat16),)),
    "integers": (lambda x: (x // 3 + x % 5, wnp.sum(x & 7, 0), x.astype(np.float32) * 2), (INDICES,)),
    "complex": (weft.grad(lambda x: wnp.sum(wnp.abs(lax.exp(x * 1j) * (2 - 1j))) * 1.0), (VECTOR,)),
    "empty": (lambda x: (lax.sin(x) + 1, wnp.sum(x, 0), wnp.sum(x)), (array(0, 3),)),
    "ones in shapes": (lambda x: softmax(x[:, None, :, None].sum((1, 3))) + x[:1], (array(1, 5),)),
    "outer": (lambda x, y: lax.sin(x)[:, None] * lax.exp(y)[None, :] + wnp.outer(x, y), (array(6), VECTOR)),
    "mixed axes": (lambda x: wnp.sum(lax.sin(x), (0, 2)) + wnp.max(x, (0, 2)), (array(3, 4, 5),)),
    "generic fold": (lambda x: lax.reduce(lax.sin(x), np.float32(1), lambda a, b: a * b, (1,)) + 1, (ROWS,)),
}  # fmt: skip


def program(name: str) -> tuple[Jaxpr, list[np.ndarray]]:
    """The traced program and the arrays it takes."""
    function, args = PROGRAMS[name]
    return make_jaxpr(function)(*args), [np.asarray(leaf) for leaf in weft.tree.leaves(args)]


# ---------------------------------------------------------------------------------------------------------- at random


def random_program(rng: np.random.Generator, size: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of three arrays that applies `size` operations to values it has, and returns some of them."""
    rows, columns = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    draws = [int(d) for d in rng.integers(0, 1 << 30, 4 * size)]

    def function(x: Any, y: Any, z: Any) -> Any:
        full, column, row, scalar = [x, y], [z], [wnp.sum(x, 1)], [wnp.sum(y)]
        pools = [full, column, row, scalar]
        values = iter(draws)
        for _ in range(size):
            action, first, second, third = next(values), next(values), next(values), next(values)
            pool = pools[third % 4]
            a, b = pool[first % len(pool)], pool[second % len(pool)]
            f = full[first % len(full)]
            match action % 14:
                case 0 | 1:
                    pool.append(a + b)
                case 2:
                    pool.append(a * b)
                case 3:
                    pool.append(lax.sin(a))
                case 4:
                    pool.append(wnp.maximum(a, b) * 0.5)
                case 5:
                    row.append(wnp.sum(f, 1))
                case 6:
                    column.append(wnp.max(f, 0))
                case 7:
                    scalar.append(wnp.mean(f))
                case 8:
                    full.append(f - row[second % len(row)][:, None])
                case 9:
                    full.append(f * column[second % len(column)])
                case 10:
                    full.append(f + scalar[second % len(scalar)])
                case 11:
                    full.append(wnp.concatenate([f[1:], f[:1]], 0))
                case 12:
                    full.append(lax.rev(f, (second % 2,)))
                case 13:
                    full.append((f @ f.T) @ f * 0.01)
        return [pool[-1] for pool in pools] + [full[draws[0] % len(full)], row[draws[1] % len(row)]]

    seed = draws[0] % 1000
    return function, (array(rows, columns, seed=seed), array(rows, columns, seed=seed + 1), array(columns, seed=seed))
