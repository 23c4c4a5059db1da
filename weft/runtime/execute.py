"""Calls of staged programs: compiled on the first call, then run natively."""

from __future__ import annotations

import itertools
import logging
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from weft.base import dtypes, events
from weft.base.compile_options import CompileOptions, get_compile_options
from weft.base.dataclass import dataclass
from weft.base.forks import RenewedLock
from weft.base.memo import Memo
from weft.base.settings import config
from weft.base.source import user_location
from weft.base.spans import span
from weft.ir.at_sizes import JaxprAtSizes, general_jaxpr
from weft.ir.higher_order import ControlFlow, HigherOrder
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.parameters import params_key
from weft.ir.primitive import Params, Primitive
from weft.ir.staged import infer_type
from weft.ir.types import ArrayType, Type
from weft.ir.unplaced import drop_placements
from weft.primitives.control.call import jit
from weft.primitives.control.check import can_flag, writes_in_place
from weft.primitives.control.inspect_sharding import run_inspections
from weft.runtime.device import CPU, default_device
from weft.runtime.execution_backend import Executable, execution_backend
from weft.runtime.memory_backend import memory_backend
from weft.sharding.device import Device
from weft.sharding.shardings import SingleDeviceSharding

_lock = RenewedLock()
logger = logging.getLogger("weft")
_programs: Memo[Any, Jaxpr] = Memo(512)
_dumped = itertools.count()  # files written by `dump_ir_to`


def is_compiled(primitive: HigherOrder) -> bool:
    """Return whether an eager call of a primitive is compiled: calls of `jit`, and loops, which would be slow
    otherwise.
    """
    return primitive.staged_alone or isinstance(primitive, ControlFlow)


def get_executable(
    jaxpr: Jaxpr,
    donated: tuple[bool, ...] = (),
    device: Device | None = None,
    options: CompileOptions | None = None,
) -> Executable:
    """Compile a jaxpr for a device (default: the default one), or return the cached executable.

    Devices of a platform share their code. `donated` has a flag for each argument, or is empty. The options of the
    compiler are by default those of the settings.
    """
    device = device or default_device()
    options = options or get_compile_options()
    donated = memory_taken(jaxpr, donated, device) if donated else ()
    key = ("executable", device.platform, donated, options)
    with _lock.current:
        return jaxpr.memoize(key, lambda: compile_with_checks(jaxpr, donated, options, device))


def array_bytes(aval: ArrayType) -> int:
    """Return the size of an array in memory, in bytes."""
    return math.prod(aval.shape) * dtypes.storage(aval.dtype).itemsize


def memory_taken(jaxpr: Jaxpr, donated: tuple[bool, ...], device: Device) -> tuple[bool, ...]:
    """Return a flag for each argument: whether it is donated and a program on a device reuses its memory; () if none
    is.

    Other donated arguments are only deleted.
    """
    takes = memory_backend(device).takes_donated

    def taken() -> tuple[bool, ...]:
        large = [isinstance(v.aval, ArrayType) and takes(array_bytes(v.aval)) for v in jaxpr.invars]
        flags = tuple(flag and size for flag, size in zip(donated, large, strict=True))
        return flags if any(flags) else ()

    return jaxpr.memoize(("memory taken", donated, device.platform), taken)


def flat_executable(jaxpr: Jaxpr, threads: bool, device: Device) -> Executable:
    """Compile a jaxpr of elementwise operations on arrays of `FLAT_LENGTH` for arrays of any length."""
    way, options = "threads" if threads else "alone", get_compile_options()
    with _lock.current:
        key = ("flat", device.platform, way, options)
        return jaxpr.memoize(key, lambda: compile_on_device(jaxpr, (), device, options, flat=way))


@dataclass(frozen=True)
class CompileCost:
    """Time that compiling a program took: seconds by stage, then for each tier of code those of its kernels.

    `shardings` describes the argument shardings of a program on a mesh.
    """

    seconds: dict[str, float]
    compile_stats: list[Any]
    shardings: str = ""

    @property
    def total(self) -> float:
        result: float = sum(self.seconds.values()) + sum(stats.total for stats in self.compile_stats)
        return result

    def __str__(self) -> str:
        stages = [f"{name} {seconds * 1e3:.1f} ms" for name, seconds in self.seconds.items()]
        for stats in self.compile_stats:
            kernels = f"{stats.compiled} kernels compiled, {stats.from_disk} from disk, {stats.reused} at hand"
            stages.append(f"{stats.label} {stats.total * 1e3:.1f} ms with {kernels}")
        shardings = f"for {self.shardings}: " if self.shardings else ""
        return f"{shardings}{self.total * 1e3:.1f} ms ({', '.join(stages)})"


