"""All settings of Weft with their types. `weft.base.state` defines how settings are set and read."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from weft.base.ignored_settings import IGNORED
from weft.base.state import (
    MISSING,
    Config as Config,
    Scope as Scope,
    State as State,
    Value,
    attach,
    choice,
    config as config,
    define,
    find as find,
    flag,
    generation as generation,
    ignored,
    integer,
    overrides as overrides,
    states as states,
    text,
    value_of_any_kind,
)

# ----------------------------------------------------------------------------------------------------------- dtypes

enable_x64 = flag(
    "enable_x64",
    False,
    "Keep 64-bit types. When off, int64, uint64, float64 and complex128 become their halves.",
    in_key=True,
)
explicit_x64_dtypes = choice(
    "explicit_x64_dtypes",
    "warn",
    "What a 64-bit type asked for by name does while enable_x64 is off: 'warn' narrows it with a warning, "
    "'error' raises.",
    ("warn", "error"),
    in_key=True,
)
numpy_dtype_promotion = choice(
    "numpy_dtype_promotion",
    "standard",
    """How operands of different types meet: 'standard' promotes them, 'strict' raises unless all but one are Python
    scalars or other weakly typed values.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> with weft.numpy_dtype_promotion("strict"):
    ...     (wnp.arange(2) + 1).dtype
    dtype('int32')
    """,
    ("standard", "strict"),
    in_key=True,
)
numpy_rank_promotion = choice(
    "numpy_rank_promotion",
    "allow",
    "Whether NumPy-style functions may broadcast arrays of different rank: 'allow', 'warn' or 'raise'.",
    ("allow", "warn", "raise"),
    in_key=True,
)
strict_narrowing = flag(
    "strict_narrowing",
    True,
    "Raise where a number of 64 bits does not fit into the 32 bits that it becomes, or a fraction is written into "
    "integers. When off, integers wrap, floats become zero or infinite, and fractions are truncated with a warning, "
    "as in JAX.",
    in_key=True,
)

# ------------------------------------------------------------------------------------------------- numbers and keys

_PRECISIONS = (
    "default",
    "high",
    "highest",
    "bfloat16",
    "tensorfloat32",
    "float32",
    "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM",
    "ANY_F8_ANY_F8_ANY",
    "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16",
    "F16_F16_F32",
    "BF16_BF16_BF16",
    "BF16_BF16_F32",
    "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9",
    "TF32_TF32_F32",
    "TF32_TF32_F32_X3",
    "F32_F32_F32",
    "F64_F64_F64",
)

default_matmul_precision = choice(
    "default_matmul_precision",
    None,
    """The precision of contractions and convolutions that name none, see `weft.lax.Precision`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> with weft.default_matmul_precision("float32"):
    ...     y = wnp.ones((2, 2)) @ wnp.ones((2, 2))
    """,
    _PRECISIONS,
    in_key=True,
)
default_prng_impl = choice(
    "default_prng_impl",
    "threefry2x32",
    "The generator behind keys made without naming one.",
    ("threefry2x32", "rbg", "unsafe_rbg"),
    in_key=True,
)
enable_custom_prng = flag(
    "enable_custom_prng",
    False,
    "Let random.PRNGKey return typed keys instead of raw uint32 arrays.",
    in_key=True,
)
threefry_partitionable = flag(
    "threefry_partitionable",
    True,
    "Draw threefry bits by a function of the element's index alone, so that sharded and whole draws agree.",
    in_key=True,
)
random_seed_offset = integer(
    "random_seed_offset",
    0,
    "Added to every seed when a key is made: another stream for the whole program.",
    in_key=True,
)
legacy_prng_key = choice(
    "legacy_prng_key",
    "allow",
    "What happens when a raw uint32 array is used as a key: 'allow', 'warn' or 'error'.",
    ("allow", "warn", "error"),
    in_key=True,
)

# ---------------------------------------------------------------------------------------------- tracing and running

compilation_cache = flag(
    "compilation_cache",
    True,
    "Keep machine code on disk, so that the next process links it instead of compiling.",
    in_key=False,
)
compilation_cache_dir = text(
    "compilation_cache_dir",
    "",
    "The folder for machine code; empty: `weft` in the user's folder for caches.",
    in_key=False,
)

mesh = value_of_any_kind(
    "mesh",
    None,
    "The mesh that is used where none is named; weft.set_mesh sets it.",
    holds=lambda value: value is None or hasattr(value, "axis_names"),
    expected="a Mesh, an AbstractMesh or None",
    in_key=True,
)
# Value of `default_device` until the default device is chosen.
AUTOMATIC = "automatic"
default_device = value_of_any_kind(
    "default_device",
    None,
    """The device of computations whose operands are committed to none; None means the first CPU device, and "automatic"
    an accelerator if there is one. That is the initial value where one may be present, until devices are first used.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> with weft.default_device(weft.devices()[-1]):
    ...     wnp.ones(2).device == weft.devices()[-1]
    True
    """,
    holds=lambda value: value is None or isinstance(value, str) or hasattr(value, "platform"),
    expected="a device, the name of a platform, or None",
    in_key=False,
)


def _part_counts(value: Any) -> Any:
    """Validate 0, a number of parts, or pairs of axes and numbers of parts."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    pairs = tuple(dict(value).items())
    if pairs and all(type(n) is int and n > 0 for _, n in pairs):
        return pairs
    raise ValueError


