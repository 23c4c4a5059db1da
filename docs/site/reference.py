"""The API reference: a Markdown page for each public module, written from its docstrings while the site is built.

`mkdocs.yml` names this file as a hook. Docstrings are Markdown with the sections `Args:` and `Returns:` and examples
after `>>>`; pages are made from the objects themselves, so that functions which tables make are there too.
"""

from __future__ import annotations

import importlib
import inspect
import pathlib
import pkgutil
import re
import types
from collections.abc import Iterator
from typing import Any

import weft
from weft.base import publish

# Folders of the compiler and of the layers below the API, and programs to run with `python -m`.
INTERNAL = frozenset(
    [
        "weft.api",
        "weft.base",
        "weft.compiler",
        "weft.indexing",
        "weft.ir",
        "weft.modules",
        "weft.primitives",
        "weft.runtime",
        "weft.trace",
        "weft.transforms",
        "weft.as_jax",
        "weft.launch",
        "weft.compat.pytest_plugin",
    ]
)
SECTIONS = {"Args": "Arguments", "Returns": "Returns", "Yields": "Yields", "Attributes": "Attributes"}
LINK = re.compile(r"\[([^\]]*)\]\(((?!https?:|#)[^)\s]+)\)")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public_modules() -> list[types.ModuleType]:
    """Return the public modules that suggest corrections of misspelt names: those that users import."""

    def is_internal(name: str) -> bool:
        return name in INTERNAL or any(part.startswith("_") for part in name.split("."))

    def load(path: Any, prefix: str) -> None:
        for found in pkgutil.iter_modules(path, prefix):
            if not is_internal(found.name):
                module = importlib.import_module(found.name)
                if found.ispkg:
                    load(module.__path__, f"{found.name}.")

    load(weft.__path__, "weft.")
    return [importlib.import_module(name) for name in publish.published()]


def public_names(module: types.ModuleType) -> list[str]:
    """Return the names that a module defines, in order, without the modules it imports."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, value in vars(module).items() if is_ours(value)]
    return sorted({name for name in names if not name.startswith("_")}, key=str.lower)


def is_ours(value: Any) -> bool:
    """Whether a value is a function or class of Weft, or an object of one: neither a module nor a constant."""
    owner = value if isinstance(value, (types.FunctionType, type)) else type(value)
    return not isinstance(value, types.ModuleType) and str(getattr(owner, "__module__", "")).split(".")[0] == "weft"


def markdown(text: str) -> str:
    """Convert a docstring to Markdown: sections become lists, examples become blocks of code."""
    out: list[str] = []
    section, in_example = "", False
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Yields|Attributes):", line)
        if line.startswith(">>> ") and not in_example:
            out += ["", "```pycon"]
            section, in_example = "", True
        if in_example:
            if line.strip():
                out.append(line)
            else:
                out += ["```", ""]
                in_example = False
        elif heading:
            section = heading[1]
            out += ["", f"**{SECTIONS[section]}**", ""]
        elif section and line.startswith("    "):
            out.append(_entry(section, line))
        else:
            section = section if not line.strip() else ""
            out.append(line)
    return "\n".join([*out, "```"] if in_example else out).strip() + "\n"


def _entry(section: str, line: str) -> str:
    """Convert a line of a section: the beginning of a list entry, or its continuation."""
    text = line[4:]
    entry = re.match(r"([*\w][*\w, ]*): (.*)", text)
    if section in ("Args", "Attributes") and entry:
        names = ", ".join(f"`{name.strip()}`" for name in entry[1].split(","))
        return f"- {names}: {entry[2]}"
    return f"  {text.strip()}" if section in ("Args", "Attributes") else text.strip()


def signature(name: str, value: Any, is_method: bool = False) -> str:
    """How a name is called, without types: those are in help and in editors; of a method, without its object."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = list(found.parameters.values())[1 if is_method else 0 :]
    bare = [p.replace(annotation=p.empty) for p in parameters if p.name not in ("self", "cls")]
    text = str(found.replace(parameters=bare, return_annotation=found.empty))
    return f"{name}{ADDRESS.sub('', text)}"


