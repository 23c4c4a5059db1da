"""Creation, shape manipulation, indexing and updates against JAX."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer.compare import check, lines, rows

creation = """
np.zeros(3)
np.zeros((2, 3), onp.int8)
np.ones((2,), bool)
np.ones((), complex)
np.empty((2, 0))
np.full((2, 3), 7)
np.full((2,), 2.5, onp.int32)
np.full((2, 2), onp.array([1.0, 2.0], onp.float32))
np.arange(5)
np.arange(2.0)
np.arange(1, 10, 3)
np.arange(10, 1, -3)
np.arange(0, 1, 0.25)
np.arange(3, dtype=onp.float16)
np.arange(0)
np.linspace(0, 1, 5)
np.linspace(0, 1, 5, endpoint=False)
np.linspace(0, 10, 3, dtype=int)
np.linspace(onp.array([0.0, 1.0]), 3, 4, axis=1)
np.linspace(0, 1, 4, retstep=True)
np.linspace(0, 1, 1)
np.logspace(0, 2, 4)
np.logspace(0, 3, 4, base=2)
np.geomspace(1, 100, 4)
np.eye(3)
np.eye(2, 4, k=1, dtype=onp.int32)
np.eye(3, k=-1)
np.identity(3)
np.identity(2, dtype=bool)
np.tri(3)
np.tri(3, 4, 1, dtype=onp.int32)
np.array(3)
np.array(2.5)
np.array(True)
np.array(1j)
np.array([1, 2.5])
np.array([[1, 2], [3, 4]], dtype=onp.float32)
np.array([True, False])
np.array([])
np.array([[], []])
np.array((1, 2), ndmin=3)
np.array(onp.float64(1.5))
np.array(onp.arange(3, dtype=onp.int64))
np.asarray(2)
np.asarray([np.float32(1), 2])
np.asarray(3, dtype=onp.uint8)
np.float32(3)
np.int8(5)
np.bool_(1)
np.uint16(7.9)
np.complex64(2)
np.bfloat16(1.5)
np.meshgrid(onp.arange(2), onp.arange(3))
np.meshgrid(onp.arange(2), onp.arange(3), indexing="ij", sparse=True)
np.indices((2, 3))
np.indices((2, 3), sparse=True)
np.mgrid[0:2, 0:3]
np.mgrid[0:1:3j]
np.ogrid[0:2, 0:3]
np.r_[1, 2, onp.array([3.0, 4.0])]
np.r_[0:5:2]
np.r_["0,2", onp.array([1, 2]), onp.array([3, 4])]
np.c_[onp.array([1, 2]), onp.array([3, 4])]
np.s_[1:2, ...]
np.index_exp[1]
np.ix_(onp.array([0, 1]), onp.array([2, 3]))
np.tril_indices(3)
np.tril_indices(3, 1, 4)
np.triu_indices(3, -1)
np.diag_indices(3)
np.mask_indices(3, np.triu)
np.fromfunction(lambda a, c: a + c, (2, 3))
np.fromfunction(lambda a, c: a * 10 + c, (2, 3), dtype=int)
np.bartlett(5)
np.blackman(6)
np.hamming(5)
np.hanning(4)
np.kaiser(5, 3.0)
np.vander(onp.arange(3.0))
np.frombuffer(b"abcd", dtype=onp.uint8)
np.fromstring("1 2 3", sep=" ")
np.broadcast_shapes((2, 1), (3,))
np.result_type(onp.int32, onp.float16)
np.result_type(1, onp.int8)
np.result_type(onp.int8, 2.0)
np.result_type(onp.uint8, onp.int8)
np.result_type(onp.uint32, onp.int32)
np.result_type(True, 1)
np.promote_types(onp.float16, np.bfloat16)
np.promote_types("int8", "uint16")
np.promote_types(onp.uint32, onp.float16)
np.issubdtype(np.bfloat16, onp.floating)
np.isdtype(onp.int8, "integral")
np.isdtype(np.bfloat16, "real floating")
np.can_cast(onp.int8, onp.int16)
np.finfo(onp.float32).eps
np.iinfo(onp.int8).max
float(np.finfo(np.bfloat16).max)
np.shape(onp.zeros((2, 3)))
np.ndim(3)
np.size(onp.zeros((2, 3)), 1)
np.isscalar(3)
np.isscalar(np.array(3))
np.iterable(np.zeros(3))
np.iscomplexobj(np.array(1j))
np.isrealobj(np.array(1.0))
np.ravel_multi_index((1, 2), (3, 4))
np.ravel_multi_index((onp.array([1, 5]), onp.array([2, 9])), (3, 4), mode="clip")
np.ravel_multi_index((onp.array([1, 5]), onp.array([2, 9])), (3, 4), mode="wrap", order="F")
np.unravel_index(onp.array([3, 7]), (3, 4))
np.unravel_index(5, (2, 3))
lax.broadcast_shapes((2, 1), (1, 3))
lax.empty((0, 2), onp.float32)
"""
moved = """
np.reshape(x, (2, 6))
np.reshape(x, -1, order="F")
np.reshape(x, (4, -1))
x.reshape(2, -1)
np.ravel(x)
np.ravel(x, order="F")
np.transpose(t)
np.transpose(t, (1, 0, 2))
np.permute_dims(t, (2, 0, 1))
np.matrix_transpose(t)
np.swapaxes(t, 0, -1)
np.moveaxis(t, 0, 2)
np.moveaxis(t, (0, 1), (-1, 0))
np.rollaxis(t, 2)
np.expand_dims(x, 0)
np.expand_dims(x, (0, -1))
np.squeeze(q)
np.squeeze(q, axis=1)
np.squeeze(q[None], axis=(0, 2))
np.broadcast_to(r, (3, 4))
np.broadcast_to(q, (2, 3, 5))
np.broadcast_arrays(q, r)
np.atleast_1d(s)
np.atleast_2d(r)
np.atleast_3d(x)
np.atleast_1d(s, r)
np.flip(x)
np.flip(x, 1)
np.flip(t, (0, 2))
np.fliplr(x)
np.flipud(x)
np.rot90(x)
np.rot90(x, 2)
np.rot90(t, 3, (1, 2))
np.roll(x, 2)
np.roll(x, 1, axis=0)
np.roll(x, (1, -2), axis=(0, 1))
np.roll(x, (1, 2), axis=0)
np.repeat(x, 2)
np.repeat(x, 3, axis=1)
np.repeat(x, np.array([1, 0, 2]), axis=0, total_repeat_length=3)
np.tile(x, 2)
np.tile(r, (2, 3))
np.tile(x, (2, 1, 1))
np.concatenate([x, y])
np.concatenate([x, q], axis=1)
np.concatenate([x, y], axis=None)
np.concat([x, y], axis=-1)
np.stack([x, y])
np.stack([x, y], axis=-1)
np.hstack([x, y])
np.vstack([x, r])
np.dstack([x, y])
np.column_stack([col, col])
np.block([[x, y], [y, x]])
np.append(x, y)
np.append(x, y, axis=1)
np.split(x, 2, axis=1)
np.split(x, [1, 2])
np.array_split(x, 3, axis=1)
np.hsplit(x, 2)
np.vsplit(x, 3)
np.dsplit(t, 2)
np.unstack(x)
np.unstack(x, axis=1)
np.insert(x, 1, 5.0, axis=0)
np.insert(r, np.array([0, 2]), np.array([7.0, 8.0]))
np.delete(x, 1, axis=0)
np.delete(r, onp.array([0, 2]))
np.delete(x, slice(0, 2), axis=1)
np.resize(x, (2, 5))
np.pad(x, 1)
np.pad(x, ((1, 0), (0, 2)), constant_values=3.0)
np.pad(x, ((1, 2), (0, 1)), mode="edge")
np.pad(x, 2, mode="reflect")
np.pad(x, 1, mode="symmetric")
np.pad(x, ((1, 1), (2, 2)), mode="wrap")
np.pad(r, 2, mode="linear_ramp", end_values=1.0)
np.pad(x, 1, mode="mean")
np.pad(x, 1, mode="maximum")
np.pad(x, 1, mode="median")
np.diag(r)
np.diag(x, 1)
np.diag(r, -1)
np.diagflat(x)
np.diagonal(x)
np.diagonal(t, 1, 1, 2)
np.trace(x)
np.trace(t, 1, 1, 2)
np.tril(x)
np.triu(x, 1)
np.tril(t, -1)
np.fill_diagonal(m, 5.0, inplace=False)
np.vander(r)
np.vander(r, 3, increasing=True)
np.take(x, np.array([0, 2]))
np.take(x, np.array([[0, 2]]), axis=1)
np.take(x, np.array([-1, 5]), axis=0, mode="clip")
np.take(x, np.array([-1, 5]), axis=0, mode="wrap")
np.take(x, np.array([1, 5]), axis=0, mode="fill")
np.take(x, np.array([1, 5]), axis=0, mode="fill", fill_value=-1.0)
np.take_along_axis(x, np.argsort(x, axis=1), axis=1)
np.take_along_axis(x, d % 3, axis=0)
np.take_along_axis(x, d[0], axis=None)
np.put_along_axis(x, d % 4, y, axis=1, inplace=False)
np.put(x, np.array([1, 3]), np.array([9.0, 8.0]), inplace=False)
np.apply_along_axis(lambda v: v[0] - v.sum(), 1, x)
np.apply_over_axes(np.sum, t, [0, 2])
np.vectorize(lambda a, c: a * c)(x, r)
np.vectorize(lambda a, c: a @ c, signature="(n),(n)->()")(x, r)
np.vectorize(lambda a, c: a * c, excluded={1})(x, 2.0)
np.polyval(r, x)
np.polyadd(r, col)
np.polysub(r, col)
np.polymul(r, col)
np.polyder(r)
np.polyint(r, 2)
np.poly(col)
np.convolve(r, col)
np.convolve(signal, col, mode="same")
np.convolve(signal, col, mode="valid")
np.correlate(signal, col)
np.correlate(signal, col, mode="full")
np.copy(x)
x.T
x.mT
t.mT
c.real
c.imag
c.conj()
x.flatten()
x.ravel()
x.transpose(1, 0)
x.swapaxes(0, 1)
x.squeeze()
x.sum(0)
x.mean(axis=1, keepdims=True)
x.std()
x.prod(1)
x.max(0)
x.cumsum(1)
x.dot(tall)
x.clip(-1, 1)
x.repeat(2, axis=0)
x.diagonal()
x.trace()
x.take(np.array([1, 2]), axis=1)
x.astype(onp.float16)
x.round(1)
x.sort(axis=0)
lax.reshape(x, (2, 6))
lax.reshape(x, (4, 3), (1, 0))
lax.transpose(t, (2, 0, 1))
lax.rev(x, (0,))
lax.broadcast(x, (2,))
lax.broadcast_in_dim(r, (3, 4), (1,))
lax.broadcast_to_rank(r, 3)
lax.collapse(t, 0, 2)
lax.expand_dims(x, (1,))
lax.squeeze(q, (1,))
lax.concatenate([x, y], 1)
lax.pad(x, 0.5, ((1, 1, 0), (0, 2, 1)))
lax.pad(x, 0.0, ((-1, 0, 0), (0, -1, 2)))
lax.split(x, (1, 2), 0)
lax.tile(x, (2, 1))
lax.slice(x, (0, 1), (2, 4), (1, 2))
lax.slice_in_dim(x, 0, 4, 2, axis=1)
lax.index_in_dim(x, 1, 0)
lax.index_in_dim(x, -1, 1, keepdims=False)
lax.dynamic_slice(x, (1, 2), (2, 2))
lax.dynamic_slice(x, (5, -1), (2, 2))
lax.dynamic_slice_in_dim(x, 1, 2, axis=1)
lax.dynamic_index_in_dim(x, 2, keepdims=False)
lax.dynamic_update_slice(x, np.ones((2, 2)), (1, 3))
lax.dynamic_update_slice_in_dim(x, q, 2, axis=1)
lax.dynamic_update_index_in_dim(x, r, 1, 0)
lax.gather(x, np.array([[0], [2]]), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4))
lax.gather(x, np.array([[0], [9]]), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), mode="clip")
lax.gather(x, np.array([[0], [9]]), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), mode="fill", fill_value=7.0)
lax.scatter_add(x, np.array([[0], [2]]), x[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter(x, np.array([[0], [2]]), x[1:], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter_mul(x, np.array([[0], [2]]), x[1:], lax.ScatterDimensionNumbers((1,), (0,), (0,)), unique_indices=True)
lax.scatter_max(x, np.array([[0], [2]]), y[1:], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter_min(x, np.array([[0], [2]]), y[1:], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter_sub(x, np.array([[0], [2]]), y[1:], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
"""
indexed = """
x[0]
x[-1]
x[1, 2]
x[:, 1]
x[1:]
x[::-1]
x[::2, 1::2]
x[2:0:-1]
x[:0]
x[...]
x[..., 0]
x[None]
x[:, None, 1:]
x[1, ..., None]
t[0, :, 1]
t[..., 1:, 0]
x[np.array([0, 2])]
x[np.array([0, -1])]
x[np.array([2, 0])]
x[np.array([[0, 1], [2, 0]])]
x[np.array([0, 2]), np.array([1, 3])]
x[np.array([0, 2])[:, None], np.array([1, 3])]
x[:, np.array([1, 3])]
x[np.array([0, 2]), 1:3]
t[:, np.array([0, 1]), np.array([2, 3])]
t[np.array([0, 1]), :, np.array([2, 3])]
t[0, :, np.array([2, 3])]
t[np.array([0, 1]), None, 1]
t[1, np.array([0, 2])[:, None], np.array([1, 2])]
x[j]
x[j, 1]
x[j % 3, j]
x[j[0]]
lax.dynamic_slice_in_dim(x, j[0], 1)
x[None, 0]
x[np.int32(1)]
x[onp.array([True, False, True])]
x[:, onp.array([True, False, True, False])]
x[np.ix_(np.array([0, 2]), np.array([1, 3]))]
x.at[0].set(1.0)
x.at[0].get()
x.at[1, 2].add(3.0)
x.at[:, 1].multiply(2.0)
x.at[1:].divide(2.0)
p.at[0].power(2.0)
x.at[0].min(0.0)
x.at[:, ::2].max(0.0)
x.at[0].subtract(r)
x.at[j].add(1.0)
x.at[j, 0].add(r)
x.at[np.array([0, 0])].add(np.ones((2, 4)))
x.at[np.array([0, 7])].set(1.0, mode="drop")
x.at[np.array([0, 7])].add(1.0, mode="clip")
x.at[np.array([1, 7])].get(mode="fill", fill_value=-1.0)
x.at[np.array([1, 7])].get(mode="clip")
x.at[np.array([1, 2])].set(x[:2], unique_indices=True)
x.at[np.array([1, 2])].get(indices_are_sorted=True)
x.at[1].set(r)
x.at[...].add(s)
x.at[..., None].set(s)
x.at[::-1].set(y)
x.at[np.array([0, 2])[:, None], np.array([1, 3])].set(5.0)
x.at[0, 1:3].set(np.array([1.0, 2.0]))
"""
integers = """
i[0]
i[j]
b[1]
h[np.array([0, 2])]
c[:, 1]
u.at[0].add(3)
x.at[0].apply(np.sin)
i.at[1:].min(0)
i.at[np.array([0, 0])].add(1)
b.at[0].set(True)
h.at[1].multiply(2)
c.at[0, 0].set(1j)
i.at[j].max(5)
i.at[0].apply(lambda v: v * 2)
np.concatenate([i, x])
np.concatenate([u, n])
np.stack([i, b])
np.hstack([h, g])
np.append(i, 2.5)
np.pad(i, 1)
np.pad(b, ((0, 1), (1, 0)))
np.roll(i, 2, axis=1)
np.tile(b, 2)
np.repeat(i, 2)
np.full_like(x, 3)
np.full_like(i, 2.7)
np.full_like(x, 1, dtype=onp.int8, shape=(2,))
np.zeros_like(i)
np.ones_like(b)
np.zeros_like(x, dtype=onp.complex64)
np.empty_like(x, shape=(0, 2))
np.zeros_like(2)
np.ones_like(2.5)
np.diag(i)
np.trace(i)
np.trace(b)
np.tril(b)
np.broadcast_arrays(i, 2.0)
np.array([x, y])
np.array([s, 1.0])
np.array(x, copy=True)
np.array(i, dtype=onp.float32)
np.array(s)
np.asarray(x, dtype=np.bfloat16)
np.insert(i, 1, 7)
np.resize(i, (5,))
np.take(i, j, axis=0)
np.take_along_axis(i, d % 4, 1)
np.convolve(j, j)
np.polyval(j, i)
np.polyadd(j, j)
np.vander(j)
np.gradient(i)
np.flip(b)
np.arange(3) + s
np.linspace(s, 2.0, 3)
np.reshape(z, (3, 0))
np.concatenate([z, z])
np.sum(z[0:0])
z.T
np.sort(z)
np.pad(z, ((1, 0), (0, 0)))
z[:, None]
z @ m
np.zeros((3, 0)) @ z
x.view(onp.int32)
u.view(onp.int8)
i.any()
i.all(axis=0)
i.argmax(1)
i.argsort()
i.ptp()
np.searchsorted(np.sort(j), 1)
i.min()
i.var()
i.conj()
i.copy()
np.unravel_index(d, (3, 4))
np.ravel_multi_index((j, j), (3, 4), mode="clip")
np.tril_indices_from(x)
np.triu_indices_from(x, 1)
np.diag_indices_from(m)
np.expand_dims(1.0, 0)
np.atleast_2d(3)
np.broadcast_to(2, (2,))
np.stack([1, 2.0])
np.ravel(3)
np.squeeze(np.array([[1]]))
np.moveaxis(np.zeros((2, 3)), 0, 1)
lax.iota(onp.uint8, 4)
lax.broadcasted_iota(onp.int32, (2, 3), 0)
lax.concatenate([i, k], 0)
lax.pad(i, 7, ((1, 0, 1), (0, 1, 0)))
lax.dynamic_slice(i, (j[0], j[1]), (1, 2))
lax.dynamic_update_slice(i, k[:1, :2], (j[0], 1))
lax.full_like(h, 2, shape=(2,))
lax.rev(b, (1,))
lax.scatter_apply(i, np.array([[0]]), np.square, lax.ScatterDimensionNumbers((1,), (0,), (0,)), update_shape=(1, 4))
"""
concrete = """
x.tolist()
x.nbytes
x.itemsize
x.size
x.ndim
x.shape
x.dtype
len(x)
i[0].tolist()
float(s)
int(i[0, 0])
complex(c[0, 0])
bool(b[0, 0])
i[0, 0].item()
x.item(3)
[v for v in j]
list(np.arange(3))
(1, 2, 3)[np.array(1)]
onp.asarray(x) + 1
onp.asarray(h).dtype
str(np.arange(3))
repr(np.arange(3))
repr(np.array([1.5, 2.0]))
repr(np.array(2))
repr(np.array([], onp.float32))
repr(np.array([True, False]))
repr(np.array([1.0, 2.0], np.bfloat16))
repr(np.zeros((2, 2), onp.int8))
format(np.array(2.5), ".2f")
np.array_str(np.arange(3))
hash(np.float32) == hash(np.float32)
x.at[np.array([0, 2])].get().shape
np.roots(np.array([1.0, -3.0, 2.0]))
np.polyfit(np.arange(4.0), r, 1)
np.polydiv(r, col)
np.frompyfunc(lambda a, c: a + c, 2, 1)(x, y)
np.einsum_path("ij,jk->ik", x, tall)[0]
"""


@pytest.mark.parametrize("row", rows(*lines(creation)))
def test_creation(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(moved), gradient=True))
def test_moving_elements(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(indexed), gradient=True))
def test_indexing(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(integers), batched=False))
def test_other_dtypes(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(concrete), staged=False, batched=False))
def test_concrete_values(row: Any) -> None:
    check(row)
