"""Explanations of compiled programs: `weft.explain(f)(*args)` writes a page about the compilation of a function.

The page has the user's lines, the jaxpr, fusions with the reason for each decision, steps and kernels with their
flops, bytes, measured times and share of the machine's limit, memory over time, and assembly. From a shell:
`python -m weft.explain file.py:function`.
"""

from __future__ import annotations

import functools
import html
import pathlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from weft.api.flat import get_name
from weft.api.jit import jit
from weft.api.jit_function import JitFunction
from weft.base import tree
from weft.base.publish import suggest as _suggest
from weft.explain.collect import Collector
from weft.explain.measure import measure, measure_calls
from weft.explain.page import page
from weft.runtime.device import default_device, get_placement
from weft.runtime.execution_backend import execution_backend

__all__ = ["Explanation", "explain"]


class Explanation:
    """Explanation of a compiled function for one set of arguments. `data` has it as plain values."""

    def __init__(self, data: dict[str, Any], path: pathlib.Path | None = None) -> None:
        self.data = data
        self.path = path

    @property
    def html(self) -> str:
        """Page as HTML."""
        return page(self.data)

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the page."""
        self.path = pathlib.Path(path)
        self.path.write_text(self.html, encoding="utf-8")
        return self.path

    def _repr_html_(self) -> str:
        """Return the page in an iframe, so that its styles and scripts are separate from the notebook's."""
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:40em;border:0"></iframe>'

    def __repr__(self) -> str:
        where = "" if self.path is None else f", written to {self.path}"
        return f"<explanation of {self.data['name']}: {len(self.data['kernels'])} kernels{where}>"


def explain(
    function: Callable[..., Any], /, path: str | pathlib.Path | None = None, *, write: bool = True
) -> Callable[..., Explanation]:
    """Return a function of the same arguments that compiles and times `function` for them and returns an `Explanation`.

    It writes the page to `path`, by default `<name>.explain.html` in the current folder; without `write` it only
    returns the `Explanation`. The program runs several times, but once if it has effects; arguments that are donated
    are copied first. A program for many devices is timed as a whole, and with donated arguments it does not run.
    """
    jitted: Any = function if isinstance(function, JitFunction) else jit(function)

    @functools.wraps(function)
    def explain_call(*args: Any, **kwargs: Any) -> Explanation:
        compiled = jitted.lower(*args, **kwargs).compile()
        executable, traced = compiled.runtime_executable(), compiled._traced
        values = [*traced._constants, *tree.leaves(traced._dynamic(args, kwargs))]
        donated = traced._params.get("donated", ())
        device = compiled._device or default_device()
        if compiled._partitioned is None:
            measured = measure(executable, values, donated, get_placement(device, True))
        else:
            measured = measure_calls(
                compiled, args, kwargs, bool(executable.compilation.traced.effects or any(donated))
            )
        limits = execution_backend(device).limits(device)
        explanation = Explanation(Collector(executable, measured, limits, compiled.communication).data())
        if write:
            safe = re.sub(r"\W+", "_", get_name(function)).strip("_") or "function"
            explanation.save(path or f"{safe}.explain.html")
        return explanation

    return explain_call


class _Callable(types.ModuleType):
    """Module `weft.explain`, callable as a function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Callable[..., Explanation]:
        return explain(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

_suggest(__name__)
