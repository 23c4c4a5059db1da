"""Random towers of derivatives: functions with calls, loops, branches, custom rules and Refs inside, differentiated up
to three times.

A tower is Python source over `lib`, `np`, `lax` and `nn`, of functions from three numbers of float64 to three. It is
judged at random points and at edges (zeros, ties, ends of branches) by laws that need no other library:

1. `jit` and `checkpoint`, inside or around it, change no number.
2. Forward and reverse mode have the same Jacobian.
3. At a point without an edge nearby the derivative is that of finite differences, and Hessians are symmetric.

`tests/peer` runs the same text with JAX. `python -m tests.fuzz.towers SEED` prints one tower and judges it.
"""

from __future__ import annotations

import random
import re
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as onp

import weft
from tests.fuzz.draw import namespace
from tests.fuzz.seeds import main
from weft.errors import CustomRuleError

Function = Callable[[Any], Any]

OPERATIONS = """
np.sin(X)
np.cos(X) + Y
np.tanh(X)
np.exp(np.minimum(X, 1.0))
X * Y
X - Y * 0.5
X / (1.0 + Y * Y)
X**2
X**3 - Y
np.where(X > C, np.sqrt(np.abs(X) + 1.0), X * Y)
np.where(X > 0, np.sqrt(X), -X)
np.where(X > 0, np.log(X), Y)
np.where(X == 0, 1.0, np.sin(X) / X)
np.maximum(X, Y)
np.minimum(X, C)
np.abs(X) * Y
np.sort(X)
np.sort(X * Y)[::-1]
np.cumsum(X)
np.cumprod(X) + Y
np.roll(X, 1)
X[np.array([2, 0, 0])]
X.at[1].set(Y[0])
X.at[np.array([0, 0, 2])].add(Y)
X.at[np.array([2, 1])].multiply(Y[:2], unique_indices=True)
X.at[0].max(Y[1])
np.clip(X, -0.5, C)
nn.softmax(X)
nn.logsumexp(X) * Y
X.max() + Y
X.min() * Y
X.prod() * Y
np.linalg.norm(X + 2.0) * Y
np.outer(X, Y) @ X
np.einsum("i,j->j", X, Y)
np.linalg.solve(np.eye(3) * 4 + np.outer(Y, Y), X)
np.linalg.det(np.eye(3) * 2 + np.outer(X, Y)) * Y
np.linalg.inv(np.eye(3) * 3 + np.outer(X, X)) @ Y
np.linalg.cholesky(np.eye(3) * 3 + np.outer(X, X))[2]
nn.relu(X) * Y
nn.softplus(X)
nn.gelu(X, approximate=False)
nn.silu(X - C)
np.arctan2(X, Y + 3.0)
np.sinc(X)
lax.cumlogsumexp(X)
lax.cummax(X) * Y
np.log1p(X * X)
np.power(np.abs(X) + 0.5, Y)
np.power(X * X, 1.5)
lax.rsqrt(1.0 + X * X)
lax.dynamic_slice(X, (1,), (2,)).sum() * Y
lax.dynamic_update_slice(X, Y[:1], (2,))
lax.stop_gradient(X) * Y
np.round(X) + Y
np.sign(X) * Y
lax.select(X > Y, X * X, Y)
lax.associative_scan(np.multiply, X)
lax.reduce_window(X, 0.0, lax.add, (2,), (1,), "SAME")
lax.reduce_window(X, -np.inf, lax.max, (2,), (1,), "SAME")
np.median(X) + Y
np.interp(X, np.array([-1.0, 0.0, 1.0]), Y)
lax.top_k(X, 2)[0].sum() + Y
np.var(X) * Y
lax.erf(X)
lax.integer_pow(X, 3)
np.convolve(X, Y, mode="same")
np.pad(X[:2], (1, 0)) + Y
np.concatenate([X[1:], Y[:1]])
np.stack([X, Y], 1).sum(1)
np.prod(np.stack([X, Y]), 0)
np.where(np.array([True, False, True]), X, Y)
np.take_along_axis(X, np.argsort(Y), 0)
np.fft.irfft(np.fft.rfft(X) * 0.5, 3) + Y
(lax.complex(X, Y) ** 2).imag
np.abs(lax.complex(X, Y + 2.0))
""".strip().splitlines()  # fmt: skip

