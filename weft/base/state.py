"""Settings: a global value, values of single threads inside of `with` blocks, and the object that holds them. The
settings themselves are in `weft.base.settings`.

    config.update("enable_x64", True)      sets the global value, as does config.enable_x64 = True
    with enable_x64(True): ...             sets the value of this thread in this block
    config.enable_x64                      reads the current value

Settings that change the code a trace produces are marked `in_key`; `config.key()` is the tuple of their values, which
every cache of traced or compiled code must include in its key.
"""

from __future__ import annotations

import contextlib
import difflib
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from weft.base.forks import held
from weft.base.ignored_settings import IGNORED

Value = TypeVar("Value")

_PREFIXES = ("jax_", "weft_")
MISSING: Any = object()


class Config(threading.local):
    """The current value of each setting, as an attribute.

    Global values are attributes of this class, and the overrides of a thread are attributes of its thread-local
    instance, so reading takes one attribute lookup and no function call. `weft.config.update(name, value)` sets a value
    for all threads; a setting such as `weft.enable_x64(True)` is a scope for a `with` block.

    >>> import weft
    >>> weft.config.enable_x64
    False
    >>> with weft.enable_x64(True):
    ...     weft.config.enable_x64
    True
    """

    enable_x64: bool
    explicit_x64_dtypes: str
    numpy_dtype_promotion: str
    numpy_rank_promotion: str
    strict_narrowing: bool
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
    symbolic_sizes: str
    autotune_milliseconds: int
    cpu_enable_async_dispatch: bool
    num_threads: int
    distributed_checks: str
    distributed_transport: str
    overlap_bytes: int
    stuck_after: int
    abort_after: int
    checks: str
    strict_indices: bool
    check_static_indices: bool
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
    pjrt_plugins: str
    pjrt_options: str
    platform_name: str
    platforms: str
    cuda_visible_devices: str
    high_dynamic_range_gumbel: bool
    disable_vmap_shmap_error: bool
    error_checking_behavior_nan: str
    error_checking_behavior_oob: str
    error_checking_behavior_divide: str
    mock_gpu_topology: str
    mock_num_gpu_processes: int
    transfer_guard: str
    transfer_guard_host_to_device: str
    transfer_guard_device_to_device: str
    transfer_guard_device_to_host: str
    no_execution: bool
    thread_guard: bool
    user_contexts: Any
    logging_level: str
    captured_constants_warn_bytes: int
    dump_ir_to: str

    # (generation, key, key of calls), valid while the generation is the current one.
    _stamped: tuple[int, tuple[Any, ...], tuple[Any, ...]] = (-1, (), ())

    def update(self, name: str, value: Any) -> None:
        """Set the global value of the setting `name` ("enable_x64", or with the prefix "jax_" or "weft_")."""
        find(name).set_global(value)

    def read(self, name: str) -> Any:
        """Return the current value of the setting `name`, which may have the prefix "jax_" or "weft_"."""
        return find(name).value

    def parse_flags_with_absl(self) -> None:
        """Apply the command line flags `--jax_enable_x64`, `--nojax_enable_x64`, `--jax_default_device=cpu`, with
        either prefix. If the program uses absl, define its flags too, so that absl accepts them."""
        arguments = iter(sys.argv[1:])
        for argument in arguments:
            flag_name, equals, value = argument.lstrip("-").partition("=")
            negated = flag_name.startswith("no") and flag_name[2:].startswith(_PREFIXES)
            if not argument.startswith("-") or not flag_name[2 * negated :].startswith(_PREFIXES):
                continue
            state = find(flag_name[2 * negated :])
            is_flag = isinstance(state.default, bool)
            text = "false" if negated else value if equals else "true" if is_flag else next(arguments, "")
            state.set_global(state.parse(text))
        if "absl.flags" in sys.modules:
            self.config_with_absl()

    def config_with_absl(self) -> None:
        """Define an absl flag with JAX's name for each setting; `complete_absl_config` reads them. absl must be
        imported."""
        flags = sys.modules["absl.flags"]
        for name, state in {**states, **ignored}.items():
            if f"jax_{name}" not in flags.FLAGS:
                flags.DEFINE_string(
                    f"jax_{name}",
                    None,
                    " ".join((state.__doc__ or "").partition("\n\n")[0].split()),
                    module_name="weft",
                )

    def complete_absl_config(self, absl_flags: Any) -> None:
        """Apply the absl flags that `config_with_absl` defined; called after absl has parsed them."""
        for name, state in {**states, **ignored}.items():
            value = getattr(absl_flags.FLAGS, f"jax_{name}", None)
            if value is not None:
                state.set_global(state.parse(value))

    @property
    def x64_enabled(self) -> bool:
        """Return whether 64-bit types are enabled."""
        return self.enable_x64

    @property
    def ignored(self) -> dict[str, str]:
        """Return the settings of JAX without effect, by their JAX names, with the reasons."""
        return {name: entry.reason for name, entry in IGNORED.items()}

    @property
    def values(self) -> dict[str, Any]:
        """Return the current value of every setting, by name."""
        return {name: getattr(self, name) for name in states}

    def key(self) -> tuple[Any, ...]:
        """Return the values of all settings that change traced code; equal keys are the same object."""
        stamped, key, _ = self._stamped
        return key if stamped == generation[0] else self._make_keys()[1]

    def call_key(self) -> tuple[Any, ...]:
        """Return the key extended by the settings that change how a compiled function is called; equal keys are the
        same object."""
        stamped, _, key = self._stamped
        return key if stamped == generation[0] else self._make_keys()[2]

    @contextlib.contextmanager
    def as_of(self, key: tuple[Any, ...]) -> Iterator[None]:
        """Return a context in which this thread sees the settings of a `key()`."""
        with contextlib.ExitStack() as stack:
            for name, value in zip(_in_key, key, strict=True):
                stack.enter_context(Scope(states[name], value))
            yield

    def _make_keys(self) -> tuple[int, tuple[Any, ...], tuple[Any, ...]]:
        # Read the generation before the values: if they change meanwhile, the entry is already outdated.
        now = generation[0]
        key = tuple([getattr(self, name) for name in _in_key])
        calls = (*key, *(getattr(self, name) for name in _IN_CALLS))
        entry = (now, _keys.setdefault(key, key), _keys.setdefault(calls, calls))
        threading.local.__setattr__(self, "_stamped", entry)
        return entry

    def _override(self, name: str, value: Any) -> Any:
        """Set this thread's own value, or remove it if `MISSING`; return the previous one."""
        own = self.__dict__
        before = own.get(name, MISSING)
        if value is MISSING:
            own.pop(name, None)
        else:
            own[name] = value
        own.pop("_stamped", None)
        return before

    def __getattr__(self, name: str) -> Any:
        """Look up other spellings of settings; called for names that are not attributes."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self, find(name).name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the global value, like `update`."""
        self.update(name, value)

    def __repr__(self) -> str:
        return "Config(" + ", ".join(f"{name}={value!r}" for name, value in self.values.items()) + ")"


