"""Masks and biases of attention that are arrays, rewritten as the bias that cuDNN adds to scores.

    where(mask, s + bias, fill)    ->    s + where(mask, max(bias, LOWEST), LOWEST)

The backward call computes probabilities as exp(s + bias - log(sum of exp(s + bias))). That logarithm is precise enough
only if the largest bias of a row is not far from 0; else it is subtracted from the row, which does not change a
softmax. A fully masked row is uniform in the program, or NaN if `fill` is infinite. Here it gets no bias and zeros in
place of its queries, which makes it uniform; afterwards its cotangents of queries are set to zero, and results that are
NaN in the program are set to NaN.

The backward call reads a float32 bias faster than others. The forward call in bfloat16 reads a bfloat16 bias faster; it
gets one if that rounds nothing: with masks only, or if the bias was bfloat16 before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from weft.base import dtypes
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.rewrite import make_literal, new_equation, rename_operands
from weft.compiler.target.cuda.library.attention_groups import AttentionMatch, Backward
from weft.compiler.target.cuda.library.attention_layouts import AttentionResult, get_axes, wide_axes
from weft.compiler.target.cuda.library.attention_patterns import same_but_ones
from weft.compiler.target.cuda.library.composites import EquationOrder, JaxprReader
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import lookup

# Bias of a masked key: its exponential is 0, and sums stay finite.
LOWEST = -1e30
# Biases up to this size leave the log-sum-exp in float32 precise enough.
FAR = 1024.0
BATCH, HEADS, QUERIES, KEYS = range(4)


class Shaped(NamedTuple):
    """Bias [batch, heads, queries, keys], with size 1 where it is broadcast over batch or heads, and the equations
    that give it the shape and dtype of scores."""

    array: Var
    equations: tuple[Equation, ...]


class Biases(NamedTuple):
    """Biases of the forward and the backward call."""

    forward: Shaped
    backward: Shaped


def with_biases(reader: JaxprReader, found: Sequence[AttentionMatch]) -> tuple[Jaxpr, dict[Any, Biases]]:
    """Rewrite matched attention to add biases as cuDNN does; return the jaxpr and the biases by the value added to
    scores."""
    rewriting = _Rewriting(reader)
    for match in found:
        _Attention(rewriting, match).rewrite()
    return rewriting.jaxpr(), rewriting.biases


class _Rewriting:
    """Jaxpr under change: replaced equations, new ones, and the biases that they add."""

    def __init__(self, reader: JaxprReader) -> None:
        self.reader = reader
        self.biases: dict[Any, Biases] = {}
        self._new: list[Equation] = []
        self._current: dict[int, Equation] = {}
        # Biases by masks and bias, since layers may share them.
        self.known: dict[Any, _Computed] = {}

    def make(self, name: str, *operands: Any, like: Equation, **params: Any) -> Var:
        """Append a new equation and return its result."""
        self._new.append(new_equation(lookup(name), operands, params, like))
        (result,) = self._new[-1].outvars
        return result

    def collect(self, build: Callable[[], Any]) -> tuple[Any, list[Equation]]:
        """Run `build`; return its result and the equations it made, which are not added to the jaxpr."""
        before, self._new = self._new, []
        try:
            return build(), self._new
        finally:
            self._new = before

    def add(self, equations: Iterable[Equation]) -> None:
        """Add equations to the jaxpr."""
        self._new += equations

    def current(self, equation: Equation) -> Equation:
        """Return the equation that replaced this one, or itself."""
        return self._current.get(id(equation), equation)

    def put(self, equation: Equation, new: Equation) -> None:
        """Replace an equation."""
        self._current[id(equation)] = new

    def rename(self, equations: Iterable[Equation], renamed: dict[Any, Any]) -> None:
        """Substitute operands of equations."""
        for equation in equations:
            self.put(equation, rename_operands(self.current(equation), renamed))

    def rename_value(self, value: Var) -> Var:
        """Rename a value at its definition and return the new name; the old one can be redefined from it."""
        equation = self.reader.definitions[value]
        now = self.current(equation)
        new = Var(value.aval)
        self.put(equation, with_results(now, [new if v is value else v for v in now.outvars]))
        return new

    def define(self, value: Var) -> None:
        """Make `value` the result of the newest equation."""
        self._new[-1] = with_results(self._new[-1], [value])

    def jaxpr(self) -> Jaxpr:
        """Return the changed jaxpr in topological order."""
        before = self.reader.jaxpr
        equations = [*(self.current(e) for e in before.eqns), *self._new]
        order = EquationOrder({v: e for e in equations for v in e.outvars})
        for equation in equations:
            order.put(equation)
        if [e for e in order.equations if e.effects] != [e for e in before.eqns if e.effects]:
            return before
        # Keep biases alive that only the backward calls will read.
        biases = [b.backward.array for b in self.biases.values()]
        live = drop_dead(before.replace(eqns=order.equations, outvars=[*before.outvars, *biases]))
        return live.replace(outvars=live.outvars[: len(before.outvars)])


class _Small(NamedTuple):
    """Value before it is broadcast to the shape of scores, with its sizes along their four dimensions."""

    value: Var
    sizes: tuple[int, ...]


class _Computed(NamedTuple):
    """Biases of both calls for given masks and bias, and the rows that are not fully masked."""

    forward: Var
    backward: Var
    rows: Var | None


class _Attention:
    """Rewrite of one attention. Arrays of four dimensions are [batch, heads, queries, keys]."""

    def __init__(self, rewriting: _Rewriting, match: AttentionMatch) -> None:
        self.all, self.match, self.scores = rewriting, match, match.scores
        q, k, _ = match.forward.operands
        self.batch = range(QUERIES - len(q.layout.batch), QUERIES)
        self.sizes = (*(1, 1, *q.layout.batch)[-2:], q.layout.positions, k.layout.positions)
        self.dtype = q.dtype

    def rewrite(self) -> None:
        """Replace its equations, unless queries are read in several shapes."""
        scores, (dq, dk, dv) = self.scores, self.match.backward.results if self.match.backward else (None,) * 3
        masks = () if scores.causal else scores.selections
        queries = scores.product.invars[0]
        products = [scores.product, *([] if dk is None else [dk.contraction])]
        if masks and any(queries not in e.invars for e in products):
            return
        computed = self.compute_biases([self.small(m.invars[0]) for m in masks])
        rows = computed.rows
        last = masks[0] if masks else scores.addition
        assert last is not None  # the attention has a mask or a bias
        self.add_bias(computed, last)
        backward = self.match.backward
        if backward is not None and masks:
            unmasked = {s.outvars[0]: s.invars[2] for s in backward.cotangents.selections}
            self.all.rename(self.inside(backward), unmasked)
        if backward is not None and self.match.of_scores is not None:
            self.share(backward)
        if rows is None:
            return
        zeros = self.chosen(rows, self.axes_of_queries(), queries, 0.0)
        self.all.rename(products, {queries: zeros})
        if dq is not None:
            self.replace_rows(dq, rows, 0.0)
        if math.isinf(scores.fill):
            if not self.match.forward.computed:
                self.replace_rows(self.match.forward.out, rows, math.nan)
            if dv is not None:
                # NaN probabilities are part of every sum over queries.
                self.replace_rows(dv, self.reduce("reduce_and", rows, QUERIES), math.nan)

    # -- what is added to scores -----------------------------------------------------------------------------------

    def compute_biases(self, masks: Sequence[_Small]) -> _Computed:
        """Return the biases that cuDNN adds, and the rows that are not fully masked."""
        bias = None if self.scores.addition is None else self.small(self.scores.bias)
        key = (tuple(masks), bias, self.scores.causal, self.sizes, self.dtype)
        if key not in self.all.known:
            self.all.known[key] = self.of_masks(masks) if bias is None else self.of_bias(bias, masks)
        return self.all.known[key]

    def holds(self, masks: Sequence[_Small]) -> Any:
        """Return the conjunction of all masks."""
        found = None
        for mask in map(self.four, masks):
            found = mask if found is None else self.make("and", *self.same_shape(found, mask))
        return found

    def of_masks(self, masks: Sequence[_Small]) -> _Computed:
        """Compute the bias of masks alone: 0 where they hold and in fully masked rows, else `LOWEST`."""
        holds = self.holds(masks)
        rows = self.reduce("reduce_or", holds, KEYS)
        free = self.make("or", *self.same_shape(holds, self.make("not", rows)))
        forward, backward = (
            self.all_keys(self.make("select_n", free, make_literal(LOWEST, dtype), make_literal(0.0, dtype)))
            for dtype in (dtypes.bfloat16 if self.dtype == dtypes.bfloat16 else dtypes.float32, dtypes.float32)
        )
        return _Computed(forward, backward, rows)

    def of_bias(self, bias: _Small, masks: Sequence[_Small]) -> _Computed:
        """Compute a bias that is near 0 in each row, and 0 in fully masked rows."""
        literal = partial(make_literal, dtype=dtypes.float32)
        found = self.convert(self.four(bias), dtypes.float32)
        rows = None
        if masks:
            holds = self.holds(masks)
            rows = self.reduce("reduce_or", holds, KEYS)
            condition, found = self.same_shape(holds, found)
            found = self.make("select_n", condition, literal(-math.inf), found)
        seen = found
        if self.scores.causal:
            condition, seen = self.same_shape(self.four(self.small(self.scores.selections[0].invars[0])), found)
            seen = self.make("select_n", condition, literal(-math.inf), seen)
        largest = self.reduce("reduce_max", seen, KEYS)
        is_far = self.make("gt", self.make("abs", largest), literal(FAR))
        shift = self.make("select_n", is_far, literal(0.0), largest)
        found = self.make("max", self.make("sub", *self.same_shape(found, shift)), literal(LOWEST))
        if rows is not None:
            condition, found = self.same_shape(rows, found)
            found = self.make("select_n", condition, literal(0.0), found)
        found = self.all_keys(found)
        short = self.dtype == dtypes.bfloat16 == bias.value.aval.dtype  # type: ignore[attr-defined]
        # Rounding is exact where it matters: nearby bfloat16 numbers have a bfloat16 difference.
        return _Computed(self.convert(found, dtypes.bfloat16) if short else found, found, rows)

    def add_bias(self, computed: _Computed, last: Equation) -> None:
        """Replace `last`, the last equation that changes scores, by the addition of a bias."""
        addition = self.scores.addition
        if addition is None:
            scores = self.scores.selections[-1].invars[2]
        else:
            scores = next(a for a in addition.invars if a is not self.scores.bias)
        shape, dtype = last.outvars[0].aval.shape, last.outvars[0].aval.dtype  # type: ignore[attr-defined]
        scores = self.convert(self.reshape(scores, shape), dtype)
        axes = dict(zip(_wide(self.sizes), _wide(shape), strict=True))

        def shape_bias(array: Var) -> tuple[Var, list[Equation]]:
            return self.all.collect(lambda: self.convert(self.broadcast_to(array, axes, shape), dtype))

        added, equations = shape_bias(computed.forward)
        self.all.add(equations)
        forward = backward = Shaped(computed.forward, tuple(equations))
        if computed.backward is not computed.forward and self.match.backward is not None:
            _, others = shape_bias(computed.backward)
            if others:
                backward = Shaped(computed.backward, (*others[:-1], with_results(others[-1], [added])))
        self.all.biases[added] = Biases(forward, backward)
        new = new_equation(lookup("add"), [scores, added], {}, last)
        self.all.put(last, with_results(new, last.outvars))

    def share(self, backward: Backward) -> None:
        """Redefine the cotangent of scores, which other equations read, from the dtype in which cuDNN writes it. A
        causal mask is part of the call; other masks are applied to its result."""
        cotangents = backward.cotangents
        masked = cotangents.selections if self.scores.causal else ()
        value: Any = masked[0].outvars[0] if masked else cotangents.scores
        if value.aval.dtype == self.dtype:
            return
        raw = self.all.rename_value(value)
        self.all.rename(self.inside(backward), {value: raw})
        self.convert(self.convert(raw, self.dtype), value.aval.dtype)
        self.all.define(value)

    @staticmethod
    def inside(backward: Backward) -> list[Equation]:
        """Return the equations of cotangents inside the call, except masks."""
        found = [*backward.equations, *(r.contraction for r in backward.results if r is not None)]
        masks = backward.cotangents.selections
        return [e for e in found if all(e is not mask for mask in masks)]

    def all_keys(self, array: Any) -> Var:
        """Broadcast an array along queries and keys."""
        result: Var = self.broadcast(array, (*array.aval.shape[:QUERIES], *self.sizes[QUERIES:]))
        return result

    # -- fully masked rows ---------------------------------------------------------------------------------------------

    def chosen(self, holds: Var, axes: Mapping[int, int], value: Any, rest: float) -> Var:
        """Select `value` where a condition holds, and the number `rest` elsewhere."""
        condition = self.broadcast_to(holds, axes, value.aval.shape)
        return self.make("select_n", condition, make_literal(rest, value.aval.dtype), value)

    def replace_rows(self, result: AttentionResult, holds: Var, rest: float) -> None:
        """Set rows of a result of attention to `rest` where a condition does not hold."""
        raw = self.all.rename_value(result.value)
        self.chosen(holds, self.axes_of_result(result), raw, rest)
        self.all.define(result.value)

    def axes_of_queries(self) -> dict[int, int]:
        """Return the axis of the queries' array for each dimension."""
        queries, axes = self.scores.product.invars[0], get_axes(self.scores.product, 0)
        (positions,) = wide_axes(queries, axes.free)
        return {**dict(zip(self.batch, wide_axes(queries, axes.batch), strict=True)), QUERIES: positions}

    def axes_of_result(self, result: AttentionResult) -> dict[int, int]:
        """Return the axis of a result's array for each dimension; its positions are queries."""
        value = result.contraction.outvars[0]
        first, second = (get_axes(result.contraction, side) for side in (0, 1))
        start = len(first.batch) + (len(first.free) if result.positions_side else 0)
        free = range(start, start + len((first, second)[result.positions_side].free))
        (positions,) = wide_axes(value, free)
        axes = {**dict(zip(self.batch, wide_axes(value, range(len(first.batch))), strict=True)), QUERIES: positions}
        return {dimension: result.order.index(axis) for dimension, axis in axes.items()}

    # -- arrays of four dimensions -----------------------------------------------------------------------------------

    def small(self, atom: Any) -> _Small:
        """Return a value of the shape of scores before it was broadcast."""
        sizes = self.sizes
        # Dimension of scores for each axis longer than 1.
        dimensions = dict(zip(wide_axes(atom, range(len(atom.aval.shape))), _wide(sizes), strict=True))
        while True:
            broadcast = self.all.reader.definition(atom, "broadcast_in_dim")
            reshape = self.all.reader.definition(atom, "reshape")
            wider = self.all.reader.definition(atom, "convert_element_type")
            if wider is not None and wider.invars[0].aval.dtype == dtypes.bfloat16:  # type: ignore[attr-defined]
                atom = wider.invars[0]
            elif broadcast is not None and type(broadcast.invars[0]) is Var:
                atom = broadcast.invars[0]
                placed = broadcast.params["broadcast_dimensions"]
                dimensions = {n: dimensions[placed[n]] for n in wide_axes(atom, range(len(atom.aval.shape)))}
            elif reshape is not None and same_but_ones(reshape):
                atom = reshape.invars[0]
                dimensions = dict(zip(wide_axes(atom, range(len(atom.aval.shape))), dimensions.values(), strict=True))
            else:
                own = set(dimensions.values())
                return _Small(atom, tuple(size if n in own else 1 for n, size in enumerate(sizes)))

    def four(self, small: _Small) -> Any:
        """Reshape a value to four dimensions."""
        return self.reshape(small.value, small.sizes)

    def make(self, name: str, *operands: Any, **params: Any) -> Var:
        return self.all.make(name, *operands, like=self.scores.product, **params)

    def reshape(self, value: Any, shape: tuple[int, ...]) -> Any:
        same = value.aval.shape == shape
        return value if same else self.make("reshape", value, new_sizes=shape, dimensions=None)

    def convert(self, value: Any, dtype: Any) -> Any:
        same = value.aval.dtype == dtype
        return value if same else self.make("convert_element_type", value, new_dtype=dtype, weak_type=False)

    def broadcast(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Broadcast an array of four dimensions to a shape."""
        return self.broadcast_to(value, {n: n for n in range(4)}, shape)

    def same_shape(self, *values: Any) -> list[Any]:
        """Broadcast arrays of four dimensions to one shape."""
        shape = tuple(max(sizes) for sizes in zip(*(v.aval.shape for v in values), strict=True))
        return [self.broadcast(v, shape) for v in values]

    def reduce(self, name: str, value: Any, axis: int) -> Any:
        """Reduce an array of four dimensions to size 1 along one of them."""
        found = self.make(name, value, axes=(axis,))
        shape = value.aval.shape
        return self.reshape(found, (*shape[:axis], 1, *shape[axis + 1 :]))

    def broadcast_to(self, value: Any, axes: Mapping[int, int], shape: tuple[int, ...]) -> Any:
        """Broadcast an array of four dimensions to a shape in which they are at `axes`."""
        if value.aval.shape == shape and all(n == axis for n, axis in axes.items()):
            return value
        wide = _wide(value.aval.shape)
        value = self.reshape(value, tuple(value.aval.shape[n] for n in wide))
        order = sorted(range(len(wide)), key=lambda n: axes[wide[n]])
        if order != list(range(len(wide))):
            value = self.make("transpose", value, permutation=tuple(order))
        placed = tuple(axes[wide[n]] for n in order)
        return self.make("broadcast_in_dim", value, shape=shape, broadcast_dimensions=placed)


def with_results(equation: Equation, results: Sequence[Any]) -> Equation:
    """Return the equation with other results."""
    rest = (equation.primitive, equation.params, equation.effects, equation.source, equation.stack)
    return Equation(equation.invars, results, *rest)


def _wide(sizes: Sequence[int]) -> list[int]:
    """Return the dimensions that are longer than 1."""
    return [n for n, size in enumerate(sizes) if size != 1]
