"""Shardings that users pass: trees of them for trees of values, specs on the mesh that is set, and resharding.

`with_sharding_constraint` constrains the compiler over Auto axes; `reshard` changes types over Explicit ones.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar, cast

from weft.api.devices import as_array, is_destination, reshard_traced
from weft.base import tree
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError, ShardingTypeError
from weft.base.settings import config
from weft.base.source import user_line
from weft.ir.context import EVALUATION, context, with_aval
from weft.ir.types import ShapeDtypeStruct, get_aval
from weft.primitives.control.call import jit as jit_primitive
from weft.primitives.movement.device_put import device_put as device_put_primitive
from weft.primitives.movement.sharding_constraint import drop_sharding, reshard as reshard_primitive
from weft.runtime.array import PlacedArray
from weft.runtime.sharded import ShardedArray, reshard_array
from weft.sharding.current import current_mesh
from weft.sharding.device import Device
from weft.sharding.layout import Format
from weft.sharding.mesh import AxisType, Mesh
from weft.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, type_sharding
from weft.sharding.spec import UNCONSTRAINED, PartitionSpec, entry_axes, split_axes
from weft.trace.array import Array
from weft.trace.closed import stage_subjaxpr
from weft.trace.tracer import Tracer

Function = TypeVar("Function", bound=Callable[..., Any])


def is_sharding(value: Any) -> bool:
    """Return whether a value is a sharding, spec or device, and not a tree of them."""
    return is_destination(value) or isinstance(value, (PartitionSpec, Format))


def as_sharding(value: Any, caller: str, word: str) -> Sharding | None:
    """Convert a user's sharding, spec or device to a sharding. Specs, and shardings on an abstract mesh with its axes,
    are on the mesh that is set. None stays None."""
    if isinstance(value, Format):
        value = value.sharding
    if isinstance(value, NamedSharding) and isinstance(config.mesh, Mesh) and value.mesh == config.mesh.abstract_mesh:
        return value.update(mesh=config.mesh)
    if value is None or isinstance(value, Sharding):
        return value
    if isinstance(value, PartitionSpec):
        return NamedSharding(current_mesh(f"{caller}: a PartitionSpec in {word}"), value)
    if isinstance(value, Device):
        return SingleDeviceSharding(value)
    raise ArgumentTypeError(
        f"{caller}: {word} must be a tree of shardings and PartitionSpecs.",
        received=described(value),
        fix=("weft.NamedSharding(mesh, P('x'))", "P('x')   with a mesh that weft.set_mesh has set"),
    )


def shardings_for(shardings: Any, value: Any, caller: str, word: str) -> list[Sharding | None]:
    """Return a sharding for each leaf of a value, from a tree of them that is a prefix of it."""
    if is_sharding(shardings):
        return [as_sharding(shardings, caller, word)] * len(tree.leaves(value))
    try:
        found = tree.broadcast_prefix(shardings, value, is_leaf=is_sharding)
    except ValueError as error:
        text = str(error).replace("prefix_tree", word)
        what = f"{caller}: {word} must be a prefix of the tree of values."
        raise ArgumentError(what, received=text, fix="one sharding for all of them, or a tree like that one") from None
    return [as_sharding(s, caller, word) for s in found]


def check_sharding(sharding: Sharding, shape: Sequence[Any], what: str) -> None:
    """Raise unless an array of this shape can be split so; over Explicit axes, which are part of types, evenly. `what`
    names the array."""
    try:
        sharding.check_compatible_aval(shape)
        typed = type_sharding(sharding, len(shape))
        if typed is not None:
            typed.check_even(shape)
    except ArgumentError as error:
        what = f"{what} cannot be split so: {str(error).splitlines()[0]}"
        raise ArgumentError(what, received=repr(sharding), fix=str(error).partition("  fix  ")[2].strip()) from None


def with_all_entries(sharding: NamedSharding, ndim: int) -> NamedSharding:
    """Return the sharding with an entry for each dimension, as in types."""
    spec = sharding.spec
    return sharding.update(spec=spec.update(partitions=(*spec.partitions, *[None] * (ndim - len(spec)))))


# -- arguments and results of jit ------------------------------------------------------------------------------------


def argument_shardings(shardings: Any, args: tuple[Any, ...], kwargs: dict[str, Any], caller: str) -> list[Any]:
    """Return a sharding or None for each leaf of the arguments of a jitted function."""
    if shardings is None:
        return [None] * len(tree.leaves((args, kwargs)))
    if kwargs:
        raise ArgumentError(
            f"{caller}: with in_shardings all arguments must be positional.",
            received=f"keyword arguments {', '.join(kwargs)}",
            fix="pass all arguments by position",
            at=user_line(),
        )
    if isinstance(shardings, list):
        shardings = tuple(shardings)
    if not is_sharding(shardings) and isinstance(shardings, tuple) and len(shardings) != len(args):
        raise ArgumentError(
            f"{caller}: in_shardings has {len(shardings)} entries for {len(args)} arguments; this pjit in_shardings"
            " specification must be a tree prefix of the positional arguments tuple.",
            received=f"{shardings}",
            fix="one entry for each positional argument that is not static, or one sharding for all",
            at=user_line(),
        )
    return shardings_for(shardings, args, caller, "in_shardings")


def place_argument(leaf: Any, sharding: Sharding, caller: str, name: str) -> Any:
    """Put an uncommitted argument as `in_shardings` say; raise if it is committed to another sharding."""
    aval: Any = get_aval(leaf)
    check_sharding(sharding, aval.shape, f"{caller}: argument {name} of type {aval.short()}")
    if isinstance(leaf, ShapeDtypeStruct):
        check_where(leaf.sharding, sharding, aval, caller, name)
        return leaf.update(sharding=sharding)
    if isinstance(leaf, Tracer) or context.trace is not EVALUATION:
        typed = type_sharding(sharding, aval.ndim)
        if aval.explicit_sharding not in (None, typed):
            raise_elsewhere(aval.explicit_sharding, sharding, aval, caller, name)
        return constrain(leaf, sharding)
    array = as_array(leaf)
    alone = isinstance(sharding, SingleDeviceSharding)  # the call brings arrays of other devices there
    if type(array) is ShardedArray or (type(array) is PlacedArray and array.committed and not alone):
        check_where(array.sharding, sharding, aval, caller, name)
    return leaf if alone else reshard_array(array, sharding)


def check_where(now: Sharding | None, wanted: Sharding, aval: Any, caller: str, name: str) -> None:
    """Raise if an array is committed to another sharding than the wanted one."""
    if not (now is None or now == wanted or now.is_equivalent_to(wanted, aval.ndim)):
        raise_elsewhere(now, wanted, aval, caller, name)


def raise_elsewhere(now: Sharding, wanted: Sharding, aval: Any, caller: str, name: str) -> NoReturn:
    """Raise the error for an argument with another sharding."""
    raise ArgumentError(
        f"{caller}: argument {name} must have the sharding in in_shardings.",
        received=f"{aval.short()} with {now!r}, where {wanted!r} is wanted",
        fix=(f"weft.device_put({name}, sharding)   before the call", f"None in in_shardings for {name}"),
        at=user_line(),
    )


def with_out_shardings(function: Callable[..., Any], out_shardings: Any, caller: str) -> Callable[..., Any]:
    """Constrain the results of a function to `out_shardings`."""

    def function_of_arguments(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        leaves, structure = tree.flatten(result)
        wanted = shardings_for(out_shardings, result, caller, "out_shardings")
        paths = [tree.keystr(path) for path, _ in tree.leaves_with_path(result)]
        for i, (leaf, sharding) in enumerate(zip(leaves, wanted, strict=True)):
            if isinstance(sharding, NamedSharding):
                aval: Any = get_aval(leaf)
                check_sharding(sharding, aval.shape, f"{caller}: result{paths[i]} of type {aval.short()}")
                leaves[i] = constrain(leaf, sharding)
        return tree.unflatten(structure, leaves)

    return function_of_arguments


def single_device(shardings: Any, caller: str) -> Device | None:
    """Return the device that in_shardings and out_shardings name, if they name single devices."""
    leaves = tree.leaves(shardings, is_leaf=is_sharding)
    found = {s.device: None for s in leaves if isinstance(s, SingleDeviceSharding)}
    found.update({d: None for d in leaves if isinstance(d, Device)})
    on_mesh = [s for s in leaves if isinstance(s, (NamedSharding, PartitionSpec))]
    if len(found) > 1 or (found and on_mesh):
        raise ArgumentError(
            f"{caller}: in_shardings and out_shardings name different devices; a program runs on one, or on a mesh.",
            received=", ".join(map(repr, [*found, *on_mesh[:1]])),
            fix="shardings on one mesh, or one device for all",
        )
    return next(iter(found), None)


# -- constraints -----------------------------------------------------------------------------------------------------


def constrain(x: Any, sharding: Sharding) -> Any:
    """Reshard an array with values; constrain a traced value, or change its type."""
    if not isinstance(x, Tracer) and context.trace is EVALUATION:
        return reshard_array(as_array(x), sharding)
    if isinstance(sharding, SingleDeviceSharding):
        return device_put_primitive(x, device=sharding.device, source=None)
    return reshard_traced(with_aval(x), sharding)  # type: ignore[arg-type]


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Return `x`, constrain to `shardings`: a tree of shardings, or of PartitionSpecs on the mesh that is set, that
    is a prefix of `x`.

    In a program it is a constraint for the compiler, which chooses dimensions with UNCONSTRAINED entries. Outside it is
    `device_put`. Over Explicit axes, where types have shardings, it checks that they are the same.

    Args:
        x: a tree of arrays.
        shardings: a sharding, or a tree of them.

    Returns:
        A tree of arrays with the values of `x`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.sharding import PartitionSpec as P
    >>> mesh = weft.make_mesh((1,), ("data",), (weft.sharding.AxisType.Auto,))
    >>> sharding = weft.NamedSharding(mesh, P("data"))
    >>> weft.jit(lambda x: weft.lax.with_sharding_constraint(2 * x, sharding))(wnp.ones(2))
    Array([2., 2.], dtype=float32)
    """
    leaves, structure = tree.flatten(x)
    wanted = shardings_for(shardings, x, "with_sharding_constraint", "shardings")
    results = []
    for leaf, sharding in zip(leaves, wanted, strict=True):
        if sharding is None:
            raise ArgumentError(
                "with_sharding_constraint needs a sharding for each array.",
                received="None",
                fix="P(P.UNCONSTRAINED) where the compiler is to choose; P() for an array that is not split",
                at=user_line(),
            )
        aval: Any = get_aval(leaf)
        check_sharding(sharding, aval.shape, f"with_sharding_constraint: {aval.short()}")
        if isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes:
            sharding = with_own_axes(aval, sharding)
            check_same_type(aval, sharding)
            if sharding.mesh.are_all_axes_explicit:
                results.append(leaf)
                continue
        results.append(constrain(leaf, sharding))
    return tree.unflatten(structure, results)


