"""Tools for users' tests: check derivatives against finite differences."""

from weft.api.checks import check_grads, check_jvp, check_vjp
from weft.base.publish import suggest as _suggest

__all__ = ["check_grads", "check_jvp", "check_vjp"]

_suggest(__name__)
