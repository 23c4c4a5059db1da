"""Tables of modules: each submodule that a call uses, with inputs, outputs and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft.errors import suggest as _suggest
from weft.linen.module import TABULATE, Module
from weft.linen.state import intercept_methods
from weft.modules.filters import DenyList, Filter
from weft.modules.metadata import unbox


@dataclass
class Row:
    """One call of a module.

    `counted_variables` are the variables that no earlier row has counted. `flops` and `vjp_flops` are -1 if not
    requested.
    """

    path: tuple[str, ...]
    module_copy: Module
    method: str
    inputs: Any
    outputs: Any
    module_variables: dict[str, dict[str, Any]]
    counted_variables: dict[str, dict[str, Any]]
    flops: int = -1
    vjp_flops: int = -1

    def size_and_bytes(self, collections: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return for each collection the number of elements that this row counts, and their size in bytes."""
        return {name: _size_and_bytes(self.counted_variables.get(name, {})) for name in collections}


class Table(list[Row]):
    """The rows of a module, in the order of its calls."""

    def __init__(self, module: Module, collections: list[str], rows: Iterable[Row], counts: Sequence[str] = ()):
        super().__init__(rows)
        self.module = module
        self.collections = collections
        self.counts = tuple(counts)  # "flops" and "vjp_flops" if requested


def _size_and_bytes(tree: Any) -> tuple[int, int]:
    leaves = [leaf for leaf in weft.tree.leaves(unbox(tree)) if hasattr(leaf, "shape")]
    sizes = [(int(wnp.size(leaf)) if not hasattr(leaf, "size") else int(leaf.size), leaf) for leaf in leaves]
    return sum(size for size, _ in sizes), sum(size * _itemsize(leaf) for size, leaf in sizes)


def _itemsize(leaf: Any) -> int:
    return getattr(leaf.dtype, "itemsize", 8)


def tabulate(
    module: Module,
    rngs: Any,
    depth: int | None = None,
    show_repeated: bool = False,
    mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
    console_kwargs: Mapping[str, Any] | None = None,
    table_kwargs: Mapping[str, Any] | None = None,
    column_kwargs: Mapping[str, Any] | None = None,
    compute_flops: bool = False,
    compute_vjp_flops: bool = False,
    **kwargs: Any,
) -> Callable[..., str]:
    """Return a function of the module's arguments that returns the table as text. Nothing is computed.

    `depth` limits the depth of submodules with rows of their own, `show_repeated` adds a row for each call of a module,
    and `console_kwargs={'width': n}` cuts lines at n characters.

    `compute_flops` adds a column with the operations of each call, `compute_vjp_flops` one with those of its value and
    gradient together (0 without a gradient), according to `weft.jit(f).lower(...).cost_analysis()` of the call alone: a
    multiplication and an addition are two operations, windows over padding count in full, and transcendental functions
    do not count. The programs are compiled but not run.
    """

    def table_text(*args: Any, **call_kwargs: Any) -> str:
        rows = make_table(module, rngs, depth, show_repeated, mutable, compute_flops, compute_vjp_flops)
        table = rows(*args, **{**kwargs, **call_kwargs})
        text = _render(table)
        width = (console_kwargs or {}).get("width")
        return "\n".join(line[:width] for line in text.split("\n")) if width else text

    return table_text


class _Call(NamedTuple):
    """The record of a call while the module is traced, with types in place of arrays."""

    path: tuple[str, ...]
    module: Module
    method: str
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    result: Any


def make_table(
    module: Module,
    rngs: Any,
    depth: int | None = None,
    show_repeated: bool = False,
    mutable: Filter = True,
    compute_flops: bool = False,
    compute_vjp_flops: bool = False,
) -> Callable[..., Table]:
    """Return a function of the module's arguments that returns the table."""

    def table(*args: Any, **kwargs: Any) -> Table:
        calls, variables = _record_calls(lambda rngs: module.init(rngs, *args, mutable=mutable, **kwargs), rngs)
        shown = [call for call in calls if depth is None or len(call.path) <= depth]
        paths = [call.path for call in shown]
        rows: list[Row] = []
        seen: set[tuple[str, ...]] = set()
        for call in shown:
            if call.path in seen and not show_repeated:
                continue
            row = _make_row(call, variables, paths, repeated=call.path in seen)
            if compute_flops:
                row.flops = _flops(call, rngs, mutable, gradient=False)
            if compute_vjp_flops:
                row.vjp_flops = _flops(call, rngs, mutable, gradient=True)
            rows.append(row)
            seen.add(call.path)
        counts = [name for name, enabled in (("flops", compute_flops), ("vjp_flops", compute_vjp_flops)) if enabled]
        return Table(module, sorted(variables), rows, counts)

    return table


