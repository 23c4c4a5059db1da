"""Weft under JAX's name: imports, names without a counterpart, defaults, and the ways to switch it on."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import compat
from weft.base.settings import overrides
from weft.compat.finder import Finder, JaxModule, is_there, resolve
from weft.compat.manifest import format_manifest, parse_manifest, read_manifest
from weft.compat.missing import placeholder
from weft.errors import NotSupportedError

ROOT = pathlib.Path(__file__).parents[2]

SMALL = """# a comment

version 1.2.3

refuse jax.kernels | kernels are made by the compiler

[jax.numpy] weft.numpy
function: gone sin
value: pi
tan = weft.numpy.cos
no gone | nobody needs it

[jax._src.core] weft.core
function: get_opaque_trace_state
"""


def run(*arguments: str, **environment: str) -> str:
    """Return the output of a fresh interpreter."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# -------------------------------------------------------------------------------------------------------- the manifest


def test_a_manifest_is_read_and_written() -> None:
    manifest = parse_manifest(SMALL)
    assert manifest.version == "1.2.3"
    names = {"jax.numpy": manifest.modules["jax.numpy"].names}
    assert format_manifest(manifest, names) == SMALL
    assert manifest.refusal("jax.kernels.fast") == "kernels are made by the compiler"
    assert manifest.has_module("jax._src.core") and not manifest.has_module("jax.kernel")
    with pytest.raises(ValueError, match="means nothing"):
        parse_manifest("[jax]\nwhat is this")
    with pytest.raises(ValueError, match="twice"):
        parse_manifest("[jax]\n\n[jax]\n")


def test_names_mean_what_the_manifest_says() -> None:
    manifest = parse_manifest(SMALL)
    entry = manifest.modules["jax.numpy"]
    assert resolve(manifest, entry, "sin") is wnp.sin
    assert resolve(manifest, entry, "tan") is wnp.cos
    assert resolve(manifest, entry, "__all__") == ["gone", "pi", "sin"]
    with pytest.raises(NotSupportedError, match="nobody needs it"):
        resolve(manifest, entry, "gone")(1)
    with pytest.raises(AttributeError, match=r"module 'jax.numpy' has no attribute 'cosh'"):
        resolve(manifest, entry, "cosh")  # Weft has it, and this JAX has not


def test_every_source_of_the_manifest_exists() -> None:
    manifest = read_manifest()
    for entry in manifest.modules.values():
        for source in entry.sources:
            assert importlib.util.find_spec(source), (entry.name, source)
        for name in entry.targets:
            assert not isinstance(resolve(manifest, entry, name), types.ModuleType) or name in entry.names


def test_every_name_has_a_counterpart_or_a_reason() -> None:
    manifest = read_manifest()
    unexplained = [
        f"{entry.name}.{name}"
        for entry in manifest.modules.values()
        for name in sorted(entry.all_names)
        if not manifest.has_module(f"{entry.name}.{name}")
        and not entry.reason(name)
        and not is_there(manifest, entry, name)
    ]
    assert unexplained == []


# ------------------------------------------------------------------------------------------- names without counterpart


def test_a_missing_function_raises_when_it_is_called() -> None:
    function = placeholder("jax.lax.gone", "function", "use lax.here")
    assert function.__name__ == "gone" and {function: 1}[function] == 1 and list(function) == []
    with pytest.raises(NotSupportedError, match=r"jax.lax.gone is not there when Weft runs as JAX: use lax.here"):
        function(1)
    with pytest.raises(NotSupportedError):
        function.attribute
    with pytest.raises(NotSupportedError):
        bool(function)
    assert not hasattr(function, "__array__")


def test_a_missing_class_can_be_named_and_derived_from() -> None:
    cls = placeholder("jax.sharding.Gone", "class", "it is gone")
    assert not isinstance(1, cls) and list(cls) == [] and cls[int] is cls and (cls | None) is not None
    with pytest.raises(NotSupportedError, match="it is gone"):
        cls()
    with pytest.raises(NotSupportedError, match=r"Gone\.Auto"):
        cls.Auto()
    with pytest.warns(UserWarning, match="derives from jax.sharding.Gone"):

        class Derived(cls):
            own = 3

    assert Derived("argument").own == 3
    with pytest.raises(NotSupportedError, match=r"Gone\.bind"):
        Derived().bind()


def test_a_missing_exception_can_be_caught() -> None:
    error = placeholder("jax.errors.Gone", "exception", "it is gone")
    with pytest.raises(error):
        raise error("x")


# ------------------------------------------------------------------------------------------------------- the switches


