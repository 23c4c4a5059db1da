"""Modules: classes whose methods run under a path of their own."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

import weft
from weft.errors import ModuleDefinitionError, NameInUseError, UnboundModuleError, boundary, user_line
from weft.haiku import config
from weft.haiku.frames import Frame, ThreadStack, check_boundary, current_frame, frames
from weft.haiku.parameters import below

Method = TypeVar("Method", bound=Callable[..., Any])

_NUMBERED = re.compile(r"(.*)_(0|[1-9]\d*)")  # custom_007 is a plain name, not number 7 of custom


class ForcedName(str):
    """A full path that is used unchanged, wherever the module is created."""


def force_name(name: str) -> str:
    """Return a name that is the full path of a module, whichever module creates it. Two modules may share it."""
    return ForcedName(name)


def snake_case(name: str) -> str:
    """Convert `BatchNorm` to `batch_norm`.

    A capital starts a word after a lower-case letter or digit, or before a lower-case letter.
    """
    out = ""
    for before, letter, after in zip(f" {name}", name, f"{name[1:]} ", strict=False):
        begins = letter.isupper() and out and (before.islower() or before.isdigit() or after.islower())
        out += f"_{letter}" if begins else letter
    return out.lower()


def _prefix(frame: Frame) -> str:
    """Return the prefix of the name of a new module: path and method of its creator."""
    if not frame.module_stack:
        return ""
    path, method = frame.path, frame.module_stack[-1].method
    if method == "__init__":
        return f"{path}/~/"
    return f"{path}/" if method == "__call__" else f"{path}/~{method}/"


def _unique_name(frame: Frame, name: str) -> str:
    """Return the path of a new module, numbered if the name was requested before in this run of the method."""
    if isinstance(name, ForcedName):
        return str(name)
    if not name.isidentifier():
        raise ModuleDefinitionError(
            f"A module of {frame.path!r} cannot have the name {name!r}: it must be a Python identifier.",
            at=user_line(),
            fix=["letters, digits and underscores", "with hk.name_scope('a/b'):   for a path"],
        )
    names = frame.names[-1]
    full = _prefix(frame) + name
    numbered = _NUMBERED.fullmatch(full)
    if numbered:
        base, count = numbered[1], int(numbered[2])
        names.counts[base] = max(names.counts[base], count + 1)
    else:
        count = names.counts[full]
        names.counts[full] += 1
        full = f"{full}_{count}" if count else full
    if full in names.taken:
        raise NameInUseError(
            f"Two modules would have the path {full!r}.",
            at=user_line(),
            fix=["give one of them another name", "to share parameters, make the module once and call it twice"],
        )
    names.taken.add(full)
    return full


# -------------------------------------------------------------------------------------------------------- interceptors


class MethodContext(NamedTuple):
    """The description of a method call that interceptors receive."""

    module: Any
    method_name: str
    orig_method: Callable[..., Any]
    orig_class: type


Interceptor = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], MethodContext], Any]
_interceptors: ThreadStack[Interceptor] = ThreadStack()
global_interceptors: list[Interceptor] = []  # outside of the interceptors of contexts


def intercept_methods(interceptor: Interceptor) -> AbstractContextManager[Any]:
    """Return a context in which methods of modules run as `interceptor(next_method, args, kwargs, context)`."""
    return _interceptors.push(interceptor)


def _intercept(method: Callable[..., Any], context: MethodContext, args: Any, kwargs: Any) -> Any:
    """Run a method inside of the interceptors, the first one outermost."""
    waiting = iter([*global_interceptors, *_interceptors.items])

    def following(*args: Any, **kwargs: Any) -> Any:
        interceptor = next(waiting, None)
        return method(*args, **kwargs) if interceptor is None else interceptor(following, args, kwargs, context)

    return following(*args, **kwargs)


# ------------------------------------------------------------------------------------------------------------- modules


def transparent(method: Method) -> Method:
    """Decorate a method to add nothing to names: its modules and parameters belong to the caller.

    Args:
        method: a method.

    Returns:
        The method.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> class Net(haiku.Module):
    ...     @haiku.transparent
    ...     def __call__(self, x):
    ...         return haiku.Linear(2)(x)
    >>> model = haiku.transform(lambda x: Net()(x))
    >>> sorted(model.init(random.key(0), wnp.ones((1, 3))))
    ['linear']
    """
    method._is_transparent = True  # type: ignore[attr-defined]
    return method


def name_like(method_name: str) -> Callable[[Method], Method]:
    """Decorate a method so that its modules are named as in another method."""

    def mark(method: Method) -> Method:
        method._named_like = method_name  # type: ignore[attr-defined]
        return method

    return mark


def _on_stack(name: str, method: Callable[..., Any], owner: Callable[[], type]) -> Callable[..., Any]:
    """Wrap a method to be on the frame's module stack while it runs."""
    if getattr(method, "_is_transparent", False):
        return method
    shown = getattr(method, "_named_like", name)

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not frames.items:
            raise UnboundModuleError(
                f"Module {getattr(self, 'module_name', type(self).__name__)!r} is used outside of a transformed "
                f"function: {type(self).__name__}.{name}.",
                at=user_line(),
                fix="hk.transform(lambda x: Module()(x))   then .init(key, x) and .apply(params, key, x)",
            )
        frame = frames.items[-1]
        if hasattr(self, "module_name"):
            check_boundary(self)
        label = getattr(self, "name", None) or type(self).__name__
        with frame.inside(self, shown), weft.named_scope(label if name == "__call__" else f"{label}.{name}"):
            if not (global_interceptors or _interceptors.items):
                result = method(self, *args, **kwargs)
            else:
                bound = functools.partial(method, self)
                result = _intercept(bound, MethodContext(self, name, bound, owner()), args, kwargs)
            _note_use(frame, self)
            return result

    return run


