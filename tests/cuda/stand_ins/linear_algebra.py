"""cuBLAS (triangular systems, multiplication by a number), cuFFT and cuSOLVER."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg

from tests.cuda.stand_ins.objects import StandIn

DTYPES = {letter: np.dtype(name) for letter, name in zip("SDCZ", ("f4", "f8", "c8", "c16"), strict=True)}
WORK = 7  # elements that routines say they need


class Dense(StandIn):
    """Matrices stored by columns."""

    def matrix(self, address: int, dtype: Any, rows: int, columns: int, stride: int) -> np.ndarray:
        assert stride >= max(rows, 1)
        return self.array(address, dtype, (rows, columns), (1, stride))


class Cublas(Dense):
    """The library."""

    def cublasCreate_v2(self, handle: Any) -> None:
        self.new(handle, "cublas")

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> None:
        assert self.object(handle) == "cublas"

    def cublasSetWorkspace_v2(self, handle: Any, address: int, size: int) -> None:
        self.driver.view(address, size)[:] = 0xFF

    def trsm(self, letter: str, *arguments: Any) -> None:
        _, side, triangle, operation, unit, rows, columns, alpha, a, a_stride, b, b_stride = arguments
        dtype = DTYPES[letter]
        assert bytes(alpha._obj) == np.ones(1, dtype).tobytes()
        size = columns if side else rows
        matrix = self.matrix(a, dtype, size, size, a_stride)
        matrix = np.triu(matrix) if triangle else np.tril(matrix)
        if unit:
            np.fill_diagonal(matrix, 1)
        matrix = {0: matrix, 1: matrix.T, 2: matrix.conj().T}[operation]
        sides = self.matrix(b, dtype, rows, columns, b_stride)
        sides[...] = np.linalg.solve(matrix.T, sides.T).T if side else np.linalg.solve(matrix, sides)
        self.calls.append("trsm")

    def scal(self, letter: str, handle: Any, count: int, alpha: Any, address: int, stride: int) -> None:
        array = self.array(address, DTYPES[letter], (count,), (stride,))
        array *= alpha._obj.value


class Cufft(StandIn):
    """The library."""

    TYPES = {0x29: "C2C", 0x2A: "R2C", 0x2C: "C2R", 0x69: "Z2Z", 0x6A: "D2Z", 0x6C: "Z2D"}

    def cufftCreate(self, plan: Any) -> None:
        self.new(plan, {})

    def cufftSetAutoAllocation(self, plan: Any, flag: int) -> None:
        assert flag == 0

    def cufftMakePlanMany(
        self, plan: Any, rank: int, lengths: Any, inside: Any, in_stride: int, in_step: int, outside: Any,
        out_stride: int, out_step: int, kind: int, batch: int, size: Any,
    ) -> None:  # fmt: skip
        assert inside is outside is None and len(lengths) == rank  # dense
        self.object(plan).update(lengths=tuple(lengths), kind=self.TYPES[kind], batch=batch)
        size._obj.value = 300

    def cufftSetStream(self, plan: Any, stream: Any) -> None:
        pass

    def cufftSetWorkArea(self, plan: Any, address: int) -> None:
        self.driver.view(address, 300)[:] = 0xFF

    def execute(self, name: str, plan: Any, source: int, target: int, direction: int = 0) -> None:
        found = self.object(plan)
        assert found["kind"] == name
        shape = (found["batch"], *found["lengths"])
        half = (*shape[:-1], shape[-1] // 2 + 1)
        real, whole = (
            (np.dtype("f4"), np.dtype("c8")) if name in ("C2C", "R2C", "C2R") else (np.dtype("f8"), np.dtype("c16"))
        )
        axes = tuple(range(1, len(shape)))
        if name in ("C2C", "Z2Z"):
            x, out = (self._dense(a, whole, shape) for a in (source, target))
            out[...] = np.fft.fftn(x, axes=axes) if direction == -1 else np.fft.ifftn(x, axes=axes, norm="forward")
        elif name in ("R2C", "D2Z"):
            self._dense(target, whole, half)[...] = np.fft.rfftn(self._dense(source, real, shape), axes=axes)
        else:
            x = self._dense(source, whole, half)
            self._dense(target, real, shape)[...] = np.fft.irfftn(x, s=shape[1:], axes=axes, norm="forward")
            x[...] = np.nan  # it is overwritten
        self.calls.append(name)

    def _dense(self, address: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        strides = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
        return self.array(address, dtype, shape, strides)


class Cusolver(Dense):
    """The library."""

    def cusolverDnCreate(self, handle: Any) -> None:
        self.new(handle, "cusolver")

    def cusolverDnSetStream(self, handle: Any, stream: Any) -> None:
        assert self.object(handle) == "cusolver"

    def size(self, letter: str, *arguments: Any) -> None:
        arguments[-1]._obj.value = WORK

    def work(self, letter: str, address: int, size: int = WORK) -> None:
        assert size == WORK
        self.driver.view(address, size * DTYPES[letter].itemsize)[:] = 0xFF

    def info(self, address: int, value: int = 0) -> None:
        self.driver.view(address, 4).view(np.int32)[0] = value

    def vector(self, address: int, dtype: Any, count: int) -> np.ndarray:
        return self.array(address, dtype, (count,), (1,))

    def potrf(self, letter: str, *arguments: Any) -> None:
        _, triangle, n, a, stride, work, size, info = arguments
        self.work(letter, work, size)
        x = self.matrix(a, DTYPES[letter], n, n, stride)
        full = np.triu(x) + np.conj(np.triu(x, 1)).T if triangle else np.tril(x) + np.conj(np.tril(x, -1)).T
        try:
            factor = np.linalg.cholesky(full)
        except np.linalg.LinAlgError:
            self.info(info, 1)
            return
        inside = np.triu(np.ones((n, n), bool)) if triangle else np.tril(np.ones((n, n), bool))
        x[inside] = (np.conj(factor).T if triangle else factor)[inside]
        self.info(info)
        self.calls.append("potrf")

    def getrf(self, letter: str, *arguments: Any) -> None:
        _, m, n, a, stride, work, pivots, info = arguments
        self.work(letter, work)
        x = self.matrix(a, DTYPES[letter], m, n, stride)
        (function,) = linalg.get_lapack_funcs(("getrf",), (x,))
        factors, rows, _ = function(x.copy())
        x[...] = factors
        self.vector(pivots, np.dtype("i4"), min(m, n))[:] = rows + 1
        self.info(info)
        self.calls.append("getrf")

    def geqrf(self, letter: str, *arguments: Any) -> None:
        _, m, n, a, stride, tau, work, size, info = arguments
        self.work(letter, work, size)
        x = self.matrix(a, DTYPES[letter], m, n, stride)
        packed, factors = np.linalg.qr(x, mode="raw")
        x[...] = packed.T
        self.vector(tau, DTYPES[letter], min(m, n))[:] = factors
        self.info(info)
        self.calls.append("geqrf")

    def orgqr(self, letter: str, *arguments: Any) -> None:
        _, m, n, k, a, stride, tau, work, size, info = arguments
        assert m >= n >= k
        self.work(letter, work, size)
        x = self.matrix(a, DTYPES[letter], m, n, stride)
        (function,) = linalg.get_lapack_funcs(("ungqr" if letter in "CZ" else "orgqr",), (x,))
        x[...] = function(x.copy(), self.vector(tau, DTYPES[letter], k).copy())[0]
        self.info(info)
        self.calls.append("orgqr")

    def syevd(self, letter: str, *arguments: Any) -> None:
        _, job, triangle, n, a, stride, values, work, size, info = arguments
        assert job == 1
        self.work(letter, work, size)
        x = self.matrix(a, DTYPES[letter], n, n, stride)
        found, vectors = np.linalg.eigh(x, "U" if triangle else "L")
        x[...] = vectors
        self.vector(values, found.dtype, n)[:] = found
        self.info(info)
        self.calls.append("syevd")

    def gesvd(self, letter: str, *arguments: Any) -> None:
        _, left_job, right_job, m, n, a, stride, *rest = arguments
        values, left, left_stride, right, right_stride, work, size, _, info = rest
        assert m >= n and left_job == right_job
        self.work(letter, work, size)
        x = self.matrix(a, DTYPES[letter], m, n, stride)
        job = chr(left_job)
        u, found, vh = np.linalg.svd(x, full_matrices=job == "A")
        self.vector(values, found.dtype, n)[:] = found
        if job != "N":
            self.matrix(left, DTYPES[letter], m, u.shape[1], left_stride)[...] = u
            self.matrix(right, DTYPES[letter], n, n, right_stride)[...] = vh
        x[...] = np.nan
        self.info(info)
        self.calls.append("gesvd")


def _bound(name: str, letter: str) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any) -> Any:
        return getattr(self, name)(letter, *arguments)

    call.__name__ = name
    return call


for _letter in "SDCZ":
    setattr(Cublas, f"cublas{_letter}trsm_v2", _bound("trsm", _letter))
    setattr(Cublas, f"cublas{_letter}scal_v2", _bound("scal", _letter))
    for _routine in ("potrf", "getrf", "geqrf", "orgqr", "syevd", "gesvd"):
        _name = {"orgqr": "ungqr", "syevd": "heevd"}.get(_routine, _routine) if _letter in "CZ" else _routine
        setattr(Cusolver, f"cusolverDn{_letter}{_name}", _bound(_routine, _letter))
        setattr(Cusolver, f"cusolverDn{_letter}{_name}_bufferSize", _bound("size", _letter))
for _name in Cufft.TYPES.values():
    setattr(Cufft, f"cufftExec{_name}", _bound("execute", _name))
