"""Point-to-point communication as two calls, send and receive, with a token between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import tree
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.source import user_line
from weft.base.tree_nodes import register_pytree_node
from weft.ir.types import get_aval
from weft.lax.named_axes import Name, axis_names
from weft.lax.parallel import ppermute

Pairs = tuple[tuple[int, int], ...]


class SendToken:
    """Token that `psend` returns and `precv` takes: the values in transit, their axes, and pairs (source, destination).

    It is a tree, so it passes through loops and calls.
    """

    __slots__ = ("names", "pairs", "values")

    def __init__(self, values: Any, names: tuple[Any, ...], pairs: Pairs):
        self.values, self.names, self.pairs = values, names, pairs

    def __repr__(self) -> str:
        return f"SendToken({self.names}, perm={self.pairs})"


register_pytree_node(
    SendToken,
    lambda token: ((token.values,), (token.names, token.pairs)),
    lambda aux, children: SendToken(*children, *aux),
)


def canonical_pairs(perm: Sequence[tuple[int, int]]) -> Pairs:
    return tuple((int(source), int(destination)) for source, destination in perm)


def psend(x: Any, axis_name: Name, perm: Sequence[tuple[int, int]]) -> SendToken:
    """Send each leaf along `perm`, pairs (source, destination); `precv` receives it with the returned token.
    returned."""
    return SendToken(ppermute(x, axis_name, perm), axis_names(axis_name), canonical_pairs(perm))


def precv(token: SendToken, out_shape: Any, axis_name: Name, perm: Sequence[tuple[int, int]]) -> Any:
    """Receive the values that `psend` sent along `perm`, a tree of arrays like `out_shape`; zeros where nothing is
    sent.
    nothing is received."""
    if not isinstance(token, SendToken):
        raise ArgumentTypeError(
            "lax.precv needs the token that lax.psend returned.",
            received=described(token),
            fix="token = lax.psend(x, axis_name, perm); y = lax.precv(token, out_shape, axis_name, perm)",
            at=user_line(),
        )
    sent = (token.names, token.pairs)
    if (axis_names(axis_name), canonical_pairs(perm)) != sent:
        raise ArgumentError(
            "The axes and the permutation of lax.precv must be those of lax.psend.",
            received=f"{axis_name!r} with perm={canonical_pairs(perm)} for {token!r}",
            fix=f"lax.precv(token, out_shape, {token.names}, {list(token.pairs)})",
            at=user_line(),
        )
    shapes = lambda value: tree.map(lambda leaf: (tuple(leaf.shape), str(leaf.dtype)), value)
    types = tree.map(get_aval, token.values)
    if tree.structure(out_shape) != tree.structure(token.values) or shapes(out_shape) != shapes(types):
        raise ArgumentError(
            "lax.precv: out_shape must match the values that were sent.",
            received=f"{out_shape} for {tree.map(lambda t: t.short(), types)}",
            fix="weft.eval_shape(lambda: x)   of the operand of lax.psend",
            at=user_line(),
        )
    return token.values
