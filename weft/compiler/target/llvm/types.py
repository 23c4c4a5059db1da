"""LLVM types, interned: equal types are the same object, so checks cost one comparison."""

from __future__ import annotations

from weft.base.errors import InternalError


class Type:
    """Scalar type, or a vector of `count` elements of one."""

    __slots__ = ("_vectors", "bits", "count", "element", "kind", "suffix", "text")

    def __init__(
        self, text: str, kind: str, bits: int, suffix: str, count: int = 1, element: Type | None = None
    ) -> None:
        self.text = text
        # "int", "float", "ptr", "struct" or "void"; for a vector, the kind of its elements.
        self.kind = kind
        self.bits = bits
        # Spelling of the type in names of intrinsics: v16f32.
        self.suffix = suffix
        self.count = count
        self.element: Type = element or self
        self._vectors: dict[int, Type] = {}

    def __repr__(self) -> str:
        return self.text

    @property
    def is_vector(self) -> bool:
        """Whether it is a vector type."""
        return self.element is not self


i1 = Type("i1", "int", 1, "i1")
i8 = Type("i8", "int", 8, "i8")
i16 = Type("i16", "int", 16, "i16")
i32 = Type("i32", "int", 32, "i32")
i64 = Type("i64", "int", 64, "i64")
i128 = Type("i128", "int", 128, "i128")
half = Type("half", "float", 16, "f16")
bfloat = Type("bfloat", "float", 16, "bf16")
float_ = Type("float", "float", 32, "f32")
double = Type("double", "float", 64, "f64")
ptr = Type("ptr", "ptr", 64, "p0")
void = Type("void", "void", 0, "")

_STRUCTURES: dict[tuple[Type, int], Type] = {}
_INTEGERS = {t.bits: t for t in (i1, i8, i16, i32, i64, i128)}
_POINTERS = {0: ptr}


def integer(bits: int) -> Type:
    """Return the integer type of a width."""
    return _INTEGERS[bits]


def pointer(space: int) -> Type:
    """Return the type of pointers into an address space; 0 is the generic one, GPUs have others."""
    found = _POINTERS.get(space)
    if found is None:
        found = _POINTERS[space] = Type(f"ptr addrspace({space})", "ptr", 64, f"p{space}")
    return found


def structure(element: Type, count: int) -> Type:
    """Return the type of a struct of equal fields, as functions return it."""
    found = _STRUCTURES.get((element, count))
    if found is None:
        text = f"{{ {', '.join([element.text] * count)} }}"
        found = _STRUCTURES[element, count] = Type(text, "struct", element.bits, "", count)
    return found


def vector(element: Type, count: int) -> Type:
    """Return the type of `count` contiguous elements; a count of 1 is the scalar itself."""
    if count == 1:
        return element
    found = element._vectors.get(count)
    if found is None:
        if element.is_vector or element.kind in ("void", "struct") or count < 1:
            raise InternalError(f"There is no vector type of {count} x {element}.")
        found = Type(
            f"<{count} x {element.text}>", element.kind, element.bits, f"v{count}{element.suffix}", count, element
        )
        element._vectors[count] = found
    return found