# G and H are functions that were defined before; CLOSED ones do not close over values of the function around them.
CONSTRUCTS = """
lib.jit(G)(X)
lib.jit(lib.jit(G))(X) * Y
lib.checkpoint(G)(X)
lax.cond(X.sum() > C, G, H, X)
lax.cond(True, G, H, X)
lax.switch(1, [G, H, np.sin], X)
lax.switch((X[0] > Y[1]).astype("int32"), [G, H], X)
(lambda r: r[0] + r[1])(lax.scan(lambda c, r: (G(c) * 0.5 + r, c[0] * r), X, Y))
lax.scan(lambda c, r: (c + G(r), None), X, np.stack([X, Y]), reverse=True)[0]
lax.fori_loop(0, 3, lambda i, c: G(c) * 0.7 + i * 0.1, X)
lax.while_loop(lambda c: c[1] < 2, lambda c: (G(c[0]) * 0.6, c[1] + 1), (X, 0))[0]
lib.vmap(lambda r: G(r * X).sum())(np.stack([Y, X, X]))
lib.vmap(G)(np.stack([X, Y])).sum(0)
lax.map(lambda s: G(s * Y).sum(), X)
with_jvp(CLOSED)(X)
with_vjp(CLOSED)(X)
with_vjp(CLOSED)(X) * with_jvp(CLOSED)(Y)
with_ref(G, X, Y)
accumulated(G, X, Y)
lib.jvp(G, (X,), (Y,))[1]
lib.vjp(G, X)[1](Y)[0]
lib.linearize(G, X)[1](Y)
lib.grad(lambda v: G(v).sum())(X)
lib.grad(lambda v: (lib.jit(G)(v) * Y).sum())(X)
lax.custom_root(lambda r: r + 0.1 * np.tanh(r) - X, X * 0, newton, solved)
lax.custom_linear_solve(lambda v: 2.0 * v + np.roll(v, 1) * 0.5, G(X), dense, dense)
""".strip().splitlines()  # fmt: skip

LAYERS = {
    "grad": "lambda x: lib.grad(lambda v: (F(v) * W).sum())(x)",
    "jvp": "lambda x: lib.jvp(F, (x,), (D,))[1]",
    "jacfwd": "lambda x: lib.jacfwd(F)(x) @ D",
    "jacrev": "lambda x: D @ lib.jacrev(F)(x)",
    "hessian": "lambda x: lib.hessian(lambda v: (F(v) * W).sum())(x) @ D",
    "linearize": "lambda x: lib.linearize(F, x)[1](D)",
    "vjp": "lambda x: lib.vjp(F, x)[1](D)[0]",
    "vmap": "lambda x: lib.vmap(F)(np.stack([x, x * 0.5])).sum(0)",
    "vmap of tangents": "lambda x: lib.vmap(lambda t: lib.jvp(F, (x,), (t,))[1])(np.eye(3)) @ D",
    "jit": "lib.jit(F)",
    "checkpoint": "lib.checkpoint(F)",
    "scan": "lambda x: lax.scan(lambda c, r: (c + F(r), None), x, np.stack([x, D]))[0]",
}
DERIVATIVES = {"grad": 1, "jvp": 1, "jacfwd": 1, "jacrev": 1, "hessian": 2, "linearize": 1, "vjp": 1,
               "vmap of tangents": 1}  # fmt: skip

