"""The computation of a model by module: operations with their types, floating-point operations and parameters."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.haiku.summary import ArraySpec


@dataclasses.dataclass
class Expression:
    """One operation, or with `submodule` the operations of a submodule."""

    primitive: str
    invars: str
    outvars: str
    flops: int | None = None
    details: str = ""
    params: dict[str, str] = dataclasses.field(default_factory=dict)
    submodule: Module | None = None
    first_outvar: str = ""
    name_stack: Sequence[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Module:
    """The operations and parameters of one module."""

    name: str
    flops: int | None = None
    expressions: list[Expression] = dataclasses.field(default_factory=list)
    total_param_size: int = 0
    param_info: dict[str, str] = dataclasses.field(default_factory=dict)
    total_state_size: int = 0
    state_info: dict[str, str] = dataclasses.field(default_factory=dict)


def _type(variable: Any) -> str:
    aval = getattr(variable, "aval", variable)
    return str(ArraySpec(tuple(aval.shape), aval.dtype)) if hasattr(aval, "shape") else str(aval)


def _flops(equation: Any) -> int:
    """Return the operations of an equation: two per multiplied pair of a contraction, else one per result element."""
    count = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
    if str(equation.primitive) in ("dot_general", "contract"):
        left = math.prod(equation.invars[0].aval.shape)
        right = math.prod(equation.invars[1].aval.shape)
        # Contracted sizes occur in both operands only, batch sizes in both and in the result.
        return 2 * math.isqrt(max(left * right * count, 0))
    return count


def make_model_info(
    f: Callable[..., Any],
    name: str | None = None,
    include_module_info: bool = True,
    compute_flops: Callable[[Any, Expression], int] | None = None,
    axis_env: Sequence[tuple[Any, int]] | None = None,
) -> Callable[..., Module]:
    """Return a function that returns the operations of `f` (such as `apply`) for given arguments."""
    if axis_env:
        raise ArgumentError("make_model_info takes no axis_env: put the function under weft.vmap with the axis name.")

    def run(*args: Any, **kwargs: Any) -> Module:
        jaxpr = weft.make_jaxpr(f)(*args, **kwargs)
        top = Module(name or str(getattr(f, "__name__", "model")), 0)
        modules: dict[tuple[str, ...], Module] = {(): top}
        for equation in jaxpr.eqns:
            stack = tuple(str(one) for one in equation.stack or ()) if include_module_info else ()
            expression = Expression(
                str(equation.primitive),
                ", ".join(_type(variable) for variable in equation.invars),
                ", ".join(_type(variable) for variable in equation.outvars),
                name_stack=list(stack),
                first_outvar=_type(equation.outvars[0]) if equation.outvars else "",
                params={key: str(value) for key, value in equation.params.items()},
            )
            expression.flops = _flops(equation) if compute_flops is None else compute_flops(equation, expression)
            _at(modules, stack).expressions.append(expression)
            for depth in range(len(stack) + 1):
                module = modules[stack[:depth]]
                module.flops = (module.flops or 0) + (expression.flops or 0)
        _own(top, modules, args)
        return top

    return run


def _at(modules: dict[tuple[str, ...], Module], stack: tuple[str, ...]) -> Module:
    """Return the module at a path of names; create it and its parents if missing."""
    if stack not in modules:
        module = modules[stack] = Module(stack[-1], 0)
        _at(modules, stack[:-1]).expressions.append(Expression(stack[-1], "", "", submodule=module, name_stack=stack))
    return modules[stack]


def _own(top: Module, modules: dict[tuple[str, ...], Module], args: Any) -> None:
    """Assign parameters, the first argument of `apply`, to the modules whose names end their paths."""
    if not args or not isinstance(args[0], dict):
        return
    for path, values in args[0].items():
        if not isinstance(values, dict):
            return
        sizes = {f"{path}/{name}": value for name, value in values.items() if hasattr(value, "shape")}
        total = sum(math.prod(value.shape) for value in sizes.values())
        top.total_param_size += total
        parts = tuple(part for part in path.split("/") if not part.startswith("~"))
        module = modules.get(parts, top)
        if module is not top:
            module.total_param_size += total
        module.param_info.update({full: str(ArraySpec(value.shape, value.dtype)) for full, value in sizes.items()})


def format_module(module: Module, depth: int = 0) -> str:
    """Format a module and its submodules as indented text."""
    space = " " * depth
    lines = [f"{space}{module.name}: {module.flops or 0:,} flops, {module.total_param_size:,} parameters"]
    for expression in module.expressions:
        if expression.submodule is not None:
            lines.append(format_module(expression.submodule, depth + 2).rstrip("\n"))
        else:
            lines.append(f"{space}  {expression.outvars} = {expression.primitive}({expression.invars})")
    return "\n".join(lines) + "\n"


def as_html(module: Module, min_flop: int = 1000, outvars: str = "", last: bool = False) -> str:
    """Format a module and its submodules as nested lists, without operations of fewer than `min_flop` operations."""
    rows = []
    for i, expression in enumerate(module.expressions):
        is_last = i == len(module.expressions) - 1
        if expression.submodule is not None:
            rows.append(as_html(expression.submodule, min_flop, expression.outvars, is_last))
        elif (expression.flops or 0) >= min_flop:
            text = html.escape(f"{expression.outvars} = {expression.primitive}({expression.invars})")
            rows.append(f'<li class="operation">{text} <span>{expression.flops:,} flops</span></li>')
    head = html.escape(f"{outvars + ' = ' if outvars else ''}{module.name}")
    count = f"{module.flops or 0:,} flops, {module.total_param_size:,} parameters"
    kind = "module last" if last else "module"
    inside = "".join(rows)
    summary = f"<summary>{head} <span>{count}</span></summary>"
    return f'<li class="{kind}"><details open>{summary}<ul>{inside}</ul></details></li>'


def as_html_page(module: Module, min_flop: int = 1000) -> str:
    """Return an HTML page with `as_html`."""
    return (
        f"<!doctype html><html><head><meta charset='utf-8'><title>{html.escape(module.name)}</title>"
        f"<style>{css()}</style></head><body><ul>{as_html(module, min_flop)}</ul><script>{js()}</script></body></html>"
    )


def css() -> str:
    """Return the style sheet of the page."""
    return "body{font-family:monospace} ul{list-style:none} span{color:gray} summary{cursor:pointer}"


def js() -> str:
    """Return the script of the page: a double click opens or closes all submodules."""
    return (
        "document.addEventListener('dblclick',function(e){var d=e.target.closest('details');if(d){"
        "d.querySelectorAll('details').forEach(function(x){x.open=!d.open})}})"
    )
