"""Bad calls raise the same family of exceptions as JAX, so `except` clauses written for it keep working."""

from __future__ import annotations

import warnings

import jax
import pytest

import weft
from tests.peer.compare import INPUTS, NAMESPACES

BAD_CALLS = """
x + y[:, :3]
np.add(x, np.ones((5,)))
np.matmul(x, y)
np.dot(x, x)
x @ 2.0
np.reshape(x, (5, 5))
np.reshape(x, (-1, -1))
np.reshape(x, (-1, 5))
np.transpose(x, (0, 0))
np.transpose(x, (0, 1, 2))
np.sum(x, axis=2)
np.sum(x, axis=(0, 0))
np.sum(x, axis=-3)
np.max(z, axis=0)
np.argmax(z, axis=0)
np.max(z)
np.concatenate([x, y[:, :2]])
np.concatenate([])
np.concatenate([x, r])
np.stack([x, r])
np.stack([])
np.squeeze(x, axis=0)
np.expand_dims(x, 5)
np.expand_dims(x, (0, 0))
np.broadcast_to(x, (2, 2))
np.swapaxes(x, 0, 5)
np.moveaxis(x, 0, 7)
np.moveaxis(x, (0, 1), (0,))
np.split(x, 2)
np.einsum("ij,jk->ik", x, y)
np.einsum("ij,jk->iz", x, tall)
np.tensordot(x, y, 1)
np.tensordot(x, y, ([0], [1]))
np.inner(x, np.ones(5))
np.vdot(x, r)
np.cross(r, r)
np.linalg.inv(x)
np.linalg.det(x)
np.linalg.cholesky(x)
np.linalg.solve(m, r)
np.linalg.norm(x, "nonsense")
np.linalg.matrix_power(m, 1.5)
np.fft.fft(s)
np.fft.rfft(c)
np.zeros((2, -1))
np.zeros("abc")
np.ones(2.5)
np.arange(1, 2, 0)
np.linspace(0, 1, -3)
np.eye(-1)
np.array("text")
np.array(["a", "b"])
np.array([[1, 2], [3]])
np.array(object())
np.sin("text")
np.sin([1.0, 2.0])
np.sin(None)
np.add(x, None)
np.sum([1, 2, 3])
np.sum(x, dtype="nonsense")
np.negative(b)
np.subtract(b, b)
np.bitwise_and(x, y)
np.left_shift(x, 1)
np.invert(x)
np.gcd(x, y)
-b
b - b
~x
x & y
x << 1
x[0, 0, 0]
x["a"]
x[1.5]
x[[0, 1]]
x[..., ...]
x[onp.array([True, False])]
x[onp.array([0.5])]
x.at[0].set(np.ones(7))
x.at["a"].set(1.0)
x.__setitem__(0, 1.0)
x.at[0].set("a")
np.clip(c, 0, 1)
np.floor(c)
np.less(x, "a")
np.take(x, 1.5)
np.take_along_axis(x, i.astype(onp.float32), 1)
np.take_along_axis(x, d % 3, 5)
np.pad(x, ((1,), (2,), (3,)))
np.pad(x, 1, mode="nonsense")
np.repeat(x, np.array([1, 2]), axis=0)
np.diag(t)
np.trace(r)
np.rot90(r)
np.quantile(x, 0.5, method="nonsense")
np.searchsorted(x, 1.0)
np.searchsorted(r, 1.0, side="nonsense")
np.histogram(x, bins=np.ones((2, 2)))
np.bincount(x)
np.bincount(i.reshape(3, 4))
np.meshgrid(x)
np.select([b], [x, y])
np.vectorize(lambda v: v, signature="(n")(x)
np.polyfit(r, col, 1)
np.convolve(x, r)
np.astype(x, "nonsense")
np.result_type()
np.finfo(onp.int32)
np.iinfo(onp.float32)
np.average(x, weights=np.zeros(7), axis=0)
np.kaiser(-1.5, 2.0)
np.where(b, x)
np.lexsort(())
np.isclose(x, np.ones(3))
bool(x)
int(x)
float(c[0, 0])
len(s)
iter(s)
hash(x)
x.item()
x.reshape("a")
x.astype(onp.dtype([("a", onp.int32)]))
lax.add(x, r)
lax.add(x, i)
lax.add(x, "a")
lax.sin(i)
lax.exp(b)
lax.max(x, i)
lax.reshape(x, (5,))
lax.broadcast_in_dim(r, (3, 4), (0,))
lax.transpose(x, (0,))
lax.concatenate([x, i], 0)
lax.concatenate([x, y], 2)
lax.select(b, x, i)
lax.select_n(b, x, y, p)
lax.clamp(y, x, r)
lax.dot(x, y)
lax.dot_general(x, y, (((1,), (0,)), ((), ())))
lax.conv(image, kernel[:, :2], (1, 1), "SAME")
lax.conv(image, kernel, (1,), "SAME")
lax.conv(image, kernel, (1, 1), "NONSENSE")
lax.slice(x, (0, 0), (5, 5))
lax.slice(x, (0,), (2,))
lax.dynamic_slice(x, (0, 0), (5, 5))
lax.dynamic_slice(x, (0,), (1, 1))
lax.dynamic_update_slice(x, np.ones((7, 7)), (0, 0))
lax.pad(x, 0, ((0, 0, 0),))
lax.pad(x, i[0, 0], ((0, 0, 0), (0, 0, 0)))
lax.rev(x, (2,))
lax.squeeze(x, (0,))
lax.expand_dims(x, (7,))
lax.iota(onp.int32, -1)
lax.reduce_sum(x, (3,))
lax.reduce_and(x, (0,))
lax.cumsum(x, axis=4)
lax.sort(x, dimension=3)
lax.top_k(x, 9)
lax.bitwise_and(x, y)
lax.population_count(x)
lax.complex(i, i)
lax.full((2, -1), 0)
lax.integer_pow(x, 1.5)
lax.rem(x, i)
lax.reduce_window(x, 0.0, lax.add, (2,), (1, 1), "VALID")
lax.scan(lambda c, v: (c, v), 0.0, None)
lax.scan(lambda c, v: (np.stack([c, c]), v), 0.0, x)
lax.scan(lambda c, v: (1, v), 0.0, x)
lax.scan(lambda c, v: c, 0.0, x)
lax.scan(lambda c, v: (c, v), 0.0, (x, r))
lax.while_loop(lambda v: v, lambda v: v, 1.5)
lax.while_loop(lambda v: (v, v), lambda v: v, 0)
lax.fori_loop(0, 3, lambda n, v: (v, v), 0.0)
lax.fori_loop(0.5, 3, lambda n, v: v, 0.0)
lax.cond(s > 0, lambda: 1.0, lambda: 1)
lax.cond(s > 0, lambda: x, lambda: r)
lax.cond(s > 0, lambda: (x,), lambda: x)
lax.cond(x, lambda: 1.0, lambda: 2.0)
lax.cond("a", lambda: 1.0, lambda: 2.0)
lax.switch(s, [lambda: 1.0, lambda: 2.0])
lax.switch(0, [])
lax.map(lambda v: v, (x, r))
lax.associative_scan(lax.add, (x, r))
lax.psum(x, "nowhere")
lax.axis_index("nowhere")
lax.stop_gradient(object())
lib.grad(lambda v: v)(x)
lib.grad(lambda v: v.sum())(i)
lib.grad(lambda v: v.sum() + 0j)(x)
lib.grad(lambda v: v.sum())(c)
lib.grad(lambda v: (v.sum(), v))(x)
lib.grad(lambda v: v.sum(), argnums=3)(x)
lib.grad(lambda v: v.sum(), has_aux=True)(x)
lib.grad(lambda v: "a")(x)
lib.grad(lambda v: v.sum())("a")
lib.grad(3)
lib.jvp(np.sin, (x,), (i,))
lib.jvp(np.sin, (x,), (r,))
lib.jvp(np.sin, (x,), (x, x))
lib.jvp(np.sin, x, x)
lib.vjp(np.sin, x)[1](r)
lib.vjp(np.sin, x)[1]((x, x))
lib.linear_transpose(np.sin, x)(x)
lib.jacfwd(lambda v: v)(i)
lib.jacrev(lambda v: v)(i)
lib.vmap(lambda a, e: a + e)(x, r)
lib.vmap(lambda v: v, in_axes=5)(x)
lib.vmap(lambda v: v, in_axes=(0, 0))(x)
lib.vmap(lambda v: v, in_axes="a")(x)
lib.vmap(lambda v: v)(s)
lib.vmap(lambda v: v)()
lib.vmap(lambda v: v, in_axes=None)(x)
lib.vmap(lambda v: v, out_axes=7)(x)
lib.vmap(lambda v: (v, v), out_axes=(0, 0, 0))(x)
lib.vmap(lambda v: v.sum(), out_axes=None)(x)
lib.jit(lambda v: v if v else v)(s)
lib.jit(lambda v: int(v))(s)
lib.jit(lambda v: float(v))(s)
lib.jit(lambda v: np.zeros(v))(j[0])
lib.jit(lambda v: onp.sin(v))(x)
lib.jit(lambda v: x[v > 0])(np.ones(3))
lib.jit(lambda v: np.nonzero(v))(x)
lib.jit(lambda v: range(v))(j[0])
lib.jit(lambda v: v.tolist())(x)
lib.jit(lambda v: [1, 2][v])(j[0])
lib.jit(lambda v: np.arange(v))(j[0])
lib.jit(lambda v: np.unique(v))(j)
lib.jit(lambda v, w: v.reshape(w))(x, j[0])
lib.jit(lambda v: "text")(x)
lib.jit(lambda v: v)("text")
lib.jit(lambda v: v)(object())
lib.jit(lambda v, n: v, static_argnums=1)(x, [1])
lib.jit(lambda v, n: v, static_argnums=1)(x, onp.ones(2))
lib.jit(lambda v: v, static_argnums=5)(x)
lib.jit(lambda v: v, static_argnames="nothing")(x)
lib.jit(3)
lib.custom_jvp(lambda v: v)(x)
lib.custom_vjp(lambda v: v)(x)
random.uniform(3)
random.uniform(x)
random.normal(random.key(0), (2,), dtype=onp.int32)
random.uniform(random.key(0), (2,), dtype=onp.int32)
random.randint(random.key(0), (2,), 0, 5, dtype=onp.float32)
random.bernoulli(random.key(0), 0.5, (2, -1))
random.split(3)
random.split(random.key(0), -1)
random.fold_in(random.key(0), np.ones(3))
random.choice(random.key(0), 3, (5,), replace=False)
random.choice(random.key(0), 0, (5,))
random.categorical(random.key(0), np.ones((2, 3)), shape=(5,))
random.key("a")
random.key(np.ones(2))
random.key(0) + 1
random.wrap_key_data(x)
random.permutation(random.key(0), 2.5)
nn.one_hot(j, "a")
nn.glu(col)
nn.sigmoid(i)
lax.pow(i, 2)
nn.initializers.glorot_normal()(random.key(0), (3,))
nn.initializers.variance_scaling(1.0, "nonsense", "normal")(random.key(0), (2, 2))
nn.softmax(x, axis=4)
nn.dot_product_attention(image, image[:, :2], r)
tree_util.tree_map(lambda a, e: a, [1, 2], [1])
tree_util.tree_map(lambda a, e: a, [1, 2], (1, 2))
tree_util.tree_map(lambda a, e: a, {"a": 1}, {"b": 1})
tree_util.tree_unflatten(tree_util.tree_structure([1, 2]), [1])
tree_util.tree_transpose(tree_util.tree_structure([1]), tree_util.tree_structure((1, 2)), [1])
tree_util.tree_reduce(lambda a, e: a + e, [])
tree_util.register_pytree_node(list, lambda v: (v, None), lambda a, c: c)
lib.eval_shape(lambda v: v @ v, x)
lib.make_jaxpr(3)
lib.make_jaxpr(lambda v: v)("a")
lib.device_put("a")
lib.jit(lib.checkpoint(lambda v: v if v > 0 else -v))(s)
lib.hessian(lambda v: v.sum())(i)
lib.numpy.vectorize(lambda a, e: a, signature="(n),(m)->(n)")(x)
"""

