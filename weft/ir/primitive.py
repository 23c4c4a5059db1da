"""The class of a primitive (its *card*): everything the system knows about one operation.

Each stage reads one rule: staging and the verifier read `type` and `effects`, the interpreter `eval`, forward mode
`jvp` (or `partial`), partial evaluation `partial_eval`, reverse mode `transpose`, vmap `batch`, sharding `factors`,
dead code elimination `live_operands`, the compiler's passes the rules under `compile`, the tests `samples`. A rule that
cannot exist is a `No("reason")`, and the user sees the reason in the error. `docs/design/primitive.md` explains the
class with examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError, JaxprTypeError, MissingRuleError, ShardingTypeError
from weft.indexing.ranges import Range
from weft.ir.body_map import BodyMap
from weft.ir.context import context, current_line
from weft.ir.element import Element
from weft.ir.flow import Condition, OperandRanges, union
from weft.ir.fusing import CONTROLS, UNFUSED, Machine, Properties, element_count
from weft.ir.keys import KeysThrough
from weft.ir.types import ArrayType, Type, get_aval
from weft.ir.varying import Cast, casts_to, manual_state, operand_casts
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
# Indices of operands, or "all".
Operands = tuple[int, ...] | str
NO_EFFECTS: frozenset[Any] = frozenset()
NO_AXES: frozenset[Any] = frozenset()


def missing(what: str) -> MissingRuleError:
    """Create the error for a missing rule, with the user's line of the operation that needs it."""
    return MissingRuleError(what, at=current_line())


class No:
    """A rule that cannot exist, with the reason that the error shows."""

    def __init__(self, reason: str):
        self.reason = reason

    def __set_name__(self, owner: type, name: str) -> None:
        self.rule = name

    def __get__(self, instance: Primitive | None, owner: type) -> Any:
        if instance is None:
            return self
        return MissingRule(instance, self.rule, self.reason)


class MissingRule:
    """The value of a `No` rule: calling it raises `MissingRuleError` with the reason."""

    def __init__(self, primitive: Primitive, rule: str, reason: str):
        self.primitive, self.rule, self.reason = primitive, rule, reason

    def __call__(self, *args: Any, **params: Any) -> Any:
        raise missing(f"`{self.primitive.name}` has no {self.rule} rule: {self.reason}.")


@dataclass(frozen=True)
class Axis:
    """The axis that a batching transformation maps over: its size, its name, and the mesh axes `spmd` over which a
    `shard_map` inside splits it."""

    size: Any
    name: Any = None
    spmd: tuple[Any, ...] = ()
    # The sharding of this one dimension over Explicit mesh axes, as types record it; None if it is not split.
    sharding: NamedSharding | None = None

    def insert_into(self, aval: Any, dim: int = 0) -> Any:
        """Return the type `aval` with this axis inserted at dimension `dim`."""
        found = aval.with_dimension(dim, self.size)
        if self.sharding is None:
            return found
        entries = (*found.spec.partitions[:dim], self.sharding.spec[0], *found.spec.partitions[dim + 1 :])
        spec = found.spec.update(partitions=entries)
        return found.with_placement(sharding=(found.explicit_sharding or self.sharding).update(spec=spec))


@dataclass(frozen=True)
class Split:
    """The result of partial evaluation of one equation: a known and an unknown equation.

    `known` (primitive, params) takes the operands at `known_in` and returns the known results followed by residuals;
    None if there is nothing to compute. `unknown` takes the operands listed in `unknown_in`, in that order, and returns
    the unknown results: an index >= 0 is an operand of the equation, `~k` is residual k.
    """

    known: tuple[Any, Params] | None
    known_in: tuple[int, ...]
    unknown: tuple[Any, Params]
    unknown_in: tuple[int, ...]
    unknown_out: tuple[bool, ...]
    residual_types: tuple[Type, ...] = ()


