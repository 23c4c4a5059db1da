"""The evaluator below all traces: runs one operation on concrete arrays, by NumPy or by compiled code."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import conversion, dtypes
from weft.base.errors import (
    DonatedArrayError,
    InvalidInputTypeError,
    OutOfMemoryError,
    ShardingTypeError,
    UnexpectedTracerError,
)
from weft.base.memo import Memo
from weft.base.settings import config
from weft.base.source import user_line, user_location
from weft.base.spans import span
from weft.ir.context import EVALUATION, context
from weft.ir.higher_order import ControlFlow, HigherOrder
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr
from weft.ir.kinds import Resharding
from weft.ir.nans import check_finite, checks_for_nans
from weft.ir.parameters import params_key
from weft.ir.primitive import Params, Primitive
from weft.ir.staged import infer_type, raise_with_names
from weft.ir.types import ArrayType, ShapeDtypeStruct, Type, get_aval
from weft.primitives.control.call import jit
from weft.runtime import guards, spmd
from weft.runtime.array import ConcreteArray, PlacedArray, adopt_array, put
from weft.runtime.device import HOME, Placement, default_placement, get_placement
from weft.runtime.eager import Run, native_run
from weft.runtime.execute import array_bytes, get_call_jaxpr, get_executable, is_compiled, memory_taken
from weft.runtime.held import HeldArray
from weft.runtime.memory import out_of_memory
from weft.runtime.memory_backend import MemoryBackend
from weft.runtime.placing import check_on_mesh, common_placement, put_on_device, used_arguments
from weft.runtime.sharded import ShardedArray, reshard_array
from weft.sharding.device import Device
from weft.sharding.shardings import Sharding
from weft.trace.operands import describe_operands
from weft.trace.tracer import Tracer, stray_text
from weft.transforms.key_reuse import after_evaluation, before_evaluation


def storage(value: Any, aval: Type) -> Any:
    """Return the NumPy array (or tape) that stores a concrete value."""
    if isinstance(value, HeldArray):
        return value._value
    if not isinstance(aval, ArrayType) or (isinstance(value, np.ndarray) and value.dtype == dtypes.storage(aval.dtype)):
        return value
    if isinstance(value, ShapeDtypeStruct):
        raise InvalidInputTypeError(
            "A ShapeDtypeStruct has a type but no elements, so nothing can be computed from it.",
            received=repr(value),
            fix="pass an array; to look at types only, use eval_shape, make_jaxpr or jit(f).lower",
            at=user_line(),
        )
    return conversion.canonical_array(value)


def on_any_device(value: Any, aval: Type) -> Any:
    """Return an operand of a program that reads device memory: arrays unchanged, other values as NumPy."""
    return value if isinstance(value, ConcreteArray) else storage(value, aval)


def readable(value: Any, aval: Type, backend: MemoryBackend) -> Any:
    """Return an operand of a program on devices of a backend: arrays in other memory as NumPy if the devices read the
    host's."""
    if isinstance(value, ConcreteArray) and (not backend.reads_host or value._placement.memory_backend is backend):
        return value
    return storage(value, aval)


def memory_to_give(value: Any, aval: Type, placement: Placement) -> Any:
    """Return memory with a donated value that the program may overwrite.

    It is on the device that the program runs on, and has no other references in the caller.
    """
    if isinstance(value, ConcreteArray) and value._placement.device is placement.device:
        return placement.memory_backend.donated_memory(value)
    value = storage(value, aval)
    return placement.memory_backend.copy_from_host(value, value.shape, placement.device)[1]


class Plan:
    """Evaluation plan of an operation on operands of some types.

    It has the types of its results, their placement, and `run`, which is None if NumPy evaluates the operation.
    """

    __slots__ = ("guarded", "placement", "results", "run", "types")
    results: Sequence[Type]
    run: Run | None

    def __init__(
        self, primitive: Primitive, types: Sequence[Type], params: Params, placement: Placement | None
    ) -> None:
        self.types = types
        self.placement = default_placement() if placement is None else placement
        eager = getattr(primitive, "eager", None)  # only primitives with JAX's rules have one
        if eager is not None:
            self.results, self.run, self.guarded = (), eager(types, params), guards.are_on()
            return
        out = infer_type(primitive, types, params)
        self.results = out if primitive.multiple_results else (out,)
        self.guarded = guards.are_on()  # the key of a plan includes the settings
        where = primitive.destination(params)
        if where is None:
            self.run = native_run(primitive, types, params, self.results, self.placement)
        else:
            self.run = _moving(where, types[0])


