"""`export` and what it returns: a function staged for types, which may have symbolic sizes, that can be stored and
called elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from weft.api.custom import custom_vjp
from weft.api.flat import structure_differences
from weft.api.jit import jit
from weft.api.jit_function import JitFunction
from weft.api.shardings import constrain
from weft.api.stablehlo import lower_to_stablehlo
from weft.api.stages import Traced
from weft.api.vjp import vjp as pull_back
from weft.base import dtypes, tree
from weft.base.dataclass import dataclass
from weft.base.dtypes import float0
from weft.base.errors import ArgumentError, FileFormatError, NotSupportedError
from weft.base.settings import config, overrides
from weft.base.source import is_own, user_line
from weft.compiler.passes.inline import inline
from weft.export import file
from weft.export.file import VERSION, Content, is_empty
from weft.export.meshes import devices_of_call, drop_devices, find_devices, move_to, on_devices, over_mesh
from weft.export.objects import check_exportable
from weft.export.symbolic import check_assumptions, check_single_scope, sizes_of_call
from weft.indexing.dimension import is_symbolic_shape
from weft.indexing.expression import Expression, Symbol
from weft.indexing.guards import Assumption
from weft.ir.at_sizes import at_sizes
from weft.ir.context import EVALUATION, context
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.types import ArrayType, ShapeDtypeStruct, get_aval
from weft.ir.verifier import verify
from weft.runtime.device import default_device
from weft.runtime.platforms import target_name, target_names
from weft.runtime.spmd import find_mesh, result_shardings
from weft.sharding.device import Device
from weft.sharding.mesh import Mesh
from weft.sharding.shardings import NamedSharding

PLATFORMS = target_names()
# How many orders of derivatives a file may have inside of each other.
MOST_DERIVATIVES = 16
# What `serialize` can write.
FORMATS = ("weft", "stablehlo")
# Settings that change what the operations of a jaxpr mean.
SETTINGS = ("enable_x64", "default_matmul_precision")


@dataclass(frozen=True)
class DisabledSafetyCheck:
    """Safety check to omit when an export is made or called. `platform()` is the check that the platform of a call is
    one of the export's. `custom_call` exists for JAX's programs and has no effect, since there are no custom calls."""

    _impl: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Let an export be called on any platform."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Let a custom call be exported."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """Return the name of the custom call whose check is disabled, or None for another check."""
        kind, _, name = self._impl.partition(":")
        return name if kind == "custom_call" else None


def default_export_platform() -> str:
    """Return the platform of the default device."""
    return _platform()


def _platform() -> str:
    return target_name(default_device().platform)


@dataclass(frozen=True, eq=False)
class Exported:
    """Function staged for arguments of some types, to be called, stored and called elsewhere.

    `in_avals` and `out_avals` are the types of the leaves of arguments and results, with symbolic sizes where they are;
    `in_tree` is the structure of `(args, kwargs)`. The jaxpr has no Python functions: calls are inlined, and derivative
    rules are those of `vjp`.
    """

    fun_name: str
    in_tree: tree.PyTreeDef
    in_avals: tuple[Any, ...]
    out_tree: tree.PyTreeDef
    out_avals: tuple[Any, ...]
    platforms: tuple[str, ...]
    disabled_safety_checks: Sequence[DisabledSafetyCheck]
    argument_names: tuple[str, ...]
    jaxpr: Jaxpr
    _settings: dict[str, Any]
    # Makes the export of the derivative, from the traced function or a file; None without a derivative.
    _derivative: Callable[[], Exported] | None
    # Comparisons of symbolic sizes that tracing assumed; calls for which one is wrong raise.
    assumptions: tuple[Assumption, ...] = ()
    # The devices of the program, in order (none: any one), and the shardings of arguments and results over them.
    _devices: tuple[Device, ...] = ()
    _in_shardings: tuple[NamedSharding | None, ...] = ()
    _out_shardings: tuple[NamedSharding | None, ...] = ()
    _functions: dict[Any, Callable[..., Any]] = field(default_factory=dict)

    # What `serialize` writes: a file of Weft, or a module of StableHLO.
    format: str = "weft"
    ordered_effects: tuple[Any, ...] = ()
    unordered_effects: tuple[Any, ...] = ()
    calling_convention_version = VERSION

    @property
    def nr_devices(self) -> int:
        """Number of devices that the program is for."""
        return max(len(self._devices), 1)

    @property
    def uses_global_constants(self) -> bool:
        """True if the program has values that are only known when it is called: symbolic sizes."""
        return any(is_symbolic_shape(getattr(t, "shape", ())) for t in self.in_avals)

    @property
    def module_kept_var_idx(self) -> tuple[int, ...]:
        """Arguments that the program takes: all of them."""
        return tuple(range(len(self.in_avals)))

    @property
    def in_shardings_hlo(self) -> tuple[NamedSharding | None, ...]:
        """Shardings of the arguments over the axes of the export, None where they are left open. There is no HLO."""
        return tuple(map(drop_devices, self._in_shardings)) or (None,) * len(self.in_avals)

    @property
    def out_shardings_hlo(self) -> tuple[NamedSharding | None, ...]:
        """Shardings of the results over the axes of the export, None where they are left open."""
        return tuple(map(drop_devices, self._out_shardings)) or (None,) * len(self.out_avals)

    def in_shardings_jax(self, mesh: Mesh) -> Sequence[NamedSharding | None]:
        """Return how arguments are split, as shardings over the devices of `mesh`."""
        return self._over_mesh(self._in_shardings, self.in_avals, mesh)

    def out_shardings_jax(self, mesh: Mesh) -> Sequence[NamedSharding | None]:
        """Return how results are split, as shardings over the devices of `mesh`."""
        return self._over_mesh(self._out_shardings, self.out_avals, mesh)

    def _over_mesh(self, shardings: Sequence[Any], avals: Sequence[Any], mesh: Mesh) -> Sequence[NamedSharding | None]:
        if not shardings:
            return [None] * len(avals)
        return [over_mesh(s, aval, self._devices, mesh) for s, aval in zip(shardings, avals, strict=True)]

    def mlir_module(self, *, platform: str | None = None, sizes: Mapping[str, int] | None = None) -> str:
        """Return the program as the text of a module of StableHLO, for XLA and other compilers.

        The module takes the arguments that are not empty. A program for several devices is that of each of them.

        Args:
            platform: the platform that it is for, by default the first one of the export.
            sizes: numbers for the symbolic sizes, by name: there is one module for each combination.

        >>> import weft, weft.numpy as np
        >>> from weft import export
        >>> spec = weft.ShapeDtypeStruct(export.symbolic_shape("b"), np.float32)
        >>> print(export.export(weft.jit(np.sin))(spec).mlir_module(sizes={"b": 8}).splitlines()[2])
          func.func public @main(%arg0: tensor<8xf32>) -> (tensor<8xf32>) {
        """
        chosen = self._chosen_sizes(sizes or {})
        avals = substitute_sizes(self.in_avals, chosen) if chosen else list(self.in_avals)
        structs = [ShapeDtypeStruct.like(t) for t in avals if not is_empty(t)]
        if self._devices:
            shardings = [s for s, t in zip(self._in_shardings, self.in_avals, strict=True) if not is_empty(t)]
            structs = [t if s is None else t.update(sharding=s) for t, s in zip(structs, shardings, strict=True)]
        with self._with_settings():
            jaxpr = at_sizes(self.jaxpr, chosen) if chosen else self.jaxpr
            replayed = jit(lambda *leaves: tuple(replay(jaxpr, *leaves)))
            traced = replayed.trace(*structs)
            traced.fun_name = self.fun_name
            return str(lower_to_stablehlo(traced, platform or self.platforms[0]))

    def _chosen_sizes(self, sizes: Mapping[str, int]) -> dict[Symbol, Any]:
        """Return numbers for all symbols; raise if one has none, or if they break an assumption."""
        found = [d for t in self.in_avals for d in getattr(t, "shape", ()) if isinstance(d, Expression)]
        named = {symbol.name: symbol for d in found for symbol in d.symbols}
        if set(named) != set(sizes):
            raise ArgumentError(
                f"A module of StableHLO must have a number for each symbolic size of {self.fun_name}.",
                received=f"sizes for {', '.join(map(repr, sorted(sizes))) or 'none'}",
                fix=f"mlir_module(sizes={{{', '.join(f'{name!r}: 8' for name in sorted(named))}}})",
                at=user_line(),
            )
        chosen: dict[Symbol, Any] = {named[name]: size for name, size in sizes.items()}
        check_assumptions(self.fun_name, self.assumptions, chosen)
        return chosen

    @property
    def mlir_module_serialized(self) -> bytes:
        """Text of `mlir_module` as bytes."""
        return self.mlir_module().encode()

    # -- files -------------------------------------------------------------------------------------------------------

    def serialize(self, vjp_order: int = 0, *, format: str | None = None) -> bytearray:
        """Serialize the export to bytes. `deserialize` reads those of Weft's format, also in another process, on
        another machine, or with a later version of Weft.

        Args:
            vjp_order: up to which order the file has derivatives in reverse mode.
            format: "weft", the default, or "stablehlo" for the text of `mlir_module`; by default that of `export`.

        >>> import weft, weft.numpy as np
        >>> from weft import export
        >>> data = export.export(weft.jit(np.sin))(np.float32(0)).serialize(vjp_order=1)
        >>> again = export.deserialize(data)
        >>> print(again.call(np.float32(0.0)), weft.grad(again.call)(np.float32(0.0)))
        0.0 1.0
        """
        if type(vjp_order) is not int or vjp_order < 0:
            raise ArgumentError("vjp_order must be an integer from 0 up.", received=repr(vjp_order))
        if check_format(format or self.format) == "stablehlo":
            if vjp_order:
                what = "A module of StableHLO has no derivative of its own; vjp_order must be 0."
                raise ArgumentError(what, received=repr(vjp_order), fix="exported.vjp().mlir_module()")
            return bytearray(self.mlir_module().encode())
        derivative = bytes(self.vjp().serialize(vjp_order - 1)) if vjp_order else None
        content = Content(
            self.fun_name,
            self.jaxpr,
            self.in_tree,
            self.in_avals,
            self.out_tree,
            self.out_avals,
            self.argument_names,
            self.platforms,
            self._settings,
            derivative,
            self.assumptions,
            self._devices,
            self._in_shardings,
            self._out_shardings,
        )
        return bytearray(file.write(content))

    # -- derivatives -------------------------------------------------------------------------------------------------

    def has_vjp(self) -> bool:
        """Return whether the export has a derivative in reverse mode."""
        return self._derivative is not None

    def vjp(self) -> Exported:
        """Return the export of the derivative in reverse mode. It takes the leaves of the arguments, followed by
        cotangents of the leaves of the results, and returns cotangents of the leaves of the arguments."""
        if self._derivative is None:
            raise ArgumentError(
                f"The export of {self.fun_name} has no derivative.",
                received="a file without a derivative",
                fix="exported.serialize(vjp_order=1) where it was written",
            )
        found = self._functions.get("vjp")
        if found is None:
            found = self._functions.setdefault("vjp", self._derivative())  # type: ignore[arg-type]
        return found  # type: ignore[return-value]

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with arguments of the exported structure and types; symbolic sizes may be any that the
        constraints allow. The call can be jitted, mapped by `vmap`, and differentiated in reverse mode as often as the
        export has derivatives."""
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise ArgumentError(
                "The invocation args and kwargs must have the same pytree structure as when the function "
                f"{self.fun_name} was exported.",
                received=structure_differences(self.in_tree, in_tree, ()),
                fix="the arguments that it was exported for",
                at=user_line(),
            )
        self._check_platform()
        with self._with_settings():
            return tree.unflatten(self.out_tree, self._call_flat(leaves))

    def _check_platform(self) -> None:
        if DisabledSafetyCheck.platform() in self.disabled_safety_checks or _platform() in self.platforms:
            return
        what = f"Function {self.fun_name} was exported for platforms {', '.join(self.platforms)}."
        raise ArgumentError(what, received=f"a call on {_platform()}", fix="export(f, platforms=[...])", at=user_line())

    @contextlib.contextmanager
    def _with_settings(self) -> Iterator[None]:
        """Set the settings under which the function was traced."""
        different = {name: value for name, value in self._settings.items() if getattr(config, name) != value}
        with overrides(**different):
            yield

    def _call_flat(self, leaves: Sequence[Any], devices: tuple[Device, ...] = ()) -> list[Any]:
        """Call the function on leaves; on `devices`, if the caller knows them."""
        arrays = [_convert_number(leaf, aval) for leaf, aval in zip(leaves, self.in_avals, strict=True)]
        sizes = self._sizes([get_aval(a) for a in arrays])
        if self._devices:
            devices = devices or devices_of_call(self.fun_name, len(self._devices), arrays)
            renamed = dict(zip(self._devices, devices, strict=True))
            wanted = [move_to(s, renamed) for s in self._in_shardings]
            arrays = [a if s is None else constrain(a, s) for a, s in zip(arrays, wanted, strict=True)]
        present = [a for a, aval in zip(arrays, self.in_avals, strict=True) if not is_empty(aval)]
        alone = context.trace is EVALUATION and len(present) == len(arrays) and not self._devices
        function = self._for_all_sizes if sizes and alone else self._function(sizes, devices)
        results = iter(function(*present))
        shapes = substitute_sizes(self.out_avals, sizes)
        return [np.zeros(t.shape, float0) if is_empty(t) else next(results) for t in shapes]

    def _sizes(self, types: Sequence[Any]) -> dict[Symbol, Any]:
        """Solve for the sizes of the symbols in a call with arguments of these types; raise if the types do not fit."""
        sizes = sizes_of_call(self.fun_name, self.in_avals, types, self._argument_paths)
        check_assumptions(self.fun_name, self.assumptions, sizes)
        return sizes

    def _argument_paths(self) -> Sequence[str]:
        """Return where each leaf is among the arguments, such as `args[0]` and `kwargs['x']`."""
        found = self._functions.get("paths")
        if found is None:
            args_kwargs = tree.unflatten(self.in_tree, [0] * len(self.in_avals))
            leaves, _ = tree.flatten_with_path(args_kwargs)
            paths = [("args", "kwargs")[path[0].idx] + tree.keystr(path[1:]) for path, _ in leaves]
            found = self._functions.setdefault("paths", lambda: paths)
        names: Sequence[str] = found()
        return names

    @property
    def _for_all_sizes(self) -> Callable[..., Any]:
        """Jitted function of all leaves, whose sizes become symbols from the second size on."""
        found = self._functions.get("all sizes")
        if found is None:

            def function(*leaves: Any) -> tuple[Any, ...]:
                sizes = self._sizes([get_aval(leaf) for leaf in leaves])
                if any(isinstance(size, Expression) for size in sizes.values()):
                    # The symbols of a call need not have the bounds of the export, by which types may have been
                    # simplified: such a trace is dropped.
                    verify(at_sizes(self.jaxpr, sizes))
                return tuple(self._function(sizes)(*leaves))

            function.__name__ = function.__qualname__ = self.fun_name
            found = self._functions.setdefault("all sizes", jit(function))
        return found

    def _function(self, sizes: dict[Symbol, Any], devices: tuple[Device, ...] = ()) -> Callable[..., Any]:
        """Return the function of the nonempty leaves at given sizes and on given devices."""
        key = (tuple(sizes.items()), devices)
        found = self._functions.get(key)
        if found is None:
            found = self._functions.setdefault(key, self._build(sizes, devices))
        return found

    def _build(self, sizes: dict[Symbol, Any], devices: tuple[Device, ...]) -> Callable[..., Any]:
        jaxpr = at_sizes(self.jaxpr, sizes) if sizes else self.jaxpr
        jaxpr = on_devices(jaxpr, self._devices, devices) if self._devices else jaxpr
        in_types, out_types = (substitute_sizes(avals, sizes) for avals in (self.in_avals, self.out_avals))

        def plain(*present: Any) -> tuple[Any, ...]:
            return tuple(replay(jaxpr, *present))

        plain.__name__ = plain.__qualname__ = self.fun_name
        function = custom_vjp(plain)

        def forward(*present: Any) -> Any:
            return function(*present), present

        def backward(residuals: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
            if not self.has_vjp():
                raise NotSupportedError(
                    f"{self.fun_name} cannot be differentiated: its export has no derivative, or none of that order.",
                    fix="exported.serialize(vjp_order=1), or a greater order, where it was written",
                )
            own, theirs = iter(residuals), iter(cotangents)
            primals = [np.zeros(t.shape, float0) if is_empty(t) else next(own) for t in in_types]
            cts = []
            for aval in out_types:
                ct = None if is_empty(aval) else next(theirs)
                # JAX's convention: the cotangent of an integer is of dtype float0.
                cts.append(np.zeros(aval.shape, float0) if aval.tangent().dtype == float0 else ct)
            found = self.vjp()._call_flat([*primals, *cts], devices)
            return tuple(ct for ct, t in zip(found, in_types, strict=True) if not is_empty(t))

        function.defvjp(forward, backward)
        return jit(function)

    def with_flat_structures(self) -> Exported:
        """Return the same export for a tuple of the leaves of arguments, with a tuple of the leaves of results."""
        structures = [tree.structure(tuple(avals)) for avals in (self.in_avals, self.out_avals)]
        in_tree = tree.treedef_tuple((structures[0], tree.structure({})))
        return replace(self, in_tree=in_tree, out_tree=structures[1], _functions={})

    def __repr__(self) -> str:
        types = [", ".join(t.short() for t in avals) for avals in (self.in_avals, self.out_avals)]
        return f"<export of {self.fun_name}: ({types[0]}) -> ({types[1]})>"


def _convert_number(leaf: Any, aval: Any) -> Any:
    """Convert a Python number to an array of the exported dtype; return other arguments unchanged."""
    if type(leaf) in (bool, int, float, complex) and isinstance(aval, ArrayType) and not is_empty(aval):
        kinds = {bool: "b", int: "iufc", float: "fc", complex: "c"}
        if dtypes.kind(aval.dtype) in kinds[type(leaf)]:
            return np.asarray(leaf, aval.dtype)
    return leaf


def substitute_sizes(avals: Sequence[Any], sizes: dict[Symbol, Any]) -> list[Any]:
    """Substitute sizes for the symbols of types."""
    from_symbols: dict[Any, Any] = dict(sizes)
    return [
        aval.plain_of_shape([d.substitute(from_symbols) if hasattr(d, "substitute") else d for d in aval.shape])
        for aval in avals
    ]


def export(
    fun_jit: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
    format: str = "weft",
    _override_lowering_rules: Sequence[tuple[Any, Any]] | None = None,
) -> Callable[..., Exported]:
    """Return a function that exports a jitted function for the types of its arguments, which may be
    `ShapeDtypeStruct`s.

    Sizes may be symbolic (`symbolic_shape`): the export can then be called with any sizes that fit. `platforms` are
    the platforms of calls, `"cpu"` and `"cuda"`; by default both, since the text of a program does not depend on it.
    `format` is what `serialize` writes: `"weft"`, a file that `deserialize` reads, or `"stablehlo"`, the text of a
    module for other compilers.

    >>> import weft, weft.numpy as np
    >>> from weft import export
    >>> spec = weft.ShapeDtypeStruct(export.symbolic_shape("b, 2"), np.float32)
    >>> exported = export.export(weft.jit(lambda x: x.sum(axis=1)))(spec)
    >>> exported.out_avals
    (ShapedArray(float32[b]),)
    >>> exported.call(np.ones((3, 2))).shape
    (3,)
    """
    if not isinstance(fun_jit, JitFunction) and not hasattr(fun_jit, "trace"):
        if not is_own(getattr(getattr(fun_jit, "__code__", None), "co_filename", "")):
            raise ArgumentError(
                "Function to be exported must be the result of `jit`.",
                received=repr(fun_jit),
                fix="export(weft.jit(f))",
            )
        fun_jit = jit(fun_jit)
    if _override_lowering_rules:
        raise NotSupportedError(
            "An export has no lowering rules to override: it consists of jaxprs, which are not lowered.",
            received=f"_override_lowering_rules for {', '.join(str(p) for p, _ in _override_lowering_rules)}",
            fix="leave it out",
        )
    names = PLATFORMS if platforms is None else tuple(target_name(p) if isinstance(p, str) else p for p in platforms)
    if not names or any(not isinstance(p, str) for p in names):
        raise ArgumentError("platforms must be names of platforms.", received=repr(platforms), fix=f"{list(PLATFORMS)}")
    check_format(format)

    def export_for(*args: Any, **kwargs: Any) -> Exported:
        check_scopes(fun_jit, args, kwargs)
        exported = export_trace(fun_jit.trace(*args, **kwargs), names, tuple(disabled_checks))
        return exported if format == exported.format else replace(exported, format=format)

    return export_for


def check_scopes(function: Any, args: Any, kwargs: Any) -> None:
    """Raise an error unless the symbolic sizes of arguments were declared in one scope."""
    name = getattr(function, "__name__", type(function).__name__)
    check_single_scope(name, _get_symbolic_shapes((args, kwargs)))


def check_format(format: str) -> str:
    """Return the name of a format; raise for an unknown one."""
    if format not in FORMATS:
        raise ArgumentError("format must be 'weft' or 'stablehlo'.", received=repr(format), at=user_line())
    return format


def _get_symbolic_shapes(args_kwargs: Any) -> dict[str, Sequence[Any]]:
    """Return the shapes of the leaves that have one, by path."""
    leaves, _ = tree.flatten_with_path(args_kwargs)
    return {
        ("args", "kwargs")[path[0].idx] + tree.keystr(path[1:]): leaf.shape
        for path, leaf in leaves
        if is_symbolic_shape(getattr(leaf, "shape", ()))
    }


def export_trace(
    traced: Traced,
    platforms: tuple[str, ...] = PLATFORMS,
    disabled: Sequence[DisabledSafetyCheck] = (),
    stores: bool = True,
) -> Exported:
    """Export a function that was traced. Unless it `stores` the program, parameters may be any objects."""
    jaxpr, _ = drop_dead(inline(traced.jaxpr), [True] * len(traced.jaxpr.outvars))
    jaxpr = jaxpr.replace(name=traced.fun_name)
    in_avals, out_avals = tuple(traced._in_types), tuple(traced._out_types)
    devices, in_shardings, out_shardings = _get_placement(traced, jaxpr, in_avals)
    if stores:
        check_exportable(jaxpr, traced.fun_name, devices)
    # Empty leaves are not part of the program.
    jaxpr = jaxpr.replace(invars=[v for v, t in zip(jaxpr.invars, in_avals, strict=True) if not is_empty(t)])
    traced_jaxpr = traced.jaxpr
    return Exported(
        traced.fun_name,
        traced.in_tree,
        in_avals,
        traced.out_tree,
        out_avals,
        platforms,
        disabled,
        tuple(traced._paths),
        jaxpr,
        {name: getattr(config, name) for name in SETTINGS},
        lambda: _derivative(
            traced, traced_jaxpr, in_avals, out_avals, platforms, disabled, (in_shardings, out_shardings)
        ),
        traced.assumptions,
        devices,
        in_shardings,
        out_shardings,
    )


def _get_placement(traced: Traced, jaxpr: Jaxpr, in_avals: Sequence[Any]) -> Any:
    """Return the devices of a traced function and the shardings of its arguments and results; three empty tuples if it
    names no mesh."""
    own = [s if isinstance(s, NamedSharding) else None for s in traced._shardings[len(traced._constants) :]]
    own += [None] * (len(in_avals) - len(own))
    ins = tuple(s or getattr(t, "explicit_sharding", None) for s, t in zip(own, in_avals, strict=True))
    devices = find_devices(jaxpr, ins)
    if not devices:
        return (), (), ()
    mesh = find_mesh(jaxpr, (), ins)
    said = [None] * len(jaxpr.outvars) if mesh is None else result_shardings(jaxpr, mesh)
    present = iter(s or getattr(v.aval, "explicit_sharding", None) for s, v in zip(said, jaxpr.outvars, strict=True))
    return devices, ins, tuple(None if is_empty(t) else next(present) for t in traced._out_types)


def _derivative(
    primal: Traced,
    jaxpr: Jaxpr,
    in_avals: Sequence[Any],
    out_avals: Sequence[Any],
    platforms: tuple[str, ...],
    disabled: Sequence[DisabledSafetyCheck],
    shardings: Any,
) -> Exported:
    """Export the derivative of a function in reverse mode, by its own rules. `shardings` are those of its arguments and
    of its results."""
    count = len(in_avals)
    present = [not is_empty(t) for t in out_avals]
    tangents = [t.tangent().dtype != float0 for t in out_avals]
    chosen = [i for i, t in enumerate(in_avals) if t.tangent().dtype != float0]

    def fun_vjp(*flat: Any) -> tuple[Any, ...]:
        leaves, cotangents = list(flat[:count]), flat[count:]

        def differentiable(*values: Any) -> list[Any]:
            own = list(leaves)
            for i, value in zip(chosen, values, strict=True):
                own[i] = value
            results = iter(replay(jaxpr, *own))
            outs = [next(results) if p else None for p in present]
            return [o for o, t in zip(outs, tangents, strict=True) if t]

        _, pull = pull_back(differentiable, *(leaves[i] for i in chosen))
        found = iter(pull([c for c, t in zip(cotangents, tangents, strict=True) if t]))
        cts = [next(found) if i in chosen else np.zeros(t.shape, float0) for i, t in enumerate(in_avals)]
        return tuple(ct if s is None else constrain(ct, s) for ct, s in zip(cts, split_ins, strict=True))

    structs = [ShapeDtypeStruct.like(t) for t in in_avals]
    structs += [ShapeDtypeStruct.like(t.cotangent().strong()) for t in out_avals]
    ins, outs = shardings
    # Shardings that are part of a type are part of the cotangent's type too.
    split_ins, split_outs = (
        [None if is_empty(t) or t.explicit_sharding is not None else s for s, t in zip(own, avals, strict=True)]
        if own
        else [None] * len(avals)
        for own, avals in ((ins, in_avals), (outs, out_avals))
    )
    split_ins = [s if i in chosen else None for i, s in enumerate(split_ins)]
    split_outs = [s if t else None for s, t in zip(split_outs, tangents, strict=True)]
    structs = [
        struct if s is None else struct.update(sharding=s)
        for struct, s in zip(structs, [*split_ins, *split_outs], strict=True)
    ]
    traced = jit(fun_vjp).trace(*structs)
    traced._paths = [*primal._paths, *(f"the cotangent of result {i}" for i in range(len(out_avals)))]
    traced.fun_name = f"the derivative of {primal.fun_name}"
    traced.assumptions = primal.assumptions
    return export_trace(traced, platforms, disabled)


def deserialize(blob: Any) -> Exported:
    """Read an export from the bytes that `Exported.serialize` wrote; raise `FileFormatError` for any others. The file
    is checked completely before anything runs, and nothing in it is code."""
    return _deserialize(bytes(blob), MOST_DERIVATIVES)


def _deserialize(blob: bytes, most: int) -> Exported:
    content = file.read(blob)
    if content.vjp is not None and not most:
        raise FileFormatError(f"The export must not have derivatives of more than {MOST_DERIVATIVES} orders.")
    derivative = None if content.vjp is None else _deserialize(content.vjp, most - 1)
    return Exported(
        content.name,
        content.in_tree,
        content.in_avals,
        content.out_tree,
        content.out_avals,
        content.platforms,
        (),
        content.argument_names,
        content.jaxpr,
        content.settings,
        None if derivative is None else lambda: derivative,
        content.assumptions,
        content.devices,
        content.in_shardings,
        content.out_shardings,
    )
