"""The structs of the C API are those of the header that a plugin brings, byte for byte."""

from __future__ import annotations

import ctypes
import pathlib
import re
from typing import Any

import pytest

from weft.runtime.pjrt import structs
from weft.runtime.pjrt.plugins import find_plugin

SIZES = {"size_t": 8, "int64_t": 8, "uintptr_t": 8, "double": 8, "float": 4, "int": 4, "bool": 1}


@pytest.fixture(scope="module")
def header() -> str:
    plugin = find_plugin("pjrt:cpu")
    path = None if plugin is None else pathlib.Path(plugin.path).parent / "include" / "pjrt_c_api.h"
    if path is None or not path.exists():
        pytest.skip("no plugin with its header is installed")
    text = re.sub(r"//[^\n]*", "", path.read_text())
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def declarations(header: str, name: str) -> list[str]:
    """Return the declarations of a struct; its unions are one declaration each."""
    start = re.search(rf"struct {name} {{", header)
    assert start is not None, name
    depth, end = 1, start.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(header[end], 0)
        end += 1
    members = lambda found: f"union {found[1].replace(';', ',')};"
    body = re.sub(r"union {(.*?)}\s*\w*;", members, header[start.end() : end - 1], flags=re.DOTALL)
    return [" ".join(part.split()) for part in body.split(";") if part.strip()]


def size_and_alignment(header: str, declaration: str) -> tuple[str, int, int]:
    """Return the name, the size and the alignment of a field; a union is as large as its largest member."""
    if declaration.startswith("union "):
        parts = [part.strip() for part in declaration.removeprefix("union ").split(",") if part.strip()]
        return "", max(size_and_alignment(header, part)[1] for part in parts), 8
    function = re.search(r"\(\*\s*(\w+)\)|FIELD\(PJRT_(\w+)\)", declaration)
    if function is not None:
        return function[1] or function[2], 8, 8
    kind, name = re.fullmatch(r"(.*?)\s*(\w*)", declaration.replace("const ", "").replace("struct ", "")).groups()  # type: ignore[union-attr]
    if kind.endswith("*"):
        return name, 8, 8
    if kind.endswith(("Callback", "ValueDeleter")):
        return name, 8, 8
    if kind in SIZES:
        return name, SIZES[kind], SIZES[kind]
    if re.search(rf"typedef enum {{[^}}]*}} {kind};", header):
        return name, 4, 4
    size = layout(header, kind)[1]
    return name, size, 8


def layout(header: str, struct: str) -> tuple[list[tuple[str, int, int]], int]:
    """Return the name, offset and size of each field of a struct, and the size of the struct."""
    fields: list[tuple[str, int, int]] = []
    offset = 0
    for declaration in declarations(header, struct):
        name, size, alignment = size_and_alignment(header, declaration)
        offset = -(-offset // alignment) * alignment
        fields.append((name, offset, size))
        offset += size
    return fields, -(-offset // 8) * 8


def written(kind: Any) -> list[tuple[str, int, int]]:
    return [(name, getattr(kind, name).offset, ctypes.sizeof(field)) for name, field in kind._fields_]


@pytest.mark.parametrize("function", structs.list_functions())
def test_arguments(function: str, header: str) -> None:
    assert written(structs.arguments(function)) == layout(header, f"PJRT_{function}_Args")[0]


@pytest.mark.parametrize("kind", [structs.Program, structs.ExecuteOptions, structs.Version, structs.Tiled])
def test_other_structs(kind: Any, header: str) -> None:
    assert written(kind) == layout(header, kind.__name__)[0]


def test_unions(header: str) -> None:
    expected = [(name or "value", offset, size) for name, offset, size in layout(header, "PJRT_NamedValue")[0]]
    assert written(structs.NamedValue) == expected
    found = [(offset, size) for _, offset, size in layout(header, "PJRT_Buffer_MemoryLayout")[0]]
    assert [(offset, size) for _, offset, size in written(structs.MemoryLayout)] == found


def test_functions_are_in_order(header: str) -> None:
    body = header[header.index("typedef struct PJRT_Api {") :]
    order = re.findall(r"_PJRT_API_STRUCT_FIELD\(PJRT_(\w+)\);", body)
    assert tuple(order[: len(structs.FUNCTIONS)]) == structs.FUNCTIONS
    for function in structs.list_functions():
        assert function in structs.FUNCTIONS
    assert structs.Api.version.offset == 16 and structs.Api.Error_Destroy.offset == 16 + 24


def test_version(header: str) -> None:
    from weft.runtime.pjrt import plugin

    major, minor = (int(re.search(rf"#define PJRT_API_{w} (\d+)", header)[1]) for w in ("MAJOR", "MINOR"))  # type: ignore[index]
    assert major == structs.MAJOR_VERSION
    if minor != plugin.MINOR_VERSION:
        pytest.skip(f"the tables describe version {plugin.MINOR_VERSION}, and the header is of {minor}")
