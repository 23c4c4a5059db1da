"""Every setting of Weft, typed, in one place.

A setting has a global value and, inside a `with` block, a value of the current thread:

    config.update("enable_x64", True)      the global value; config.enable_x64 = True is the same
    with enable_x64(True): ...             this thread, this block
    config.enable_x64                      the value now

Settings that change the code a trace produces are marked `in_key`; `config.key()` is the tuple of their values, which
every cache of traced or compiled code must have in its key.
"""

from __future__ import annotations

import contextlib
import difflib
import operator
import os
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from weft.base.forks import held

__all__ = ["Config", "State", "config", "states"]

Value = TypeVar("Value")

_PREFIXES = ("jax_", "weft_")
_MISSING: Any = object()


class Config(threading.local):
    """The current value of each setting, as an attribute.

    The global values are attributes of this class and the overrides of a thread are attributes of the instance as that
    thread sees it: so reading is one attribute lookup and needs no function call.
    """

    enable_x64: bool
    explicit_x64_dtypes: str
    numpy_dtype_promotion: str
    numpy_rank_promotion: str
    default_matmul_precision: str | None
    default_prng_impl: str
    enable_custom_prng: bool
    threefry_partitionable: bool
    random_seed_offset: int
    legacy_prng_key: str
    compilation_cache: bool
    compilation_cache_dir: str
    mesh: Any
    default_device: Any
    reproducible: Any
    disable_jit: bool
    no_tracing: bool
    autotune_milliseconds: int
    num_threads: int
    distributed_checks: str
    distributed_transport: str
    overlap_bytes: int
    stuck_after: int
    abort_after: int
    checks: str
    enable_checks: bool
    debug_nans: bool
    debug_infs: bool
    debug_key_reuse: bool
    check_tracer_leaks: bool
    log_compiles: bool
    explain_cache_misses: bool
    profiling: bool
    traceback_filtering: str
    num_cpu_devices: int
    platform_name: str
    platforms: str
    cpu_enable_async_dispatch: bool
    transfer_guard: str

    # (generation, key, key of calls): they are right as long as the generation is still the current one.
    _stamped: tuple[int, tuple[Any, ...], tuple[Any, ...]] = (-1, (), ())

    def update(self, name: str, value: Any) -> None:
        """Set the global value of the setting `name` ("enable_x64", or with the prefix "jax_" or "weft_")."""
        find(name).set_global(value)

    def read(self, name: str) -> Any:
        """The current value of the setting `name`, which may have the prefix "jax_" or "weft_"."""
        return find(name).value

    @property
    def values(self) -> dict[str, Any]:
        """The current value of every setting, by name."""
        return {name: getattr(self, name) for name in states}

    def key(self) -> tuple[Any, ...]:
        """The values of all settings that change traced code; equal keys are the same object."""
        stamped, key, _ = self._stamped
        return key if stamped == generation[0] else self._make_keys()[1]

    def call_key(self) -> tuple[Any, ...]:
        """The key with the settings that change how a compiled function is called; equal keys are the same object."""
        stamped, _, key = self._stamped
        return key if stamped == generation[0] else self._make_keys()[2]

    @contextlib.contextmanager
    def as_of(self, key: tuple[Any, ...]) -> Iterator[None]:
        """A block in which this thread sees the settings of a `key()`."""
        with contextlib.ExitStack() as stack:
            for name, value in zip(_in_key, key, strict=True):
                stack.enter_context(Scope(states[name], value))
            yield

    def _make_keys(self) -> tuple[int, tuple[Any, ...], tuple[Any, ...]]:
        # The generation is read before the values: if they change meanwhile, the entry is already old.
        now = generation[0]
        key = tuple([getattr(self, name) for name in _in_key])
        calls = (*key, *(getattr(self, name) for name in _IN_CALLS))
        entry = (now, _keys.setdefault(key, key), _keys.setdefault(calls, calls))
        threading.local.__setattr__(self, "_stamped", entry)
        return entry

    def _override(self, name: str, value: Any) -> Any:
        """Give the current thread its own value, or with `_MISSING` none; returns the one it had before."""
        own = self.__dict__
        before = own.get(name, _MISSING)
        if value is _MISSING:
            own.pop(name, None)
        else:
            own[name] = value
        own.pop("_stamped", None)
        return before

    def __getattr__(self, name: str) -> Any:
        """Called for names without an attribute: other spellings of settings are found, the rest raise."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self, find(name).name)

    def __setattr__(self, name: str, value: Any) -> None:
        """The same as `update`: what is assigned holds for the whole program, outside of `with` blocks."""
        self.update(name, value)

    def __repr__(self) -> str:
        return "Config(" + ", ".join(f"{name}={value!r}" for name, value in self.values.items()) + ")"


class State(Generic[Value]):
    """One setting: its default, its meaning and its values. Called with a value, it is a scope for a `with` block."""

    def __init__(
        self, name: str, default: Value, doc: str, *, validate: Callable[[Any], Value], expected: str, in_key: bool
    ) -> None:
        self.name = name
        self.default = default
        self.in_key = in_key
        self.environment_variable = f"WEFT_{name.upper()}"
        self.expected = expected
        self._validate = validate
        self._without_argument: Any = _MISSING  # the value that a call without argument means
        self.__name__ = name
        self.__doc__ = doc

    @property
    def value(self) -> Value:
        """The value that holds now in this thread."""
        return getattr(config, self.name)

    @property
    def global_value(self) -> Value:
        """The value outside of all `with` blocks."""
        return getattr(Config, self.name)

    def set_global(self, value: Any) -> None:
        """Set the value outside of `with` blocks, for all threads."""
        value = self.check(value)
        with _lock:
            setattr(Config, self.name, value)
            generation[0] += 1

    def check(self, value: Any) -> Value:
        """`value` as this setting stores it; raises ValueError if it is none of the allowed ones."""
        try:
            return self._validate(value)
        except (TypeError, ValueError):
            raise ValueError(f"Setting {self.name!r} got {value!r}, but expects {self.expected}.") from None

    def parse(self, text: str) -> Value:
        """The value of an environment variable's text."""
        if isinstance(self.default, bool):
            lowered = text.strip().lower()
            if lowered in _TRUE or lowered in _FALSE:
                return self.check(lowered in _TRUE)
        if self.default is None and text.strip().lower() in ("", "none"):
            return self.default
        if isinstance(self.default, int) and text.strip().lstrip("+-").isdigit():
            return self.check(int(text))
        return self.check(text)

    def __call__(self, value: Any = _MISSING) -> Scope:
        """A context manager, or decorator, in which this thread sees `value`; for a flag, no value means True."""
        if value is _MISSING:
            value = self._without_argument
        if value is _MISSING:
            raise TypeError(f"`with {self.name}(...)` needs a value: {self.expected}.")
        return Scope(self, self.check(value))

    def __bool__(self) -> bool:
        raise TypeError(f"The setting {self.name} has no truth value; read config.{self.name} or {self.name}.value.")

    def __repr__(self) -> str:
        return f"<setting {self.name}={self.value!r}>"