# Where the family differs on purpose: what Weft raises, and why.
KNOWN_DIFFERENCES = {
    "np.linalg.cholesky(x)": (ValueError, "the error of the shape, not of an addition inside"),
    "np.zeros((2, -1))": (ValueError, "as NumPy"),
    "np.reshape(x, (-1, -1))": (ValueError, "as NumPy"),
    "np.transpose(x, (0, 0))": (ValueError, "as NumPy"),
    "np.arange(1, 2, 0)": (ValueError, "a step of zero is a bad argument"),
    "np.take(x, 1.5)": (TypeError, "as NumPy"),
    'np.pad(x, 1, mode="nonsense")': (ValueError, "as NumPy"),
    "np.where(b, x)": (ValueError, "as NumPy"),
    "lax.concatenate([x, y], 2)": (ValueError, "one class for every axis out of bounds"),
    "lax.rev(x, (2,))": (ValueError, "one class for every axis out of bounds"),
    'lax.conv(image, kernel, (1, 1), "NONSENSE")': (ValueError, "a bad argument; JAX raises RuntimeError"),
    "lax.full((2, -1), 0)": (ValueError, "a negative size is a bad value"),
    "lax.iota(onp.int32, -1)": (ValueError, "a negative size is a bad value"),
    "random.bernoulli(random.key(0), 0.5, (2, -1))": (ValueError, "a negative size is a bad value"),
    "random.split(random.key(0), -1)": (ValueError, "JAX fails inside its compiler"),
    "nn.glu(col)": (ValueError, "a bad argument; JAX asserts"),
}

