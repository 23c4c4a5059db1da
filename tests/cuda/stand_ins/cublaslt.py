"""cuBLASLt: matmuls of matrices stored by columns, with what follows them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.cuda.stand_ins.objects import StandIn
from weft.base import dtypes

# cudaDataType_t
TYPES = {
    0: "float32", 1: "float64", 2: "float16", 3: "int8", 4: "complex64", 5: "complex128", 10: "int32", 14: "bfloat16",
    28: "float8_e4m3fn",
}  # fmt: skip
# What may be multiplied, with the type of sums and that of scaling: (operands, compute, scale) to results.
COMPUTES = {
    ("bfloat16", 68, 0): ("bfloat16", "float32"),
    ("float16", 68, 0): ("float16", "float32"),
    ("float32", 68, 0): ("float32",),
    ("float32", 77, 0): ("float32",),
    ("float64", 70, 1): ("float64",),
    ("complex64", 68, 4): ("complex64",),
    ("complex128", 70, 5): ("complex128",),
    ("int8", 72, 10): ("int32",),
    ("float8_e4m3fn", 68, 0): ("float32", "bfloat16", "float16"),
}
PROPOSALS = 3


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class CublasLt(StandIn):
    """The library. What is asked of it must be what it can do: sizes of leading dimensions, alignments."""

    def cublasLtGetVersion(self) -> int:
        return 0

    def cublasLtCreate(self, handle: Any) -> None:
        self.new(handle, "handle")

    def cublasLtMatmulDescCreate(self, descriptor: Any, compute: int, scale: int) -> None:
        self.new(descriptor, {"compute": compute, "scale": scale, 3: 0, 4: 0, 7: 1})

    def cublasLtMatmulDescSetAttribute(self, descriptor: Any, attribute: int, value: Any, size: int) -> None:
        assert attribute in (3, 4, 7, 8, 11, 12, 13, 26), attribute
        assert ctypes.sizeof(value._obj) == size == (8 if attribute in (8, 11, 12, 13) else 4)
        self.object(descriptor)[attribute] = value._obj.value

    def cublasLtMatrixLayoutCreate(self, layout: Any, data_type: int, rows: int, columns: int, stride: int) -> None:
        assert stride >= rows >= 1 and columns >= 1
        self.new(layout, {"type": TYPES[data_type], "rows": rows, "columns": columns, "stride": stride, 5: 1, 6: 0})

    def cublasLtMatrixLayoutSetAttribute(self, layout: Any, attribute: int, value: Any, size: int) -> None:
        assert size == {5: 4, 6: 8}[attribute]
        self.object(layout)[attribute] = value._obj.value

    def cublasLtMatmulPreferenceCreate(self, preference: Any) -> None:
        self.new(preference, {})

    def cublasLtMatmulPreferenceSetAttribute(self, preference: Any, attribute: int, value: Any, size: int) -> None:
        assert size == {1: 8, 5: 4, 6: 4, 7: 4, 8: 4}[attribute]
        self.object(preference)[attribute] = value._obj.value

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, matmul: Any, first: Any, second: Any, third: Any, out: Any, preference: Any,
        most: int, found: Any, count: Any,
    ) -> None:  # fmt: skip
        wanted = self.object(preference)
        for n in range(min(most, PROPOSALS)):
            found[n].data[:] = [n, *(wanted[a] for a in (5, 6, 7, 8)), 0, 0, 0]
            found[n].workspace, found[n].state = 1000 * (n + 1), 0
        count._obj.value = min(most, PROPOSALS)

    def cublasLtMatmul(
        self, handle: Any, matmul: Any, alpha: Any, first: int, first_layout: Any, second: int, second_layout: Any,
        beta: Any, third: int, third_layout: Any, out: int, out_layout: Any, algorithm: Any, workspace: int, size: int,
        stream: Any,
    ) -> None:  # fmt: skip
        assert self.object(handle) == "handle" and third == out
        description, result = self.object(matmul), self.object(out_layout)
        a, b = self.object(first_layout), self.object(second_layout)
        assert result["type"] in COMPUTES[a["type"], description["compute"], description["scale"]]
        assert a["type"] == b["type"] and a[5] == b[5] == result[5]
        index, *alignments = algorithm._obj.data[:5]
        assert algorithm._obj.workspace == size == 1000 * (index + 1)
        self.driver.view(workspace, size)[:] = 0xFF
        for address, alignment in zip((first, second, third, out), alignments, strict=True):
            assert address % alignment == 0, "an address is not as aligned as was said"
        if a["type"] in ("int8", "float8_e4m3fn"):
            multiple = 4 if a["type"] == "int8" else 16
            assert description[3] == 1 and description[4] == 0 and not (a["rows"] % multiple or a["columns"] % multiple)
            assert multiple == 4 or (description[7] == 1 and not (a["stride"] % 16 or b["stride"] % 16))
        left = self.matrices(first, a, description[3])
        right = self.matrices(second, b, description[4])
        assert left.shape[1] == result["rows"] and right.shape[2] == result["columns"]
        wide = (
            np.int32 if a["type"] == "int8" else np.result_type(dtypes.as_dtype(a["type"]).type(0).item(), np.float64)
        )
        product = left.astype(wide) @ right.astype(wide)
        target = self.matrices(out, result, 0)
        epilogue = description[7]
        if epilogue & 4:
            assert description.get(26, 0) == next(k for k, v in TYPES.items() if v == result["type"])
            bias = self.array(description[8], dtypes.as_dtype(result["type"]), [result["rows"]], [1])
            product = product + bias.astype(wide)[:, None]
        if epilogue & 128:
            assert epilogue & 32 and description[12] % 8 == 0
            aux = {**result, "stride": description[12], 6: description.get(13, 0)}
            self.matrices(description[11], aux, 0)[...] = product.astype(target.dtype)
        if epilogue & 2:
            product = np.maximum(product, 0)
        if epilogue & 32:
            product = gelu(product)
        assert epilogue & ~(1 | 2 | 4 | 32 | 128) == 0
        target[...] = product.astype(target.dtype)
        self.calls.append(("matmul", epilogue, description["compute"]))

    def matrices(self, address: int, layout: Any, transposed: int) -> np.ndarray:
        """A batch of matrices that are stored by columns."""
        shape = (layout[5], layout["rows"], layout["columns"])
        found = self.array(address, dtypes.as_dtype(layout["type"]), shape, (layout[6], 1, layout["stride"]))
        return found.swapaxes(1, 2) if transposed else found
