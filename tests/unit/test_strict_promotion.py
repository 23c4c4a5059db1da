"""Weft's own functions work under strict promotion of ranks and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import image, lax, nn, random
from weft.experimental import sparse
from weft.experimental.sparse import linalg as sparse_linalg
from weft.scipy import fft as scipy_fft, linalg as scipy_linalg, ndimage, signal, stats
from weft.scipy.sparse import linalg as krylov
from weft.scipy.spatial.transform import Rotation, Slerp

RANKS = """
np.tril(t), np.triu(t), np.tril(t, -1)
np.add.outer(v, v), np.multiply.outer(x, v), np.outer(v, v)
np.array_equiv(np.stack([v, v]), v), np.array_equal(t, v)
np.polyfit(np.arange(4.0), v, 1), np.polyfit(np.arange(4.0), np.stack([v, v], 1), 1, w=v)
np.polyfit(np.arange(6.0), np.arange(6.0), 2, cov=True)
np.polyval(v, x), np.polymul(v, v), np.polydiv(v, v[:2]), np.vander(v), np.roots(v)
np.linalg.cross(m, np.stack([m, m])), np.cross(m, m)
np.trapezoid(t, dx=t[0, :, :], axis=0), np.trapezoid(t, x=v), np.trapezoid(t, x=t, axis=1)
np.cov(x, fweights=j), np.cov(x, aweights=abs(v)), np.corrcoef(x), np.average(x, 1, weights=v)
np.quantile(t, np.array([0.2, 0.7]), axis=(0, 2)), np.median(t, axis=1), np.percentile(x, 30.0)
np.quantile(x, 0.3, axis=1, weights=v, method="inverted_cdf")
np.interp(x, np.arange(4.0), v), np.gradient(t), np.diff(t, prepend=0.0), np.ediff1d(v)
np.histogram(x), np.histogram2d(v, v), np.digitize(x, np.arange(4.0)), np.searchsorted(np.arange(4.0), x)
np.unique(x, axis=0, size=2), np.isin(x, v), np.union1d(v, v), np.setdiff1d(v, v), np.intersect1d(j, j)
np.pad(t, 1, mode="linear_ramp"), np.pad(x, 2, mode="mean"), np.pad(x, 1, mode="reflect", reflect_type="odd")
np.linspace(v, v, 3), np.logspace(v, v, 3), np.geomspace(abs(v), abs(v) + 1, 3), np.meshgrid(v, v)
np.var(t, axis=0), np.std(x, axis=1, ddof=1), np.nanvar(x, axis=0), np.mean(x, where=b), np.nanmedian(x, axis=1)
np.linalg.lstsq(x, np.ones(3)), np.linalg.pinv(s), np.linalg.matrix_rank(s), np.linalg.cond(s)
np.linalg.norm(t, axis=1), np.linalg.norm(s, ord="nuc", axis=(1, 2)), np.linalg.vector_norm(t, axis=(0, 1))
np.linalg.solve(s, np.ones((2, 3, 1))), np.linalg.slogdet(s), np.linalg.det(np.ones((2, 4, 4))), np.linalg.eigh(s)
weft.grad(lambda w: np.linalg.pinv(w).sum())(s), weft.grad(lambda w: np.linalg.det(w).sum())(np.ones((2, 4, 4)))
nn.dot_product_attention(q, q, q, is_causal=True), nn.dot_product_attention(q, q, q, local_window_size=(1, 0))
nn.dot_product_attention(q, q, q, mask=b[0, :3], query_seq_lengths=j[:2], key_value_seq_lengths=j[:2])
nn.dot_product_attention(q, q, q, bias=m, mask=np.ones((3, 3), bool))
nn.softmax(t, axis=(0, 1)), nn.logsumexp(t, axis=1), nn.standardize(t), nn.one_hot(j, 3), nn.glu(x), nn.log_softmax(x)
random.categorical(key, np.zeros(5), shape=(7,)), random.categorical(key, np.zeros((2, 5)), shape=(7, 2))
random.multivariate_normal(key, np.zeros(2), np.eye(2), shape=(10,)), random.dirichlet(key, abs(v), shape=(5,))
random.gamma(key, abs(v), shape=(5, 4))
random.beta(key, abs(v), abs(v), shape=(5, 4)), random.poisson(key, abs(v), (5, 4))
random.choice(key, x, (5,), p=np.ones(3) / 3), random.permutation(key, x), random.randint(key, (5, 4), 0, j + 1)
random.ball(key, 3, shape=(5,)), random.truncated_normal(key, -1.0, 1.0, (5, 4)), random.uniform(key, (5, 4))
random.lognormal(key, abs(v), (5, 4)), random.bernoulli(key, np.full(4, 0.5), (5, 4)), random.t(key, abs(v), (5, 4))
random.geometric(key, np.full(4, 0.5), (5, 4)), random.pareto(key, abs(v), (5, 4))
random.f(key, abs(v), abs(v), (5, 4)), random.chisquare(key, abs(v), (5, 4))
random.rayleigh(key, abs(v), (5, 4)), random.uniform(key, (5, 4), minval=-abs(v)), random.wald(key, abs(v), (5, 4))
scipy_linalg.expm(s), scipy_linalg.toeplitz(v), scipy_linalg.cho_solve(scipy_linalg.cho_factor(m @ m.T), np.ones(3))
scipy_linalg.companion(x), scipy_linalg.hankel(v, x), scipy_linalg.leslie(v, v[1:]), scipy_linalg.sqrtm(m)
lax.linalg.tridiagonal_solve(v, v, v, np.ones((4, 2)), perturb_singular=True), lax.top_k(x, 2), lax.cumsum(x)
np.maximum.reduceat(x, j[:2], axis=1), np.unwrap(x), np.apply_along_axis(np.sum, 0, x), np.select([b], [x], 0.0)
np.take_along_axis(x, np.argsort(x, axis=1), 1), np.fill_diagonal(m, 0.0, inplace=False), np.choose(j, [v, v, v])
"""

DTYPES = """
np.median(i), np.quantile(i, 0.5), np.percentile(i, 30), np.quantile(g, np.float32(0.5)), np.nanmedian(i)
np.var(g, dtype="float32"), np.var(x, dtype="float16"), np.std(g, dtype="float32"), np.mean(g, dtype="float32")
np.corrcoef(c), np.cov(c), np.cov(g), np.cov(x, fweights=j), np.cov(g, fweights=j), np.average(g, 1, weights=g[0])
np.trapezoid(i), np.trapezoid(i, dx=2), np.trapezoid(i, i), np.trapezoid(g), np.interp(g, g[0], g[0]), np.gradient(g)
np.pad(i, 2, mode="median"), np.pad(i, 2, mode="mean"), np.pad(g, 2, mode="linear_ramp"), np.pad(i, 1)
np.mgrid[0:1:0.3, 0:2], np.ogrid[0:1:0.5, 0:3], np.linspace(0, 1, 3), np.arange(3), np.geomspace(1, 8, 4)
nn.logsumexp(c), nn.logsumexp(g), nn.softmax(g), nn.gelu(g), nn.silu(g), nn.standardize(g), nn.one_hot(j, 3)
nn.dot_product_attention(h, h, h, is_causal=True), nn.dot_product_attention(h, h, h, return_residual=True)
np.ldexp(g, i), np.ldexp(x, j[None]), np.frexp(g), np.spacing(g), np.nextafter(g, g), np.signbit(g), np.sinc(i)
np.floor_divide(g, g), np.remainder(i, i + 10), np.divmod(g, g), np.around(g, 1), np.power(g, 2), np.float_power(i, i)
np.unique(i, size=3, return_counts=True), np.bincount(j), np.digitize(x, v), np.histogram(i), np.searchsorted(v, v)
np.ravel_multi_index((j, j), (3, 3), mode="clip"), np.unravel_index(j, (2, 2)), np.nonzero(i, size=3), np.argsort(g)
np.array_equiv(i, 0.5), np.isclose(i, i), np.allclose(g, g), np.nan_to_num(g), np.clip(i, 0, 2), np.unwrap(g)
np.linalg.norm(i), np.linalg.norm(g, axis=1), np.linalg.matrix_power(i[:, :3], 3), np.linalg.cond(s), np.linalg.pinv(s)
np.convolve(j, j), np.correlate(j, j), np.polyfit(v, v, 2), np.polyval(j, j), np.polyint(j), np.polyder(j), np.roots(v)
np.fft.fft(i), np.fft.rfft(g.astype("float32")), np.fft.fftfreq(4), np.i0(j), np.hanning(5), np.kaiser(5, 2.0)
random.normal(key, (3,), "float16"), random.gamma(key, g * g + 1, dtype="float16")
random.randint(key, (3,), 0, 9, "uint8")
random.categorical(key, g), random.choice(key, j, (3,)), random.bernoulli(key, 0.5, (3,))
random.poisson(key, 2.0, (3,))
random.beta(key, 1.0, 2.0, (3,), "float16"), random.dirichlet(key, v * v + 1, (2,)), random.binomial(key, 5, 0.5, (3,))
scipy_linalg.expm(m), scipy_linalg.sqrtm(m), scipy_linalg.toeplitz(j), scipy_linalg.companion(i), scipy_linalg.dft(3)
lax.linalg.tridiagonal_solve(v, v, v, np.ones((4, 2)), perturb_singular=True), lax.mul(g, g, out_dtype="float32")
np.cumsum(i, dtype=bool), np.var(i, ddof=2), np.sum(i, initial=3), np.mean(i), np.ptp(i), np.count_nonzero(i)
"""


def names() -> dict[str, Any]:
    """Return the meaning of the names in a line: arrays of several ranks and dtypes, never mixed with another."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return wnp.asarray(rng.normal(size=shape).astype(np.float32))

    half = wnp.asarray(rng.normal(size=(3, 4)).astype(np.float16))
    matrices = floats(2, 3, 3)
    return {
        "np": wnp,
        "nn": nn,
        "lax": lax,
        "weft": weft,
        "random": random,
        "scipy_linalg": scipy_linalg,
        "key": random.key(0),
        "t": floats(2, 3, 4),
        "x": floats(3, 4),
        "v": floats(4),
        "m": floats(3, 3),
        "s": matrices @ wnp.swapaxes(matrices, 1, 2) + 2 * wnp.eye(3)[None],
        "q": floats(2, 3, 2, 4),
        "h": floats(2, 3, 2, 4).astype("bfloat16"),
        "g": half,
        "c": wnp.asarray((rng.normal(size=(3, 4)) + 1j).astype(np.complex64)),
        "i": wnp.asarray(rng.integers(1, 5, (3, 4)).astype(np.int32)),
        "j": wnp.asarray(np.array([0, 2, 1, 1], np.int32)),
        "b": wnp.asarray(rng.normal(size=(3, 4)) > 0),
    }


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("text", lines(RANKS))
def test_no_implicit_rank_promotion(text: str) -> None:
    namespace = names()
    with weft.numpy_rank_promotion("raise"):
        eval(text, namespace)


