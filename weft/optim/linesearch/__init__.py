"""How far to go along a direction: backtracking and zoom, and L-BFGS, which is of little use without."""

from weft.optim.linesearch.backtracking import (
    BacktrackingLinesearchInfo,
    ScaleByBacktrackingLinesearchState,
    scale_by_backtracking_linesearch,
)
from weft.optim.linesearch.common import value_and_grad_from_state
from weft.optim.linesearch.lbfgs import ScaleByLBFGSState, lbfgs, scale_by_lbfgs
from weft.optim.linesearch.zoom import ScaleByZoomLinesearchState, ZoomLinesearchInfo, scale_by_zoom_linesearch

__all__ = [
    "BacktrackingLinesearchInfo",
    "ScaleByBacktrackingLinesearchState",
    "ScaleByLBFGSState",
    "ScaleByZoomLinesearchState",
    "ZoomLinesearchInfo",
    "lbfgs",
    "scale_by_backtracking_linesearch",
    "scale_by_lbfgs",
    "scale_by_zoom_linesearch",
    "value_and_grad_from_state",
]