def test_indices_clamp_where_they_are_not_strict() -> None:
    x = wnp.arange(3.0)
    with overrides(strict_indices=False, checks="off"):
        np.testing.assert_array_equal(x[5], 2.0)
        np.testing.assert_array_equal(x[-7], 0.0)
        np.testing.assert_array_equal(weft.jit(lambda x: x[np.array([0, 7, -9])])(x), [0.0, 2.0, 0.0])
        np.testing.assert_array_equal(x.at[7].set(1.0), x)
        np.testing.assert_array_equal(x.at[-7].add(1.0), x)
        np.testing.assert_array_equal(weft.grad(lambda x: x[5])(x), [0.0, 0.0, 1.0])
    with pytest.raises(IndexError):
        x[5]


def test_numbers_wrap_where_narrowing_is_not_strict() -> None:
    with overrides(strict_narrowing=False):
        assert int(wnp.asarray(np.array([2**40 + 3]))[0]) == 3
        assert int(wnp.asarray(np.int64(2**40 + 3))) == 3
        assert np.isinf(wnp.asarray(np.float64(1e300))) and float(wnp.ones(()) * 1e-320) == 0.0
        for python_integer in (2**40, [2**40]):  # JAX refuses these too
            with pytest.raises(OverflowError):
                wnp.asarray(python_integer)
        with pytest.warns(FutureWarning, match="scatter inputs have incompatible types"):
            np.testing.assert_array_equal(wnp.arange(3).at[0].set(7.9), [7, 1, 2])
    with pytest.raises(OverflowError):
        wnp.asarray(np.array([2**40 + 3]))
    with warnings.catch_warnings(), pytest.raises(TypeError):
        warnings.simplefilter("error")
        wnp.arange(3).at[0].set(7.9)


# -------------------------------------------------------------------------------------------------------- switching on


def test_it_is_off_by_default() -> None:
    assert not compat.is_installed() and not any(isinstance(finder, Finder) for finder in sys.meta_path)
    assert not any(isinstance(module, JaxModule) for module in sys.modules.values())


PROGRAM = """
import sys, importlib.metadata
import jax, jax.numpy as jnp, weft
from jax.scipy.linalg import cholesky
from jax import lax
import jax.experimental.pallas.ops.tpu.flash_attention as refused
print(jax.__version__ == importlib.metadata.version("jax") == jax.version.__version__, jax.__version_info__ > (0, 9))
print(jnp.arange(3.0)[5], jax.grad(lambda x: jnp.sin(x))(0.0), jnp.sin is weft.numpy.sin, "sin" in dir(jnp))
print(hasattr(jax, "optim"), hasattr(jax, "Array"), sys.argv[1:], __name__)
try:
    refused.flash_attention(1)
except NotImplementedError as error:
    print(str(error).splitlines()[0])
try:
    import jax.no_such_module
except ImportError as error:
    print(type(error).__name__)
"""


def test_a_script_runs_as_jax(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    printed = run("-m", "weft.as_jax", str(script), "--flag", "7", WEFT_COMPAT_LOG="1").splitlines()
    assert printed[:3] == ["True True", "2.0 1.0 True True", "False True ['--flag', '7'] __main__"]
    assert printed[3].startswith("jax.experimental.pallas.ops.tpu.flash_attention.flash_attention is not there when")
    assert printed[4] == "ModuleNotFoundError"
    assert "Names of JAX that Weft has not:" in printed and any("flash_attention (1)" in line for line in printed)
    modules = run("-m", "weft.as_jax", "-m", "program", "x", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}").splitlines()
    assert modules[:2] == printed[:2] and modules[2] == "False True ['x'] __main__"


def test_install_comes_first() -> None:
    code = "import sys, types; sys.modules['jax'] = types.ModuleType('jax')\nimport weft.compat\nweft.compat.install()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "came too late" in done.stderr
    # As with JAX, a script may set its variables before it imports jax, and XLA's until it asks for devices.
    code = (
        "import os, weft.compat\nweft.compat.install(); weft.compat.install()\nos.environ['JAX_ENABLE_X64'] = '1'\n"
        "import jax, jaxlib\nfrom jax._src.xla_bridge import _backends\nassert not _backends\n"
        "os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=3'\n"
        "print(jax.config.jax_enable_x64, jax.device_count(), weft.compat.is_installed(), jaxlib.__version__)\n"
        "assert 'cpu' in _backends"
    )
    printed = run("-c", code)
    assert printed.split() == ["True", "8" if "WEFT_NUM_CPU_DEVICES" in os.environ else "3", "True", "0.10.2"]


def test_the_plugin_of_pytest(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_library.py").write_text(
        "import jax\n\ndef test_it():\n    assert jax.jit(lambda x: x + 1)(1) == 2\n    import weft\n"
        "    assert jax.jit is weft.jit\n"
    )
    printed = run("-m", "pytest", "-q", "-p", "weft.compat.pytest_plugin", "-p", "no:cacheprovider", str(tmp_path))
    assert "1 passed" in printed
