"""The mesh that is used where none is named."""

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
    """Whether a function is being traced in this thread: what knows it, which is above this folder, fills it in."""

    is_active: Callable[[], bool] = staticmethod(lambda: False)


def check_outside(function: str, instead: str) -> None:
    """The devices of a program are those that it is called on: it neither sets them nor asks for them."""
    if Tracing.is_active():
        raise ArgumentError(
            f"{function} is called outside of functions that are traced, such as those of jit.",
            fix=instead,
            at=user_line(),
        )


class set_mesh:
    """Use a mesh wherever none is named: from now on, or as a context manager in its block, in this thread. None means
    no mesh. Inside of a traced function it is an error.

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
            raise ArgumentTypeError("set_mesh takes a mesh.", received=described(mesh), fix="weft.make_mesh(...)")
        self._mesh = mesh
        self._before = config._override("mesh", mesh)

    def __enter__(self) -> Mesh | AbstractMesh | None:
        return self._mesh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        config._override("mesh", self._before)


class use_abstract_mesh(Scope):
    """A block in which the mesh that is used where none is named has no devices."""

    def __init__(self, mesh: AbstractMesh) -> None:
        if not isinstance(mesh, AbstractMesh):
            raise ArgumentTypeError("use_abstract_mesh takes an AbstractMesh.", received=described(mesh))
        super().__init__(states["mesh"], mesh)


def get_mesh() -> Mesh:
    """The mesh with its devices that `set_mesh` has set; an empty one if there is none. Inside of a traced function it
    is an error."""
    check_outside("get_mesh", "weft.sharding.get_abstract_mesh()")
    found = config.mesh
    return found if isinstance(found, Mesh) else Mesh(np.empty((0,), object), ("none",))


def get_abstract_mesh() -> AbstractMesh:
    """The axes of the mesh that `set_mesh` has set; none if there is no mesh.

    Returns:
        An `AbstractMesh`.

    >>> import weft
    >>> weft.sharding.get_abstract_mesh().empty
    True
    """
    found = config.mesh
    return AbstractMesh((), ()) if found is None else found.abstract_mesh


def current_mesh(caller: str, named: str = "weft.NamedSharding(mesh, spec)") -> Mesh | AbstractMesh:
    """The mesh that is set, for a caller that was told of none; `named` is how to tell it."""
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
