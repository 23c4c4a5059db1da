"""Frames: one run of a transformed function, with the methods that are running in it.

A frame has a `Call` of `weft.modules` with three collections, each {path: {name: array}}: "params", "state" and
"initial", the value that each state had first, which is what `init` returns. Paths are whole ("mlp/~/linear_0"), so a
module's scope is a child of the root. The frame adds what Haiku's rules need besides: the modules whose methods are
running, the names given out in each of these methods, and the sequences of random keys. Frames of functions that run
under a transformation inside of it belong to the same `Run`.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import weft
from weft.errors import NameInUseError, ScopeLeakError, UnboundModuleError, user_line
from weft.haiku import config
from weft.haiku.rng import PRNGSequence
from weft.modules.frontends import HAIKU
from weft.modules.scope import Call, Scope

Item = TypeVar("Item")

TOP = "~"  # path of parameters outside of modules


class ThreadStack(threading.local, Generic[Item]):
    """A stack per thread."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    @contextmanager
    def push(self, item: Item) -> Iterator[Item]:
        """Return a context in which an item is on top of the stack."""
        self.items.append(item)
        try:
            yield item
        finally:
            self.items.pop()


class ModuleMethod(NamedTuple):
    """A running method of a module."""

    module: Any
    method: str


class Names:
    """Names given out in one run of a method: the number of requests for each, and the names in use."""

    __slots__ = ("counts", "taken")

    def __init__(self, counts: Mapping[str, int] = {}, taken: Any = ()):
        self.counts: Counter[str] = Counter(counts)
        self.taken: set[str] = set(taken)

    def copy(self) -> Names:
        """Return a copy that can be extended independently."""
        return Names(self.counts, self.taken)


class Run:
    """The modules of one `init` or `apply`: paths of modules created in it, and of modules reused from an
    earlier one.
    """

    __slots__ = ("created", "inside", "over", "reused")

    def __init__(self) -> None:
        self.inside: dict[str, set[str]] = {}  # by module: modules whose methods ran inside of its methods
        self.created: set[str] = set()
        self.reused: set[str] = set()
        self.over = False


class Keys:
    """A sequence of keys, and the traced function that owns its state; drawing from another one would lose it."""

    __slots__ = ("sequence", "trace")

    def __init__(self, sequence: PRNGSequence | None):
        self.sequence = sequence
        self.trace = weft.core.get_opaque_trace_state()


_ids = itertools.count()


