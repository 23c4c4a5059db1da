"""Attention by cuDNN, recognised in programs.

    s = q kᵀ;  s = s scale;  s = where(query >= key, s, -inf);  p = softmax(s);  o = p v

with the transposes of o that follow, and its cotangents as differentiation writes them. Scale and mask may be missing,
and shapes may have dimensions of size 1. Where others read what cuDNN never stores (scores, probabilities) nothing is
recognised. Everything between q, k, v and o is float32, whatever the program says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.compiler.rewrite import new_equation
from weft.compiler.target.cuda.library.calls import AttentionCall, dtype_index
from weft.compiler.target.cuda.library.composites import Composite, Group, Reader, is_literal, is_operation
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.matmuls import strides_of
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Literal, Var
from weft.ir.primitive import lookup
from weft.primitives.contraction.contract import free_axes

ROUTINE = "cudnn_attention"
TYPES = (dtypes.bfloat16, dtypes.float16)
# Vectors are multiples of this, and no longer; positions are multiples of that.
WIDTH_MULTIPLE, MOST_WIDTH, POSITION_MULTIPLE = 8, 128, 64
# A mask that adds as much as this, or replaces scores by it, leaves nothing of a key.
MASKED = -1e9


@dataclass(frozen=True)
class LibraryAttention(Composite):
    """Attention, or its cotangents, with sizes and strides."""

    call: AttentionCall

    def plan(self, equation: Equation) -> LibraryCall:
        call = self.call
        sums = (call.batch * call.heads * call.queries * 4,) if call.backward else ()
        return LibraryCall(routine=ROUTINE, parameters=call.integers, scratch=sums)

    def __str__(self) -> str:
        return "attention, backward" if self.call.backward else "attention"


# ------------------------------------------------------------------------------------------------------------ patterns


class Chain:
    """Follows values back to where they come from; `members` are the equations on the way."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.members: dict[int, Equation] = {}

    def add(self, equation: Equation) -> Equation:
        self.members[id(equation)] = equation
        return equation

    def source(self, atom: Any) -> Any:
        """What a value is before conversions and dimensions of size 1."""
        while True:
            for name in ("convert_element_type", "reshape"):
                found = self.reader.computed_by(atom, name)
                if found is not None and (name != "reshape" or _same_but_ones(found)):
                    atom = self.add(found).invars[0]
                    break
            else:
                return atom

    def by(self, atom: Any, name: str) -> Equation | None:
        """The equation of this operation that computes a value."""
        found = self.reader.computed_by(self.source(atom), name)
        return None if found is None else self.add(found)

    def with_operand(self, atom: Any, name: str, operand: Any) -> Any:
        """The other operand of this operation of two, if one is this value."""
        found = self.by(atom, name)
        if found is None:
            return None
        first, second = (self.source(a) for a in found.invars)
        wanted = self.source(operand)
        return second if first is wanted else first if second is wanted else None

    def row(self, atom: Any) -> Any:
        """What is broadcast along the last dimension."""
        found = self.by(atom, "broadcast_in_dim")
        if found is None:
            return None
        shape: Any = found.outvars[0].aval.shape  # type: ignore[attr-defined]
        along = [n for n in range(len(shape) - 1) if shape[n] != 1]
        placed = found.params["broadcast_dimensions"]
        wide = [n for n, size in zip(placed, found.invars[0].aval.shape, strict=True) if size != 1]  # type: ignore[attr-defined]
        return self.source(found.invars[0]) if wide == along else None

    def reduced(self, atom: Any, name: str) -> Any:
        """What is reduced along its last dimension."""
        found = self.by(atom, name)
        if found is None or found.params["axes"] != (len(found.invars[0].aval.shape) - 1,):  # type: ignore[attr-defined]
            return None
        return self.source(found.invars[0])

    def scaled(self, atom: Any) -> tuple[Any, float]:
        """What is multiplied or divided by literals, and by what in all."""
        scale = 1.0
        while True:
            for name in ("mul", "div"):
                found = self.reader.computed_by(self.source(atom), name)
                if found is not None and type(found.invars[1]) is Literal:
                    value = float(found.invars[1].val)
                    scale = scale * value if name == "mul" else scale / value
                    atom = self.add(found).invars[0]
                    break
            else:
                return self.source(atom), scale