def _note_use(frame: Frame, module: Any) -> None:
    """Record this module in the modules whose methods are running, since another one may have created it."""
    path = getattr(module, "module_name", None)
    if path is None:
        return
    for one in frame.module_stack:
        outer = getattr(one.module, "module_name", None)
        if outer is not None and one.module is not module:
            frame.run.inside.setdefault(outer, set()).add(path)


class ModuleMetaclass(type(Protocol)):  # type: ignore[misc]
    """Metaclass that wraps the methods of a module class, and names each module when it is created."""

    def __new__(mcs, name: str, bases: tuple[type, ...], members: dict[str, Any], **options: Any) -> Any:
        created: list[type] = []

        def owner() -> type:
            return created[0]

        for key, value in list(members.items()):
            if key == "module_name" or (key.startswith("__") and key != "__call__"):
                continue
            if isinstance(value, property):
                getter, setter, deleter = (
                    None if function is None else _on_stack(key, function, owner)
                    for function in (value.fget, value.fset, value.fdel)
                )
                members[key] = property(getter, setter, deleter, value.__doc__)
            elif inspect.isfunction(value):
                members[key] = _on_stack(key, value, owner)
        members.setdefault("_is_protocol", False)
        if "__dataclass_fields__" not in members:
            members.setdefault("__repr__", _repr)
        created.append(super().__new__(mcs, name, bases, members, **options))
        return created[0]

    @boundary
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not frames.items:
            raise UnboundModuleError(
                f"Module {cls.__name__} is made outside of a transformed function.",
                at=user_line(),
                fix=f"hk.transform(lambda x: {cls.__name__}(...)(x))   then .init(key, x) and .apply(params, key, x)",
            )
        module = cls.__new__(cls, *args, **kwargs)
        object.__setattr__(module, "_constructor_args", (args, kwargs))
        _on_stack("__init__", cls.__init__, lambda: cls)(module, *args, **kwargs)  # type: ignore[misc]
        if not hasattr(module, "module_name"):
            raise ModuleDefinitionError(
                f"Module {cls.__name__} has no name: its __init__ does not call that of hk.Module.",
                at=user_line(),
                fix="super().__init__(name=name)   as the first line of __init__",
            )
        return module

    @property
    def __signature__(cls) -> inspect.Signature:
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=tuple(signature.parameters.values())[1:])


def _repr(module: Any) -> str:
    """Return the call that created a module, without default arguments."""
    if not config.current().module_auto_repr or not getattr(module, "AUTO_REPR", True):
        return object.__repr__(module)
    args, kwargs = module._constructor_args
    cls = type(module)
    try:
        bound = inspect.signature(cls).bind(*args, **kwargs)
    except TypeError:
        return object.__repr__(module)
    shown = []
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            shown += [repr(one) for one in value]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            shown += [f"{key}={one!r}" for key, one in value.items()]
        elif not _is_default(value, parameter.default):
            shown.append(f"{name}={value!r}")
    return f"{cls.__name__}({', '.join(shown)})"


def _is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    try:
        return bool(value == default)
    except Exception:  # arrays and other values whose == is not a bool
        return False