def _moving(where: Device | Sharding, aval: Type) -> Run:
    """Return a function that copies one array to a device or reshards it."""
    placement = get_placement(where, True) if isinstance(where, Device) else None

    def run(args: Sequence[Any]) -> list[Any]:
        (a,) = args
        if not isinstance(a, ConcreteArray):
            a = adopt_array(np.array(a), aval, default_placement())  # type: ignore[arg-type]
        return [put(a, placement) if placement is not None else reshard_array(a, where)]  # type: ignore[arg-type]

    return run


# Plans by operation, settings (including the default device), placement if operands are committed, types and
# parameters. Programs repeat a few of them.
_plans: Memo[Any, Plan] = Memo(4096)


def find_plan(primitive: Primitive, types: Sequence[Type], params: Params, placement: Placement | None) -> Plan:
    """Return the plan of an operation, cached if its parameters are hashable.

    `placement` is None if no operand is committed.
    """
    state: Any = id(config.call_key())  # keys live as long as the process, so their ids are unique
    if placement is not None:
        state = (state, placement)
    try:
        key = (primitive, state, *types, *params_key(params)) if params else (primitive, state, *types)
        found = _plans.get(key)
    except TypeError:
        return Plan(primitive, types, params, placement)
    return found if found is not None else _plans.keep(key, Plan(primitive, types, params, placement))


def evaluate(primitive: Primitive, args: Sequence[Any], params: Params) -> list[Any]:
    """Evaluate one operation: check its types, compute it and wrap the results."""
    types = []
    placement: Placement | None = None
    for a in args:
        if type(a) is ConcreteArray:
            types.append(a.aval)
            continue
        if type(a) is PlacedArray:
            types.append(a.aval)
            placement = HOME  # replaced by the common placement below
            continue
        if isinstance(a, Tracer):
            raise_stray(a)
        if type(a) is ShardedArray and not primitive.higher_order:
            return evaluate_sharded(primitive, args, params)
        types.append(get_aval(a))
    keys = before_evaluation(primitive, args, params) if config.debug_key_reuse else None
    if primitive.higher_order:
        results = evaluate_programs(primitive, args, types, params)  # type: ignore[arg-type]
    else:
        if placement is not None:
            placement = common_placement(args, primitive.name, "operand {}".format)
        plan = find_plan(primitive, types, params, placement)
        run = plan.run
        if plan.guarded:
            guards.check_call(primitive.name, args, plan.placement.device, with_scalars=False)
        if run is None:
            results = evaluate_by_numpy(primitive, args, plan, params, placement is not None)
        else:
            if placement is None:
                operands = [
                    a if isinstance(a, ConcreteArray) else storage(a, t) for a, t in zip(args, types, strict=True)
                ]
            else:
                backend = plan.placement.memory_backend
                operands = [readable(a, t, backend) for a, t in zip(args, types, strict=True)]
            results = run(operands)
            if checks_for_nans():
                check_finite(primitive, params, [r._value for r in results], user_location())
    if keys is not None:
        after_evaluation(keys, results)
    return results


# Programs of operations with sharded operands. Finding one anew infers types, determines the mesh and builds the
# shardings of all operands and results, which takes longer than to run it.
_sharded_programs: Memo[Any, spmd.SpmdProgram] = Memo(1024)


def make_sharded_key(primitive: Primitive, args: Sequence[Any], params: Params) -> Any:
    """Return the cache key of an operation with sharded operands.

    It has the operation, the settings (including the mesh that is set), the type and sharding of each operand and the
    parameters. It is None if an operand is committed to a device, which each call has to check.
    """
    key: list[Any] = [primitive, id(config.call_key())]
    for a in args:
        if type(a) is ShardedArray:
            key += (a.aval, a.sharding)
        elif type(a) is PlacedArray:
            return None
        else:
            key.append(get_aval(a))
    return (*key, *params_key(params)) if params else tuple(key)