def _record_calls(init: Callable[[Any], Any], rngs: Any) -> tuple[list[_Call], Any]:
    """Return the calls of modules that `init` makes, each before those of its submodules, and the types of
    variables.
    """
    calls: list[_Call | None] = []

    def note(proceed: Any, call_args: Any, call_kwargs: Any, context: Any) -> Any:
        # Lifted functions of modules are intercepted too, but they are not methods and have no rows.
        if context.method_name == "setup" or not hasattr(type(context.module), context.method_name):
            return proceed(*call_args, **call_kwargs)
        index = len(calls)
        calls.append(None)
        result = proceed(*call_args, **call_kwargs)
        types = weft.tree.map(_struct, ((call_args, call_kwargs), result))
        copy = context.module.clone(_deep_clone=True)
        calls[index] = _Call(context.module.path, copy, context.method_name, *types)
        return result

    with intercept_methods(note):
        variables = weft.eval_shape(init, rngs)
    return [call for call in calls if call is not None], variables


def _make_row(call: _Call, variables: Any, paths: list[tuple[str, ...]], repeated: bool) -> Row:
    """Return the row of a call. The variables of a module are counted in its first row."""
    own = {name: _own(variables[name], call.path, paths) for name in variables}
    own = {name: tree for name, tree in own.items() if tree}
    call_args, call_kwargs = weft.tree.map(_type, call.arguments)
    shown = (*call_args, call_kwargs) if call_kwargs else call_args
    inputs = shown[0] if len(shown) == 1 else shown
    outputs = weft.tree.map(_type, call.result)
    return Row(call.path, call.module, call.method, inputs, outputs, own, {} if repeated else own)


def _struct(leaf: Any) -> Any:
    """Return the type of an array; other values unchanged."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return weft.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return leaf


def _is_struct(leaf: Any) -> bool:
    return isinstance(leaf, weft.ShapeDtypeStruct)


def _has_derivative(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and weft.dtypes.issubdtype(leaf.dtype, wnp.inexact)


def _flops(call: _Call, rngs: Any, mutable: Filter, gradient: bool) -> int:
    """Return the operations of one call, compiled as a program of its own."""
    leaves, structure = weft.tree.flatten(call.arguments)
    arrays = [leaf for leaf in leaves if _is_struct(leaf)]

    def arguments(arrays: Sequence[Any]) -> Any:
        inputs = iter(arrays)
        return weft.tree.unflatten(structure, [next(inputs) if _is_struct(leaf) else leaf for leaf in leaves])

    def init(rngs: Any, arrays: Sequence[Any]) -> Any:
        args, kwargs = arguments(arrays)
        return call.module.init(rngs, *args, method=call.method, mutable=mutable, **kwargs)

    def apply(variables: Any, rngs: Any, arrays: Sequence[Any]) -> Any:
        args, kwargs = arguments(arrays)
        streams = rngs if isinstance(rngs, Mapping) else {"params": rngs}
        return call.module.apply(variables, *args, rngs=streams, method=call.method, mutable=mutable, **kwargs)

    variables = weft.eval_shape(init, rngs, arrays)
    if not gradient:
        return _count_flops(apply, variables, rngs, arrays)
    inputs, tree = weft.tree.flatten((variables, arrays))
    moving = [leaf for leaf in inputs if _has_derivative(leaf)]
    fixed = [leaf for leaf in inputs if not _has_derivative(leaf)]
    results = weft.tree.leaves(weft.eval_shape(apply, variables, rngs, arrays))
    if not moving or not any(_has_derivative(leaf) for leaf in results):
        return 0

    def value_and_gradient(moving: Sequence[Any], fixed: Sequence[Any], rngs: Any) -> Any:
        def value(*moving: Any) -> list[Any]:
            still, changing = iter(fixed), iter(moving)
            variables, arrays = weft.tree.unflatten(
                tree, [next(changing) if _has_derivative(leaf) else next(still) for leaf in inputs]
            )
            return [leaf for leaf in weft.tree.leaves(apply(variables, rngs, arrays)) if _has_derivative(leaf)]

        result, pullback = weft.vjp(value, *moving)
        return result, pullback(result)

    return _count_flops(value_and_gradient, moving, fixed, rngs)


def _count_flops(function: Callable[..., Any], *args: Any) -> int:
    return int(weft.jit(function).lower(*args).cost_analysis()["flops"])


def _own(tree: Any, path: tuple[str, ...], others: list[tuple[str, ...]]) -> Any:
    """Return the variables at a path, without those that rows of submodules show."""
    for part in path:
        tree = tree.get(part, {}) if isinstance(tree, Mapping) else {}
    if not isinstance(tree, Mapping):
        return {}
    out = {}
    for key, value in tree.items():
        if (*path, key) in others:
            continue
        if isinstance(value, Mapping):
            value = _own(
                value, (), [other[len(path) + 1 :] for other in others if other[: len(path) + 1] == (*path, key)]
            )
            if not value:
                continue
        out[key] = value
    return out


def _type(leaf: Any) -> Any:
    """Describe an array as `float32[8,4]`; return other values unchanged."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return _Shown(f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]")
    return _Shown(repr(leaf))


