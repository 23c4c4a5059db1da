"""Jaxprs print as in JAX, except for parameters that Weft does not have."""

from __future__ import annotations

import re

import jax
import pytest

import weft
from tests.peer.compare import INPUTS, NAMESPACES

PROGRAMS = """
lambda x, y: np.sum(x + np.sin(y) * 3.0)
lambda x: lax.reduce_max(lax.exp(x), (1,))
lambda x: lax.transpose(lax.reshape(x, (4, 3)), (1, 0))
lambda x, tall: lax.dot_general(x, tall, (((1,), (0,)), ((), ())))
lambda x: {"a": x * 2.0, "b": [x, 1.0]}
lambda x: lib.jit(lambda v: lax.sin(v), inline=False)(x)
lambda x: lax.convert_element_type(x, onp.int32)
lambda x, y: lax.select_n(lax.lt(x, y), x, y)
lambda s: lax.cond(s > 0.0, lax.sin, lax.cos, s)
lambda s: lax.while_loop(lambda v: v < 10.0, lambda v: v * 2.0, s)
lambda r: lax.scan(lambda c, v: (c + v, c * v), 0.0, r)
lambda x: lax.rev(lax.cumsum(x, axis=1), (0,))
lambda x: lax.slice(x, (0, 1), (2, 3))
lambda r: lax.broadcast_in_dim(r, (3, 4), (1,))
lambda x: lib.grad(lambda v: lax.reduce_sum(lax.sin(v), (0, 1)))(x)
lambda x: lib.jvp(lax.sin, (x,), (x,))
lambda x: lax.integer_pow(x, 3)
lambda x: lax.stop_gradient(x) + onp.ones((3, 4), onp.float32)
lambda x: lax.concatenate([x, x], 1)
lambda x: lax.pad(x, 0.0, ((0, 1, 0), (1, 0, 2)))
lambda x: lax.sort(x)
lambda x: lax.iota(onp.int32, 3)
"""


# Only the layout is compared where a line is written in another way on purpose.
KNOWN_DIFFERENCES = {
    "lambda x: lib.jit(lambda v: lax.sin(v), inline=False)(x)": "names inside go on from those outside",
    "lambda r: lax.scan(lambda c, v: (c + v, c * v), 0.0, r)": "a weakly typed carry is converted before the loop",
    "lambda r: lax.broadcast_in_dim(r, (3, 4), (1,))": "every parameter is printed, so that the text can be read back",
    "lambda x: lib.grad(lambda v: lax.reduce_sum(lax.sin(v), (0, 1)))(x)": "as above",
}


def words(text: str) -> str:
    """Return the text without parameters that say nothing here (not set, or only how JAX compiles), tuples as
    tuples."""
    text = re.sub(r"\b\w+=(None|False|\(\)|True)(?=\s|\])", "", text)
    text = text.replace("(([1], [0]), ([], []))", "(((1,), (0,)), ((), ()))")
    text = re.sub(r" +\]", "]", re.sub(r"\[ +", "[", text))
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def printed(library: str, text: str) -> str:
    lib = {"weft": weft, "jax": jax}[library]
    function = eval(text, NAMESPACES[library])
    arguments = [INPUTS[name] for name in function.__code__.co_varnames[: function.__code__.co_argcount]]
    return str(lib.make_jaxpr(function)(*arguments))


@pytest.mark.parametrize("text", [line for line in PROGRAMS.splitlines() if line])
def test_text(text: str) -> None:
    ours, theirs = words(printed("weft", text)), words(printed("jax", text))
    if text in KNOWN_DIFFERENCES:
        assert ours != theirs, "the same text as JAX's: no difference any more"
        operations = lambda text: sorted(set(re.findall(r"= (\w+)", text)) - {"convert_element_type"})
        assert operations(ours) == operations(theirs)
    else:
        assert ours == theirs