def evaluate_sharded(primitive: Primitive, args: Sequence[Any], params: Params) -> list[Any]:
    """Evaluate an operation with sharded operands: on their mesh, or gathered if it moves data to a device."""
    try:
        key = make_sharded_key(primitive, args, params)
        program = _sharded_programs.get(key)
    except TypeError:  # unhashable parameters
        key = program = None
    if program is not None:
        return spmd.run(program, args)
    types = [get_aval(a) for a in args]
    where = primitive.destination(params)
    if isinstance(primitive, Resharding):
        return [reshard_array(args[0], where)]  # type: ignore[arg-type]
    if where is None:
        try:
            jaxpr = get_call_jaxpr(primitive, types, params)
        except ShardingTypeError:
            raise_with_names(primitive, types, params, describe_operands(args))
            raise
        mesh = spmd.find_mesh(jaxpr, args)
        if mesh is not None:
            check_on_mesh(args, mesh, primitive.name, "operand {}".format)
            program = spmd.compile_for_mesh(jaxpr, args, mesh)
            return spmd.run(program if key is None else _sharded_programs.keep(key, program), args)
    return evaluate(primitive, [b.gather_to_one_device() if type(b) is ShardedArray else b for b in args], params)


def evaluate_by_numpy(
    primitive: Primitive, args: Sequence[Any], plan: Plan, params: Params, may_copy: bool
) -> list[Any]:
    """Evaluate an operation by its definition on NumPy arrays.

    `may_copy` says that operands may be on other devices than the results.
    """
    placement = plan.placement
    if may_copy or placement is not HOME:
        args = put_on_device(args, placement)  # the results may be views of them
    arrays = [storage(a, t) for a, t in zip(args, plan.types, strict=True)]
    before, context.trace = context.trace, EVALUATION
    try:
        with np.errstate(all="ignore"):
            out = primitive.eval(*arrays, **params)
    except OutOfMemoryError:
        raise
    except MemoryError as error:  # NumPy's
        listed = [t for t in plan.results if isinstance(t, ArrayType)]
        size = sum(map(array_bytes, listed))
        names = ", ".join(t.short() for t in listed)
        raise out_of_memory(f"the result of {primitive.name} ({names})", size, str(error)) from None
    finally:
        context.trace = before
    results = out if primitive.multiple_results else (out,)
    if any(type(a) is np.ndarray and a.flags.writeable for a in args):
        results = [detach(r, args) for r in results]
    if checks_for_nans():
        check_finite(primitive, params, results, user_location())
    pairs = zip(results, plan.results, strict=True)
    if placement is HOME:
        return [ConcreteArray(np.asarray(r), t) if isinstance(t, ArrayType) else r for r, t in pairs]
    return [adopt_array(np.asarray(r), t, placement) if isinstance(t, ArrayType) else r for r, t in pairs]


def evaluate_programs(primitive: HigherOrder, args: Sequence[Any], types: Sequence[Type], params: Params) -> list[Any]:
    """Evaluate a higher-order operation: compile loops and `jit` calls, replay other calls one operation at a time."""
    if not is_compiled(primitive):
        infer_type(primitive, types, params)
        before, context.trace = context.trace, EVALUATION
        try:
            called, operands = primitive.as_call(args, params)
            return replay(called, *[a if hasattr(a, "aval") else EVALUATION.lift(a) for a in operands])
        finally:
            context.trace = before
    donated = params.get("donated", ())
    if donated:
        check_donated_once(args, donated)
    jaxpr = get_call_jaxpr(primitive, types, params)
    mesh = None
    if primitive.staged_alone or any(type(a) is ShardedArray for a in args):
        mesh = spmd.find_mesh(jaxpr, args)
    if mesh is not None:
        check_on_mesh(args, mesh, primitive.name, "operand {}".format, used_arguments(jaxpr))
        return run_on_mesh(spmd.compile_for_mesh(jaxpr, args, mesh, donated), args, donated)
    used = None if isinstance(primitive, ControlFlow) else used_arguments(jaxpr)
    placement = common_placement(args, primitive.name, "operand {}".format, used)
    return run_on_device(jaxpr, args, types, donated, placement, params.get("name", primitive.name))