def members(cls: type) -> list[str]:
    """Return a line for each public method and property of a class: its signature and the first sentence about it."""
    lines = []
    for name, value in sorted(vars(cls).items()):
        text = inspect.getdoc(value)
        if name.startswith("_") or not text or not isinstance(value, (types.FunctionType, property, classmethod)):
            continue
        function = value.__func__ if isinstance(value, classmethod) else value
        call = name if isinstance(value, property) else signature(name, function, is_method=True)
        first = " ".join(text.split("\n\n")[0].split())
        lines.append(f"- `{call}`: {first}")
    return ["**Methods and properties**", "", *lines, ""] if lines else []


def page(module: types.ModuleType) -> str:
    """Return the page of a module: its docstring, a list of its names, and each name with its docstring."""
    documented, others = [], []
    for name in public_names(module):
        value = getattr(module, name)
        (documented if is_ours(value) and inspect.getdoc(value) else others).append((name, value))
    lines = [f"# {module.__name__}", "", markdown(inspect.getdoc(module) or "")]
    modules = [name for name, value in others if isinstance(value, types.ModuleType)]
    constants = [name for name, value in others if not isinstance(value, types.ModuleType)]
    if modules:
        lines += [f"Modules: {', '.join(f'`{module.__name__}.{name}`' for name in modules)}.", ""]
    if constants:
        lines += [f"Constants, types and aliases: {', '.join(f'`{name}`' for name in constants)}.", ""]
    for name, value in documented:
        lines += [f"## `{name}` {{ #{module.__name__}.{name} }}", ""]
        if isinstance(value, types.FunctionType) or (isinstance(value, type) and not issubclass(value, BaseException)):
            lines += ["```python", signature(f"{module.__name__}.{name}", value), "```", ""]
        lines += [markdown(inspect.getdoc(value) or ""), ""]
        if isinstance(value, type):
            lines += members(value)
    return "\n".join(lines)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the address and the text of each page, that of the index first."""
    modules = public_modules()
    rows = [f"- [{module.__name__}]({module.__name__}.md): {_first_line(module)}" for module in modules]
    introduction = (
        "Examples show what is typed after `>>>`, and are run by the tests. Functions that NumPy has too take the\n"
        "same arguments; what differs is said here. [Differences](../differences.md) has those from JAX.\n"
    )
    yield "reference/README.md", "\n".join(["# API reference", "", introduction, *rows, ""])
    for module in modules:
        yield f"reference/{module.__name__}.md", page(module)


def _first_line(module: types.ModuleType) -> str:
    return " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())


ROOT = pathlib.Path(__file__).parents[2]
NAVIGATION = [
    ("Home", "README.md"),
    ("Tour", "tour/README.md"),
    ("Twenty questions", "howto.md"),
    ("Migrating", "migrating.md"),
    ("NVIDIA GPUs", "gpus.md"),
    ("Reference", "reference"),
    ("Differences from JAX", "differences.md"),
    ("Numerics", "numerics.md"),
    ("Errors", "errors"),
    ("Design", "design"),
    ("From a call to machine code", "from_call_to_machine_code.md"),
    ("Benchmarks", "benchmarks.md"),
    ("Glossary", "glossary.md"),
]


def on_config(config: Any) -> Any:
    """Set the order of pages, those of folders by name. A hook of mkdocs."""
    generated = [f"reference/{name}.md" for name in (module.__name__ for module in public_modules())]
    config.nav = []
    for title, target in NAVIGATION:
        if target.endswith(".md"):
            config.nav.append({title: target})
            continue
        files = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / target).glob("*.md"))
        index = f"{target}/README.md"
        listed = generated if target == "reference" else [name for name in files if name != index]
        config.nav.append({title: [index, *listed]})
    return config


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Replace links to files of the repository that are no pages by their text. A hook of mkdocs."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        target = (folder / found[2].split("#")[0]).resolve()
        return found[0] if target.is_relative_to(ROOT / "docs") else found[1]

    return LINK.sub(link, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages. A hook of mkdocs."""
    from mkdocs.structure.files import File  # the site is built where mkdocs is; the tests make pages without it

    for address, text in pages():
        files.append(File.generated(config, address, content=text))
    return files
