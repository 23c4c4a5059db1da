"""Functions wrapped in transformations that may return auxiliary outputs, under the names of `jax.extend.linear_util`.

A transformation is a generator: it yields the arguments for the function inside, receives its result and yields its
own. `transformation2` takes a plain function instead, which calls the one inside.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from weft.base.publish import publish as _publish
from weft.base.settings import config


class StoreException(Exception):
    """A store was read before the function has run, or filled twice."""


_EMPTY: Any = object()


class Store:
    """Auxiliary output of a transformation, which is stored once."""

    def __init__(self) -> None:
        self._value = _EMPTY

    def store(self, value: Any) -> None:
        """Store the value."""
        if self._value is not _EMPTY:
            raise StoreException("Store occupied")
        self._value = value

    def reset(self) -> None:
        """Forget the value."""
        self._value = _EMPTY

    @property
    def val(self) -> Any:
        """Stored value."""
        if self._value is _EMPTY:
            raise StoreException("Store empty")
        return self._value

    def __bool__(self) -> bool:
        return self._value is not _EMPTY


class EqualStore(Store):
    """Store that accepts an equal value again."""

    def store(self, value: Any) -> None:
        if self._value is not _EMPTY and self._value != value:
            raise StoreException(f"Store occupied with not-equal value: {self._value} != {value}")
        self._value = value


class WrappedFun:
    """Function inside of transformations; `call_wrapped` calls it through all of them. Two are equal if function and
    transformations are."""

    __slots__ = ("__weakref__", "debug_info", "f", "f_transformed", "in_type", "params", "stores", "transforms")

    def __init__(
        self,
        f: Callable[..., Any],
        f_transformed: Callable[..., Any],
        transforms: tuple[Any, ...] = (),
        stores: tuple[Store | None, ...] = (),
        params: tuple[Any, ...] = (),
        in_type: Any = None,
        debug_info: Any = None,
    ) -> None:
        self.f, self.f_transformed = f, f_transformed
        self.transforms, self.stores, self.params = transforms, stores, params
        self.in_type, self.debug_info = in_type, debug_info

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", "<unnamed wrapped function>")

    def wrap(self, gen: Any, gen_static_args: tuple[Any, ...], store: Store | None, function: Any) -> WrappedFun:
        """Wrap the function in one more transformation."""
        transforms, stores = ((gen, gen_static_args), *self.transforms), (store, *self.stores)
        return WrappedFun(self.f, function, transforms, stores, self.params, None, self.debug_info)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call it with the transformations."""
        return self.f_transformed(*args, **kwargs)

    def populate_stores(self, stores: tuple[Store | None, ...]) -> None:
        """Fill the stores with the auxiliary outputs of another run."""
        for own, other in zip(self.stores, stores, strict=True):
            if own is not None and other is not None:
                own.store(other.val)

    def with_unknown_names(self) -> WrappedFun:
        """Return the function without names of arguments and results."""
        return WrappedFun(self.f, self.f_transformed, self.transforms, self.stores, self.params, self.in_type, None)

    def _key(self) -> Any:
        return (self.f, self.transforms, self.params, self.in_type)

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedFun) and self._key() == other._key()

    def __repr__(self) -> str:
        names = [getattr(gen, "__name__", str(gen)) for gen, _ in self.transforms]
        return "Wrapped function:\n" + "\n".join([*names, f"Core: {self.__name__}"]) + "\n"


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None) -> WrappedFun:
    """Make a function without transformations yet; `params` are keyword arguments of every call.

    >>> from weft.extend import linear_util
    >>> linear_util.wrap_init(lambda x: x + 1).call_wrapped(2)
    3
    """
    called = functools.partial(f, **params) if params else f
    return WrappedFun(f, called, params=tuple(sorted((params or {}).items())), debug_info=debug_info)


def _allow_decorator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of two or more arguments a decorator: called with the first one alone, it returns a partial."""

    @functools.wraps(function)
    def wrapper(gen: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if args:
            return function(gen, *args, **kwargs)
        return functools.wraps(gen)(functools.partial(function, gen, **kwargs))

    return wrapper


@_allow_decorator
def transformation(gen: Callable[..., Any], fun: WrappedFun, *gen_static_args: Any) -> WrappedFun:
    """Wrap `fun` in a transformation: a generator function of `gen_static_args` and the arguments. As a decorator of
    the generator function, return a function of `fun` and `gen_static_args`."""

    def transform(*args: Any, **kwargs: Any) -> Any:
        running = gen(*gen_static_args, *args, **kwargs)
        inner_args, inner_kwargs = next(running)
        return _last(running, fun.f_transformed(*inner_args, **inner_kwargs))

    return fun.wrap(gen, gen_static_args, None, transform)


@_allow_decorator
def transformation_with_aux(
    gen: Callable[..., Any], fun: WrappedFun, *gen_static_args: Any
) -> tuple[WrappedFun, Callable[[], Any]]:
    """Wrap `fun` in a transformation whose generator yields a pair in the end: the result and an auxiliary output.
    Return the wrapped function and a function that returns the auxiliary output of its first run."""
    store = Store()

    def transform(*args: Any, **kwargs: Any) -> Any:
        running = gen(*gen_static_args, *args, **kwargs)
        inner_args, inner_kwargs = next(running)
        out, aux = _last(running, fun.f_transformed(*inner_args, **inner_kwargs))
        store.store(aux)
        return out

    return fun.wrap(gen, gen_static_args, store, transform), lambda: store.val


def _last(running: Any, result: Any) -> Any:
    """Send a transformation the result of the function inside, and return what it yields for it."""
    out = running.send(result)
    running.close()
    return out


@_allow_decorator
def transformation2(gen: Callable[..., Any], fun: WrappedFun, *gen_static_args: Any) -> WrappedFun:
    """Wrap `fun` in a transformation: a function of the function to call, `gen_static_args` and the arguments."""
    return fun.wrap(gen, gen_static_args, None, functools.partial(gen, fun.f_transformed, *gen_static_args))


@_allow_decorator
def transformation_with_aux2(
    gen: Callable[..., Any],
    fun: WrappedFun,
    *gen_static_args: Any,
    use_eq_store: bool = False,
    unk_names: bool = False,
) -> tuple[WrappedFun, Callable[[], Any]]:
    """Wrap `fun` in a transformation that takes a store as its second argument, for its auxiliary output."""
    store = EqualStore() if use_eq_store else Store()
    called = functools.partial(gen, fun.f_transformed, store, *gen_static_args)
    return fun.wrap(gen, gen_static_args, store, called), lambda: store.val


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """Return the output of the one of two auxiliary functions that has run, as `(is_first, value)`."""
    try:
        return True, aux1()
    except StoreException:
        try:
            return False, aux2()
        except StoreException:
            raise StoreException("neither store occupied") from None


def cache(call: Callable[..., Any], *, explain: Any = None) -> Callable[..., Any]:
    """Memoize a function of a `WrappedFun` and hashable arguments, while the function inside lives, under equal
    transformations and settings. Auxiliary outputs are restored on a hit."""
    known: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(call)
    def lookup_or_call(fun: WrappedFun, *args: Any) -> Any:
        table = known.setdefault(fun.f, {})
        key = (fun.transforms, fun.params, fun.in_type, args, config.key())
        found = table.get(key)
        if found is not None:
            answer, stores = found
            fun.populate_stores(stores)
            return answer
        answer = call(fun, *args)
        table[key] = (answer, fun.stores)
        return answer

    lookup_or_call.cache_clear = known.clear  # type: ignore[attr-defined]
    return lookup_or_call


_publish(__name__)
