"""Run library calls as a Program does: address tables, scratch memory, tiles in some order or on two threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.target.cpu.library.planning import plan
from weft.compiler.target.cpu.library.routines import address
from weft.compiler.target.library_call import LibraryCall
from weft.ir.jaxpr import Equation, Var
from weft.ir.types import array_type

ROUTINE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
TILES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
# Bytes that are put around every buffer, to see that nothing else is written.
GUARD = 64


def equation_of(primitive: Any, operands: Sequence[np.ndarray], params: dict[str, Any]) -> Equation:
    """The equation that computes the operation on operands like these."""
    types = [array_type(x.shape, x.dtype) for x in operands]
    result = primitive.type(*types, **params)
    results = result if primitive.multiple_results else [result]
    return Equation([Var(t) for t in types], [Var(t) for t in results], primitive, params)


def guarded(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array full of nan (or nonsense) that begins where a cache line does, with guards around it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    whole = np.full(size + 3 * GUARD, 0xAB, np.uint8)
    start = GUARD + -(whole.ctypes.data + GUARD) % 64
    whole[start : start + size] = 0xFF
    return whole[start : start + size].view(dtype).reshape(shape)


def assert_guards_hold(array: np.ndarray) -> None:
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    start = array.ctypes.data - whole.ctypes.data
    assert (whole[start - GUARD : start] == 0xAB).all(), "something is written before a buffer"
    assert (whole[start + array.nbytes :] == 0xAB).all(), "something is written after a buffer"


def execute(
    call: LibraryCall,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    order: Sequence[int] | None = None,
    threads: int = 1,
) -> None:
    """Run a call. Its tiles are done one by one in the given order, by default backwards, or by several threads."""
    if call.host is not None:
        assert call.routine == "host"
        call.host(*operands, out=results)
        return
    scratch = [guarded([size], np.uint8) for size in call.scratch]
    numbers = np.array(call.parameters, np.int64)
    addresses = [a.ctypes.data for a in (*operands, *results, *scratch)]
    if not call.tiles:
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        assert ROUTINE(address(call.routine))(table, numbers.ctypes.data, None) == 0
    else:
        table = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, numbers.ctypes.data)
        function = TILES(address(call.routine))
        chosen = list(reversed(range(call.tiles))) if order is None else list(order)

        def work(mine: Sequence[int]) -> None:
            for tile in mine:
                function(table, tile, tile + 1)

        workers = [threading.Thread(target=work, args=(chosen[n::threads],)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for buffer in scratch:
        assert_guards_hold(buffer)


def computed(equation: Equation, operands: Sequence[np.ndarray], **options: Any) -> list[np.ndarray]:
    """The results of an equation by its library call."""
    call = plan(equation)
    copies = [
        x if not call.permutations or call.permutations[n] is None else x.transpose(call.permutations[n])
        for n, x in enumerate(operands)
    ]
    args = []
    for x in copies:
        args.append(guarded(x.shape, x.dtype))
        args[-1][...] = x
    results: list[Any] = [guarded(v.aval.shape, v.aval.dtype) for v in equation.outvars]  # type: ignore[attr-defined]
    execute(call, args, results, **options)
    for x, before in zip(args, copies, strict=True):
        assert_guards_hold(x)
        assert x.tobytes() == np.ascontiguousarray(before).tobytes(), "an operand was changed"
    for result in results:
        assert_guards_hold(result)
    return results


def expected(equation: Equation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results by the meaning of the operation."""
    with np.errstate(all="ignore"):
        result = equation.primitive.eval(*operands, **equation.params)
    return list(result) if equation.primitive.multiple_results else [result]
