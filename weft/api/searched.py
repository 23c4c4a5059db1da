"""`jit(f, sharding="search")`: search for the shardings of arguments at the first call with their types."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.api.axis_types import find_mesh
from weft.api.devices import device_put
from weft.api.flat import adopt, get_name
from weft.api.jit_function import JitFunction
from weft.api.options import JitOptions
from weft.base import tree
from weft.base.errors import ArgumentError
from weft.base.settings import Scope, states
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, context
from weft.ir.types import ShapeDtypeStruct, get_aval
from weft.runtime.execution_backend import execution_backend
from weft.sharding.mesh import AxisType

logger = logging.getLogger("weft")


class Search:
    """Hook for the search of shardings, which is in a folder above this one.

    It takes a function, the shapes of its arguments, `mesh`, `machine` and `donate_argnums`, and returns what it found.
    """

    run: Callable[..., Any]


class SearchedFunction:
    """Jitted function that searches for the shardings of its arguments, once for each signature.

    `found` is the result of the last search; its text is code to paste, its `in_shardings` are for `jit`.
    """

    _transformation = "jit"

    def __init__(self, function: Callable[..., Any], options: JitOptions) -> None:
        adopt(self, function)
        self._function, self._options = function, options
        self._plain = JitFunction(function, options)
        self._known: dict[Any, tuple[Any, Any, Any]] = {}
        self.found: Any = None

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if context.trace is not EVALUATION:  # the program around this call determines the shardings
            return self._plain(*args, **kwargs)
        function, shardings, mesh = self._search(args, kwargs)
        with Scope(states["mesh"], mesh):
            return function(*device_put(args, shardings))

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower for arguments of these types, with the shardings that the search finds."""
        function, _, mesh = self._search(args, kwargs)
        with Scope(states["mesh"], mesh):
            return function.lower(*tree.map(struct, args))

    def _search(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Return the function jitted for arguments like these, their shardings and the mesh.

        The axes of the mesh are Auto: the compiler derives the shardings of all other values.
        """
        caller = f"jit of {get_name(self._function)}"
        if kwargs:
            raise ArgumentError(
                f"{caller}: all arguments must be positional, since shardings are searched for these.",
                received=f"keyword arguments {', '.join(kwargs)}",
                fix="pass all arguments by position",
                at=user_line(),
            )
        mesh = find_mesh(f"{caller} with sharding='search'", args)
        mesh = mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names))
        shapes = tree.map(struct, args)
        key = (mesh, tree.structure(shapes), tuple((s.shape, s.dtype, s.weak_type) for s in tree.leaves(shapes)))
        if key not in self._known:
            machine = execution_backend(mesh.device_tuple[0]).machine  # type: ignore[union-attr]
            self.found = Search.run(
                self._function, *shapes, mesh=mesh, machine=machine, donate_argnums=self._options.donate_argnums or None
            )
            shardings = self.found.in_shardings
            jitted = JitFunction(self._function, replace(self._options, in_shardings=shardings))
            self._known[key] = jitted, shardings, mesh
            logger.warning("%s", f"Shardings found for {get_name(self._function)} over {mesh}:\n{self.found!r}")
        return self._known[key]


def struct(leaf: Any) -> ShapeDtypeStruct:
    """Return the shape and dtype of an argument, without its placement."""
    aval: Any = get_aval(leaf)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
