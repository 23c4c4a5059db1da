"""Scopes: the place of a module's variables, names and random keys. See docs/design/modules.md."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import weft
from weft.errors import (
    ArgumentError,
    ArgumentTypeError,
    ImmutableCollectionError,
    MissingRngError,
    NameInUseError,
    ParameterNotFoundError,
    ParameterShapeError,
    ScopeLeakError,
    user_line,
)
from weft.modules.filters import DenyList, Filter, matches
from weft.modules.frontends import LINEN, Frontend
from weft.modules.metadata import replace_boxed, unbox

Path = tuple[str, ...]
Value = TypeVar("Value")


class Call:
    """The state that all scopes of one init or apply share.

    Attributes:
        collections: the nested dict of each collection. Those in `mutable` are copies that the call may write; others
            belong to the caller.
        counters: the number of keys drawn for each (path, stream).
        trace: the traced function in which the call began. Values written inside of another one are not valid there.
        frontend: the vocabulary for errors.
        origins: the paths that the keys of streams belong to; draws fold in the path relative to them.
    """

    __slots__ = (
        "collections", "counters", "frontend", "flags", "lifting", "memo", "mutable", "origins", "over", "rngs", "trace"
    )  # fmt: skip

    def __init__(
        self,
        variables: Mapping[str, Any],
        rngs: Mapping[str, Any],
        mutable: Filter = False,
        flags: Mapping[str, Any] | None = None,
        frontend: Frontend = LINEN,
    ):
        self.mutable = mutable
        self.frontend = frontend
        self.collections: dict[str, Any] = {
            name: copy_mappings(tree) if matches(mutable, name) else tree for name, tree in variables.items()
        }
        self.rngs = dict(rngs)
        self.counters: dict[tuple[Path, str], int] = {}
        self.origins: tuple[Path, ...] = ((),)
        self.flags = dict(flags or {})
        self.memo: dict[Any, Any] = {}  # data of a frontend for this call only; lifted functions have their own
        self.over = False  # if true, scopes of the call raise
        self.trace = weft.core.get_opaque_trace_state()
        self.lifting = ""  # the transformation whose lifted function runs now; it must carry writes and keys

    def close(self) -> None:
        """Refuse further use, and drop variables and keys.

        Modules are part of reference cycles, and would keep traced values alive.
        """
        self.over, self.collections, self.rngs, self.memo = True, {}, {}, {}

    def below_origin(self, path: Path) -> Path:
        """Return a path relative to the module that the keys were made for."""
        return next((path[len(start) :] for start in self.origins if path[: len(start)] == start), path)

    def updates(self) -> dict[str, Any]:
        """Return the mutable collections that are not empty, as plain dicts."""
        return {name: tree for name, tree in self.collections.items() if tree and matches(self.mutable, name)}


def copy_mappings(tree: Any) -> Any:
    """Copy the nested mappings of a tree to plain dicts with the same leaves."""
    return {key: copy_mappings(value) for key, value in tree.items()} if isinstance(tree, Mapping) else tree


class Scope:
    """One module within a call: its path, and the names in use there.

    All access to variables, keys and names goes through a scope, so that errors can name the path.
    """

    __slots__ = ("call", "names", "path")

    def __init__(self, call: Call, path: Path = ()):
        self.call = call
        self.path = path
        self.names: dict[str, set[str | None]] = {}

    def __repr__(self) -> str:
        return f"Scope({self.path_text})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and self.call is other.call and self.path == other.path

    def __hash__(self) -> int:
        return hash((id(self.call), self.path))

    # ------------------------------------------------------------------------------------------------ names and paths

    @property
    def name(self) -> str | None:
        """The last part of the path, or None at the root."""
        return self.path[-1] if self.path else None

    @property
    def path_text(self) -> str:
        """The path as errors show it."""
        return self.call.frontend.where(self.path)

    @property
    def root(self) -> Scope:
        """A scope at the root of the same call."""
        return Scope(self.call)

    def child(self, name: str) -> Scope:
        """Return the scope of a submodule. Children of the same name are the same scope; `reserve` prevents
        accidents.
        """
        return Scope(self.call, (*self.path, name))

    def without_names(self) -> Scope:
        """Return a scope with the same path and no names in use."""
        return Scope(self.call, self.path)

    def on(self, call: Call) -> Scope:
        """Return a scope with the same path and names in another call."""
        scope = Scope(call, self.path)
        scope.names = {name: set(kinds) for name, kinds in self.names.items()}
        return scope

    def is_taken(self, name: str, collection: str | None = None) -> bool:
        """Return whether a name is in use for a submodule (collection None) or for a variable of a collection."""
        kinds = self.names.get(name)
        if not kinds:
            return False
        return collection is None or None in kinds or collection in kinds

    def reserve(self, name: str, collection: str | None = None) -> None:
        """Reserve a name for a submodule (collection None) or for a variable of a collection."""
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"A name in {self.path_text} must be a string, got {name!r} of type {type(name).__name__}."
            )
        if self.is_taken(name, collection):
            what = "a submodule" if collection is None else f"a variable of {collection!r}"
            there = "a submodule" if None in self.names[name] else "a variable"
            raise NameInUseError(
                f"{name!r} cannot name {what} of module {self.path_text}: {there} has the name already.",
                at=user_line(),
                fix=["give one of them another name", "to share it, make it once and use it twice"],
            )
        self.names.setdefault(name, set()).add(collection)

    def default_name(self, prefix: str) -> str:
        """Return the first free name of `Dense_0`, `Dense_1`, ..., without reserving it."""
        i = 0
        while self.is_taken(f"{prefix}_{i}"):
            i += 1
        return f"{prefix}_{i}"

    # ------------------------------------------------------------------------------------------------------ variables

    def check_usable(self, change: bool = False) -> None:
        """Raise after the end of the call, or for changes inside of a lifted function that bypass its lift."""
        if self.call.over:
            raise ScopeLeakError(
                f"Module {self.path_text} cannot use its variables here: the call that it belonged to has ended.",
                at=user_line(),
                fix=self.call.frontend.outlived,
            )
        if change and self.call.lifting:
            raise ScopeLeakError(
                f"Module {self.path_text} writes a variable or draws a key inside of {self.call.lifting}, which does "
                "not see it.",
                at=user_line(),
                fix=f"pass the module to the function under {self.call.lifting}, as an argument or attribute",
            )

    def _check_program(self, collection: str, name: str) -> None:
        """Raise for writes inside of a loop body, branch or jitted function: their values do not exist outside."""
        now = weft.core.get_opaque_trace_state()
        if not now.is_same_program(self.call.trace):
            frontend = self.call.frontend
            raise ScopeLeakError(
                f"Module {self.path_text} writes {frontend.variable(collection, name)} inside of a transformation that "
                "does not carry it out: a traced value would leak.",
                at=user_line(),
                received=now.describe(),
                fix=frontend.lifted,
            )

    def _node(self, collection: str) -> Mapping[str, Any] | None:
        """Return the dict of this module in a collection, or None."""
        node: Any = self.call.collections.get(collection)
        for part in self.path:
            if not isinstance(node, Mapping):
                return None
            node = node.get(part)
        return node if isinstance(node, Mapping) else None

    def collection(self, name: str) -> Mapping[str, Any]:
        """Return this module's variables in a collection, for reading."""
        self.check_usable()
        return self._node(name) or {}

    def variables(self) -> dict[str, Any]:
        """Return this module's variables in each collection."""
        self.check_usable()
        found = {name: self._node(name) for name in self.call.collections}
        return {name: node for name, node in found.items() if node}

    def is_mutable(self, collection: str) -> bool:
        """Return whether a collection may be written."""
        return matches(self.call.mutable, collection)

    def has_variable(self, collection: str, name: str) -> bool:
        """Return whether a variable exists."""
        return name in self.collection(collection)

    def get_variable(self, collection: str, name: str, default: Any = None) -> Any:
        """Return a variable as it is stored, with its box if it has one."""
        return self.collection(collection).get(name, default)

    def put_variable(self, collection: str, name: str, value: Any) -> None:
        """Write a variable."""
        self.mutable_node(collection, name)[name] = value

    def mutable_node(self, collection: str, name: str = "") -> dict[str, Any]:
        """Return the dict of this module in a mutable collection; create it if missing."""
        self.check_usable(change=True)
        call = self.call
        if not matches(call.mutable, collection):
            what = call.frontend.variable(collection, name)
            raise ImmutableCollectionError(
                f"Module {self.path_text} writes {what}, which this call may not write.",
                at=user_line(),
                received=f"mutable={call.mutable!r}",
                fix=call.frontend.immutable(collection),
            )
        self._check_program(collection, name)
        node = call.collections.setdefault(collection, {})
        for part in self.path:
            node = node.setdefault(part, {})
        return node

    def variable(
        self,
        collection: str,
        name: str,
        init_fn: Callable[..., Any] | None = None,
        *init_args: Any,
        unbox: bool = True,
        **init_kwargs: Any,
    ) -> Variable[Any]:
        """Return a reference to a variable, which is initialized by `init_fn(*init_args)` if missing."""
        self.reserve(name, collection)
        if not self.has_variable(collection, name):
            if not self.is_mutable(collection) or init_fn is None:
                if self.is_collection_empty(collection):
                    raise self._not_found(collection, name, "and the collection is empty or missing")
                raise self._not_found(collection, name, "")
            self.put_variable(collection, name, init_fn(*init_args, **init_kwargs))
        return Variable(self, collection, name, unbox)

    def param(
        self, name: str, init_fn: Callable[..., Any], *init_args: Any, unbox: bool = True, **init_kwargs: Any
    ) -> Any:
        """Return a parameter; during initialization create it by `init_fn(key, *init_args)`."""
        self.reserve(name, "params")
        node = self.collection("params")
        if name in node:
            value = node[name]
            self._check_shape(name, value, init_fn, init_args, init_kwargs)
        elif not self.is_mutable("params"):
            raise self._not_found("params", name, "")
        else:
            value = init_fn(self.make_rng("params"), *init_args, **init_kwargs)
            self.put_variable("params", name, value)
        return _unbox(value) if unbox else value

    def _check_shape(self, name: str, value: Any, init_fn: Any, init_args: Any, init_kwargs: Any) -> None:
        """Raise unless a stored parameter has the shape that its initializer returns."""
        stored = unbox(value)
        # Most initializers take the shape first; if it matches, the initializer need not be traced.
        if init_args and isinstance(init_args[0], (tuple, list)) and hasattr(stored, "shape"):
            if tuple(stored.shape) == tuple(init_args[0]):
                return
        wanted = weft.eval_shape(lambda: unbox(init_fn(weft.random.key(0), *init_args, **init_kwargs)))
        expected, tree = weft.tree.flatten(wanted)
        received, stored_tree = weft.tree.flatten(stored)
        shapes = [tuple(leaf.shape) if hasattr(leaf, "shape") else () for leaf in received]
        if tree == stored_tree and shapes == [tuple(leaf.shape) for leaf in expected]:
            return
        words = ", ".join(str(leaf.shape) for leaf in expected) if tree == stored_tree else str(tree)
        raise ParameterShapeError(
            f"Parameter {name!r} of module {self.path_text} needs shape {words}.",
            at=user_line(),
            received=f"stored: {', '.join(map(str, shapes)) if tree == stored_tree else str(stored_tree)}",
            fix=self.call.frontend.shape,
        )

    def is_collection_empty(self, collection: str) -> bool:
        """Return whether this module has no variables in a collection."""
        return not self.collection(collection)

    def _not_found(self, collection: str, name: str, why: str) -> ParameterNotFoundError:
        what = f"parameter {name!r}" if collection == "params" else f"variable {name!r} in collection {collection!r}"
        here = ", ".join(repr(key) for key in self.collection(collection)) or "nothing"
        tops = ", ".join(repr(key) for key in self.call.collections) or "none"
        return ParameterNotFoundError(
            f"Module {self.path_text} has no {what}{', ' + why if why else ''}.",
            at=user_line(),
            received=f"in {collection!r} at {self.path_text}: {here}\ncollections: {tops}",
            fix=self.call.frontend.missing(collection),
        )

    # --------------------------------------------------------------------------------------------------- random keys

    def has_rng(self, stream: str) -> bool:
        """Return whether a stream has a key."""
        return stream in self.call.rngs

    def make_rng(self, stream: str = "params") -> Any:
        """Return a new key of a stream, or of 'params' if the stream has no key.

        Path and counter are folded into the key of the stream.
        """
        self.check_usable(change=True)
        call = self.call
        source = stream if stream in call.rngs or "params" not in call.rngs else "params"
        if source not in call.rngs:
            there = ", ".join(repr(key) for key in call.rngs) or "none"
            raise MissingRngError(
                f"Module {self.path_text} needs a random key of stream {stream!r}, but got none.",
                at=user_line(),
                received=f"streams: {there}",
                fix=call.frontend.stream(stream),
            )
        now = weft.core.get_opaque_trace_state()
        if now.is_repeated_since(call.trace):
            raise ScopeLeakError(
                f"Module {self.path_text} draws a random key of stream {stream!r} inside of a loop that does not carry "
                "keys: it would be the same in each iteration.",
                at=user_line(),
                received=now.describe(),
                fix=[call.frontend.lifted, call.frontend.keys],
            )
        count = call.counters[self.path, source] = call.counters.get((self.path, source), 0) + 1
        return weft.random.fold_in(call.rngs[source], stable_hash(call.below_origin(self.path), count))

    # --------------------------------------------------------------------------------------------------------- flags

    def flag(self, name: str, default: Any = False) -> Any:
        """Return a value that the frontend stores for the duration of the call."""
        return self.call.flags.get(name, default)

    @property
    def is_initializing(self) -> bool:
        """Whether this call creates variables."""
        return bool(self.call.flags.get("initializing", False))


