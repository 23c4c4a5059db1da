"""How a transformation of functions becomes one of modules: a class, a method or a function of modules is lifted.

A `Target` is one call of a lifted function. It finds the modules among the arguments, so that the transformation sees
arrays only, and calls the function inside with copies of the modules that are bound to the lift's own scopes.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import weft
from weft.errors import ArgumentTypeError, UnboundModuleError, user_line
from weft.linen.module import Module, map_modules
from weft.modules.filters import Filter
from weft.modules.frozen import FrozenDict
from weft.modules.lift import Lift
from weft.modules.scope import Call, Scope


@weft.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class InstancePlaceholder:
    """Replaces a module in the arguments that a transformation sees."""

    index: int


class Target:
    """One call of a lifted function: its modules and its other arguments."""

    def __init__(
        self, transformation: str, fn: Callable[..., Any], modules: Any, args: Any, kwargs: Any, inner_class: Any = None
    ):
        self.transformation = transformation
        self.fn = fn
        self.inner_class = inner_class
        self.modules: list[Module] = []
        self.first = self._without_modules(modules)
        self.args, self.kwargs = self._without_modules(args), self._without_modules(kwargs)
        self.inner: list[Module] = []
        for module in self.modules:
            if module.scope is None:
                raise UnboundModuleError(
                    f"nn.{transformation} got module {type(module).__name__}, which is not bound to variables.",
                    at=user_line(),
                    fix="call it inside of a module's method, or in nn.apply(fn, module)(variables, ...)",
                )

    def _without_modules(self, value: Any) -> Any:
        def replaced(module: Module) -> InstancePlaceholder:
            self.modules.append(module)
            return InstancePlaceholder(len(self.modules) - 1)

        if isinstance(value, tuple):
            return tuple(map_modules(replaced, one) for one in value)
        if isinstance(value, dict):
            return {key: map_modules(replaced, one) for key, one in value.items()}
        return map_modules(replaced, value)

    def scopes(self) -> list[Scope]:
        """The scopes of all modules, and of those they hold as fields."""
        found: list[Scope] = []
        seen: set[int] = set()

        def visit(module: Module) -> Module:
            if id(module) not in seen:
                seen.add(id(module))
                if module.scope is not None:
                    found.append(module.scope)
                for value in _fields(module).values():
                    map_modules(visit, value)
            return module

        for module in self.modules:
            visit(module)
        return found

    def lift(self, variables: Iterable[Filter] = (True,), rngs: Iterable[Filter] = (True,)) -> Lift:
        """The lift of everything that the modules reach."""
        return Lift(f"nn.{self.transformation}", self.scopes(), list(variables), list(rngs))

    def call(self, call: Call, args: Any, kwargs: Mapping[str, Any], fn: Callable[..., Any] | None = None) -> Any:
        """Call the function with modules bound to `call`."""
        memo: dict[int, Module] = {}
        self.inner = [
            rebound(module, call, memo, self.inner_class if not i else None) for i, module in enumerate(self.modules)
        ]
        back = lambda value: _with_modules(value, self.inner)
        modules, args, kwargs = back(self.first), back(tuple(args)), back(dict(kwargs))
        function = self.fn if fn is None else fn
        if isinstance(modules, Module):
            return modules._call_method(_named(function), args, kwargs)
        return function(modules, *args, **kwargs)

    def finish(self) -> None:
        """Names that were given out inside are taken outside too."""
        for outer, inner in zip(self.modules, self.inner, strict=False):
            if outer._state.in_compact and outer.scope is not None and inner.scope is not None:
                outer._state.cursors.update(inner._state.cursors)
                for name, kinds in inner.scope.names.items():
                    outer.scope.names.setdefault(name, set()).update(kinds)


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a name, which partial functions do not have."""
    if hasattr(function, "__name__"):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _fields(module: Module) -> dict[str, Any]:
    return {
        field.name: getattr(module, field.name)
        for field in dataclasses.fields(module)
        if field.init and field.name not in ("parent", "name")
    }


def rebound(module: Module, call: Call, memo: dict[int, Module], inner_class: Any = None) -> Module:
    """A copy of a bound module at the same path of another call, and so for the modules it holds."""
    if id(module) in memo or module.scope is None:
        return memo.get(id(module), module)
    again = lambda value: map_modules(lambda inner: rebound(inner, call, memo), value)
    values = {name: again(value) for name, value in _fields(module).items()}
    scope = module.scope.on(call)
    # setup runs anew inside; what it and the fields reserve is free there.
    state = module._state
    scope.names = {
        name: set(kinds) for name, kinds in scope.names.items() if state.in_compact and name not in state.fixed_names
    }
    clone = (inner_class or type(module))(**values, parent=scope, name=module.name)
    clone._state.in_compact = state.in_compact
    clone._state.cursors = dict(state.cursors)
    memo[id(module)] = clone
    return clone


def _with_modules(value: Any, modules: list[Module]) -> Any:
    """A value with placeholders replaced by their modules."""
    if isinstance(value, InstancePlaceholder):
        return modules[value.index]
    if isinstance(value, Mapping):
        mapped = {key: _with_modules(one, modules) for key, one in value.items()}
        return FrozenDict(mapped) if isinstance(value, FrozenDict) else mapped
    if isinstance(value, (list, tuple)):
        parts = [_with_modules(one, modules) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


Runner = Callable[..., Any]


def lift_transform(run: Runner, transformation: str, target: Any, methods: Any = None, **options: Any) -> Any:
    """A module class, or a function whose first argument is a module, that runs through `run(target, **options)`."""
    if inspect.isclass(target) and issubclass(target, Module):
        return _lifted_class(run, transformation, target, methods, options)
    if callable(target) and not isinstance(target, Module):
        return _lifted_function(run, transformation, target, options)
    raise ArgumentTypeError(
        f"nn.{transformation} transforms a module class, a method, or a function of a module; got {target!r}"
        f"." + (f" Pass the class: nn.{transformation}(Dense)(3)." if isinstance(target, Module) else "")
    )


def _lifted_class(run: Runner, transformation: str, module_class: Any, methods: Any, options: Any) -> Any:
    if methods is None:
        by_name: dict[str, Any] = {"__call__": {}}
    elif isinstance(methods, str):
        by_name = {methods: {}}
    elif isinstance(methods, Mapping):
        by_name = dict(methods)
    else:
        by_name = {name: {} for name in methods}
    name = {"remat": "checkpoint"}.get(transformation, transformation).capitalize() + module_class.__name__
    lifted_class: Any = None

    def lifted(method_name: str, own: Mapping[str, Any]) -> Callable[..., Any]:
        original = getattr(module_class, method_name)

        @functools.wraps(original)
        def method(self: Module, *args: Any, **kwargs: Any) -> Any:
            inner_class = module_class if type(self) is lifted_class else None
            target = Target(transformation, original, self, args, kwargs, inner_class)
            return run(target, **{**options, **own})

        method.wrapped_by_module = True  # type: ignore[attr-defined]
        return method

    body = {method: lifted(method, own) for method, own in by_name.items()}
    lifted_class = type(
        name, (module_class,), {**body, "__module__": module_class.__module__, "__doc__": module_class.__doc__}
    )
    return lifted_class


def _lifted_function(run: Runner, transformation: str, fn: Callable[..., Any], options: Any) -> Any:
    @functools.wraps(fn)
    def lifted(modules: Any, *args: Any, **kwargs: Any) -> Any:
        return run(Target(transformation, fn, modules, args, kwargs), **options)

    vars(lifted).pop("wrapped_by_module", None)
    return lifted
