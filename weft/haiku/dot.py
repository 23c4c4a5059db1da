"""Jaxprs as graphs in the DOT language of Graphviz, with operations grouped by module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.haiku.summary import ArraySpec


def _type(value: Any) -> str:
    aval = getattr(value, "aval", value)
    return str(ArraySpec(tuple(aval.shape), aval.dtype)) if hasattr(aval, "shape") else str(aval)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Group:
    """Lines of one module, and the groups of its submodules."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.groups: dict[str, _Group] = {}

    def at(self, stack: Any) -> _Group:
        """Return the group at a path of names; create it if missing."""
        group = self
        for name in stack:
            group = group.groups.setdefault(str(name), _Group())
        return group

    def text(self, depth: int, counter: list[int]) -> list[str]:
        """Return the lines of this group and its subgroups, each as a cluster."""
        space = "  " * depth
        out = [space + line for line in self.lines]
        for name, group in self.groups.items():
            counter[0] += 1
            out.append(f"{space}subgraph cluster_{counter[0]} {{")
            out.append(f"{space}  label={_quote(name)}; style=rounded;")
            out += group.text(depth + 1, counter)
            out.append(f"{space}}}")
        return out


def to_dot(fun: Callable[..., Any]) -> Callable[..., str]:
    """Return a function that returns the jaxpr of `fun` for given arguments as text for Graphviz."""

    def run(*args: Any) -> str:
        return _drawn(weft.make_jaxpr(fun)(*args))

    return run


def abstract_to_dot(fun: Callable[..., Any]) -> Callable[..., str]:
    """Return `to_dot` for arguments that have shape and dtype only (`weft.ShapeDtypeStruct`)."""
    return to_dot(fun)


def _drawn(jaxpr: Any) -> str:
    names: dict[Any, str] = {}
    top = _Group()
    edges: list[str] = []

    def node(value: Any, label: str, shape: str) -> None:
        names[value] = f"n{len(names)}"
        top.lines.append(f"{names[value]} [label={_quote(label)}, shape={shape}];")

    for i, variable in enumerate(jaxpr.invars):
        node(variable, f"argument {i}\\n{_type(variable)}".replace("\\n", " "), "box")
    for variable in jaxpr.constvars:
        node(variable, f"constant {_type(variable)}", "box")
    for equation in jaxpr.eqns:
        outputs = ", ".join(_type(variable) for variable in equation.outvars)
        name = f"n{len(names)}"
        for variable in equation.outvars:
            names[variable] = name
        names.setdefault(id(equation), name)
        label = _quote(f"{equation.primitive} {outputs}")
        top.at(equation.stack or ()).lines.append(f"{name} [label={label}, shape=oval];")
        for operand in equation.invars:
            known = names.get(operand) if _is_variable(operand) else None
            if known is not None:
                edges.append(f"{known} -> {name};")
    for i, variable in enumerate(jaxpr.outvars):
        end = f"out{i}"
        top.lines.append(f"{end} [label={_quote(f'result {i} {_type(variable)}')}, shape=box];")
        if _is_variable(variable) and variable in names:
            edges.append(f"{names[variable]} -> {end};")
    lines = ["digraph G {", *top.text(1, [0]), *("  " + edge for edge in edges), "}"]
    return "\n".join(lines)


def _is_variable(value: Any) -> bool:
    """Return whether an atom is a variable. Literals have a value instead."""
    return not hasattr(value, "value") and not hasattr(value, "val")
