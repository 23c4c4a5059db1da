"""Shapes by pattern."""

from __future__ import annotations

import math
import re
from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras.ops.dispatch import operation, tensor as as_array

_TOKENS = re.compile(r"\(|\)|\.\.\.|\w+")


@operation
def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Reorder, split and merge the axes of an array as a pattern says.

    Args:
        tensor: an array.
        pattern: the axes before and after `->`, such as `"b (h two) c -> b h (two c)"`. Parentheses group axes that are
            one axis of the array. `...` is all remaining axes.
        **axes_lengths: the sizes of axes in a group; one of each group follows from the rest.

    Returns:
        An array.
    """
    x = as_array(tensor)
    before, arrow, after = pattern.partition("->")
    left, right = _groups(before, pattern), _groups(after, pattern)
    if not arrow:
        raise ArgumentError("A pattern must have axes before and after `->`.", received=repr(pattern))
    others = x.ndim - sum(group != ["..."] for group in left)
    if others < 0 or (others and ["..."] not in left):
        raise ArgumentError(f"The pattern {before.strip()!r} does not have {x.ndim} axes.", received=f"shape {x.shape}")
    rest = [f"...{i}" for i in range(others)]
    left, right = _expand_ellipsis(left, rest), _expand_ellipsis(right, rest)
    names, result = [n for group in left for n in group], [n for group in right for n in group]
    if sorted(names) != sorted(result) or len(set(names)) != len(names):
        raise ArgumentError("Both sides of a pattern must have the same axes, each once.", received=repr(pattern))
    sizes: dict[str, int] = dict(axes_lengths)
    for group, size in zip(left, x.shape, strict=True):
        unknown = [name for name in group if name not in sizes]
        known = math.prod(sizes[name] for name in group if name in sizes)
        if len(unknown) > 1 or (known and size % known) or (not unknown and known != size):
            raise ArgumentError(
                f"The axis ({' '.join(group)}) has the size {size}; give all sizes but one.",
                received=", ".join(f"{name}={value}" for name, value in axes_lengths.items()) or "no sizes",
            )
        sizes.update({name: size // known if known else 0 for name in unknown})
    x = wnp.reshape(x, [sizes[name] for name in names])
    x = wnp.transpose(x, [names.index(name) for name in result])
    return wnp.reshape(x, [math.prod(sizes[name] for name in group) for group in right])


def _groups(side: str, pattern: str) -> list[list[str]]:
    """Parse one side of a pattern into axes, each a list of the names that are merged in it."""
    groups: list[list[str]] = []
    inside = False
    for token in _TOKENS.findall(side):
        if token in "()":
            if inside == (token == "("):
                raise ArgumentError("The parentheses of a pattern are not nested and are closed.", received=pattern)
            inside = token == "("
            if inside:
                groups.append([])
        elif inside:
            groups[-1].append(token)
        else:
            groups.append([token])
    if inside:
        raise ArgumentError("The parentheses of a pattern are not nested and are closed.", received=pattern)
    return groups


def _expand_ellipsis(groups: list[list[str]], rest: list[str]) -> list[list[str]]:
    """Replace `...` in groups with the axes that it stands for; inside of a group it merges them."""
    expanded: list[list[str]] = []
    for group in groups:
        if group == ["..."]:
            expanded.extend([name] for name in rest)
        else:
            expanded.append([name for part in group for name in (rest if part == "..." else [part])])
    return expanded
