"""Conversion between the user's functions of trees and the flat functions that transformations work on."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from weft.base import tree
from weft.base.errors import ArgumentError, ArgumentTypeError, InvalidInputTypeError
from weft.base.source import user_line
from weft.ir.types import get_aval, is_value
from weft.trace.refs import check_no_ref_results


class OutTree:
    """Structure of a function's result, which the flat function stores here when it runs."""

    __slots__ = ("auxiliary", "treedef")

    treedef: tree.PyTreeDef
    auxiliary: Any


def get_name(function: Any) -> str:
    """Return the name of a function in jaxprs and messages."""
    if isinstance(function, functools.partial):
        return get_name(function.func)
    name = getattr(function, "__name__", None)  # of an object it may be anything
    return name if isinstance(name, str) and name else type(function).__name__


Wrapper = TypeVar("Wrapper")


def adopt(wrapper: Wrapper, function: Any) -> Wrapper:
    """Copy the name, documentation, signature and attributes of a function to its wrapper. Attributes of objects that
    are no plain functions belong to their class, and attributes of the wrapper itself stay."""
    target: Any = wrapper
    target.__name__ = get_name(function)
    for attribute in ("__qualname__", "__module__", "__doc__"):
        value = getattr(function, attribute, None)
        if isinstance(value, str):
            setattr(target, attribute, value)
    if isinstance(function, types.FunctionType):
        target.__annotations__ = function.__annotations__
        for attribute, value in vars(function).items():
            if not hasattr(target, attribute):
                setattr(target, attribute, value)
    target.__wrapped__ = function
    return wrapper


def wraps(function: Any) -> Callable[[Wrapper], Wrapper]:
    """Return `adopt` as a decorator."""
    return lambda wrapper: adopt(wrapper, function)


def check_callable(function: Any, transformation: str) -> None:
    """Raise unless `function` is a callable that transformations accept."""
    if not callable(function):
        received = f"{function!r} of type {type(function).__name__}"
        fix = f"{transformation}(f)(x), with the function itself"
        raise ArgumentTypeError(
            f"{transformation}: Expected a callable value, got {function!r}.", received=received, fix=fix
        )
    if isinstance(function, staticmethod):
        raise ArgumentTypeError(
            f"{transformation} must be applied to the function before it becomes a static method.",
            received=repr(function),
            fix=f"@staticmethod above @{transformation}",
            jax=f"staticmethod arguments are not supported, got {function}",
        )
    if inspect.isgeneratorfunction(function):
        raise ArgumentTypeError(
            f"{transformation} of {get_name(function)}: a generator function must return its values, not yield them.",
            received=repr(function),
            fix="return a list or a tuple",
            jax=f"Expected a function, got a generator function: {function}",
        )


