"""A table of a module: every submodule that a call meets, with inputs, outputs and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import weft
import weft.numpy as wnp
from weft.linen.module import TABULATE, Module
from weft.linen.state import intercept_methods
from weft.modules.filters import DenyList, Filter
from weft.modules.metadata import unbox


@dataclass
class Row:
    """One call of a module. `counted_variables` are those that no earlier row has counted."""

    path: tuple[str, ...]
    module_copy: Module
    method: str
    inputs: Any
    outputs: Any
    module_variables: dict[str, dict[str, Any]]
    counted_variables: dict[str, dict[str, Any]]
    flops: int = 0
    vjp_flops: int = 0

    def size_and_bytes(self, collections: Iterable[str]) -> dict[str, tuple[int, int]]:
        """For each collection, how many numbers this row counts, and in how many bytes."""
        return {name: _size_and_bytes(self.counted_variables.get(name, {})) for name in collections}


class Table(list[Row]):
    """The rows of a module, in the order of the calls."""

    def __init__(self, module: Module, collections: list[str], rows: Iterable[Row]):
        super().__init__(rows)
        self.module = module
        self.collections = collections


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
    """A function of the module's arguments that returns the table as text; nothing is computed.

    `depth` limits how deep submodules have rows of their own, `show_repeated` shows a module for each of its calls.
    `console_kwargs={'width': n}` cuts lines at n characters.
    """
    if compute_flops or compute_vjp_flops:
        raise NotImplementedError("tabulate does not count operations; weft.jit(f).lower(...).cost_analysis() does.")

    def written(*args: Any, **call_kwargs: Any) -> str:
        table = table_of(module, rngs, depth, show_repeated, mutable)(*args, **{**kwargs, **call_kwargs})
        text = _render(table)
        width = (console_kwargs or {}).get("width")
        return "\n".join(line[:width] for line in text.split("\n")) if width else text

    return written


def table_of(
    module: Module, rngs: Any, depth: int | None = None, show_repeated: bool = False, mutable: Filter = True
) -> Callable[..., Table]:
    """A function of the module's arguments that returns the rows."""

    def made(*args: Any, **kwargs: Any) -> Table:
        calls: list[tuple[tuple[str, ...], Module, str, Any, Any]] = []

        def note(proceed: Any, call_args: Any, call_kwargs: Any, context: Any) -> Any:
            place = len(calls)
            calls.append(((), context.module, "", None, None))
            result = proceed(*call_args, **call_kwargs)
            shown = (*call_args, call_kwargs) if call_kwargs else call_args
            types = weft.tree.map(_type, (shown, result))
            calls[place] = (context.module.path, context.module.clone(), context.method_name, *types)
            return result

        def run(rngs: Any) -> Any:
            return module.init(rngs, *args, mutable=mutable, **kwargs)

        with intercept_methods(note):
            variables = weft.eval_shape(run, rngs)
        keep = [call for call in calls if depth is None or len(call[0]) <= depth]
        paths = [call[0] for call in keep]
        rows, seen = [], set()
        for path, copy, method, inputs, outputs in keep:
            if path in seen and not show_repeated:
                continue
            own = {name: _own(variables[name], path, paths) for name in variables}
            own = {name: tree for name, tree in own.items() if tree}
            shown = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
            rows.append(Row(path, copy, method, shown, outputs, own, {} if path in seen else own))
            seen.add(path)
        return Table(module, sorted(variables), rows)

    return made


def _own(tree: Any, path: tuple[str, ...], others: list[tuple[str, ...]]) -> Any:
    """The variables at a path, without those below that another row shows."""
    for part in path:
        tree = tree.get(part, {}) if isinstance(tree, Mapping) else {}
    if not isinstance(tree, Mapping):
        return {}
    made = {}
    for key, value in tree.items():
        if (*path, key) in others:
            continue
        if isinstance(value, Mapping):
            value = _own(
                value, (), [other[len(path) + 1 :] for other in others if other[: len(path) + 1] == (*path, key)]
            )
            if not value:
                continue
        made[key] = value
    return made


def _type(leaf: Any) -> Any:
    """`float32[8,4]` for an array, other values as they are."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return _Shown(f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]")
    return _Shown(repr(leaf))


class _Shown(str):
    """A text that prints without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _lines(value: Any, indent: int = 0) -> list[str]:
    """A value as lines: dicts by key, sequences by dash."""
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
    """The table as text, in a box of lines."""
    header = ["path", "module", "inputs", "outputs", *table.collections]
    body: list[list[list[str]]] = []
    for row in table:
        name = type(row.module_copy).__name__ + ("" if row.method == "__call__" else f".{row.method}")
        cells = [["/".join(row.path)], [name], _lines(row.inputs), _lines(row.outputs)]
        for collection in table.collections:
            shown = weft.tree.map(_type, unbox(row.module_variables.get(collection, {})))
            lines = _lines(shown)
            size = row.size_and_bytes([collection])[collection]
            cells.append([*lines, "", _amount(*size)] if size[0] else lines)
        body.append(cells)
    totals = [_total(table, name) for name in table.collections]
    body.append([[""], [""], [""], ["Total"], *([_amount(*total)] for total in totals)])
    columns = [[[name], *(row[number] for row in body)] for number, name in enumerate(header)]
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
