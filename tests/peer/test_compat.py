"""Manifest of JAX's names against the JAX that is installed: nothing is missing, and nothing is invented."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import jax
import pytest

from weft.compat.finder import is_there
from weft.compat.manifest import KINDS, read_manifest

MANIFEST = read_manifest()
ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.skipif(jax.__version__ != MANIFEST.version, reason="the manifest is that of another version of JAX")
def test_the_manifest_has_the_names_of_jax() -> None:
    # In a process of its own: which submodules are attributes depends on what has been imported.
    code = (
        "from tests.peer.jax_names import differences, public_names; from weft.compat.manifest import read_manifest; "
        "manifest = read_manifest(); print(differences(manifest, public_names(manifest)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout


def test_reasons_are_about_names_that_exist() -> None:
    for entry in MANIFEST.modules.values():
        assert set(entry.reasons) <= {*entry.all_names, "*"}, entry.name
        assert set(entry.names.values()) <= set(KINDS), entry.name


def test_names_with_a_reason_have_no_counterpart() -> None:
    found = [
        f"{entry.name}.{name}"
        for entry in MANIFEST.modules.values()
        for name in entry.reasons
        if name != "*" and is_there(MANIFEST, entry, name)
    ]
    assert found == []
