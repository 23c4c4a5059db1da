"""Fresh process finds every primitive by its name, whatever has been imported."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys

import numpy as np

import weft
from weft.export import export
from weft.ir.registry import all_primitives
from weft.lax.primitive_modules import MODULES
from weft.scipy import special

ROOT = pathlib.Path(__file__).parents[2]
FILES = [
    path
    for path in sorted((ROOT / "weft").rglob("*.py"))
    if any(line in path.read_text(encoding="utf-8") for line in ("\n@primitive\n", "= primitive(type("))
]

# Each check has a process of its own, which has imported the package and nothing else.
FRESH = """
import os, sys, traceback, weft
def fork(check):
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
"""


def fresh(code: str, *arguments: str) -> None:
    """Run code in a fresh interpreter, with `fork(check)`."""
    command = [sys.executable, "-c", FRESH + code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def names() -> list[str]:
    """Return the names of all primitives of the package."""
    for path in FILES:
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return [primitive.name for primitive in all_primitives() if type(primitive).__module__.startswith("weft.")]


def test_every_primitive_is_found_by_its_name() -> None:
    fresh(
        "from weft.ir.registry import lookup, all_primitives\n"
        "known = {primitive.name for primitive in all_primitives()}\n"
        "lost = [n for n in sys.argv[1:] if n not in known and not fork(lambda: lookup(n))]\n"
        "assert not lost, lost\n",
        *names(),
    )


def test_modules_define_the_primitives_of_the_table() -> None:
    for module, text in MODULES.items():
        importlib.import_module(module)
        assert text.split() == sorted(
            primitive.name for primitive in all_primitives() if type(primitive).__module__ == module
        )


def test_programs_whose_primitives_nobody_has_imported(tmp_path: pathlib.Path) -> None:
    exported = export(weft.jit(lambda x: special.gamma(x) + special.xlogy(x, x)))
    path = tmp_path / "special"
    path.write_bytes(exported(weft.ShapeDtypeStruct((2,), np.dtype(np.float32))).serialize())
    fresh(
        "import pathlib, numpy as np\n"
        "def read():\n"
        "    call = weft.export.deserialize(pathlib.Path(sys.argv[1]).read_bytes()).call\n"
        "    np.testing.assert_allclose(call(np.float32([1, 2])), [1, 1 + 2 * np.log(2)], 1e-6)\n"
        "def check():\n"
        "    with weft.checks('all'):\n"
        "        out = weft.jit(lambda x: x.at[np.array([1, 2])].add(1.0))(np.ones(4, np.float32))\n"
        "    assert out.tolist() == [1, 2, 2, 1]\n"
        "failed = [f.__name__ for f in (read, check) if not fork(f)]\n"
        "assert not failed, failed\n",
        str(path),
    )