@pytest.mark.parametrize("text", lines(DTYPES))
def test_no_implicit_dtype_promotion(text: str) -> None:
    namespace = names()
    with weft.numpy_dtype_promotion("strict"):
        eval(text, namespace)


def names_of_signals() -> dict[str, Any]:
    """Return the meaning of the names in a line about `image`, `scipy` and `sparse`."""
    found = names()
    found.update(image=image, signal=signal, stats=stats, sparse=sparse, spl=sparse_linalg, fft=scipy_fft)
    found.update(ndimage=ndimage, Rotation=Rotation, Slerp=Slerp, krylov=krylov)
    found["w"] = wnp.asarray(np.random.default_rng(1).normal(size=(3, 20)).astype(np.float32))
    found["R"] = Rotation.from_euler("xyz", found["m"])
    found["S"], found["D"] = sparse.BCOO.fromdense(found["x"]), sparse.BCOO.fromdense(found["t"], n_dense=1)
    found["B"] = sparse.BCOO.fromdense(found["t"], n_batch=1)
    return found


LIBRARY_RANKS = """
image.resize(w, (3, 8), "linear"), image.resize(w, (4, 25), "cubic")
image.scale_and_translate(w, (3, 8), (1,), np.array([2.0]), np.array([1.0]), "lanczos3")
signal.welch(w, nperseg=7), signal.csd(w, w, nperseg=6, detrend="linear"), signal.detrend(w), fft.dct(w), fft.idctn(w)
signal.istft(signal.stft(w, nperseg=8)[2]), signal.istft(signal.stft(w[0], nperseg=8)[2])
R.inv() * R, Slerp.init(np.arange(3.0), R)(np.array([0.5, 1.5])), Slerp.init(np.arange(3.0), R)(0.5)
spl.lobpcg_standard(np.diag(np.arange(1.0, 16.0)), np.eye(15)[:, :3] + 0.01, 5)
S @ S.T, S * np.ones((3, 1)), S.sum(0), S.reshape((2, 6)), S[0], S[1:], sparse.sparsify(np.sin)(S)
sparse.bcoo_multiply_sparse(S, S), sparse.bcoo_concatenate([S, S], dimension=0), S.sum_duplicates(nse=12)
D.sum(0), D[0], D.todense(), D * 2, B.sum(1), B.todense(), sparse.bcoo_update_layout(B, n_batch=0)
sparse.BCSR.fromdense(x).sum_duplicates(nse=12), sparse.BCSR.fromdense(x) @ v, sparse.CSR.fromdense(x) @ x.T
stats.rankdata(x, axis=1), stats.mode(i, axis=1), stats.gaussian_kde(w[:2])(x[:2]), stats.sem(x, axis=1)
stats.multivariate_normal.logpdf(x, v, np.eye(4)), stats.dirichlet.logpdf(np.full((3, 4), 1 / 3), abs(x[:, 0]))
stats.multinomial.logpmf(i, 10, np.full(4, 0.25)), stats.gaussian_kde(w[:2]).integrate_gaussian(np.zeros(2), np.eye(2))
"""

