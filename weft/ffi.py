"""Functions written in C called from programs, under the names of `jax.ffi`.

JAX calls functions that were compiled with XLA's headers, by its own binary interface. Weft has no XLA: a function here
takes one struct of buffers, which the header `weft_ffi.h` in `include_dir()` declares, and returns 0, or another number
after writing a message.
A function that was built for XLA must not be registered here; it needs a few lines around it that take Weft's struct.

    int32_t twice(const weft_ffi_call *call) { ... }          // twice.c, compiled to a shared library

    library = ctypes.CDLL("./twice.so")
    weft.ffi.register_ffi_target("twice", weft.ffi.pycapsule(library.twice))
    weft.ffi.ffi_call("twice", weft.ShapeDtypeStruct(x.shape, x.dtype))(x)

Calls run on the CPU, without the GIL, on arrays where they are in memory; they have no derivatives of their own.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.api.callbacks import result_structure
from weft.api.user_primitive import LoweredFunction
from weft.base import tree
from weft.base.capsules import capsule_address, is_capsule, new_capsule
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.publish import publish as _publish
from weft.ir.types import get_aval, is_value
from weft.primitives.control import foreign as _foreign
from weft.primitives.control.callback import VMAP_METHODS
from weft.sharding.layout import Layout

__all__ = [
    "build_ffi_lowering_function",
    "ffi_call",
    "ffi_lowering",
    "include_dir",
    "pycapsule",
    "register_ffi_target",
    "register_ffi_type",
    "register_ffi_type_id",
]

_NAME = b"weft._FFI_TARGET"


def include_dir() -> str:
    """Return the folder of the header `weft_ffi.h`, for a C compiler's option -I."""
    return str(pathlib.Path(__file__).parent / "include")


