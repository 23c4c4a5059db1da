"""Rules of contractions and convolutions."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.compiler.target.stablehlo.elementwise import computing_dtype, convert
from weft.compiler.target.stablehlo.emitter import Emitter, Site, rule
from weft.compiler.target.stablehlo.types import int64_array, integers, pairs
from weft.compiler.target.stablehlo.writer import Value
from weft.primitives.contraction.contract import compute_dtype
from weft.primitives.contraction.precision import DotAlgorithm, DotAlgorithmPreset, Precision


def precision_names(precision: Any) -> tuple[str, str]:
    """Return the precision of each operand; recipes for products of short floats allow the default."""
    if precision is None:
        return "DEFAULT", "DEFAULT"
    if isinstance(precision, DotAlgorithmPreset):
        name = "HIGHEST" if precision.name.startswith(("F32", "F64")) or precision.name.endswith("X9") else "DEFAULT"
        return name, name
    if isinstance(precision, DotAlgorithm):
        wide = dtypes.name(precision.lhs_precision_type) in ("float32", "float64")
        return ("HIGHEST", "HIGHEST") if wide else ("DEFAULT", "DEFAULT")
    first, second = (Precision(p).name for p in precision)
    return first, second


def precision_config(precision: Any) -> str:
    """Return the attribute of the precision of both operands."""
    names = ", ".join(f"#stablehlo<precision {name}>" for name in precision_names(precision))
    return f"precision_config = [{names}]"


def in_computing_dtypes(e: Emitter, x: Value, y: Value, result: Any) -> tuple[Value, Value, Any]:
    """Return the operands of products, and the dtype of the sum before it is rounded to the result's.

    Operands of one short float that is summed in a wider one stay as they are, for matrix units.
    """
    total = compute_dtype(x.dtype, y.dtype, result)
    short = x.dtype == y.dtype and dtypes.kind(x.dtype) == "f" and computing_dtype(x.dtype) == x.dtype
    if dtypes.kind(total) == "b" or not short:
        x, y = convert(e, x, total), convert(e, y, total)
    return x, y, total


@rule("dot_general")
def dot_general(e: Emitter, site: Site, x: Value, y: Value) -> Value:
    """Write a contraction, summed in the dtype that `eval` sums in."""
    (x_sum, y_sum), (x_batch, y_batch) = site.params["dimension_numbers"]
    numbers = (
        f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {integers(x_batch)}, "
        f"rhs_batching_dimensions = {integers(y_batch)}, lhs_contracting_dimensions = {integers(x_sum)}, "
        f"rhs_contracting_dimensions = {integers(y_sum)}>"
    )
    x, y, total = in_computing_dtypes(e, x, y, site.dtype)
    attributes = f"{numbers}, {precision_config(site.params.get('precision'))}"
    return convert(e, e.op("dot_general", [x, y], site.shape, total, attributes), site.dtype)


@rule("conv_general_dilated")
def convolution(e: Emitter, site: Site, x: Value, kernel: Value) -> Value:
    """Write a convolution, summed in the dtype that `eval` sums in."""
    p, spatial = site.params, len(site.shape) - 2
    dnums = p["dimension_numbers"]

    def spec(dimensions: Any, first: str, second: str) -> str:
        names = [""] * (spatial + 2)
        for name, d in zip((first, second, *map(str, range(spatial))), dimensions, strict=True):
            names[d] = name
        return f"[{', '.join(names)}]"

    layout = f"{spec(dnums.lhs_spec, 'b', 'f')}x{spec(dnums.rhs_spec, 'o', 'i')}->{spec(dnums.out_spec, 'b', 'f')}"
    attributes = (
        f"dimension_numbers = #stablehlo.conv<{layout}>, "
        f"batch_group_count = {p.get('batch_group_count', 1)} : i64, "
        f"feature_group_count = {p.get('feature_group_count', 1)} : i64, "
        f"padding = {pairs(p['padding'])}, window_strides = {int64_array(p['window_strides'])}, "
        f"lhs_dilation = {int64_array(p['lhs_dilation'])}, rhs_dilation = {int64_array(p['rhs_dilation'])}, "
        f"{precision_config(p.get('precision'))}"
    )
    x, kernel, total = in_computing_dtypes(e, x, kernel, site.dtype)
    return convert(e, e.op("convolution", [x, kernel], site.shape, total, attributes), site.dtype)
