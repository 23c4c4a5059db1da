"""Masks and biases of attention that are arrays, as the bias that cuDNN adds to scores.

    where(mask, s + bias, fill)    ->    s + where(mask, max(bias, LOWEST), LOWEST)

The backward call computes probabilities as exp(s + bias - log(sum of exp(s + bias))). That logarithm is exact enough
only if the largest bias of a row is not far from 0: else it is subtracted from the row, which softmax does not feel.
A row of which a mask leaves nothing is uniform in the program, or nan if `fill` is infinite. Here it has no bias and
zeros in place of its queries, which makes it uniform; its cotangents of queries are zeros again afterwards, and what is
nan in the program becomes nan after the calls.

The backward call reads a bias of float32 quicker than others. The forward call of bfloat16 reads one of bfloat16
quicker: it has that if nothing is rounded by it, where there are only masks, or a bias was in bfloat16 before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from weft.base import dtypes
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.rewrite import make_literal, new_equation, rename_operands
from weft.compiler.target.cuda.library.attention_groups import Backward, Match
from weft.compiler.target.cuda.library.attention_layouts import Result, axes_of, wide_axes
from weft.compiler.target.cuda.library.attention_scores import same_but_ones
from weft.compiler.target.cuda.library.composites import Order, Reader
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import lookup

# What is added to the score of a key that a mask leaves out: nothing is left of it, and sums are finite.
LOWEST = -1e30
# The logarithm of a sum of this size still tells the elements of the sum.
FAR = 1024.0
BATCH, HEADS, QUERIES, KEYS = range(4)


class Shaped(NamedTuple):
    """A bias [batch, heads, queries, keys], of size 1 where it is the same for all of a batch or all heads, and the
    equations by which it has the shape and the dtype of scores."""

    array: Var
    equations: tuple[Equation, ...]


class Biases(NamedTuple):
    """The bias of a call for attention, and of that for its cotangents."""

    forward: Shaped
    backward: Shaped


def with_biases(reader: Reader, found: Sequence[Match]) -> tuple[Jaxpr, dict[Any, Biases]]:
    """The jaxpr in which attention has biases that cuDNN adds, by what is added to scores."""
    rewriting = _Rewriting(reader)
    for match in found:
        _Attention(rewriting, match).rewrite()
    return rewriting.jaxpr(), rewriting.biases


class _Rewriting:
    """A jaxpr that changes: equations as they are by now, those that are new, and the biases that they add."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.biases: dict[Any, Biases] = {}
        self._new: list[Equation] = []
        self._current: dict[int, Equation] = {}
        # Layers may share a mask: what was computed of arrays.
        self.known: dict[Any, _Computed] = {}

    def make(self, name: str, *operands: Any, like: Equation, **params: Any) -> Var:
        """The result of a new equation."""
        self._new.append(new_equation(lookup(name), operands, params, like))
        (result,) = self._new[-1].outvars
        return result

    def collected(self, build: Callable[[], Any]) -> tuple[Any, list[Equation]]:
        """What a function makes, and the equations for it, which are not in the jaxpr."""
        before, self._new = self._new, []
        try:
            return build(), self._new
        finally:
            self._new = before

    def add(self, equations: Iterable[Equation]) -> None:
        """Add equations to the jaxpr."""
        self._new += equations

    def current(self, equation: Equation) -> Equation:
        """What has taken the place of an equation."""
        return self._current.get(id(equation), equation)

    def put(self, equation: Equation, new: Equation) -> None:
        """Put another equation in the place of one."""
        self._current[id(equation)] = new

    def rename(self, equations: Iterable[Equation], renamed: dict[Any, Any]) -> None:
        """Let equations read other values."""
        for equation in equations:
            self.put(equation, rename_operands(self.current(equation), renamed))

    def renamed(self, value: Var) -> Var:
        """A new name for a value, whose old one is free for what is computed of it."""
        equation = self.reader.definitions[value]
        now = self.current(equation)
        new = Var(value.aval)
        self.put(equation, with_results(now, [new if v is value else v for v in now.outvars]))
        return new

    def define(self, value: Var) -> None:
        """Let the newest equation compute this value."""
        self._new[-1] = with_results(self._new[-1], [value])

    def jaxpr(self) -> Jaxpr:
        """The jaxpr as it is by now, each equation behind those that compute its operands."""
        before = self.reader.jaxpr
        equations = [*(self.current(e) for e in before.eqns), *self._new]
        order = Order({v: e for e in equations for v in e.outvars})
        for equation in equations:
            order.put(equation)
        if [e for e in order.equations if e.effects] != [e for e in before.eqns if e.effects]:
            return before
        # Calls for cotangents may read biases that nobody reads yet.
        biases = [b.backward.array for b in self.biases.values()]
        live = drop_dead(before.replace(eqns=order.equations, outvars=[*before.outvars, *biases]))
        return live.replace(outvars=live.outvars[: len(before.outvars)])