LIBRARY_DTYPES = """
signal.stft(w, nperseg=7), signal.welch(w, nperseg=7), signal.istft(signal.stft(w, nperseg=8)[2])
signal.stft(w.astype(np.complex64), nperseg=7, return_onesided=False)
ndimage.map_coordinates(i, [v, v], 1, mode="reflect"), ndimage.map_coordinates(c, [v, v], 1, mode="mirror", cval=1.0)
spl.lobpcg_standard(np.diag(np.arange(1.0, 16.0)), np.eye(15)[:, :3] + 0.01, 5)
krylov.gmres(np.diag(c[0]) + np.eye(4, dtype=np.complex64) * 3, c[1])
krylov.gmres(np.diag(c[0]) + np.eye(4, dtype=np.complex64) * 3, c[1], solve_method="incremental")
krylov.cg(m @ m.T, m[0]), krylov.bicgstab(m @ m.T, m[0])
image.resize(i, (6, 5), "linear"), image.resize(g, (6, 5), "cubic")
stats.multinomial.logpmf(j, 4, np.full(4, 0.25)), stats.rankdata(i, axis=1), stats.mode(i, axis=1)
"""


@pytest.mark.parametrize("text", lines(LIBRARY_RANKS))
def test_library_has_no_implicit_rank_promotion(text: str) -> None:
    namespace = names_of_signals()
    with weft.numpy_rank_promotion("raise"):
        eval(text, namespace)


@pytest.mark.parametrize("text", lines(LIBRARY_DTYPES))
def test_library_has_no_implicit_dtype_promotion(text: str) -> None:
    namespace = names_of_signals()
    with weft.numpy_dtype_promotion("strict"):
        eval(text, namespace)


def test_rank_promotion_of_the_caller_is_still_refused() -> None:
    for function in (stats.norm.pdf, wnp.add, wnp.isclose, wnp.arctan2):
        with weft.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="could not be broadcast"):
            function(wnp.ones((2, 3)), wnp.ones(3))