class _Shown(str):
    """Text whose repr has no quotes."""

    def __repr__(self) -> str:
        return str(self)


def _lines(value: Any, indent: int = 0) -> list[str]:
    """Format a value as lines: dicts by key, sequences as lists with dashes."""
    pad = " " * indent
    if isinstance(value, Mapping):
        lines = []
        for key, one in value.items():
            inner = _lines(one, indent + 2)
            lines += [f"{pad}{key}: {inner[0].strip()}"] if len(inner) == 1 else [f"{pad}{key}:", *inner]
        return lines
    if isinstance(value, (list, tuple)):
        return [f"{pad}- {_lines(one)[0] if _lines(one) else ''}" for one in value]
    return [f"{pad}{value}"]


def _amount(size: int, memory: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if memory >= factor:
            return f"{size:,} ({memory / factor:,.1f} {unit})"
    return f"{size:,} ({memory:,} B)"


def _render(table: Table) -> str:
    """Format the table as text in a box of lines."""
    header = ["path", "module", "inputs", "outputs", *table.counts, *table.collections]
    body: list[list[list[str]]] = []
    for row in table:
        name = type(row.module_copy).__name__ + ("" if row.method == "__call__" else f".{row.method}")
        cells = [["/".join(row.path)], [name], _lines(row.inputs), _lines(row.outputs)]
        cells += [[str(getattr(row, count))] for count in table.counts]
        for collection in table.collections:
            shown = weft.tree.map(_type, unbox(row.module_variables.get(collection, {})))
            lines = _lines(shown)
            size = row.size_and_bytes([collection])[collection]
            cells.append([*lines, "", _amount(*size)] if size[0] else lines)
        body.append(cells)
    totals = [_total(table, name) for name in table.collections]
    blank = [[""]] * (len(header) - len(totals) - 1)
    body.append([*blank, ["Total"], *([_amount(*total)] for total in totals)])
    columns = [[[name], *(row[i] for row in body)] for i, name in enumerate(header)]
    widths = [max(len(line) for cell in column for line in cell or [""]) for column in columns]

    def rule(left: str, middle: str, right: str, stroke: str) -> str:
        return left + middle.join(stroke * (width + 2) for width in widths) + right

    def block(cells: list[list[str]]) -> list[str]:
        height = max(len(cell) for cell in cells)
        padded = [[*cell, *[""] * (height - len(cell))] for cell in cells]
        rows = (zip(line, widths, strict=True) for line in zip(*padded, strict=True))
        return ["│" + "│".join(f" {text:<{width}} " for text, width in row) + "│" for row in rows]

    lines = [f"{type(table.module).__name__} Summary", rule("┌", "┬", "┐", "─"), *block([[name] for name in header])]
    for cells in body:
        lines += [rule("├", "┼", "┤", "─"), *block(cells)]
    lines.append(rule("└", "┴", "┘", "─"))
    whole = (sum(size for size, _ in totals), sum(memory for _, memory in totals))
    return "\n" + "\n".join([*lines, "", f"Total Parameters: {_amount(*whole)}"]) + "\n"


def _total(table: Table, collection: str) -> tuple[int, int]:
    parts = [row.size_and_bytes([collection])[collection] for row in table]
    return sum(size for size, _ in parts), sum(memory for _, memory in parts)


TABULATE.append(tabulate)

_suggest(__name__)