class _Small(NamedTuple):
    """A value before it is broadcast to the shape of scores, and its size along each of their four dimensions."""

    value: Var
    sizes: tuple[int, ...]


class _Computed(NamedTuple):
    """What is computed of masks and a bias: biases of both calls, and in which rows masks leave something."""

    forward: Var
    backward: Var
    rows: Var | None


class _Attention:
    """One attention, rewritten. Its arrays of four dimensions are by batch, heads, queries and keys."""

    def __init__(self, rewriting: _Rewriting, match: Match) -> None:
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
        computed = self.computed([self.small(m.invars[0]) for m in masks])
        rows = computed.rows
        last = masks[0] if masks else scores.addition
        assert last is not None  # there is a mask or a bias
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
                # Probabilities that are nan are in all sums over queries.
                self.replace_rows(dv, self.reduced("reduce_and", rows, QUERIES), math.nan)

    # -- what is added to scores -----------------------------------------------------------------------------------

    def computed(self, masks: Sequence[_Small]) -> _Computed:
        """The biases that cuDNN adds, and the rows of which masks leave something."""
        bias = None if self.scores.addition is None else self.small(self.scores.bias)
        key = (tuple(masks), bias, self.scores.causal, self.sizes, self.dtype)
        if key not in self.all.known:
            self.all.known[key] = self.of_masks(masks) if bias is None else self.of_bias(bias, masks)
        return self.all.known[key]

    def holds(self, masks: Sequence[_Small]) -> Any:
        """Where all masks hold."""
        found = None
        for mask in map(self.four, masks):
            found = mask if found is None else self.make("and", *self.same_shape(found, mask))
        return found

    def of_masks(self, masks: Sequence[_Small]) -> _Computed:
        """Without a bias: 0 where masks hold, and in rows of which they leave nothing."""
        holds = self.holds(masks)
        rows = self.reduced("reduce_or", holds, KEYS)
        free = self.make("or", *self.same_shape(holds, self.make("not", rows)))
        forward, backward = (
            self.all_keys(self.make("select_n", free, make_literal(LOWEST, dtype), make_literal(0.0, dtype)))
            for dtype in (dtypes.bfloat16 if self.dtype == dtypes.bfloat16 else dtypes.float32, dtypes.float32)
        )
        return _Computed(forward, backward, rows)

    def of_bias(self, bias: _Small, masks: Sequence[_Small]) -> _Computed:
        """The bias near 0 in each row, and 0 in rows of which masks leave nothing."""
        literal = partial(make_literal, dtype=dtypes.float32)
        found = self.converted(self.four(bias), dtypes.float32)
        rows = None
        if masks:
            holds = self.holds(masks)
            rows = self.reduced("reduce_or", holds, KEYS)
            condition, found = self.same_shape(holds, found)
            found = self.make("select_n", condition, literal(-math.inf), found)
        seen = found
        if self.scores.causal:
            condition, seen = self.same_shape(self.four(self.small(self.scores.selections[0].invars[0])), found)
            seen = self.make("select_n", condition, literal(-math.inf), seen)
        largest = self.reduced("reduce_max", seen, KEYS)
        is_far = self.make("gt", self.make("abs", largest), literal(FAR))
        shift = self.make("select_n", is_far, literal(0.0), largest)
        found = self.make("max", self.make("sub", *self.same_shape(found, shift)), literal(LOWEST))
        if rows is not None:
            condition, found = self.same_shape(rows, found)
            found = self.make("select_n", condition, literal(0.0), found)
        found = self.all_keys(found)
        short = self.dtype == dtypes.bfloat16 == bias.value.aval.dtype  # type: ignore[attr-defined]
        # Numbers of bfloat16 far from 0, and so near each other that it matters, have a difference of bfloat16.
        return _Computed(self.converted(found, dtypes.bfloat16) if short else found, found, rows)

    def add_bias(self, computed: _Computed, last: Equation) -> None:
        """Let a bias be added to scores, in the place of an equation, the last one of those that changed them."""
        addition = self.scores.addition
        if addition is None:
            scores = self.scores.selections[-1].invars[2]
        else:
            scores = next(a for a in addition.invars if a is not self.scores.bias)
        shape, dtype = last.outvars[0].aval.shape, last.outvars[0].aval.dtype  # type: ignore[attr-defined]
        scores = self.converted(self.reshaped(scores, shape), dtype)
        axes = dict(zip(_wide(self.sizes), _wide(shape), strict=True))

        def shaped(array: Var) -> tuple[Var, list[Equation]]:
            return self.all.collected(lambda: self.converted(self.broadcast_to(array, axes, shape), dtype))

        added, equations = shaped(computed.forward)
        self.all.add(equations)
        forward = backward = Shaped(computed.forward, tuple(equations))
        if computed.backward is not computed.forward and self.match.backward is not None:
            _, others = shaped(computed.backward)
            if others:
                backward = Shaped(computed.backward, (*others[:-1], with_results(others[-1], [added])))
        self.all.biases[added] = Biases(forward, backward)
        new = new_equation(lookup("add"), [scores, added], {}, last)
        self.all.put(last, with_results(new, last.outvars))

    def share(self, backward: Backward) -> None:
        """Let others read the cotangent of scores in the dtype in which cuDNN writes it. A causal mask is in its call,
        other masks are applied to what it has written."""
        cotangents = backward.cotangents
        masked = cotangents.selections if self.scores.causal else ()
        value: Any = masked[0].outvars[0] if masked else cotangents.scores
        if value.aval.dtype == self.dtype:
            return
        raw = self.all.renamed(value)
        self.all.rename(self.inside(backward), {value: raw})
        self.converted(self.converted(raw, self.dtype), value.aval.dtype)
        self.all.define(value)

    @staticmethod
    def inside(backward: Backward) -> list[Equation]:
        """The equations of cotangents that are in the call, but for masks."""
        found = [*backward.equations, *(r.contraction for r in backward.results if r is not None)]
        masks = backward.cotangents.selections
        return [e for e in found if all(e is not mask for mask in masks)]

    def all_keys(self, array: Any) -> Var:
        """The array, not of size 1 along queries and keys."""
        return self.broadcast(array, (*array.aval.shape[:QUERIES], *self.sizes[QUERIES:]))

    # -- rows of which masks leave nothing ---------------------------------------------------------------------------

    def chosen(self, holds: Var, axes: Mapping[int, int], value: Any, rest: float) -> Var:
        """A value where a condition holds, and this number elsewhere."""
        condition = self.broadcast_to(holds, axes, value.aval.shape)
        return self.make("select_n", condition, make_literal(rest, value.aval.dtype), value)

    def replace_rows(self, result: Result, holds: Var, rest: float) -> None:
        """Let a result of attention be this number where a condition does not hold."""
        raw = self.all.renamed(result.value)
        self.chosen(holds, self.axes_of_result(result), raw, rest)
        self.all.define(result.value)

    def axes_of_queries(self) -> dict[int, int]:
        """The axis of the queries' array for each of the dimensions."""
        queries, axes = self.scores.product.invars[0], axes_of(self.scores.product, 0)
        (positions,) = wide_axes(queries, axes.free)
        return {**dict(zip(self.batch, wide_axes(queries, axes.batch), strict=True)), QUERIES: positions}

    def axes_of_result(self, result: Result) -> dict[int, int]:
        """The axis of a result's array for each of the dimensions; its positions are queries."""
        value = result.contraction.outvars[0]
        first, second = (axes_of(result.contraction, side) for side in (0, 1))
        start = len(first.batch) + (len(first.free) if result.positions_side else 0)
        free = range(start, start + len((first, second)[result.positions_side].free))
        (positions,) = wide_axes(value, free)
        axes = {**dict(zip(self.batch, wide_axes(value, range(len(first.batch))), strict=True)), QUERIES: positions}
        return {dimension: result.order.index(axis) for dimension, axis in axes.items()}

    # -- arrays of four dimensions -----------------------------------------------------------------------------------

    def small(self, atom: Any) -> _Small:
        """A value of the shape of scores before it was broadcast."""
        sizes = self.sizes
        # For each axis that is longer than 1, the dimension that it is.
        dimensions = dict(zip(wide_axes(atom, range(len(atom.aval.shape))), _wide(sizes), strict=True))
        while True:
            broadcast = self.all.reader.computed_by(atom, "broadcast_in_dim")
            reshape = self.all.reader.computed_by(atom, "reshape")
            wider = self.all.reader.computed_by(atom, "convert_element_type")
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
        """A value with four dimensions."""
        return self.reshaped(small.value, small.sizes)

    def make(self, name: str, *operands: Any, **params: Any) -> Var:
        return self.all.make(name, *operands, like=self.scores.product, **params)

    def reshaped(self, value: Any, shape: tuple[int, ...]) -> Any:
        same = value.aval.shape == shape
        return value if same else self.make("reshape", value, new_sizes=shape, dimensions=None)

    def converted(self, value: Any, dtype: Any) -> Any:
        same = value.aval.dtype == dtype
        return value if same else self.make("convert_element_type", value, new_dtype=dtype, weak_type=False)

    def broadcast(self, value: Any, shape: tuple[int, ...]) -> Any:
        """An array of four dimensions, repeated along those of size 1."""
        return self.broadcast_to(value, {n: n for n in range(4)}, shape)

    def same_shape(self, *values: Any) -> list[Any]:
        """Arrays of four dimensions, repeated to one shape."""
        shape = tuple(max(sizes) for sizes in zip(*(v.aval.shape for v in values), strict=True))
        return [self.broadcast(v, shape) for v in values]

    def reduced(self, name: str, value: Any, axis: int) -> Any:
        """An array of four dimensions, reduced to size 1 along one of them."""
        found = self.make(name, value, axes=(axis,))
        shape = value.aval.shape
        return self.reshaped(found, (*shape[:axis], 1, *shape[axis + 1 :]))

    def broadcast_to(self, value: Any, axes: Mapping[int, int], shape: tuple[int, ...]) -> Any:
        """An array of four dimensions, repeated to a shape in which its dimensions are these axes."""
        if value.aval.shape == shape and all(n == axis for n, axis in axes.items()):
            return value
        wide = _wide(value.aval.shape)
        value = self.reshaped(value, tuple(value.aval.shape[n] for n in wide))
        order = sorted(range(len(wide)), key=lambda n: axes[wide[n]])
        if order != list(range(len(wide))):
            value = self.make("transpose", value, permutation=tuple(order))
        placed = tuple(axes[wide[n]] for n in order)
        return self.make("broadcast_in_dim", value, shape=shape, broadcast_dimensions=placed)


def with_results(equation: Equation, results: Sequence[Any]) -> Equation:
    """The equation, which computes these values now."""
    rest = (equation.primitive, equation.params, equation.effects, equation.source, equation.stack)
    return Equation(equation.invars, results, *rest)


def _wide(sizes: Sequence[int]) -> list[int]:
    """The dimensions that are longer than 1."""
    return [n for n, size in enumerate(sizes) if size != 1]
