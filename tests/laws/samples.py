"""Samples of every registered primitive, and their conversion to operands of the laws."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weft
import weft.primitives
import weft.scipy.special.primitives
from weft.base import conversion, dtypes
from weft.ir.higher_order import HigherOrder
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr
from weft.ir.missing_rule import MissingRule
from weft.ir.primitive import Primitive, Sample
from weft.ir.registry import all_primitives
from weft.ir.types import ArrayType, array_type
from weft.primitives.random.bits import BY_STORAGE
from weft.runtime.array import ConcreteArray
from weft.trace.closed import stage_subjaxpr

assert weft.jit  # importing the package fills in the evaluator

# Callbacks and checks have tests of their own; the others run only in the programs that loops and custom rules make.
CALLBACKS = frozenset({"debug_callback", "ffi_call", "io_callback", "pure_callback"})
WITHIN_PROGRAMS = CALLBACKS | frozenset(
    {"custom_lin", "tape_add", "tape_broadcast", "tape_length", "tape_new", "tape_read", "tape_select", "tape_sum"}
    | {"tape_write", "check", "trap", "scatter_flagged", "inspect_sharding"}
    | {"pvary", "preduced", "reduced_vary_cast", "vary_unreduced_cast"}  # inside of shard_map
)

MODULES = [
    module.name
    for package in (weft.primitives, weft.scipy.special.primitives)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
BROKEN: dict[str, Exception] = {}
for _name in MODULES:
    # A module that fails to import fails one test by name, instead of hiding the laws of all others.
    try:
        importlib.import_module(_name)
    except Exception as error:
        BROKEN[_name] = error


@dataclass(frozen=True, eq=False)
class Case:
    """Sample of a primitive."""

    primitive: Primitive
    index: int
    sample: Sample

    def __str__(self) -> str:
        return f"{self.primitive.name}-{self.index}"

    @property
    def params(self) -> dict[str, Any]:
        return self.sample.params

    @property
    def tolerance(self) -> float | None:
        return self.sample.tolerance

    @functools.cached_property
    def operands(self) -> list[ConcreteArray]:
        return [concrete(a) for a in self.sample.args]

    @functools.cached_property
    def arrays(self) -> list[np.ndarray]:
        return [a._value for a in self.operands]

    @property
    def environment(self) -> dict[Any, int]:
        """Named axes that the operation is under, outermost first; the operands of all elements are stacked."""
        return self.sample.environment

    @functools.cached_property
    def types(self) -> list[ArrayType]:
        """Types of operands, without the named axes that they are stacked along."""
        leading = tuple(range(len(self.environment)))
        return [a.aval.without(leading) for a in self.operands]

    @functools.cached_property
    def result_types(self) -> list[Any]:
        return as_list(self.primitive, self.primitive.type(*self.types, **self.params))

    @functools.cached_property
    def results(self) -> list[np.ndarray]:
        """Meaning on the sample; of one element, if it is of several along named axes."""
        first = (0,) * len(self.environment)
        return [np.asarray(r[first]) if first else r for r in self.meaning(self.arrays, self.params)]

    def meaning(self, arrays: Sequence[np.ndarray], params: dict[str, Any]) -> list[np.ndarray]:
        """Evaluate on NumPy arrays: by the primitive, and under named axes by vmap over them."""
        if not self.environment:
            return meaning(self.primitive, arrays, params)
        return [r._value for r in self.bind(*map(concrete, arrays), **params)]

    def alone(self, *args: Any, **params: Any) -> list[Any]:
        """Apply the operation as one element along named axes computes it."""
        return as_list(self.primitive, self.primitive(*args, **{**self.params, **params}))

    def bind(self, *args: Any, **params: Any) -> list[Any]:
        """Apply the operation to operands of all elements."""
        return self.under_axes(lambda *own: self.alone(*own, **params), *args)

    def under_axes(self, function: Callable[..., list[Any]], *args: Any) -> list[Any]:
        """Map a function of one element over all of them: the named axes are leading dimensions."""
        for name, size in reversed(self.environment.items()):
            function = weft.vmap(function, axis_name=name, axis_size=size)
        return function(*args)

    def has_float_operand(self) -> bool:
        return any(is_inexact(t.dtype) for t in self.types)

    def widened(self) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Operands and parameters with all floats and complex numbers at 64 bits, for finite differences."""
        return [widen_array(a) for a in self.arrays], {k: widen_parameter(v) for k, v in self.params.items()}


