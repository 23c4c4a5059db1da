"""Primitives of users, as in JAX: an object with a name, and rules that are registered one by one.

The rules of Weft's primitives are methods of a class; those of a `UserPrimitive` are functions with JAX's signatures,
registered by `def_impl`, `def_abstract_eval` and the tables of `weft.interpreters`. The tables are views of all
primitives: they also read the rules of built-in ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from weft.base.source import user_line
from weft.ir.context import EVALUATION, active, with_aval
from weft.ir.higher_order import HigherOrder
from weft.ir.interpreter import storage_array
from weft.ir.primitive import Axis, No, Params, Primitive, missing
from weft.ir.registry import all_primitives
from weft.ir.types import ArrayType, ShapeDtypeStruct, Type, array_type
from weft.ir.zeros import Zero
from weft.runtime.device import CPU
from weft.runtime.held import HeldArray
from weft.runtime.platforms import is_platform_name
from weft.transforms.batch import apply_batch_rule
from weft.transforms.jvp import push_forward


class _AnyPrimitive(type):
    """Metaclass that makes all primitives instances of `UserPrimitive`, since JAX has one class of primitives."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Primitive) if cls is UserPrimitive else super().__instancecheck__(instance)


class UserPrimitive(Primitive, metaclass=_AnyPrimitive):
    """Operation with a name and registered rules. Its parameters may have any names, so methods that take them have no
    other keyword arguments.

    `def_impl` sets its evaluation on arrays and `def_abstract_eval` its types. `weft.interpreters` has tables for the
    rest: `ad.primitive_jvps`, `ad.primitive_transposes`, `batching.primitive_batchers`, and `mlir.register_lowering`
    with `mlir.lower_fun` for compiled code. Without a lowering, compiled code calls back into `impl`.

    >>> import weft, weft.numpy as np
    >>> from weft.extend.core import Primitive
    >>> from weft.interpreters import ad, mlir
    >>> twice_p = Primitive("twice")
    >>> twice_p.def_impl(lambda x: x * 2).__name__
    '<lambda>'
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: x * 2, multiple_results=False))
    >>> ad.deflinear(twice_p, lambda ct: [twice_p.bind(ct)])
    >>> print(weft.jit(weft.grad(twice_p.bind))(3.0))
    2.0
    """

    skip_canonicalization = False
    ref_primitive = False

    def __init__(self, name: str):
        self.name = name  # type: ignore[misc]
        self.multiple_results: bool = False  # type: ignore[misc]
        self.impl: Callable[..., Any] | None = None
        self.abstract_eval: Callable[..., Any] | None = None
        self.is_effectful: bool = False
        self.rules: dict[str, Callable[..., Any]] = {}

    # -- defining ----------------------------------------------------------------------------------------------------

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Set the function that evaluates concrete arrays, and return it, so that this can be a decorator."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Set the function from the types of the operands and the parameters to the types of the results."""
        self.abstract_eval, self.is_effectful = abstract_eval, False
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Set the function from types and parameters to the types of the results and a set of effects."""
        self.abstract_eval, self.is_effectful = abstract_eval, True
        return abstract_eval

    def def_custom_bind(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """Replace `bind` by a function of the operands and parameters."""
        self.bind = bind  # type: ignore[method-assign]
        return bind

    def bind(self, /, *args: Any, **params: Any) -> Any:
        """Perform the operation under the active transformation."""
        return Primitive.__call__(self, *args, **params)

    # -- rules -------------------------------------------------------------------------------------------------------

    def type(self, /, *types: Any, **params: Any) -> Any:
        found = self._abstract(types, params)[0]
        if not self.multiple_results:
            return canonicalize_type(found, self.name)
        return [canonicalize_type(t, self.name) for t in found]

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        return frozenset(self._abstract(types, params)[1]) if self.is_effectful else frozenset()

    def _abstract(self, types: Sequence[Any], params: Params) -> tuple[Any, Any]:
        if self.abstract_eval is None:
            raise missing(
                f"Abstract evaluation for '{self.name}' not implemented: it must be set by def_abstract_eval."
            )
        found = self.abstract_eval(*types, **params)
        return found if self.is_effectful else (found, ())

    def eager(self, types: Sequence[Type], params: Params) -> Callable[[Sequence[Any]], list[Any]]:
        return lambda args: self._run([with_aval(a) for a in args], params)

    def _run(self, args: Sequence[Any], params: Params) -> list[Any]:
        """Evaluate on concrete arrays."""
        function = self.impl or self.rules.get("lowering")
        if function is None:
            raise missing(f"Evaluation rule for '{self.name}' not implemented: set it by def_impl.")
        with active(EVALUATION):
            out = function(*args, **params)
        return [r if isinstance(r, HeldArray) else with_aval(r) for r in (out if self.multiple_results else [out])]

    def eval(self, /, *arrays: Any, **params: Any) -> Any:
        results = [storage_array(r) for r in self._run([EVALUATION.lift(a) for a in arrays], params)]
        return results if self.multiple_results else results[0]

    @property
    def definition(self) -> Callable[..., Any] | None:  # type: ignore[override]
        return self.rules.get("lowering")

    def push_forward(
        self, primals: Sequence[Any], tangents: Sequence[Any], params: Params
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        rule = self.rules.get("jvp")
        if rule is None:
            raise missing(f"Differentiation rule for '{self.name}' not implemented: set it in ad.primitive_jvps.")
        outs, tangents_out = rule(list(primals), list(tangents), **params)
        if not self.multiple_results:
            outs, tangents_out = [outs], [tangents_out]
        outs = [with_aval(o) for o in outs]
        pairs = zip(outs, tangents_out, strict=True)
        return outs, [Zero.of(o.aval) if t is None else t if type(t) is Zero else with_aval(t) for o, t in pairs]

    def transpose(self, cotangent: Any, /, *args: Any, **params: Any) -> Sequence[Any]:  # type: ignore[override]
        rule = self.rules.get("transpose")
        if rule is None:
            raise missing(f"Transpose rule (for reverse-mode differentiation) for '{self.name}' not implemented.")
        found = rule(cotangent, *args, **params)
        return [None] * len(args) if found is None else found

    def batch(  # type: ignore[override]
        self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], /, **params: Any
    ) -> tuple[Any, Any]:
        rule = self.rules.get("batch")
        if rule is None:
            raise missing(f"Batching rule for '{self.name}' not implemented: set it in batching.primitive_batchers.")
        outs, out_dims = rule(AxisData(axis), tuple(args), tuple(dims), **params)
        if not self.multiple_results:
            return with_aval(outs), in_range(out_dims, with_aval(outs))
        outs = [with_aval(o) for o in outs]
        if out_dims is None or isinstance(out_dims, int):
            out_dims = [out_dims] * len(outs)
        return outs, [in_range(d, o) for d, o in zip(out_dims, outs, strict=True)]

    factors = No("how its operands may be split is not known")

    def samples(self) -> Any:
        return iter(())  # the user's own

    def __reduce__(self) -> Any:
        what = f"The primitive {self.name!r} belongs to this process, so objects that contain it cannot be pickled."
        raise NotSupportedError(what, at=user_line())


def in_range(dim: int | None, value: Any) -> int | None:
    """Return a dimension counted from the front."""
    return dim if dim is None or dim >= 0 else dim + value.ndim


def canonicalize_type(aval: Any, name: str) -> Type:
    """Convert a type that an abstract evaluation rule returned to one of Weft's."""
    if isinstance(aval, ShapeDtypeStruct):
        aval = aval.aval
    if isinstance(aval, ArrayType):
        canonical = dtypes.canonicalize_dtype(aval.dtype, allow_extended_dtype=True)
        return aval if canonical == aval.dtype else aval.with_dtype(canonical, aval.weak_type)
    if isinstance(aval, Type):
        return aval
    if hasattr(aval, "shape") and hasattr(aval, "dtype"):
        return array_type(tuple(aval.shape), dtypes.canonicalize_dtype(aval.dtype, allow_extended_dtype=True))
    raise ArgumentError(
        f"The abstract evaluation rule of '{name}' must return types.",
        received=f"{aval!r} of type {type(aval).__name__}",
        fix="weft.core.ShapedArray(shape, dtype), or a list of them where multiple_results is True",
        jax=f"{name}.abstract_eval() method should return a tuple or a list if multiple_results is True, else a type.",
    )


