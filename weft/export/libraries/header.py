"""C header of a library: statuses, structs, and for each function its declarations and a typed wrapper."""

from __future__ import annotations

from collections.abc import Sequence

from weft.export.libraries.signature import Signature, Tensor

STATUSES = (
    ("WEFT_OK", "The function has run."),
    ("WEFT_NULL_POINTER", "A pointer is null."),
    ("WEFT_MISALIGNED", "The address of an array is not a multiple of the size of its elements."),
    ("WEFT_WRONG_SIZE", "A size is outside of its bounds."),
    ("WEFT_WRONG_ALIAS", "A result that takes the memory of an argument has another address."),
    ("WEFT_UNSUPPORTED_CPU", "The processor lacks instructions that the library needs."),
)
FIRST_CHECK = 16

_COMMON = """\
#ifndef WEFT_LIBRARY_TYPES
#define WEFT_LIBRARY_TYPES
typedef struct weft_complex64 { float re, im; } weft_complex64;
typedef struct weft_complex128 { double re, im; } weft_complex128;
/* An argument or a result. A shape has -1 for sizes that are known at run time; `bytes` is the most that it takes. */
typedef struct weft_tensor {
  const char *name;
  const char *dtype;
  const int64_t *shape;
  const char *shape_text;
  int64_t bytes;
  int32_t rank;
  int32_t flags; /* WEFT_DONATED: it may be overwritten; WEFT_CONSTANT: a file beside the library has it */
  int32_t alias; /* of a result: the argument whose memory it takes, or -1 */
  int32_t reserved;
} weft_tensor;
typedef struct weft_size {
  const char *name;
  int64_t low, high;
} weft_size;
typedef struct weft_signature {
  const char *name;
  const weft_tensor *arguments;
  const weft_tensor *results;
  const weft_size *sizes;
  const char *json;
  int64_t workspace_bytes;
  int32_t argument_count, result_count, size_count, version;
} weft_signature;
enum { WEFT_DONATED = 1, WEFT_CONSTANT = 2 };
enum {
STATUSES
  WEFT_FIRST_CHECK = FIRST
};
#endif
"""


_THREADS = """\
/* Threads that share large kernels with the caller: none before the first call, and after a fork reset them. Calls at
 * the same time do not wait for each other: one of them uses the threads. Stop returns 0 while a call uses them. */
void NAME_pool_start(int32_t workers);
int32_t NAME_pool_stop(void);
void NAME_pool_reset(void);

"""


def write_header(name: str, signatures: Sequence[Signature], properties: Sequence[str], threads: bool = False) -> str:
    """Return the text of `name.h`."""
    guard = f"WEFT_{name.upper()}_H"
    statuses = "\n".join(f"  {status} = {n}, /* {text} */" for n, (status, text) in enumerate(STATUSES))
    common = _COMMON.replace("STATUSES", statuses).replace("FIRST\n", f"{FIRST_CHECK}\n")
    listed = "\n".join(f" * {line}" for line in properties)
    functions = "\n".join(_declare(signature) for signature in signatures)
    if name not in (signature.name for signature in signatures):
        most = max(signature.workspace_bytes for signature in signatures)
        functions = f"/* A workspace for any function. */\n#define {name.upper()}_WORKSPACE_BYTES {most}\n\n{functions}"
    return (
        f"/* {name}: made by Weft.\n *\n{listed}\n */\n#ifndef {guard}\n#define {guard}\n\n#include <stdbool.h>\n"
        f'#include <stddef.h>\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{common}\n'
        f"{_THREADS.replace('NAME', name) if threads else ''}"
        "/* The library's description in JSON. */\nconst char *weft_library(void);\n\n"
        f"{functions}\n#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
    )


def _declare(signature: Signature) -> str:
    name = signature.name
    macro = name.upper()
    lines = [f"/* {name}", " *"]
    lines += [f" * {t.name}: {t.dtype}{t.shape_text}{_note(t, signature)}" for t in signature.arguments]
    lines += [f" * returns {t.name}: {t.dtype}{t.shape_text}{_note(t, signature)}" for t in signature.results]
    lines += [f" * {s.parameter}: the size {s.name}, from {s.low} to {s.high}" for s in signature.sizes]
    lines += [f" * status {FIRST_CHECK + n}: {_comment(text)}" for n, text in enumerate(signature.checks)]
    lines += [
        " *",
        " * Arrays are dense and row-major. No array may overlap a result or the workspace. Calls with different",
        " * workspaces may run at the same time. The status is 0, or says what is wrong; see also the message.",
        " */",
        f"#define {macro}_WORKSPACE_BYTES {signature.workspace_bytes}",
        f"extern const weft_signature {name}_signature;",
        f"const char *{name}_message(int32_t status);",
        f"int32_t {name}_run(const void *const *arguments, void *const *results, void *workspace,",
        f"{' ' * (13 + len(name))}const int64_t *sizes);",
        "",
        _wrap(signature),
    ]
    return "\n".join(lines) + "\n"


def _note(tensor: Tensor, signature: Signature) -> str:
    if tensor.alias is not None:
        return f", in the memory of {signature.arguments[tensor.alias].name}"
    if tensor.constant:
        return ", a constant"
    return ", which is overwritten" if tensor.donated else ""


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


def parameters(signature: Signature) -> list[tuple[str, str]]:
    """Return the parameters of the typed wrapper as (type, name)."""
    found = [(f"{t.c_type} *" if t.donated else f"const {t.c_type} *", t.name) for t in signature.arguments]
    found += [(f"{t.c_type} *", t.name) for t in signature.results if t.alias is None]
    return [*found, *(("int64_t ", size.parameter) for size in signature.sizes), ("void *", "workspace")]


def _wrap(signature: Signature) -> str:
    """Return the typed wrapper, which only packs pointers into tables."""
    listed = ", ".join(f"{kind}{name}" for kind, name in parameters(signature))
    tables = []
    operands = {}
    results = [signature.arguments[t.alias].name if t.alias is not None else t.name for t in signature.results]
    for table, names, kind in (
        ("arguments", [t.name for t in signature.arguments], "const void *const"),
        ("results", results, "void *const"),
        ("sizes", [s.parameter for s in signature.sizes], "const int64_t"),
    ):
        operands[table] = f"weft_{table}" if names else "NULL"
        if names:
            tables.append(f"  {kind} weft_{table}[] = {{{', '.join(names)}}};")
    call = f"{signature.name}_run({operands['arguments']}, {operands['results']}, workspace, {operands['sizes']})"
    body = "\n".join([*tables, f"  return {call};"])
    return f"static inline int32_t {signature.name}({listed}) {{\n{body}\n}}\n"