def _same_but_ones(reshape: Equation) -> bool:
    before, after = (a.aval.shape for a in (reshape.invars[0], reshape.outvars[0]))  # type: ignore[attr-defined]
    return [d for d in before if d != 1] == [d for d in after if d != 1]


class Scores(NamedTuple):
    """Probabilities and what they are computed from. `chosen` is the condition of a causal mask, or None."""

    probabilities: Var
    exponentials: Any
    total: Any
    largest: Any
    product: Equation
    scale: float
    chosen: Any
    chain: Chain


def _scores(reader: Reader, division: Equation) -> Scores | None:
    """The scores of which a division makes probabilities."""
    chain = Chain(reader)
    chain.add(division)
    exponentials = chain.source(division.invars[0])
    exp = chain.by(exponentials, "exp")
    total = chain.row(division.invars[1])
    if exp is None or total is None or chain.reduced(total, "reduce_sum") is not exponentials:
        return None
    difference = chain.by(exp.invars[0], "sub")
    if difference is None:
        return None
    scores = chain.source(difference.invars[0])
    largest = chain.row(difference.invars[1])
    bounded = reader.computed_by(largest, "max")
    if bounded is not None and type(bounded.invars[1]) is Literal:
        chain.add(bounded)
        largest = chain.source(bounded.invars[0])
    if largest is None or chain.reduced(largest, "reduce_max") is not scores:
        return None
    chosen = None
    selection = reader.computed_by(scores, "select_n")
    if selection is not None:
        condition, masked, rest = selection.invars
        if type(masked) is not Literal or float(masked.val) > MASKED or not _causal(chain, condition):
            return None
        chain.add(selection)
        chosen, scores = condition, rest
    source, scale = chain.scaled(scores)
    product = chain.by(source, "dot_general")
    if product is None:
        return None
    return Scores(division.outvars[0], exponentials, total, largest, product, scale, chosen, chain)


def _causal(chain: Chain, condition: Any) -> bool:
    """Whether a condition is that a query, the last dimension but one, is not before a key, the last one."""
    atom = chain.source(condition)
    broadcast = chain.reader.computed_by(atom, "broadcast_in_dim")
    if broadcast is not None:
        rank = len(broadcast.outvars[0].aval.shape)  # type: ignore[attr-defined]
        if broadcast.params["broadcast_dimensions"][-2:] != (rank - 2, rank - 1):
            return False
        atom = chain.source(chain.add(broadcast).invars[0])
    choice = chain.reader.computed_by(atom, "select_n")
    if choice is not None and is_literal(choice.invars[1], False) and is_literal(choice.invars[2], True):
        atom = chain.source(chain.add(choice).invars[0])
    compared = chain.by(atom, "ge")
    if compared is None:
        return False
    rank = len(compared.outvars[0].aval.shape)  # type: ignore[attr-defined]
    for operand, dimension in zip(compared.invars, (rank - 2, rank - 1), strict=True):
        counted = chain.by(operand, "iota")
        if counted is None or counted.params["dimension"] != dimension:
            return False
    return True


# ------------------------------------------------------------------------------------------------------------- layouts


class Layout(NamedTuple):
    """How a contraction reads or writes an array: sizes of batch dimensions, positions and width, and the strides of
    batch, heads and positions."""

    batch: tuple[int, ...]
    positions: int
    width: int
    strides: tuple[int, int, int]


def _layout(
    shape: Sequence[int], strides: Sequence[int], batch: Sequence[int], positions: Sequence[int], width: Sequence[int]
) -> Layout | None:
    """An array by its axes. There are at most two dimensions of the batch, one of positions, and a width whose elements
    lie side by side; dimensions of size 1 do not count."""
    batched, along, across = ([n for n in axes if shape[n] != 1] for axes in (batch, positions, width))
    if len(batched) > 2 or len(along) != 1 or len(across) != 1 or strides[across[0]] != 1:
        return None
    sizes = tuple(shape[n] for n in batched)
    steps = [strides[n] for n in batched]
    head = steps[-1] if steps else 1
    first = steps[0] if len(steps) == 2 else head * math.prod(sizes)
    return Layout(sizes, shape[along[0]], shape[across[0]], (first, head, strides[along[0]]))


