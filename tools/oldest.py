"""Print the oldest versions that pyproject.toml permits, as constraints for pip.

python tools/oldest.py > build/oldest.txt && pip install --constraint build/oldest.txt .
"""

from __future__ import annotations

import pathlib
import re
import tomllib
from collections.abc import Iterator

PYPROJECT = pathlib.Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?>=(?P<version>[\d.]+)")


def constraints(requirements: list[str]) -> Iterator[str]:
    """Yield `name==version` for the lower bound of each requirement."""
    for requirement in requirements:
        match = REQUIREMENT.match(requirement)
        if match is None:
            raise SystemExit(f"{requirement!r} needs a lower bound, `>=`.")
        yield f"{match['name']}=={match['version']}"


def main() -> None:
    """Print the constraints of the dependencies."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    print("\n".join(constraints(project["dependencies"])))


if __name__ == "__main__":
    main()
