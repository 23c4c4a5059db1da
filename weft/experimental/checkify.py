"""Errors as values: functions that also return whether a check in them failed, and which.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.experimental import checkify
    >>> def root(x):
    ...     checkify.check(x >= 0, "x must not be negative, got {}", x)
    ...     return wnp.sqrt(x)
    >>> error, y = weft.jit(checkify.checkify(root))(-4.0)
    >>> error.get()
    'x must not be negative, got -4.0 (`check` failed)'
    >>> error, y = weft.jit(checkify.checkify(root))(4.0)
    >>> print(error.get(), y)
    None 2.0

A `check` that no `checkify` reaches is a check like Weft's own (`weft.checks`): it raises, in compiled programs too.
"""

from weft.api.checkify import (
    Error as Error,
    ErrorCategory as ErrorCategory,
    JaxRuntimeError as JaxRuntimeError,
    all_checks as all_checks,
    automatic_checks as automatic_checks,
    check as check,
    check_error as check_error,
    checkify as checkify,
    debug_check as debug_check,
    div_checks as div_checks,
    float_checks as float_checks,
    index_checks as index_checks,
    init_error as init_error,
    nan_checks as nan_checks,
    user_checks as user_checks,
)
from weft.base.publish import publish as _publish

_publish(__name__)
