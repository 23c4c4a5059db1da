"""The call of a jitted function as a value: its arguments split into static and dynamic ones, and its signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.api.flat import argument_paths, get_name, parameter_names
from weft.api.options import JitOptions
from weft.base import tree
from weft.base.errors import UnhashableStaticArgumentError
from weft.base.source import user_line


class Signature(NamedTuple):
    """Key of a staged function: calls with equal signatures run the same program."""

    in_tree: tree.PyTreeDef
    types: tuple[Any, ...]
    static: StaticArguments | tuple[()]
    settings: tuple[Any, ...]
    axes: tuple[Any, ...]

    @property
    def without_types(self) -> tuple[Any, ...]:
        """Key of the calls that differ in the types of their arguments only."""
        return (self.in_tree, *self[2:])

    def with_types(self, types: tuple[Any, ...]) -> Signature:
        """Return the signature for arguments of other types."""
        return Signature(self.in_tree, types, *self[2:])


class Uncomparable:
    """Static argument without a hash, which equals only itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class StaticArguments(NamedTuple):
    """Static arguments of a call: the number of all positional arguments, then (position or name, type, value) of each
    static one. Equality compares types too, since 1 == 1.0 == True."""

    arg_count: int
    positional: tuple[tuple[int, type, Any], ...]
    named: tuple[tuple[str, type, Any], ...]

    def __repr__(self) -> str:
        return tuple.__repr__(self)

    def merge(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all arguments, from the dynamic ones."""
        held, others = {i: value for i, _, value in self._plain(self.positional)}, iter(args)
        merged = tuple(held[i] if i in held else next(others) for i in range(self.arg_count))
        return merged, {**kwargs, **{name: value for name, _, value in self._plain(self.named)}}

    @staticmethod
    def _plain(entries: Sequence[tuple[Any, type, Any]]) -> list[tuple[Any, type, Any]]:
        return [(key, kind, v.value if type(v) is Uncomparable else v) for key, kind, v in entries]

    @property
    def has_uncomparable(self) -> bool:
        """Whether a value has no hash, so that no later call is known to be equal."""
        return any(type(value) is Uncomparable for _, _, value in (*self.positional, *self.named))

    def hold_uncomparable(self) -> StaticArguments:
        """Return the static arguments with each unhashable value as an `Uncomparable`."""

        def hold(entries: Sequence[tuple[Any, type, Any]]) -> tuple[tuple[Any, type, Any], ...]:
            return tuple((key, kind, v if is_hashable(v) else Uncomparable(v)) for key, kind, v in entries)

        return StaticArguments(self.arg_count, hold(self.positional), hold(self.named))

    def check_hashable(self, function: Callable[..., Any], transformation: str) -> None:
        """Raise for the first value without a hash."""
        entries: tuple[tuple[Any, type, Any], ...] = (*self.positional, *self.named)
        for key, kind, value in entries:
            if is_hashable(value):
                continue
            names = parameter_names(function, self.arg_count) or [str(i) for i in range(self.arg_count)]
            name = key if isinstance(key, str) else names[key]
            raise UnhashableStaticArgumentError(
                f"{transformation} of {get_name(function)}: static argument `{name}` is not hashable.",
                received=f"{value!r} of type {kind.__name__}",
                fix="pass a hashable value (a tuple for a list, a frozen dataclass), or make the argument dynamic",
                at=user_line(),
                jax="Non-hashable static arguments are not supported. An error occurred while trying to hash an "
                f"object of type {type(value)}, {value}.",
            ) from None


def is_hashable(value: Any) -> bool:
    """Return whether a value has a hash."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def split_static(
    options: JitOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], StaticArguments]:
    """Return the dynamic positional and keyword arguments, and the static ones."""
    indices = {i % len(args) if i < 0 and args else i for i in options.static_argnums}
    names = options.static_argnames
    positional = tuple((i, type(a), a) for i, a in enumerate(args) if i in indices)
    named = tuple((k, type(v), v) for k, v in sorted(kwargs.items()) if k in names)
    dynamic = tuple(a for i, a in enumerate(args) if i not in indices)
    rest = {k: v for k, v in kwargs.items() if k not in names}
    return dynamic, rest, StaticArguments(len(args), positional, named)


class Call:
    """Arguments of one call: the dynamic ones, as trees and as typed leaves, and the static ones (an empty tuple
    without them).

    `types` are those of `leaves`; both are replaced if `in_shardings` reshard the arguments.
    """

    __slots__ = ("args", "function", "has_refs", "in_tree", "kwargs", "leaves", "static", "types")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        static: StaticArguments | tuple[()],
    ) -> None:
        self.function, self.args, self.kwargs, self.static = function, args, kwargs, static
        leaves, self.in_tree = tree.flatten((args, kwargs))
        self.leaves: Sequence[Any] = leaves
        self.types: tuple[Any, ...] = ()
        self.has_refs = False

    def names(self) -> list[str] | None:
        """Return the names of the dynamic positional arguments, or None if they are the first ones."""
        if not self.static:
            return None
        names = parameter_names(self.function, self.static.arg_count)
        held = {index for index, _, _ in self.static.positional}
        return None if names is None else [n for i, n in enumerate(names) if i not in held]

    def paths(self) -> list[str]:
        """Return the path of each leaf, such as `params['w']`."""
        return argument_paths(self.function, self.args, self.kwargs, self.names())

    def donation_flags(self, options: JitOptions) -> tuple[bool, ...]:
        """Return a flag for each leaf, or () without donation.

        Positions in `donate_argnums` count all positional arguments, static ones included.
        """
        if not options.donate_argnums and not options.donate_argnames:
            return ()
        count = len(self.args) + len(options.static_argnums)
        positions = [i for i in range(count) if i not in options.static_argnums][: len(self.args)]
        flags: list[bool] = []
        for index, argument in zip(positions, self.args, strict=True):
            flags.extend([index in options.donate_argnums] * len(tree.leaves(argument)))
        for name in sorted(self.kwargs):
            flags.extend([name in options.donate_argnames] * len(tree.leaves(self.kwargs[name])))
        return tuple(flags)
