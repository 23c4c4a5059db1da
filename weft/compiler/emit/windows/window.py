"""Emitter of windows. Heroes: reductions over sliding windows, and selections of one element per window.

A reduction visits every window and its taps. A selection visits the taps with the best element so far. Adding to the
selected elements takes two kernels: the first writes the element that each window selected, the second visits every
element and adds the values of the windows that selected it, in the order of the windows. So no two threads or lanes
write to one element, and the order of sums is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.emit.scalar_jaxpr import run_on_scalars
from weft.compiler.emit.values import row_major
from weft.compiler.emit.windows.window_loops import WindowVisit, reduce_taps, visit
from weft.compiler.emit.windows.window_taps import transpose
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Value
from weft.ir.jaxpr import Equation, Literal
from weft.primitives.contraction.convolution_shapes import Window
from weft.primitives.reduction.window import (
    WINDOW_PARAMETERS,
    WindowReduction,
    geometry,
    select_and_gather_add,
    select_and_scatter,
    select_and_scatter_add,
)

BOOL, INDEX = dtypes.bool_, dtypes.int32
# Costs in additions: writing an element to scratch and reading it again; taking the greater of two, with the order of
# zeros and with NaN.
SEPARATED, EXTREMUM = 4, 3
# Predicate on the selected element and the next one: whether the selected one stays.
Keeps = Callable[[Value, Value], Value]


def emit_window(fusion: Fusion) -> Emission:
    """Emit the kernels of a jaxpr with one reduction over windows, or one choice in windows, and pointwise work after
    it.
    """
    hero = fusion.hero
    assert hero is not None
    if any(0 in v.aval.shape for v in fusion.jaxpr.outvars):  # type: ignore[attr-defined]
        return fusion.finish()
    if isinstance(hero.primitive, WindowReduction):
        _emit_reduction(fusion, get_windows(hero, hero.invars[0]))
    else:
        CHOICES[hero.primitive](fusion, hero)
    return fusion.finish()


def get_windows(hero: Any, operand: Any) -> list[Window]:
    """Return the windows over an operand of the hero."""
    params = {key: hero.params[key] for key in WINDOW_PARAMETERS if key in hero.params}
    return geometry(operand.aval.shape, **params)


def window_sizes(windows: Sequence[Any]) -> list[int]:
    """Return the number of elements of a window along each dimension."""
    return [int(w.window) for w in windows]


def window_counts(windows: Sequence[Any]) -> list[int]:
    """Return the number of windows along each dimension."""
    return [int(w.count) for w in windows]


def element(writer: KernelWriter, atom: Any, index: Sequence[Index], valid: Value | None, otherwise: Any) -> Value:
    """Read an element of an operand of the hero, `otherwise` where the condition does not hold."""
    if isinstance(atom, Literal):
        return writer.literal(atom)
    k, dtype = writer.k, storage(atom)
    rest = None if valid is None else k.constant(otherwise, dtype)
    return k.load(writer.argument(atom), row_major(atom.aval.shape, tuple(index)), valid, rest)


def store_at(writer: KernelWriter, at: WindowVisit, value: Value) -> None:
    """Write the results at a window (an element) for which the hero has a value."""
    hero = writer.fusion.hero
    assert hero is not None
    (result,) = hero.outvars
    index = tuple(i for i, d in zip(at.index, result.aval.shape, strict=True) if d != 1)  # type: ignore[attr-defined]
    writer.values.overrides[result] = value
    writer.store_results(index)
    del writer.values.overrides[result]


# ----------------------------------------------------------------------------------------------------------- reductions


def _emit_reduction(fusion: Fusion, windows: list[Window]) -> None:
    """Emit one kernel, or one for each dimension that is reduced if that is much less work; sums between them stay
    wide.
    """
    hero = fusion.hero
    assert hero is not None
    primitive: Any = hero.primitive
    (operand,) = hero.invars
    wide = dtypes.accumulation_dtype(storage(operand))
    stages = _stages(windows, 1 if primitive.operation == "add" else EXTREMUM)
    source: int | None = None
    for i, stage in enumerate(stages):
        last = i == len(stages) - 1
        target = None if last else fusion.new_scratch(wide, prod(window_counts(stage)))
        _reduce_stage(fusion, stage, source, target)
        source = target


def _stages(windows: list[Window], cost: int) -> list[list[Window]]:
    """Return the windows, or windows over one dimension after the other, each over the results of those before;
    `cost` is that of combining one element.
    """
    windowed = [axis for axis, window in enumerate(windows) if window[1:] != (1, 1, 0, 0, 1, 1)]
    stages, shape = [], [w.size for w in windows]
    for axis in windowed:
        stage = [Window(size, 1, 1, 0, 0, 1, 1) for size in shape]
        stage[axis] = windows[axis]
        shape[axis] = windows[axis].count
        stages.append(stage)
    together = prod(window_counts(windows)) * prod(window_sizes(windows)) * cost
    apart = sum(prod(window_counts(stage)) * (SEPARATED + prod(window_sizes(stage)) * cost) for stage in stages)
    return stages if len(stages) > 1 and 2 * together > 3 * apart else [windows]


def _reduce_stage(fusion: Fusion, windows: list[Window], source: int | None, target: int | None) -> None:
    """Reduce windows over the operand, or over what is in scratch, into the results or into scratch."""
    hero = fusion.hero
    assert hero is not None
    primitive: Any = hero.primitive
    (operand,) = hero.invars
    writer = fusion.writer("window")
    k, exact = writer.k, storage(operand)
    wide, neutral = dtypes.accumulation_dtype(exact), np.asarray(primitive.initial(exact))
    start = k.constant(neutral.astype(wide), wide)
    # Adding -0 changes nothing; adding 0 changes -0.
    adds = primitive.operation == "add" and dtypes.kind(wide) in "fc"
    empty = k.constant(-np.zeros((), wide), wide) if adds else start
    elements = prod(window_sizes(windows))

    def value_at(position: Sequence[Index], valid: Value | None) -> Value:
        if source is None:
            return k.scalars.convert(element(writer, operand, position, valid, neutral), wide)
        index = row_major([int(w.size) for w in windows], position)
        return k.load(writer.scratch_input(source), index, valid, None if valid is None else start)

    def step(now: Sequence[Value], tap: Sequence[Index], at: WindowVisit) -> list[Value]:
        value = value_at(at.operand_index(tap), at.is_valid(k, tap))
        # The first element of a window is its result so far.
        return [value if now[0] is empty else k.compute(primitive.operation, now[0], value)]

    def body(at: WindowVisit) -> None:
        # Gaps between elements of a dilated operand add 0.
        begin = empty if at.count == elements else start
        (total,) = reduce_taps(k, at, [begin], lambda now, tap: step(now, tap, at))
        if target is None:
            store_at(writer, at, k.scalars.convert(total, exact))
        else:
            k.store(writer.scratch(target), row_major(window_counts(windows), at.index), total)

    visit(k, windows, writer.lanes, body)


# -------------------------------------------------------------------------------------------------------------- choice


def get_keeps(k: KernelBuilder, hero: Any) -> Keeps:
    """Return the hero's predicate that decides whether the element chosen so far stays."""
    if hero.primitive is select_and_scatter:
        jaxpr = hero.params["select_jaxpr"]
        return lambda a, b: run_on_scalars(k, jaxpr, [a, b])[0]
    return lambda a, b: k.compute(hero.params["select_prim"].name, a, b)