class Frame:
    """A running transformed function, or a function under a transformation inside of it."""

    __slots__ = ("call", "has_state", "id", "keys", "lifting", "module_stack", "names", "root", "run", "trace")

    def __init__(self, call: Call, sequence: PRNGSequence | None, has_state: bool, run: Run | None = None):
        self.call = call
        self.root = Scope(call)
        self.has_state = has_state
        self.run = Run() if run is None else run
        self.keys: list[Keys] = [Keys(sequence)]
        self.module_stack: list[ModuleMethod] = []
        self.names: list[Names] = [Names()]
        self.id = next(_ids)
        self.lifting = ""  # the path in which a running transparent lift creates modules
        self.trace = weft.core.get_opaque_trace_state()

    def within(self, call: Call, sequence: PRNGSequence | None, own_names: bool) -> Frame:
        """Return a frame at the same path on another call, in which a lifted function runs.

        With `own_names`, names given out inside stay available outside.
        """
        frame = Frame(call, sequence, self.has_state, self.run)
        frame.module_stack = list(self.module_stack)
        frame.names = [names.copy() for names in self.names] if own_names else self.names
        return frame

    @property
    def is_initializing(self) -> bool:
        """Whether this run makes the parameters."""
        return bool(self.call.flags.get("initializing", False))

    @property
    def can_make_params(self) -> bool:
        """Whether parameters may be made here: while initializing, but not in later steps of a loop."""
        return self.root.is_mutable("params")

    @property
    def sequence(self) -> PRNGSequence | None:
        """The sequence that keys are drawn from."""
        return self.keys[-1].sequence

    @property
    def module(self) -> Any:
        """The module whose method runs; None outside of all."""
        return self.module_stack[-1].module if self.module_stack else None

    @property
    def path(self) -> str:
        """The path under which parameters are made now."""
        module = self.module
        if module is None:
            return TOP
        name = getattr(module, "module_name", None)
        if name is None:
            raise UnboundModuleError(
                f"Module {type(module).__name__} cannot make parameters or submodules before it has a name.",
                at=user_line(),
                fix="super().__init__(name=name)   as the first line of __init__",
            )
        check_boundary(module)
        if module._run is not self.run and module._run.over:
            self.run.reused.add(name)
            self.check_reuse(name)
        return name

    def check_reuse(self, name: str) -> None:
        """Raise if a module of an earlier run is used beside a module of this run with the same path."""
        if name in self.run.created and name in self.run.reused:
            raise NameInUseError(
                f"Module {name!r} of an earlier run cannot be used beside a module of this run "
                "with the same path: they would share their parameters.",
                at=user_line(),
                fix=["make both modules inside of the function, in each run", "give one of them another name"],
            )

    @property
    def scope(self) -> Scope:
        """The scope at the present path."""
        return self.root.child(self.path)

    @contextmanager
    def drawing_from(self, sequence: PRNGSequence) -> Iterator[None]:
        """Draw keys from a sequence for the length of a `with`."""
        self.keys.append(Keys(sequence))
        try:
            yield
        finally:
            self.keys.pop()

    @contextmanager
    def inside(self, module: Any, method: str) -> Iterator[None]:
        """Return a context in which a method of a module runs."""
        self.module_stack.append(ModuleMethod(module, method))
        self.names.append(Names())
        try:
            yield
        finally:
            self.module_stack.pop()
            self.names.pop()


frames: ThreadStack[Frame] = ThreadStack()
boundaries: ThreadStack[int] = ThreadStack()  # modules created in frames before this id must not be used


def current_frame(what: str) -> Frame:
    """Return the frame of the running transformed function; `what` is the public name of the caller, for errors."""
    if not frames.items:
        raise UnboundModuleError(
            f"hk.{what} works inside of a transformed function only.",
            at=user_line(),
            fix=f"hk.transform(f)   where f calls hk.{what}; then .init(key, ...) and .apply(params, key, ...)",
        )
    return frames.items[-1]


def check_boundary(module: Any) -> None:
    """Raise for modules from outside of a transparent lift, whose parameters are not accessible in it."""
    if boundaries.items and module._frame_id < boundaries.items[-1]:
        raise UnboundModuleError(
            f"Module {module.module_name!r} was made outside of the function that is lifted transparently.",
            at=user_line(),
            fix="make the module inside of the function",
        )


def check_usage(frame: Frame, what: str) -> None:
    """Raise inside of a transformation that Haiku has its own form of, with `config.check_jax_usage`."""
    if config.current().check_jax_usage and weft.core.get_opaque_trace_state() != frame.trace:
        raise ScopeLeakError(
            f"hk.{what} has a side effect, and must not be used inside of a bare transformation.",
            at=user_line(),
            received=f"{weft.core.get_opaque_trace_state().describe()}, with config.check_jax_usage",
            fix=[HAIKU.lifted, "hk.transform inside of the function, so that it is pure"],
        )


def running_init() -> bool:
    """Return whether `init` of a transformed function is running, not `apply`.

    Returns:
        A Python bool.

    >>> from weft import haiku
    >>> haiku.transform(lambda: print(haiku.running_init())).init(None)
    True
    {}
    """
    return current_frame("running_init").is_initializing


def current_name() -> str:
    """Return the path of the module whose method is running; `~` outside of modules."""
    return current_frame("current_name").path