_unbox = unbox


class Variable(Generic[Value]):
    """A reference to one variable of a scope; `value` reads and writes it.

    Args:
        scope: the scope of a module.
        collection: the name of the collection.
        name: the name of the variable.
        unbox: whether `value` is read and written without its box.

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> class Counter(linen.Module):
    ...     @linen.compact
    ...     def __call__(self):
    ...         count = self.variable("state", "count", lambda: wnp.zeros(()))
    ...         count.value += 1
    ...         return count.value
    >>> Counter().apply({"state": {"count": 4.0}}, mutable=["state"])
    (5.0, {'state': {'count': 5.0}})
    """

    __slots__ = ("collection", "name", "scope", "unbox")

    def __init__(self, scope: Scope, collection: str, name: str, unbox: bool = True):
        self.scope = scope
        self.collection = collection
        self.name = name
        self.unbox = unbox

    def __repr__(self) -> str:
        return f"Variable({self.collection!r}, {self.name!r}, at {self.scope.path_text})"

    @property
    def value(self) -> Any:
        """The value; without its box if `unbox`."""
        stored = self.scope.get_variable(self.collection, self.name)
        return unbox(stored) if self.unbox else stored

    @value.setter
    def value(self, value: Any) -> None:
        if self.unbox and self.scope.has_variable(self.collection, self.name):
            stored = self.scope.get_variable(self.collection, self.name)
            value = replace_boxed(stored, value) if unbox(stored) is not stored else value
        self.scope.put_variable(self.collection, self.name, value)

    def is_mutable(self) -> bool:
        """Return whether the variable may be written."""
        return self.scope.is_mutable(self.collection)


