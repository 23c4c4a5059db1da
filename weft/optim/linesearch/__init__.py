"""Line searches: backtracking and zoom, and L-BFGS, which needs one."""

from weft.optim.linesearch.backtracking import (
    BacktrackingLinesearchInfo as BacktrackingLinesearchInfo,
    ScaleByBacktrackingLinesearchState as ScaleByBacktrackingLinesearchState,
    scale_by_backtracking_linesearch as scale_by_backtracking_linesearch,
)
from weft.optim.linesearch.common import value_and_grad_from_state as value_and_grad_from_state
from weft.optim.linesearch.lbfgs import (
    ScaleByLBFGSState as ScaleByLBFGSState,
    lbfgs as lbfgs,
    scale_by_lbfgs as scale_by_lbfgs,
)
from weft.optim.linesearch.zoom import (
    ScaleByZoomLinesearchState as ScaleByZoomLinesearchState,
    ZoomLinesearchInfo as ZoomLinesearchInfo,
    scale_by_zoom_linesearch as scale_by_zoom_linesearch,
)
