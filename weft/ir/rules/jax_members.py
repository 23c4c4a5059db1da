"""Members of JAX's primitives that programs written for JAX read from built-in ones too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft.ir.rules.bindable import Bindable, Params

# Parameters of JAX's equations that `bind` drops: hints always, the others without a value.
_HINTS = frozenset(("accuracy", "use_magma"))
_OFTEN_SILENT = frozenset(("out_dtype", "out_sharding", "sharding", "update_consts", "update_jaxpr"))


class JaxMembers(Bindable):
    """JAX's ways to bind a primitive, and its flags. No rule of Weft reads them."""

    # Whether the primitive calls a jaxpr, and whether it maps one over devices, which none does.
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False

    def bind(self, *args: Any, **params: Any) -> Any:
        """Bind with the parameters of JAX's equations: hints are dropped, and so are optional parameters without a
        value."""
        return self(*args, **{word: value for word, value in params.items() if not _is_silent(word, value)})

    def get_bind_params(self, params: Params) -> tuple[list[Any], Params]:
        """Return the leading arguments of `bind` (none, because jaxprs are parameters) and the parameters."""
        return [], dict(params)

    def bind_with_trace(self, trace: Any, args: Sequence[Any], avals: Any, params: Params | None = None) -> Any:
        """Bind under `trace`. `avals`, the types of the operands, may be omitted, as in older versions of JAX."""
        results = trace.process(self, args, avals if params is None else params)
        return results if self.multiple_results else results[0]


def _is_silent(word: str, value: Any) -> bool:
    """Return whether `bind` may drop a parameter that the operation does not have."""
    return word in _HINTS or (word in _OFTEN_SILENT and (value is None or value == ()))