FAMILIES = (
    IndexError,
    KeyError,
    AttributeError,
    StopIteration,
    AssertionError,
    OverflowError,
    NotImplementedError,
    TypeError,
    ValueError,
    NameError,
)


def outcome(library: str, text: str) -> BaseException | None:
    """Return the exception that a row raises, or None."""
    lib = {"weft": weft, "jax": jax}[library]
    names = {name: lib.numpy.asarray(value) for name, value in INPUTS.items()}
    try:
        eval(text, {**NAMESPACES[library], **names})
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("text", [line for line in BAD_CALLS.splitlines() if line])
def test_same_family(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = outcome("jax", text), outcome("weft", text)
    assert theirs is not None, "JAX accepts this call: the row does not belong here"
    assert ours is not None, f"Weft accepts what JAX refuses with {type(theirs).__name__}: {theirs}"
    families = [family for family in FAMILIES if isinstance(theirs, family)]
    if text in KNOWN_DIFFERENCES:
        assert isinstance(ours, KNOWN_DIFFERENCES[text][0])
        assert not any(isinstance(ours, family) for family in families), (
            "the same family as JAX: no difference any more"
        )
        return
    assert any(isinstance(ours, family) for family in families), f"{type(ours)}: {ours}\nJAX: {type(theirs)}: {theirs}"
