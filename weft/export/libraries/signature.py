"""Signatures of the functions of a library, and the JSON in which a library carries them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import FileFormatError

FORMAT = 1
# C type of the elements of each dtype; those that C lacks are integers of their size or a struct of two parts.
C_TYPES: Mapping[str, str] = {
    "bool": "bool",
    **{f"{u}int{bits}": f"{u}int{bits}_t" for u in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": "float",
    "float64": "double",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "complex64": "weft_complex64",
    "complex128": "weft_complex128",
}
_RESERVED = re.compile(
    "alignas|alignof|and|asm|auto|bool|break|case|catch|char|class|const|constexpr|continue|decltype|default|"
    "delete|do|double|else|enum|explicit|export|extern|false|float|for|friend|goto|if|inline|int|long|mutable|"
    "namespace|new|noexcept|not|nullptr|operator|or|private|protected|public|register|restrict|return|short|"
    "signed|sizeof|static|struct|switch|template|this|throw|true|try|typedef|typename|union|unsigned|using|"
    "virtual|void|volatile|while|xor|workspace|sizes|status|arguments|results|function|in|let|of|var|with|"
    "await|yield"
)


@dataclass(frozen=True)
class Tensor:
    """Argument or result of a function.

    `shape` has texts where sizes are known at run time; `bytes` is the most that it takes. `alias` is the index of the
    donated argument whose memory a result takes; a `constant` is an argument that a file beside the library has.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    bytes: int
    donated: bool = False
    constant: bool = False
    alias: int | None = None

    @property
    def c_type(self) -> str:
        """C type of an element."""
        return C_TYPES.get(self.dtype, "uint8_t")

    @property
    def shape_text(self) -> str:
        """Shape as Python writes it, such as `[b, 3]`."""
        return f"[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Size:
    """Size that is known at run time, with its bounds."""

    name: str
    low: int
    high: int
    parameter: str = ""  # its name in C, where an argument may have the name of the size


@dataclass(frozen=True)
class Signature:
    """Function of a library: arguments and results in order, sizes, and the messages of its checks.

    `in_tree` and `out_tree` are the structures of its arguments and results as JSON. If some of their nodes have no
    JSON, such as unregistered named tuples, they are tuples there, and `exact_trees` is False.
    """

    name: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    sizes: tuple[Size, ...]
    workspace_bytes: int
    checks: tuple[str, ...] = ()
    in_tree: Any = None
    out_tree: Any = None
    exact_trees: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the signature as JSON."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Signature:
        """Read a signature; raise FileFormatError if it is malformed."""
        try:
            fields = dict(value)
            for name in ("arguments", "results"):
                fields[name] = tuple(Tensor(**{**t, "shape": tuple(t["shape"])}) for t in value[name])
            fields["sizes"] = tuple(Size(**size) for size in value["sizes"])
            fields["checks"] = tuple(value["checks"])
            return Signature(**fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"A library must describe its functions; got {error!r}.") from None


def write_description(signatures: Sequence[Signature], **properties: Any) -> str:
    """Return the JSON text of a library: its functions, and properties such as the target."""
    description = {"format": FORMAT, **properties, "functions": [s.to_json() for s in signatures]}
    return json.dumps(description, separators=(",", ":"))


def read_description(text: bytes) -> tuple[dict[str, Any], list[Signature]]:
    """Read the JSON text of a library: the properties, and its functions."""
    try:
        description = json.loads(text)
        functions, version = description.pop("functions"), description["format"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FileFormatError("A library must have a description in JSON.", received=repr(text[:60])) from None
    if version != FORMAT:
        raise FileFormatError(f"The description of a library must have format {FORMAT}.", received=repr(version))
    return description, [Signature.from_json(f) for f in functions]


def make_identifier(text: str) -> str:
    """Return an identifier of C and JavaScript that resembles a text, such as `params_w` for `params['w']`."""
    found = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "x"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if _RESERVED.fullmatch(found) else found


def make_identifiers(texts: Iterable[str]) -> list[str]:
    """Return different identifiers for several texts."""
    found: list[str] = []
    for text in texts:
        base = name = make_identifier(text)
        count = 1
        while name in found:
            count += 1
            name = f"{base}_{count}"
        found.append(name)
    return found
