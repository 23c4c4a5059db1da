"""The card of a primitive: everything the system knows about one operation, in one class.

Each stage reads exactly one rule: staging and the verifier read `type` and `effects`, the interpreter `eval`, forward
mode `jvp` (or `partial`), partial evaluation `partial_eval`, reverse mode `transpose`, vmap `batch`, sharding
`factors`, dead code elimination `live_operands`, the compiler's passes those under `compile`, tests `samples`. A
rule that cannot exist is a `No("reason")`, and the reason is the user's error. `docs/design/primitive.md` explains the
card with examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError, JaxprTypeError, MissingRuleError, ShardingTypeError
from weft.indexing.ranges import Range
from weft.ir.carried import Carried
from weft.ir.context import context, current_line
from weft.ir.element import Element
from weft.ir.flow import Condition, OperandRanges, union_of
from weft.ir.fusing import CONTROLS, UNFUSED, Machine, Properties, size_of
from weft.ir.keys import KeysThrough
from weft.ir.types import ArrayType, Type, type_of
from weft.ir.varying import Cast, casts_to, operand_casts, state_of
from weft.ir.zeros import Zero
from weft.sharding.device import Device
from weft.sharding.factors import AxisFactors
from weft.sharding.infer import Operation, result_specs
from weft.sharding.manual import ManualAxisType
from weft.sharding.shardings import NamedSharding, Sharding
from weft.sharding.spec import PartitionSpec

if TYPE_CHECKING:
    from weft.ir.parts import Parts

Params = dict[str, Any]
# Operands by their position, or "all".
Operands = tuple[int, ...] | str
NO_EFFECTS: frozenset[Any] = frozenset()
NO_AXES: frozenset[Any] = frozenset()


def missing(what: str) -> MissingRuleError:
    """The error for a rule that is not there, with the line of the operation that needs it."""
    return MissingRuleError(what, at=current_line())


class No:
    """A rule that cannot exist, with the reason that the user is told."""

    def __init__(self, reason: str):
        self.reason = reason

    def __set_name__(self, owner: type, name: str) -> None:
        self.rule = name

    def __get__(self, instance: Primitive | None, owner: type) -> Any:
        if instance is None:
            return self
        return MissingRule(instance, self.rule, self.reason)


class MissingRule:
    """The value of a `No` rule: calling it raises the reason."""

    def __init__(self, primitive: Primitive, rule: str, reason: str):
        self.primitive, self.rule, self.reason = primitive, rule, reason

    def __call__(self, *args: Any, **params: Any) -> Any:
        raise missing(f"`{self.primitive.name}` has no {self.rule} rule: {self.reason}.")


@dataclass(frozen=True)
class Axis:
    """The axis that a batching transformation maps over. `spmd` are axes of a mesh that a `shard_map` inside is to
    split it over."""

    size: Any
    name: Any = None
    spmd: tuple[Any, ...] = ()
    # How types say that it is split over Explicit axes of a mesh: a sharding of one dimension.
    sharding: NamedSharding | None = None

    def batched(self, aval: Any, dim: int = 0) -> Any:
        """The type of arrays that have the axis at `dim`, besides the dimensions of a type."""
        found = aval.with_dimension(dim, self.size)
        if self.sharding is None:
            return found
        entries = (*found.spec.partitions[:dim], self.sharding.spec[0], *found.spec.partitions[dim + 1 :])
        spec = found.spec.update(partitions=entries)
        return found.placed(sharding=(found.explicit_sharding or self.sharding).update(spec=spec))


@dataclass(frozen=True)
class Split:
    """One equation split by partial evaluation into a known and an unknown one.

    `known` (primitive, params) takes the operands at `known_in` and returns the known results followed by residuals.
    `unknown` takes what `unknown_in` lists, in that order, and returns the unknown results: an index >= 0 is an operand
    of the equation, `~k` is residual k.
    """

    known: tuple[Any, Params] | None
    known_in: tuple[int, ...]
    unknown: tuple[Any, Params]
    unknown_in: tuple[int, ...]
    unknown_out: tuple[bool, ...]
    residual_types: tuple[Type, ...] = ()


@dataclass(frozen=True)
class RematSplit:
    """An equation that rematerialisation computes twice, without what is stored of the first time.

    `first` (primitive, params) takes the operands and returns the results and further ones, of which those at `stored`
    are stored. `second` takes what `second_in` lists, an index >= 0 being an operand of the equation and `~k` stored
    value k, and returns the results. `whole` are the indices of results of the equation that are themselves stored.
    """

    first: tuple[Any, Params]
    first_types: tuple[Type, ...]
    stored: tuple[int, ...]
    second: tuple[Any, Params]
    second_in: tuple[int, ...]
    whole: tuple[int, ...] = ()


class Primitive:
    """One operation. Subclass a family, give it a name and rules, and register it with `@primitive`."""

    name: ClassVar[str]
    multiple_results: ClassVar[bool] = False
    # Operands in which the operation is linear; `multilinear` says separately in each (mul) rather than jointly (add).
    linear: ClassVar[Operands] = ()
    multilinear: ClassVar[bool] = False
    # A float result whose derivative is zero everywhere it exists (floor, sign).
    zero_derivative: ClassVar[bool] = False
    # Largest error of compiled code in units in the last place of the result, by the name of the operands' dtype; "" is
    # the default.
    ulp: ClassVar[dict[str, float]] = {"": 0.0}
    higher_order: ClassVar[bool] = False
    # Calls of a jaxpr that JAX's programs ask for; no operation maps over devices.
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False
    # Goes up when parameters mean something else than before: files of exports say which version they have.
    version: ClassVar[int] = 1
    # Whether it has no value: `eval` raises the user's error whatever its operands are, and what computes it is not
    # compiled.
    has_no_value: ClassVar[bool] = False
    # What it means is known to this process alone, so nothing that is compiled from it is stored on disk.
    of_this_process: ClassVar[bool] = False
    # Whether `type` sees where operands are: a card that carries jaxprs, or only hands values on, says itself where its
    # results are. For all others `factors` says it.
    types_placement: ClassVar[bool] = False
    # Operands whose elements the results are, found by their index alone; "all" of them. Nothing is computed.
    copies: ClassVar[Operands] = ()
    # The result is the operand, for everybody but derivatives and checks: compiled code has nothing of it.
    identity: ClassVar[bool] = False
    # Changes only what types say along its `axes`, manual axes of a `shard_map`.
    casts: ClassVar[bool] = False
    # Each element of the results is computed from the elements at its index, or from scalars.
    pointwise: ClassVar[bool] = False
    # Its first operand says which of the others each element is taken from; `case_of` is one of them, zero elsewhere.
    chooses: ClassVar[bool] = False
    # Folded at compile time where all operands are known and small.
    foldable: ClassVar[bool] = False
    # The parameter with the jaxpr that it calls, if that is all it does for everybody but derivatives.
    opens: ClassVar[str | None] = None
    # Partitioning of programs over meshes reads it: it stays until then.
    partitions: ClassVar[bool] = False
    # It says how its operand is split and nothing else, at its `destination`.
    splits: ClassVar[bool] = False
    # Its results are the terms of sums over axes of a mesh, so it takes sums that are still to be done.
    unsums: ClassVar[bool] = False
    # It is linear but for a rounding, so that it is not the same before and after a sum.
    rounds: ClassVar[bool] = False
    # No pass looks through it: what it returns is not known to be its operand.
    fence: ClassVar[bool] = False
    # Called outside of any program it is compiled as one, and not run operation by operation.
    staged_alone: ClassVar[bool] = False
    # Runs the jaxprs that it carries, as loops and branches do, and does nothing else.
    control: ClassVar[bool] = False
    # Which of "nan" and "inf" a result can have where no operand has one.
    introduces: ClassVar[tuple[str, ...]] = ("nan", "inf")
    # A nan among the results may be one that the user asked for: `checks="all"` looks for others only.
    fills: ClassVar[bool] = False
    # Operands of which every nan is one of the result too: at its own index, or in what it is reduced to.
    keeps_nan: ClassVar[Operands] = ()
    # The operand that others are divided by.
    divisor: ClassVar[int | None] = None
    # Whether a float result can be -0.0.
    negative_zero: ClassVar[bool] = True
    # What one element takes to compute, in additions; nothing if it is only copied.
    weight: ClassVar[float] = 1
    # NumPy has no fast code for it, so that compiled code computes it even where `eval` is exact.
    heavy: ClassVar[bool] = False
    # Whether its operands are read from memory, so that computing them before costs nothing more.
    reads_memory: ClassVar[bool] = False
    # Whether it runs its sub-jaxprs again and again.
    iterates: ClassVar[bool] = False
    # The operand that is an index vector, of which each component is asked for on its own.
    index_operand: ClassVar[int | None] = None
    # The operation in terms of others, which are compiled in its place where there is such a definition; the bits are
    # the same.
    definition: ClassVar[Callable[..., Any] | None] = None

    if TYPE_CHECKING:  # `@primitive` replaces a class by its instance, which type checkers do not see

        def __new__(cls, *args: Any, **params: Any) -> Any: ...

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Bind: hand the operation to the active trace. Inside of `shard_map` operands are cast to one state."""
        if context.manual:
            args = tuple(cast_operands(self, args, params))
        results = context.trace.process(self, args, params)
        return results if self.multiple_results else results[0]

    def bind(self, *args: Any, **params: Any) -> Any:
        """The same with the parameters of JAX's equations: of those that this operation does not have, hints are
        ignored, and others are taken where they say nothing."""
        return self(*args, **{word: value for word, value in params.items() if not _is_silent(word, value)})

    def get_bind_params(self, params: Params) -> tuple[list[Any], Params]:
        """What `bind` takes before the operands of an equation (nothing: jaxprs are parameters), and its parameters."""
        return [], dict(params)

    def bind_with_trace(self, trace: Any, args: Sequence[Any], avals: Any, params: Params | None = None) -> Any:
        """Hand the operation to a trace. The types `avals` of the operands may be left out, as older programs do."""
        results = trace.process(self, args, avals if params is None else params)
        return results if self.multiple_results else results[0]

    # -- trace and verify ------------------------------------------------------------------------------------------

    def type(self, *types: Any, **params: Any) -> Any:
        """Result type(s) from operand types; raises a user's error when the operands do not fit."""
        raise missing(f"`{self.name}` has no type rule.")

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        """What the operation does besides computing its results."""
        return NO_EFFECTS

    # -- interpret -------------------------------------------------------------------------------------------------

    def destination(self, params: Params) -> Device | Sharding | None:
        """Where the result is put, wherever the operand is; None: where the operands are."""
        return None

    def literal(self, params: Params) -> Any:
        """The constant that an equation is, known from its parameters alone; None if it is none."""
        return None

    def eval(self, *arrays: Any, **params: Any) -> Any:
        """The meaning of the operation on NumPy arrays: the oracle for every other way of running it."""
        raise missing(f"`{self.name}` has no eval rule.")

    def exact(self, types: Sequence[Type], params: Params) -> bool:
        """Whether `eval` computes the bits of compiled code on operands of these types: all rounding is as IEEE says,
        and no order of sums matters. By default where the budget `ulp` is that of one rounding, and for integers."""
        for t in types:
            dtype = getattr(t, "dtype", None)
            if dtype is not None and dtypes.kind(dtype) in "fc":
                if self.ulp.get(dtypes.name(dtype), self.ulp.get("", 0.0)) > 0.5:
                    return False
        return True

    def eager(self, types: Sequence[Type], params: Params) -> Callable[[Sequence[Any]], list[Any]] | None:
        """A function from concrete arrays to concrete arrays that runs the operation outside of programs; None where
        compiled code or `eval` does."""
        return None

    # -- differentiate ---------------------------------------------------------------------------------------------

    def push_forward(
        self, primals: Sequence[Any], tangents: Sequence[Any], params: Params
    ) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """Results and their tangents, by a rule that computes both together; None where `jvp` is the rule."""
        return None

    def taylor(
        self, primals: Sequence[Any], series: Sequence[list[Any] | None], order: int, params: Params
    ) -> tuple[Sequence[Any], Sequence[list[Any] | None]] | None:
        """Results and lists of their derivatives up to an order, for those of operands, None where all are zero; None
        where they follow from `jvp`, or from linearity, with little work."""
        return None

    def jvp(self, tangents: Sequence[Any], out: Any, *args: Any, **params: Any) -> Any:
        """Tangent of the result, from tangents (some of them `Zero`), the result and the operands."""
        if self.zero_derivative:
            return Zero.of(out.aval)
        if self.linear and not self.multilinear:
            linear = range(len(args)) if self.linear == "all" else self.linear
            if all(type(t) is Zero for i, t in enumerate(tangents) if i in linear):
                return Zero.of(out.aval)
            return self(*(split_zeros(t) if i in linear else args[i] for i, t in enumerate(tangents)), **params)
        total: Any = None
        for position, tangent in enumerate(tangents):
            if type(tangent) is Zero:
                continue
            term = self.partial(position, tangent, out, *args, **params)
            if type(term) is Zero:
                continue
            total = term if total is None else accumulate(total, term)
        return Zero.of(out.aval) if total is None else total

    def partial(self, i: int, tangent: Any, out: Any, *args: Any, **params: Any) -> Any:
        """The contribution of one operand's tangent to the tangent of the result."""
        if self.multilinear and (self.linear == "all" or i in self.linear):
            return self(*args[:i], tangent, *args[i + 1 :], **params)
        raise missing(f"`{self.name}` is not differentiable in operand {i}: it has no `jvp` or `partial` rule.")

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        """How to split when some operands are unknown; None keeps the whole equation on the unknown side."""
        return None

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Callable[[Any], bool]) -> RematSplit | None:
        """How to compute the operation twice, storing what `saveable` allows of what it computes inside; None where
        there is no such thing."""
        return None

    def transpose(self, cotangent: Any, *args: Any, **params: Any) -> Sequence[Any]:
        """Cotangents of the operands that are `Linear`, None for the others; the operation is linear in those
        operands."""
        raise missing(f"`{self.name}` has no transpose rule: it is not linear in the operands given.")

    # -- vectorise -------------------------------------------------------------------------------------------------

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        """The operation over operands with an extra dimension at `dims` (None: not batched), and where results have
        it."""
        raise missing(f"`{self.name}` has no batch rule, so it does not work under vmap.")

    def named_axes(self, params: Params) -> tuple[Any, ...]:
        """Named axes the operation communicates over."""
        return ()

    def bound_axes(self, params: Params) -> frozenset[Any]:
        """Named axes that the operation brings into scope for its sub-jaxprs."""
        return NO_AXES

    # -- partition, compile ----------------------------------------------------------------------------------------

    def linear_operands(self, types: Sequence[Any], params: Params) -> Sequence[int]:
        """The operands that an operation on these types is linear in, so that sums of them may be done later."""
        return positions(self.linear, len(types))

    def factors(self, *types: Type, **params: Any) -> AxisFactors | None:
        """How operand and result dimensions correspond; None means every dimension must be whole on each device."""
        return None

    def explicit_factors(self, *types: Type, **params: Any) -> AxisFactors | None:
        """The same where types say how values are split: a result is split in the dimensions that correspond to those
        of operands, whatever has to be sent for it. By default what needs nothing to be sent but sums."""
        if isinstance(self.factors, MissingRule):
            return None
        found = self.factors(*types, **params)
        return None if found is None else found.without(found.inside)

    def explicit_specs(
        self, operation: Operation, types: Sequence[Any], results: Sequence[Any], params: Params
    ) -> list[PartitionSpec]:
        """How results of these types are split, from how operands are: what types say over Explicit axes."""
        rule: Any = self.factors
        reason = rule.reason if isinstance(rule, MissingRule) else "how it may be split is not said"
        return result_specs(operation, self.explicit_factors(*types, **params), reason, [t.shape for t in results])

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        """What the results are along manual axes, of which `state` is the join of the operands'."""
        return state

    def varies(self, axes: frozenset[Any], params: Params) -> frozenset[Any]:
        """The axes of a mesh along which results may differ between devices, if operands do along `axes`."""
        return axes

    def localize(self, params: Params, local_results: Sequence[Type]) -> Params:
        """Parameters for a shard whose results have the types `local_results`."""
        return params

    def unplaced(self, params: Params) -> Params:
        """Parameters that say nothing of what types say of where values are."""
        return params

    def fixed_spec(self, params: Params) -> PartitionSpec | None:
        """How the user says that the result is split, if the operation is there to say it."""
        return None

    def inspector(self, params: Params) -> Callable[[Any], None] | None:
        """What is to be told how the operand is split, if the operation is there for that."""
        return None

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Bind the operation on the parts of one device, of which `parts` says how they are split."""
        out = self(*args, **self.localize(params, parts.results))
        return out if self.multiple_results else [out]

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        """The random keys among the results that are keys of the operands, for the check that none is used twice; None
        if all are new. Operands are `KeysOf` an array, or None for what is no key array."""
        if self.identity:
            return operands
        if self.copies == "all" and len(operands) == 1:
            return [operands[0].copied(self, params)]
        return None

    def on_platform(self, platform: str, params: Params) -> Any:
        """The result as a NumPy scalar, where that is a matter of the platform that a program is compiled for; None for
        all others."""
        return None

    def live_operands(
        self, live_results: Sequence[bool], params: Params
    ) -> tuple[list[bool], Params, list[bool]] | None:
        """Dead code inside: (operands still needed, new params, results that remain), or None when nothing can go."""
        return None

    # -- compile ---------------------------------------------------------------------------------------------------

    def bounds(self, operands: OperandRanges, **params: Any) -> Range:
        """Which integers a result can be, before it wraps around."""
        if self.identity:
            return operands(0)
        copied = positions(self.copies, len(operands.types))
        return union_of([operands.anywhere(i) for i in copied]) if copied else Range.EVERYTHING

    def bounds_where(self, holds: bool, condition: Condition) -> Range:
        """What some value can be where the result, a condition, holds or does not."""
        return Range.EVERYTHING

    def introduced(self, params: Params) -> tuple[str, ...]:
        """Which of "nan" and "inf" a result can have where no operand has one."""
        return () if self.identity else self.introduces

    def nan_operands(self, params: Params) -> Operands:
        """Operands of which every nan is one of the result too."""
        return "all" if self.identity else self.keeps_nan

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        """Whether no element of the result is -0.0. `known` says the same of an operand, as far as anybody knows."""
        return not self.negative_zero

    def definition_of(self, equation: Any) -> Callable[..., Any] | None:
        """How an equation is written in terms of other operations, where these are compiled in its place."""
        return self.definition

    def fusion(self, equation: Any, target: Machine) -> Properties:
        """What fusion does with an equation: by default it stays on its own, and a library or `eval` computes it."""
        return CONTROLS if self.higher_order else UNFUSED

    def element_weight(self, params: Params) -> float:
        """What one element of the result takes to compute, in additions of real numbers."""
        return self.weight

    def flops(self, equation: Any) -> float:
        """What the results take to compute, in additions; they are arrays."""
        return weight_of(equation) * size_of(equation.outvars[0].aval.shape)

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        """Bytes read of each operand and bytes written in all, from the sizes of operands and results in bytes."""
        return operands, sum(results)

    def value_at(self, element: Element, **params: Any) -> Any:
        """One element of a result, for kernels that compute it wherever they need it. Only operations that may be part
        of such a kernel are asked."""
        raise InternalError(f"`{self.name}` has no value at an index; the fusion pass must not put it here.")

    # -- test ------------------------------------------------------------------------------------------------------

    def samples(self) -> Iterable[Sample]:
        """Operands and parameters on which every law is checked."""
        raise missing(f"`{self.name}` has no samples.")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return lookup, (self.name,)


# Parameters of JAX's equations: hints, and those which say something only if they are not None or empty.
_HINTS = frozenset(("accuracy", "use_magma"))
_OFTEN_SILENT = frozenset(("out_dtype", "out_sharding", "sharding", "update_consts", "update_jaxpr"))


def _is_silent(word: str, value: Any) -> bool:
    return word in _HINTS or (word in _OFTEN_SILENT and (value is None or value == ()))


@dataclass
class Sample:
    """Operands (NumPy arrays) and parameters for the laws. `differentiable` narrows what is checked on it.

    An operation that communicates is sampled in an `environment`, the sizes of named axes: its operands have the values
    of all elements along these axes, stacked in leading dimensions, and its meaning is that of `vmap` over them.
    """

    args: tuple[Any, ...]
    params: Params
    differentiable: bool = True
    tolerance: float | None = None
    environment: dict[Any, int] = field(default_factory=dict)

    def __init__(
        self,
        *args: Any,
        differentiable: bool = True,
        tolerance: float | None = None,
        environment: Any = None,
        **params: Any,
    ):
        self.args, self.params = args, params
        self.differentiable, self.tolerance = differentiable, tolerance
        self.environment = environment or {}


class HigherOrder(Primitive):
    """A primitive that carries jaxprs. Its rules receive the transformation that called them, as `through`, and apply
    it to the jaxprs they carry; so `primitives` never imports `transforms`."""

    multiple_results = True
    higher_order = True
    types_placement = True
    # Only one of the jaxprs runs.
    exclusive: ClassVar[bool] = False
    # Its Taylor series is that of the jaxpr that it has `called`.
    taylor_inside: ClassVar[bool] = False

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        """What each operand is to be along manual axes: what the argument is that it is passed for."""
        raise missing(f"`{self.name}` does not say what its operands are along manual axes.")

    def iterations(self, params: Params) -> Any:
        """How often the jaxprs run, as far as that is known: an integer, or a dimension."""
        return 1

    def carried(self, params: Params) -> Carried:
        """How the values of its jaxprs belong to its operands and results."""
        raise missing(f"`{self.name}` does not say how the values of its jaxprs belong to its own.")

    def with_bodies(self, bodies: Sequence[Any], params: Params) -> Params:
        """Parameters with other jaxprs, in the order of `carried`."""
        return {**params, "jaxpr": bodies[0]}

    def chosen(self, index: int, params: Params) -> Any:
        """Of an exclusive operation, the jaxpr that runs where its first operand is `index`."""
        raise missing(f"`{self.name}` does not choose between programs.")

    def called(self, operands: Sequence[Any], params: Params) -> tuple[Any, Sequence[Any]]:
        """The jaxpr that an operation runs on its operands, and the operands of that, if that is all it does."""
        raise missing(f"`{self.name}` is not the call of a program.")

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        return None if self.opens is None else through(params[self.opens], operands)

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[list[Any], list[Any]]:
        """Results and their tangents; `through(jaxpr, nonzero, instantiate)` is the jvp of a sub-jaxpr."""
        raise missing(f"`{self.name}` has no jvp rule.")

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], **params: Any
    ) -> Sequence[Any]:
        """Cotangents of `Linear` operands; `through(jaxpr, linear, nonzero_cotangents)` transposes a sub-jaxpr."""
        raise missing(f"`{self.name}` has no transpose rule.")

    def batch_through(
        self, through: Any, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[list[Any], list[int | None]]:
        """Results and their batch dimensions; `through(jaxpr, axis, batched, instantiate)` batches a sub-jaxpr at 0."""
        raise missing(f"`{self.name}` has no batch rule.")


def cast_operands(card: Primitive, args: Sequence[Any], params: Params) -> Sequence[Any]:
    """Operands cast to what they are to be along manual axes. A number is anything: it has no derivative."""
    casts = operand_casts(card, [type_of(a) for a in args], params)
    if casts is None:
        return args
    return [apply_casts(a, own) if own and hasattr(a, "aval") else a for a, own in zip(args, casts, strict=True)]


def apply_casts(value: Any, casts: Sequence[Cast]) -> Any:
    """A value after casts along manual axes."""
    for name, axes in casts:
        value = lookup(name)(value, axes=axes)
    return value


def in_state(value: Any, aval: Type) -> Any:
    """A value cast to what a type says along manual axes, as far as that needs no communication."""
    if aval.is_plain:
        return value
    wanted = state_of(aval)
    return apply_casts(value, casts_to(state_of(type_of(value)), wanted.varying, wanted.reduced))


def check_operands(name: str, types: Sequence[Type], expected: Sequence[Type]) -> None:
    """A sub-jaxpr of an equation is called with operands of its arguments' types, up to weakness."""
    if len(types) != len(expected):
        raise JaxprTypeError(f"`{name}` carries a program of {len(expected)} arguments, but got {len(types)} operands.")
    for i, (aval, wanted) in enumerate(zip(types, expected, strict=True)):
        if aval is not wanted and not wanted.accepts(aval):
            if aval.plain.matches(wanted.plain):
                raise ShardingTypeError(
                    f"`{name}`: operand {i} is not where the argument is that it is passed for.",
                    received=f"{aval.short()} for {wanted.short()}",
                    fix="split operands as the body, which is traced for one element of a vmap, takes them",
                )
            raise JaxprTypeError(
                f"`{name}`: operand {i} does not have the type of the argument it is passed for.",
                received=f"{aval.short()} for {wanted.short()}",
            )