class AxisData:
    """Mapped axis, as batching rules receive it."""

    def __init__(self, axis: Axis):
        self._axis = axis
        self.size, self.name, self.spmd_name = axis.size, axis.name, axis.spmd or None
        self.explicit_mesh_axis = None if axis.sharding is None else axis.sharding.spec[0]


class RuleTable(MutableMapping[Primitive, Callable[..., Any]]):
    """Rules of one kind by primitive. Rules of built-in primitives are read from their methods and can be replaced,
    except for primitives with sub-jaxprs."""

    def __init__(
        self,
        kind: str,
        read_rule: Callable[[Primitive], Callable[..., Any] | None],
        override: Callable[[Primitive, Callable[..., Any]], None],
        adapted: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda rule: rule,
    ):
        self._kind, self._read_rule, self._override, self._adapted = kind, read_rule, override, adapted
        self._own: dict[Primitive, Callable[..., Any]] = {}

    def __getitem__(self, primitive: Primitive) -> Callable[..., Any]:
        found = self._own.get(primitive)
        if found is None and isinstance(primitive, Primitive) and not hasattr(primitive, "rules"):
            found = self._read_rule(primitive)
        if found is None:
            raise KeyError(primitive)
        return found

    def __setitem__(self, primitive: Primitive, rule: Callable[..., Any]) -> None:
        if isinstance(primitive, HigherOrder):
            what = f"Rules of `{primitive.name}`, which carries jaxprs, cannot be replaced."
            raise NotSupportedError(what, fix="an operation of its own, by weft.extend.core.Primitive", at=user_line())
        if hasattr(primitive, "rules"):
            primitive.rules[self._kind] = self._adapted(rule)
        else:
            self._override(primitive, rule)
        self._own[primitive] = rule

    def __delitem__(self, primitive: Primitive) -> None:
        del self._own[primitive]
        getattr(primitive, "rules", {}).pop(self._kind, None)

    def __iter__(self) -> Iterator[Primitive]:
        primitives = [
            primitive
            for primitive in all_primitives()
            if primitive not in self._own and self._read_rule(primitive) is not None
        ]
        return iter([*self._own, *primitives])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"<table of {self._kind} rules>"


