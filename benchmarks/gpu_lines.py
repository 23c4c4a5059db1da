"""Programs that `gpu.py` times, and the libraries that run them.

A line is the best of five rounds of calls that are started one after the other and waited for once, so that what
starting them costs is hidden where the GPU has enough to do. Bandwidth counts what a program must read and write.

    python benchmarks/gpu_lines.py LIBRARY [--only NAME,...] [--all]

measures one library in this process, and prints a row of JSON for its version and for each line.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_gates import needed

ROUNDS, SECONDS = 5, 0.1
# Calls of a burst, and seconds of rest before one: long runs of matmuls are limited by the power that the GPU may draw.
BURST, REST = 10, 0.3
SQUARE, LONG, MANY, MILLION, ROWS = 8192, 1 << 26, 1 << 24, 1 << 20, 50_000
# What is copied between the host and the GPU, in bytes.
COPIES = {"4 KB": 1 << 12, "1 MB": 1 << 20, "64 MB": 1 << 26, "512 MB": 1 << 29}
# Queries, keys and values; of products that a causal mask leaves about half.
HEADS = ((8, 1024, 12, 64), "bfloat16")
MASK = ((8, 1, 1024, 1024), "below 2")
ATTENTION_FLOPS = 2.0 * 8 * 12 * 1024 * 1024 * 64


@dataclass(frozen=True)
class Line:
    """Program of a line: its name, its arguments (shape and dtype), and the times that its first argument is read or
    written in all (0 for lines about dispatch, arithmetic or other traffic). Lines of arithmetic have `flops`. A time
    is that of one of `iterations`; a `burst` is a few calls after a rest."""

    name: str
    program: str
    arguments: tuple[tuple[tuple[int, ...], str], ...]
    traffic: float = 2.0
    flops: float = 0.0
    iterations: int = 1
    burst: bool = False

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        shape, dtype = self.arguments[0]
        return float(np.prod(shape)) * (2 if dtype == "bfloat16" else 4) * self.traffic


LINES = (
    Line("x + 1, 64M", "x + 1", (((LONG,), "float32"),)),
    Line("tanh(x) * exp(-x * x) + sin(x), 64M", "tanh(x) * exp(-x * x) + sin(x)", (((LONG,), "float32"),)),
    Line("gelu, 64M bf16", "gelu(x)", (((LONG,), "bfloat16"),)),
    Line("gelu, 64M", "gelu(x)", (((LONG,), "float32"),)),
    Line("sum, 64M", "sum(x)", (((LONG,), "float32"),), 1.0),
    Line("softmax, 8192 x 8192", "softmax(x)", (((SQUARE, SQUARE), "float32"),)),
    Line("layer norm, 8192 x 8192", "norm(x)", (((SQUARE, SQUARE), "float32"),)),
    Line("column sums, 8192 x 8192", "columns(x)", (((SQUARE, SQUARE), "float32"),), 1.0),
    Line("transpose + 1, 8192 x 8192", "stored(x.T + 1)", (((SQUARE, SQUARE), "float32"),)),
    Line("argmax, 64M", "argmax(x)", (((LONG,), "float32"),), 1.0),
    Line("cumulative sum, 64M", "cumsum(x)", (((LONG,), "float32"),)),
    Line("sort, 16M", "sort(x)", (((MANY,), "float32"),)),
    Line("argsort, 16M", "argsort(x)", (((MANY,), "float32"),)),
    Line("sort of rows, 16384 x 1024", "sort(x)", (((MANY // 1024, 1024), "float32"),)),
    Line("sort of rows, 262144 x 64", "sort(x)", (((MANY // 64, 64), "float32"),)),
    Line("argsort of rows, 16384 x 1024", "argsort(x)", (((MANY // 1024, 1024), "float32"),)),
    Line("top 8 of rows, 16384 x 1024", "top(x)", (((MANY // 1024, 1024), "float32"),), 1.0),
    Line("top 64 of rows, 128 x 131072", "top64(x)", (((128, MANY // 128), "float32"),), 1.0),
    Line("gather of 1M rows of 64 from 50,000", "x[b]", (((ROWS, 64), "float32"), ((MILLION,), f"below {ROWS}")), 0.0),
    Line("gather of 16M elements from 64M", "x[b]", (((LONG,), "float32"), ((MANY,), f"below {LONG}")), 0.0),
    Line(
        "scatter-add of 1M rows of 64 into 50,000",
        "added(x, b, c)",
        (((ROWS, 64), "float32"), ((MILLION,), f"below {ROWS}"), ((MILLION, 64), "float32")),
        0.0,
    ),
    Line(
        "scatter-add of 16M elements into 64M",
        "added(x, b, c)",
        (((LONG,), "float32"), ((MANY,), f"below {LONG}"), ((MANY,), "float32")),
        0.0,
    ),
    Line("random normal, 64M", "normal(x)", (((), "below 9"),), 0.0),
    Line("random uniform, 64M", "uniform(x)", (((), "below 9"),), 0.0),
    Line("random bits, 64M", "bits(x)", (((), "below 9"),), 0.0),
    Line("bias, 8192 x 8192", "x * 2 + b", (((SQUARE, SQUARE), "float32"), ((SQUARE,), "float32"))),
    Line("matmul, 8192 cubed bf16", "x @ b", (((SQUARE, SQUARE), "bfloat16"),) * 2, 0.0, 2.0 * SQUARE**3),
    Line(
        "matmul, 8192 cubed bf16, a burst",
        "x @ b",
        (((SQUARE, SQUARE), "bfloat16"),) * 2,
        0.0,
        2.0 * SQUARE**3,
        burst=True,
    ),
    Line("matmul, 8192 cubed, x @ b.T, bf16", "x @ b.T", (((SQUARE, SQUARE), "bfloat16"),) * 2, 0.0, 2.0 * SQUARE**3),
    Line("matmul, 8192 cubed tf32", "x @ b", (((SQUARE, SQUARE), "float32"),) * 2, 0.0, 2.0 * SQUARE**3),
    *(
        Line(
            f"matmul, gelu(x @ b + c), 4096 cubed bf16{', a burst' if burst else ''}",
            "gelu(x @ b + c)",
            (((4096, 4096), "bfloat16"),) * 2 + (((4096,), "bfloat16"),),
            0.0,
            2.0 * 4096**3,
            burst=burst,
        )
        for burst in (False, True)
    ),
    *(
        Line(f"matmuls, {count} of {size} cubed", "x @ b", (((count, size, size), "float32"),) * 2, 3.0)
        for count, size in ((65536, 16), (8192, 64))
    ),
    Line("attention, 8 x 1024 x 12 x 64 bf16", "attention(x, b, c)", (HEADS,) * 3, 0.0, ATTENTION_FLOPS),
    Line("attention with gradients", "attention_gradients(x, b, c)", (HEADS,) * 3, 0.0, 3.5 * ATTENTION_FLOPS),
    Line("attention with a mask", "masked(x, b, c)", (HEADS, HEADS, MASK), 0.0, 2.0 * ATTENTION_FLOPS),
    Line(
        "attention with a mask, with gradients",
        "masked_gradients(x, b, c)",
        (HEADS, HEADS, MASK),
        0.0,
        7.0 * ATTENTION_FLOPS,
    ),
    *(
        Line(
            f"convolution{what}, 128 x 32 x 32 x 96 to 192 {dtype}",
            f"convolution{'_gradients' if what else ''}(x, b)",
            (((128, 32, 32, 96), dtype), ((3, 3, 96, 192), dtype)),
            0.0,
            (3.0 if what else 1.0) * 2.0 * 128 * 32 * 32 * 9 * 96 * 192,
        )
        for dtype in ("float32", "bfloat16")
        for what in ("", " with gradients")
    ),
    Line(
        "while loop, one of 10,000 iterations of 1024", "iterated(x)", (((1024,), "float32"),), 0.0, iterations=10_000
    ),
    Line(
        "scan, one of 1000 steps of an RNN of 64 x 256",
        "rnn(x, b)",
        (((64, 256), "float32"), ((256, 256), "float32")),
        0.0,
        iterations=1000,
    ),
    Line(
        "while loop, one of 1000 iterations of a matmul of 512 cubed",
        "multiplied(x)",
        (((512, 512), "float32"),),
        0.0,
        iterations=1000,
    ),
    Line("dispatch of a tiny program", "x + 1", (((8,), "float32"),), 0.0),
)
LEAVES = 40
DISPATCH_MANY, EAGER = f"dispatch of {LEAVES} arrays", "x + x outside of programs"


@functools.lru_cache(maxsize=2)
def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Draw random values of an argument: normal, or integers below a bound."""
    rng = np.random.default_rng(0)
    if dtype.startswith("below"):
        return np.asarray(rng.integers(0, int(dtype.split()[1]), shape), np.int32)
    return rng.standard_normal(shape, np.float32)


