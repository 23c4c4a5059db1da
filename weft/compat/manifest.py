"""Reads and writes `manifest.txt`: for each name of one version of JAX, what of Weft it means, or why there is nothing.

    version 0.10.2
    refuse jax.experimental.pallas | a reason            a tree of modules without a counterpart
    [jax.lax] weft.lax weft.compat.primitives            a module, and where its names are looked for, in this order
    function: abs add ...                                JAX's names by kind, written by tests/peer/jax_names.py
    psum_p = weft.compat.primitives.psum_p               a name that is called otherwise, or is elsewhere
    no approx_max_k approx_min_k | a reason              names without a counterpart; * means all others that have none
    [jax._src.core] weft.compat.private                  a private module, with those of its names that libraries use

Lines that begin with two spaces continue the one before. A module without sources is looked for in Weft under its own
name. In a public module a line `private:` has names that libraries use although they begin with an underscore.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import textwrap
from collections.abc import Mapping

KINDS = ("module", "class", "exception", "function", "value")
_PATH = pathlib.Path(__file__).with_name("manifest.txt")
_WIDTH = 120


@dataclasses.dataclass
class ModuleEntry:
    """Entry of the manifest for one module of JAX."""

    name: str
    sources: tuple[str, ...] = ()
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    """JAX's public names, and their kinds."""
    targets: dict[str, str] = dataclasses.field(default_factory=dict)
    """{name: full name in Weft}, where that is not the same name in one of the sources."""
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    private: tuple[str, ...] = ()

    @property
    def is_private(self) -> bool:
        """True for modules that are not part of JAX's public API."""
        return "._" in self.name or self.name.partition(".")[0] == "jaxlib"

    @property
    def all_names(self) -> set[str]:
        """Every name that the module answers to."""
        return {*self.names, *self.private, *self.targets}

    def reason(self, name: str) -> str | None:
        """Return the reason why a name has no counterpart, or None; `no * | ...` applies to all names
        without one."""
        return self.reasons.get(name) or self.reasons.get("*")

    def kind(self, name: str) -> str:
        """Return one of `KINDS`; private names have no stated kind and are values."""
        return self.names.get(name, "value")


@dataclasses.dataclass
class Manifest:
    """Parsed manifest."""

    version: str
    refused: dict[str, str]
    modules: dict[str, ModuleEntry]
    comments: list[str]

    def refusal(self, module: str) -> str | None:
        """Return the reason why a whole tree of modules has no counterpart, or None."""
        for tree, reason in self.refused.items():
            if module == tree or module.startswith(tree + "."):
                return reason
        return None

    def has_module(self, name: str) -> bool:
        """Return whether `import name` works, or raises with a reason."""
        return name in self.modules or self.refusal(name) is not None


@functools.cache
def read_manifest() -> Manifest:
    """Read the manifest of this version of Weft."""
    return parse_manifest(_PATH.read_text(encoding="utf-8"))


def parse_manifest(text: str) -> Manifest:
    """Parse the text of a manifest."""
    manifest = Manifest("", {}, {}, [line for line in text.splitlines() if line.startswith("#")])
    entry = ModuleEntry("")
    for line in text.replace("\n  ", " ").splitlines():
        head, _, rest = line.partition(" ")
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            entry = ModuleEntry(head[1:-1], tuple(rest.split()))
            if entry.name in manifest.modules:
                raise ValueError(f"The manifest has {entry.name} twice.")
            manifest.modules[entry.name] = entry
        elif head == "version":
            manifest.version = rest
        elif head in ("refuse", "no"):
            names, reason = (part.strip() for part in rest.split("|"))
            (manifest.refused if head == "refuse" else entry.reasons).update(dict.fromkeys(names.split(), reason))
        elif head == "private:":
            entry.private = tuple(rest.split())
        elif head[:-1] in KINDS and head[-1] == ":":
            entry.names.update(dict.fromkeys(rest.split(), head[:-1]))
        elif rest.startswith("= "):
            entry.targets[head] = rest.removeprefix("= ")
        else:
            raise ValueError(f"The manifest has a line that means nothing: {line!r}")
    return manifest


def write_manifest(manifest: Manifest, names: Mapping[str, Mapping[str, str]]) -> None:
    """Write the file with other names of JAX's public modules; everything else stays."""
    _PATH.write_text(format_manifest(manifest, names), encoding="utf-8")


def format_manifest(manifest: Manifest, names: Mapping[str, Mapping[str, str]]) -> str:
    """Format a manifest with the names of `names`: public modules first, then those that libraries use besides."""
    lines = [*manifest.comments, "", f"version {manifest.version}", ""]
    lines += _format_reasons("refuse", manifest.refused)
    others = [name for name, entry in manifest.modules.items() if entry.is_private]
    for module in (*sorted(names), *others):
        entry = manifest.modules.get(module, ModuleEntry(module))
        lines += ["", " ".join([f"[{module}]", *entry.sources])]
        listed = entry.names if entry.is_private else names[module]
        for kind in KINDS:
            of_kind = sorted(name for name, value in listed.items() if value == kind)
            lines += _wrap_line(f"{kind}: {' '.join(of_kind)}") if of_kind else []
        lines += _wrap_line(f"private: {' '.join(entry.private)}") if entry.private else []
        lines += [f"{name} = {target}" for name, target in entry.targets.items()]
        lines += _format_reasons("no", entry.reasons)
    return "\n".join(lines) + "\n"


def _wrap_line(line: str) -> list[str]:
    return textwrap.wrap(line, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _format_reasons(word: str, table: Mapping[str, str]) -> list[str]:
    """Format a line for each reason, with the names it applies to."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in table.items():
        by_reason.setdefault(reason, []).append(name)
    return [line for reason, about in by_reason.items() for line in _wrap_line(f"{word} {' '.join(about)} | {reason}")]
