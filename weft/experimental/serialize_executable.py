"""Compiled functions as bytes, for the next process, under the names of `jax.experimental.serialize_executable`.

The bytes are an export, which has no machine code: that is found in the cache on disk, or compiled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.api.devices import select_device
from weft.api.jit import jit
from weft.api.stages import Compiled
from weft.base import tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.publish import publish as _publish
from weft.export.exported import deserialize, export_trace
from weft.ir.types import ShapeDtypeStruct


def serialize(compiled: Compiled) -> tuple[bytes, tree.PyTreeDef, tree.PyTreeDef]:
    """Serialize a compiled function to bytes; also return the structures of its arguments and results, which the caller
    stores. It must run on one device and call no Python.

    >>> import weft, weft.numpy as np
    >>> from weft.experimental.serialize_executable import deserialize_and_load, serialize
    >>> compiled = weft.jit(lambda x: x * 2).lower(np.ones(3)).compile()
    >>> again = deserialize_and_load(*serialize(compiled))
    >>> print(again(np.ones(3)))
    [2. 2. 2.]
    """
    if not isinstance(compiled, Compiled):
        what = "serialize needs the result of jit(f).lower(...).compile()."
        raise ArgumentTypeError(what, received=f"an object of type {type(compiled).__name__}")
    exported = export_trace(compiled._traced)
    # The caller stores the structures, which may have nodes without a registered name.
    flat = exported.with_flat_structures()
    return bytes(flat.serialize()), compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes,
    in_tree: tree.PyTreeDef,
    out_tree: tree.PyTreeDef,
    backend: str | None = None,
    execution_devices: Sequence[Any] | None = None,
) -> Compiled:
    """Load a compiled function that `serialize` wrote, on the named device or the default one."""
    exported = deserialize(serialized)
    if len(execution_devices or ()) > 1:
        raise ArgumentError(
            "A serialized function only runs on one device.", received=f"{len(execution_devices or ())} devices"
        )
    device = select_device("deserialize_and_load", execution_devices[0] if execution_devices else None, backend)
    types = [ShapeDtypeStruct.like(t) for t in exported.in_avals]
    args, kwargs = tree.unflatten(in_tree, types)

    def function(*args: Any, **kwargs: Any) -> Any:
        return tree.unflatten(out_tree, exported.call(*tree.leaves((args, kwargs))))

    function.__name__ = function.__qualname__ = exported.fun_name
    return jit(function, device=device).lower(*args, **kwargs).compile()


_publish(__name__)