def _read_jvp(primitive: Primitive) -> Callable[..., Any]:
    def rule(primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> Any:
        outs, out_tangents = push_forward(primitive, [with_aval(p) for p in primals], tangents, params)
        return (outs, out_tangents) if primitive.multiple_results else (outs[0], out_tangents[0])

    return rule


def _override_jvp(primitive: Primitive, rule: Callable[..., Any]) -> None:
    def both(primals: Sequence[Any], tangents: Sequence[Any], params: Params) -> Any:
        outs, out_tangents = rule(list(primals), list(tangents), **params)
        return (outs, out_tangents) if primitive.multiple_results else ([outs], [out_tangents])

    primitive.push_forward = both  # type: ignore[attr-defined]


def _read_transpose(primitive: Primitive) -> Callable[..., Any] | None:
    if isinstance(primitive, HigherOrder) or type(primitive).transpose is Primitive.transpose:
        return None
    return primitive.transpose


def _override_transpose(primitive: Primitive, rule: Callable[..., Any]) -> None:
    primitive.transpose = rule  # type: ignore[method-assign]


def _read_batch(primitive: Primitive) -> Callable[..., Any]:
    def rule(args: Sequence[Any], dims: Sequence[int | None], /, **params: Any) -> Any:
        sizes = [a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None]
        outs, out_dims = apply_batch_rule(primitive, Axis(sizes[0]), [with_aval(a) for a in args], dims, params, False)
        return (outs, out_dims) if primitive.multiple_results else (outs[0], out_dims[0])

    return rule


def _read_fancy_batch(primitive: Primitive) -> Callable[..., Any]:
    def rule(axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], /, **params: Any) -> Any:
        outs, out_dims = apply_batch_rule(primitive, axis._axis, [with_aval(a) for a in args], dims, params, False)
        return (outs, out_dims) if primitive.multiple_results else (outs[0], out_dims[0])

    return rule