class Axes(NamedTuple):
    """The axes of an operand of a contraction: those of the batch in the order of the result, contracted, and free."""

    batch: tuple[int, ...]
    contracted: tuple[int, ...]
    free: tuple[int, ...]


def _axes(contraction: Equation, side: int) -> Axes:
    dimensions = contraction.params["dimension_numbers"]
    ranks = [len(a.aval.shape) for a in contraction.invars]  # type: ignore[attr-defined]
    return Axes(dimensions[1][side], dimensions[0][side], free_axes(ranks[0], ranks[1], dimensions)[side])


def _read(contraction: Equation, side: int, positions: str, part: Part | None = None) -> Layout | None:
    """An operand whose positions are "contracted", or "free"; the width is the other. It may be a part of an array."""
    shape: Any = contraction.invars[side].aval.shape  # type: ignore[attr-defined]
    axes = _axes(contraction, side)
    along, across = (axes.contracted, axes.free) if positions == "contracted" else (axes.free, axes.contracted)
    return _layout(shape, strides_of(shape) if part is None else part.strides, axes.batch, along, across)


class Part(NamedTuple):
    """An operand as a part of an array: the element that it begins at, its strides, and the equations that cut it."""

    array: Any
    first: int
    strides: Sequence[int]
    equations: tuple[Equation, ...]


def _part(reader: Reader, atom: Any) -> Part:
    """What an operand is cut out of, dimensions of size 1 aside; or all of itself."""
    shape: Any = atom.aval.shape
    whole = Part(atom, 0, strides_of(shape), ())
    equations: list[Equation] = []
    while (found := reader.computed_by(atom, "reshape")) is not None and _same_but_ones(found):
        equations.append(found)
        atom = found.invars[0]
    cut = reader.computed_by(atom, "slice")
    if cut is None or type(cut.invars[0]) is not Var or any(step != 1 for step in cut.params["strides"] or ()):
        return whole
    array = cut.invars[0]
    steps = strides_of(array.aval.shape)  # type: ignore[attr-defined]
    first = sum(start * step for start, step in zip(cut.params["start_indices"], steps, strict=True))
    sizes: Any = cut.outvars[0].aval.shape  # type: ignore[attr-defined]
    rest = iter([step for size, step in zip(sizes, steps, strict=True) if size != 1])
    strides = [1 if size == 1 else next(rest) for size in shape]
    return Part(array, first, strides, (*equations, cut))


def _read_through(chain: Chain, contraction: Equation, side: int) -> tuple[Any, Layout | None]:
    """An operand whose positions are free, or what it is a transpose of; and how that is read."""
    operand = contraction.invars[side]
    found = chain.reader.computed_by(operand, "transpose")
    if found is None:
        return operand, _read(contraction, side, "free")
    (array,) = chain.add(found).invars
    shape: Any = operand.aval.shape  # type: ignore[attr-defined]
    steps = strides_of(array.aval.shape)  # type: ignore[attr-defined]
    axes = _axes(contraction, side)
    strides = [steps[n] for n in found.params["permutation"]]
    return array, _layout(shape, strides, axes.batch, axes.free, axes.contracted)


class Written(NamedTuple):
    """The last form of a result of a contraction: the value, how it is written, and the equations between."""

    value: Var
    layout: Layout
    equations: list[Equation]