PRELUDE = """
W, D = np.array([1.0, -0.5, 2.0]), np.array([0.3, 1.0, -0.7])

def with_jvp(g):
    h = lib.custom_jvp(g)
    h.defjvp(lambda p, t: lib.jvp(g, p, t))
    return h

def with_vjp(g):
    h = lib.custom_vjp(g)
    h.defvjp(lambda x: (g(x), x), lambda x, c: lib.vjp(g, x)[1](c))
    return h

def with_ref(g, x, y):
    ref = lib.new_ref(x)
    ref[...] = g(ref[...])
    ref[0] += ref[1] * y[0]
    return ref[...]

def accumulated(g, x, y):
    ref = lib.new_ref(y)

    def body(i, c):
        ref[...] += g(x) * c
        return c * 0.5

    lax.fori_loop(0, 2, body, x)
    return ref[...]

def dense(m, b):
    return np.linalg.solve(lib.jacfwd(m)(b * 0), b)

def newton(f, x):
    for _ in range(6):
        x = x - f(x) / lib.jvp(f, (x,), (np.ones_like(x),))[1]
    return x

def solved(g, y):
    return y / g(np.ones_like(y))
"""

EDGES = ((0.0, 0.0, 0.0), (0.5, 0.5, -0.5), (1.0, 0.0, -1.0))
# A function with a custom vjp has no forward mode, so that such towers have these layers alone.
REVERSE = ("grad", "jacrev", "vjp", "vmap", "jit", "checkpoint", "scan")


class Tower(NamedTuple):
    """Source of a tower, the transformations from the innermost, and the number of derivatives in them."""

    text: str
    layers: tuple[str, ...]
    orders: int


def tower(seed: int) -> Tower:
    """Return the tower of a seed."""
    rng = random.Random(seed)
    lines: list[str] = []
    counter = iter(range(100))

    def function(depth: int, indent: str, outer: list[str]) -> str:
        """Write a function of `x`, which may also use vectors of the functions around it; return its name."""
        name, x = f"f{next(counter)}", f"x{next(counter)}"
        lines.append(f"{indent}def {name}({x}):")
        inner = indent + "    "
        known = [x]

        for _ in range(rng.choice((1, 2, 2, 3))):
            text = rng.choice(CONSTRUCTS if depth and rng.random() < 0.5 else OPERATIONS)
            for word in ("CLOSED", "G", "H"):
                if re.search(rf"\b{word}\b", text):
                    text = replaced(
                        text, word, function(depth - 1, inner, [] if word == "CLOSED" else [*outer, *known])
                    )
            text = replaced(text, "X", known[-1])
            text = replaced(text, "Y", rng.choice([*known, *known, *outer]))
            text = replaced(text, "C", rng.choice(("0.0", "0.3", "0.5", "1.0")))
            new = f"x{next(counter)}"
            lines.append(f"{inner}{new} = {text}")
            known.append(new)
        lines.append(f"{inner}return {known[-1]}")
        return name

    base = function(2, "", [])
    lines.append(f"F0 = {base}")
    layers: list[str] = []
    reverse_only = any("with_vjp" in line for line in lines)
    for _ in range(rng.choice((1, 2, 2, 3))):
        layer = rng.choice(REVERSE if reverse_only else list(LAYERS))
        if sum(DERIVATIVES.get(each, 0) for each in (*layers, layer)) > 3:
            continue
        lines.append(f"F{len(layers) + 1} = {replaced(LAYERS[layer], 'F', f'F{len(layers)}')}")
        layers.append(layer)
    lines.append(f"result = F{len(layers)}")
    return Tower("\n".join(lines), tuple(layers), sum(DERIVATIVES.get(each, 0) for each in layers))


def replaced(text: str, letter: str, value: str) -> str:
    """Replace a name in an expression."""
    return re.sub(rf"\b{letter}\b", value, text)


