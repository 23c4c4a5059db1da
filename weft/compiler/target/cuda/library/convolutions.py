"""Convolutions by cuDNN: forward, and the two gradients, which are convolutions in a program.

A convolution that cuDNN computes is rewritten with features last: operand [N, ..., C], kernel [K, ..., C], result [N,
..., K]. Other layouts are transposed by separate equations, which fuse with their neighbours.

    conv(x, w)                                     forward
    conv(dy, rev(w)), dilated by the stride        gradient of the operand
    conv(x, dy), with windows larger than results  gradient of the kernel

A forward convolution of float32 by tf32 includes a bias of the features and relu; the derivative of relu compares its
result with 0, so that its operand is not needed. Calls in 16-bit floats include neither: cuDNN compiles them for most
of a second each, and saves less than the kernel after the convolution takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.rewrite import new_equation
from weft.compiler.target.cuda.library.calls import EXACT, TF32, ConvolutionCall, dtype_index
from weft.compiler.target.cuda.library.composites import (
    EquationGroup,
    JaxprReader,
    LibraryComposite,
    is_literal,
    is_operation,
)
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var
from weft.ir.primitive import lookup
from weft.primitives.contraction.convolution import Convolution
from weft.primitives.contraction.convolution_shapes import ConvDimensionNumbers, Window
from weft.primitives.contraction.precision import allows_tf32
from weft.primitives.families import inverse_permutation

ROUTINE = "cudnn_convolution"
FORWARD, DATA, WEIGHTS = "forward", "data", "weights"
KINDS = (FORWARD, DATA, WEIGHTS)
# Most spatial dimensions of cuDNN's kernels.
MOST_SPATIAL = 3


@dataclass(frozen=True)
class LibraryConvolution(LibraryComposite):
    """Convolution with features last; operands and result of the call depend on the kind."""

    kind: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    has_bias: bool = False
    relu: bool = False

    def plan(self, equation: Equation) -> LibraryCall:
        hero = equation.params["jaxpr"].eqns[equation.params["hero"]]
        first, second, *_ = get_arrays(equation.invars)
        (result,) = get_arrays(equation.outvars)
        # Operand, kernel and result of the forward convolution.
        shapes: Any = {
            FORWARD: (first.shape, second.shape, result.shape),
            DATA: (result.shape, second.shape, first.shape),
            WEIGHTS: (first.shape, result.shape, second.shape),
        }[self.kind]
        windows = [self.strides, self.dilations, self.low, self.high]
        if len(self.strides) == 1:  # cuDNN has no 1D convolutions: add a dimension of size 1
            shapes = tuple((shape[0], 1, *shape[1:]) for shape in shapes)
            windows = [(neutral, *values) for neutral, values in zip((1, 1, 0, 0), windows, strict=True)]
        call = ConvolutionCall(
            kind=KINDS.index(self.kind),
            dtype=dtype_index(first.dtype),
            result=dtype_index(result.dtype),
            tf32=TF32 if allows_tf32(first.dtype, hero.params.get("precision")) else EXACT,
            has_bias=int(self.has_bias),
            relu=int(self.relu),
            rank=len(windows[0]),
            sizes=tuple(size for part in (*shapes, *windows) for size in part),
        )
        return LibraryCall(routine=ROUTINE, parameters=call.integers)


def with_library_convolutions(jaxpr: Jaxpr, target: Target) -> tuple[Jaxpr, list[EquationGroup]]:
    """Rewrite the convolutions that cuDNN computes with features last; return the jaxpr and a group for each."""
    if not target.libraries.convolution_dtypes:
        return jaxpr, []
    reader = JaxprReader(jaxpr)
    equations: list[Equation] = []
    groups: list[EquationGroup] = []
    layouts = Layouts(equations)
    for equation in jaxpr.eqns:
        found = _routine(reader, equation, target) if is_operation(equation, "conv_general_dilated") else None
        if found is None:
            equations.append(equation)
        else:
            groups.append(_written(reader, equation, found, layouts))
    return _with_epilogues(jaxpr.replace(eqns=equations), groups) if groups else (jaxpr, [])


def _with_epilogues(jaxpr: Jaxpr, groups: Sequence[EquationGroup]) -> tuple[Jaxpr, list[EquationGroup]]:
    """Extend groups by the equations that follow convolutions; return the jaxpr, whose relu derivatives read the
    result of relu, and the groups."""
    reader = JaxprReader(jaxpr)
    compared: dict[int, Equation] = {}
    found = []
    for group in groups:
        biased = _with_bias(reader, group)
        if biased is None:
            found.append(group)
            continue
        relu = _find_relu(reader, biased.results[0])
        if relu is not None:
            applied, comparisons = relu
            routine = replace(biased.routine, relu=True)  # type: ignore[type-var]
            results, equations = tuple(applied.outvars), (*biased.equations, applied)
            biased = replace(biased, equations=equations, results=results, routine=routine)
            for e in comparisons:
                compared[id(e)] = e.replace(invars=(results[0], e.invars[1]))
        found.append(biased)
    return jaxpr.replace(eqns=[compared.get(id(e), e) for e in jaxpr.eqns]), found


def _with_bias(reader: JaxprReader, group: EquationGroup) -> EquationGroup | None:
    """Extend a group by the addition that follows it, if it adds one number per feature; else return None."""
    routine, (value,) = group.routine, group.results
    assert isinstance(routine, LibraryConvolution)
    addition = reader.only_reader(value, "add")
    if routine.kind != FORWARD or value.aval.dtype != dtypes.float32 or addition is None:  # type: ignore[attr-defined]
        return None
    if any(a.aval.dtype != dtypes.float32 for a in group.operands):  # type: ignore[attr-defined]
        return None
    if not allows_tf32(dtypes.float32, group.hero.params.get("precision")):
        return None
    other = next((a for a in addition.invars if a is not value), None)
    broadcast = reader.definition(other, "broadcast_in_dim")
    if broadcast is None or type(broadcast.invars[0]) is not Var:
        return None
    bias, last = broadcast.invars[0], value.aval.ndim - 1  # type: ignore[attr-defined]
    if broadcast.params["broadcast_dimensions"] != (last,) or bias.aval.shape != value.aval.shape[last:]:  # type: ignore[attr-defined]
        return None
    if bias in group.operands:
        return None
    equations, operands = (*group.equations, broadcast, addition), (*group.operands, bias)
    return replace(
        group,
        equations=equations,
        operands=operands,
        results=tuple(addition.outvars),
        routine=replace(routine, has_bias=True),
    )


def _find_relu(reader: JaxprReader, value: Var) -> tuple[Equation, list[Equation]] | None:
    """Return the relu applied to a value and the comparisons of the value with 0, if nothing else reads it."""
    if value in reader.results:
        return None
    readers = reader.readers.get(value, [])
    applied = [e for e in readers if is_operation(e, "max") and is_literal(e.invars[1], 0.0)]
    comparisons = [e for e in readers if is_operation(e, "gt") and is_literal(e.invars[1], 0.0)]
    if len(applied) != 1 or len(applied) + len(comparisons) != len(readers):
        return None
    return applied[0], comparisons


class Layouts:
    """Transposes of operands, each written once."""

    def __init__(self, equations: list[Equation]) -> None:
        self.equations = equations
        self._known: dict[tuple[Any, tuple[int, ...]], Atom] = {}

    def apply(self, name: str, atom: Atom, params: dict[str, Any], like: Equation) -> Var:
        """Append a new equation and return its result."""
        equation = new_equation(lookup(name), [atom], params, like)
        self.equations.append(equation)
        return equation.outvars[0]

    def order(self, atom: Atom, axes: Sequence[int], like: Equation) -> Any:
        """Return an operand with its axes in this order."""
        order = tuple(axes)
        if order == tuple(range(len(order))):
            return atom
        key = (atom, order)
        if key not in self._known:
            self._known[key] = self.apply("transpose", atom, {"permutation": order}, like)
        return self._known[key]


def _written(reader: JaxprReader, equation: Equation, routine: LibraryConvolution, layouts: Layouts) -> EquationGroup:
    """Rewrite a convolution with features last and return its group."""
    lhs, rhs = equation.invars
    dnums: ConvDimensionNumbers = equation.params["dimension_numbers"]
    rank = len(routine.strides)
    spatial = tuple(range(1, rank + 1))
    features_last, features_first = (0, rank + 1, *spatial), (rank + 1, 0, *spatial)
    lhs_spec, rhs_spec, out_spec = dnums
    before: list[Equation] = []
    if routine.kind == DATA:
        window = rhs_spec[2:]
        kernel: Any = _find_reversed(reader, equation)
        if kernel is None:
            kernel = layouts.apply("rev", rhs, {"dimensions": window}, equation)
        kernel = layouts.order(kernel, (rhs_spec[1], *window, rhs_spec[0]), equation)
        before = [new_equation(lookup("rev"), [kernel], {"dimensions": spatial}, equation)]
        operands = [layouts.order(lhs, (lhs_spec[0], *lhs_spec[2:], lhs_spec[1]), equation), before[0].outvars[0]]
        outside = [operands[0], kernel]
        specs, axes = (features_last, features_first, features_last), (out_spec[0], *out_spec[2:], out_spec[1])
    elif routine.kind == FORWARD:
        operands = [
            layouts.order(lhs, (lhs_spec[0], *lhs_spec[2:], lhs_spec[1]), equation),
            layouts.order(rhs, (rhs_spec[0], *rhs_spec[2:], rhs_spec[1]), equation),
        ]
        outside = operands
        specs, axes = (features_last,) * 3, (out_spec[0], *out_spec[2:], out_spec[1])
    else:  # batch and features are exchanged: the sum is over the batch
        operands = [
            layouts.order(lhs, (lhs_spec[1], *lhs_spec[2:], lhs_spec[0]), equation),
            layouts.order(rhs, (rhs_spec[1], *rhs_spec[2:], rhs_spec[0]), equation),
        ]
        outside = operands
        specs, axes = (features_first,) * 3, (out_spec[1], *out_spec[2:], out_spec[0])
    params = {**equation.params, "dimension_numbers": ConvDimensionNumbers(*specs)}
    in_order = axes == tuple(range(rank + 2))
    convolved = new_equation(equation.primitive, operands, params, equation)
    if in_order:
        convolved = convolved.replace(outvars=equation.outvars)
    layouts.equations += [*before, convolved]
    if not in_order:
        back = new_equation(
            lookup("transpose"), convolved.outvars, {"permutation": inverse_permutation(axes)}, equation
        )
        layouts.equations.append(back.replace(outvars=equation.outvars))
    return EquationGroup((*before, convolved), tuple(outside), convolved.outvars, convolved, routine)


# ------------------------------------------------------------------------------------------------------------- choices


def _find_reversed(reader: JaxprReader, equation: Equation) -> Any:
    """Return the array that a kernel is the reverse of along its window, or None."""
    found = reader.definition(equation.invars[1], "rev")
    window = equation.params["dimension_numbers"].rhs_spec[2:]
    whole = found is not None and sorted(found.params["dimensions"]) == sorted(window)
    return found.invars[0] if found is not None and whole and type(found.invars[0]) is Var else None


def _routine(reader: JaxprReader, equation: Equation, target: Target) -> LibraryConvolution | None:
    """Return the call that computes a convolution, or None if cuDNN has none."""
    lhs, rhs = (a.aval for a in equation.invars)
    (out,) = (v.aval for v in equation.outvars)
    known = target.libraries.convolution_dtypes
    if lhs.dtype != rhs.dtype or (lhs.dtype, out.dtype) not in known or type(equation.invars[0]) is not Var:  # type: ignore[attr-defined]
        return None
    if type(equation.invars[1]) is not Var or equation.invars[0] is equation.invars[1]:
        return None
    plan: Convolution = equation.primitive.canonical(lhs, rhs, **equation.params)  # type: ignore[attr-defined]
    windows = plan.windows
    if plan.groups != 1 or not 1 <= len(windows) <= MOST_SPATIAL or not all(w.is_known for w in windows):
        return None
    if any(0 in a.shape for a in (lhs, rhs, out)):  # type: ignore[attr-defined]
        return None
    dilated = any(w.lhs_dilation != 1 for w in windows)
    if dilated or _find_reversed(reader, equation) is not None:
        found = _data_gradient(windows)
        if found is not None or dilated:
            return found
    if math.prod(w.window for w in windows) > math.prod(w.count for w in windows):
        found = _weight_gradient(windows)
        if found is not None:
            return found
    if any(w.low < 0 or w.high < 0 for w in windows):
        return None
    return LibraryConvolution(
        FORWARD,
        tuple(w.stride for w in windows),
        tuple(w.rhs_dilation for w in windows),
        tuple(int(w.low) for w in windows),
        tuple(int(w.high) for w in windows),
    )


def _data_gradient(windows: Sequence[Window]) -> LibraryConvolution | None:
    """Match a convolution of a dilated operand as the operand gradient of a strided one."""
    low, high = [], []
    for w in windows:
        extent, size, count = (int(n) for n in (w.extent, w.count, w.size))
        before = extent - 1 - int(w.low)
        after = _padding_after(size, before, extent, w.lhs_dilation, count)
        if w.stride != 1 or before < 0 or after is None:
            return None
        low.append(before)
        high.append(after)
    strides, dilations = tuple(w.lhs_dilation for w in windows), tuple(w.rhs_dilation for w in windows)
    return LibraryConvolution(DATA, strides, dilations, tuple(low), tuple(high))


def _weight_gradient(windows: Sequence[Window]) -> LibraryConvolution | None:
    """Match a convolution with windows almost as large as its operand as the kernel gradient of another one."""
    low, high = [], []
    for w in windows:
        extent = (int(w.count) - 1) * w.stride + 1
        after = _padding_after(int(w.size), int(w.low), extent, w.rhs_dilation, int(w.window))
        if w.low < 0 or after is None:
            return None
        low.append(int(w.low))
        high.append(after)
    strides, dilations = tuple(w.rhs_dilation for w in windows), tuple(w.stride for w in windows)
    return LibraryConvolution(WEIGHTS, strides, dilations, tuple(low), tuple(high))


def _padding_after(size: int, low: int, extent: int, stride: int, count: int) -> int | None:
    """Return the least padding with which there are `count` windows; None if there are more without any."""
    high = max(0, stride * (count - 1) + extent - size - low)
    return high if (size + low + high - extent) // stride + 1 == count else None