reproducible: State[Any] = define(
    State(
        "reproducible",
        0,
        "Compute programs on meshes in so many parts along each axis, shared by its devices, so that they have the "
        "same bits on any number of devices that divides it; a dict says it by axis. 0: as many parts as devices.",
        validate=_part_counts,
        expected="a number of parts, or a dict from axes to numbers of parts",
        in_key=True,
    )
)
disable_jit = flag("disable_jit", False, "Run jitted functions as plain Python, equation by equation.", in_key=True)
no_tracing = flag("no_tracing", False, "Raise where a function would be traced.", in_key=False)
symbolic_sizes = choice(
    "symbolic_sizes",
    "auto",
    """What happens at the second distinct size of an argument of a jitted function: with 'auto' the sizes that differ
    become symbols, and one program is compiled for all of them (on a CPU; functions that need sizes as numbers have a
    program for each). With 'declared' only those are symbols that `jit(dynamic=)` names. Results are the same to the
    bit.""",
    ("auto", "declared"),
    in_key=False,
)
autotune_milliseconds = integer(
    "autotune_milliseconds",
    200,
    "How long a program's first compilation may measure which schedules are quickest for its large contractions; what "
    "was found is stored with the code on disk, and without a cache on disk nothing is measured. 0: never. Results do "
    "not depend on it, but for contractions that a library may compute: those stay as they were first compiled.",
    least=0,
    in_key=False,
)
cpu_enable_async_dispatch = flag(
    "cpu_enable_async_dispatch",
    True,
    "Let calls of jitted functions that take long on a CPU return before their results are there.",
    in_key=False,
)
num_threads = integer(
    "num_threads",
    0,
    "How many threads a compiled program may use on a CPU, the calling one among them; 0 is as many as can run at "
    "once. Results do not depend on it.",
    least=0,
    in_key=False,
)

# ------------------------------------------------------------------------------------------------- many processes

distributed_checks = choice(
    "distributed_checks",
    "first",
    "When processes compare what they are about to run together: before the 'first' call of each program, or before "
    "'all' calls. In either case a control thread compares the order of calls meanwhile.",
    ("first", "all"),
    in_key=False,
)
distributed_transport = choice(
    "distributed_transport",
    "auto",
    "How processes of one host exchange what collectives need, as weft.distributed.initialize finds it: by "
    "'shared_memory', by 'messages' of MPI as between hosts, or 'auto', which is the first where it is possible. "
    "Results do not depend on it.",
    ("auto", "shared_memory", "messages"),
    in_key=False,
)
overlap_bytes = integer(
    "overlap_bytes",
    1 << 26,
    "How many bytes of the results of collectives with other processes may be under way while a device computes: they "
    "are started as soon as their operands are there, and so take memory for longer. At least one may be; 0: none.",
    least=0,
    in_key=True,
)
stuck_after = integer(
    "stuck_after",
    10,
    "After how many seconds in which others wait for it, or it does not answer, a process is reported.",
    least=1,
    in_key=False,
)
abort_after = integer(
    "abort_after",
    0,
    "After how many seconds in which others wait for a process, or it does not answer, all are ended with code 113. "
    "0: never.",
    least=0,
    in_key=False,
)

# --------------------------------------------------------------------------------------------- checks and reporting


def _where_checked(value: Any) -> str:
    if isinstance(value, bool):
        return "all" if value else "off"
    if value in ("eager", "all", "off"):
        return str(value)
    raise ValueError