@dataclass(frozen=True)
class RematSplit:
    """An equation that rematerialisation computes twice, split so that saved values are not computed again.

    `first` (primitive, params) takes the operands and returns the results, then additional values; the values at
    `stored` are saved. `second` takes the operands listed in `second_in` (an index >= 0 is an operand of the equation,
    `~k` is saved value k) and returns the results. `whole` lists the results of the equation that are saved themselves.
    """

    first: tuple[Any, Params]
    first_types: tuple[Type, ...]
    stored: tuple[int, ...]
    second: tuple[Any, Params]
    second_in: tuple[int, ...]
    whole: tuple[int, ...] = ()


class Primitive:
    """One operation: its properties as class attributes and its rules as methods.

    Subclass a family, give it a name and rules, and register it with `@primitive`. Every rule has a default, so that a
    class states only what differs. Rules that can be defined in several ways return None for "use the default way".
    """

    name: ClassVar[str]
    multiple_results: ClassVar[bool] = False
    # Operands in which the operation is linear: in each of them separately if `multilinear` (mul), else jointly (add).
    linear: ClassVar[Operands] = ()
    multilinear: ClassVar[bool] = False
    # The derivative of the float result is zero wherever it exists (floor, sign).
    zero_derivative: ClassVar[bool] = False
    # Error bound of compiled code in units in the last place of the result, by the name of the operands' dtype; "" is
    # the default for all dtypes.
    ulp: ClassVar[dict[str, float]] = {"": 0.0}
    higher_order: ClassVar[bool] = False
    # JAX's flags for calls and maps of a jaxpr, which programs written for JAX read. No primitive maps over devices.
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False
    # Increases when the meaning of parameters changes; exported files record it.
    version: ClassVar[int] = 1
    # The operation cannot be computed: `eval` raises the user's error, and so does compiling a program that has it.
    has_no_value: ClassVar[bool] = False
    # The rules exist only in this process, so programs with this primitive are not stored on disk, exported or pickled.
    of_this_process: ClassVar[bool] = False
    # `type` receives the operands' types with their placements (sharding, manual axes, memory) and returns those of the
    # results. Operations with sub-jaxprs need it; for all others placements follow from `factors`.
    types_placement: ClassVar[bool] = False
    # Operands whose elements make up the results; which element is where depends on indices alone. Computes nothing.
    copies: ClassVar[Operands] = ()
    # The result is the operand: compiled code omits the operation, only derivatives and checks treat it specially.
    identity: ClassVar[bool] = False
    # A cast: changes only the state of the type along its parameter `axes`, manual axes of a `shard_map`.
    casts: ClassVar[bool] = False
    # Each element of a result depends only on the operands' elements at the same index and on scalars.
    pointwise: ClassVar[bool] = False
    # The first operand selects which of the others each element comes from (select_n); `case_of` returns one of these
    # others where it is selected, and zero elsewhere.
    chooses: ClassVar[bool] = False
    # Folded at compile time where all operands are known and small.
    foldable: ClassVar[bool] = False
    # The parameter that holds the called jaxpr, for plain calls: inlining replaces the call by the jaxpr's equations.
    opens: ClassVar[str | None] = None
    # Carries information for partitioning over meshes (a sharding, a mesh); passes keep it until partitioning has run.
    partitions: ClassVar[bool] = False
    # Only sets the sharding of its operand, to `destination`.
    splits: ClassVar[bool] = False
    # Returns the terms of a sum over mesh axes (unsum), so it accepts unreduced operands without an all-reduce.
    unsums: ClassVar[bool] = False
    # Linear except for rounding (reduce_precision), so it must not be exchanged with a sum.
    rounds: ClassVar[bool] = False
    # An optimization barrier: no pass may assume that the results equal the operands.
    fence: ClassVar[bool] = False
    # An eager call is compiled as one program instead of being run operation by operation.
    staged_alone: ClassVar[bool] = False
    # Control flow: runs its sub-jaxprs (a loop, a branch) and does nothing else.
    control: ClassVar[bool] = False
    # Which of "nan" and "inf" a result can contain although no operand does.
    introduces: ClassVar[tuple[str, ...]] = ("nan", "inf")
    # A nan in the results may be intended, such as a fill value, so `checks="all"` does not report it.
    fills: ClassVar[bool] = False
    # Operands whose NaNs propagate to the result: to the same index, or to the element they are reduced to.
    keeps_nan: ClassVar[Operands] = ()
    # Index of the operand that is a divisor.
    divisor: ClassVar[int | None] = None
    # A float result can be -0.0.
    negative_zero: ClassVar[bool] = True
    # Cost of one element of the result, in additions; 0 for copies.
    weight: ClassVar[float] = 1
    # NumPy is slow at it, so eager calls use compiled code even where `eval` returns the same bits.
    heavy: ClassVar[bool] = False
    # Reads its operands from memory (contractions), so computing them ahead of a loop costs no additional traffic.
    reads_memory: ClassVar[bool] = False
    # A loop: runs its sub-jaxprs repeatedly.
    iterates: ClassVar[bool] = False
    # Index of the operand that holds index vectors, whose components kernels read one by one (gather, scatter).
    index_operand: ClassVar[int | None] = None
    # An equivalent in terms of other operations, with the same bits, that is compiled instead; None if there is none.
    definition: ClassVar[Callable[..., Any] | None] = None

    if TYPE_CHECKING:  # `@primitive` replaces a class by its instance, which type checkers do not see

        def __new__(cls, *args: Any, **params: Any) -> Any: ...

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Bind the operation under the active trace; return the result, or the list of results if `multiple_results`.

        Inside of `shard_map` the operands are first cast to a common state along manual axes.
        """
        if context.manual:
            args = tuple(cast_operands(self, args, params))
        results = context.trace.process(self, args, params)
        return results if self.multiple_results else results[0]

    def bind(self, *args: Any, **params: Any) -> Any:
        """Bind with the parameters of JAX's equations: hints are dropped, and so are parameters that say nothing
        because they are None or empty."""
        return self(*args, **{word: value for word, value in params.items() if not _is_silent(word, value)})

    def get_bind_params(self, params: Params) -> tuple[list[Any], Params]:
        """Return the leading arguments of `bind` (none, because jaxprs are parameters) and the parameters, for programs
        written for JAX."""
        return [], dict(params)

    def bind_with_trace(self, trace: Any, args: Sequence[Any], avals: Any, params: Params | None = None) -> Any:
        """Bind under `trace`. `avals`, the types of the operands, may be omitted, as in older versions of JAX."""
        results = trace.process(self, args, avals if params is None else params)
        return results if self.multiple_results else results[0]

    # -- trace and verify ------------------------------------------------------------------------------------------

    def type(self, *types: Any, **params: Any) -> Any:
        """Return the result type, or the list of them if `multiple_results`, from the operand types. Raise the user's
        error if the operands do not fit."""
        raise missing(f"`{self.name}` has no type rule.")

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        """Return the side effects of the operation."""
        return NO_EFFECTS

    # -- interpret -------------------------------------------------------------------------------------------------

    def destination(self, params: Params) -> Device | Sharding | None:
        """Return the device or sharding of the result if it is independent of the operands' (device_put), else None."""
        return None

    def literal(self, params: Params) -> Any:
        """Return the constant that an equation without operands computes, if its parameters determine it, else None."""
        return None

    def eval(self, *arrays: Any, **params: Any) -> Any:
        """Compute the operation on NumPy arrays of storage dtypes: the reference for all other implementations."""
        raise missing(f"`{self.name}` has no eval rule.")

    def exact(self, types: Sequence[Type], params: Params) -> bool:
        """Return whether `eval` and compiled code agree in every bit on operands of these types.

        True for integers, and for float dtypes whose error bound `ulp` is at most 0.5: then every rounding is IEEE's
        and no order of summation matters.
        """
        for t in types:
            dtype = getattr(t, "dtype", None)
            if dtype is not None and dtypes.kind(dtype) in "fc":
                if self.ulp.get(dtypes.name(dtype), self.ulp.get("", 0.0)) > 0.5:
                    return False
        return True

    def eager(self, types: Sequence[Type], params: Params) -> Callable[[Sequence[Any]], list[Any]] | None:
        """Return the function that runs the operation on concrete arrays outside of programs, or None to use compiled
        code or `eval`."""
        return None

    # -- differentiate ---------------------------------------------------------------------------------------------

    def push_forward(
        self, primals: Sequence[Any], tangents: Sequence[Any], params: Params
    ) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """Return the results and their tangents, for a rule that computes both together; None to use `jvp`."""
        return None

    def taylor(
        self, primals: Sequence[Any], series: Sequence[list[Any] | None], order: int, params: Params
    ) -> tuple[Sequence[Any], Sequence[list[Any] | None]] | None:
        """Return the results and, for each, the list of its derivatives up to `order` (None if all are zero), given
        those of the operands. None where `jvp` or linearity leads to them with little work."""
        return None

    def jvp(self, tangents: Sequence[Any], out: Any, *args: Any, **params: Any) -> Any:
        """Return the tangent of the result, given the operands' tangents (`Zero` where they vanish), the result and the
        operands."""
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
        """Return the contribution of operand i's tangent to the tangent of the result."""
        if self.multilinear and (self.linear == "all" or i in self.linear):
            return self(*args[:i], tangent, *args[i + 1 :], **params)
        raise missing(f"`{self.name}` is not differentiable in operand {i}: it has no `jvp` or `partial` rule.")

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        """Split the equation given which operands are unknown; None leaves all of it on the unknown side."""
        return None

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Callable[[Any], bool]) -> RematSplit | None:
        """Split the equation so that recomputing it reuses the inner values that `saveable` allows to save; None if it
        saves none."""
        return None

    def transpose(self, cotangent: Any, *args: Any, **params: Any) -> Sequence[Any]:
        """Return the cotangents of the operands that are `Linear`, in which the operation is linear, and None for all
        others."""
        raise missing(f"`{self.name}` has no transpose rule: it is not linear in the operands given.")

    # -- vectorise -------------------------------------------------------------------------------------------------

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        """Apply the operation to operands that have an additional batch dimension at `dims` (None: not batched). Return
        the results and their batch dimensions."""
        raise missing(f"`{self.name}` has no batch rule, so it does not work under vmap.")

    def named_axes(self, params: Params) -> tuple[Any, ...]:
        """Return the named axes that the operation communicates over."""
        return ()

    def bound_axes(self, params: Params) -> frozenset[Any]:
        """Return the named axes that the operation brings into scope for its sub-jaxprs."""
        return NO_AXES

    # -- partition, compile ----------------------------------------------------------------------------------------

    def linear_operands(self, types: Sequence[Any], params: Params) -> Sequence[int]:
        """Return the indices of operands in which the operation is linear for these types, so that pending sums of them
        may be reduced after it."""
        return positions(self.linear, len(types))

    def factors(self, *types: Type, **params: Any) -> AxisFactors | None:
        """Return the correspondence between operand and result dimensions; None if no dimension can be split."""
        return None

    def explicit_factors(self, *types: Type, **params: Any) -> AxisFactors | None:
        """Return the factors along which Explicit shardings propagate to result types.

        A result is split in the dimensions that correspond to split dimensions of operands, whatever communication that
        takes. By default these are the factors that need none besides sums.
        """
        if isinstance(self.factors, MissingRule):
            return None
        found = self.factors(*types, **params)
        return None if found is None else found.without(found.inside)

    def explicit_specs(
        self, operation: Operation, types: Sequence[Any], results: Sequence[Any], params: Params
    ) -> list[PartitionSpec]:
        """Return the specs of results over Explicit mesh axes, from those of the operands."""
        rule: Any = self.factors
        reason = rule.reason if isinstance(rule, MissingRule) else "it has no `factors` rule"
        return result_specs(operation, self.explicit_factors(*types, **params), reason, [t.shape for t in results])

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        """Return the results' state along manual axes, given `state`, the join of the operands' states."""
        return state

    def varies(self, axes: frozenset[Any], params: Params) -> frozenset[Any]:
        """Return the mesh axes along which results may differ between devices if operands differ along `axes`."""
        return axes

    def localize(self, params: Params, local_results: Sequence[Type]) -> Params:
        """Return the parameters for one shard, whose results have the types `local_results`."""
        return params

    def drop_placement(self, params: Params) -> Params:
        """Return the parameters without the parts that describe placement, for jaxprs with plain types."""
        return params

    def user_spec(self, params: Params) -> PartitionSpec | None:
        """Return the spec that the user set for the result (sharding_constraint, reshard), else None."""
        return None

    def inspector(self, params: Params) -> Callable[[Any], None] | None:
        """Return the callback that receives the operand's sharding (inspect_sharding only), else None."""
        return None

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Bind the operation on one device's shards of the operands; `parts` describes how they are split."""
        out = self(*args, **self.localize(params, parts.results))
        return out if self.multiple_results else [out]

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        """Return which random keys of the operands each result contains, for the check of key reuse; None if all keys
        in the results are new. An operand is the `KeysOf` its array, or None if it holds no keys."""
        if self.identity:
            return operands
        if self.copies == "all" and len(operands) == 1:
            return [operands[0].copy_keys(self, params)]
        return None

    def on_platform(self, platform: str, params: Params) -> Any:
        """Return the result as a NumPy scalar if the platform that is compiled for determines it (platform_index), else
        None."""
        return None

    def live_operands(
        self, live_results: Sequence[bool], params: Params
    ) -> tuple[list[bool], Params, list[bool]] | None:
        """Remove dead code inside of the equation. Return (operands still needed, new params, results that remain), or
        None if nothing can be removed."""
        return None

    # -- compile ---------------------------------------------------------------------------------------------------

    def bounds(self, operands: OperandRanges, **params: Any) -> Range:
        """Return the range of the integers in a result, before wraparound."""
        if self.identity:
            return operands(0)
        copied = positions(self.copies, len(operands.types))
        return union([operands.anywhere(i) for i in copied]) if copied else Range.EVERYTHING

    def bounds_where(self, holds: bool, condition: Condition) -> Range:
        """Return the range of the value that `condition` asks about, given that this operation's boolean result is
        `holds`."""
        return Range.EVERYTHING

    def introduced(self, params: Params) -> tuple[str, ...]:
        """Return which of "nan" and "inf" a result can contain although no operand does."""
        return () if self.identity else self.introduces

    def nan_operands(self, params: Params) -> Operands:
        """Return the indices of operands whose NaNs propagate to the result."""
        return "all" if self.identity else self.keeps_nan

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        """Return whether no element of the result can be -0.0. `known` returns the same for an operand, as far as it
        can be proved."""
        return not self.negative_zero

    def define(self, equation: Any) -> Callable[..., Any] | None:
        """Return the function that defines the equation in terms of other operations, or None if it is compiled as it
        is."""
        return self.definition

    def fusion(self, equation: Any, target: Machine) -> Properties:
        """Return how fusion treats the equation. By default it is unfused, and a library or `eval` computes it."""
        return CONTROLS if self.higher_order else UNFUSED

    def element_weight(self, params: Params) -> float:
        """Return the cost of one element of the result, in additions of real numbers."""
        return self.weight

    def flops(self, equation: Any) -> float:
        """Return the cost of computing the results, which are arrays, in additions."""
        return element_cost(equation) * element_count(equation.outvars[0].aval.shape)

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        """Return the bytes read of each operand and the bytes written in total, given the sizes of operands and results
        in bytes."""
        return operands, sum(results)

    def value_at(self, element: Element, **params: Any) -> Any:
        """Compute one element of a result inside of a kernel. Called only for operations that `fusion` allows to be
        computed at an index."""
        raise InternalError(f"`{self.name}` has no value at an index; the fusion pass must not put it here.")

    # -- test ------------------------------------------------------------------------------------------------------

    def samples(self) -> Iterable[Sample]:
        """Yield operands and parameters on which the tests check every law."""
        raise missing(f"`{self.name}` has no samples: define `samples` to test it.")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return lookup, (self.name,)


