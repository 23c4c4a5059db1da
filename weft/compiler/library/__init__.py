"""Equations that are calls of libraries: large products by BLAS, matrix factorisations by LAPACK, the rest by NumPy.

`plan(equation)` says what to call, with which numbers and how much scratch memory; `address(name)` compiles a routine
when it is first asked for and gives its address. Plans for batches of matrices are made in `batches` and those for
products in `products`; `writer` and `blas` write their code, in which `guard` keeps the library to one thread.
"""

from weft.compiler.library.calls import Call
from weft.compiler.library.planning import plan
from weft.compiler.library.routines import address

__all__ = ["Call", "address", "plan"]
