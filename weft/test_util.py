"""Tools for users' tests: check derivatives against finite differences."""

from weft.api.checks import check_grads, check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]