def pycapsule(funcptr: Any) -> Any:
    """Wrap a function of a library that `ctypes` loaded, or the address of one, for `register_ffi_target`."""
    address = funcptr if isinstance(funcptr, int) else ctypes.cast(funcptr, ctypes.c_void_p).value
    if not address:
        raise ArgumentError("There is no function at address 0.", received=repr(funcptr))
    return new_capsule(address, _NAME)


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Register a function under a name for `ffi_call`: a result of `pycapsule`, or a function of `ctypes`.

    Functions of other platforms than `"cpu"` are stored and never called.

    Args:
        name: the name.
        fn: a capsule or a function of `ctypes`.
        platform: "cpu", or another platform.
        api_version: 1.
        **kwargs: accepted for compatibility.

    >>> import weft
    >>> import ctypes
    >>> handler = ctypes.CFUNCTYPE(None)(lambda: None)
    >>> weft.ffi.register_ffi_target("docs.nothing", weft.ffi.pycapsule(handler))
    """
    if api_version != 1 or kwargs:
        what = "register_ffi_target takes functions of version 1, without other options."
        raise ArgumentError(what, received=", ".join([f"api_version={api_version}", *kwargs]))
    if isinstance(fn, Mapping):
        fn = fn.get("execute")
    address: int | None
    if is_capsule(fn):
        address = capsule_address(fn)
    elif isinstance(fn, (int, ctypes._CFuncPtr)) and not isinstance(fn, bool):  # type: ignore[attr-defined]
        address = fn if isinstance(fn, int) else ctypes.cast(fn, ctypes.c_void_p).value
    else:
        raise ArgumentTypeError(
            "register_ffi_target needs the address of a function.",
            received=f"{fn!r} of type {type(fn).__name__}",
            fix="weft.ffi.pycapsule(library.function)",
        )
    if not address:
        raise ArgumentError("There is no function at address 0.", received=repr(fn))
    _foreign.register_target(name, platform, _foreign.Target(address, fn))


def register_ffi_type(name: str, type_registration: Mapping[str, Any], platform: str = "cpu") -> None:
    """Give a type of a library an id of its own, by which its functions tell their objects from those of others.

    The library has a 64-bit integer that is 0, and reads the id there. One name has one id in a process, on all
    platforms; an integer that is not 0 is an id that the library has got before.

    Args:
        name: the name of the type, unique in the process.
        type_registration: a dictionary with the address of the integer under "type_id": a capsule, or an int. Others of
            JAX's entries describe how XLA holds objects between calls, which Weft does not.
        platform: "cpu", or another platform.

    >>> import ctypes, weft
    >>> variable = ctypes.c_int64(0)
    >>> weft.ffi.register_ffi_type("docs.counter", {"type_id": ctypes.addressof(variable)})
    >>> variable.value > 0
    True
    """
    if "type_id" not in type_registration:
        what = "register_ffi_type takes a dictionary with the address of a 64-bit integer under 'type_id'."
        raise ArgumentError(what, received=f"a dictionary of {', '.join(type_registration) or 'nothing'}")
    register_ffi_type_id(name, type_registration["type_id"], platform)


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> None:
    """Give a type of a library an id, as `register_ffi_type` does: `obj` is the address of its 64-bit integer."""
    address = capsule_address(obj) if is_capsule(obj) else obj
    if not isinstance(address, int) or not address:
        fix = "a capsule, or ctypes.addressof(variable)"
        raise ArgumentTypeError("obj must be the address of a 64-bit integer.", received=repr(obj), fix=fix)
    stored = ctypes.c_int64.from_address(address)
    known = _type_ids.setdefault(name, stored.value or len(_type_ids) + 1)
    if stored.value not in (0, known):
        what = f"The type {name!r} is registered already, with another id."
        raise ArgumentError(what, received=f"{stored.value} for {known}", fix="register it under a name of its own")
    stored.value = known


_type_ids: dict[str, int] = {}


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: Any = None,
) -> Callable[..., Any]:
    """Return a function of arrays that calls the function registered under a name.

    `result_shape_dtypes` are the types of its results: a `ShapeDtypeStruct`, or a sequence of them for several.
    Keyword arguments of the call are attributes: bools, integers, floats, strings and NumPy arrays, which are fixed
    when a function is traced. With `has_side_effect` it is called even if its results are unused. `vmap_method`
    selects the treatment of a batch, as for `pure_callback`. A layout is the order of dimensions in memory, the
    slowest first; None: row-major. `input_output_aliases` maps arguments to results that have the same memory: such a
    result begins as a copy of the argument.
    """
    if custom_call_api_version != 4 or legacy_backend_config is not None:
        what = "ffi_call only supports custom_call_api_version=4."
        raise ArgumentError(what, fix="leave out custom_call_api_version and legacy_backend_config")
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        what = f"vmap_method must be one of {', '.join(map(repr, VMAP_METHODS))}."
        raise ArgumentError(what, received=repr(vmap_method))
    types, out_tree = result_structure(result_shape_dtypes)
    outputs = output_layouts if out_tree.num_nodes > 1 or output_layouts is None else [output_layouts]

    @functools.wraps(ffi_call)
    def call(*args: Any, **attributes: Any) -> Any:
        _foreign.find_target(target_name)
        for i, arg in enumerate(args):
            if not is_value(arg):
                what = f"ffi_call of {target_name!r} needs arrays."
                raise ArgumentTypeError(what, received=f"argument {i} of type {type(arg).__name__}")
        in_types = [get_aval(a) for a in args]
        results = _foreign.ffi_call(
            *args,
            target=target_name,
            result_types=types,
            attributes=tuple((k, _foreign.as_attribute(k, v)) for k, v in sorted(attributes.items())),
            layouts=(_orders(input_layouts, in_types, "input"), _orders(outputs, types, "output")),
            aliases=_aliases(input_output_aliases, in_types, types),
            vmap_method=vmap_method,
            has_side_effect=has_side_effect,
            masked=False,
        )
        return tree.unflatten(out_tree, results)

    call.__name__ = call.__qualname__ = target_name
    return call


def _orders(layouts: Any, types: Sequence[Any], what: str) -> tuple[Any, ...]:
    """Return the order of dimensions of each array, or None for row-major arrays."""
    if layouts is None:
        return (None,) * len(types)
    if len(layouts) != len(types):
        raise ArgumentError(f"{what}_layouts must have a layout for each of {len(types)} arrays, got {len(layouts)}.")
    found: list[Any] = []
    for layout, aval in zip(layouts, types, strict=True):
        order = layout.major_to_minor if isinstance(layout, Layout) else layout
        if order is not None and sorted(order) != list(range(aval.ndim)):
            raise ArgumentError(
                f"A layout in {what}_layouts must name each dimension once.", received=f"{order!r} for {aval.short()}"
            )
        found.append(None if order is None or list(order) == list(range(aval.ndim)) else tuple(order))
    return tuple(found)


def _aliases(aliases: Mapping[int, int] | None, types: Sequence[Any], results: Sequence[Any]) -> Any:
    for i, k in (aliases or {}).items():
        if not (0 <= i < len(types) and 0 <= k < len(results)) or not types[i].matches(results[k]):
            raise ArgumentError(
                "An alias must be of an argument and a result of one type.",
                received=f"{{{i}: {k}}} for ({', '.join(t.short() for t in types)}) and "
                f"({', '.join(t.short() for t in results)})",
            )
    return _foreign.as_pairs(aliases)


class ForeignLowering(LoweredFunction):
    """Lowering that calls a function in C with the operands of a primitive, and its parameters as attributes."""

    def __init__(self, target: str, operand_layouts: Any, result_layouts: Any):
        super().__init__(self.call, True)
        self._target, self._layouts = target, (operand_layouts, result_layouts)

    def bound_to(self, prim: Any) -> Callable[..., Any]:
        """Return the function that compiled code runs for a primitive."""

        def call(*args: Any, **params: Any) -> Any:
            types = prim.type(*(get_aval(a) for a in args), **params)
            structs = list(types) if prim.multiple_results else [types]
            inputs, outputs = self._layouts
            return ffi_call(self._target, structs, input_layouts=inputs, output_layouts=outputs)(*args, **params)

        return lambda *args, **params: call(*args, **params) if prim.multiple_results else call(*args, **params)[0]

    def call(self, *args: Any, **params: Any) -> Any:
        raise ArgumentError("A lowering cannot be called.", fix="mlir.register_lowering(p, ffi_lowering(name))")


def ffi_lowering(
    call_target_name: str,
    *,
    operand_layouts: Sequence[Any] | None = None,
    result_layouts: Sequence[Any] | None = None,
    backend_config: Any = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> ForeignLowering:
    """Return a lowering for `mlir.register_lowering`: compiled code calls the function of that name with the
    primitive's operands, and its parameters as attributes. The primitive's abstract evaluation determines the types of
    the results."""
    if backend_config is not None or lowering_args:
        what = "ffi_lowering only has layouts as options."
        raise ArgumentError(what, received=", ".join([*lowering_args, "backend_config"]))
    return ForeignLowering(call_target_name, operand_layouts, result_layouts)


build_ffi_lowering_function = ffi_lowering

_publish(__name__)