def choose(
    writer: KernelWriter,
    at: WindowVisit,
    operand: Any,
    keeps: Keeps,
    payload_at: Callable[[Sequence[Index], Value | None], Value],
    none: Value,
) -> tuple[Value, Value]:
    """Visit the taps of a window; return whether it has an element, and the payload of the chosen one (else `none`)."""
    k = writer.k
    dtype = storage(operand)
    no, yes = k.constant(False, BOOL), k.constant(True, BOOL)

    def step(now: Sequence[Value], tap: Sequence[Index]) -> list[Value]:
        found, best, payload = now
        valid = at.is_valid(k, tap)
        value, new_payload = (
            element(writer, operand, at.operand_index(tap), valid, np.zeros((), dtype)),
            payload_at(tap, valid),
        )
        if found is no:
            # The first one is chosen if it is valid; else, its value does not matter.
            return [yes if valid is None else valid, value, new_payload]
        replaces = k.compute("not", keeps(best, value))
        if found is not yes:
            replaces = k.compute("or", replaces, k.compute("not", found))
        if valid is not None:
            replaces = k.compute("and", replaces, valid)
        chosen = [k.compute("select_n", replaces, a, b) for a, b in ((best, value), (payload, new_payload))]
        if found is not yes:
            found = yes if valid is None else k.compute("or", found, valid)
        return [found, *chosen]

    start = [no, k.constant(0, dtype), none]
    found, _, payload = reduce_taps(k, at, start, step)
    return found, payload if found is yes else k.compute("select_n", found, none, payload)


