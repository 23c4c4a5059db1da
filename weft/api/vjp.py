"""`vjp` and its pullback: a tree of saved values that can be inspected, changed, and bound to mutable arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from weft.api.differentiate import Linearization, argument_names, convert_type, linearize_at, refuse_reduce_axes
from weft.api.flat import argument_paths, check_callable, get_name, wraps
from weft.base import tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import with_aval
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import is_value
from weft.ir.zeros import Zero
from weft.trace.refs import Ref, check_no_refs_twice


class Marker:
    """An object that takes the position of an array in a tree, and has no leaves there."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class GradValue(Marker):
    """Argument of `with_refs`: return the gradient of this argument as a value."""

    __slots__ = ()


class DontWant(Marker):
    """Argument of `with_refs`: do not compute the gradient of this argument."""

    __slots__ = ()


class GradRef(Marker):
    """Result of a pullback in place of a gradient that was added to a Ref."""

    __slots__ = ()


class DidntWant(Marker):
    """Result of a pullback in place of a gradient that was not computed."""

    __slots__ = ()


class NotNeeded(Marker):
    """Entry of `VJP.args_res` for an argument that the backward pass does not read."""

    __slots__ = ()


class NotSaveable(Marker):
    """Entry of `VJP.args_res` for an argument that must be restored before the backward pass (`saveable_args`)."""

    __slots__ = ()


for _marker in (GradValue, DontWant, GradRef, DidntWant, NotNeeded, NotSaveable):
    tree.register_pytree_node(_marker, lambda node: ((), None), lambda _, children, kind=_marker: kind())  # type: ignore[misc]