def _override_batch(adapt: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., None]:
    def override(primitive: Primitive, rule: Callable[..., Any]) -> None:
        adapted = adapt(rule)
        primitive.batch = lambda axis, args, dims, /, **params: adapted(AxisData(axis), args, dims, **params)  # type: ignore[method-assign]

    return override


def _without_axis(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda axis, args, dims, /, **params: rule(args, dims, **params)


def _with_axis_fields(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda axis, args, dims, /, **params: rule(axis.size, axis.name, None, args, dims, **params)


def _read_axis_fields(primitive: Primitive) -> Callable[..., Any]:
    def rule(size: Any, name: Any, kind: Any, args: Any, dims: Any, /, **params: Any) -> Any:
        return _read_fancy_batch(primitive)(AxisData(Axis(size, name)), args, dims, **params)

    return rule


primitive_jvps = RuleTable("jvp", _read_jvp, _override_jvp)
primitive_transposes = RuleTable("transpose", _read_transpose, _override_transpose)
primitive_batchers = RuleTable("batch", _read_batch, _override_batch(_without_axis), _without_axis)
fancy_primitive_batchers = RuleTable("batch", _read_fancy_batch, _override_batch(lambda rule: rule))
axis_primitive_batchers = RuleTable("batch", _read_axis_fields, _override_batch(_with_axis_fields), _with_axis_fields)


class LoweredFunction:
    """Result of `lower_fun`: a lowering that is a function of Weft's operations."""

    def __init__(self, fun: Callable[..., Any], multiple_results: bool):
        self.fun, self.multiple_results = fun, multiple_results

    def bound_to(self, prim: Primitive) -> Callable[..., Any]:
        """Return the function that compiled code runs for a primitive."""
        return self.fun


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> LoweredFunction:
    """Make a lowering from `fun`, a function of arrays and the parameters.

    With `multiple_results` it returns a list of results, as the primitive does. For `register_lowering`.
    """
    return LoweredFunction(fun, multiple_results)


def register_lowering(
    prim: Primitive,
    rule: Any,
    platform: str | None = None,
    inline: bool = True,
    cacheable: bool = True,
) -> None:
    """Set the lowering of a primitive, which `lower_fun` made.

    There is no MLIR, so rules of other kinds, which would build it, are not called: compiled code then runs the
    primitive's `impl`. Rules for unknown platforms are ignored. `inline` and `cacheable` make no difference: lowered
    functions are always inlined, and cached by types and parameters.
    """
    if not isinstance(prim, Primitive):
        raise ArgumentTypeError("register_lowering: prim must be a primitive.", received=repr(prim))
    if not hasattr(prim, "rules"):
        what = f"The lowering of `{prim.name}` is built in and cannot be replaced."
        raise NotSupportedError(what, fix="an operation of its own, by weft.extend.core.Primitive", at=user_line())
    if isinstance(rule, LoweredFunction) and (platform is None or is_platform_name(platform)):
        if platform in (None, CPU.platform) or "lowering" not in prim.rules:
            prim.rules["lowering"] = rule.bound_to(prim)
