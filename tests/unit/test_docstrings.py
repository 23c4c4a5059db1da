"""Docstrings: what they say of arguments, results and examples; annotations of public functions.

`python -m tests.unit.test_docstrings` prints what is missing, by namespace.
"""

from __future__ import annotations

import ast
import collections
import doctest
import enum
import importlib
import inspect
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

import weft
import weft.errors
import weft.numpy as wnp
from tests.unit.test_documentation import reference
from weft.numpy import array_methods

ROOT = pathlib.Path(__file__).parents[2]
USED = ROOT / "tests" / "data" / "used_names.txt"
CALLABLES = (types.FunctionType, types.MethodType, type)


def used_names() -> dict[str, list[str]]:
    """Return the names in the data file, by namespace."""
    found: dict[str, list[str]] = {}
    namespace = ""
    for line in USED.read_text(encoding="utf-8").splitlines():
        if line.startswith("weft"):
            namespace = line.strip()
        elif not line.startswith("#"):
            found.setdefault(namespace, []).extend(line.split())
    return found


def resolved(namespace: str, name: str) -> Any:
    """Return the object of a name; of arrays, the method or property of concrete ones."""
    if namespace == "weft.Array":
        return inspect.getattr_static(type(wnp.ones(2)), name)
    if namespace == "weft.Array.at[...]":
        return inspect.getattr_static(type(wnp.ones(2).at[0]), name)
    return getattr(importlib.import_module(namespace), name)


def is_ours(value: Any) -> bool:
    """Return whether a value can have a docstring of ours, unlike constants, aliases of types and functions of
    NumPy."""
    if isinstance(value, property):
        return True
    owner = value if isinstance(value, (*CALLABLES, types.ModuleType)) else type(value)
    name = owner.__name__ if isinstance(owner, types.ModuleType) else owner.__module__
    return isinstance(name, str) and name.split(".")[0] == "weft"


def signature_of(value: Any) -> inspect.Signature | None:
    """Return the parameters that a caller writes; None for what is not called."""
    if isinstance(value, property) or not callable(value):
        return None
    try:
        return inspect.signature(value)
    except ValueError:
        return None


def documented_parameters(text: str) -> set[str]:
    """Return the names before the colons of the section `Args:`."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", text + "\n", re.MULTILINE)
    if section is None:
        return set()
    heads = re.findall(r"^    ([*\w, `]+):", section[1], re.MULTILINE)
    return {name.strip(" *`") for head in heads for name in head.split(",")}


def own_parameters(value: Any, signature: inspect.Signature) -> set[str]:
    """Return the parameters that a docstring must document: of a class, those that no documented base has."""
    names = {name for name in signature.parameters if name not in ("self", "cls") and not name.startswith("_")}
    if isinstance(value, type(wnp.add)):
        return set()  # `out` and `where` are those of all such functions
    if not isinstance(value, type):
        return names
    if issubclass(value, enum.Enum) or "aval" in names or set(signature.parameters) == {"args", "kwargs"}:
        return set()  # nobody calls it
    for base in value.__mro__[1:]:
        if is_ours(base) and not base.__name__.startswith("_"):
            names -= set(getattr(signature_of(base), "parameters", ()))
    return names


def gaps(value: Any) -> list[str]:
    """Return what the docstring of a used name lacks."""
    text = inspect.getdoc(value) or ""
    if isinstance(value, types.ModuleType):
        return [] if text else ["docstring"]
    if not text:
        return ["docstring"]
    if isinstance(value, type) and issubclass(value, BaseException):
        return []  # its docstring is a page with the sections of tests/errors/test_error_pages.py
    found = [] if ">>> " in text else ["example"]
    signature = signature_of(value)
    if signature is None or isinstance(value, type(weft.default_device)):
        return found
    parameters = own_parameters(value, signature)
    found += [f"argument {name}" for name in sorted(parameters - documented_parameters(text))]
    returns_nothing = isinstance(value, type) or signature.return_annotation in (None, "None")
    if not returns_nothing and "Returns:" not in text and "Yields:" not in text:
        found.append("returns")
    return found


def missing() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each used name whose docstring lacks something: its namespace, the name, and the lacking parts."""
    for namespace, names in used_names().items():
        for name in names:
            value = resolved(namespace, name)
            lacks = gaps(value) if is_ours(value) else []
            if lacks:
                yield namespace, name, lacks


def unannotated(value: Any) -> list[str]:
    """Return the parameters of a function or constructor without a type, and `return` where the result has none."""
    function = value.fget if isinstance(value, property) else value
    if isinstance(value, type):
        function = vars(value).get("__init__")  # what is inherited is annotated there
    if not callable(function) or (isinstance(function, type) and isinstance(value, property)):
        return []
    signature = inspect.signature(function)
    found = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")]
    has_result = isinstance(value, type) or signature.return_annotation is not signature.empty
    return found if has_result else [*found, "return"]


def undocumented() -> Iterator[str]:
    """Public functions and classes without any docstring."""
    found = reference()
    for module in found.public_modules():
        for name in found.public_names(module):
            value = getattr(module, name)
            if found.is_ours(value) and not inspect.getdoc(value):
                yield f"{module.__name__}.{name}"


def test_every_public_name_has_a_docstring() -> None:
    assert not list(undocumented())


def test_used_names_are_documented() -> None:
    assert not list(missing())


def test_used_names_are_annotated() -> None:
    for namespace, names in used_names().items():
        for name in names:
            value = resolved(namespace, name)
            if is_ours(value) and not isinstance(value, types.ModuleType) and not getattr(value, "_is_protocol", False):
                assert not unannotated(value), f"{namespace}.{name}"


def declared() -> dict[str, ast.FunctionDef]:
    """Return the methods of arrays that `weft/trace/array.py` declares for editors."""
    tree = ast.parse((ROOT / "weft" / "trace" / "array.py").read_text(encoding="utf-8"))
    (array,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Array")
    (block,) = (node for node in array.body if isinstance(node, ast.If))
    return {node.name: node for node in block.body if isinstance(node, ast.FunctionDef)}


def test_methods_of_arrays_are_declared_for_editors() -> None:
    found = declared()
    for name, method in array_methods.METHODS.items():
        if not name.startswith("_"):
            arguments = found[name].args
            names = [a.arg for a in (*arguments.args[1:], *arguments.kwonlyargs, arguments.vararg) if a is not None]
            assert sorted(names) == sorted(list(inspect.signature(method).parameters)[1:]), name
    for name in array_methods.PROPERTIES:
        assert name.startswith("_") or name in found, name
    assert isinstance(found["sum"].returns, ast.Name) and found["sum"].returns.id == "Array"


def test_examples_of_what_is_no_function() -> None:
    """Examples of settings, dtypes and grids, which are not found by looking through modules for functions."""
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for namespace, names in used_names().items():
        for name in names:
            value = resolved(namespace, name)
            if is_ours(value) and not isinstance(value, (types.FunctionType, types.ModuleType, property)):
                text = inspect.getdoc(value) or ""
                example = doctest.DocTestParser().get_doctest(text, {}, f"{namespace}.{name}", None, 0)
                runner.run(example)
    assert runner.summarize(verbose=False).failed == 0 and runner.tries > 50


if __name__ == "__main__":
    counts = collections.Counter()
    for namespace, name, lacks in missing():
        counts[namespace] += 1
        print(f"{namespace}.{name}: {', '.join(lacks)}")
    print(counts)
    print(sum(counts.values()), "of", sum(map(len, used_names().values())))
    print("without any:", *undocumented())