def _written(reader: Reader, contraction: Equation, dtype: Any, positions_side: int) -> Written | None:
    """A result after the transposes and conversions that follow it, if nobody else reads what is before them. The
    positions are the free axes of the operand on one side, the width those of the other."""
    (result,) = contraction.outvars
    value, order, after = result, list(range(len(result.aval.shape))), []  # type: ignore[attr-defined]
    while (equation := reader.only_reader(value)) is not None:
        if is_operation(equation, "transpose"):
            order = [order[n] for n in equation.params["permutation"]]
        elif not is_operation(equation, "convert_element_type") or equation.params["new_dtype"] != dtype:
            break
        after.append(equation)
        value = equation.outvars[0]
    aval: Any = value.aval
    if aval.dtype != dtype:
        return None
    strides = [0] * len(order)
    for axis, stride in zip(order, strides_of(aval.shape), strict=True):
        strides[axis] = stride
    first, second = (_axes(contraction, side) for side in (0, 1))
    batch = len(first.batch)
    free = [
        range(batch, batch + len(first.free)),
        range(batch + len(first.free), batch + len(first.free) + len(second.free)),
    ]
    sizes: Any = result.aval.shape  # type: ignore[attr-defined]
    layout = _layout(sizes, strides, range(batch), free[positions_side], free[1 - positions_side])
    return None if layout is None else Written(value, layout, after)


# -------------------------------------------------------------------------------------------------------------- search


class Forward(NamedTuple):
    """Attention in a program: q, k and v with their layouts, and its result."""

    scores: Scores
    arrays: tuple[Var, ...]
    parts: tuple[Part, ...]
    layouts: tuple[Layout, ...]
    out: Written
    weighted: list[Equation]  # conversions of probabilities
    contraction: Equation


class Backward(NamedTuple):
    """Its cotangents."""

    cotangent: Var
    layout: Layout
    results: tuple[Written, ...]
    equations: list[Equation]


def find_attention(reader: Reader, target: Target) -> list[Group]:
    """All attention of a jaxpr, and its cotangents."""
    if "cudnn" not in target.libraries.present:
        return []
    groups: list[Group] = []
    for equation in reader.jaxpr.eqns:
        scores = _scores(reader, equation) if is_operation(equation, "div") else None
        found = None if scores is None else _forward(reader, scores)
        if found is not None:
            groups += _groups(reader, found)
    return groups


def _forward(reader: Reader, scores: Scores) -> Forward | None:
    """Attention whose probabilities these are."""
    weighted, conversions = _weighted(reader, scores)
    for contraction in reader.readers.get(weighted, ()):
        if not is_operation(contraction, "dot_general") or contraction.invars[0] is not weighted:
            continue
        axes = _axes(contraction, 0)
        last = len(weighted.aval.shape) - 1  # type: ignore[attr-defined]
        if axes.contracted != (last,) or axes.batch != tuple(sorted(axes.batch)):
            continue
        arrays = (*scores.product.invars, contraction.invars[1])
        if any(type(a) is not Var or a.aval.dtype not in TYPES for a in arrays) or len(set(arrays)) < 3:  # type: ignore[attr-defined]
            continue
        parts = tuple(_part(reader, a) for a in arrays)
        layouts = (
            _read(scores.product, 0, "free", parts[0]),
            _read(scores.product, 1, "free", parts[1]),
            _read(contraction, 1, "contracted", parts[2]),
        )
        out = _written(reader, contraction, arrays[0].aval.dtype, 0)  # type: ignore[attr-defined]
        if out is None or any(layout is None for layout in layouts):
            continue
        q, k, v = layouts
        assert q is not None and k is not None and v is not None
        same = q.batch == k.batch == v.batch == out.layout.batch and q.width == k.width == v.width == out.layout.width
        if same and q.positions == out.layout.positions and k.positions == v.positions and _fits(q, k):
            return Forward(scores, arrays, parts, (q, k, v), out, conversions, contraction)  # type: ignore[arg-type]
    return None


def _fits(q: Layout, k: Layout) -> bool:
    """Whether cuDNN has kernels for these sizes."""
    positions = q.positions % POSITION_MULTIPLE or k.positions % POSITION_MULTIPLE
    return not positions and not q.width % WIDTH_MULTIPLE and q.width <= MOST_WIDTH


