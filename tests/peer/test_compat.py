"""The manifest of JAX's names against the JAX that is installed: nothing is missing, and nothing is invented."""

from __future__ import annotations

import jax
import pytest

from tests.peer.jax_names import differences, public_names
from weft.compat.finder import is_there
from weft.compat.manifest import KINDS, read_manifest

MANIFEST = read_manifest()


@pytest.mark.skipif(jax.__version__ != MANIFEST.version, reason="the manifest is that of another version of JAX")
def test_the_manifest_has_the_names_of_jax() -> None:
    assert differences(MANIFEST, public_names(MANIFEST)) == []


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
