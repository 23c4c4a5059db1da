"""The format of error messages, and the two base classes: user errors and bugs of Weft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from weft.base.source import user_line

_LABEL_WIDTH = 10  # the longest label, `received`, and two spaces
_SHOWN_STAGE_LINES = 40

_shows_jax_text = False  # set once, when Weft is installed under JAX's name


def show_jax_text() -> None:
    """End the messages of errors that have JAX's text with it, from now on: programs match it."""
    global _shows_jax_text
    _shows_jax_text = True


def message(
    what: str,
    *,
    at: str | None = None,
    received: str | None = None,
    fix: str | Sequence[str] | None = None,
    page: str | None = None,
    jax: str | None = None,
) -> str:
    """Format an error message: a first line that says what is wrong, then one aligned line for each part.

    `at` is the user's line (`train.py:41:  if x > 0:`), `received` the values or types that were passed, `fix` what to
    write instead (a sequence: the first, then each alternative on a line `or`), `page` the name of the class whose
    page `weft.errors.explain` prints. A part may have several lines. `jax` is the sentence of JAX's message for the
    same mistake, which is printed as it is.
    """
    fixes = (fix,) if isinstance(fix, str) else tuple(fix or ())
    parts = [("at", at), ("received", received)]
    parts += [("or" if i else "fix", text) for i, text in enumerate(fixes)]
    parts += [("more", page and f"weft.errors.explain({page!r})")]
    lines = [what]
    for label, text in parts:
        for i, line in enumerate((text or "").splitlines()):
            lines.append(f"  {'' if i else label:<{_LABEL_WIDTH}}{line}".rstrip())
    if jax is not None:
        lines.append(f"  {'jax':<{_LABEL_WIDTH}}{jax}")
    return "\n".join(lines)


class WeftError(Exception):
    """An error in the user's program, with a suggested fix. The base class of all user errors.

    The attributes `what`, `at`, `received` and `fix` are the parts of the message, which `str` formats. `at` is by
    default the innermost line of the user's code. `jax` is the sentence that JAX's message for the same mistake has; it
    is part of the message where Weft runs under JAX's name.
    """

    page: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A subclass that is defined elsewhere has no page and inherits the page of its base class.
        if cls.__module__.startswith("weft.base.errors."):
            cls.page = cls.__name__
            cls.__module__ = "weft.errors"  # where users find it

    def __init__(
        self,
        what: object = "",
        *,
        at: str | None = None,
        received: str | None = None,
        fix: str | Sequence[str] | None = None,
        jax: str | None = None,
    ) -> None:
        # Only `what` is an argument of the exception; the rest is in `__dict__`. Pickle and copy restore exactly these.
        super().__init__(what)
        self.at = user_line() if at is None else at
        self.received = received
        self.fix = fix
        self.jax = jax

    @property
    def what(self) -> str:
        """The first line of the message."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        jax = self.jax if _shows_jax_text else None
        return message(self.what, at=self.at, received=self.received, fix=self.fix, page=self.page, jax=jax)


class InternalError(RuntimeError):
    """A bug in Weft: an error that no user program should be able to cause.

    `stage` is the part of Weft that detected it, `text` the jaxpr, Program or kernel at that point. The message shows
    the beginning of the text; the attribute has all of it. Its traceback includes Weft's frames.
    """

    is_our_fault: ClassVar[bool] = True

    def __init__(self, what: object = "", *, stage: str | None = None, text: str | None = None) -> None:
        super().__init__(what)
        self.stage = stage
        self.text = text

    def __str__(self) -> str:
        lines = [str(self.args[0]) if self.args else ""]
        lines += ["  This is a bug in Weft, not in your program. Please report it with this message and its traceback."]
        if self.stage is not None:
            lines += [f"  {'stage':<{_LABEL_WIDTH}}{self.stage}"]
        if self.text is not None:
            shown = self.text.splitlines()
            lines += ["  " + line for line in shown[:_SHOWN_STAGE_LINES]]
            if len(shown) > _SHOWN_STAGE_LINES:
                lines += [f"  ... {len(shown) - _SHOWN_STAGE_LINES} more lines in the attribute `text`"]
        return "\n".join(lines)