def _weighted(reader: Reader, scores: Scores) -> tuple[Var, list[Equation]]:
    """The probabilities as the contraction with v reads them, and the conversions before."""
    value = scores.probabilities
    equations: list[Equation] = []
    while True:
        found = [
            e
            for e in reader.readers.get(value, ())
            if is_operation(e, "convert_element_type") or (is_operation(e, "reshape") and _same_but_ones(e))
        ]
        if len(found) != 1:
            return value, equations
        equations += found
        value = found[0].outvars[0]


def _backward(reader: Reader, forward: Forward) -> Backward | None:
    """The cotangents of attention, if the program has all of them."""
    scores, (q, k, v) = forward.scores, forward.arrays
    for to_query in reader.readers.get(k, ()):
        chain = Chain(reader)
        side = _side_of(to_query, k)
        if to_query is scores.product or side is None or _read(to_query, side, "contracted") is None:
            continue
        cotangent_of_scores = chain.source(to_query.invars[1 - side])
        product = _cotangent_of_probabilities(chain, scores, cotangent_of_scores)
        of_value = None if product is None else _side_of(product, v)
        if product is None or of_value is None:
            continue
        cotangent, layout = _read_through(chain, product, 1 - of_value)
        to_key = _contraction(reader, chain, q, cotangent_of_scores)
        to_value = _contraction(reader, chain, cotangent, scores.probabilities)
        if type(cotangent) is not Var or layout is None or to_key is None or to_value is None:
            continue
        if _read(to_value, int(_side_of(to_value, cotangent) or 0), "contracted") != layout:
            continue
        dtype = q.aval.dtype  # type: ignore[attr-defined]
        pairs = [(to_query, k), (to_key, q), (to_value, cotangent)]
        # The width is a free axis of the array, the positions are free axes of scores.
        written = [_written(reader, e, dtype, 1 - int(_side_of(e, a) or 0)) for e, a in pairs]
        if all(w is not None for w in written) and cotangent.aval.dtype == dtype:  # type: ignore[attr-defined]
            results = tuple(w for w in written if w is not None)
            after = [e for w in results for e in w.equations]
            members = {id(e): e for e in (*chain.members.values(), to_query, to_key, to_value, *after)}
            return Backward(cotangent, layout, results, list(members.values()))
    return None


def _side_of(equation: Equation, v: Any) -> int | None:
    """Which operand of a contraction a value is."""
    if not is_operation(equation, "dot_general"):
        return None
    return next((n for n, a in enumerate(equation.invars) if a is v), None)


def _contraction(reader: Reader, chain: Chain, array: Any, scores: Any) -> Equation | None:
    """The contraction of an array, along its positions, with scores."""
    for equation in reader.readers.get(array, ()):
        side = _side_of(equation, array)
        if side is not None and _read(equation, side, "contracted") is not None:
            before = dict(chain.members)
            if chain.source(equation.invars[1 - side]) is scores:
                return equation
            chain.members = before
    return None


def _cotangent_of_probabilities(chain: Chain, scores: Scores, atom: Any) -> Equation | None:
    """The contraction that computes the cotangent of probabilities, if that of scores before they are multiplied and
    masked is p / total (dp - sum(dp p)), as differentiating a quotient writes it."""
    atom, scale = chain.scaled(atom)
    if not math.isclose(scale, scores.scale, rel_tol=1e-6):
        return None
    if scores.chosen is not None:
        selection = chain.by(atom, "select_n")
        if selection is None or not is_literal(selection.invars[1], 0.0):
            return None
        if chain.source(selection.invars[0]) is not scores.chain.source(scores.chosen):
            return None
        atom = selection.invars[2]
    factor = chain.with_operand(atom, "mul", scores.exponentials)
    total = chain.by(factor, "add")
    if total is None:
        return None
    for first, second in (total.invars, total.invars[::-1]):
        found = _quotient(chain, scores, first)
        summed = chain.row(second)
        inner = None if summed is None else chain.reduced(summed, "reduce_sum")
        product = None if inner is None else _quotient(chain, scores, inner)
        negated = None if product is None else chain.with_operand(product, "mul", scores.probabilities)
        source = None if negated is None else chain.by(negated, "neg")
        if found is not None and source is not None and chain.source(source.invars[0]) is found:
            return chain.by(found, "dot_general")
    return None


