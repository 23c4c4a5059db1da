"""Lifting of transformations of functions to classes, methods and functions of modules.

A `Target` is one call of a lifted function. It replaces the modules among the arguments, so that the transformation
sees arrays only, and calls the function inside with copies of the modules bound to the lift's own scopes.
"""

from __future__ import annotations

import copy
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
from weft.modules.scope import Call, Scope, Variable


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
        self.modules: list[Any] = []  # includes references to variables
        self.first = self._without_modules(modules)
        self.args, self.kwargs = self._without_modules(args), self._without_modules(kwargs)
        self.inner: list[Any] = []

    def check_bound(self) -> None:
        """Raise for modules without variables."""
        for module in self.modules:
            if module.scope is None:
                raise UnboundModuleError(
                    f"nn.{self.transformation} got module {type(module).__name__}, which must be bound to variables.",
                    at=user_line(),
                    fix="call it inside of a module's method, or in nn.apply(fn, module)(variables, ...)",
                )

    def _without_modules(self, value: Any) -> Any:
        def replace_module(module: Any) -> InstancePlaceholder:
            self.modules.append(module)
            return InstancePlaceholder(len(self.modules) - 1)

        if isinstance(value, tuple):
            return tuple(map_modules(replace_module, one, BOUND) for one in value)
        if isinstance(value, dict):
            return {key: map_modules(replace_module, one, BOUND) for key, one in value.items()}
        return map_modules(replace_module, value, BOUND)

    def scopes(self) -> list[Scope]:
        """Return the scopes of all modules and of the modules in their fields."""
        found: list[Scope] = []
        seen: set[int] = set()

        def visit(module: Any) -> Any:
            if id(module) not in seen:
                seen.add(id(module))
                if module.scope is not None:
                    found.append(module.scope)
                for value in _fields(module).values():
                    map_modules(visit, value, BOUND)
            return module

        for module in self.modules:
            visit(module)
        return found

    def lift(self, variables: Iterable[Filter] = (True,), rngs: Iterable[Filter] = (True,)) -> Lift:
        """Return the lift of all scopes that the modules reach."""
        self.check_bound()
        return Lift(f"nn.{self.transformation}", self.scopes(), list(variables), list(rngs))

    def call(
        self, call: Call | None, args: Any, kwargs: Mapping[str, Any], fn: Callable[..., Any] | None = None
    ) -> Any:
        """Call the function with modules bound to `call`; with None, unbound modules stay unbound."""
        memo: dict[int, Any] = {}
        self.inner = [
            rebound(module, call, memo, self.inner_class if not i else None) for i, module in enumerate(self.modules)
        ]
        for outer, inner in zip(self.modules, self.inner, strict=True):
            if isinstance(outer, Module) and inner.scope is not None:
                inner.scope.names.update(self._names_of_children(outer))
        back = lambda value: _with_modules(value, self.inner)
        modules, args, kwargs = back(self.first), back(tuple(args)), back(dict(kwargs))
        function = self.fn if fn is None else fn
        if isinstance(getattr(function, "__self__", None), Module):
            function = getattr(function, "__func__", function)  # the module of a bound method is an argument
        if isinstance(modules, Module) and not hasattr(function, "wrapped_by_module"):
            return modules._call_method(_with_name(function), args, kwargs)
        return function(modules, *args, **kwargs)

    def _names_of_children(self, module: Module) -> dict[str, set[str | None]]:
        """Return the names of submodules that are passed beside their owner; they stay reserved in it."""
        scope, state = module.scope, module._state
        if scope is None or not state.in_compact:
            return {}
        paths = {one.scope.path for one in self.modules if one.scope is not None}
        fixed = state.fixed_names  # setup runs again inside and reserves these
        return {name: {None} for name in scope.names if name not in fixed and (*scope.path, name) in paths}

    def finish(self) -> None:
        """Reserve names outside that were given out inside."""
        self.take_names(self.names_inside())

    def names_inside(self) -> list[Any]:
        """Return the names that the function gave out in each module: cursors and names, or None for variables."""
        return [
            (dict(inner._state.cursors), dict(inner.scope.names)) if isinstance(inner, Module) and inner.scope else None
            for inner in self.inner
        ]

    def take_names(self, names: list[Any]) -> None:
        """Reserve names that were given out inside."""
        for outer, inner in zip(self.modules, names, strict=False):
            if inner is not None and outer._state.in_compact and outer.scope is not None:
                outer._state.cursors.update(inner[0])
                for name, kinds in inner[1].items():
                    outer.scope.names.setdefault(name, set()).update(kinds)


