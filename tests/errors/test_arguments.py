"""Invalid arguments of any kind: errors are Weft's own, or name the call that the user wrote."""

from __future__ import annotations

import inspect
import random
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.scipy.fft
import weft.scipy.integrate
import weft.scipy.linalg
import weft.scipy.signal
from tests.messages import without_source
from weft import lax, nn
from weft.errors import WeftError

A, M = wnp.ones(3), wnp.ones((2, 3))
WRONG: list[Any] = [
    "abc", None, [1, [2, 3]], [1, 2], (1, 2), -1, 1.5, {"a": 1}, A, M, wnp.eye(3), wnp.arange(3), wnp.ones(()),
    wnp.zeros((0, 3)), True, (0, 0), [], (), len, 1j, np.array(["x"]), (-1, 2), "float33", (1.5, 2), slice(0, 2), ...,
]  # fmt: skip
# Arrays and numbers of all ranks, sizes and kinds: of these, functions know what is wrong.
NUMBERS: list[Any] = [
    A, M, wnp.eye(3), wnp.arange(3), wnp.ones(()), wnp.zeros((0, 3)), wnp.zeros(0), 0, 3, -1, 1.5, True, np.int8(3), 1j,
    wnp.ones((2, 3, 4)), wnp.array([True, False]), wnp.array(1j), np.zeros((0, 0)), wnp.ones((1, 1)), wnp.float32(2),
]  # fmt: skip
MODULES = (wnp, wnp.linalg, wnp.fft, lax, nn, nn.initializers, weft.random, weft.scipy.linalg, weft.tree)
# They read or write files, or change how everything prints.
LEFT_OUT = {"load", "save", "savez", "fromfile", "frompyfunc", "printoptions", "set_printoptions"}


def calls(
    seed: int, share: float, modules: Any = MODULES, wrong: Any = WRONG
) -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    """Public functions with arguments that are likely to be wrong; a part of them in each run."""
    draw = random.Random(seed)
    for module in modules:
        for name, function in sorted(vars(module).items()):
            if not isinstance(function, types.FunctionType) or not function.__module__.startswith("weft."):
                continue
            if name[0] == "_" or name in LEFT_OUT or draw.random() > share:
                continue
            parameters = inspect.signature(function).parameters.values()
            needed = [p for p in parameters if p.default is p.empty and p.kind in (0, 1)]
            args = [draw.choice(wrong) for _ in needed]
            if needed and draw.random() < 0.6:
                args[0] = weft.random.key(0) if needed[0].name == "key" else draw.choice([A, M])
            others = [p.name for p in parameters if p.default is not p.empty and p.kind in (1, 3)]
            yield function, args, {name: draw.choice(wrong) for name in others if draw.random() < 0.25}


def test_errors_are_weft_s_or_name_the_call() -> None:
    seen = told = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function, args, kwargs in calls(7, 0.5):
            try:
                function(*args, **kwargs)
            except WeftError as error:
                seen, told = seen + 1, told + 1
                assert error.at is None or error.at.startswith("test_arguments.py:"), (function, error)
            except Exception as error:
                seen += 1
                notes = "\n".join(getattr(error, "__notes__", []))
                assert "in the call weft" in notes, (function, args, kwargs, repr(error))
    assert seen > 200 and told / seen > 0.8  # the rest are errors of Python and NumPy that say enough


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_arrays_of_other_shapes_and_dtypes_are_told_apart(seed: int) -> None:
    modules = (wnp, wnp.linalg, wnp.fft, weft.scipy.linalg, weft.scipy.integrate, weft.scipy.signal, weft.scipy.fft)
    for function, args, kwargs in calls(seed, 0.5, modules, NUMBERS):
        try:
            function(*args, **kwargs)
        except WeftError:
            pass
        except (IndexError, KeyError, ZeroDivisionError, UnboundLocalError, AssertionError) as error:
            raise AssertionError(f"{function.__name__} {args} {kwargs}") from error
        except Exception as error:
            assert "in the call weft" in "\n".join(getattr(error, "__notes__", [])), (function, args, kwargs)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wnp.polyder(3.0), "rank 1"),
        (lambda: wnp.polyint(M), "rank 1"),
        (lambda: wnp.polyval(2.0, A), "along an axis"),
        (lambda: wnp.split(A, 0), "positive number of parts"),
        (lambda: wnp.split(A, -1), "positive number of parts"),
        (lambda: wnp.stack(wnp.zeros((0, 3))), "at least one array"),
        (lambda: wnp.lexsort(A[0]), "sequence of keys"),
        (lambda: wnp.trapezoid(A, x=2.0), "one x for each y"),
        (lambda: wnp.histogram2d(1.0, A), "rank 1"),
        (lambda: wnp.histogram2d(A, A, bins=wnp.float32(2)), "integer array without dimensions"),
        (lambda: wnp.histogram2d(A, A, bins=2.5), "must be an integer"),
        (lambda: weft.scipy.signal.welch(M, window=3), "must be a vector"),
        (lambda: wnp.iinfo(A), "integer dtype"),
        (lambda: wnp.finfo(3), "floating-point dtype"),
        (lambda: weft.scipy.linalg.polar(A), "takes a matrix"),
        (lambda: weft.scipy.linalg.fiedler_companion(2.0), "takes a vector"),
        (lambda: weft.tree.map(M, len), "tree.map(f, tree"),
        (lambda: weft.tree.unflatten(A, [1]), "tree.structure"),
        (lambda: weft.tree.leaves(A, is_leaf=3), "is_leaf"),
        (lambda: wnp.zeros(3, {"a": 1}), "dtype"),
        (lambda: lax.reduce_sum(A, 0), "a tuple of ints"),
        (lambda: lax.transpose(M, 1), "a tuple of ints"),
        (lambda: lax.broadcast_in_dim(A, (2, 3), 1), "broadcast_dimensions"),
        (lambda: lax.pad(A, 0.0, (1, 1, 0)), "(low, high, interior)"),
        (lambda: lax.slice(A, 0, 2), "start_indices"),
        (lambda: lax.gather(A, wnp.zeros((1, 1), int), ((0,), (), (0,)), (1,)), "GatherDimensionNumbers"),
        (lambda: lax.dot_general(M, M, ((0,), (0,))), "lhs_contract"),
        (lambda: lax.reduce(A, 0.0, 3, (0,)), "lax.add"),
        (lambda: lax.psum(A, A), "axis_name"),
        (lambda: wnp.nonzero(A, size="3"), "must be an integer"),
        (lambda: nn.max_pool(M, 2), "window_shape"),
        (lambda: weft.scipy.linalg.lu_solve(M, A), "lu_factor"),
        (lambda: wnp.round(A, 1.5), "must be an integer"),
        (lambda: weft.random.ball(weft.random.key(0), 2.5), "must be an integer"),
    ],
)
def test_common_mistakes_say_what_is_expected(call: Any, words: str) -> None:
    with pytest.raises(WeftError) as caught:
        call()
    assert words in without_source(caught.value)