def stable_hash(path: Path, count: int) -> int:
    """Return 32 bits that depend on a path and on the number of the key drawn there (from 1) only.

    They equal those of Flax, so that a seed gives the same weights. Paths such as ("ab", "c") and ("a", "bc") therefore
    share keys.
    """
    text = "".join(path).encode() + count.to_bytes((count.bit_length() + 7) // 8, "big")
    return int.from_bytes(hashlib.sha1(text, usedforsecurity=False).digest()[:4], "big")


# ------------------------------------------------------------------------------------------------------- whole calls


def as_rngs(rngs: Any) -> dict[str, Any]:
    """Convert the keys that users pass to streams: a dict of keys, one key (the stream 'params'), or None."""
    if rngs is None:
        return {}
    found = dict(rngs) if isinstance(rngs, Mapping) else {"params": rngs}
    for name, key in found.items():
        if not is_key(key):
            raise MissingRngError(
                f"Stream {name!r} needs one random key, got {_in_short(key)}.",
                at=user_line(),
                fix="weft.random.key(0), or one of weft.random.split(key, n)",
            )
    return found


def is_key(value: Any) -> bool:
    """Return whether a value is one random key, typed or raw."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None:
        return False
    if weft.dtypes.issubdtype(dtype, weft.dtypes.prng_key):
        return shape == ()
    return str(dtype) == "uint32" and shape == (2,)


def _in_short(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return f"{dtype}{list(shape)}" if shape is not None and dtype is not None else f"{value!r}"


def check_variables(variables: Any, what: str) -> Mapping[str, Any]:
    """Raise unless variables are a dict of dicts, one per collection.

    Omitting the outer dict is the most common mistake.
    """
    if not isinstance(variables, Mapping):
        raise ArgumentTypeError(
            f"{what} needs variables as a dict of collections, such as {{'params': params}}; got "
            f"{type(variables).__name__}."
        )
    inner = variables.get("params")
    if isinstance(inner, Mapping) and isinstance(inner.get("params"), Mapping) and len(inner) == 1:
        raise ArgumentError(
            f"{what} got {{'params': {{'params': ...}}}}: the variables of init contain 'params' "
            "already. Pass them as they are."
        )
    return variables


def bind(
    variables: Mapping[str, Any], rngs: Any = None, mutable: Filter = False, flags: Mapping[str, Any] | None = None
) -> Scope:
    """Return a root scope over variables that stays open."""
    return Scope(Call(check_variables(variables, "bind"), as_rngs(rngs), mutable, flags))


@contextmanager
def open_scope(
    variables: Mapping[str, Any], rngs: Any = None, mutable: Filter = False, flags: Mapping[str, Any] | None = None
) -> Iterator[Scope]:
    """Return a context with a root scope, which cannot be used afterwards."""
    scope = Scope(Call(check_variables(variables, "apply"), as_rngs(rngs), mutable, flags))
    try:
        yield scope
    finally:
        scope.call.close()


def apply(
    fn: Callable[..., Any], mutable: Filter = False, flags: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Convert `fn(scope, ...)` to a function of variables.

    It returns the result, and with `mutable` also the written collections.
    """

    def apply_fn(variables: Mapping[str, Any], *args: Any, rngs: Any = None, **kwargs: Any) -> Any:
        with open_scope(variables, rngs, mutable, flags) as root:
            result = fn(root, *args, **kwargs)
            return result if mutable is False else (result, root.call.updates())

    return apply_fn


def init(
    fn: Callable[..., Any],
    mutable: Filter = DenyList("intermediates"),  # noqa: B008 (frozen)
    flags: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Convert `fn(scope, ...)` to a function of random keys that returns its result and the variables it created."""

    def init_fn(rngs: Any, *args: Any, **kwargs: Any) -> Any:
        with open_scope({}, rngs, mutable, {"initializing": True, **(flags or {})}) as root:
            return fn(root, *args, **kwargs), root.call.updates()

    return init_fn