def get_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, or None if it has none."""
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def flat_function(function: Callable[..., Any], in_tree: tree.PyTreeDef, out: OutTree) -> Callable[..., list[Any]]:
    """Return `function(*args, **kwargs)` as a function of the leaves of `(args, kwargs)` that returns the leaves of its
    result."""

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = tree.unflatten(in_tree, leaves)
        result = function(*args, **kwargs)
        results, out.treedef = tree.flatten(result)
        check_results(function, result, results)
        return results

    return flat


def check_results(function: Callable[..., Any], result: Any, leaves: Sequence[Any], what: str = "The function") -> None:
    """Raise unless every leaf of a transformed function's result is an array or a number. `what` describes the
    function."""
    check_no_ref_results(leaves, f"{what} {get_name(function)}")
    check_values(
        result,
        leaves,
        lambda path: f"{what} {get_name(function)} returned a value that is not an array at result{path}.",
        "return arrays, numbers, or trees of them",
        lambda leaf, path: (
            f"function {get_name(function)} traced for jit returned a value of type {type(leaf)} at output component "
            f"{path}, which is not a valid JAX type"
        ),
    )


def check_values(
    value: Any,
    leaves: Sequence[Any],
    says: Callable[[str], str],
    fix: str,
    jax: Callable[[Any, str], str] = lambda leaf, path: not_a_jax_type(leaf),
) -> None:
    """Raise unless every leaf of `value` is an array or a number; `says` maps the path of the first other leaf to the
    message."""
    for leaf in leaves:
        if not is_value(leaf):
            path = next(p for p, v in tree.leaves_with_path(value) if v is leaf)
            received = f"{leaf!r} of type {type(leaf).__name__}"
            raise InvalidInputTypeError(
                says(tree.keystr(path)), received=received, fix=fix, at=user_line(), jax=jax(leaf, tree.keystr(path))
            )


def argument_paths(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], names: Sequence[str] | None = None
) -> list[str]:
    """Return a name for each leaf of `(args, kwargs)`, such as `params['w']`; `names` are those of `args`, by default
    of the first parameters."""
    names = names or parameter_names(function, len(args))
    paths = [
        (names[i] if names is not None else f"argument {i}") + tree.keystr(path)
        for i, a in enumerate(args)
        for path, _ in tree.leaves_with_path(a)
    ]
    for key in sorted(kwargs):
        paths.extend(key + tree.keystr(path) for path, _ in tree.leaves_with_path(kwargs[key]))
    return paths


def parameter_names(function: Callable[..., Any], count: int) -> list[str] | None:
    """Return the names of the first `count` positional parameters, with `args[i]` for variadic ones."""
    signature = get_signature(function)
    if signature is None:
        return None
    names: list[str] = []
    star = None
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            star = parameter.name
    if len(names) < count and star is None:
        return None
    names.extend(f"{star}[{i}]" for i in range(count - len(names)))
    return names[:count]


def check_leaves(
    function: Callable[..., Any],
    transformation: str,
    leaves: Sequence[Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    names: Sequence[str] | None = None,
) -> None:
    """Raise unless every leaf of the arguments is an array or a number; the error names the path of the first other
    leaf."""
    for i, leaf in enumerate(leaves):
        if not is_value(leaf):
            path = argument_paths(function, args, kwargs, names)[i]
            static = ", or mark the argument with static_argnums or static_argnames"
            raise InvalidInputTypeError(
                f"{transformation} of {get_name(function)} got a value that is not an array at {path}.",
                received=f"{leaf!r} of type {type(leaf).__name__}",
                fix="pass arrays or numbers" + (static if transformation in ("jit", "checkpoint") else ""),
                at=user_line(),
                jax=_jax_text_of_staging(function, leaf, path)
                if transformation in ("jit", "checkpoint", "make_jaxpr")
                else not_a_jax_type(leaf),
            )


def _jax_text_of_staging(function: Callable[..., Any], leaf: Any, path: str) -> str:
    """Return the sentence of JAX for an argument of a staged function that is not an array."""
    return (
        f"Error interpreting argument to {function} as an abstract array. The problematic value is of type "
        f"{type(leaf)} and was passed to the function at path {path}."
    )


def not_a_jax_type(leaf: Any) -> str:
    """Return the sentence of JAX for an argument that is not an array."""
    return f"Argument '{leaf}' of type {type(leaf)} is not a valid JAX type"


def structure_differences(expected: tree.PyTreeDef, other: tree.PyTreeDef, names: Sequence[str]) -> str:
    """Describe where two structures differ; `names[i]` replaces the first key of a path."""
    found = tree.equality_errors_of_structures(expected, other)
    lines = []
    for difference in found[:3]:
        path = difference.path
        at = path_name(path, names)
        lines.append(f"{difference.second} for {difference.first}{' at ' + at if at else ''}")
    return "\n".join(lines) or f"{other} for {expected}"


def path_name(path: Sequence[Any], names: Sequence[str]) -> str:
    """Return a path as text, with the name of the argument in place of its index."""
    if not path:
        return ""
    i = getattr(path[0], "idx", None)
    if i is not None and i < len(names):
        result: str = names[i] + tree.keystr(path[1:])
        return result
    return tree.keystr(path).lstrip(".")


# Returned by a dispatcher for a call of another signature.
MISS = object()
Dispatcher = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def get_types(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the types of leaves."""
    return tuple([get_aval(leaf) for leaf in leaves])


def resolve(
    function: Callable[..., Any], argnums: tuple[int, ...], names: tuple[str, ...], complete: bool = True
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Complete positions by names, and names by positions, from the signature. If both are passed, or `complete` is
    False, neither is completed."""
    signature = get_signature(function)
    if signature is None or not (argnums or names):
        return argnums, names
    positional = [
        p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    star = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    accepts_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for name in names:
        if name not in signature.parameters and not accepts_any:
            what = f"Jitted function has invalid argnames: {get_name(function)} has no parameter {name!r}."
            fix = "the name of an argument of the function"
            raise ArgumentError(what, received=f"parameters {', '.join(signature.parameters)}", fix=fix)
        parameter = signature.parameters.get(name)
        if parameter is not None and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            what = f"Jitted function has invalid argnames: {get_name(function)} takes {name!r} by position only."
            fix = "static_argnums or donate_argnums, with the position of the argument"
            raise ArgumentError(what, received=f"{get_name(function)}{signature}", fix=fix)
    for i in argnums:
        if not star and not -len(positional) <= i < len(positional):
            what = f"jit of {get_name(function)}: argnums must be positions of parameters, and there is no number {i}."
            fix = "the index of a positional argument, from 0; names go to static_argnames"
            raise ArgumentError(what, received=f"parameters {', '.join(positional) or 'none'}", fix=fix)
    resolved = {n % len(positional) if n < 0 and positional else n for n in argnums}
    if not complete or (argnums and names):
        return tuple(sorted(resolved)), tuple(sorted(names))
    all_argnums = sorted(resolved | {positional.index(n) for n in names if n in positional})
    all_names = sorted({*names, *(positional[n] for n in resolved if n < len(positional))})
    return tuple(all_argnums), tuple(all_names)


def as_tuple(value: int | str | Iterable[Any] | None) -> tuple[Any, ...]:
    """Return an option that may be one value, several, or None as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, (int, str)) else tuple(value)