def run_call(args: Sequence[Any], params: Params, where: spmd.SpmdProgram | Placement) -> list[Any]:
    """Run a `jit` call outside of all traces: on a mesh by its program, or on the device of a placement."""
    types = []
    for a in args:
        if isinstance(a, Tracer):
            raise_stray(a)
        types.append(get_aval(a))
    keys = before_evaluation(jit, args, params) if config.debug_key_reuse else None  # type: ignore[arg-type]
    donated = params.get("donated", ())
    if donated:
        check_donated_once(args, donated)
    with span("call", params["name"], user_location()) if config.profiling else contextlib.nullcontext():
        if isinstance(where, Placement):
            results = run_on_device(params["jaxpr"], args, types, donated, where, params["name"])
        else:
            results = run_on_mesh(where, args, donated)
    if keys is not None:
        after_evaluation(keys, results)
    return results


def run_on_mesh(program: spmd.SpmdProgram, args: Sequence[Any], donated: Sequence[bool]) -> list[Any]:
    """Run a program on the devices of its mesh; donated arguments are deleted."""
    return spmd.run(program, args, (lambda: donate(args, donated)) if donated else None)


def run_on_device(
    jaxpr: Jaxpr,
    args: Sequence[Any],
    types: Sequence[Type],
    donated: tuple[bool, ...],
    placement: Placement,
    name: str,
) -> list[Any]:
    """Run a jaxpr on the device of a placement, compiled at the first call; donated arguments are deleted.

    `name` is that of the function in errors of guards.
    """
    if guards.are_on():
        guards.check_call(name, args, placement.device, with_scalars=True)
    taken = memory_taken(jaxpr, donated, placement.device) if donated else ()
    operand = storage if placement.memory_backend.reads_host else on_any_device
    arrays = [
        memory_to_give(a, t, placement) if taken and taken[n] else operand(a, t)
        for n, (a, t) in enumerate(zip(args, types, strict=True))
    ]
    give = (lambda: donate(args, donated)) if donated else None
    before, context.trace = context.trace, EVALUATION
    try:
        with np.errstate(all="ignore"):  # also while constants are folded
            results = get_executable(jaxpr, donated, placement.device)(arrays, give, placement)
    finally:
        context.trace = before
    if donated:
        donate(args, donated)
    return results


def detach(result: Any, args: Sequence[Any]) -> Any:
    """Return a result that shares no memory with the caller's writeable NumPy arrays."""
    for a in args:
        if (
            type(a) is np.ndarray
            and a.flags.writeable
            and isinstance(result, np.ndarray)
            and np.may_share_memory(result, a)
        ):
            return result.copy()
    return result


def check_donated_once(args: Sequence[Any], donated: Sequence[bool]) -> None:
    """Raise if a donated array is also another argument of the same call: its buffer may be overwritten at any time."""
    donations = [a for a, d in zip(args, donated, strict=True) if d and isinstance(a, HeldArray)]
    for a in donations:
        if sum(a is other for other in args) > 1:
            raise DonatedArrayError(
                "A donated array must not be another argument of the same call.",
                received=a.aval.short(),
                fix="pass a copy (x.copy()), or take the argument out of donate_argnums",
                at=user_line(),
            )


def donate(args: Sequence[Any], donated: Sequence[bool]) -> None:
    """Mark donated arguments as deleted."""
    location = user_location()
    for a, donation in zip(args, donated, strict=True):
        if donation and isinstance(a, HeldArray):
            a._donate(location)


def raise_stray(tracer: Tracer) -> None:
    """Raise the error for a tracer whose trace is not active any more."""
    raise UnexpectedTracerError(
        "A traced value is used outside of the function that was being traced.",
        received=f"{tracer.aval.short()}, {tracer.origin()}",
        fix="return the value from the traced function instead of storing it in a variable outside of it",
        at=user_line(),
        jax=stray_text(tracer),
    )