checks = define(
    State(
        "checks",
        "eager",
        "Where indices without a mode are checked while running: in 'eager' calls; in 'all' (True), compiled ones too, "
        "which then look at integer divisors and for nan besides; or 'off' (False).",
        validate=_where_checked,
        expected="one of 'eager', 'all', 'off', True or False",
        in_key=True,
    )
)
checks._without_argument = "all"
strict_indices = flag(
    "strict_indices",
    True,
    "Raise where an index without a mode is seen to be out of bounds while tracing. When off, what is read is clamped "
    "and what is written is dropped, as in JAX.",
    in_key=True,
)
check_static_indices = flag(
    "check_static_indices",
    False,
    "Raise where an index without a mode is seen to be out of bounds while tracing, though strict_indices is off.",
    in_key=True,
)
enable_checks = flag("enable_checks", False, "Verify each pass, and the Program and kernels that follow.", in_key=False)
debug_nans = flag("debug_nans", False, "Raise where a computation first yields a NaN.", in_key=True)
debug_infs = flag("debug_infs", False, "Raise where a computation first yields an infinity.", in_key=True)
debug_key_reuse = flag("debug_key_reuse", False, "Raise where a random key is used twice.", in_key=True)
check_tracer_leaks = flag(
    "check_tracer_leaks", False, "Raise when a traced value outlives the function it was made in.", in_key=False
)
log_compiles = flag("log_compiles", False, "Log each function that is traced and compiled.", in_key=False)
explain_cache_misses = flag(
    "explain_cache_misses",
    False,
    "Log why a jitted function was traced again: the nearest earlier call and what differs.",
    in_key=False,
)
profiling = flag(
    "profiling",
    False,
    "Time every step of the programs that run. `weft.profile` and `weft.profiler.trace` switch it on.",
    in_key=False,
)
traceback_filtering = choice(
    "traceback_filtering",
    "auto",
    "What a traceback shows of Weft's own frames: 'off' shows all; 'quiet_remove_frames' none, with a note that says "
    "so; 'remove_frames' none, with all of them in the error's cause; 'tracebackhide' marks them for IPython; 'auto' "
    "is 'tracebackhide' in IPython and 'quiet_remove_frames' elsewhere.",
    ("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto"),
    in_key=False,
)


class FixedState(State[Value]):
    """A setting that becomes fixed when it is first read; changing it afterwards is an error."""

    is_fixed = False
    before_use: Callable[[], None] | None = None
    """Hook that is called once, before the first use, and may still set the value."""

    def fixed(self) -> Value:
        """Return the value and fix it."""
        if not self.is_fixed and self.before_use is not None:
            self.before_use()
        self.is_fixed = True
        return self.global_value

    def check(self, value: Any) -> Value:
        checked = super().check(value)
        if self.is_fixed and checked != self.global_value:
            raise RuntimeError(
                f"Setting {self.name!r} is {self.global_value} and has been used, so it cannot become {value!r}: "
                f"set it right after `import weft`, or by the environment variable {self.environment_variable}."
            )
        return checked


def _count_of_devices(value: Any) -> int:
    if type(value) is int and (value == -1 or value >= 1):
        return max(value, 1)
    raise ValueError


num_cpu_devices = FixedState(
    "num_cpu_devices",
    1,
    "How many CPU devices this process has, each with memory of its own; all of them run on all cores. It is set "
    "before the devices are first asked for. -1 means 1.",
    validate=_count_of_devices,
    expected="an integer of at least 1, or -1",
    in_key=False,
)
define(num_cpu_devices)

pjrt_plugins = text(
    "pjrt_plugins",
    "",
    "PJRT plugins besides those of installed packages, as `name=path` separated by commas: the shared library of "
    "`cpu=/opt/plugin.so` has the devices `weft.devices('pjrt:cpu')`.",
    in_key=False,
)
pjrt_options = text(
    "pjrt_options",
    "",
    "Options of PJRT plugins that are passed when their devices are first asked for, as `plugin.name=value` separated "
    "by commas: `cpu.cpu_device_count=4`.",
    in_key=False,
)

# ----------------------------------------------------------------------------- what programs written for JAX may ask


def _only(name: str, default: Value, doc: str, holds: Callable[[Any], bool], expected: str) -> State[Value]:
    """Define a setting of JAX with only one supported value; setting another one is an error."""

    def validate(value: Any) -> Value:
        if holds(value):
            return default if value is None else value
        raise ValueError

    return define(State(name, default, doc, validate=validate, expected=expected, in_key=False))


platform_name = _only(
    "platform_name",
    "",
    "The platform of the devices, all of which are CPUs.",
    lambda value: value in (None, "", "cpu"),
    "'cpu', '' or None, since devices are CPUs",
)