def with_own_axes(aval: Any, sharding: NamedSharding) -> NamedSharding:
    """Add the Explicit axes of an array's type to a constraint that names Auto axes only."""
    explicit, own = sharding.mesh.explicit_axes, aval.explicit_sharding
    wanted = split_axes(sharding.spec.partitions)
    if own is None or sharding.mesh.are_all_axes_explicit or any(a in explicit for a in wanted):
        return sharding
    partitions = with_all_entries(sharding, aval.ndim).spec.partitions
    merged = [
        entry if entry is UNCONSTRAINED and not entry_axes(mine) else (*entry_axes(mine), *entry_axes(entry))
        for mine, entry in zip(own.spec.partitions, partitions, strict=True)
    ]
    return sharding.update(spec=sharding.spec.update(partitions=merged))


def check_same_type(aval: Any, sharding: NamedSharding) -> None:
    """Raise unless a constraint over Explicit axes is the sharding of the array's type."""
    wanted = type_sharding(sharding, aval.ndim)
    if aval.explicit_sharding != wanted:
        raise ShardingTypeError(
            "Over Explicit axes with_sharding_constraint must name the sharding of the array's type.",
            received=f"{aval.short()} for {sharding.spec!r}",
            fix=f"weft.sharding.reshard(x, {sharding.spec!r})",
            at=user_line(),
        )


