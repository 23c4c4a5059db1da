"""The errors Weft raises, one class for each mistake; each class docstring is its page, which `explain` prints."""

import difflib
import inspect

from weft.base.docstrings import Documenter as Documenter
from weft.base.errors import ArgumentError
from weft.base.publish import export as export, publish as publish, suggest as suggest
from weft.base.source import user_line as user_line
from weft.base.tracebacks import UnfilteredStackTrace as UnfilteredStackTrace, boundary as boundary, conceal as conceal

export("weft.base.errors")
from weft.base.errors import *  # noqa: E402, F403


def explain(error: type[BaseException] | BaseException | str) -> None:
    """Print the page of an error class, of an error that was caught, or of a class by name: the cause, code that
    raises it and code that does not.

    `weft.errors.explain("ShapeMismatchError")`
    """
    kind = _class_of(error)
    bases = [base.__name__ for base in kind.__mro__[1:] if base.__module__ == "builtins" and base is not object]
    print(f"{kind.__name__} (caught by `except {bases[0]}` too)\n\n{inspect.getdoc(kind)}")


def _class_of(error: object) -> type[BaseException]:
    if isinstance(error, type) and issubclass(error, BaseException):
        return error
    if isinstance(error, BaseException):
        return type(error)
    known = {name: kind for name, kind in globals().items() if isinstance(kind, type) and name[0] != "_"}
    if isinstance(error, str) and error in known:
        return known[error]
    near = difflib.get_close_matches(str(error), known, n=1, cutoff=0.5)
    raise ArgumentError(
        "explain takes an error of Weft: its class, the class's name, or one that was caught.",
        received=repr(error),
        fix=f"weft.errors.explain({near[0]!r})" if near else "weft.errors.explain('ShapeMismatchError')",
    )


publish(__name__)
