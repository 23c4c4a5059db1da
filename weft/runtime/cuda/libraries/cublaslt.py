"""Matmuls by cuBLASLt.

The library reads matrices by columns, we store them by rows. A matrix stored by rows is the transposed one stored by
columns; so C = A B is computed as the transposed equation: B comes first, and sizes are exchanged. The bias is then one
number for each row, as the library wants it.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from typing import Any

from weft.base import dtypes
from weft.base.errors import JaxRuntimeError
from weft.base.forks import held
from weft.compiler.target.cuda.library.calls import ACTIVATIONS, DTYPES, MatmulCall
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.choices import MOST_MEASURED, choose_fastest

# cudaDataType_t, and the type of sums and factors.
DATA_TYPES = {
    "float32": 0, "float64": 1, "float16": 2, "int8": 3, "complex64": 4, "complex128": 5, "int32": 10, "bfloat16": 14,
    "float8_e4m3fn": 28,
}  # fmt: skip
# cublasComputeType_t
COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_TF32 = 68, 70, 72, 77
# Attributes of descriptors of matmuls, of layouts, of preferences.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LD, AUX_BATCH_STRIDE, BIAS_DATA_TYPE = (
    3, 4, 7, 8, 11, 12, 13, 26,
)  # fmt: skip
BATCH_COUNT, BATCH_STRIDE = 5, 6
MOST_WORKSPACE, ALIGNMENT_A, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D = 1, 5, 6, 7, 8
# cublasLtEpilogue_t: flags of operations after a matmul.
DEFAULT, RELU, BIAS, GELU, AUX = 1, 2, 4, 32, 128
WORKSPACE = 32 << 20
# Least multiplications of a matmul whose proposals are measured: it takes some ten microseconds.
LONG = 2 << 30
# Least alignment of the addresses of a step that is not in a loop.
MOST_ALIGNMENT = 256


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: proposal of an algorithm."""

    _fields_ = (
        ("data", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (POINTER(c_void_p),),
    "cublasLtMatmulDescCreate": (POINTER(c_void_p), c_int, c_int),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixLayoutCreate": (POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceCreate": (POINTER(c_void_p),),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, POINTER(Algorithm), POINTER(c_int)),
    "cublasLtMatmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}


class CublasLt:
    """Library opened for a GPU."""

    def __init__(self, library: Any) -> None:
        self._functions = {name: getattr(library, name) for name in _FUNCTIONS}
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes, self._functions[name].restype = arguments, c_int
        library.cublasLtGetVersion.restype = c_size_t
        self.version = int(library.cublasLtGetVersion())
        self.handle = c_void_p()
        self("cublasLtCreate", byref(self.handle))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if it reports an error."""
        status = self._functions[name](*arguments)
        if status:
            raise JaxRuntimeError(f"cuBLASLt reports an error in {name}: status {status}.")

    def descriptor(self, compute: int, scale: int, attributes: dict[int, Any]) -> c_void_p:
        """Create the descriptor of a matmul."""
        found = c_void_p()
        self("cublasLtMatmulDescCreate", byref(found), compute, scale)
        self._set("cublasLtMatmulDescSetAttribute", found, attributes)
        return found

    def layout(self, data_type: int, rows: int, columns: int, stride: int, batch: int, step: int) -> c_void_p:
        """Create the layout of a batch of column-major matrices."""
        found = c_void_p()
        self("cublasLtMatrixLayoutCreate", byref(found), data_type, rows, columns, stride)
        if batch > 1:
            attributes = {BATCH_COUNT: c_int32(batch), BATCH_STRIDE: c_int64(step)}
            self._set("cublasLtMatrixLayoutSetAttribute", found, attributes)
        return found

    def preference(self, workspace: int, alignments: dict[int, int]) -> c_void_p:
        """Create the preferences of algorithms: memory and alignments."""
        found = c_void_p()
        self("cublasLtMatmulPreferenceCreate", byref(found))
        attributes: dict[int, Any] = {MOST_WORKSPACE: c_uint64(workspace)}
        attributes |= {name: c_uint32(alignment) for name, alignment in alignments.items()}
        self._set("cublasLtMatmulPreferenceSetAttribute", found, attributes)
        return found

    def set(self, descriptor: c_void_p, attribute: int, value: Any) -> None:
        """Set an attribute of a matmul."""
        self._set("cublasLtMatmulDescSetAttribute", descriptor, {attribute: value})

    def _set(self, function: str, descriptor: c_void_p, attributes: dict[int, Any]) -> None:
        for attribute, value in attributes.items():
            self(function, descriptor, attribute, byref(value), ctypes.sizeof(value))

    def proposals(self, matmul: c_void_p, layouts: Sequence[c_void_p], preference: c_void_p) -> list[Algorithm]:
        """Return algorithms in the order of the library's heuristic."""
        first, second, out = layouts
        found, count = (Algorithm * MOST_MEASURED)(), c_int()
        self(
            "cublasLtMatmulAlgoGetHeuristic", self.handle, matmul, first, second, out, out, preference,
            MOST_MEASURED, found, byref(count),
        )  # fmt: skip
        return [a for a in found[: count.value] if a.state == 0]


class Matmul:
    """Matmul with its descriptors and an algorithm."""

    def __init__(self, calls: LibraryCalls, integers: Sequence[int], alignments: Sequence[int]) -> None:
        self.call = call = MatmulCall.of(integers)
        self.lib: CublasLt = calls.library("cublasLt", CublasLt)
        dtype, result = DTYPES[call.dtype], DTYPES[call.result]
        self._sizes = (dtype.itemsize, dtype.itemsize, result.itemsize)
        self._has_bias, self._has_input = bool(call.has_bias), bool(call.has_input)
        self._lock = held(threading.Lock())  # addresses of a bias are attributes of the descriptor
        data_type, result_type = DATA_TYPES[dtypes.name(dtype)], DATA_TYPES[dtypes.name(result)]
        compute, scale, scalar = _arithmetic(dtype, bool(call.tf32))
        self._one, self._zero = scalar(1), scalar(0)
        self.matmul = self.lib.descriptor(compute, scale, self._attributes(result_type, result.itemsize))
        self.layouts = [
            self._row_major_layout(
                data_type, call.summed, call.columns, call.rhs_transposed, call.rhs_stride, call.rhs_step
            ),
            self._row_major_layout(
                data_type, call.rows, call.summed, call.lhs_transposed, call.lhs_stride, call.lhs_step
            ),
            self._row_major_layout(result_type, call.rows, call.columns, 0, call.out_stride, call.out_step),
        ]
        alignment = {
            ALIGNMENT_A: self._alignment(alignments[1], 1),
            ALIGNMENT_B: self._alignment(alignments[0], 0),
            ALIGNMENT_C: self._alignment(alignments[2 + call.has_bias], 2),
            ALIGNMENT_D: self._alignment(alignments[2 + call.has_bias], 2),
        }
        preference = self.lib.preference(WORKSPACE, alignment)
        # A heuristic may check for pointers, so they are set.
        self._point([MOST_ALIGNMENT] * (3 + self._has_bias + self._has_input))
        proposals = self.lib.proposals(self.matmul, self.layouts, preference)
        if not proposals:
            raise JaxRuntimeError(f"cuBLASLt cannot compute {call}: it has no algorithm.")
        self.algorithm = proposals[self._choose(calls, proposals) if len(proposals) > 1 else 0]
        self.workspace = int(self.algorithm.workspace)

    def _attributes(self, result_type: int, size: int) -> dict[int, Any]:
        call = self.call
        epilogue = {"": 0, "relu": RELU, "gelu": GELU}[ACTIVATIONS[call.activation]]
        epilogue |= BIAS * call.has_bias | AUX * call.has_input
        attributes: dict[int, Any] = {
            TRANSPOSE_A: c_int32(call.rhs_transposed),
            TRANSPOSE_B: c_int32(call.lhs_transposed),
            EPILOGUE: c_uint32(epilogue or DEFAULT),
        }
        if call.has_bias and size < 4:
            attributes[BIAS_DATA_TYPE] = c_int32(result_type)
        if call.has_input:
            attributes[AUX_LD] = c_int64(call.out_stride)
            if call.batch > 1:
                attributes[AUX_BATCH_STRIDE] = c_int64(call.out_step)
        return attributes

    def _row_major_layout(
        self, data_type: int, rows: int, columns: int, transposed: int, stride: int, step: int
    ) -> c_void_p:
        """Create the layout of a row-major matrix: that of the transposed column-major one."""
        if transposed:
            rows, columns = columns, rows
        return self.lib.layout(data_type, columns, rows, stride, self.call.batch, step)

    def _alignment(self, base: int, operand: int) -> int:
        """Return the alignment of all matrices of the loops, given that of the first."""
        size = self._sizes[operand]
        steps = [self.call.loops[n + 1 + operand] * size for n in range(0, len(self.call.loops), 4)]
        found = min(base, MOST_ALIGNMENT)
        while any(step % found for step in steps):
            found //= 2
        return found

    def _choose(self, calls: LibraryCalls, proposals: Sequence[Algorithm]) -> int:
        call = self.call
        if call.rows * call.columns * call.summed * call.batch < LONG:
            return 0

        def bind_algorithm(algorithm: Algorithm) -> Any:
            return lambda stream, addresses: self._start(stream, addresses[:-1], addresses[-1], algorithm)

        names = [bytes(a.data).hex() for a in proposals]
        batch = max(call.batch, 1)
        lhs, rhs, out = (
            max((batch - 1) * step + rows * stride, 1) * size
            for step, rows, stride, size in zip(
                (call.lhs_step, call.rhs_step, call.out_step),
                (
                    call.summed if call.lhs_transposed else call.rows,
                    call.columns if call.rhs_transposed else call.summed,
                    call.rows,
                ),
                (call.lhs_stride, call.rhs_stride, call.out_stride),
                self._sizes,
                strict=True,
            )
        )
        bias = [call.columns * self._sizes[2]] * call.has_bias
        sizes = [lhs, rhs, *bias, out, *[out] * call.has_input, max(int(a.workspace) for a in proposals)]
        candidates = [(name, bind_algorithm(a)) for name, a in zip(names, proposals, strict=True)]
        once = replace(call, loops=())
        return choose_fastest(calls, f"cuBLASLt {self.lib.version} {once}", candidates, sizes)

    def _point(self, addresses: Sequence[int]) -> None:
        """Set the addresses that are attributes of the descriptor."""
        if self._has_bias:
            self.lib.set(self.matmul, BIAS_POINTER, c_uint64(addresses[2]))
        if self._has_input:
            self.lib.set(self.matmul, AUX_POINTER, c_uint64(addresses[3 + self._has_bias]))

    def _start(self, stream: Any, addresses: Sequence[int], workspace: int, algorithm: Algorithm) -> None:
        """Start one matmul, or a batch."""
        first, second, out = self.layouts
        lhs, rhs, result = addresses[0], addresses[1], addresses[2 + self._has_bias]
        size = int(algorithm.workspace)
        with self._lock:
            self._point(addresses)
            self.lib(
                "cublasLtMatmul", self.lib.handle, self.matmul, byref(self._one), rhs, first, lhs, second,
                byref(self._zero), result, out, result, out, byref(algorithm), workspace, size, stream,
            )  # fmt: skip

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start all matmuls of the loops."""
        loops = [self.call.loops[n : n + 4] for n in range(0, len(self.call.loops), 4)]
        for indices in itertools.product(*(range(size) for size, *_ in loops)):
            moved = list(addresses)
            for n, operand in ((0, 0), (1, 1), (2 + self._has_bias, 2), (3 + self._has_bias, 2)):
                if n < len(moved):
                    steps = (i * loop[1 + operand] for i, loop in zip(indices, loops, strict=True))
                    moved[n] += sum(steps) * self._sizes[operand]
            self._start(stream, moved, workspace, self.algorithm)


def _arithmetic(dtype: Any, tf32: bool) -> tuple[int, int, Any]:
    """Return the compute type of a dtype, the type of factors, and a constructor of factors."""
    match dtypes.name(dtype):
        case "float64":
            return COMPUTE_64F, DATA_TYPES["float64"], ctypes.c_double
        case "complex64":
            return COMPUTE_32F, DATA_TYPES["complex64"], lambda value: (c_float * 2)(value, 0)
        case "complex128":
            return COMPUTE_64F, DATA_TYPES["complex128"], lambda value: (ctypes.c_double * 2)(value, 0)
        case "int8":
            return COMPUTE_32I, DATA_TYPES["int32"], c_int32
        case _:
            return COMPUTE_TF32 if tf32 else COMPUTE_32F, DATA_TYPES["float32"], c_float