class Module(metaclass=ModuleMetaclass):
    """A part of a model with parameters, created and called inside of a transformed function.

    A method of a module runs under the module's path, so `hk.get_parameter` and modules created there belong to it.

    Args:
        name: the name; made from the class by default.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> class Scale(haiku.Module):
    ...     def __call__(self, x):
    ...         return x * haiku.get_parameter("scale", x.shape[-1:], init=wnp.ones)
    >>> model = haiku.transform(lambda x: Scale()(x))
    >>> model.init(None, wnp.ones((1, 2)))
    {'scale': {'scale': Array([1., 1.], dtype=float32)}}
    """

    name: str
    module_name: str

    def __init__(self, name: str | None = None):
        frame = current_frame(type(self).__name__)
        if name is None:
            name = getattr(self, "name", None) or snake_case(type(self).__name__)
        # The top of the stack is this module's __init__; the name is relative to the creator of the module.
        stack, names = frame.module_stack, frame.names
        depth = len(stack)
        while depth and stack[depth - 1].module is self:
            depth -= 1
        frame.module_stack, frame.names = stack[:depth], names[: depth + 1]
        try:
            self.module_name = _unique_name(frame, name)
        finally:
            frame.module_stack, frame.names = stack, names
        self.name = self.module_name.rpartition("/")[2]
        self._frame_id = frame.id
        self._run = frame.run
        frame.run.created.add(self.module_name)
        frame.check_reuse(self.module_name)

    def __post_init__(self) -> None:
        """Set the name of a dataclass."""
        if not hasattr(self, "module_name"):
            Module.__init__(self, getattr(self, "name", None))

    @transparent
    def params_dict(self) -> Mapping[str, Any]:
        """Return the parameters of this module, of those below it and of those it used, by full names."""
        return self._below("params")

    @transparent
    def state_dict(self) -> Mapping[str, Any]:
        """Return the state of this module, of those below it and of those it used, by full names."""
        return self._below("state")

    @transparent
    def _below(self, collection: str) -> Mapping[str, Any]:
        frame = current_frame(f"Module.{collection}_dict")
        others = frame.run.inside.get(self.module_name, ())
        return below(frame.call.collections.get(collection, {}), self.module_name, others)


class _NameScope(Module):
    """A module that is only a name."""


class NameScope:
    """The context of `name_scope`, which can be entered once."""

    def __init__(self, name: str, method_name: str):
        self._frame = current_frame("name_scope")
        self._method = method_name
        self._entered = False
        if not name or name.startswith("/"):
            raise ModuleDefinitionError(
                f"A name scope in {self._frame.path!r} cannot be {name!r}: it must be a name or a path without a "
                "leading slash.",
                at=user_line(),
            )
        parts: list[str] = [name] if isinstance(name, ForcedName) else name.split("/")
        self._module = self._create(parts)

    def _create(self, parts: list[str]) -> _NameScope:
        module = _NameScope(name=parts[0])
        if len(parts) == 1:
            return module
        with self._frame.inside(module, self._method):
            return self._create(parts[1:])

    def __enter__(self) -> None:
        if self._entered:
            raise ModuleDefinitionError(
                f"Name scope {self._module.module_name!r} is entered twice.",
                at=user_line(),
                fix="with hk.name_scope(...):   a new one each time",
            )
        self._entered = True
        self._inside = frames.items[-1].inside(self._module, self._method)
        self._inside.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._inside.__exit__(*error)


def name_scope(name: str, *, method_name: str = "__call__") -> AbstractContextManager[None]:
    """Return a context that puts a name before the names of all modules and parameters created in it."""
    return NameScope(name, method_name)


def to_module(f: Callable[..., Any]) -> type[Module]:
    """Return a module class that runs `f` when called."""

    class FunctionModule(Module):
        def __init__(self, name: str | None = None):
            if name is None and not f.__name__.isidentifier():
                raise ModuleDefinitionError(
                    f"The module of {f.__name__} needs a name.", at=user_line(), fix="hk.to_module(f)(name='...')"
                )
            super().__init__(snake_case(f.__name__) if name is None else name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return f(*args, **kwargs)

    FunctionModule.__doc__ = f.__doc__ or "Run a function as the method of a module."
    FunctionModule.__call__.__doc__ = FunctionModule.__doc__
    return FunctionModule


class Deferred:
    """A module created at its first use, with the path at which the deferred module was created."""

    def __init__(self, factory: Callable[[], Any], call_methods: Any = ("__call__",)):
        frame = current_frame("Deferred")
        self._factory = factory
        self._target: Any = None
        self._module_stack, self._names = list(frame.module_stack), list(frame.names)
        for name in call_methods:
            if name != "__call__":
                setattr(self, name, functools.partial(self._call, name))

    @property
    def target(self) -> Any:
        """The module."""
        if self._target is None:
            frame = current_frame("Deferred")
            stack, names = frame.module_stack, frame.names
            frame.module_stack, frame.names = self._module_stack, self._names
            try:
                self._target = self._factory()
            finally:
                frame.module_stack, frame.names = stack, names
        return self._target

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.target, name)(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_target") is None or name == "_target":
            object.__setattr__(self, name, value)
        else:
            setattr(self._target, name, value)

    def __delattr__(self, name: str) -> None:
        if self.__dict__.get("_target") is None:
            object.__delattr__(self, name)
        else:
            delattr(self._target, name)
