"""Install a wheel into an environment of its own, outside of the repository, and run an example there.

`python tests/installed_wheel.py dist/weft_jit-*.whl` (or `make wheel`, which builds the wheel first) ends with an error
if the wheel lacks a file that the package needs, its marker for type checkers, or the version that the package says.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "linear_regression.py"
CHECKS = """
import contextlib, importlib.metadata, io, pathlib, sys, weft
folder = pathlib.Path(weft.__file__).parent
assert folder.is_relative_to(sys.prefix), f"{folder} is not in {sys.prefix}"
assert (folder / "py.typed").is_file(), "the wheel has no py.typed"
assert importlib.metadata.version("weft-jit") == weft.__version__
with contextlib.redirect_stdout(io.StringIO()) as page:
    weft.errors.explain("ShapeMismatchError")
assert "Wrong::" in page.getvalue() and "Right::" in page.getvalue(), "the wheel has no error pages"
print(f"Weft {weft.__version__} from {folder}")
"""


def main(wheel: pathlib.Path) -> None:
    """Install `wheel` and run the example; raises `CalledProcessError` where a step fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WEFT_"))}
    with tempfile.TemporaryDirectory(prefix="weft-wheel-") as name:
        folder = pathlib.Path(name)
        venv.create(folder / "environment", with_pip=True)
        scripts = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
        shutil.copy(EXAMPLE, folder)
        for arguments in (
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel.resolve())],
            ["-c", CHECKS],
            [EXAMPLE.name, "--short"],
        ):
            subprocess.run([str(scripts / "python"), *arguments], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"one wheel is needed; received {sys.argv[1:]}")
    main(pathlib.Path(sys.argv[1]))
