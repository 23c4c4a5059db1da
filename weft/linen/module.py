"""Modules: dataclasses whose methods find parameters, state and random keys in the scope that a call binds them to."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, dataclass_transform

import weft
from weft.errors import (
    ArgumentError,
    ArgumentTypeError,
    ModuleDefinitionError,
    ParameterNotFoundError,
    UnboundModuleError,
    boundary,
    user_line,
)
from weft.interpreters.partial_eval import dce_jaxpr
from weft.linen.methods import wrap_methods
from weft.linen.state import CONTEXT, State, calling, run_interceptors
from weft.modules.filters import DenyList, Filter, union
from weft.modules.frozen import FrozenDict
from weft.modules.scope import Scope, Variable, bind, open_scope

NAMED_CALLS = [True]


class _Unspecified:
    """The default parent: the module that is being called."""

    def __repr__(self) -> str:
        return "<the module being called>"

    def __copy__(self) -> _Unspecified:
        return self

    def __deepcopy__(self, memo: Any) -> _Unspecified:
        return self

    def __reduce__(self) -> str:
        return "UNSPECIFIED"


UNSPECIFIED = _Unspecified()


_BORROWED_NAMES = ("parent", "name")


@dataclass_transform(field_specifiers=(dataclasses.field,))
@dataclasses.dataclass(repr=False, eq=True, unsafe_hash=True)
class Module:
    """Base class of modules: fields are options, and `setup` or a compact method makes submodules and parameters.

    A module by itself is only a description. `init` creates its variables, `apply` calls it with them: a copy of the
    module is bound to a `Scope` for the call.

    Args:
        parent: the module that this one belongs to; by default the one whose method creates it, or None.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> class Scale(linen.Module):
    ...     size: int
    ...     @linen.compact
    ...     def __call__(self, x):
    ...         return x * self.param("scale", linen.initializers.ones, (self.size,))
    >>> variables = Scale(2).init(random.key(0), wnp.ones(2))
    >>> Scale(2).apply(variables, wnp.array([3.0, 4.0]))
    Array([3., 4.], dtype=float32)
    """

    parent: Any = dataclasses.field(default=UNSPECIFIED, repr=False, compare=False, hash=False, kw_only=True)
    name: str | None = dataclasses.field(default=None, kw_only=True)

    def __init_subclass__(cls, kw_only: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_hash = "__hash__" in cls.__dict__ and cls.__dict__["__hash__"] is not None
        dataclasses.dataclass(
            repr=False,
            eq="__eq__" not in cls.__dict__,
            unsafe_hash=not own_hash and "__eq__" not in cls.__dict__,
            kw_only=kw_only,
        )(cls)
        _refuse_hash_when_bound(cls)
        fields = cls.__dataclass_fields__
        for borrowed in _BORROWED_NAMES:
            fields[borrowed] = fields.pop(borrowed)  # after the fields of the class itself
        wrap_methods(cls)

    # ----------------------------------------------------------------------------------------------- making and binding

    def __post_init__(self) -> None:
        store = object.__setattr__
        state = State()
        store(self, "_state", state)
        store(self, "scope", None)
        if self.parent is UNSPECIFIED:
            store(self, "parent", CONTEXT.modules[-1])
        parent = self.parent
        if isinstance(parent, Module):
            parent._check_may_initialize(f"submodule {type(self).__name__}")
            if self.name is None and parent._state.in_setup and not parent._state.in_compact:
                state.ready = True
                return  # assignment to an attribute gives it a name and a scope
            if self.name is None:
                prefix = type(self).__name__
                index = parent._state.cursors.get(prefix, 0)
                parent._state.cursors[prefix] = index + 1
                store(self, "name", f"{prefix}_{index}")
            assert self.name is not None
            if parent.scope is not None:
                parent.scope.reserve(self.name)
                store(self, "scope", parent.scope.child(self.name))
            parent._state.children[self.name] = self
        elif isinstance(parent, Scope):
            store(self, "scope", parent)
        elif parent is not None:
            raise ArgumentTypeError(f"parent of {type(self).__name__} must be a module or None, got {parent!r}.")
        if self.scope is not None:
            for field in dataclasses.fields(self):
                if field.name not in _BORROWED_NAMES and field.init:
                    value = getattr(self, field.name)
                    adopted = self._adopt(field.name, value)
                    if adopted is not value:
                        store(self, field.name, adopted)
            state.fixed_names = {name: set(kinds) for name, kinds in self.scope.names.items()}
        state.ready = True

    def _adopt(self, name: str, value: Any) -> Any:
        """Return the value of an attribute, in which modules without an owner become submodules of this one."""
        match value:
            case Module():
                return self._adopt_module(name, value)
            case list() | tuple() if any(_has_modules(one) for one in value):
                out = [self._adopt(f"{name}_{index}", one) for index, one in enumerate(value)]
                return type(value)(*out) if hasattr(value, "_fields") else tuple(out)
            case Mapping() if any(_has_modules(one) for one in value.values()):
                # A module that occurs twice gets the name of its first key in the order of trees.
                adopted = {key: self._adopt(f"{name}_{key}", value[key]) for key in _in_order(value)}
                return FrozenDict({key: adopted[key] for key in value})
        return value

    def _adopt_module(self, name: str, module: Module) -> Module:
        if module.scope is not None:
            return module  # a submodule of another module, which is shared
        assert self.scope is not None
        if module.parent is None:
            # A copy is bound, since the module belongs to the caller. A module given twice remains one module.
            cache = self.scope.call.memo
            if id(module) not in cache:
                cache[id(module)] = (module, module.clone(name=None))
            module = cache[id(module)][1]
        if module.name is None:
            object.__setattr__(module, "parent", self)
            object.__setattr__(module, "name", name)
            module.__post_init__()
        return module

    def __setattr__(self, name: str, value: Any) -> None:
        state: State | None = self.__dict__.get("_state")
        is_free = self.scope is None and not isinstance(self.parent, Module) if state else True
        # Python stores C[int] of a generic class in `__orig_class__`.
        if state is None or not state.ready or is_free or (name.startswith("__") and name.endswith("__")):
            object.__setattr__(self, name, value)
            return
        if not state.in_setup:
            raise ModuleDefinitionError(
                f"Attribute {name!r} of module {self._where()} is set outside of setup.",
                at=user_line(),
                fix=[
                    f"set self.{name} in setup",
                    "module.clone(...)   for a copy with other fields",
                    "a local variable",
                ],
            )
        if name in self.__dataclass_fields__ and self.__dataclass_fields__[name].init:
            raise ModuleDefinitionError(
                f"Field {name!r} of module {self._where()} cannot be set in setup: it belongs to the caller.",
                at=user_line(),
                fix="use another name for the attribute",
            )
        object.__setattr__(self, name, self._adopt(name, value))

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only, which setup may create.
        state: State | None = self.__dict__.get("_state")
        if state is not None and not name.startswith("__") and self.scope is not None and not state.setup_done:
            if not state.in_setup:
                self._try_setup()
                if name in self.__dict__:
                    return self.__dict__[name]
        text = f"Module {type(self).__name__} has no attribute {name!r}."
        if state is not None and self.scope is None and type(self).setup is not Module.setup:
            text += " If setup makes it, it is there inside of init and apply only, or after model.bind(variables)."
        raise AttributeError(text)

    def __dir__(self) -> list[str]:
        self._try_setup()
        return sorted(set(object.__dir__(self)))

    def setup(self) -> None:
        """Make submodules and parameters as attributes. It runs at the first use of a bound module."""

    def _try_setup(self) -> None:
        state = self._state
        if self.scope is None or state.setup_done or state.in_setup:
            return
        # Inside of a lifted transformation a compact method may be running already.
        state.in_setup, in_compact, state.in_compact = True, state.in_compact, False
        try:
            with calling(self):
                self.setup()
            state.fixed_names = {name: set(kinds) for name, kinds in self.scope.names.items()}
        finally:
            state.in_setup, state.in_compact = False, in_compact
            state.setup_done = True

    def _where(self) -> str:
        return f"{self.scope.path_text} ({type(self).__name__})" if self.scope is not None else type(self).__name__

    def _check_may_initialize(self, what: str) -> None:
        if not self._state.may_initialize:
            raise ModuleDefinitionError(
                f"{what} of module {self._where()} is made outside of setup and of its compact method.",
                at=user_line(),
                fix=["mark the method with @nn.compact", "make it in setup, as an attribute"],
            )

    def _bound_scope(self, what: str) -> Scope:
        if self.scope is None:
            raise UnboundModuleError(
                f"{what} of module {type(self).__name__} needs variables, but the module is not bound to any.",
                at=user_line(),
                fix=[
                    "model.apply(variables, ...)",
                    "model.bind(variables)",
                    "model.init(key, ...)   to make variables",
                ],
            )
        return self.scope

    # ---------------------------------------------------------------------------------------------------------- calls

    def _call_method(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        state: State | None = self.__dict__.get("_state")
        if state is None:
            raise ModuleDefinitionError(
                f"Class {type(self).__name__} overrides __post_init__ without calling super().__post_init__().",
                at=user_line(),
                fix="call super().__post_init__() at the end of __post_init__",
            )
        name = method.__name__
        if name == "setup":
            return self._run(method, args, kwargs)
        is_compact = getattr(method, "compact", False)
        if is_compact and self.scope is None:
            self._bound_scope(f"Method {name!r}")
        self._try_setup()
        outermost = is_compact and not state.in_compact
        if is_compact:
            state.in_compact = True
        CONTEXT.modules.append(self)
        try:
            if NAMED_CALLS[0] and self.scope is not None and self.scope.path and name == "__call__":
                with weft.named_scope(self.scope.path[-1]):
                    result = self._run(method, args, kwargs)
            else:
                result = self._run(method, args, kwargs)
            if self.scope is not None:
                capture = self.scope.call.flags.get("capture_intermediates")
                if capture is not None and capture(self, name):
                    self.sow("intermediates", name, result)
            return result
        finally:
            CONTEXT.modules.pop()
            if outermost:
                state.in_compact = False
                state.cursors = {}
                fresh = self.scope.without_names()
                fresh.names = {name: set(kinds) for name, kinds in state.fixed_names.items()}
                object.__setattr__(self, "scope", fresh)

    def _run(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if CONTEXT.interceptors:
            return run_interceptors(method, self, args, kwargs)
        return method(self, *args, **kwargs)

    # ------------------------------------------------------------------------------------------------------ variables

    def param(
        self, name: str, init_fn: Callable[..., Any], *init_args: Any, unbox: bool = True, **init_kwargs: Any
    ) -> Any:
        """Return a parameter, which `init` initializes by `init_fn(key, *init_args, **init_kwargs)`."""
        scope = self._bound_scope(f"Parameter {name!r}")
        self._check_may_initialize(f"Parameter {name!r}")
        value = scope.param(name, init_fn, *init_args, unbox=unbox, **init_kwargs)
        self._state.children[name] = "params"
        return value

    def variable(
        self,
        col: str,
        name: str,
        init_fn: Callable[..., Any] | None = None,
        *init_args: Any,
        unbox: bool = True,
        **init_kwargs: Any,
    ) -> Variable[Any]:
        """Return a reference to a variable, which is initialized by `init_fn(*init_args)` if missing."""
        scope = self._bound_scope(f"Variable {name!r}")
        self._check_may_initialize(f"Variable {name!r}")
        found = scope.variable(col, name, init_fn, *init_args, unbox=unbox, **init_kwargs)
        self._state.children[name] = col
        return found

    def has_variable(self, col: str, name: str) -> bool:
        """Return whether a variable exists."""
        return self._bound_scope(f"Variable {name!r}").has_variable(col, name)

    def get_variable(self, col: str, name: str, default: Any = None) -> Any:
        """Return a variable as it is stored."""
        return self._bound_scope(f"Variable {name!r}").get_variable(col, name, default)

    def put_variable(self, col: str, name: str, value: Any) -> None:
        """Write a variable."""
        self._bound_scope(f"Variable {name!r}").put_variable(col, name, value)

    def is_mutable_collection(self, col: str) -> bool:
        """Return whether this call may write a collection."""
        return self._bound_scope(f"Collection {col!r}").is_mutable(col)

    def has_rng(self, name: str) -> bool:
        """Return whether a stream has a key."""
        return self._bound_scope(f"Stream {name!r}").has_rng(name)

    def make_rng(self, name: str = "params") -> Any:
        """Return a new random key of a stream."""
        return self._bound_scope(f"Stream {name!r}").make_rng(name)

    def is_initializing(self) -> bool:
        """Return whether this call is `init`."""
        return self._bound_scope("is_initializing").is_initializing

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of this module and its submodules, for reading."""
        return self._bound_scope("variables").variables()

    @property
    def path(self) -> tuple[str, ...]:
        """The names from the outermost module to this one."""
        return self._bound_scope("path").path

    def sow(
        self,
        col: str,
        name: str,
        value: Any,
        reduce_fn: Callable[[Any, Any], Any] = lambda old, new: (*old, new),
        init_fn: Callable[[], Any] = tuple,
    ) -> bool:
        """Store a value in a collection if it is mutable: in a tuple of all values, or combined by `reduce_fn`."""
        scope = self._bound_scope(f"Variable {name!r}")
        if not scope.is_mutable(col):
            return False
        if scope.has_variable(col, name):
            before = scope.get_variable(col, name)
        else:
            scope.reserve(name, col)
            before = init_fn()
            self._state.children[name] = col
        scope.put_variable(col, name, reduce_fn(before, value))
        return True

    def perturb(self, name: str, value: Any, collection: str = "perturbations") -> Any:
        """Return `value` plus a variable that is 0, whose gradient is that of the value."""
        scope = self._bound_scope(f"Perturbation {name!r}")
        if scope.is_initializing and scope.is_mutable(collection):
            scope.reserve(name, collection)
            scope.put_variable(collection, name, weft.tree.map(weft.numpy.zeros_like, value))
        elif collection in scope.call.collections and not scope.has_variable(collection, name):
            raise ParameterNotFoundError(
                f"Perturbation collection {collection!r} has no {name!r} of module {self._where()}.",
                at=user_line(),
                fix=["the perturbations that init returned", "leave the collection out, to compute without it"],
            )
        if scope.has_variable(collection, name):
            value = weft.tree.map(weft.numpy.add, value, scope.get_variable(collection, name))
        return value

    # --------------------------------------------------------------------------------------------------------- copies

    def clone(
        self, *, parent: Any = None, _deep_clone: bool = False, _reset_names: bool = False, **updates: Any
    ) -> Any:
        """Return a copy with the given parent (None: unbound), with some fields replaced."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.init and field.name != "parent"
        }
        if _deep_clone:
            memo: dict[int, Module] = {}
            values = {key: _unbind_modules(value, memo, _reset_names) for key, value in values.items()}
        if _reset_names:
            values["name"] = None
        values.update(updates)
        with calling(None):
            return type(self)(**values, parent=parent)

    def copy(self, *, parent: Any = UNSPECIFIED, name: str | None = None, **updates: Any) -> Any:
        """Return a copy that is a submodule of the module being called, with a name of its own."""
        if parent is UNSPECIFIED:
            parent = CONTEXT.modules[-1]
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.init and field.name not in _BORROWED_NAMES
        }
        values.update(updates)
        return type(self)(**values, parent=parent, name=name)

    def __repr__(self) -> str:
        lines = []
        for field in dataclasses.fields(self):
            if field.repr and field.name not in _BORROWED_NAMES:
                value = self.__dict__.get(field.name, getattr(self, field.name, None))
                text = getattr(value, "__name__", None) if callable(value) and not isinstance(value, Module) else None
                lines.append(f"{field.name}={text or repr(value)}")
        return f"{type(self).__name__}({', '.join(lines)})"

    # ------------------------------------------------------------------------------------------------ init and apply

    def bind(self, variables: Mapping[str, Any], *args: Any, rngs: Any = None, mutable: Filter = False) -> Any:
        """Return a copy bound to variables, for interactive use."""
        if args:
            raise ArgumentTypeError(f"bind takes variables, rngs= and mutable= only; got {len(args)} more.")
        return self.clone(parent=bind(variables, rngs, mutable), _deep_clone=True)

    def unbind(self) -> tuple[Any, Mapping[str, Any]]:
        """Return an unbound copy of a bound module, and its variables."""
        variables = self._bound_scope("unbind").variables()
        return self.clone(_deep_clone=True, _reset_names=True), variables

    @boundary
    def apply(
        self,
        variables: Mapping[str, Any],
        *args: Any,
        rngs: Any = None,
        method: Callable[..., Any] | str | None = None,
        mutable: Filter = False,
        capture_intermediates: bool | Callable[[Any, str], bool] = False,
        **kwargs: Any,
    ) -> Any:
        """Call the module, or its `method`, with variables; also return the collections in `mutable`."""
        function = self._method(method)
        return apply(function, self, mutable, capture_intermediates)(variables, *args, **kwargs, rngs=rngs)

    @boundary
    def init_with_output(
        self,
        rngs: Any,
        *args: Any,
        method: Callable[..., Any] | str | None = None,
        mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
        capture_intermediates: bool | Callable[[Any, str], bool] = False,
        **kwargs: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Call the module for the first time; return the result and its variables.

        `rngs` is a key or a dict of streams.
        """
        function = self._method(method)
        return init_with_output(function, self, mutable, capture_intermediates)(rngs, *args, **kwargs)

    @boundary
    def init(
        self,
        rngs: Any,
        *args: Any,
        method: Callable[..., Any] | str | None = None,
        mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
        capture_intermediates: bool | Callable[[Any, str], bool] = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the variables that a first call creates. `rngs` is a key or a dict of streams."""
        _, variables = self.init_with_output(
            rngs, *args, method=method, mutable=mutable, capture_intermediates=capture_intermediates, **kwargs
        )
        return variables

    @boundary
    def lazy_init(
        self,
        rngs: Any,
        *args: Any,
        method: Callable[..., Any] | str | None = None,
        mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Initialize variables from arguments that may be `ShapeDtypeStruct`s; only what parameters need is
        computed.
        """
        leaves, tree = weft.tree.flatten((args, kwargs))
        unknown = [leaf for leaf in leaves if isinstance(leaf, weft.ShapeDtypeStruct)]

        def init_all(rngs: Any, values: list[Any]) -> dict[str, Any]:
            supply = iter(values)
            filled = [next(supply) if isinstance(leaf, weft.ShapeDtypeStruct) else leaf for leaf in leaves]
            full_args, full_kwargs = weft.tree.unflatten(tree, filled)
            return self.init(rngs, *full_args, method=method, mutable=mutable, **full_kwargs)

        _check_independent(init_all, rngs, unknown)
        return weft.jit(lambda rngs: init_all(rngs, [weft.numpy.zeros(one.shape, one.dtype) for one in unknown]))(rngs)

    def tabulate(
        self,
        rngs: Any,
        *args: Any,
        depth: int | None = None,
        show_repeated: bool = False,
        mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
        console_kwargs: Mapping[str, Any] | None = None,
        table_kwargs: Mapping[str, Any] | None = None,
        column_kwargs: Mapping[str, Any] | None = None,
        compute_flops: bool = False,
        compute_vjp_flops: bool = False,
        **kwargs: Any,
    ) -> str:
        """Return a table of submodules with their inputs, outputs and variables. Nothing is computed."""
        write = TABULATE[0]
        return write(
            self,
            rngs,
            depth=depth,
            show_repeated=show_repeated,
            mutable=mutable,
            console_kwargs=console_kwargs,
            table_kwargs=table_kwargs,
            column_kwargs=column_kwargs,
            compute_flops=compute_flops,
            compute_vjp_flops=compute_vjp_flops,
        )(*args, **kwargs)

    def module_paths(self, rngs: Any, *args: Any, show_repeated: bool = False, **kwargs: Any) -> dict[str, Any]:
        """Return unbound copies of all submodules that a call uses, by path."""
        found: dict[str, Any] = {}

        def note(proceed: Any, inner_args: Any, inner_kwargs: Any, context: Any) -> Any:
            path = "/".join(context.module.path)
            if path not in found:
                found[path] = context.module.clone(_deep_clone=True)
            return proceed(*inner_args, **inner_kwargs)

        CONTEXT.interceptors.append(note)
        try:
            weft.eval_shape(lambda rngs: self.init(rngs, *args, **kwargs), rngs)
        finally:
            CONTEXT.interceptors.remove(note)
        return found

    def _method(self, method: Callable[..., Any] | str | None) -> Callable[..., Any]:
        """Return the function for `method`: the name of a method, a bound method, or a function of a module."""
        if method is None:
            return type(self).__call__
        if isinstance(method, str):
            found = getattr(type(self), method, None)
            if callable(found):
                return found
            attribute = method
            return lambda module, *args, **kwargs: getattr(module, attribute)(*args, **kwargs)
        return getattr(method, "__func__", method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result. Subclasses define it."""
        raise ModuleDefinitionError(
            f"Class {type(self).__name__} must define __call__ to be called.",
            at=user_line(),
            fix="define __call__, or name another method: model.apply(variables, ..., method='encode')",
        )


def _refuse_hash_when_bound(cls: Any) -> None:
    """Make the generated hash of a class raise for bound modules, whose equality ignores variables."""
    generated = cls.__dict__.get("__hash__")
    if generated is None or cls.__hash__ is object.__hash__:
        return

    @functools.wraps(generated)
    def hash_unbound(self: Module) -> int:
        if self.__dict__.get("scope") is not None:
            raise ArgumentTypeError(
                f"Module {type(self).__name__} is bound to variables and cannot be hashed.",
                fix=["id(module)", "module.clone()   for a copy without variables", "module.path"],
            )
        return int(generated(self))

    cls.__hash__ = hash_unbound


TABULATE: list[Callable[..., Any]] = []  # filled by weft.linen.summary, which imports this module


def _check_independent(init: Callable[[Any, list[Any]], Any], rngs: Any, unknown: list[Any]) -> None:
    """Raise for variables whose initial values depend on arrays with known shape and dtype only."""
    jaxpr, variables = weft.make_jaxpr(init, return_shape=True)(rngs, unknown)
    count, outputs = len(weft.tree.leaves(rngs)), weft.tree_util.tree_leaves_with_path(variables)
    for index, (path, _) in enumerate(outputs):
        needed = dce_jaxpr(jaxpr.jaxpr, [i == index for i in range(len(outputs))])[1]
        if any(needed[count:]):
            name = weft.tree_util.keystr(path, simple=True, separator="/")
            raise ArgumentError(
                f"lazy_init cannot make {name!r}: its initial value depends on the values of the inputs.",
                received=f"{len(unknown)} arguments with shape and dtype only",
                fix="model.init(rngs, ...) with arrays",
            )


def _has_modules(value: Any, kinds: Any = None) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_modules(one, kinds) for one in value)
    if isinstance(value, Mapping):
        return any(_has_modules(one, kinds) for one in value.values())
    return isinstance(value, kinds or Module)


def _in_order(keys: Iterable[Any]) -> list[Any]:
    """Return keys in the order in which trees flatten dicts, or in their own order if they cannot be compared."""
    try:
        return sorted(keys)
    except TypeError:
        return list(keys)


def map_modules(function: Callable[[Any], Any], value: Any, kinds: Any = None) -> Any:
    """Map the modules in a value, or the objects of classes `kinds`: the value itself, or in lists, tuples and
    dicts.
    """
    if isinstance(value, kinds or Module):
        return function(value)
    if not _has_modules(value, kinds):
        return value
    if isinstance(value, Mapping):
        mapped = {key: map_modules(function, one, kinds) for key, one in value.items()}
        return FrozenDict(mapped) if isinstance(value, FrozenDict) else mapped
    parts = [map_modules(function, one, kinds) for one in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def _unbind_modules(value: Any, memo: dict[int, Module], reset_names: bool) -> Any:
    """Replace the modules in a value by unbound copies, one copy for each module."""

    def copy_unbound(module: Module) -> Module:
        if module.scope is None and not isinstance(module.parent, Module):
            return module
        if id(module) not in memo:
            memo[id(module)] = module.clone(_deep_clone=True, _reset_names=reset_names)
        return memo[id(module)]

    return map_modules(copy_unbound, value)


def _captures(capture: bool | Callable[[Any, str], bool]) -> Callable[[Any, str], bool] | None:
    if capture is True:
        return lambda module, method: method == "__call__"
    return capture or None


def apply(
    fn: Callable[..., Any],
    module: Module,
    mutable: Filter = False,
    capture_intermediates: bool | Callable[[Any, str], bool] = False,
) -> Callable[..., Any]:
    """Convert `fn(module, ...)` to a function of variables.

    Args:
        fn: a function of a module and further arguments.
        module: the module.
        mutable: the collections to return with the result.
        capture_intermediates: whether to return results of methods in a collection 'intermediates'.

    Returns:
        A function of variables and the further arguments.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.Dense(2)
    >>> variables = layer.init(random.key(0), wnp.ones((1, 3)))
    >>> linen.apply(lambda module, x: module(x) * 2, layer)(variables, wnp.ones((1, 3))).shape
    (1, 2)
    """
    capture = _captures(capture_intermediates)
    if capture is not None:
        mutable = union(mutable, "intermediates")

    def apply_fn(variables: Mapping[str, Any], *args: Any, rngs: Any = None, **kwargs: Any) -> Any:
        with open_scope(variables, rngs, mutable, {"capture_intermediates": capture}) as root:
            result = fn(module.clone(parent=root, _deep_clone=True), *args, **kwargs)
            return result if mutable is False else (result, root.call.updates())

    return apply_fn


def init_with_output(
    fn: Callable[..., Any],
    module: Module,
    mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
    capture_intermediates: bool | Callable[[Any, str], bool] = False,
) -> Callable[..., Any]:
    """Convert `fn(module, ...)` to a function of keys that returns its result and the variables it created."""
    capture = _captures(capture_intermediates)
    if capture is not None:
        mutable = union(mutable, "intermediates")

    def init_fn(rngs: Any, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        flags = {"initializing": True, "capture_intermediates": capture}
        with open_scope({}, rngs, mutable, flags) as root:
            result = fn(module.clone(parent=root, _deep_clone=True), *args, **kwargs)
            return result, root.call.updates()

    return init_fn


def init(
    fn: Callable[..., Any],
    module: Module,
    mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
    capture_intermediates: bool | Callable[[Any, str], bool] = False,
) -> Callable[..., Any]:
    """Convert `fn(module, ...)` to a function of keys that returns the variables it created."""
    both = init_with_output(fn, module, mutable, capture_intermediates)
    return lambda rngs, *args, **kwargs: both(rngs, *args, **kwargs)[1]