def _with_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a `__name__`, which partial functions lack."""
    if hasattr(function, "__name__"):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


BOUND = (Module, Variable)
"""Classes of objects that hold a scope, which a transformation must not see."""


def _fields(module: Any) -> dict[str, Any]:
    if isinstance(module, Variable):
        return {}
    return {
        field.name: getattr(module, field.name)
        for field in dataclasses.fields(module)
        if field.init and field.name not in ("parent", "name")
    }


def rebound(module: Any, call: Call | None, memo: dict[int, Any], inner_class: Any = None) -> Any:
    """Return a copy of a bound module or variable, and of the modules it holds, at the same path of another call."""
    if id(module) in memo or module.scope is None or call is None:
        return memo.get(id(module), module)
    if isinstance(module, Variable):
        variable = memo[id(module)] = copy.copy(module)
        variable.scope = module.scope.on(call)
        return variable
    again = lambda value: map_modules(lambda inner: rebound(inner, call, memo), value, BOUND)
    values = {name: again(value) for name, value in _fields(module).items()}
    # All names are free inside: setup runs again, and variables created outside are found by name.
    scope = module.scope.without_names().on(call)
    state = module._state
    clone = (inner_class or type(module))(**values, parent=scope, name=module.name)
    clone._state.in_compact = state.in_compact
    clone._state.cursors = dict(state.cursors)
    memo[id(module)] = clone
    return clone


def fingerprint(value: Any, relative: Callable[[Any], Any]) -> Any:
    """Return what a traced function depends on in a value that is not an array; `relative` maps paths of scopes."""
    again = lambda one: fingerprint(one, relative)
    if isinstance(value, Variable):
        return (type(value), relative(value.scope.path), value.collection, value.name, value.unbox)
    if isinstance(value, Module):
        state, names = value._state, value.scope.names if value.scope is not None else {}
        is_taken = tuple(sorted((name, tuple(map(str, kinds))) for name, kinds in names.items()))
        where = None if value.scope is None else relative(value.scope.path)
        fields = tuple((name, again(one)) for name, one in _fields(value).items())
        return (type(value), where, state.in_compact, tuple(sorted(state.cursors.items())), is_taken, fields)
    if isinstance(value, Mapping):
        return (type(value), tuple((key, again(one)) for key, one in value.items()))
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(again(one) for one in value))
    return (type(value), value)  # 1 == 1.0, but they make different programs


def _with_modules(value: Any, modules: list[Any]) -> Any:
    """Replace the placeholders in a value by their modules."""
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
    """Return a module class or a function of a module that runs through `run(target, **options)`."""
    if isinstance(target, functools.partial) and inspect.isclass(target.func) and issubclass(target.func, Module):
        lifted = _lift_class(run, transformation, target.func, methods, options)
        return functools.partial(lifted, *target.args, **target.keywords)
    if inspect.isclass(target) and issubclass(target, Module):
        return _lift_class(run, transformation, target, methods, options)
    if callable(target) and not isinstance(target, Module):
        return _lift_function(run, transformation, target, options)
    raise ArgumentTypeError(
        f"nn.{transformation} needs a module class, a method, or a function of a module; got {target!r}"
        f"." + (f" Pass the class: nn.{transformation}(Dense)(3)." if isinstance(target, Module) else "")
    )


def _lift_class(run: Runner, transformation: str, module_class: Any, methods: Any, options: Any) -> Any:
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

    def lift_method(method_name: str, own: Mapping[str, Any]) -> Callable[..., Any]:
        original = getattr(module_class, method_name)

        @functools.wraps(original)
        def method(self: Module, *args: Any, **kwargs: Any) -> Any:
            inner_class = module_class if type(self) is lifted_class else None
            target = Target(transformation, original, self, args, kwargs, inner_class)
            return run(target, **{**options, **own})

        method.wrapped_by_module = True  # type: ignore[attr-defined]
        return method

    body = {method: lift_method(method, own) for method, own in by_name.items()}
    lifted_class = type(
        name, (module_class,), {**body, "__module__": module_class.__module__, "__doc__": module_class.__doc__}
    )
    return lifted_class


def _lift_function(run: Runner, transformation: str, fn: Callable[..., Any], options: Any) -> Any:
    @functools.wraps(fn)
    def lifted(modules: Any, *args: Any, **kwargs: Any) -> Any:
        return run(Target(transformation, fn, modules, args, kwargs), **options)

    vars(lifted).pop("wrapped_by_module", None)
    return lifted
