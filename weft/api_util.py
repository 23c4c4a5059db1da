"""Flat functions, names of arguments and donation, under the names of `jax.api_util`."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft.base import tree
from weft.base.publish import publish as _publish
from weft.base.sequences import safe_map as safe_map
from weft.extend.core import DebugInfo
from weft.extend.linear_util import Store, WrappedFun, transformation2, transformation_with_aux2
from weft.ir.types import ShapeDtypeStruct, Type, get_aval


@transformation_with_aux2
def flatten_fun(f: Callable[..., Any], store: Store, in_tree: Any, *args_flat: Any) -> Any:
    """Flatten a function of `linear_util`: return it as a function of the leaves of `(args, kwargs)` that returns the
    leaves of its result, and a function that returns the structure of the result after the first call.

    >>> import weft
    >>> from weft.extend import linear_util
    >>> leaves, in_tree = weft.tree.flatten(((1, 2), {}))
    >>> flat, out_tree = weft.api_util.flatten_fun(linear_util.wrap_init(lambda x, y: {"sum": x + y}), in_tree)
    >>> flat.call_wrapped(*leaves), out_tree()
    ([3], PyTreeDef({'sum': *}))
    """
    args, kwargs = tree.unflatten(in_tree, args_flat)
    leaves, out_tree = tree.flatten(f(*args, **kwargs))
    store.store(out_tree)
    return leaves


@transformation_with_aux2
def flatten_fun_nokwargs(f: Callable[..., Any], store: Store, in_tree: Any, *args_flat: Any) -> Any:
    """Flatten a function of `linear_util` like `flatten_fun`, for positional arguments only."""
    leaves, out_tree = tree.flatten(f(*tree.unflatten(in_tree, args_flat)))
    store.store(out_tree)
    return leaves


@transformation2
def _hold_fixed(f: Callable[..., Any], dynamic: tuple[int, ...], fixed: tuple[Any, ...], *args: Any, **kw: Any) -> Any:
    own, others = iter(args), iter(fixed)
    count = len(dynamic) + len(fixed)
    return f(*(next(own) if i in dynamic else next(others).value for i in range(count)), **kw)


class _Fixed:
    """Fixed argument, which equals others by value if that is hashable, else by identity."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Fixed):
            return False
        return self.value is other.value or (self._is_hashable and bool(self.value == other.value))

    def __hash__(self) -> int:
        return hash(self.value) if self._is_hashable else id(self.value)

    @property
    def _is_hashable(self) -> bool:
        try:
            hash(self.value)
        except TypeError:
            return False
        return True


def argnums_partial(
    f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[WrappedFun, tuple[Any, ...]]:
    """Return a function of `linear_util` as one of the arguments `dyn_argnums` only, and these arguments. The others
    are fixed, and must be hashable unless `require_static_args_hashable` is False."""
    indices = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    dynamic = tuple(sorted(operator.index(i) % len(args) for i in indices))
    fixed = tuple(_Fixed(a) for i, a in enumerate(args) if i not in dynamic)
    if require_static_args_hashable:
        for one in fixed:
            if not one._is_hashable:
                kind = type(one.value).__name__
                raise ValueError(f"Static arguments must be hashable; got {one.value!r} of type {kind}.")
    return _hold_fixed(f, dynamic, fixed), tuple(args[i] for i in dynamic)


def debug_info(
    traced_for: str,
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
    result_paths_thunk: Callable[[], tuple[str, ...]] | None = None,
    sourceinfo: str | None = None,
    signature: inspect.Signature | None = None,
) -> DebugInfo:
    """Return the names of a function and of its dynamic arguments, for messages."""
    names = _argument_names(fun, args, kwargs, static_argnums, static_argnames, signature)
    return DebugInfo(traced_for, sourceinfo or _describe(fun), names, result_paths_thunk)


def _describe(fun: Callable[..., Any]) -> str:
    """Return `name at file:line`."""
    code = getattr(inspect.unwrap(fun), "__code__", None)
    name = getattr(fun, "__name__", str(fun))
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"


def _argument_names(
    fun: Any, args: Any, kwargs: Any, static_argnums: Any, static_argnames: Any, signature: Any
) -> tuple[str, ...] | None:
    try:
        bound = (signature or inspect.signature(fun)).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return None
    static = {list(bound)[i] for i in static_argnums if -len(bound) <= i < len(bound)} | set(static_argnames)
    dynamic = {name: value for name, value in bound.items() if name not in static}
    return tuple(
        f"{name}{tree.keystr(path)}" for name, value in dynamic.items() for path, _ in tree.leaves_with_path(value)
    )


def donation_vector(donate_argnums: Any, donate_argnames: Any, in_tree: Any, kws: bool = True) -> tuple[bool, ...]:
    """Return a donation flag for each leaf of `(args, kwargs)`, or of the positional arguments without `kws`."""
    children = in_tree.children()
    args, kwargs = (children[0].children(), children[1]) if kws else (children, None)
    flags: list[bool] = []
    for i, argument in enumerate(args):
        flags.extend([i in donate_argnums] * argument.num_leaves)
    if kwargs is not None:
        for name, argument in zip(sorted(kwargs.node_data()[1] or ()), kwargs.children(), strict=True):
            flags.extend([name in donate_argnames] * argument.num_leaves)
    return tuple(flags)


def rebase_donate_argnums(donate_argnums: Sequence[int], static_argnums: Sequence[int]) -> tuple[int, ...]:
    """Return the positions of donated arguments among those that are not static."""
    return tuple(i - sum(s < i for s in static_argnums) for i in sorted(donate_argnums))


def flatten_axes(name: str, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False) -> list[Any]:
    """Return the leaf of `axis_tree`, a tree that is a prefix of `treedef`, for each leaf of `treedef`; None is a leaf.

    Args:
        name: the name of the tree in errors.
        treedef: the whole structure.
        axis_tree: a tree that is a prefix of it.
        kws: whether the structure is that of `(args, kwargs)`.
        tupled_args: whether the tree is that of a tuple of arguments.

    Returns:
        A list of leaves.

    >>> import weft
    >>> from weft.api_util import flatten_axes
    >>> flatten_axes("in_axes", weft.tree.structure((1, {"a": 2, "b": 3})), (0, None))
    [0, None, None]
    """
    return tree.flatten_axes(name, treedef, axis_tree, kws=kws)


def shaped_abstractify(x: Any) -> Type:
    """Return the type of an operand, or of a `ShapeDtypeStruct`."""
    return x.aval if isinstance(x, ShapeDtypeStruct) else get_aval(x)


_publish(__name__)
