"""Small libraries for examples: `optimizers` and `stax`. For work, there are `weft.optim`, `weft.linen` and
`weft.haiku`."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish

if _TYPE_CHECKING:
    from weft.example_libraries import optimizers as optimizers, stax as stax

_LATER = ("optimizers", "stax")


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise _MissingNameError(__name__, name)
    return _importlib.import_module(f"{__name__}.{name}")


_publish(__name__, later=_LATER)