# Parameters of JAX's equations that `bind` drops: hints always, the others if they are None or empty.
_HINTS = frozenset(("accuracy", "use_magma"))
_OFTEN_SILENT = frozenset(("out_dtype", "out_sharding", "sharding", "update_consts", "update_jaxpr"))


def _is_silent(word: str, value: Any) -> bool:
    """Return whether `bind` may drop a parameter that the operation does not have."""
    return word in _HINTS or (word in _OFTEN_SILENT and (value is None or value == ()))


@dataclass
class Sample:
    """Operands (NumPy arrays) and parameters on which the tests check the laws. `differentiable` and `tolerance` narrow
    what is checked.

    A collective is sampled in an `environment`, the sizes of named axes: its operands stack the values of all devices
    along these axes in leading dimensions, and its reference is `vmap` over them.
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
    """A primitive with sub-jaxprs. Its rules receive the calling transformation as `through` and apply it to the
    sub-jaxprs, so `primitives` never imports `transforms`."""

    multiple_results = True
    higher_order = True
    types_placement = True
    # Only one of the jaxprs runs.
    exclusive: ClassVar[bool] = False
    # Taylor mode differentiates the jaxpr that `as_call` returns.
    taylor_inside: ClassVar[bool] = False

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        """Return the state along manual axes that each operand must have: that of the body argument it is passed to."""
        raise missing(f"`{self.name}` needs an `operand_states` rule to be used inside of shard_map.")

    def iterations(self, params: Params) -> Any:
        """Return how often the sub-jaxprs run, an integer or a dimension; 1 if it is not known."""
        return 1

    def body_map(self, params: Params) -> BodyMap:
        """Return how arguments and results of the sub-jaxprs correspond to operands and results."""
        raise missing(f"`{self.name}` must have a `body_map` rule, which maps its operands to its sub-jaxprs.")

    def with_bodies(self, bodies: Sequence[Any], params: Params) -> Params:
        """Return the parameters with other sub-jaxprs, given in the order of `body_map`."""
        return {**params, "jaxpr": bodies[0]}

    def chosen(self, index: int, params: Params) -> Any:
        """Return the sub-jaxpr that runs if the first operand is `index`, for `exclusive` operations."""
        raise missing(f"`{self.name}` does not choose between sub-jaxprs, so it has no `chosen` rule.")

    def as_call(self, operands: Sequence[Any], params: Params) -> tuple[Any, Sequence[Any]]:
        """Return the jaxpr and the operands of the call that this operation is equivalent to, if it is a plain call."""
        raise missing(f"`{self.name}` is not a plain call of a jaxpr, so it has no `as_call` rule.")

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        return None if self.opens is None else through(params[self.opens], operands)

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[list[Any], list[Any]]:
        """Return the results and their tangents; `through(jaxpr, nonzero, instantiate)` is the jvp of a sub-jaxpr."""
        raise missing(f"`{self.name}` has no jvp rule.")

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], **params: Any
    ) -> Sequence[Any]:
        """Return the cotangents of `Linear` operands; `through(jaxpr, linear, nonzero_cotangents)` transposes a
        sub-jaxpr."""
        raise missing(f"`{self.name}` has no transpose rule.")

    def batch_through(
        self, through: Any, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[list[Any], list[int | None]]:
        """Return the results and their batch dimensions; `through(jaxpr, axis, batched, instantiate)` batches a
        sub-jaxpr along dimension 0."""
        raise missing(f"`{self.name}` has no batch rule.")


def cast_operands(card: Primitive, args: Sequence[Any], params: Params) -> Sequence[Any]:
    """Cast operands to their common state along manual axes. Python numbers are left as they are: they fit any state,
    because they have no derivative."""
    casts = operand_casts(card, [get_aval(a) for a in args], params)
    if casts is None:
        return args
    return [apply_casts(a, own) if own and hasattr(a, "aval") else a for a, own in zip(args, casts, strict=True)]


def apply_casts(value: Any, casts: Sequence[Cast]) -> Any:
    """Apply a sequence of casts along manual axes to a value."""
    for name, axes in casts:
        value = lookup(name)(value, axes=axes)
    return value


def in_state(value: Any, aval: Type) -> Any:
    """Cast a value to the state of type `aval` along manual axes, as far as that needs no communication."""
    if aval.is_plain:
        return value
    wanted = manual_state(aval)
    return apply_casts(value, casts_to(manual_state(get_aval(value)), wanted.varying, wanted.reduced))


def check_operands(name: str, types: Sequence[Type], expected: Sequence[Type]) -> None:
    """Raise unless the operand types of an equation match the argument types of its sub-jaxpr, up to weak types."""
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


def element_cost(equation: Any) -> float:
    """Return the cost of one element of an equation's result, in additions; complex numbers cost four times as much."""
    weight = equation.primitive.element_weight(equation.params)
    if not weight or not equation.outvars:
        return weight
    aval = equation.outvars[0].aval
    return weight * 4 if isinstance(aval, ArrayType) and dtypes.kind(aval.dtype) == "c" else weight


