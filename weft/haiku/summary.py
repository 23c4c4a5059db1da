"""Tables of the modules that a function calls: parameters, inputs and outputs, without computing anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.haiku.data_structures import tree_bytes, tree_size
from weft.haiku.module import MethodContext, intercept_methods
from weft.haiku.transform import original_function, transform_with_state

_SHORT = {"float": "f", "bfloat": "bf", "int": "s", "uint": "u", "bool": "pred", "complex": "c"}


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array."""

    shape: Sequence[int]
    dtype: Any

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    def __str__(self) -> str:
        name = str(self.dtype)
        word = name.rstrip("0123456789")
        return f"{_SHORT.get(word, word)}{name[len(word) :]}[{','.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True)
class ModuleDetails:
    """A module at the time of a call, with parameters and state of it and its submodules."""

    module: Any
    method_name: str
    params: Mapping[str, ArraySpec]
    state: Mapping[str, ArraySpec]


@dataclasses.dataclass(frozen=True)
class MethodInvocation:
    """One call of a method: inputs, outputs, and the modules whose methods were running."""

    module_details: ModuleDetails
    args_spec: Any
    kwargs_spec: Any
    output_spec: Any
    context: MethodContext
    call_stack: Sequence[ModuleDetails]


def _spec(tree: Any) -> Any:
    def one(leaf: Any) -> Any:
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            return ArraySpec(tuple(leaf.shape), leaf.dtype)
        return leaf

    return weft.tree.map(one, tree)


def _details(context: MethodContext) -> ModuleDetails:
    module = context.module
    has_name = hasattr(module, "module_name")
    params = _spec(module.params_dict()) if has_name else {}
    state = _spec(module.state_dict()) if has_name else {}
    return ModuleDetails(module, context.method_name, params, state)


def eval_shapes(fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return `weft.eval_shape`, passing arguments that are not arrays unchanged."""
    leaves, tree = weft.tree.flatten((args, kwargs))
    is_array = [hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves]

    def run(arrays: list[Any]) -> Any:
        remaining = iter(arrays)
        whole = [next(remaining) if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]
        positional, named = weft.tree.unflatten(tree, whole)
        return fun(*positional, **named)

    return weft.eval_shape(run, [leaf for leaf, array in zip(leaves, is_array, strict=True) if array])


def eval_summary(f: Any) -> Callable[..., Sequence[MethodInvocation]]:
    """Return a function that returns the calls of methods that `f` makes for given arguments, in order of start."""
    original = original_function(f)
    # The lambda hides that a function is jitted: it must run without jit, so that its modules are seen.
    transformed = transform_with_state(lambda *args, **kwargs: original(*args, **kwargs))

    def run(*args: Any, **kwargs: Any) -> Sequence[MethodInvocation]:
        found: list[MethodInvocation | None] = []
        running: list[MethodContext] = []

        def record(following: Callable[..., Any], args: Any, kwargs: Any, context: MethodContext) -> Any:
            if context.method_name == "__init__":
                return following(*args, **kwargs)
            index = len(found)
            found.append(None)
            running.append(context)
            try:
                output = following(*args, **kwargs)
            finally:
                stack = [_details(one) for one in running]
                running.pop()
            found[index] = MethodInvocation(stack[-1], _spec(args), _spec(kwargs), _spec(output), context, tuple(stack))
            return output

        with intercept_methods(record), weft.disable_jit():
            eval_shapes(transformed.init, (weft.random.PRNGKey(42), *args), kwargs)
        return tuple(one for one in found if one is not None)

    return run


# -------------------------------------------------------------------------------------------------------------- tables


def _format_specs(specs: Any) -> str:
    return "\n".join(str(leaf) for leaf in weft.tree.leaves(specs) if isinstance(leaf, ArraySpec))


def _module(call: MethodInvocation) -> str:
    lines = []
    for depth, details in enumerate(reversed(call.call_stack)):
        module = details.module
        method = "" if details.method_name == "__call__" else f".{details.method_name}"
        mark = f"{' ' * depth}└ " if depth else ""
        lines.append(f"{mark}{module.module_name}{method} ({type(module).__name__})")
    return "\n".join(lines)


def _format_owned(call: MethodInvocation) -> str:
    path = call.module_details.module.module_name
    names = {full.rpartition("/")[2]: spec for full, spec in call.module_details.params.items()
             if full.rpartition("/")[0] == path}  # fmt: skip
    return "\n".join(f"{name}: {spec}" for name, spec in names.items())


def _readable(count: int) -> str:
    amount, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.2f} {unit}"


_COLUMNS: dict[str, tuple[str, Callable[[MethodInvocation], str]]] = {
    "module": ("Module", _module),
    "config": ("Config", lambda call: repr(call.module_details.module)),
    "owned_params": ("Module params", _format_owned),
    "input": ("Input", lambda call: _format_specs((call.args_spec, call.kwargs_spec))),
    "output": ("Output", lambda call: _format_specs(call.output_spec)),
    "params_size": ("Param count", lambda call: f"{tree_size(dict(call.module_details.params)):,}"),
    "params_bytes": ("Param bytes", lambda call: _readable(tree_bytes(dict(call.module_details.params)))),
}
_FILTERS: dict[str, Callable[[MethodInvocation], bool]] = {
    "has_output": lambda call: bool(_format_specs(call.output_spec)),
    "has_params": lambda call: bool(call.module_details.params),
}


def tabulate(
    f: Any,
    *,
    columns: Sequence[str] | None = (
        "module",
        "config",
        "owned_params",
        "input",
        "output",
        "params_size",
        "params_bytes",
    ),
    filters: Sequence[str] | None = ("has_output",),
    tabulate_kwargs: Mapping[str, Any] = {"tablefmt": "grid"},
) -> Callable[..., str]:
    """Return a function that returns a table of the calls of methods that `f` makes for given arguments."""
    for what, names, known in (("column", columns, _COLUMNS), ("filter", filters, _FILTERS)):
        for name in names or ():
            if name not in known:
                raise ArgumentError(f"tabulate has no {what} {name!r}; there are {', '.join(known)}.")
    chosen = list(_COLUMNS) if columns is None else list(columns)
    style = tabulate_kwargs.get("tablefmt", "grid")

    def run(*args: Any, **kwargs: Any) -> str:
        calls = [
            call for call in eval_summary(f)(*args, **kwargs) if all(_FILTERS[name](call) for name in filters or ())
        ]
        head = [_COLUMNS[name][0] for name in chosen]
        return _table(head, [[_COLUMNS[name][1](call) for name in chosen] for call in calls], style)

    return run


def _table(head: list[str], rows: list[list[str]], style: str) -> str:
    """Format cells of several lines in columns; 'grid' draws lines between them, 'plain' does not."""
    if style not in ("grid", "plain"):
        raise ArgumentError(f"tabulate knows tablefmt 'grid' and 'plain', got {style!r}.")
    cells = [[text.split("\n") for text in row] for row in (head, *rows)]
    widths = [max(len(line) for row in cells for line in row[column]) for column in range(len(head))]

    def line(mark: str) -> str:
        return "+" + "+".join(mark * (width + 2) for width in widths) + "+"

    lines = [line("-")] if style == "grid" else []
    for i, row in enumerate(cells):
        for level in range(max(map(len, row))):
            parts = [
                (cell[level] if level < len(cell) else "").ljust(width) for cell, width in zip(row, widths, strict=True)
            ]
            lines.append("| " + " | ".join(parts) + " |" if style == "grid" else "  ".join(parts).rstrip())
        if style == "grid":
            lines.append(line("-" if i else "="))
    return "\n".join(lines)