def as_list(primitive: Primitive, results: Any) -> list[Any]:
    return list(results) if primitive.multiple_results else [results]


def meaning(primitive: Primitive, arrays: Sequence[np.ndarray], params: dict[str, Any]) -> list[np.ndarray]:
    """Evaluate a primitive on NumPy arrays by its `eval`."""
    with np.errstate(all="ignore"):
        return [np.asarray(r) for r in as_list(primitive, primitive.eval(*arrays, **params))]


def is_inexact(dtype: Any) -> bool:
    return dtypes.kind(dtype) in "fc"


def concrete(value: Any) -> ConcreteArray:
    """Convert a NumPy array of a sample to an array of Weft; storage of random keys becomes keys."""
    if isinstance(value, ConcreteArray):
        return value
    array = np.asarray(value)
    if array.dtype.names and array.dtype != dtypes.float0:
        return ConcreteArray(array, array_type(array.shape, BY_STORAGE[array.dtype]))
    array = conversion.canonical_array(array)
    return ConcreteArray(array, array_type(array.shape, array.dtype))


def widen_dtype(dtype: Any) -> Any:
    kind = dtypes.kind(dtype)
    return {"f": dtypes.float64, "c": dtypes.complex128}.get(kind, dtype)


def widen_array(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.names else array.astype(widen_dtype(array.dtype))


def widen_parameter(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return widen_dtype(value)
    if isinstance(value, Jaxpr):
        types = [array_type(t.shape, widen_dtype(t.dtype), t.weak_type) for t in value.in_avals]
        return stage_subjaxpr(lambda *args: replay(value, *args), types, name=value.name)
    return tuple(map(widen_parameter, value)) if type(value) is tuple else value


def registered() -> list[Primitive]:
    """Return the primitives that the compiler knows, without those of tests and users, and without special functions,
    which these define."""
    return [primitive for primitive in all_primitives() if type(primitive).__module__.startswith("weft.primitives.")]


def with_special_functions() -> list[Primitive]:
    """Return the primitives that users' programs have; those that compilers substitute may be present too, if they have
    been imported."""
    owners = ("weft.primitives.", "weft.scipy.special.")
    return [primitive for primitive in all_primitives() if type(primitive).__module__.startswith(owners)]


def collect() -> tuple[list[Case], dict[str, BaseException | None]]:
    """Return every sample, and the primitives without samples with the error of collecting (None: an empty list)."""
    cases: list[Case] = []
    without: dict[str, BaseException | None] = {}
    for primitive in with_special_functions():
        try:
            samples = list(primitive.samples())
        except Exception as error:
            without[primitive.name] = error
            continue
        if not samples:
            without[primitive.name] = None
        cases.extend(Case(primitive, i, sample) for i, sample in enumerate(samples))
    return cases, without


CASES, WITHOUT_SAMPLES = collect()
ALONE = [case for case in CASES if not case.environment]  # those that mean something outside of named axes


def may_have_no_samples(primitive: Primitive) -> bool:
    """Return whether a primitive needs no samples: it carries programs, calls Python, or exists only within
    programs."""
    return isinstance(primitive, HigherOrder) or primitive.name in WITHIN_PROGRAMS


def every_sample(where: Callable[[Case], bool] = lambda case: True) -> Any:
    """Run a test on every sample for which `where` holds (or raises: then the test shows the error)."""

    def included(case: Case) -> bool:
        try:
            return where(case)
        except Exception:
            return True

    return pytest.mark.parametrize("case", [case for case in CASES if included(case)], ids=str)


def differentiable(case: Case) -> bool:
    """Return whether the derivative laws apply to a sample: unless it, or its primitive with a reason, is excluded."""
    no_rule = isinstance(case.primitive.jvp, MissingRule)
    return case.sample.differentiable and not no_rule and case.has_float_operand()