def positions(operands: Operands, count: int) -> Sequence[int]:
    """Return the indices of the operands that a class attribute names, given how many there are."""
    return range(count) if operands == "all" else operands  # type: ignore[return-value]


_registry: dict[str, Primitive] = {}


def primitive(card: type[Primitive]) -> Any:
    """Register a primitive class and return its only instance; calling the instance binds it."""
    name = card.__dict__.get("name", card.__name__)
    card.name = name
    if name in _registry:
        raise ValueError(f"A primitive named `{name}` exists already; choose another name.")
    instance = card()
    instance.__doc__ = card.__doc__
    _registry[name] = instance
    return instance


def lookup(name: str) -> Primitive:
    """Return the primitive registered under `name`, importing its module if necessary."""
    found = _registry.get(name)
    if found is None:
        _needs["module"](name)
        if name not in _registry:
            raise ValueError(f"There is no primitive named `{name}`.")
        found = _registry[name]
    return found


def all_primitives() -> list[Primitive]:
    """Return all primitives in order of registration."""
    return list(_registry.values())


# Functions of packages above this one: "zeros" and "add" come from `primitives`, "batch" from `transforms`, "module",
# which imports a primitive's module, from the package.
_needs: dict[str, Callable[..., Any]] = {}


def provide(name: str, function: Callable[..., Any]) -> None:
    """Register the implementation that `instantiate` ("zeros"), `accumulate` ("add"), `batch_jaxpr` ("batch") or
    `lookup` ("module") uses."""
    _needs[name] = function


