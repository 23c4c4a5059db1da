"""The current mesh, used wherever none is named."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import numpy as np

from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import Scope, config, states
from weft.base.source import user_line
from weft.sharding.mesh import AbstractMesh, Mesh


class Tracing:
    """Query whether a function is being traced in this thread. `weft/__init__.py` sets it: tracing is a later
    folder.
    """

    is_active: Callable[[], bool] = staticmethod(lambda: False)


def check_outside(function: str, instead: str) -> None:
    """Raise if a function is being traced: a program cannot set or read the devices that it will be called on."""
    if Tracing.is_active():
        raise ArgumentError(
            f"{function} cannot be called inside of a traced function, such as one of jit.",
            fix=instead,
            at=user_line(),
        )


class set_mesh:
    """Set the mesh that is used wherever none is named, in this thread: from now on, or in a `with` block. None means
    no mesh. It is an error inside of a traced function.

    Args:
        mesh: a mesh, or None.

    >>> import weft
    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> with weft.set_mesh(mesh):
    ...     weft.sharding.get_abstract_mesh().axis_names
    ('data',)
    """

    def __init__(self, mesh: Mesh | AbstractMesh | None) -> None:
        check_outside("set_mesh", "with weft.set_mesh(mesh):   around the call of the function")
        if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
            raise ArgumentTypeError(
                "The argument of set_mesh must be a mesh or None.", received=described(mesh), fix="weft.make_mesh(...)"
            )
        self._mesh = mesh
        self._before = config._override("mesh", mesh)

    def __enter__(self) -> Mesh | AbstractMesh | None:
        return self._mesh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        config._override("mesh", self._before)


class use_abstract_mesh(Scope):
    """Context manager that sets a mesh without devices as the mesh that is used wherever none is named."""

    def __init__(self, mesh: AbstractMesh) -> None:
        if not isinstance(mesh, AbstractMesh):
            raise ArgumentTypeError(
                "The argument of use_abstract_mesh must be an AbstractMesh.", received=described(mesh)
            )
        super().__init__(states["mesh"], mesh)


def get_mesh() -> Mesh:
    """Return the mesh with devices that `set_mesh` has set, or an empty mesh. It is an error inside of a traced
    function.
    """
    check_outside("get_mesh", "weft.sharding.get_abstract_mesh()")
    found = config.mesh
    return found if isinstance(found, Mesh) else Mesh(np.empty((0,), object), ("none",))


def get_abstract_mesh() -> AbstractMesh:
    """Return the axes of the mesh that `set_mesh` has set, or an empty mesh.

    Returns:
        An `AbstractMesh`.

    >>> import weft
    >>> weft.sharding.get_abstract_mesh().empty
    True
    """
    found = config.mesh
    return AbstractMesh((), ()) if found is None else found.abstract_mesh


def current_mesh(caller: str, named: str = "weft.NamedSharding(mesh, spec)") -> Mesh | AbstractMesh:
    """Return the mesh that is set; raise if there is none.

    `caller` and `named`, an expression that passes a mesh to it, are for the error.
    """
    found: Mesh | AbstractMesh | None = config.mesh
    if found is None:
        raise ArgumentError(
            f"{caller} needs a mesh.",
            fix=(
                f"{named}   with mesh = weft.make_mesh((4, 2), ('x', 'y'))",
                "with weft.set_mesh(mesh): around the call",
            ),
        )
    return found
