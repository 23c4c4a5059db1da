"""Random programs at several sizes: what is compiled for all sizes has the bits of what is compiled for one."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
from tests.fuzz.sizes import program
from weft.base.settings import symbolic_sizes


def outcome(function: Any, x: Any) -> Any:
    """Dtypes, shapes and bits of results, or the kind of error."""
    try:
        leaves = weft.tree.leaves(function(x))
    except (ValueError, TypeError, IndexError) as error:
        return type(error)
    return [(leaf.dtype, leaf.shape, leaf.weak_type, onp.asarray(leaf).tobytes()) for leaf in leaves]


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(20, 400, 20))])
def test_programs_for_all_sizes_have_the_bits_of_concrete_ones(first: int) -> None:
    for seed in range(first, first + 20):
        text, function, arguments = program(seed)
        automatic, concrete = (weft.jit(lambda x, function=function: function(x)) for _ in range(2))
        for x in arguments:
            with symbolic_sizes("declared"):
                expected = outcome(concrete, x)
            with weft.enable_checks(True):  # no kernel accesses what is outside of a buffer
                assert outcome(automatic, x) == expected, (seed, text, x.shape)
