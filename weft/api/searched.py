"""`jit(f, sharding="search")`: how arguments are split is searched for when a function is first called with them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from weft.api.axis_types import mesh_of
from weft.api.devices import device_put
from weft.api.flat import adopt, name_of
from weft.base import tree
from weft.base.errors import ArgumentError
from weft.base.settings import Scope, states
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, context
from weft.ir.types import ShapeDtypeStruct, get_aval
from weft.sharding.mesh import AxisType

logger = logging.getLogger("weft")


class Search:
    """What searches for shardings: a function, shapes of its arguments, `mesh`, `machine` and `donate_argnums` to what
    it has found. It is above this folder, and filled in from there."""

    run: Callable[..., Any]


class SearchedFunction:
    """A jitted function whose arguments are split as a search finds best, once for each signature."""

    _transformation = "jit"

    def __init__(self, function: Callable[..., Any], jitted: Callable[..., Any], donate_argnums: Any) -> None:
        adopt(self, function)
        self._function, self._jitted, self._donate_argnums = function, jitted, donate_argnums
        self._plain = jitted(function)
        self._known: dict[Any, tuple[Any, Any, Any]] = {}
        # What the last search has found: printed it is code to paste, its `in_shardings` are for `jit`.
        self.found: Any = None

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if context.trace is not EVALUATION:  # it is a part of another program, which says how it is split
            return self._plain(*args, **kwargs)
        function, shardings, mesh = self._for(args, kwargs)
        with Scope(states["mesh"], mesh):
            return function(*device_put(args, shardings))

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The program for arguments of these types, split as is found best."""
        function, _, mesh = self._for(args, kwargs)
        with Scope(states["mesh"], mesh):
            return function.lower(*tree.map(struct, args))

    def _for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        """The function jitted for arguments like these, how it wants them split, and the mesh. Its axes are Auto, since
        the compiler splits what follows from arguments."""
        caller = f"jit of {name_of(self._function)}"
        if kwargs:
            raise ArgumentError(
                f"{caller}: shardings are searched for positional arguments.",
                received=f"keyword arguments {', '.join(kwargs)}",
                fix="pass all arguments by position",
                at=user_line(),
            )
        mesh = mesh_of(f"{caller} with sharding='search'", args)
        mesh = mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names))
        shapes = tree.map(struct, args)
        key = (mesh, tree.structure(shapes), tuple((s.shape, s.dtype, s.weak_type) for s in tree.leaves(shapes)))
        if key not in self._known:
            platform = mesh.device_tuple[0].platform  # type: ignore[union-attr]
            machine = "cpu" if platform == "cpu" else "h100"
            self.found = Search.run(
                self._function, *shapes, mesh=mesh, machine=machine, donate_argnums=self._donate_argnums
            )
            shardings = self.found.in_shardings
            self._known[key] = self._jitted(self._function, in_shardings=shardings), shardings, mesh
            logger.warning("%s", f"Shardings found for {name_of(self._function)} over {mesh}:\n{self.found!r}")
        return self._known[key]


def struct(leaf: Any) -> ShapeDtypeStruct:
    """The shape and dtype of an argument, without where it is."""
    aval: Any = get_aval(leaf)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
