"""Import the scripts of `tools/`, which is no package."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import ModuleType

TOOLS = pathlib.Path(__file__).parents[1] / "tools"


def load_tool(name: str) -> ModuleType:
    """Import `tools/<name>.py` once."""
    module_name = f"weft_tools_{name}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, TOOLS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module_name])
    return sys.modules[module_name]
