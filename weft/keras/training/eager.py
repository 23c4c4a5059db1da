"""Steps that run eagerly, for `run_eagerly`, so that a debugger can inspect values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.keras.core.layouts import current_distribution
from weft.keras.training.arguments import on_device
from weft.keras.training.logs import Packing
from weft.keras.training.program import Pace


class EagerProgram:
    """A stateful step, called for each batch.

    Args:
        function: `function(batch) -> logs`.
        variables: the variables that are there before the first batch.
        logs: whether the results are logs; else they are outputs, and returned as they are.
    """

    table = 0

    def __init__(self, function: Callable[[Any], Any], variables: list[Any], logs: bool = True) -> None:
        self.function = function
        self.variables = variables
        self.logs = logs
        self.pace = Pace()
        self.packing = Packing({})

    def run_batch(self, batch: Any) -> Any:
        """Run one batch and assign the variables' new values; restore the values from before if it fails."""
        before = [variable._value for variable in self.variables]
        try:
            result = self.function(on_device(batch))
            distribution = current_distribution()
            if distribution is not None:
                distribution.check_matched()
        except BaseException:
            for variable, value in zip(self.variables, before, strict=True):
                variable._value = value
            raise
        if not self.logs:
            return result
        self.packing = Packing(result)
        return self.packing.pack(result)