def cotangent(result: Any, operand: Any) -> Any:
    """Return the cotangent for derivatives: another array if one has the shape, as in training."""
    return operand if operand.shape == result.shape else result


class Weft:
    """Weft, and JAX, which has the same names."""

    def __init__(self, name: str) -> None:
        if name == "weft":
            import weft as library
            import weft.numpy as numpy
        else:
            import jax as library
            import jax.numpy as numpy
        self.library, self.numpy = library, numpy
        self.device = library.devices("gpu")[0]
        self.version, self.gpu = library.__version__, self.device.device_kind

    def names(self) -> dict[str, Any]:
        n, nn = self.numpy, self.library.nn
        best = {"implementation": "cudnn"} if self.library.__name__ == "jax" else {}

        def norm(x: Any) -> Any:
            centred = x - x.mean(-1, keepdims=True)
            return centred / n.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)

        def attention(q: Any, k: Any, v: Any) -> Any:
            return nn.dot_product_attention(q, k, v, is_causal=True, **best)

        def masked(q: Any, k: Any, mask: Any) -> Any:
            return nn.dot_product_attention(q, k, k, mask=mask != 0, **best)

        def convolution(x: Any, w: Any) -> Any:
            layout = ("NHWC", "HWIO", "NHWC")
            return self.library.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)

        def gradients(f: Callable[..., Any]) -> Callable[..., Any]:
            def run(*operands: Any) -> Any:
                # Integers have no gradients.
                floats = [a for a in operands if a.dtype != n.int32]
                result, pull = self.library.vjp(lambda *a: f(*a, *operands[len(a) :]), *floats)
                return result, pull(cotangent(result, operands[0]))

            return run

        lax = self.library.lax

        def iterated(x: Any) -> Any:
            def body(carry: Any) -> Any:
                return carry[0] + 1, carry[1] * 0.999 + 0.001

            return lax.while_loop(lambda carry: carry[0] < 10_000, body, (0, x))[1]

        def multiplied(x: Any) -> Any:
            def body(carry: Any) -> Any:
                return carry[0] + 1, carry[1] @ x * 0.01

            return lax.while_loop(lambda carry: carry[0] < 1000, body, (0, x))[1]

        def rnn(x: Any, w: Any) -> Any:
            def step(h: Any, _: Any) -> Any:
                return n.tanh(h @ (w * 0.05) + x), None

            return lax.scan(step, n.zeros_like(x), None, length=1000)[0]

        random = self.library.random
        return {
            "stored": lambda x: x,
            "sort": n.sort, "argsort": n.argsort, "top": lambda x: lax.top_k(x, 8), "top64": lambda x: lax.top_k(x, 64),
            "added": lambda x, i, u: x.at[i].add(u),
            "normal": lambda seed: random.normal(random.key(seed), (LONG,)),
            "uniform": lambda seed: random.uniform(random.key(seed), (LONG,)),
            "bits": lambda seed: random.bits(random.key(seed), (LONG,)),
            "iterated": iterated, "rnn": rnn, "multiplied": multiplied,
            "attention": attention, "attention_gradients": gradients(attention),
            "masked": masked, "masked_gradients": gradients(masked),
            "convolution": convolution, "convolution_gradients": gradients(convolution),
            "tanh": n.tanh, "exp": n.exp, "sin": n.sin, "sum": n.sum, "argmax": n.argmax, "cumsum": n.cumsum,
            "gelu": nn.gelu, "softmax": lambda x: nn.softmax(x, -1), "norm": norm, "columns": lambda x: x.sum(0),
        }  # fmt: skip

    def array(self, shape: tuple[int, ...], dtype: str) -> Any:
        value = values(shape, dtype)
        dtype = str(value.dtype) if value.dtype.kind == "i" else dtype
        return self.library.device_put(self.numpy.asarray(value).astype(dtype), self.device)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.library.jit(function)

    def wait(self, value: Any) -> None:
        self.library.block_until_ready(value)

    def put(self, value: np.ndarray) -> Any:
        return self.library.device_put(value, self.device)

    def fetch(self, array: Any) -> np.ndarray:
        return np.asarray(array)


