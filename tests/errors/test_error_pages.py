"""Docstring of every error class is its page. The wrong code of the page raises the error, the right code runs.

`python tests/errors/test_error_pages.py` (or `make pages`) writes the pages to docs/errors/.
"""

from __future__ import annotations

import builtins
import copy
import inspect
import pathlib
import pickle
import re
import sys
from typing import NamedTuple

import pytest

if __name__ == "__main__":  # then the repository is not on the path
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from tests.tooling import load_tool
from weft.base import errors
from weft.base.errors import InternalError, ShapeMismatchError, WeftError, message

wrap = load_tool("wrap_markdown").wrap
PAGES = pathlib.Path(__file__).parents[2] / "docs" / "errors"
GROUPS = (errors.WeftError, errors.JAXTypeError, errors.JAXIndexError)  # to catch, never raised themselves
CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, WeftError) and c not in GROUPS]

each_class = pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)

BUILTIN_BASES = {
    "ConcretizationTypeError": {TypeError},
    "TracerArrayConversionError": {TypeError},
    "TracerBoolConversionError": {TypeError},
    "TracerIntegerConversionError": {TypeError},
    "NonConcreteBooleanIndexError": {IndexError, LookupError},
    "UnexpectedTracerError": {TypeError},
    "KeyReuseError": {TypeError},
    "TypePromotionError": {ValueError},
    "JaxRuntimeError": {RuntimeError},
    "FailedCheckError": {RuntimeError, ValueError},
    "JaxprTypeError": {TypeError},
    "InconclusiveDimensionOperation": set(),
    "ShapeMismatchError": {TypeError, ValueError},
    "CommunicationError": {RuntimeError},
    "ShardingTypeError": {TypeError, ValueError},
    "NonScalarGradientError": {TypeError},
    "IntegerInputGradientError": {TypeError},
    "BranchMismatchError": {TypeError},
    "CarryMismatchError": {TypeError},
    "AxisSpecError": {ValueError, TypeError},
    "CustomRuleError": {TypeError, ValueError},
    "UnhashableStaticArgumentError": {ValueError},
    "DonatedArrayError": {RuntimeError},
    "OutOfMemoryError": {MemoryError},
    "FileFormatError": {ValueError},
    "OutOfBoundsIndexError": {IndexError, LookupError},
    "MissingRuleError": {NotImplementedError, RuntimeError},
    "ImmutableArrayError": {TypeError},
    "TreeMismatchError": {ValueError},
    "NonFiniteValueError": {FloatingPointError, ArithmeticError},
    "UnboundAxisError": {NameError},
    "NarrowingOverflowError": {OverflowError, ArithmeticError},
}


class Page(NamedTuple):
    """Parts of an error class's docstring."""

    summary: str
    cause: str
    wrong: str
    right: str


def read_page(error: type[WeftError]) -> Page:
    """Take the docstring of an error class apart."""
    text = inspect.cleandoc(error.__doc__ or "")
    found = re.fullmatch(r"(.+?)\n\n(.+?)\n\nWrong::\n\n(.+?)\n\nRight::\n\n(.+)", text, re.DOTALL)
    assert found, f"{error.__name__}: the docstring needs a summary line, a paragraph, `Wrong::` and `Right::`"
    summary, cause, wrong, right = found.groups()
    return Page(summary, cause, inspect.cleandoc(wrong), inspect.cleandoc(right))


def page_text(error: type[WeftError]) -> str:
    """Write the page of an error class as Markdown."""
    page = read_page(error)
    bases = ", ".join(f"`{base.__name__}`" for base in builtin_bases(error)) or "`Exception`"
    return wrap(
        f"# {error.__name__}\n\n{page.summary}\n\n{page.cause}\n\nBase classes: {bases}.\n\n"
        f"## Wrong\n\n```python\n{page.wrong}\n```\n\n## Right\n\n```python\n{page.right}\n```\n"
    )


def builtin_bases(error: type[BaseException]) -> list[type]:
    """Return the builtin base classes of an error, except those of every exception."""
    too_general = (Exception, BaseException, object)
    return [base for base in error.__mro__ if base in vars(builtins).values() and base not in too_general]


def index_text() -> str:
    """Write docs/errors/README.md: the form of a message, and the list of pages."""
    example = errors.TracerBoolConversionError(
        "`if` needs a known True or False, but `x > 0` is traced.",
        at="train.py:41:  if x > 0:",
        received="bool[] from argument `x` of `loss`",
        fix=["where(x > 0, a, b)   per element", "lax.cond(x > 0, f, g, x)   per call"],
    )
    names = [error.__name__ for error in CLASSES]
    summaries = [" ".join(read_page(error).summary.split()) for error in CLASSES]
    rows = "".join(f"- [`{name}`]({name}.md): {text}\n" for name, text in zip(names, summaries, strict=True))
    return wrap(
        "# Errors\n\n"
        "Every kind of mistake has an error class with a page: the cause, code that raises it, and correct code. The\n"
        "page is the docstring of the class. `weft.errors.explain(name)` prints it; `make pages` writes it here.\n\n"
        "A message says what is wrong, where in your program, what was received, and what to write instead:\n\n"
        f"```\n{type(example).__name__}: {example}\n```\n\n"
        "All of them are subclasses of `WeftError` and of a builtin exception (`TypeError`, `IndexError`, ...). An\n"
        "`InternalError` is not: it is a bug in Weft, and its message has what a bug report needs.\n\n"
        "Tracebacks show only the frames of your program. The setting `traceback_filtering` (environment variable\n"
        "`WEFT_TRACEBACK_FILTERING`) is 'off' (show all frames), 'remove_frames' (the full traceback is in the cause\n"
        "of the error), 'quiet_remove_frames' (a note says that frames were removed), 'tracebackhide' (frames are\n"
        "marked for IPython) or 'auto'.\n\n"
        f"{rows}"
    )


