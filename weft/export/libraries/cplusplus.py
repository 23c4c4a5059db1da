"""C++ header of a library: functions of spans, which check the number of elements."""

from __future__ import annotations

from collections.abc import Sequence

from weft.export.libraries.expressions import count_text
from weft.export.libraries.signature import Signature, Tensor


def write_header(name: str, signatures: Sequence[Signature]) -> str:
    """Return the text of `name.hpp`."""
    guard = f"WEFT_{name.upper()}_HPP"
    functions = "\n".join(_function(signature) for signature in signatures)
    return (
        f"// {name}: functions of spans over {name}.h, for C++20.\n#ifndef {guard}\n#define {guard}\n\n"
        f'#include "{name}.h"\n\n#include <cstddef>\n#include <cstdint>\n#include <span>\n\n'
        f"namespace weft {{\n\n{functions}\n}}  // namespace weft\n\n#endif\n"
    )


def _function(signature: Signature) -> str:
    results = [t for t in signature.results if t.alias is None]
    spans = [_parameter(t, not t.donated) for t in signature.arguments] + [_parameter(t, False) for t in results]
    sizes = [f"std::int64_t {size.parameter}" for size in signature.sizes]
    listed = ", ".join([*spans, *sizes, "std::span<std::byte> workspace"])
    checks = [_check(t, signature) for t in (*signature.arguments, *results)]
    if signature.workspace_bytes:
        checks.append(f"  if (workspace.size() < {signature.workspace_bytes}u) return WEFT_WRONG_SIZE;")
    operands = [f"{t.name}.data()" for t in (*signature.arguments, *results)]
    operands += [size.parameter for size in signature.sizes] + ["workspace.data()"]
    body = "\n".join([*checks, f"  return ::{signature.name}({', '.join(operands)});"])
    return f"[[nodiscard]] inline std::int32_t {signature.name}({listed}) {{\n{body}\n}}\n"


def _parameter(tensor: Tensor, is_constant: bool) -> str:
    return f"std::span<{'const ' if is_constant else ''}{tensor.c_type}> {tensor.name}"


def _check(tensor: Tensor, signature: Signature) -> str:
    count = count_text(tensor, {size.name: size.parameter for size in signature.sizes})
    if count is None:
        return f"  if ({tensor.name}.size_bytes() < {tensor.bytes}u) return WEFT_WRONG_SIZE;"
    return f"  if ({tensor.name}.size() != static_cast<std::size_t>({count})) return WEFT_WRONG_SIZE;"
