"""Threads and memory transactions of kernels for GPUs, counted without one: a sample of the grid of `make roofline`."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.compiler.compile import compile_program
from weft.compiler.kernel.transactions import Transactions, count_transactions
from weft.compiler.program.ir import Launch
from weft.compiler.target.cuda.targets import hopper
from weft.ir.jaxpr import constants_to_arguments

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
from roofline import gpu_kernels
from roofline_cases import Case, cases

LIBRARIES = frozenset({"cublasLt", "cublas", "cudnn", "cusolver", "cufft"})


def kernels(function: object, *arguments: np.ndarray) -> list[Transactions]:
    jaxpr = constants_to_arguments(weft.make_jaxpr(function)(*arguments))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), hopper(LIBRARIES)).program
    return [count_transactions(step.full) for step in program.all_steps() if isinstance(step, Launch)]


def test_adjacent_threads_share_sectors() -> None:
    x = np.zeros((1 << 10, 1 << 10), np.float32)
    (found,) = kernels(lambda x: x + 1, x)
    assert found.share > 0.95 and found.threads == x.size // 4 and found.transferred < 2.2 * x.nbytes
    (found,) = kernels(lambda x: x[:, ::8] * 2, x)
    assert 0.1 < found.share < 0.6
    (found,) = kernels(lambda x: x.T + 1, x)
    assert found.share > 0.95


def test_few_threads_are_wasteful() -> None:
    assert Transactions(169, 8e6, 8e6).is_wasteful and not Transactions(1 << 18, 8e6, 8e6).is_wasteful
    assert Transactions(1 << 20, 1e9, 8e9).is_wasteful and not Transactions(32, 4e3, 4e3).is_wasteful


# Cases above the limit: last steps by few threads, and sums of two columns in long parts.
KNOWN = (
    "argmax",
    "cumsum",
    "sum 524288x2",
    "normalize 524288x2",
    "softmax 524288x2",
    "square mean 524288x2",
    "scatter add",
)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in list(cases())[::47]])
def test_kernels_use_the_machine(case: Case) -> None:
    for row in gpu_kernels(case):
        assert not row.found.is_wasteful or case.name.startswith(KNOWN), row


@pytest.mark.slow
def test_all_kernels_use_the_machine() -> None:
    wasteful = [row for case in cases() for row in gpu_kernels(case) if row.found.is_wasteful]
    assert [row for row in wasteful if not row.case.startswith(KNOWN)] == []


@pytest.mark.parametrize("shape", [(3, 60_000), (32, 3, 104, 104), (60_000, 7)])
def test_transposes_of_short_dimensions_have_many_threads(shape: tuple[int, ...]) -> None:
    for order in (tuple(range(len(shape)))[::-1], (0, *range(2, len(shape)), 1)):
        for found in kernels(lambda x: wnp.transpose(x, order), np.zeros(shape, np.float32)):  # noqa: B023
            assert found.threads >= np.prod(shape) // 8


@pytest.mark.parametrize("groups", [8, 64])
@pytest.mark.parametrize("gradient", [False, True])
def test_grouped_convolutions_have_many_threads(groups: int, gradient: bool) -> None:
    x, w = np.zeros((8, 28, 28, 64), np.float32), np.zeros((5, 5, 64 // groups, 64), np.float32)

    def convolve(x: object, w: object) -> object:
        numbers = ("NHWC", "HWIO", "NHWC")
        return weft.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    function = weft.grad(lambda x, w: (convolve(x, w) ** 2).sum(), (0, 1)) if gradient else convolve
    assert all(found.seconds < 200e-6 for found in kernels(function, x, w))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_products_of_few_vectors_read_weights_in_order(rows: int, dtype: str) -> None:
    x, w = np.zeros((rows, 1024), np.float32), wnp.zeros((2048, 1024), dtype)
    found = kernels(lambda x, w: x @ w.astype(x.dtype).T, x, w)
    assert all(each.share > 0.9 for each in found if each.transferred > 1 << 16)
    assert sum(each.transferred for each in found) < (2 + rows) * w.size * (4 + w.dtype.itemsize)
    assert max(each.threads for each in found) > 1 << 16
