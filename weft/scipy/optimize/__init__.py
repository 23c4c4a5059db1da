"""Minimisation of functions of a vector."""

from weft.base.publish import publish as _publish
from weft.scipy.optimize.minimize import OptimizeResults as OptimizeResults, minimize as minimize

_publish(__name__)
