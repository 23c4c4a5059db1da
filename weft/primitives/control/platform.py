"""`platform_index`: which of several platforms a program runs on, known when it is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.errors import NotSupportedError
from weft.ir.context import current_line
from weft.ir.primitive import Params, Primitive, Sample, primitive
from weft.ir.types import ArrayType, array_type

INT32 = np.dtype(np.int32)
# What one name means.
FAMILIES = {"gpu": ("cuda", "rocm")}


@primitive
class platform_index(Primitive):
    """Index of the first entry of `platforms`, tuples of names, that contains the platform of the program; an entry
    of None matches all."""

    zero_derivative = True
    introduces = ()

    def type(self, *, platforms: tuple[tuple[str, ...] | None, ...]) -> ArrayType:
        return array_type((), INT32)

    def eval(self, *, platforms: tuple[tuple[str, ...] | None, ...]) -> Any:
        return self.on_platform("cpu", {"platforms": platforms})

    def on_platform(self, platform: str, params: Params) -> Any:
        for i, names in enumerate(params["platforms"]):
            if names is None or any(platform in FAMILIES.get(name, (name,)) for name in names):
                return np.array(i, INT32)
        known = ", ".join(name for names in params["platforms"] for name in names)
        raise NotSupportedError(
            f"platform_dependent has no function for the platform {platform!r}.",
            received=f"functions for {known}" if known else "no function",
            fix=f"platform_dependent(*args, {platform}=f), or default=f for all others",
            at=current_line(),
        )

    def samples(self) -> Any:
        yield Sample(platforms=(("cpu",), None), differentiable=False)
        yield Sample(platforms=(("gpu", "tpu"), None), differentiable=False)