class Layout(NamedTuple):
    """Static data of a pullback: all but its saved values."""

    linear: Linearization
    sources: tuple[int, ...]
    """For each residual, the index of the leaf of the arguments that it equals, or -1 for a computed one."""
    refs: tuple[bool, ...]
    """For each leaf of the arguments, whether it is a Ref."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.linear is other.linear

    def __hash__(self) -> int:
        return hash(id(self.linear))


class VJP:
    """The pullback of `vjp`, a tree whose leaves are the values that the backward pass reads.

    Attributes:
        args_res: arguments that are read as they are, one entry for each argument with nested containers as tuples;
            `NotNeeded()` for leaves that are not read, `NotSaveable()` for those that must be restored first.
        opaque_residuals: values computed in the forward pass.
    """

    __slots__ = ("args_res", "layout", "opaque_residuals")

    def __init__(self, layout: Layout, args_res: list[Any], opaque_residuals: list[Any]) -> None:
        self.layout, self.args_res, self.opaque_residuals = layout, args_res, opaque_residuals

    def __repr__(self) -> str:
        return f"<pullback of {self.layout.linear.fun_name}>"

    def replace(self, **changes: Any) -> VJP:
        """Return a copy with other `args_res` or `opaque_residuals`."""
        current = {"args_res": self.args_res, "opaque_residuals": self.opaque_residuals}
        if unknown := changes.keys() - current.keys():
            raise ArgumentTypeError(
                "VJP.replace must get fields of a pullback.",
                received=", ".join(sorted(unknown)),
                fix="args_res=, opaque_residuals=",
            )
        return VJP(self.layout, **{**current, **changes})

    @boundary
    def __call__(self, *cotangents: Any) -> Any:
        """Return the cotangents of the arguments, from a cotangent of the result."""
        if any(self.layout.refs):
            raise ArgumentError(
                f"The gradient of a Ref must be accumulated into a Ref, and {self.layout.linear.fun_name} was "
                "differentiated with respect to one.",
                received="a call without refs",
                fix="pullback.with_refs(weft.new_ref(weft.numpy.zeros_like(x)))(cotangent)",
                at=user_line(),
            )
        return self.layout.linear.pull(self._residuals(), *cotangents)

    def with_refs(self, *refs: Any) -> Callable[[Any], Any]:
        """Return the pullback that adds cotangents to mutable arrays.

        Args:
            *refs: for each argument a Ref, or `GradValue()` (or None) to return the cotangent, or `DontWant()` not to
                compute it, or a tree of these in the structure of the argument.

        Returns:
            A function of the cotangent that returns a tuple with, for each argument, `GradRef()` where the cotangent
            was added to a Ref, the cotangent, or `DidntWant()`.
        """
        linear, is_ref = self.layout.linear, self.layout.refs
        structure = linear.args_tree()
        children = tree.treedef_children(structure)
        if len(refs) != len(children):
            raise ArgumentTypeError(
                "with_refs needs one entry for each argument: a Ref, GradValue(), DontWant(), or a tree of them.",
                received=f"{len(refs)} for {len(children)} arguments",
                at=user_line(),
            )
        requests = [r for child, entry in zip(children, refs, strict=True) for r in _requests(child, entry)]
        for request, value_type, needs_ref in zip(requests, linear.types, is_ref, strict=True):
            _check_request(request, value_type, needs_ref)

        @boundary
        def pull(*cotangents: Any) -> Any:
            wanted = [not isinstance(r, DontWant) for r in requests]
            if any(is_ref):
                # A gradient Ref holds the cotangent of the final value of the argument's Ref.
                ends = [
                    r.value if isinstance(r, Ref) else instantiate(Zero(t.cotangent()))
                    for r, t, n in zip(requests, linear.types, is_ref, strict=True)
                    if n
                ]
                cotangents = ((*cotangents, ends),)
            found = tree.leaves(linear.pull(self._residuals(), *cotangents, wanted=wanted))
            results: list[Any] = []
            for request, cotangent, ended in zip(requests, found, is_ref, strict=True):
                if isinstance(request, Ref):
                    total = (
                        cotangent if ended else accumulate(request.value, convert_type(cotangent, request.inner_aval))
                    )
                    request.replace(convert_type(total, request.inner_aval))
                    results.append(GradRef())
                else:
                    results.append(DidntWant() if isinstance(request, DontWant) else cotangent)
            return tree.unflatten(structure, results)

        return pull

    def _residuals(self) -> list[Any]:
        """Return the residuals in the order of the linear jaxpr."""
        saved = [leaf for entry in self.args_res for leaf in tree.leaves(entry, is_leaf=_is_marker)]
        opaque = iter(self.opaque_residuals)
        needed = {i for i in self.layout.sources if i >= 0}
        paths = self.layout.linear.in_paths()
        if len(saved) != len(paths):
            raise ArgumentError(
                "args_res must have one entry for each leaf of the arguments.",
                received=f"{len(saved)} for {len(paths)} leaves",
                at=user_line(),
            )
        if missing := [paths[i] for i in sorted(needed) if isinstance(saved[i], Marker)]:
            raise ArgumentError(
                f"The pullback of {self.layout.linear.fun_name} needs arguments that were not saved.",
                received=f"no value of {', '.join(missing)}",
                fix="pullback.args_res[i] = value, or saveable_args=True",
                at=user_line(),
            )
        return [with_aval(saved[i]) if i >= 0 else next(opaque) for i in self.layout.sources]


tree.register_pytree_node(
    VJP,
    lambda node: ((node.args_res, node.opaque_residuals), node.layout),
    lambda layout, children: VJP(layout, *children),
)


def _is_marker(x: Any) -> bool:
    return isinstance(x, Marker)


def _requests(structure: tree.PyTreeDef, entry: Any) -> list[Any]:
    """Return the request for the cotangent of each leaf of an argument."""
    if entry is None or isinstance(entry, (Marker, Ref)):
        return [entry] * structure.num_leaves
    leaves, found = tree.flatten(entry, is_leaf=lambda x: x is None or isinstance(x, (Marker, Ref)))
    if found != structure:
        raise ArgumentTypeError(
            "An entry of with_refs must have the structure of its argument.",
            received=f"{found} for {structure}",
            at=user_line(),
        )
    return leaves


def _check_request(request: Any, value_type: Any, needs_ref: bool) -> None:
    if needs_ref and not isinstance(request, (Ref, DontWant)):
        raise ArgumentTypeError(
            "The gradient of a Ref must be accumulated into a Ref.",
            received=repr(request),
            fix="weft.new_ref(weft.numpy.zeros_like(x)), or weft.ad.DontWant()",
            at=user_line(),
        )
    if request is None or isinstance(request, (GradValue, DontWant)):
        return
    if not isinstance(request, Ref) or request.shape != value_type.shape:
        received = request.short() if isinstance(request, Ref) else repr(request)
        raise ArgumentTypeError(
            "with_refs needs mutable arrays of the shapes of the arguments.",
            received=f"{received} for {value_type.short()}",
            fix="weft.new_ref(weft.numpy.zeros_like(x))",
            at=user_line(),
        )


@boundary
def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Sequence[Any] = (),
    saveable_args: Any = True,
) -> Any:
    """Return `fun(*primals)` and its pullback, from a cotangent of the result to cotangents of the arguments.

    The pullback is a tree whose leaves are the residuals, so it can be returned from jitted functions.

    Args:
        fun: a function of arrays and mutable arrays.
        *primals: its arguments.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.
        reduce_axes: accepted for compatibility; must be empty.
        saveable_args: False, or a tree of flags over the arguments with tuples as containers, to leave arguments out of
            the saved values; they must be put into `args_res` before the backward pass.

    Returns:
        A pair of the results and the pullback (`VJP`), which returns a tuple with a cotangent for each argument; with
        `has_aux` a third part.

    >>> import weft
    >>> y, pullback = weft.vjp(lambda x, w: x * w, 3.0, 4.0)
    >>> pullback(1.0)
    (Array(4., dtype=float32, weak_type=True), Array(3., dtype=float32, weak_type=True))
    """
    refuse_reduce_axes("vjp", reduce_axes)
    check_callable(fun, "vjp")
    leaves, structure = tree.flatten(primals)
    refs = [leaf if isinstance(leaf, Ref) else None for leaf in leaves]
    values = [leaf if ref is None else ref.value for leaf, ref in zip(leaves, refs, strict=True)]
    values = [with_aval(x) if is_value(x) else x for x in values]
    args = tree.unflatten(structure, values)
    has_refs = any(ref is not None for ref in refs)
    if has_refs:
        check_no_refs_twice(leaves, get_name(fun), lambda i: argument_paths(fun, primals, {})[i])
    function = _with_ref_values(fun, structure, refs, has_aux) if has_refs else fun
    results, linear, residuals, auxiliary = linearize_at(
        function, args, has_aux or has_refs, "vjp", lambda: argument_names(fun, primals)
    )
    value = tree.unflatten(linear.out_tree, results)
    if has_refs:
        value, ends = value
        written, auxiliary = auxiliary
        for ref, end, is_written in zip([r for r in refs if r is not None], ends, written, strict=True):
            if is_written:
                ref.replace(end)
    saveable = list(_flags(tree.structure(primals), saveable_args))
    pull = _pullback(linear, values, residuals, structure, tuple(r is not None for r in refs), saveable)
    return (value, pull, auxiliary) if has_aux else (value, pull)


def _with_ref_values(
    fun: Callable[..., Any], structure: tree.PyTreeDef, refs: Sequence[Ref | None], has_aux: bool
) -> Callable[..., Any]:
    """Return `fun` as a function of the values of its mutable arguments. It returns the result with the values that
    they end with, and, as auxiliary data, flags of those that were written and the auxiliary data of `fun`."""

    @wraps(fun)
    def function(*args: Any) -> Any:
        values = tree.leaves(args)
        inner = [x if ref is None else Ref.of(x) for x, ref in zip(values, refs, strict=True)]
        out = fun(*tree.unflatten(structure, inner))
        out, auxiliary = out if has_aux else (out, None)
        own = [x for x in inner if isinstance(x, Ref)]
        return (out, [x.value for x in own]), ([x.written for x in own], auxiliary)

    return function


def _pullback(
    linear: Linearization,
    values: Sequence[Any],
    residuals: Sequence[Any],
    structure: tree.PyTreeDef,
    refs: tuple[bool, ...],
    saveable: Sequence[bool],
) -> VJP:
    position = {id(x): i for i, x in reversed(list(enumerate(values)))}
    sources = tuple(position.get(id(r), -1) for r in residuals)
    entries: list[Any] = [NotNeeded() for _ in values]
    for i in sources:
        if i >= 0:
            entries[i] = values[i] if saveable[i] else NotSaveable()
    opaque = [r for r, i in zip(residuals, sources, strict=True) if i < 0]
    rest = iter(entries)
    args_res = [_as_tuples(child, rest) for child in tree.treedef_children(structure)]
    return VJP(Layout(linear, sources, refs), args_res, opaque)


def _as_tuples(structure: tree.PyTreeDef, leaves: Iterator[Any]) -> Any:
    """Return the leaves of a tree with every container as a tuple."""
    if tree.treedef_is_leaf(structure) and structure.num_leaves:  # an empty dict is one node too
        return next(leaves)
    return tuple(_as_tuples(child, leaves) for child in tree.treedef_children(structure))


def _children(flags: Any, count: int) -> list[Any]:
    """Return flags for each of several children: one for all, or one each."""
    if isinstance(flags, bool):
        return [flags] * count
    if not isinstance(flags, (tuple, list)) or len(flags) != count:
        raise ArgumentError(
            "saveable_args must be a bool, or tuples of bools with one entry for each child.",
            received=f"{flags!r} for {count} children",
            at=user_line(),
        )
    return list(flags)


def _flags(structure: tree.PyTreeDef, flags: Any) -> Iterator[bool]:
    """Yield the flag of each leaf; containers are matched by their number of children."""
    if tree.treedef_is_leaf(structure):
        yield from _children(flags, 1)
        return
    children = tree.treedef_children(structure)
    for child, flag in zip(children, _children(flags, len(children)), strict=True):
        yield from _flags(child, flag)