def compile_costs(jaxpr: Jaxpr) -> list[CompileCost]:
    """Return the costs of all compilations of the jaxpr so far; the list grows."""
    return jaxpr.memoize("compile costs", list)


def compile_with_checks(
    jaxpr: Jaxpr, donated: tuple[bool, ...], options: CompileOptions, device: Device = CPU
) -> Executable:
    """Compile a jaxpr for a device.

    With checks, all of them share one error flag if the program can be run again to find out which one failed: then its
    arguments must be intact, so donated memory is not reused, unless the program writes in place and would have to
    copy.
    """
    general = general_jaxpr(jaxpr)
    plain = run_inspections(general.memoize("unplaced", lambda: drop_placements(general)), SingleDeviceSharding(device))
    if plain is not general:
        jaxpr = JaxprAtSizes(plain, jaxpr.sizes) if isinstance(jaxpr, JaxprAtSizes) else plain
    if not can_flag(plain, options) or (any(donated) and writes_in_place(plain)):
        return compile_on_device(jaxpr, donated, device, options)

    def with_traps() -> Executable:
        with _lock.current:
            key = ("with traps", device.platform, options)
            return jaxpr.memoize(key, lambda: compile_on_device(jaxpr, (), device, options))

    return compile_on_device(jaxpr, (), device, options, with_traps)


def compile_on_device(
    jaxpr: Jaxpr,
    donated: tuple[bool, ...],
    device: Device,
    options: CompileOptions,
    again: Callable[[], Executable] | None = None,
    flat: str = "no",
) -> Executable:
    """Compile a jaxpr by the execution backend of a device, which has these options, and record the cost."""
    with span("compile", jaxpr.name), options.in_force():
        executable = execution_backend(device).compile(jaxpr, donated, device, options, again, flat)
    record_compilation(jaxpr, CompileCost(executable.compilation.seconds, executable.compile_stats))
    if config.dump_ir_to:
        dump_jaxpr(jaxpr, pathlib.Path(config.dump_ir_to))
    return executable


def dump_jaxpr(jaxpr: Jaxpr, folder: pathlib.Path) -> None:
    """Write the text of a jaxpr to a new file in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in jaxpr.name or "program")
    path = folder / f"weft_{next(_dumped):04d}_{name}.jaxpr"
    path.write_text(f"{jaxpr}\n")


def record_compilation(jaxpr: Jaxpr, cost: CompileCost) -> None:
    """Record the cost of compiling a jaxpr, and log it with `log_compiles`."""
    costs = compile_costs(general_jaxpr(jaxpr))  # all sizes share one list
    if not isinstance(jaxpr, JaxprAtSizes) or not costs or any(stats.compiled for stats in cost.compile_stats):
        costs.append(cost)
    events.took(events.COMPILING, cost.total, fun_name=jaxpr.name)
    if config.log_compiles:
        location = user_location()
        at = "" if location is None else f" at {location.describe()}"
        logger.warning("%s", f"Finished compiling {jaxpr.name or 'a program'} in {cost}{at}")


def get_call_jaxpr(primitive: Primitive, types: Sequence[Type], params: Params) -> Jaxpr:
    """Return the jaxpr of a `jit` call, or a jaxpr with an operation as its only equation."""
    return params["jaxpr"] if primitive is jit else get_equation_jaxpr(primitive, types, params)


def get_equation_jaxpr(primitive: Primitive, types: Sequence[Type], params: Params) -> Jaxpr:
    """Return a jaxpr of one equation; equal operations share it."""
    try:
        key = (primitive, tuple(types), params_key(params))
        found = _programs.get(key)
    except TypeError:
        return one_equation(primitive, types, params)
    return found if found is not None else _programs.keep(key, one_equation(primitive, types, params))


def one_equation(primitive: Primitive, types: Sequence[Type], params: Params) -> Jaxpr:
    invars = [Var(t) for t in types]
    out = infer_type(primitive, types, params)
    outvars = [Var(t) for t in (out if primitive.multiple_results else [out])]
    equation = Equation(invars, outvars, primitive, params, primitive.effects(types, params))
    return Jaxpr((), invars, outvars, [equation], (), primitive.name)
