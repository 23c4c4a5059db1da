"""Suggestions for misspelled names, and explanations of errors."""

from __future__ import annotations

import importlib
import pathlib
import pickle
import sys
import traceback
from types import ModuleType

import pytest

import weft
import weft.errors
import weft.haiku
import weft.linen
import weft.optim
import weft.scipy

MISSPELT = {
    ("weft.numpy", "sofmax"): "weft.nn.softmax",
    ("weft.numpy", "softmax"): "weft.nn.softmax",
    ("weft.numpy", "concatentate"): "weft.numpy.concatenate",
    ("weft.numpy.linalg", "inverse"): "",
    ("weft.numpy.linalg", "invv"): "weft.numpy.linalg.inv",
    ("weft.lax", "scn"): "weft.lax.scan",
    ("weft.lax", "tranpose"): "weft.lax.transpose",
    ("weft.nn", "rleu"): "weft.nn.relu",
    ("weft.random", "nromal"): "weft.random.normal",
    ("weft", "jti"): "weft.jit",
    ("weft", "opitm"): "weft.optim",
    ("weft", "value_and_grads"): "weft.value_and_grad",
    ("weft.linen", "Dens"): "weft.linen.Dense",
    ("weft.haiku", "transfrom"): "weft.haiku.transform",
    ("weft.optim", "admw"): "weft.optim.adamw",
    ("weft.tree", "mapp"): "weft.tree.map",
    ("weft.scipy", "linagl"): "weft.scipy.linalg",
}


@pytest.mark.parametrize(("module", "name"), MISSPELT)
def test_a_misspelt_name_gets_a_suggestion(module: str, name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(sys.modules[module], name)
    text = str(caught.value)
    assert text.startswith(f"module {module!r} has no attribute {name!r}")
    assert not MISSPELT[module, name] or text.endswith(f"did you mean {MISSPELT[module, name]}?")
    # Python adds no suggestion of its own.
    assert f"{text}\n" in "".join(traceback.format_exception_only(caught.value)), text


def test_every_public_module_makes_suggestions() -> None:
    """Those in the list of used names, and the modules that public packages list among their names."""
    lines = (pathlib.Path(__file__).parents[1] / "data" / "used_names.txt").read_text(encoding="utf-8").splitlines()
    names = {line.strip() for line in lines if line.startswith("weft") and not line.startswith("weft.Array")}
    names |= {value.__name__ for value in map(weft.__getattribute__, weft.__all__) if isinstance(value, ModuleType)}
    for name in sorted(names):
        module = importlib.import_module(name)
        public = next(iter(n for n in getattr(module, "__all__", vars(module)) if n[0] != "_" and len(n) > 3))
        misspelt = public[:-2] + public[-1] + public[-2] + "q"
        with pytest.raises(AttributeError) as caught:
            getattr(module, misspelt)
        assert "did you mean" in str(caught.value), name


def test_an_unrelated_name_gets_no_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'zzzzzz'$"):
        weft.numpy.zzzzzz  # type: ignore[attr-defined]
    assert not hasattr(weft.numpy, "__wrapped__") and not hasattr(weft.numpy, "sofmax")


def test_a_misspelt_setting_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="'enable_x64'"):
        weft.config.enable_x46
    with pytest.raises(AttributeError, match="'debug_nans'"):
        weft.config.update("debug_nan", True)


def test_submodules_are_found() -> None:
    assert weft.scipy.linalg.cho_factor is not None
    assert weft.optim.adam is not None


def test_public_functions_are_found_where_they_say() -> None:
    for function in (weft.numpy.sum, weft.lax.scan, weft.nn.one_hot, weft.grad, weft.tree.map, weft.numpy.abs):
        assert pickle.loads(pickle.dumps(function)) is function
    assert weft.numpy.sum.__module__ == "weft.numpy" and weft.numpy.abs is weft.numpy.absolute


def test_errors_are_explained_without_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(weft.errors.ShapeMismatchError) as caught:
        weft.numpy.ones(3) + weft.numpy.ones(4)
    for asked in (caught.value, weft.errors.ShapeMismatchError, "ShapeMismatchError"):
        weft.errors.explain(asked)
        text = capsys.readouterr().out
        assert "ShapeMismatchError" in text and "Wrong::" in text and "wnp.ones(3)[:, None]" in text
    with pytest.raises(weft.errors.ArgumentError, match="ShapeMismatchError"):
        weft.errors.explain("ShapeMismatch")