def built(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run the source of a tower over the names of a library; return what it defines."""
    scope = dict(names)
    exec(compile(PRELUDE + text, "<tower>", "exec"), scope)
    return scope


def without_calls(names: dict[str, Any]) -> dict[str, Any]:
    """Return the names of a library in which `jit` and `checkpoint` do nothing."""
    lib = names["lib"]
    plain = types.SimpleNamespace(**{name: getattr(lib, name) for name in dir(lib) if not name.startswith("_")})
    plain.jit = plain.checkpoint = lambda function: function
    return {**names, "lib": plain}


def numbers(function: Function, x: Any) -> onp.ndarray:
    return onp.asarray(function(x), onp.float64)


def differ(a: onp.ndarray, b: onp.ndarray, tolerance: float) -> bool:
    """Return whether numbers are further apart than rounding explains; NaN equals NaN."""
    scale = onp.nanmax(onp.abs(onp.where(onp.isfinite(b), b, 0.0)), initial=1.0)
    return not onp.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def explained(one: Function, other: Function, x: Any) -> bool:
    """Return whether two functions differ at a point by no more than rounding the point moves them."""
    first, second = numbers(one, x), numbers(other, x)
    if (onp.isfinite(first) != onp.isfinite(second)).any():
        return False
    moved = [numbers(f, x * (1 + step)) - numbers(f, x) for f in (one, other) for step in (1e-12, -1e-12)]
    return bool((onp.abs(first - second) <= 100 * onp.max(onp.abs(moved), axis=0)).all())


def judge(seed: int) -> list[str]:
    """Return which laws the tower of a seed breaks, and where."""
    found: list[str] = []
    text, _, _ = tower(seed)
    names = namespace("weft")
    with weft.enable_x64(True), warnings.catch_warnings(), onp.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        scope, plain = built(text, names), built(text, without_calls(names))
        function, base = scope["result"], scope["F0"]
        rng = onp.random.default_rng(seed)
        compiled = weft.jit(function)
        for point in (rng.normal(size=3), *EDGES):
            x = names["np"].asarray(onp.asarray(point))
            value = numbers(plain["result"], x)
            for word, other in (("inside", function), ("around", compiled)):
                if differ(numbers(other, x), value, 1e-8) and not explained(plain["result"], other, x):
                    found.append(f"jit {word} changes {value} to {numbers(other, x)} at {list(point)}")
            if "with_vjp" in text:
                continue
            forward, reverse = weft.jacfwd(base), weft.jacrev(base)
            if differ(numbers(forward, x), numbers(reverse, x), 1e-8) and not explained(forward, reverse, x):
                found.append(f"jacfwd is {forward(x).tolist()} and jacrev {reverse(x).tolist()} at {list(point)}")
        if "stop_gradient" not in text and "with_vjp" not in text:
            found += smooth_laws(scope, rng.normal(size=3), names)
    return found


def smooth_laws(scope: dict[str, Any], point: onp.ndarray, names: dict[str, Any]) -> list[str]:
    """Compare with finite differences where two steps agree, and a Hessian with its transpose."""
    base, found = weft.jit(scope["F0"]), []
    direction, x = onp.array([0.3, 1.0, -0.7]), names["np"].asarray

    def quotient(step: float) -> onp.ndarray:
        ahead, behind = (numbers(base, x(point + s * step * direction)) for s in (1, -1))
        return (ahead - behind) / (2 * step)

    coarse, fine = quotient(1e-4), quotient(1e-5)
    if onp.isfinite(fine).all() and not differ(coarse, fine, 1e-5):
        tangent = onp.asarray(weft.jvp(base, (x(point),), (x(direction),))[1])
        if differ(tangent, fine, 1e-4):
            found.append(f"finite differences are {fine} and jvp {tangent} at {point.tolist()}")
        hessian = onp.asarray(weft.hessian(lambda v: base(v) @ x(onp.array([1.0, -0.5, 2.0])))(x(point)))
        if differ(hessian, hessian.T, 1e-8):
            found.append(f"a Hessian is not symmetric at {point.tolist()}: {hessian.tolist()}")
    return found


def check_seed(seed: int) -> str:
    """Return what came of a seed, in a word; a failure begins with `failed`."""
    try:
        broken = judge(seed)
    except CustomRuleError:  # forward mode inside, of a function with a custom vjp
        return "not judged"
    except Exception:
        return f"failed: {traceback.format_exc(limit=-3)}"
    return f"failed: {broken[0]}" if broken else "holds"


if __name__ == "__main__":
    main(check_seed, __doc__)
