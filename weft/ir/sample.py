"""Operands and parameters on which the tests check the laws of a primitive."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.ir.rules.bindable import Params


@dataclass
class Sample:
    """Operands (NumPy arrays) and parameters on which the tests check the laws. `differentiable` and `tolerance` narrow
    what is checked.

    A collective is sampled in an `environment`, the sizes of named axes: its operands stack the values of all devices
    along these axes in leading dimensions, and its reference is `vmap` over them.
    """

    args: tuple[Any, ...]
    params: Params
    differentiable: bool = True
    tolerance: float | None = None
    environment: dict[Any, int] = field(default_factory=dict)

    def __init__(
        self,
        *args: Any,
        differentiable: bool = True,
        tolerance: float | None = None,
        environment: Any = None,
        **params: Any,
    ):
        self.args, self.params = args, params
        self.differentiable, self.tolerance = differentiable, tolerance
        self.environment = environment or {}