class State(Generic[Value]):
    """A setting: its default, documentation and values. Calling it with a value returns a scope for a `with` block."""

    def __init__(
        self, name: str, default: Value, doc: str, *, validate: Callable[[Any], Value], expected: str, in_key: bool
    ) -> None:
        self.name = name
        self.default = default
        self.in_key = in_key
        self.environment_variable = f"WEFT_{name.upper()}"
        self.expected = expected
        self._validate = validate
        self._without_argument: Any = MISSING  # the value of a call without argument
        self.__name__ = name
        self.__doc__ = doc

    @property
    def value(self) -> Value:
        """The current value in this thread."""
        result: Value = getattr(config, self.name)
        return result

    @property
    def global_value(self) -> Value:
        """The value outside of `with` blocks."""
        result: Value = getattr(Config, self.name)
        return result

    def set_global(self, value: Any) -> None:
        """Set the value outside of `with` blocks, for all threads."""
        value = self.check(value)
        with _lock:
            setattr(Config, self.name, value)
            generation[0] += 1

    def check(self, value: Any) -> Value:
        """Normalise `value` to the form that this setting stores; raise ValueError if it is not allowed."""
        try:
            return self._validate(value)
        except (TypeError, ValueError):
            raise ValueError(f"Setting {self.name!r} got {value!r}, but expects {self.expected}.") from None

    def parse(self, text: str) -> Value:
        """Parse the text of an environment variable or flag."""
        if isinstance(self.default, bool):
            lowered = text.strip().lower()
            if lowered in _TRUE or lowered in _FALSE:
                return self.check(lowered in _TRUE)
        if self.default is None and text.strip().lower() in ("", "none"):
            return self.default
        if isinstance(self.default, int) and text.strip().lstrip("+-").isdigit():
            return self.check(int(text))
        return self.check(text)

    def __call__(self, value: Any = MISSING) -> Scope:
        """Return a context manager, or decorator, in which this thread sees `value`; for a flag, no value means
        True."""
        if value is MISSING:
            value = self._without_argument
        if value is MISSING:
            raise TypeError(f"`with {self.name}(...)` needs a value: {self.expected}.")
        return Scope(self, self.check(value))

    def __bool__(self) -> bool:
        raise TypeError(f"The setting {self.name} has no truth value; read config.{self.name} or {self.name}.value.")

    def __repr__(self) -> str:
        return f"<setting {self.name}={self.value!r}>"


