"""Base class of sparse formats, warnings and errors, and checks of arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import weft.numpy as wnp
from weft.base.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from weft.trace.tracer import Tracer

Shape = tuple[int, ...]


class SparseEfficiencyError(NotSupportedError):
    """A conversion of layouts would store more elements than before, which `on_inefficient` forbids."""


class SparseEfficiencyWarning(UserWarning):
    """A conversion of layouts stores more elements than before."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """An operation on a GPU does not use a library for sparse arrays."""


class JAXSparse:
    """Base class of sparse formats: a shape, and buffers that are leaves of a tree.

    Arguments are the buffers, as a tuple, and `shape`. Operators are those of `sparsify`.
    """

    data: Any
    shape: Shape
    # Applies functions of dense arrays to sparse ones; set by `sparsify.py`.
    apply: ClassVar[Callable[..., Any]]

    def __init__(self, args: tuple[Any, ...], *, shape: Sequence[int]) -> None:
        self.shape = tuple(operator.index(n) for n in shape)

    # -- what arrays have ------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nse(self) -> int:
        """Number of elements that are specified (in each batch), which may be zeros or padding."""
        raise NotImplementedError

    @property
    def T(self) -> Any:
        return self.transpose()

    def todense(self) -> Any:
        """Convert to a dense array."""
        raise NotImplementedError

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Permute the axes, in reverse order by default."""
        raise NotImplementedError

    @property
    def _bufs(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def block_until_ready(self) -> Any:
        """Wait for the buffers to be computed; returns the array."""
        for buffer in self._bufs:
            buffer.block_until_ready()
        return self

    def __repr__(self) -> str:
        try:
            details = "".join(
                f", {name}={getattr(self, name)}" for name in ("n_batch", "n_dense") if getattr(self, name, 0)
            )
            return f"{type(self).__name__}({self.dtype.name}{list(self.shape)}, nse={self.nse}{details})"
        except AttributeError:  # the buffers are not arrays: a tree of something else
            return f"{type(self).__name__}(<invalid>)"

    def __len__(self) -> int:
        return self.shape[0]

    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100
    __array_ufunc__ = None  # so that NumPy's operators leave it to ours

    # -- operators -------------------------------------------------------------------------------------------------

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        """Sum over axes; the result is sparse."""
        return JAXSparse.apply(lambda x: wnp.sum(x, axis=axis, dtype=dtype, keepdims=keepdims), self)

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Reshape, with elements in row-major order."""
        return JAXSparse.apply(lambda x: x.reshape(*shape, order=order), self)

    def astype(self, dtype: Any) -> Any:
        """Convert the elements to a dtype."""
        return JAXSparse.apply(lambda x: x.astype(dtype), self)

    def __getitem__(self, index: Any) -> Any:
        return JAXSparse.apply(lambda x: x[index], self)

    def __neg__(self) -> Any:
        return JAXSparse.apply(operator.neg, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return JAXSparse.apply(operator.abs, self)

    def __matmul__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.matmul, other, self)

    def __mul__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.mul, other, self)

    def __add__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.sub, other, self)

    def __truediv__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.truediv, other, self)

    def __pow__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.pow, self, other)

    def __gt__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.gt, self, other)

    def __lt__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.lt, self, other)

    def __ge__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.ge, self, other)

    def __le__(self, other: Any) -> Any:
        return JAXSparse.apply(operator.le, self, other)


def is_array(value: Any) -> bool:
    """Return whether a leaf is an array, and not a placeholder of another tree."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_known(*values: Any) -> bool:
    """Return whether values are arrays that can be read now, not tracers."""
    return not any(isinstance(v, Tracer) for v in values)


def needs_nse(function: str) -> ArgumentError:
    """Make the error of a function that must know the number of elements of its result."""
    return ArgumentError(
        f"{function} needs to know how many elements its result specifies, since shapes of traced arrays are static.",
        fix=f"{function}(..., nse=n)   with n an upper bound",
    )


def check_sparse(function: str, value: Any, kind: type) -> None:
    """Raise unless an argument is of a sparse format."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(
            f"{function} needs a {kind.__name__}.",
            received=f"{type(value).__name__}",
            fix=f"{kind.__name__}.fromdense(x), or the function of that name without a prefix for dense arrays",
        )


def check_scipy(kind: type, matrix: Any, n_batch: int, n_dense: int, fix: str) -> None:
    """Raise unless the argument of `from_scipy_sparse` is a SciPy matrix without batch or dense dimensions."""
    function = f"{kind.__name__}.from_scipy_sparse"
    if n_dense or n_batch:
        raise ArgumentError(
            f"{function}: matrices of SciPy have neither batch nor dense dimensions.",
            received=f"n_dense={n_dense}, n_batch={n_batch}",
            fix=fix,
        )
    if not hasattr(matrix, "tocoo"):
        what, fix = f"{function} takes a sparse matrix of SciPy.", f"{kind.__name__}.fromdense(x)   for a dense array"
        raise ArgumentTypeError(what, received=f"an object of type {type(matrix).__name__}", fix=fix)