def _quotient(chain: Chain, scores: Scores, atom: Any) -> Any:
    """What is divided by the total of exponentials."""
    found = chain.by(atom, "div")
    if found is None or type(found.invars[1]) is Literal or chain.row(found.invars[1]) is not scores.total:
        return None
    return chain.source(found.invars[0])


# -------------------------------------------------------------------------------------------------------------- groups


def _groups(reader: Reader, forward: Forward) -> list[Group]:
    """The calls for attention: one, or two. None if somebody reads what they do not compute."""
    scores = forward.scores
    backward = _backward(reader, forward)
    before = [*scores.chain.members.values(), *forward.weighted]
    inputs = tuple(dict.fromkeys(part.array for part in forward.parts))
    cuts = list({id(e): e for part in forward.parts for e in part.equations}.values())
    computed = [*before, forward.contraction, *forward.out.equations]
    inside = [*computed, *(backward.equations if backward else ())]
    results = {forward.out.value, *(w.value for w in (backward.results if backward else ()))}
    for equation in inside:
        for v in equation.outvars:
            is_mask = dtypes.kind(v.aval.dtype) in "bi"
            if v not in results and not is_mask and reader.needed_outside(v, inside):
                return []
    logarithms, stats = _logarithms(reader, scores)
    first = Group(
        (*_in_order(reader, [*cuts, *computed]), *logarithms),
        inputs,
        (forward.out.value, stats),
        scores.product,
        LibraryAttention(_call(forward)),
    )
    if backward is None:
        return [first]
    operands = (*inputs, forward.out.value, stats, backward.cotangent)
    if len(set(operands)) < len(operands):
        return []
    again = _in_order(reader, {id(e): e for e in (*cuts, *before, *backward.equations)}.values())
    second = Group(
        tuple(again),
        operands,
        tuple(w.value for w in backward.results),
        scores.product,
        LibraryAttention(_call(forward, backward)),
    )
    return [first, second]


def _in_order(reader: Reader, equations: Iterable[Equation]) -> list[Equation]:
    return sorted(equations, key=reader.position)


def _logarithms(reader: Reader, scores: Scores) -> tuple[list[Equation], Var]:
    """Equations for the logarithms of sums of exponentials, in float32."""
    like = scores.product
    added: list[Equation] = []

    def wide(atom: Any) -> Any:
        if atom.aval.dtype == dtypes.float32:
            return atom
        params = {"new_dtype": dtypes.float32, "weak_type": False}
        added.append(new_equation(lookup("convert_element_type"), [atom], params, like))
        return added[-1].outvars[0]

    total, largest = scores.total, scores.largest
    if largest.aval.shape != total.aval.shape:
        params = {"new_sizes": total.aval.shape, "dimensions": None}
        added.append(new_equation(lookup("reshape"), [largest], params, like))
        largest = added[-1].outvars[0]
    added.append(new_equation(lookup("log"), [wide(total)], {"accuracy": None}, like))
    logarithm = added[-1].outvars[0]
    added.append(new_equation(lookup("add"), [wide(largest), logarithm], {}, like))
    return added, added[-1].outvars[0]


def _call(forward: Forward, backward: Backward | None = None) -> AttentionCall:
    q, k, v = forward.layouts
    layouts = [q, k, v, forward.out.layout]
    if backward is not None:
        layouts += [backward.layout, *(w.layout for w in backward.results)]
    batch = (1, 1, *q.batch)[-2:]
    inputs = list(dict.fromkeys(part.array for part in forward.parts))
    sources = [(inputs.index(part.array), part.first) for part in forward.parts]
    return AttentionCall(
        backward=backward is not None,
        batch=batch[0],
        heads=batch[1],
        queries=q.positions,
        keys=k.positions,
        width=q.width,
        dtype=dtype_index(forward.arrays[0].aval.dtype),  # type: ignore[attr-defined]
        causal=forward.scores.chosen is not None,
        scale_bits=int(np.float32(forward.scores.scale).view(np.int32)),
        parts=tuple(n for several in (*sources, *(layout.strides for layout in layouts)) for n in several),
    )