class Scope(contextlib.ContextDecorator):
    """Sets the current thread's value of one setting for the duration of a block."""

    def __init__(self, state: State[Any], value: Any) -> None:
        self._state = state
        self._value = value
        self._before: list[Any] = []  # a stack, because a scope may be entered recursively

    def _recreate_cm(self) -> Scope:
        # A decorated function may run in several threads at once, so each call gets its own scope.
        return Scope(self._state, self._value)

    def __enter__(self) -> None:
        self._before.append(config._override(self._state.name, self._value))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        config._override(self._state.name, self._before.pop())


states: dict[str, State[Any]] = {}
"""All settings by name, in the order of definition."""
ignored: dict[str, State[Any]] = {}  # JAX's settings without effect, without prefix

_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})
_FALSE = frozenset({"", "0", "false", "no", "off", "n", "f"})
_in_key: list[str] = []
# Settings outside of the key that change what a call of a jitted function does.
_IN_CALLS = (
    "cpu_enable_async_dispatch",
    "num_threads",
    "disable_jit",
    "debug_nans",
    "debug_infs",
    "debug_key_reuse",
    "log_compiles",
    "profiling",
    "enable_checks",
    "default_device",
    "transfer_guard_host_to_device",
    "transfer_guard_device_to_device",
    "no_execution",
    "thread_guard",
)
# JAX's names for settings with other names.
_ALIASES = {"enable_compilation_cache": "compilation_cache"}
_keys: dict[tuple[Any, ...], tuple[Any, ...]] = {}
# Incremented whenever a global value is set.
generation = [0]
_lock = held(threading.Lock())
config = Config()


def find(name: str) -> State[Any]:
    """Return the setting called `name`, with or without a prefix; raise AttributeError with the most similar name if it
    does not exist."""
    plain = name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            plain = name.removeprefix(prefix)
            break
    plain = _ALIASES.get(plain, plain)
    for known in (states, ignored):
        if plain in known:
            return known[plain]
    nearest = difflib.get_close_matches(plain, (*states, *_ALIASES, *ignored), n=1, cutoff=0.4)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else f"There are: {', '.join(states)}."
    raise AttributeError(f"There is no setting {name!r}. {hint}")


@contextlib.contextmanager
def overrides(**values: Any) -> Iterator[None]:
    """Override several settings for this thread and block: `with overrides(enable_x64=True, debug_nans=True):`."""
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(find(name)(value))
        yield


def _alias(name: str) -> property:
    """Return a property of `Config` that reads the setting `name`, for its prefixed names."""
    return property(operator.attrgetter(name))


def attach(state: State[Any], value: Any) -> None:
    """Make a setting an attribute of `Config`, also under its name with each prefix."""
    setattr(Config, state.name, value)
    for prefix in _PREFIXES:
        setattr(Config, prefix + state.name, _alias(state.name))


def define(state: State[Value]) -> State[Value]:
    """Add a setting to the registry, with the value of its environment variable if that is set."""
    text = os.environ.get(state.environment_variable)
    value = state.default
    if text is not None:
        try:
            value = state.parse(text)
        except ValueError as error:
            raise ValueError(f"Environment variable {state.environment_variable}: {error}") from None
    states[state.name] = state
    attach(state, value)
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
    return define(state)


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
    return define(State(name, default, doc, validate=validate, expected=expected, in_key=in_key))


def integer(name: str, default: int, doc: str, *, least: int | None = None, in_key: bool) -> State[int]:
    """Define a setting that is an integer, not below `least`."""

    def validate(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least):
            return value
        raise ValueError

    expected = "an integer" if least is None else f"an integer of at least {least}"
    return define(State(name, default, doc, validate=validate, expected=expected, in_key=in_key))


def text(name: str, default: str, doc: str, *, in_key: bool) -> State[str]:
    """Define a setting that is any string."""

    def validate(value: Any) -> str:
        if value is None or isinstance(value, (str, os.PathLike)):
            return os.fspath(value or "")
        raise ValueError

    return define(State(name, default, doc, validate=validate, expected="a string or a path", in_key=in_key))


def value_of_any_kind(
    name: str, default: Any, doc: str, *, holds: Callable[[Any], bool], expected: str, in_key: bool
) -> State[Any]:
    """Define a setting whose values are hashable objects of other modules, for which `holds` is true."""

    def validate(value: Any) -> Any:
        hash(value)
        if holds(value):
            return value
        raise ValueError

    return define(State(name, default, doc, validate=validate, expected=expected, in_key=in_key))