def write_pages() -> None:
    """Write all pages, and remove those whose class is gone."""
    texts = {"README.md": index_text()} | {f"{error.__name__}.md": page_text(error) for error in CLASSES}
    for old in set(PAGES.glob("*.md")) - {PAGES / name for name in texts}:
        old.unlink()
    for name, text in texts.items():
        (PAGES / name).write_text(text)


def run(code: str, name: str) -> None:
    """Run an example as a module of its own."""
    exec(compile(code, f"<{name}>", "exec"), {"__name__": name})


@each_class
def test_the_docstring_is_a_page_of_two_examples(error: type[WeftError]) -> None:
    page = read_page(error)
    assert page.wrong != page.right
    for code in (page.wrong, page.right):
        compile(code, error.__name__, "exec")
        assert re.search(r"^(import|from) weft", code, re.MULTILINE), "an example must run when it is pasted"


@each_class
def test_wrong_code_raises_and_right_code_runs(error: type[WeftError]) -> None:
    page = read_page(error)
    if "with several processes" in page.wrong:
        pytest.skip("needs several processes: tests/processes/test_failures.py runs it")
    run(page.right, f"{error.__name__} right")
    with pytest.raises(error) as caught:
        run(page.wrong, f"{error.__name__} wrong")
    assert type(caught.value).page == error.page, "the message points to another page"


def test_every_class_has_its_page_in_docs() -> None:
    there = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    assert there == {error.__name__ for error in CLASSES}, "run `make pages`"


def test_pages_in_docs_are_the_docstrings() -> None:
    by_name = {error.__name__: error for error in CLASSES}
    assert (PAGES / "README.md").read_text() == index_text(), "run `make pages`"
    for path in PAGES.glob("*.md"):
        if path.stem != "README":
            assert path.read_text() == page_text(by_name[path.stem]), f"{path.name}: run `make pages`"


def test_all_names_every_class() -> None:
    assert set(errors.__all__) == {c.__name__ for c in [*GROUPS, *CLASSES]} | {"InternalError", "message"}


@pytest.mark.parametrize("name", BUILTIN_BASES)
def test_builtin_bases(name: str) -> None:
    assert set(builtin_bases(getattr(errors, name))) == BUILTIN_BASES[name]


def test_groups_of_jax() -> None:
    assert issubclass(errors.TracerBoolConversionError, errors.ConcretizationTypeError)
    for name in ("ConcretizationTypeError", "TracerArrayConversionError", "TracerIntegerConversionError"):
        assert issubclass(getattr(errors, name), errors.JAXTypeError)
    assert issubclass(errors.NonConcreteBooleanIndexError, errors.JAXIndexError)


def test_message_aligns_its_parts() -> None:
    error = errors.TracerBoolConversionError(
        "`if` needs a known True or False, but `x > 0` is traced.",
        at="train.py:41:  if x > 0:",
        received="bool[]\nfrom argument `x`",
        fix=("where(x > 0, a, b)", "lax.cond(x > 0, f, g, x)"),
    )
    assert str(error).splitlines() == [
        "`if` needs a known True or False, but `x > 0` is traced.",
        "  at        train.py:41:  if x > 0:",
        "  received  bool[]",
        "            from argument `x`",
        "  fix       where(x > 0, a, b)",
        "  or        lax.cond(x > 0, f, g, x)",
        "  more      weft.errors.explain('TracerBoolConversionError')",
    ]


def test_missing_parts_have_no_line() -> None:
    assert message("what") == "what"
    assert message("what", fix="this") == "what\n  fix       this"
    assert str(ShapeMismatchError("what", at="here")) == (
        "what\n  at        here\n  more      weft.errors.explain('ShapeMismatchError')"
    )
    assert str(WeftError("what", at="")) == "what"


def test_the_default_is_the_line_of_the_user() -> None:
    error = WeftError("what")
    assert error.at is not None and error.at.startswith("test_error_pages.py:")
    assert error.at.endswith('error = WeftError("what")')


@each_class
def test_copies_are_equal(error: type[WeftError]) -> None:
    original = error("what", at="here", received="f32[3]", fix=["one", "two"])
    original.add_note("a note")
    for again in (copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert type(again) is error
        assert str(again) == str(original)
        assert (again.what, again.at, again.received, again.fix) == ("what", "here", "f32[3]", ["one", "two"])
        assert again.__notes__ == ["a note"]


def test_a_users_subclass_points_to_the_nearest_page() -> None:
    class MyShapeError(ShapeMismatchError):
        pass

    assert str(MyShapeError("what")).endswith("weft.errors.explain('ShapeMismatchError')")


def test_internal_error_is_ours_and_asks_for_a_report() -> None:
    assert not issubclass(InternalError, WeftError)
    error = InternalError("fuse lost a value", stage="fuse", text="\n".join(f"line {i}" for i in range(100)))
    again = pickle.loads(pickle.dumps(error))
    assert (again.stage, again.text, str(again)) == (error.stage, error.text, str(error))
    text = str(error)
    assert text.startswith("fuse lost a value\n") and "report" in text and "stage     fuse" in text
    assert "line 39\n" in text and "line 40" not in text and "60 more lines" in text


if __name__ == "__main__":
    write_pages()