def instantiate(tangent: Any) -> Any:
    """Convert a symbolic zero to an array of zeros; return anything else unchanged.

    Replicated zeros fit a split type, because each device takes its part. They do not fit an unreduced or reduced type,
    so the zeros for those are created with their sharding.
    """
    if type(tangent) is not Zero:
        return tangent
    sharding = getattr(tangent.aval, "explicit_sharding", None)
    if sharding is not None and (sharding.spec.unreduced or sharding.spec.reduced):
        return split_zeros(tangent)
    return _needs["zeros"](tangent.aval)


def split_zeros(tangent: Any) -> Any:
    """Instantiate a symbolic zero with the sharding of its type, for operations whose operands must be split alike."""
    sharding = getattr(tangent.aval, "explicit_sharding", None) if type(tangent) is Zero else None
    zeros = _needs["zeros"](tangent.aval) if type(tangent) is Zero else tangent
    return zeros if sharding is None else lookup("reshard")(zeros, sharding=sharding, source=None)


def accumulate(x: Any, y: Any) -> Any:
    """Add two tangents or cotangents of one value, either of which may be a symbolic zero."""
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    return _needs["add"](x, y)


def batch_jaxpr(
    jaxpr: Any, axis: Axis, batched: Sequence[bool], forced: bool | Sequence[bool] = True
) -> tuple[Any, tuple[bool, ...]]:
    """Batch a sub-jaxpr along dimension 0 of the arguments marked in `batched`. Return it and which of its results are
    batched: those that depend on a batched argument, and those that `forced` marks."""
    return _needs["batch"](jaxpr, axis, batched, forced)
