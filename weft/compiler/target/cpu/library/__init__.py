"""Equations that are calls of libraries: large matmuls by BLAS, matrix factorisations by LAPACK, the rest by NumPy.

`planning.plan(equation)` says what to call, with which parameters and how much scratch memory; `routines.address(name)`
compiles a routine when it is first asked for and returns its address. Plans for batches of matrices are in `batches`
and those for matmuls in `matmuls`; `texts`, `writer` and `blas` write their code, in which `guard` keeps the library
to one thread.
"""