class Torch:
    """PyTorch with its compiler."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.version, self.gpu = torch.__version__, torch.cuda.get_device_name()
        # What JAX and Weft do by default.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True

    def names(self) -> dict[str, Any]:
        t, f = self.torch, self.torch.nn.functional

        def attention(q: Any, k: Any, v: Any) -> Any:
            heads = [a.transpose(1, 2) for a in (q, k, v)]
            return f.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)

        def masked(q: Any, k: Any, mask: Any) -> Any:
            heads = [a.transpose(1, 2) for a in (q, k, k)]
            return f.scaled_dot_product_attention(*heads, attn_mask=mask != 0).transpose(1, 2)

        def convolution(x: Any, w: Any) -> Any:
            kernel = w.permute(3, 2, 0, 1).contiguous(memory_format=t.channels_last)
            return f.conv2d(x.permute(0, 3, 1, 2), kernel, padding="same").permute(0, 2, 3, 1)

        def gradients(g: Callable[..., Any]) -> Callable[..., Any]:
            def run(*operands: Any) -> Any:
                held = [a.detach().requires_grad_() for a in operands if a.dtype != t.int32]
                result = g(*held, *operands[len(held) :])
                return result.detach(), t.autograd.grad(result, held, cotangent(result, operands[0]).detach())

            return run

        return {
            "stored": lambda x: x.contiguous(),  # else the result has the order of x in memory
            "sort": lambda x: t.sort(x)[0], "argsort": lambda x: t.argsort(x, stable=True),
            "top": lambda x: t.topk(x, 8), "top64": lambda x: t.topk(x, 64),
            "added": lambda x, i, u: x.index_add(0, i, u), "normal": lambda x: t.randn(LONG, device="cuda"),
            "uniform": lambda x: t.rand(LONG, device="cuda"),
            "attention": attention, "attention_gradients": gradients(attention),
            "masked": masked, "masked_gradients": gradients(masked),
            "convolution": convolution, "convolution_gradients": gradients(convolution),
            "tanh": t.tanh, "exp": t.exp, "sin": t.sin, "sum": t.sum, "argmax": t.argmax,
            "cumsum": lambda x: t.cumsum(x, 0), "gelu": lambda x: f.gelu(x, approximate="tanh"),
            "softmax": lambda x: t.softmax(x, -1), "norm": lambda x: f.layer_norm(x, x.shape[-1:]),
            "columns": lambda x: x.sum(0),
        }  # fmt: skip

    def array(self, shape: tuple[int, ...], dtype: str) -> Any:
        value = self.torch.as_tensor(values(shape, dtype))
        return value.to("cuda", None if value.dtype == self.torch.int32 else getattr(self.torch, dtype))

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.torch.compile(function)

    def wait(self, value: Any) -> None:
        self.torch.cuda.synchronize()

    def put(self, value: np.ndarray) -> Any:
        return self.torch.from_numpy(value).to("cuda")

    def fetch(self, array: Any) -> np.ndarray:
        return array.cpu().numpy()


def seconds_of(lib: Any, function: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds of a call, the best of some rounds of many."""
    for _ in range(3):
        lib.wait(function(*arguments))
    start = time.perf_counter()
    lib.wait(function(*arguments))
    once = max(time.perf_counter() - start, 1e-6)
    calls = max(3, min(2000, int(SECONDS / once)))
    found = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            result = function(*arguments)
        lib.wait(result)
        found = min(found, (time.perf_counter() - start) / calls)
    return found