def _emit_chosen(fusion: Fusion, windows: list[Window]) -> None:
    """Emit the kernel that reads one operand at the index of the element chosen in the other."""
    hero = fusion.hero
    assert hero is not None
    tangents, operand = hero.invars
    writer = fusion.writer("window_choice")
    k = writer.k
    zero = np.zeros((), storage(tangents))

    def body(at: WindowVisit) -> None:
        def payload_at(tap: Sequence[Index], valid: Value | None) -> Value:
            return element(writer, tangents, at.operand_index(tap), valid, zero)

        _, payload = choose(writer, at, operand, get_keeps(k, hero), payload_at, k.constant(zero, zero.dtype))
        store_at(writer, at, payload)

    visit(k, windows, writer.lanes, body)


# ------------------------------------------------------------------------------------------------ adding to the chosen


def _emit_scatter(fusion: Fusion, windows: list[Window], source: Any, operand: Any, initial: Any = None) -> None:
    """Scatter each source element to the index of the element that its window chose."""
    hero = fusion.hero
    assert hero is not None
    sizes, counts = window_sizes(windows), window_counts(windows)
    # Index of the element that each window selected, -1 for none.
    choice_dtype = dtypes.DTYPES["int8"] if prod(sizes) <= 127 else INDEX
    scratch = fusion.new_scratch(choice_dtype, prod(counts))
    if prod(counts):
        _write_choices(fusion, windows, operand, scratch, choice_dtype)

    writer = fusion.writer("window_scatter")
    k, exact = writer.k, storage(source)
    wide = exact if initial is not None else dtypes.accumulation_dtype(exact)
    none = k.constant(-1, choice_dtype)

    def step(now: Sequence[Value], tap: Sequence[Index], at: WindowVisit) -> list[Value]:
        valid, source_index = at.is_valid(k, tap), at.operand_index(tap)
        choices = writer.scratch_input(scratch)
        choice = k.load(choices, row_major(counts, source_index), valid, None if valid is None else none)
        own = [Index(size - 1) - i for size, i in zip(sizes, at.elements(tap), strict=True)]
        hit = k.compute("eq", choice, k.scalars.convert(k.position(row_major(sizes, own), INDEX), choice_dtype))
        if at.running and valid is not None:
            # Such taps may be beyond the window, where their index is meaningless.
            hit = k.compute("and", hit, valid)
        value = k.scalars.convert(element(writer, source, source_index, hit, np.zeros((), exact)), wide)
        if initial is None:
            return [k.compute("add", now[0], value)]
        (changed,) = run_on_scalars(k, hero.params["scatter_jaxpr"], [now[0], value])
        return [k.compute("select_n", hit, now[0], changed)]

    def body(at: WindowVisit) -> None:
        start = k.constant(0, wide) if initial is None else writer.values.at(initial, ())
        (total,) = reduce_taps(k, at, [start], lambda now, tap: step(now, tap, at))
        store_at(writer, at, k.scalars.convert(total, exact))

    visit(k, [transpose(w) for w in windows], writer.lanes, body)


def _write_choices(fusion: Fusion, windows: list[Window], operand: Any, scratch: int, choice_dtype: Any) -> None:
    sizes, counts = window_sizes(windows), window_counts(windows)
    writer = fusion.writer("window_choices")
    k = writer.k

    def body(at: WindowVisit) -> None:
        def payload_at(tap: Sequence[Index], valid: Value | None) -> Value:
            return k.scalars.convert(k.position(row_major(sizes, at.elements(tap)), INDEX), choice_dtype)

        _, choice = choose(writer, at, operand, get_keeps(k, fusion.hero), payload_at, k.constant(-1, choice_dtype))
        k.store(writer.scratch(scratch), row_major(counts, at.index), choice)

    visit(k, windows, writer.lanes, body)


def _gather_add(fusion: Fusion, hero: Equation) -> None:
    _emit_chosen(fusion, get_windows(hero, hero.invars[1]))


def _scatter_add(fusion: Fusion, hero: Equation) -> None:
    source, operand = hero.invars
    _emit_scatter(fusion, get_windows(hero, operand), source, operand)


def _scatter(fusion: Fusion, hero: Equation) -> None:
    operand, source, initial = hero.invars
    _emit_scatter(fusion, get_windows(hero, operand), source, operand, initial)


# Choices of one element in each window.
CHOICES: dict[Any, Callable[[Fusion, Equation], None]] = {
    select_and_gather_add: _gather_add,
    select_and_scatter: _scatter,
    select_and_scatter_add: _scatter_add,
}
