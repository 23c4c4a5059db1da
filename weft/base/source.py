"""Where in the user's code an operation was asked for: cheap to capture, resolved when somebody reads it."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType
from typing import Any

STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_LIBRARIES = ("numpy", "scipy", "llvmlite", "ml_dtypes", "opt_einsum")
_internal_files: dict[str, bool] = {}
_excluded: list[str] = []  # files and folders of libraries that are not the user's either


def ipython_shell() -> Any:
    """Return the running shell of IPython, or None outside of one. Never imports IPython."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


def _notebook_cell(file: str) -> str | None:
    """Return the name under which a notebook shows the code of `file`, such as `Cell In[3]`, or None."""
    shell = ipython_shell()
    format_name = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = None if format_name is None else format_name(file)
    return None if found is None else " ".join(found)


class Location:
    """A point in user code: a code object and the offset of the instruction that was running."""

    __slots__ = ("code", "offset")

    def __init__(self, code: CodeType, offset: int):
        self.code = code
        self.offset = offset

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def function(self) -> str:
        return self.code.co_qualname

    @property
    def line(self) -> int:
        found = self.code.co_firstlineno
        for start, end, line in self.code.co_lines():
            if start <= self.offset < end and line is not None:
                found = line
        return found

    @property
    def text(self) -> str:
        """The source line, stripped; empty when the source is not to be had."""
        return linecache.getline(self.file, self.line).strip()

    def __repr__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"

    def file_and_line(self) -> str:
        """Return file and line in short: `train.py:41`, or `Cell In[3]:41` in a notebook."""
        return f"{_notebook_cell(self.file) or os.path.basename(self.file)}:{self.line}"

    def describe(self) -> str:
        """`train.py:41:  if x > 0:`, the form in which error messages name a line."""
        text = self.text
        if len(text) > 100:
            text = text[:97] + "..."
        return f"{self.file_and_line()}:  {text}" if text else self.file_and_line()


def is_own(filename: str) -> bool:
    """Whether a file is Weft's, or code that Weft wrote."""
    return filename.startswith((PACKAGE, "<weft "))


def is_internal(filename: str) -> bool:
    """Whether a file belongs to Weft or to Python's own machinery rather than to the user."""
    known = _internal_files.get(filename)
    if known is None:
        known = is_own(filename) or filename.startswith(("<frozen", *_excluded)) or _is_machinery(filename)
        _internal_files[filename] = known
    return known


def mark_internal(path: str) -> None:
    """From now on the lines of a file, or of the files in a folder, are not the user's: error messages name the line
    that called them."""
    _excluded.append(path)
    _internal_files.clear()


def _is_machinery(filename: str) -> bool:
    """The standard library, NumPy and SciPy, whose Python functions call ours in passing, and libraries that we
    call."""
    if filename.startswith(_library_folders()):
        return True
    parts = filename.split(os.sep)
    return filename.startswith(STANDARD_LIBRARY) and "site-packages" not in parts and "dist-packages" not in parts


def _library_folders() -> tuple[str, ...]:
    """The folders of the libraries that are imported, wherever they were installed: code of the others does not run."""
    files = [getattr(sys.modules.get(library), "__file__", None) for library in _LIBRARIES]
    return tuple(os.path.dirname(file) + os.sep for file in files if file is not None)


def is_generated(code: CodeType) -> bool:
    """The methods that `dataclasses` writes; they share their file name with what `python -c` runs."""
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.")


def user_location() -> Location | None:
    """The innermost frame that is not Weft's own, or None when there is none."""
    frame = sys._getframe(1)
    known = _internal_files
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        internal = known.get(name)
        if internal is None:
            internal = is_internal(name)
        if not internal and not is_generated(code):
            return Location(code, frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def user_line() -> str | None:
    """The innermost user line as text for an error message."""
    location = user_location()
    return None if location is None else location.describe()


def user_stacklevel() -> int:
    """The `stacklevel` with which a warning from the calling function is shown at the user's line."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    return level