def weight_of(equation: Any) -> float:
    """What one element of the result of an equation takes to compute, in additions; complex numbers take four times as
    many."""
    weight = equation.primitive.element_weight(equation.params)
    if not weight or not equation.outvars:
        return weight
    aval = equation.outvars[0].aval
    return weight * 4 if isinstance(aval, ArrayType) and dtypes.kind(aval.dtype) == "c" else weight


def positions(operands: Operands, count: int) -> Sequence[int]:
    """The operands that a card names, of so many."""
    return range(count) if operands == "all" else operands  # type: ignore[return-value]


_registry: dict[str, Primitive] = {}


def primitive(card: type[Primitive]) -> Any:
    """Register a primitive class and return its one instance, which is called to bind it."""
    name = card.__dict__.get("name", card.__name__)
    card.name = name
    if name in _registry:
        raise ValueError(f"A primitive named `{name}` exists already; choose another name.")
    instance = card()
    instance.__doc__ = card.__doc__
    _registry[name] = instance
    return instance


def lookup(name: str) -> Primitive:
    """The primitive registered under `name`, whether its module has been imported or not."""
    found = _registry.get(name)
    if found is None:
        _needs["module"](name)
        if name not in _registry:
            raise ValueError(f"There is no primitive named `{name}`.")
        found = _registry[name]
    return found


