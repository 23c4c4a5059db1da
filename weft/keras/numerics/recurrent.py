"""The loop over the steps of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array, lax

Step = Callable[[Any, Any, Any], tuple[Any, Any]]


def run_steps(
    step: Step,
    read_output: Callable[[Any], Array],
    sequences: Any,
    states: Any,
    mask: Any = None,
    *,
    rest: Any = (),
    backwards: bool = False,
    unroll: bool = False,
    zero_output_for_mask: bool = False,
    all_outputs: bool = True,
) -> tuple[Array, Any, Any, Any]:
    """Run `step(x, states, rest) -> (states, rest)` over arrays whose first axis is time.

    Where the mask of a step is false states stay, and so does the output, or it is 0 with `zero_output_for_mask`.

    Args:
      step: one step; `x` has the structure of `sequences` without time.
      output_of: the output that is in the states after a step.
      sequences: arrays (time, batch, ...).
      states: arrays (batch, ...) before the first step.
      mask: (time, batch) of booleans.
      rest: what else goes from step to step, masked or not.
      backwards: from the last step to the first; outputs are in the order in which they are computed.
      unroll: whether the program has the steps one by one, without a loop.
      zero_output_for_mask: what the output of a step is whose mask is false.
      all_outputs: whether outputs of all steps are wanted.

    Returns:
      The last output, the outputs (time, batch, ...) or None, the last states, and the last rest.
    """
    time = weft.tree.leaves(sequences)[0].shape[0]

    def body(carry: Any, xs: Any) -> tuple[Any, Any]:
        x, valid = xs
        old = carry[0]
        new, rest = step(x, *carry)
        if valid is not None:
            new = weft.tree.map(lambda after, before: wnp.where(_fit(valid, after), after, before), new, old)
        if not all_outputs:
            return (new, rest), None
        out = read_output(new)
        masked = valid is not None and zero_output_for_mask
        return (new, rest), wnp.where(_fit(valid, out), out, 0) if masked else out

    (states, rest), outputs = lax.scan(
        body, (states, rest), (sequences, mask), reverse=backwards, unroll=time if unroll else 1
    )
    if all_outputs:
        outputs = wnp.flip(outputs, axis=0) if backwards else outputs
        return outputs[-1], outputs, states, rest
    last = read_output(states)
    if mask is not None and zero_output_for_mask:
        end = mask[0] if backwards else mask[-1]
        last = wnp.where(_fit(end, last), last, 0)
    return last, None, states, rest


def _fit(valid: Array, x: Array) -> Array:
    """Reshape a mask of a batch for an array whose first dimension is the batch."""
    return wnp.reshape(valid, (*valid.shape, *(1,) * (x.ndim - valid.ndim)))


def time_first(x: Array) -> Array:
    """Swap (batch, time, ...) and (time, batch, ...)."""
    return wnp.swapaxes(x, 0, 1)
