"""`jit`, and the functions that it returns for reproducible results and for symbolic sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, overload

from weft.api.automatic import Declaration, DeclaredSizes, Family, NotForAllSizes, Proposal
from weft.api.call import Call, Signature
from weft.api.contract import make_contract
from weft.api.devices import select_device
from weft.api.dynamic import DynamicSizes
from weft.api.flat import as_tuple, check_callable, parameter_names
from weft.api.jit_function import JitFunction
from weft.api.jitted import JitArguments, Jitted, Parameters
from weft.api.options import JitOptions
from weft.api.reproducible import Around, part_counts, raise_unsplit
from weft.api.searched import SearchedFunction
from weft.api.staged import StagedFunction
from weft.api.stages import Traced, check_compiler_options
from weft.base.errors import ArgumentError
from weft.base.settings import config
from weft.base.source import user_line
from weft.sharding.mesh import Mesh

Result = TypeVar("Result")


class ReproducibleFunction(JitFunction):
    """Jitted function whose calls are computed in the same parts on any number of devices."""

    def __init__(self, function: Callable[..., Any], options: JitOptions) -> None:
        super().__init__(function, options)
        self._around = Around(options.reproducible, (options.in_shardings, options.out_shardings))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._around.settings():
            return super().__call__(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        with self._around.settings():
            traced = super().trace(*args, **kwargs)
        traced._settings = self._around.settings
        return traced

    def _find_mesh(self, staged: StagedFunction, operands: Sequence[Any]) -> Mesh | None:
        mesh = super()._find_mesh(staged, operands)
        if mesh is None:
            raise_unsplit(self._caller, self._options.reproducible)
        return mesh


class DynamicFunction(JitFunction):
    """Jitted function with symbolic sizes: it is staged once for all of them."""

    def __init__(self, function: Callable[..., Any], options: JitOptions) -> None:
        super().__init__(function, options)
        self._sizes = DynamicSizes(options.dynamic, self._caller)
        # The family of the last call, tried first: most calls with new sizes belong to it.
        self._latest: tuple[Any, DeclaredSizes, Family] | None = None

    def _stage(self, call: Call, signature: Signature, proposal: Proposal | None = None) -> StagedFunction:
        """Stage the function for symbolic sizes, or find it, and instantiate it at those of the call."""
        latest, families, rest = self._latest, self._cache.declared, signature.without_types
        if latest is not None and latest[0] == rest and latest[1] is families:  # with the same settings
            found = latest[2].sizes(call.types)
            if found is not None:
                return self._instantiate(signature, latest[2].staged, found)
        count = len(call.args)
        names = call.names() or parameter_names(self._function, count) or [""] * count
        general, sizes = self._sizes.general(call.types, call.args, call.kwargs, names[:count])
        # Checks of indices need concrete sizes. Inside of an outer symbolic trace, sizes may be its symbols.
        if not sizes or config.checks == "all" or not all(type(size) is int for size in sizes.values()):
            return super()._stage(call, signature)
        general_key = signature.with_types(general)
        known = families.find(general_key, sizes)
        if known is not None:
            self._latest = (rest, families, known[0])
            return self._instantiate(signature, known[0].staged, known[1])
        if not families.may_grow(general_key):
            return super()._stage(call, signature)
        declaration = Declaration(call.types, general, sizes)
        try:
            staged = super()._stage(call, signature.with_types(declaration.types), declaration)
        except NotForAllSizes as error:
            families.refuse(general_key, declaration, self._name, error)
            return super()._stage(call, signature)
        family = families.add(general_key, declaration, self._name, staged)
        if not declaration.lasting:
            return staged.at_sizes(declaration.sizes)
        self._latest = (rest, families, family)
        return self._instantiate(signature, staged, declaration.sizes)


@overload
def jit(fun: Callable[Parameters, Result], /, **options: Unpack[JitArguments]) -> Jitted[Parameters, Result]: ...


@overload
def jit(
    fun: None = None, /, **options: Unpack[JitArguments]
) -> Callable[[Callable[Parameters, Result]], Jitted[Parameters, Result]]: ...


def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    device: Any = None,
    backend: str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    comm: Any = None,
    max_replicated: Any = None,
    reproducible: Any = None,
    sharding: str | None = None,
    dynamic: Mapping[Any, Any] | None = None,
) -> Any:
    """Stage `fun` to a jaxpr once for each signature of its arguments, and run the compiled jaxpr.

    Static arguments are compared by equality and are part of the signature; donated ones give their buffers to the
    call. It runs on the device that its arguments are committed to, or else on the default device. With `device`, or
    `backend` (its first device), it copies the arguments to that device and commits the results to it.

    `in_shardings` and `out_shardings` are trees that are prefixes of the positional arguments and of the result. Their
    leaves are shardings, PartitionSpecs on the mesh that is set, or None to keep an argument's sharding and let
    propagation choose a result's. A committed argument must have its sharding already; others are resharded.
    `keep_unused` makes no difference: unused arguments are always part of the signature, and cost nothing to pass.
    Without `fun` it returns a decorator.

    `comm` and `max_replicated` are contracts on programs for many devices: a program that exceeds them raises a
    `CommunicationError` before it runs. `comm` limits the bytes that each device sends in one run (`"100MB"`), or is a
    dict from kinds of collectives to limits on their count (`{"all_gather": 0}`) or on the bytes they send;
    `max_replicated` limits the bytes of arguments and results that are replicated on every device.

    With `reproducible=8` arrays that are split over a mesh axis are computed in eight parts, 8/n on each of n devices,
    so that 1, 2, 4 and 8 devices return the same bits; a dict gives the number of parts for some axes. On one device
    without a mesh, specs in `in_shardings` define the split.

    With `sharding="search"` the first call with arguments of their types searches for their shardings over the mesh
    that is set (`weft.sharding.search`). The result is logged once, ready to be pasted as `in_shardings`, and is the
    function's attribute `found`. Arguments are resharded to it, wherever they are.

    With `dynamic={"x": "b, t, _"}` the function is traced and compiled once for all values, of at least two, of the
    named sizes; calls return the same bits as without it. Arguments are named, or counted from 0; `"_"` is a size that
    stays static, `"..."` several of them, and a dict from axes to names does the same for some axes. Arguments that
    are trees have trees of shapes, or one for all their arrays.

    Args:
        fun: a function of trees of arrays, without side effects.
        static_argnums, static_argnames: arguments by position or name that are Python values and part of the signature;
            they need a hash.
        donate_argnums, donate_argnames: arguments whose memory the results may reuse; they cannot be used afterwards.
        keep_unused: accepted for compatibility; makes no difference.
        inline: whether calls inside of other jitted functions become part of their jaxpr.
        in_shardings, out_shardings: shardings of arguments and results, as prefix trees.
        device, backend: the device to run on.
        compiler_options: options of the compiler by name.
        comm: a limit on communication between devices; a program that exceeds it raises.
        max_replicated: a limit on the bytes of arrays that are replicated on every device.
        reproducible: the number of parts to compute in, so that the bits do not depend on the number of devices.
        sharding: "search" lets Weft choose shardings.
        dynamic: dimensions with symbolic sizes, so that one program serves all their sizes.

    Returns:
        A function like `fun`, with `.lower(...)` and `.trace(...)` that return the stages of compilation, and
        `.clear_cache()`.

    >>> import weft, weft.numpy as np
    >>> f = weft.jit(lambda x: x.mean(-1), dynamic={0: "b, t"})
    >>> [f(np.ones((2, t))).shape for t in (5, 6, 7)], f(np.arange(6.0).reshape(2, 3))
    ([(2,), (2,), (2,)], Array([1., 4.], dtype=float32))

    >>> import weft
    >>> import weft.numpy as wnp
    >>> @weft.jit
    ... def normalized(x):
    ...     return x / x.sum()
    >>> normalized(wnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    >>> power = weft.jit(lambda x, n: x**n, static_argnums=1)
    >>> power(2.0, 3)
    Array(8., dtype=float32, weak_type=True)
    """
    check_compiler_options("jit", compiler_options)
    chosen = select_device("jit", device, backend)
    if chosen is not None and (in_shardings is not None or out_shardings is not None):
        what = "jit: device and backend cannot be combined with shardings, which say where a program runs."
        raise ArgumentError(what, received=f"{chosen!r} and shardings", fix="leave out device and backend")
    if sharding is not None:
        refused = [static_argnums, static_argnames, donate_argnames, in_shardings, chosen, reproducible]
        if sharding != "search" or any(option is not None for option in refused):
            raise ArgumentError(
                'jit: sharding must be "search", and goes with donate_argnums, out_shardings and contracts only.',
                received=f"sharding={sharding!r}" + (" and other options" if sharding == "search" else ""),
                fix="functools.partial(f, ...) for what is static; in_shardings for what is known",
                at=user_line(),
            )
    parts = 0 if reproducible is None else part_counts(reproducible)
    if dynamic is not None and (parts or in_shardings is not None or out_shardings is not None):
        what = "jit: dynamic needs arrays of one device, so it cannot be combined with shardings."
        raise ArgumentError(what, received="shardings", at=user_line())
    options = JitOptions(
        static_argnums=as_tuple(static_argnums),
        static_argnames=as_tuple(static_argnames),
        donate_argnums=as_tuple(donate_argnums),
        donate_argnames=as_tuple(donate_argnames),
        has_all_static=static_argnums is not None and static_argnames is not None,
        inline=inline,
        device=chosen,
        contract=make_contract(comm, max_replicated),
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        reproducible=parts,
        searches_shardings=sharding is not None,
        dynamic=dynamic,
    )
    return functools.partial(wrap, options) if fun is None else wrap(options, fun)


def wrap(options: JitOptions, fun: Callable[..., Any]) -> Any:
    """Return the jitted function of the kind that the options require."""
    check_callable(fun, "jit")
    if options.searches_shardings:
        return SearchedFunction(fun, options)
    if options.dynamic is not None:
        return DynamicFunction(fun, options)
    return (ReproducibleFunction if options.reproducible else JitFunction)(fun, options)