def registered() -> list[Primitive]:
    """All primitives, in order of registration."""
    return list(_registry.values())


# What is needed of later folders: zeros and addition, which `primitives` fills in, batching, which `transforms` fills
# in, and the import of a primitive's module, which the package fills in.
_needs: dict[str, Callable[..., Any]] = {}


def provide(name: str, function: Callable[..., Any]) -> None:
    """Fill in what `instantiate`, `accumulate`, `batched_jaxpr` or `lookup` needs: "zeros", "add", "batch" or
    "module"."""
    _needs[name] = function


def instantiate(tangent: Any) -> Any:
    """A symbolic zero as real zeros; anything else unchanged. Zeros that are on all devices are parts of what is split,
    but not what is unreduced or reduced, which only their type says."""
    if type(tangent) is not Zero:
        return tangent
    sharding = getattr(tangent.aval, "explicit_sharding", None)
    if sharding is not None and (sharding.spec.unreduced or sharding.spec.reduced):
        return split_zeros(tangent)
    return _needs["zeros"](tangent.aval)


def split_zeros(tangent: Any) -> Any:
    """The same with zeros split as their type says: some operations need operands that are split alike."""
    sharding = getattr(tangent.aval, "explicit_sharding", None) if type(tangent) is Zero else None
    zeros = _needs["zeros"](tangent.aval) if type(tangent) is Zero else tangent
    return zeros if sharding is None else lookup("reshard")(zeros, sharding=sharding, source=None)


def accumulate(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents of one value, either of which may be a symbolic zero."""
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    return _needs["add"](x, y)


def batched_jaxpr(
    jaxpr: Any, axis: Axis, batched: Sequence[bool], forced: bool | Sequence[bool] = True
) -> tuple[Any, tuple[bool, ...]]:
    """A sub-jaxpr over arguments whose first dimension, where `batched`, is `axis`, and which results have it too:
    those that depend on a batched argument or are `forced`."""
    return _needs["batch"](jaxpr, axis, batched, forced)
