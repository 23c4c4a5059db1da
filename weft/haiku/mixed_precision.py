"""Policies of mixed precision for classes of modules; `weft.haiku.precision` creates policies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.errors import ArgumentError, ArgumentTypeError, suggest as _suggest, user_line
from weft.haiku.frames import ThreadStack, frames
from weft.haiku.module import MethodContext, Module, global_interceptors
from weft.haiku.parameters import GetterContext, custom_creator, custom_getter
from weft.haiku.precision import Policy

_policies: dict[type, Any] = {}
_current: ThreadStack[Any] = ThreadStack()


class _Pushed(threading.local):
    """The policies of active contexts, by class, for each thread."""

    def __init__(self) -> None:
        self.policies: dict[type, list[Any]] = {}


_pushed = _Pushed()


def _check(cls: Any, policy: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise ArgumentTypeError(f"A policy is for a class of modules, got {cls!r}.")
    for name in ("param_dtype", "compute_dtype", "output_dtype"):
        if policy is not None and not hasattr(policy, name):
            raise ArgumentTypeError(
                f"A policy has {name}; got {policy!r}. Use "
                "weft.haiku.precision.get_policy('params=float32,compute=bfloat16,output=float32')."
            )


def _install() -> None:
    """Intercept methods from the first policy on, so that classes cost nothing without policies."""
    if _intercept not in global_interceptors:
        global_interceptors.append(_intercept)


def set_policy(cls: type[Module], policy: Policy) -> None:
    """Run all modules of exactly this class under a policy until `clear_policy`, or until the end of `push_policy`."""
    _check(cls, policy)
    _replace(cls, policy)
    _install()


def clear_policy(cls: type[Module]) -> None:
    """Take the policy of a class away."""
    _check(cls, None)
    _replace(cls, None)


def _replace(cls: type[Module], policy: Any) -> None:
    """Replace the effective policy of a class: the one pushed last, else that of all threads."""
    pushed = _pushed.policies.get(cls)
    if pushed:
        pushed[-1] = policy
    elif policy is None:
        _policies.pop(cls, None)
    else:
        _policies[cls] = policy


def get_policy(cls: type[Module]) -> Policy | None:
    """Return the policy of a class, or None."""
    pushed = _pushed.policies.get(cls)
    return pushed[-1] if pushed else _policies.get(cls)


def current_policy() -> Policy | None:
    """Return the policy of the running method, or None."""
    return _current.items[-1] if _current.items else None


@contextmanager
def push_policy(cls: type[Module], policy: Policy) -> Iterator[None]:
    """Return a context in which modules of a class run under a policy."""
    _check(cls, policy)
    running = frames.items[-1].module_stack if frames.items else ()
    if any(type(one.module) is cls for one in running):
        raise ArgumentError(
            f"push_policy({cls.__name__}) must not be used inside of a method of the same class: the method has begun "
            "under another policy.",
            at=user_line(),
            fix=f"with push_policy({cls.__name__}, policy):   around the call of the method",
        )
    _install()
    stack = _pushed.policies.setdefault(cls, [])
    stack.append(policy)
    try:
        yield
    finally:
        stack.pop()


def _intercept(following: Callable[..., Any], args: Any, kwargs: Any, context: MethodContext) -> Any:
    """Cast what goes into a method, the parameters it reads, and what comes out."""
    policy = get_policy(type(context.module))
    if policy is None:
        return following(*args, **kwargs)
    if context.method_name == "__init__":
        # The constructor's arguments are not cast; parameters follow the policy.
        with _current.push(policy), custom_creator(_creator(policy), state=True), custom_getter(_getter(policy)):
            return following(*args, **kwargs)
    args, kwargs = policy.cast_to_compute((args, kwargs))
    with (
        _current.push(policy),
        custom_creator(_creator(policy), state=True),
        custom_getter(_getter(policy), state=True),
    ):
        return policy.cast_to_output(following(*args, **kwargs))


def _is_floating(dtype: Any) -> bool:
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype))
    return "float" in name


def _creator(policy: Any) -> Callable[..., Any]:
    def create(following: Callable[..., Any], shape: Any, dtype: Any, init: Any, context: GetterContext) -> Any:
        del context
        return following(shape, policy.param_dtype if _is_floating(dtype) else dtype, init)

    return create


def _getter(policy: Any) -> Callable[..., Any]:
    def get(following: Callable[..., Any], value: Any, context: GetterContext) -> Any:
        if _is_floating(context.original_dtype):
            value = policy.cast_to_compute(value)
        return following(value)

    return get


_suggest(__name__)