def seconds_of_fetching(lib: Any, value: np.ndarray) -> float:
    """Return the seconds until the host has the elements of a new array, the best of some."""
    new, array, found = lib.compiled(lambda x: x + 1), lib.put(value), float("inf")
    for _ in range(4 * ROUNDS):
        result = new(array)
        lib.wait(result)
        start = time.perf_counter()
        lib.fetch(result)
        found = min(found, time.perf_counter() - start)
    return found


def seconds_of_burst(lib: Any, function: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds of a call, the best of some rounds of a few after a rest."""
    lib.wait(function(*arguments))
    found = float("inf")
    for _ in range(ROUNDS):
        time.sleep(REST)
        for _ in range(3):
            lib.wait(function(*arguments))
        start = time.perf_counter()
        for _ in range(BURST):
            result = function(*arguments)
        lib.wait(result)
        found = min(found, (time.perf_counter() - start) / BURST)
    return found


def measure(lib: Any, wants: Callable[[str], bool]) -> Iterator[tuple[str, float]]:
    """Return the seconds of each wanted line, by name."""
    names = lib.names()
    # Lines share their arguments, which take long to make; those of one line have memory of their own.
    array = functools.cache(lambda position, shape, dtype: lib.array(shape, dtype))
    for line in LINES:
        # A library has no line whose functions it does not have.
        if wants(line.name) and set(re.findall(r"(\w+)\(", line.program)) <= names.keys():
            function = eval(f"lambda x, b=None, c=None: {line.program}", dict(names))
            timed = seconds_of_burst if line.burst else seconds_of
            arguments = [array(i, *a) for i, a in enumerate(line.arguments)]
            try:
                yield line.name, timed(lib, lib.compiled(function), *arguments) / line.iterations
            except Exception as error:  # what a peer cannot do, or has no memory for, costs it this line only
                print(f"{line.name}: {type(error).__name__}: {error}"[:500], file=sys.stderr, flush=True)
    if wants(DISPATCH_MANY):
        leaves = [lib.array((64, 64), "float32") for _ in range(LEAVES)]
        yield DISPATCH_MANY, seconds_of(lib, lib.compiled(lambda xs: [x * 2 for x in xs]), leaves)
    if wants(EAGER):
        yield EAGER, seconds_of(lib, lambda x: x + x, lib.array((64, 64), "float32"))
    for name, size in COPIES.items():
        there, back = f"copy of {name} to the GPU", f"copy of {name} to the host"
        if wants(there) or wants(back):
            value = values((size // 4,), "float32").astype(np.float32)
            yield there, seconds_of(lib, lib.put, value)
            yield back, seconds_of_fetching(lib, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("weft", "jax", "torch"))
    parser.add_argument("--only", default="", help="words of the names of lines, separated by commas")
    parser.add_argument("--all", action="store_true", help="lines without a gate too")
    options = parser.parse_args()
    words = [word for word in options.only.split(",") if word]
    lib: Any = Torch() if options.library == "torch" else Weft(options.library)
    print(json.dumps({"version": lib.version, "gpu": lib.gpu}), flush=True)

    def wants(name: str) -> bool:
        return any(word in name for word in words) if words else options.all or needed(name)

    for row in measure(lib, wants):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
