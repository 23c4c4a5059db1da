"""`pytest -p weft.compat.pytest_plugin`: the tests of a library that is written for JAX, run on Weft.

The alias is installed when pytest loads this module, which is before it loads any conftest.py or test.
"""

from __future__ import annotations

from weft import compat

compat.install()


def pytest_report_header() -> str:
    """Return the header line that names Weft as the implementation of `jax`."""
    return f"jax: Weft under the name of JAX {compat.jax_version()}"
