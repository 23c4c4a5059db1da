"""Atomic loads, stores and updates of scalars, with their memory orders."""

from __future__ import annotations

from weft.compiler.target.llvm.instructions import Instructions
from weft.compiler.target.llvm.types import Type, i1
from weft.compiler.target.llvm.values import Value

LOAD_ORDERS = frozenset({"monotonic", "acquire", "seq_cst"})
STORE_ORDERS = frozenset({"monotonic", "release", "seq_cst"})
UPDATE_ORDERS = frozenset({"monotonic", "acquire", "release", "acq_rel", "seq_cst"})
UPDATES = frozenset({"xchg", "add", "sub", "and", "or", "xor", "max", "min", "umax", "umin"})


class Atomics(Instructions):
    """Atomic instructions on scalars, each aligned to its own size. An `order` is LLVM's name of a memory order."""

    def atomic_load(self, type: Type, pointer: Value, order: str) -> Value:
        """Read a scalar that other threads write."""
        size = self._atomic_size("load atomic", type, pointer, order, LOAD_ORDERS)
        return self._emit(f"load atomic {type.text}, {pointer} {order}, align {size}", type)

    def atomic_store(self, value: Value, pointer: Value, order: str) -> None:
        """Write a scalar that other threads read."""
        size = self._atomic_size("store atomic", value.type, pointer, order, STORE_ORDERS)
        self.lines.append(f"  store atomic {value}, {pointer} {order}, align {size}")

    def atomic_update(self, operation: str, pointer: Value, value: Value, order: str) -> Value:
        """Apply an atomic `add`, `sub`, `or`, ... to an integer in memory and return its previous value."""
        size = self._atomic_size("atomicrmw", value.type, pointer, order, UPDATE_ORDERS)
        if value.type.kind != "int" or operation not in UPDATES:
            self._fail("atomicrmw", operation, value, why="it needs an integer and the name of an update")
        return self._emit(f"atomicrmw {operation} {pointer}, {value} {order}, align {size}", value.type)

    def compare_exchange(
        self, pointer: Value, expected: Value, value: Value, order: str, otherwise: str = "monotonic"
    ) -> tuple[Value, Value]:
        """Write `value` if memory holds `expected`; return the previous value and whether they were equal.

        `otherwise` is the order of the failed case, which is only a load.
        """
        size = self._atomic_size("cmpxchg", value.type, pointer, order, UPDATE_ORDERS)
        if expected.type is not value.type or otherwise not in LOAD_ORDERS:
            self._fail("cmpxchg", expected, value, why="it needs two values of one type, and the order of a load")
        pair = Type(f"{{ {value.type.text}, i1 }}", "pair", 0, "")
        result = self._emit(f"cmpxchg {pointer}, {expected}, {value} {order} {otherwise}, align {size}", pair)
        return self._emit(f"extractvalue {result}, 0", value.type), self._emit(f"extractvalue {result}, 1", i1)

    def _atomic_size(self, name: str, type: Type, pointer: Value, order: str, orders: frozenset[str]) -> int:
        """Check the operands of an atomic instruction and return its alignment, the size of the scalar."""
        if pointer.type.kind != "ptr" or pointer.type.is_vector:
            self._fail(name, pointer, why="it needs a pointer")
        if type.is_vector or type.kind not in ("int", "ptr") or type.bits < 8:
            self._fail(name, type, why="it needs a scalar of whole bytes")
        if order not in orders:
            self._fail(name, order, why=f"its order is one of {', '.join(sorted(orders))}")
        return type.bits // 8
