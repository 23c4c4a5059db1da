"""SciPy on arrays that can be traced, differentiated and vectorised. Each module is imported on first access."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish

if _TYPE_CHECKING:
    from weft.scipy import (
        cluster as cluster,
        fft as fft,
        integrate as integrate,
        interpolate as interpolate,
        linalg as linalg,
        ndimage as ndimage,
        optimize as optimize,
        signal as signal,
        sparse as sparse,
        spatial as spatial,
        special as special,
        stats as stats,
    )

_LATER = (
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
)


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise _MissingNameError(__name__, name)
    return _importlib.import_module(f"{__name__}.{name}")


_publish(__name__, later=_LATER)
