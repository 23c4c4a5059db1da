"""What a training loop carries: parameters, the optimizer's state, and the number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.modules import struct
from weft.optim import apply_updates


class TrainState(struct.PyTreeNode):
    """Parameters and an optimizer with its state; `apply_gradients` makes one step."""

    step: Any
    apply_fn: Callable[..., Any] = struct.field(pytree_node=False)
    params: Any = struct.field(pytree_node=True)
    tx: Any = struct.field(pytree_node=False)
    opt_state: Any = struct.field(pytree_node=True)

    def apply_gradients(self, *, grads: Any, **kwargs: Any) -> Any:
        """The state after one update of the parameters; keyword arguments replace other fields."""
        updates, opt_state = self.tx.update(grads, self.opt_state, self.params)
        params = apply_updates(self.params, updates)
        return self.replace(step=self.step + 1, params=params, opt_state=opt_state, **kwargs)

    @classmethod
    def create(cls, *, apply_fn: Callable[..., Any], params: Any, tx: Any, **kwargs: Any) -> Any:
        """The state before the first step."""
        return cls(step=0, apply_fn=apply_fn, params=params, tx=tx, opt_state=tx.init(params), **kwargs)