class Scope(contextlib.ContextDecorator):
    """Gives the current thread its own value of one setting while the block runs."""

    def __init__(self, state: State[Any], value: Any) -> None:
        self._state = state
        self._value = value
        self._before: list[Any] = []  # a stack, since one scope may be entered again inside itself

    def _recreate_cm(self) -> Scope:
        # A decorated function may run in many threads at once, so each call has a scope of its own.
        return Scope(self._state, self._value)

    def __enter__(self) -> None:
        self._before.append(config._override(self._state.name, self._value))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        config._override(self._state.name, self._before.pop())


states: dict[str, State[Any]] = {}
"""All settings by name, in the order of definition."""

_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})
_FALSE = frozenset({"", "0", "false", "no", "off", "n", "f"})
_in_key: list[str] = []
# Settings besides those in the key that change what a call of a jitted function does.
_IN_CALLS = (
    "num_threads",
    "disable_jit",
    "debug_nans",
    "debug_infs",
    "debug_key_reuse",
    "log_compiles",
    "profiling",
    "enable_checks",
    "default_device",
)
_keys: dict[tuple[Any, ...], tuple[Any, ...]] = {}
# How often a global value was set.
generation = [0]
_lock = held(threading.Lock())
config = Config()


def find(name: str) -> State[Any]:
    """The setting called `name`, with or without a prefix; raises AttributeError with the nearest name if none is."""
    plain = name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            plain = name.removeprefix(prefix)
            break
    if plain in states:
        return states[plain]
    nearest = difflib.get_close_matches(plain, states, n=1, cutoff=0.4)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else f"There are: {', '.join(states)}."
    raise AttributeError(f"There is no setting {name!r}. {hint}")


@contextlib.contextmanager
def overrides(**values: Any) -> Iterator[None]:
    """Several settings at once for this thread and block: `with overrides(enable_x64=True, debug_nans=True):`."""
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(find(name)(value))
        yield


def _alias(name: str) -> property:
    """The attribute of `Config` that reads the setting `name` under a prefixed name."""
    return property(operator.attrgetter(name))


def _define(state: State[Value]) -> State[Value]:
    """Enter a setting into the registry, with the value of its environment variable if that is set."""
    text = os.environ.get(state.environment_variable)
    value = state.default
    if text is not None:
        try:
            value = state.parse(text)
        except ValueError as error:
            raise ValueError(f"Environment variable {state.environment_variable}: {error}") from None
    states[state.name] = state
    setattr(Config, state.name, value)
    for prefix in _PREFIXES:
        setattr(Config, prefix + state.name, _alias(state.name))
    if state.in_key:
        _in_key.append(state.name)
    return state


def flag(name: str, default: bool, doc: str, *, in_key: bool) -> State[bool]:
    """Define a setting that is True or False."""

    def validate(value: Any) -> bool:
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise ValueError

    state = State(name, default, doc, validate=validate, expected="True or False", in_key=in_key)
    state._without_argument = True
    return _define(state)


