"""Code blocks of the documentation run."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import pathlib
import pkgutil
import re
from typing import Any

import pytest

from tests.tooling import load_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]


PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT")),
]
LINK = re.compile(r"\[[^\]]*\]\(((?!https?:|mailto:)[^)\s]+)\)")


def prose(path: pathlib.Path) -> str:
    """Return a page without its code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path: pathlib.Path) -> set[str]:
    """Return the anchors of a page for links: headings in lower case, with hyphens."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_of_prose_have_at_most_100_columns(path: pathlib.Path) -> None:
    numbers = load_tool("wrap_markdown").long_lines(path.read_text(encoding="utf-8"))
    assert not numbers, f"lines {numbers}: python tools/wrap_markdown.py {path}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: pathlib.Path) -> None:
    for link in LINK.findall(prose(path)):
        target, _, anchor = link.partition("#")
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), f"{link} is not there"
        assert not anchor or anchor in anchors(found), f"{found.name} has no heading #{anchor}"


def test_every_page_is_reached_from_the_first_one() -> None:
    reached: set[pathlib.Path] = set()
    waiting = [ROOT / "docs" / "README.md"]
    while waiting:
        path = waiting.pop()
        if path not in reached and path.suffix == ".md":
            reached.add(path)
            waiting += [(path.parent / link.partition("#")[0]).resolve() for link in LINK.findall(prose(path))]
    unreached = {path.as_posix() for path in (ROOT / "docs").rglob("*.md") if path not in reached}
    assert not unreached


def test_examples_of_differences() -> None:
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testfile(str(ROOT / "docs" / "differences.md"), module_relative=False, optionflags=options)
    assert result.attempted > 15 and not result.failed


def reference() -> Any:
    """Return the hook that writes the pages of the API reference."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "site" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_of_the_reference() -> None:
    found = reference()
    modules = {module.__name__: module for module in found.public_modules()}
    assert {"weft", "weft.numpy", "weft.optim.losses", "weft.linen.initializers", "weft.scipy.special"} <= set(modules)
    for name in ("weft", "weft.numpy", "weft.random", "weft.optim"):
        text = found.page(modules[name])
        for public in found.public_names(modules[name]):
            assert f"`{public}`" in text or f"`{name}.{public}`" in text
    assert "- `reshape(*args, order='C', out_sharding=None)`: " in found.page(modules["weft"])
    text = found.page(modules["weft.numpy"])
    assert "weft.numpy.clip(arr=None, /, min=None, max=None)" in text
    assert "- `min`, `max`: numbers or arrays" in text and "```pycon\n>>> import weft.numpy as wnp" in text


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["docs/tour/README.md", "README.md"])
def test_blocks_run(page: str) -> None:
    found = blocks(page)
    assert found, f"{page} has no code"
    names: dict[str, object] = {}
    for i, block in enumerate(found):
        exec(compile(block, f"{page}, block {i}", "exec"), names)


RECIPES = ["docs/howto.md", "docs/migrating.md"]


@pytest.mark.parametrize("page", RECIPES)
def test_blocks_print_what_the_page_says(page: str) -> None:
    """Each block needs the first one only; lines of output begin with `#>`."""
    first, *others = blocks(page)
    names: dict[str, object] = {}
    exec(compile(first, f"{page}, imports", "exec"), names)
    assert others, f"{page} has no code"
    for block in others:
        expected = [line.removeprefix("#> ") for line in block.splitlines() if line.startswith("#> ")]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block, f"{page}: {block.splitlines()[0]}", "exec"), dict(names))
        assert expected == [line.rstrip() for line in output.getvalue().splitlines()], block


@pytest.mark.parametrize("page", RECIPES)
def test_names_of_pages_exist(page: str) -> None:
    """Dotted names of Weft in the text, by the imports of the first block (in tables: from the second column on)."""
    names: dict[str, Any] = {}
    exec(compile(blocks(page)[0], page, "exec"), names)
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\|.*?\|", "", text, flags=re.MULTILINE)
    spans = " ".join(re.findall(r"`([^`\n]*)`", text))
    roots = "|".join(name for name in names if not name.startswith("_") and name != "np")
    found = set(re.findall(rf"(?<![\w./-])((?:{roots})(?:\.[A-Za-z_]\w*)+)", spans))
    assert len(found) > 10
    for name in found:
        root, _, rest = name.partition(".")
        pkgutil.resolve_name(f"{names[root].__name__}.{rest}")


def test_a_primitive_from_outside_works_under_transformations() -> None:
    """The example of docs/design/primitive.md."""
    import numpy as np

    import weft

    (block,) = blocks("docs/design/primitive.md")
    names: dict[str, object] = {"np": np}
    exec(compile(block, "primitive.md", "exec"), names)
    softsign = names["softsign"]
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    assert "softsign" in str(weft.make_jaxpr(softsign)(x))
    np.testing.assert_allclose(weft.jit(softsign)(x), x / (1 + np.abs(x)), rtol=1e-6)
    gradient = weft.vmap(weft.grad(softsign))(x)
    np.testing.assert_allclose(gradient, 1 / (1 + np.abs(x)) ** 2, rtol=1e-5)
