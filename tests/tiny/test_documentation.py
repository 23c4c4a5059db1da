"""The code blocks of the documentation run."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["docs/tour/README.md", "README.md"])
def test_blocks_run(page: str) -> None:
    found = blocks(page)
    assert found, f"{page} has no code"
    names: dict[str, object] = {}
    for i, block in enumerate(found):
        exec(compile(block, f"{page}, block {i}", "exec"), names)


def test_a_primitive_from_outside_works_under_transformations() -> None:
    """The example of docs/design/primitive.md."""
    import numpy as np

    import weft

    (block,) = blocks("docs/design/primitive.md")
    names: dict[str, object] = {"np": np}
    exec(compile(block, "primitive.md", "exec"), names)
    softsign = names["softsign"]
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    assert "softsign" in str(weft.make_jaxpr(softsign)(x))
    np.testing.assert_allclose(weft.jit(softsign)(x), x / (1 + np.abs(x)), rtol=1e-6)
    gradient = weft.vmap(weft.grad(softsign))(x)
    np.testing.assert_allclose(gradient, 1 / (1 + np.abs(x)) ** 2, rtol=1e-5)
