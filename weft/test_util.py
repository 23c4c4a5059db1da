"""Tools for users' tests: check derivatives against finite differences."""

from weft.api.checks import check_grads as check_grads, check_jvp as check_jvp, check_vjp as check_vjp
from weft.base.publish import suggest as _suggest

_suggest(__name__)