@overload
def choice(name: str, default: str, doc: str, choices: tuple[str, ...], *, in_key: bool) -> State[str]: ...
@overload
def choice(name: str, default: None, doc: str, choices: tuple[str, ...], *, in_key: bool) -> State[str | None]: ...
def choice(name: str, default: Any, doc: str, choices: tuple[str, ...], *, in_key: bool) -> State[Any]:
    """Define a setting that is one of a few strings; with default None it may be None too."""

    def validate(value: Any) -> Any:
        if (value is None and default is None) or (isinstance(value, str) and value in choices):
            return value
        raise ValueError

    expected = "one of " + ", ".join(map(repr, choices)) + (" or None" if default is None else "")
    return _define(State(name, default, doc, validate=validate, expected=expected, in_key=in_key))


def integer(name: str, default: int, doc: str, *, least: int | None = None, in_key: bool) -> State[int]:
    """Define a setting that is an integer, not below `least`."""

    def validate(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least):
            return value
        raise ValueError

    expected = "an integer" if least is None else f"an integer of at least {least}"
    return _define(State(name, default, doc, validate=validate, expected=expected, in_key=in_key))


def text(name: str, default: str, doc: str, *, in_key: bool) -> State[str]:
    """Define a setting that is any string."""

    def validate(value: Any) -> str:
        if isinstance(value, (str, os.PathLike)):
            return os.fspath(value)
        raise ValueError

    return _define(State(name, default, doc, validate=validate, expected="a string or a path", in_key=in_key))


def value_of_any_kind(
    name: str, default: Any, doc: str, *, holds: Callable[[Any], bool], expected: str, in_key: bool
) -> State[Any]:
    """Define a setting whose values are hashable objects of other modules, for which `holds` is true."""

    def validate(value: Any) -> Any:
        hash(value)
        if holds(value):
            return value
        raise ValueError

    return _define(State(name, default, doc, validate=validate, expected=expected, in_key=in_key))


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
    "How operands of different types meet: 'standard' promotes them, 'strict' raises unless all but one are Python "
    "scalars or other weakly typed values.",
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
    "The precision of contractions and convolutions that name none.",
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
default_device = value_of_any_kind(
    "default_device",
    None,
    "The device of computations whose operands are committed to none; None means the first device.",
    holds=lambda value: value is None or isinstance(value, str) or hasattr(value, "platform"),
    expected="a device, the name of a platform, or None",
    in_key=False,
)


def _part_counts(value: Any) -> Any:
    """0, a number of parts, or pairs of axes and numbers of parts."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    pairs = tuple(dict(value).items())
    if pairs and all(type(n) is int and n > 0 for _, n in pairs):
        return pairs
    raise ValueError


reproducible: State[Any] = _define(
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
autotune_milliseconds = integer(
    "autotune_milliseconds",
    200,
    "How long a program's first compilation may measure which schedules are quickest for its large contractions; what "
    "was found is stored with the code on disk, and without a cache on disk nothing is measured. 0: never. Results do "
    "not depend on it, but for contractions that a library may compute: those stay as they were first compiled.",
    least=0,
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
    "After how many seconds in which others wait for it a process is reported, with its Python stack.",
    least=1,
    in_key=False,
)
abort_after = integer(
    "abort_after",
    0,
    "After how many seconds in which others wait for a process all of them are ended with code 113. 0: never.",
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


checks = _define(
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
    """A setting whose value is fixed when it is first used; another value afterwards is an error."""

    _used = False

    def fixed(self) -> Value:
        """The value, from now on for good."""
        self._used = True
        return self.global_value

    def check(self, value: Any) -> Value:
        checked = super().check(value)
        if self._used and checked != self.global_value:
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
_define(num_cpu_devices)

# ----------------------------------------------------------------------------- what programs written for JAX may ask


def _only(name: str, default: Value, doc: str, holds: Callable[[Any], bool], expected: str) -> State[Value]:
    """Define a setting of JAX that says how things are here anyway; asking for something else is an error."""

    def validate(value: Any) -> Value:
        if holds(value):
            return default if value is None else value
        raise ValueError

    return _define(State(name, default, doc, validate=validate, expected=expected, in_key=False))


platform_name = _only(
    "platform_name",
    "",
    "The platform of the devices, all of which are CPUs.",
    lambda value: value in (None, "", "cpu"),
    "'cpu', '' or None, since devices are CPUs",
)
platforms = _only(
    "platforms",
    "",
    "The platforms to use, in order of preference, with commas between: 'cpu' must be among them.",
    lambda value: value in (None, "") or (isinstance(value, str) and "cpu" in value.split(",")),
    "platforms with 'cpu' among them, '' or None, since devices are CPUs",
)
cpu_enable_async_dispatch = _only(
    "cpu_enable_async_dispatch",
    False,
    "Whether calls may return before their results are there: here they never do, so either value is fine.",
    lambda value: isinstance(value, bool),
    "True or False",
)
transfer_guard = _only(
    "transfer_guard",
    "allow",
    "What happens when arrays move between host and device, which are one here.",
    lambda value: value in (None, "allow", "log"),
    "'allow', 'log' or None, since nothing is transferred",
)
