"""The state of a training loop: parameters, the state of the optimizer, and the number of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.linen.fp8_ops import OVERWRITE_WITH_GRADIENT
from weft.modules import struct
from weft.optim import apply_updates


def _select_optimized(tree: Any) -> Any:
    """Return the part of parameters or gradients that the optimizer updates: 'params' beside scales of fp8,
    else all.
    """
    return tree["params"] if isinstance(tree, Mapping) and OVERWRITE_WITH_GRADIENT in tree else tree


class TrainState(struct.PyTreeNode):
    """Parameters and an optimizer with its state; `apply_gradients` performs one step.

    `params` may be all variables of a module that computes in fp8: the gradients of the collection
    '_overwrite_with_gradient' are its next values, and the optimizer updates 'params' only.
    """

    step: Any
    apply_fn: Callable[..., Any] = struct.field(pytree_node=False)
    params: Any = struct.field(pytree_node=True)
    tx: Any = struct.field(pytree_node=False)
    opt_state: Any = struct.field(pytree_node=True)

    def apply_gradients(self, *, grads: Any, **kwargs: Any) -> Any:
        """Return the state after one update of the parameters; keyword arguments replace other fields."""
        before = _select_optimized(self.params)
        updates, opt_state = self.tx.update(_select_optimized(grads), self.opt_state, before)
        params = apply_updates(before, updates)
        if before is not self.params:
            params = {"params": params, OVERWRITE_WITH_GRADIENT: grads[OVERWRITE_WITH_GRADIENT]}
        return self.replace(step=self.step + 1, params=params, opt_state=opt_state, **kwargs)

    @classmethod
    def create(cls, *, apply_fn: Callable[..., Any], params: Any, tx: Any, **kwargs: Any) -> Any:
        """Return the state before the first step."""
        return cls(
            step=0, apply_fn=apply_fn, params=params, tx=tx, opt_state=tx.init(_select_optimized(params)), **kwargs
        )
