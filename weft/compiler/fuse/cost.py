"""What equations and fusions cost in bytes and flops, and the reasons that follow from it.

Bytes are those a kernel moves to and from memory: an operand is read once if its elements are read in order, a slice
reads what it takes, a gather reads an element for each element of its result, an update in place writes what is new.
Flops are weighted: one is an addition, and the weight of a function is about how many additions take as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base import dtypes
from weft.base.memo import Memo
from weft.compiler.fuse.classify import CONTROL, SYMBOLIC_SIZE, Facts, size_of, structure
from weft.compiler.fuse.fusion import fusion
from weft.ir.jaxpr import Equation, Jaxpr, Var, subjaxprs
from weft.ir.types import ArrayType, Type
from weft.ops.cond import cond
from weft.ops.contract import dot_general
from weft.ops.convolution import conv_general_dilated
from weft.ops.gather import gather
from weft.ops.scan import scan
from weft.ops.scatter_flagged import is_scatter
from weft.ops.slicing import dynamic_slice, dynamic_update_slice
from weft.ops.slicing import slice as slice_
from weft.ops.window import WindowFold

# Weights of elementwise functions, an addition being 1; what is not named here weighs 1.
WEIGHTS: dict[str, float] = {
    **dict.fromkeys(("div", "sqrt", "clz", "population_count", "nextafter", "reduce_precision", "rsqrt"), 4),
    **dict.fromkeys(("rem", "exp", "exp2"), 8),
    **dict.fromkeys(("expm1", "log", "logistic", "tanh", "sin", "cos"), 12),
    **dict.fromkeys(("log1p", "tan", "sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos", "atan"), 16),
    **dict.fromkeys(("cbrt", "erf", "erfc", "erf_inv", "atan2", "pow"), 24),
    **dict.fromkeys(("bessel_i0e", "bessel_i1e", "lgamma", "digamma", "threefry2x32"), 60),
    **dict.fromkeys(("zeta", "polygamma", "igamma", "igammac", "igamma_grad_a", "igamma_derivative"), 400),
    **dict.fromkeys(("random_gamma_grad", "regularized_incomplete_beta"), 400),
    "cumlogsumexp": 20,
}
# What moves elements computes nothing but places.
FREE = frozenset(
    (
        "broadcast_in_dim",
        "reshape",
        "squeeze",
        "transpose",
        "rev",
        "slice",
        "pad",
        "dynamic_slice",
        "dynamic_update_slice",
        "concatenate",
        "split",
        "tile",
        "gather",
        "iota",
        "stop_gradient",
        "name",
        "bitcast_convert_type",
        "scatter",
        "optimization_barrier",
    )
)


class Reason(NamedTuple):
    """Why two operations were or were not fused: the rule that decided, on whom, how, and by which numbers."""

    rule: str
    producer: str
    consumer: str
    verdict: bool
    numbers: tuple[tuple[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """One line: `instruction: mul.3 into loop.7: yes (reads 64, writes 32)`."""
        told = ", ".join(f"{name} {_short(value)}" for name, value in self.numbers)
        verdict = "yes" if self.verdict else "no"
        return f"{self.rule}: {self.producer} into {self.consumer}: {verdict}" + (f" ({told})" if told else "")

    def __repr__(self) -> str:
        return f"<{self.text}>"


def _short(value: Any) -> str:
    return f"{value:.4g}" if type(value) is float else str(value)


class Cost(NamedTuple):
    """Bytes read and written, and flops."""

    read: int = 0
    written: int = 0
    flops: float = 0.0

    @property
    def bytes(self) -> int:
        return self.read + self.written

    def plus(self, other: Cost, times: int = 1) -> Cost:
        return Cost(
            self.read + times * other.read, self.written + times * other.written, self.flops + times * other.flops
        )


_bytes: Memo[Type, int] = Memo(10_000)


def bytes_of(aval: Type) -> int:
    """The bytes of a value; types that are no arrays count nothing."""
    known = _bytes.get(aval)
    if known is None:
        known = 0
        if isinstance(aval, ArrayType):
            known = size_of(aval.shape) * dtypes.storage(aval.dtype).itemsize
        _bytes.keep(aval, known)
    return known


def weight_of(equation: Equation) -> float:
    """Flops for one element of the result of an equation that works element by element."""
    name = equation.primitive.name
    if name in FREE:
        return 0
    weight = WEIGHTS.get(name, 1)
    if name == "integer_pow":
        exponent = abs(equation.params["y"])
        weight = exponent.bit_length() + (4 if equation.params["y"] < 0 else 0)
    return weight * 4 if equation.outvars and _is_complex(equation.outvars[0].aval) else weight


def _is_complex(aval: Type) -> bool:
    return isinstance(aval, ArrayType) and dtypes.kind(aval.dtype) == "c"


def equation_flops(equation: Equation, facts: Facts) -> float:
    """Flops of an equation; what a library or a program it carries does is counted elsewhere."""
    card = equation.primitive
    if not equation.outvars:
        return 0
    result: Any = equation.outvars[0].aval
    if not isinstance(result, ArrayType):
        return 0
    if card is dot_general:
        (contracted, _), _ = equation.params["dimension_numbers"]
        operand: Any = equation.invars[0].aval
        return 2 * size_of(result.shape) * size_of([operand.shape[i] for i in contracted])
    if card is conv_general_dilated:
        kernel: Any = equation.invars[1].aval
        features = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
        # Of an operand that is spread out, most taps fall on zeros between its elements, which are left out.
        spread = size_of(equation.params["lhs_dilation"])
        return 2 * size_of(result.shape) * size_of(kernel.shape) / max(size_of((features,)) * spread, 1)
    if isinstance(card, WindowFold):
        return size_of(result.shape) * size_of(equation.params["window_dimensions"])
    if facts.full is not None or is_scatter(card):
        return size_of(equation.invars[-1 if is_scatter(card) else 0].aval.shape)  # type: ignore[attr-defined]
    return weight_of(equation) * size_of(result.shape)


def operand_reads(equation: Equation, facts: Facts) -> list[int]:
    """Bytes an equation on its own reads of each operand."""
    card = equation.primitive
    if facts.alias:
        return [0] * len(equation.invars)
    reads = [bytes_of(a.aval) for a in equation.invars]
    if card is slice_ or card is dynamic_slice or card is gather:
        reads[0] = bytes_of(equation.outvars[0].aval)
    elif card is dynamic_update_slice:
        reads[0] = 0
    elif is_scatter(card):
        reads[0] = reads[2]
    return reads


def result_bytes(equation: Equation, facts: Facts) -> int:
    """Bytes an equation on its own writes."""
    if facts.alias:
        return 0
    if equation.primitive is dynamic_update_slice:
        return bytes_of(equation.invars[1].aval)
    if is_scatter(equation.primitive):
        return bytes_of(equation.invars[2].aval)
    return sum(bytes_of(v.aval) for v in equation.outvars)


def equation_cost(equation: Equation) -> Cost:
    """What one equation costs: as a kernel of its own, as a fusion, or with the programs it carries."""
    if equation.primitive is fusion:
        return fusion_cost(equation.params["jaxpr"])
    facts = structure(equation)
    if facts.role == CONTROL:
        return _control_cost(equation)
    return Cost(sum(operand_reads(equation, facts)), result_bytes(equation, facts), equation_flops(equation, facts))


def _control_cost(equation: Equation) -> Cost:
    """Each step of a scan, the costlier branch of a cond, one pass of any other loop."""
    costs = [program_cost(p) for p in subjaxprs(equation.params)]
    if equation.primitive is cond:
        return max(costs, key=lambda c: (c.bytes, c.flops), default=Cost())
    times = 1
    if equation.primitive is scan:
        length = equation.params["length"]
        times = length if type(length) is int else SYMBOLIC_SIZE
    total = Cost()
    for cost in costs:
        total = total.plus(cost, times)
    return total


def fusion_cost(jaxpr: Jaxpr) -> Cost:
    """What a fused program costs: its operands, read once by those of its equations that read them, and its results."""
    reads: dict[Var, list[int]] = {v: [] for v in (*jaxpr.invars, *jaxpr.constvars)}
    written: dict[Var, int] = {}
    source: dict[Var, Var] = {}  # the value whose bytes an alias shows
    flops = 0.0
    for equation in jaxpr.eqns:
        facts = structure(equation)
        if facts.alias and type(equation.invars[0]) is Var:
            source[equation.outvars[0]] = source.get(equation.invars[0], equation.invars[0])
            continue
        flops += equation_flops(equation, facts)
        for atom, count in zip(equation.invars, operand_reads(equation, facts), strict=True):
            if type(atom) is Var and (value := source.get(atom, atom)) in reads:
                reads[value].append(count)
        if len(equation.outvars) == 1:
            written[equation.outvars[0]] = result_bytes(equation, facts)
        else:
            written.update((v, bytes_of(v.aval)) for v in equation.outvars)
    read = sum(min(sum(counts), max(bytes_of(v.aval), *counts)) for v, counts in reads.items() if counts)
    results = {source.get(v, v) for v in jaxpr.outvars if type(v) is Var}
    return Cost(read, sum(written.get(v, 0) for v in results), flops)


def program_cost(jaxpr: Jaxpr) -> Cost:
    """The sum over a program's equations."""
    total = Cost()
    for equation in jaxpr.eqns:
        total = total.plus(equation_cost(equation))
    return total


def parts_cost(equations: Sequence[Equation]) -> Cost:
    """What the equations cost as kernels of their own."""
    total = Cost()
    for equation in equations:
        total = total.plus(equation_cost(equation))
    return total