def explicit_sharding(value: Any, caller: str, word: str = "out_sharding") -> NamedSharding:
    """Convert a sharding or spec that can be part of a type: over Explicit axes only."""
    sharding = as_sharding(value, caller, word)
    if not isinstance(sharding, NamedSharding):
        raise ArgumentTypeError(
            f"{caller}: {word} must be a NamedSharding or a PartitionSpec.", received=described(value)
        )
    types = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
    for name in (*split_axes(sharding.spec.partitions), *sharding.spec.unreduced, *sharding.spec.reduced):
        if types[name] is not AxisType.Explicit:
            raise ArgumentError(
                f"{caller}: {word} names the axis {name!r}, which is {types[name].name}; types say how arrays are split"
                " over Explicit axes only.",
                received=repr(sharding),
                fix=(
                    "weft.lax.with_sharding_constraint(x, sharding)   over Auto axes",
                    "axis_types=(weft.sharding.AxisType.Explicit, ...) for the mesh",
                ),
                at=user_line(),
            )
    return sharding


def split_result(function: Callable[..., Any], out_sharding: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an operation whose result has `out_sharding` over Explicit axes, whatever its operands' types are: the
    compiler decides how."""
    sharding = explicit_sharding(out_sharding, function.__name__)
    values, structure = tree.flatten((args, kwargs))
    if sharding.spec.unreduced and context.trace is EVALUATION:
        # Each device keeps its own partial sums, which one program computes and does not reduce.
        arrays = [v for v in values if isinstance(v, Array)]
        found = []

        def staged(*traced: Any) -> Any:
            left = iter(traced)
            own = [next(left) if isinstance(v, Array) else v for v in values]
            args, kwargs = tree.unflatten(structure, own)
            leaves, out_tree = tree.flatten(split_result(function, sharding, *args, **kwargs))
            found.append(out_tree)
            return leaves

        jaxpr = stage_subjaxpr(staged, [get_aval(a) for a in arrays], name=function.__name__)
        return tree.unflatten(found[0], jit_primitive(*arrays, jaxpr=jaxpr, name=function.__name__))
    values = [drop_sharding(v) if isinstance(v, Array) else v for v in values]
    args, kwargs = tree.unflatten(structure, values)
    return tree.map(lambda x: cast_result(x, sharding, function.__name__), function(*args, **kwargs))


_OUT_SHARDING = "\n    out_sharding: how the result is split over Explicit axes of a mesh."


def takes_out_sharding(function: Function) -> Function:
    """Add an argument `out_sharding` to a function: the sharding of its result over Explicit axes."""
    signature = inspect.signature(function)
    more = inspect.Parameter("out_sharding", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any)

    @functools.wraps(function)
    def with_out_sharding(*args: Any, out_sharding: Any = None, **kwargs: Any) -> Any:
        if out_sharding is None:
            return function(*args, **kwargs)
        return split_result(function, out_sharding, *args, **kwargs)

    # The docstring lists the argument last.
    text = inspect.cleandoc(function.__doc__ or "")  # from Python 3.13 on it has no indentation
    with_out_sharding.__doc__ = text.replace("\n\nReturns:", f"{_OUT_SHARDING}\n\nReturns:", 1)
    parameters = [*signature.parameters.values(), more]
    with_out_sharding.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return cast(Function, with_out_sharding)


def cast_result(x: Any, sharding: NamedSharding, caller: str) -> Any:
    """Return a value that the compiler has split with a sharding as part of its type."""
    aval: Any = get_aval(x)
    check_sharding(sharding, aval.shape, f"{caller}: the result, {aval.short()},")
    sharding = with_all_entries(sharding, aval.ndim)
    if not isinstance(x, Tracer) and context.trace is EVALUATION:
        return reshard_array(as_array(x), sharding)
    return reshard_primitive(x, sharding=sharding, source=aval.explicit_sharding)


def split_like(x: Any, a: Array) -> Any:
    """Reshard `x` to the sharding of `a`, which has its shape."""
    if context.trace is not EVALUATION:
        sharding = a.aval.explicit_sharding
        return x if sharding is None else cast_result(x, sharding, "An array")
    return reshard_array(as_array(x), a.sharding) if type(a) is ShardedArray else x


def reshard(xs: Any, out_shardings: Any) -> Any:
    """Reshard the leaves of `xs` over Explicit axes to `out_shardings` (a prefix of `xs`), with the communication that
    this needs; the shardings become part of their types.

    Args:
        xs: a tree of arrays.
        out_shardings: a sharding or PartitionSpec, or a tree of them.

    Returns:
        A tree of arrays with the values of `xs`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.sharding import PartitionSpec as P
    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> weft.typeof(weft.reshard(wnp.ones(2), weft.NamedSharding(mesh, P("data")))).shape
    (2,)
    """
    leaves, structure = tree.flatten(xs)
    if is_sharding(out_shardings):
        wanted = [out_shardings] * len(leaves)
    else:
        wanted = tree.broadcast_prefix(out_shardings, xs, is_leaf=is_sharding)
    results = []
    for leaf, one in zip(leaves, wanted, strict=True):
        sharding = explicit_sharding(one, "reshard", "out_shardings")
        aval: Any = get_aval(leaf)
        check_sharding(sharding, aval.shape, f"reshard: {aval.short()}")
        results.append(constrain(leaf, with_all_entries(sharding, aval.ndim)))
    return tree.unflatten(structure, results)
