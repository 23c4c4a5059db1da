"""Public names are declared once, so that type checkers, `import *` and the reference site see the same ones."""

import importlib

import pytest

from docs.site import reference
from weft.base.publish import public_names

MODULES = [module.__name__ for module in reference.public_modules()]


@pytest.mark.parametrize("name", MODULES)
def test_exported_names_exist_and_are_public(name):
    module = importlib.import_module(name)
    names = public_names(name)
    assert len(set(names)) == len(names)
    assert not [attribute for attribute in names if attribute.startswith("_") and not attribute.endswith("__")]
    missing = [attribute for attribute in names if not hasattr(module, attribute)]
    assert not missing


def test_names_of_other_modules_are_not_exported():
    exported = {name for module in MODULES if module != "weft.errors" for name in public_names(module)}
    assert not {"Any", "Callable", "annotations", "publish"} & exported


def test_import_star_takes_the_exported_names():
    names: dict[str, object] = {}
    exec("from weft.numpy import *", names)
    assert names.keys() - {"__builtins__"} == {name for name in public_names("weft.numpy")}
    assert "calculus" not in names and "gradient" in names