class PlatformsState(State[str]):
    """The setting `platforms`, which decides about the default device if that is set nowhere else."""

    def set_global(self, value: Any) -> None:
        """Set the platforms; the default device is chosen anew at its next use."""
        super().set_global(value)
        default_device.set_global(AUTOMATIC if self.global_value else None)


def _validate_platforms(value: Any) -> str:
    names = "" if value is None else value
    if not isinstance(names, str):
        raise ValueError
    return names


platforms = define(
    PlatformsState(
        "platforms",
        "",
        "The platforms to use by default, in order of preference, with commas between, such as 'cpu' or 'gpu,cpu'; "
        "empty for accelerators that are present, then CPUs. Devices of others can still be named.",
        validate=_validate_platforms,
        expected="names of platforms with commas between, '' or None",
        in_key=False,
    )
)
cuda_visible_devices = _only(
    "cuda_visible_devices",
    "all",
    "Which GPUs this process sees; the variable CUDA_VISIBLE_DEVICES of the environment says it to the driver.",
    lambda value: value in (None, "", "all"),
    "'all'; set CUDA_VISIBLE_DEVICES in the environment for others",
)
high_dynamic_range_gumbel = _only(
    "high_dynamic_range_gumbel",
    False,
    "Whether random.gumbel draws more bits, so that its tail is longer.",
    lambda value: value in (False, None),
    "False; random.gumbel(..., mode='high') draws more bits",
)
disable_vmap_shmap_error = _only(
    "disable_vmap_shmap_error",
    False,
    "Whether a vmap of shard_map over axes that it has may pass.",
    lambda value: value in (False, None),
    "False, since the result would be wrong",
)
error_checking_behavior_nan, error_checking_behavior_oob, error_checking_behavior_divide = (
    _only(
        f"error_checking_behavior_{name}",
        "ignore",
        f"What checks of {what} inside of jitted functions do by default.",
        lambda value: value in (None, "ignore"),
        "'ignore'; weft.checks('all') checks indices, divisors and nan in compiled code",
    )
    for name, what in (("nan", "nan"), ("oob", "indices"), ("divide", "divisors"))
)
mock_gpu_topology = _only(
    "mock_gpu_topology",
    "",
    "GPUs that there are not.",
    lambda value: value in (None, ""),
    "'', since none are simulated",
)
mock_num_gpu_processes = _only(
    "mock_num_gpu_processes", 0, "Processes that there are not.", lambda value: value in (None, 0), "0"
)

# ------------------------------------------------------------------------------------------------------------ guards

_GUARDS = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")


class TransferGuard(State[str]):
    """The setting for all three directions of transfers. Its value is the one that was set last."""

    def set_global(self, value: Any) -> None:
        super().set_global(value)
        for state in _DIRECTIONS:
            state.set_global(self.global_value)

    def __call__(self, value: Any = MISSING, /, *, new_val: Any = MISSING) -> Any:
        value = new_val if value is MISSING else value
        return Scopes((super().__call__(value), *(state(value) for state in _DIRECTIONS)))


class Scopes(contextlib.ContextDecorator):
    """Several scopes that are entered together."""

    def __init__(self, scopes: tuple[Scope, ...]) -> None:
        self._scopes = scopes

    def _recreate_cm(self) -> Scopes:
        return Scopes(tuple(scope._recreate_cm() for scope in self._scopes))

    def __enter__(self) -> None:
        for scope in self._scopes:
            scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        for scope in reversed(self._scopes):
            scope.__exit__(*error)


def _guard_level(value: Any) -> str:
    if value is None or value in _GUARDS:
        return value or "allow"
    raise ValueError


def _transfer_state(direction: str, doc: str, kind: type[State[str]] = State) -> State[str]:
    expected = "one of " + ", ".join(map(repr, _GUARDS))
    name = f"transfer_guard{direction}"
    return define(kind(name, "allow", doc, validate=_guard_level, expected=expected, in_key=False))


transfer_guard = _transfer_state(
    "",
    """What happens when values move between host and devices, or between devices: 'allow' them, 'log' those that no
    `device_put` or `device_get` asked for, or 'disallow' them; 'log_explicit' and 'disallow_explicit' mean all.

    >>> import weft
    >>> with weft.transfer_guard("disallow"):
    ...     x = weft.device_put(1.0)
    """,
    TransferGuard,
)
transfer_guard_host_to_device = _transfer_state(
    "_host_to_device", "The same for numbers and NumPy arrays that become arguments or operands on a device."
)
transfer_guard_device_to_device = _transfer_state(
    "_device_to_device", "The same for arrays that are needed on another device than they are on."
)
transfer_guard_device_to_host = _transfer_state(
    "_device_to_host",
    "The same for arrays that NumPy or Python reads. Nothing is transferred from a CPU device, whose memory is the "
    "host's.",
)
_DIRECTIONS = (transfer_guard_host_to_device, transfer_guard_device_to_device, transfer_guard_device_to_host)

