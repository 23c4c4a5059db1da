"""ES module of a library for WebAssembly, with its types for TypeScript."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from weft.export.libraries.expressions import count_text
from weft.export.libraries.signature import Signature, Tensor

ARRAYS: Mapping[str, str] = {
    "bool": "Uint8Array",
    "int8": "Int8Array",
    "int16": "Int16Array",
    "int32": "Int32Array",
    "int64": "BigInt64Array",
    "uint8": "Uint8Array",
    "uint16": "Uint16Array",
    "uint32": "Uint32Array",
    "uint64": "BigUint64Array",
    "float32": "Float32Array",
    "float64": "Float64Array",
    "float16": "Uint16Array",
    "bfloat16": "Uint16Array",
    "complex64": "Float32Array",
    "complex128": "Float64Array",
}
_LOADER = """\
const decode = (memory, address) => {
  const bytes = new Uint8Array(memory.buffer);
  let end = address;
  while (bytes[end]) end++;
  return new TextDecoder().decode(bytes.subarray(address, end));
};

const read = async (source) => {
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  const url = new URL(source, import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.compile(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} must be a WebAssembly module; got status ${response.status}.`);
  return WebAssembly.compile(await response.arrayBuffer());
};

const prepare = (exports, signature, place, constants) => {
  const { memory } = exports;
  const view = (tensor) => {
    const address = place(tensor.bytes);
    return { ...tensor, address };
  };
  const args = signature.arguments.map(view);
  const results = signature.results.map((t) => (t.alias === null ? view(t) : { ...t, address: args[t.alias].address }));
  const workspace = place(signature.workspace_bytes);
  const tables = [args, results].map((tensors) => ({ tensors, address: place(4 * tensors.length) }));
  const sizes = place(8 * signature.sizes.length);
  return () => {
    for (const { tensors, address } of tables)
      new Uint32Array(memory.buffer, address, tensors.length).set(tensors.map((t) => t.address));
    const all = ({ array, address, bytes }) => new array(memory.buffer, address, bytes / array.BYTES_PER_ELEMENT);
    const named = (tensors) => Object.fromEntries(tensors.map((t) => [t.name, all(t)]));
    const set = (values) =>
      signature.sizes.forEach(({ name, low, high }, n) => {
        const size = values[name];
        if (!Number.isInteger(size) || size < low || size > high)
          throw new RangeError(`The size ${name} must be an integer from ${low} to ${high}; got ${size}.`);
        new BigInt64Array(memory.buffer, sizes, signature.sizes.length)[n] = BigInt(size);
      });
    const run = (values = {}) => {
      set(values);
      const status = exports[`${signature.name}_run`](tables[0].address, tables[1].address, workspace, sizes);
      if (status) throw new Error(decode(memory, exports[`${signature.name}_message`](status)));
    };
    const inputs = args.filter((t) => !t.constant);
    for (const tensor of args.filter((t) => t.constant)) {
      if (!constants[tensor.name]) throw new TypeError(`The constant ${tensor.name} must be passed to load.`);
      all(tensor).set(constants[tensor.name]);
    }
    const call = (...operands) => {
      const values = signature.sizes.length ? operands.pop() : {};
      if (operands.length !== inputs.length)
        throw new TypeError(`${signature.name} takes ${inputs.length} arrays; got ${operands.length}.`);
      set(values);
      inputs.forEach((tensor, n) => {
        const operand = operands[n], count = tensor.count(values);
        if (!(operand instanceof tensor.array) || (count !== null && operand.length !== count))
          throw new TypeError(`${tensor.name} must be a ${tensor.array.name} of ${count} elements.`);
        all(tensor).set(operand);
      });
      run(values);
      const found = results.map((t) => all(t).slice(0, t.count(values) ?? undefined));
      return found.length === 1 ? found[0] : found;
    };
    return Object.assign(call, { arguments: undefined, inputs: named(args), results: named(results), run, signature });
  };
};

/** Load the library: from its own URL, or from a URL, bytes or a module. */
export const load = async (source = FILE, { constants = {} } = {}) => {
  const { exports } = await WebAssembly.instantiate(await read(source), {});
  let top = exports.__heap_base.value;
  const place = (bytes) => {
    const address = Math.ceil(top / 64) * 64;
    top = address + bytes;
    return address;
  };
  const prepared = signatures.map((signature) => [signature.name, prepare(exports, signature, place, constants)]);
  const missing = Math.ceil((top - exports.memory.buffer.byteLength) / 65536);
  if (missing > 0) exports.memory.grow(missing); // before any view exists
  return Object.fromEntries(prepared.map(([name, begin]) => [name, begin()]));
};
"""


def write_module(file: str, signatures: Sequence[Signature]) -> str:
    """Return the text of an ES module that loads a file beside it."""
    listed = ",\n".join(_signature(s) for s in signatures)
    head = f"// Functions of {file}. `const {{ {signatures[0].name} }} = await load();`\n"
    loader = _LOADER.replace("FILE", json.dumps(file)).replace("arguments: undefined, ", "")
    return f"{head}const signatures = [\n{listed},\n];\n\n{loader}"


def _signature(signature: Signature) -> str:
    arguments, results = (
        "".join(f"    {_tensor(t, signature)},\n" for t in tensors)
        for tensors in (signature.arguments, signature.results)
    )
    sizes = ", ".join(f'{{ name: "{s.name}", low: {s.low}, high: {s.high} }}' for s in signature.sizes)
    return (
        f'  {{ name: "{signature.name}", workspace_bytes: {signature.workspace_bytes}, sizes: [{sizes}],\n'
        f"    arguments: [\n{arguments}    ], results: [\n{results}    ] }}"
    )


def _tensor(tensor: Tensor, signature: Signature) -> str:
    count = count_text(tensor)
    if count is not None and tensor.dtype.startswith("complex"):
        count = f"{count} * 2"
    names = ", ".join(size.name for size in signature.sizes)
    function = f"({{ {names} }} = {{}}) => {count}" if names and count is not None else f"() => {count or 'null'}"
    shape = json.dumps(list(tensor.shape))
    alias = "null" if tensor.alias is None else str(tensor.alias)
    fields = f'name: "{tensor.name}", dtype: "{tensor.dtype}", shape: {shape}, array: {_array(tensor)}'
    flags = f"alias: {alias}, constant: {json.dumps(tensor.constant)}"
    return f"  {{ {fields}, bytes: {tensor.bytes}, {flags}, count: {function} }}"


def _array(tensor: Tensor) -> str:
    return ARRAYS.get(tensor.dtype, "Uint8Array")


def write_types(name: str, signatures: Sequence[Signature]) -> str:
    """Return the text of `name.d.mts`."""
    functions = "\n".join(f"  {s.name}: {_function_type(s)};" for s in signatures)
    return (
        f"// Types of {name}.mjs.\nexport interface Library {{\n{functions}\n}}\n"
        "export interface Options {\n  constants?: Record<string, ArrayLike<number>>;\n}\n"
        "export function load(\n  source?: string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module,\n"
        "  options?: Options,\n): Promise<Library>;\n"
    )


def _function_type(signature: Signature) -> str:
    inputs = [t for t in signature.arguments if not t.constant]
    parameters = [f"{t.name}: {_array(t)}" for t in inputs]
    sizes = f"{{ {'; '.join(f'{s.name}: number' for s in signature.sizes)} }}"
    if signature.sizes:
        parameters.append(f"sizes: {sizes}")
    kinds = [_array(t) for t in signature.results]
    returned = kinds[0] if len(kinds) == 1 else f"[{', '.join(kinds)}]"
    views, results = (
        f"{{ {'; '.join(f'{t.name}: {_array(t)}' for t in tensors)} }}"
        for tensors in (signature.arguments, signature.results)
    )
    run = f"run(sizes{'' if signature.sizes else '?'}: {sizes if signature.sizes else 'object'}): void"
    return f"{{ ({', '.join(parameters)}): {returned}; inputs: {views}; results: {results}; {run} }}"