no_execution = flag("no_execution", False, "Raise where an operation or a compiled function would run.", in_key=False)


class ThreadGuard(State[bool]):
    """A guard for all threads: while it is set, only the thread that set it may run programs."""

    owner: int | None = None

    def set_global(self, value: Any) -> None:
        super().set_global(value)
        self.owner = threading.get_ident() if self.global_value else None

    def __call__(self, value: Any = True) -> Any:
        return _GuardedByThread(self, self.check(value))


class _GuardedByThread(contextlib.ContextDecorator):
    """A context in which no other thread than the one that entered it may run programs."""

    def __init__(self, state: ThreadGuard, value: bool) -> None:
        self._state, self._value = state, value
        self._before: list[tuple[bool, int | None]] = []

    def __enter__(self) -> None:
        self._before.append((self._state.global_value, self._state.owner))
        self._state.set_global(self._value)

    def __exit__(self, *error: Any) -> None:
        value, owner = self._before.pop()
        self._state.set_global(value)
        self._state.owner = owner


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


thread_guard = ThreadGuard(
    "thread_guard",
    False,
    "Raise where another thread than the one that switched this on runs something, from any thread's point of view.",
    validate=_truth,
    expected="True or False",
    in_key=False,
)
define(thread_guard)

# ------------------------------------------------------------------------------------------ contexts of users, logging

user_contexts = value_of_any_kind(
    "user_contexts",
    (),
    "The values of contexts made by weft.make_user_context, which are part of every key of traced code.",
    holds=lambda value: isinstance(value, tuple),
    expected="a tuple of pairs",
    in_key=True,
)


class UserContext:
    """A user-defined value that jitted functions may depend on: they are traced again when it changes."""

    def __init__(self, default_value: Any) -> None:
        self._default = default_value

    @property
    def value(self) -> Any:
        """The current value in this thread."""
        return next((value for context, value in config.user_contexts if context is self), self._default)

    def __call__(self, new_val: Any) -> Scope:
        """Return a context manager, or decorator, that sets a hashable value for this thread."""
        others = tuple(pair for pair in config.user_contexts if pair[0] is not self)
        return user_contexts((*others, (self, new_val)))


def make_user_context(default_value: Any = None) -> UserContext:
    """Create a context whose value is part of the cache key of every jitted function, so that a call under another
    value traces again.

    `with context(value):` sets the value, which is hashable, for this thread; `context.value` reads it.

    >>> import weft
    >>> scale = weft.make_user_context(1.0)
    >>> f = weft.jit(lambda x: x * scale.value)
    >>> with scale(3.0):
    ...     print(f(2.0))
    6.0
    >>> print(f(2.0))
    2.0
    """
    hash(default_value)
    return UserContext(default_value)


_LEVELS = ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class LoggingLevel(State[str]):
    """The level of the logger named "weft"."""

    def set_global(self, value: Any) -> None:
        super().set_global(value)
        logging.getLogger("weft").setLevel(self.global_value)


logging_level = LoggingLevel(
    "logging_level",
    "NOTSET",
    "The level of the logger named weft; NOTSET is that of the loggers around it.",
    validate=lambda value: _LEVELS[_LEVELS.index(value)],
    expected="one of " + ", ".join(map(repr, _LEVELS)),
    in_key=False,
)
define(logging_level)
captured_constants_warn_bytes = integer(
    "captured_constants_warn_bytes",
    2_000_000_000,
    "From how many bytes on a warning tells of arrays that a jitted function closes over; -1: never.",
    least=-1,
    in_key=False,
)
dump_ir_to = text(
    "dump_ir_to",
    "",
    "A folder where the jaxpr of each program that is compiled is written to; empty: none is.",
    in_key=False,
)

# -------------------------------------------------------------------------------- those of JAX that change nothing here

for _name, _entry in IGNORED.items():
    _plain = _name.removeprefix("jax_")
    ignored[_plain] = State(
        _plain, _entry.default, f"No effect: {_entry.reason}", validate=lambda value: value, expected="", in_key=False
    )
    ignored[_plain]._without_argument = True
    attach(ignored[_plain], _entry.default)
