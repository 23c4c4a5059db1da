"""Equations that are calls of libraries: large products by BLAS, matrix factorisations by LAPACK, the rest by NumPy.

`planning.plan(equation)` says what to call, with which numbers and how much scratch memory; `routines.address(name)`
compiles a routine when it is first asked for and gives its address. Plans for batches of matrices are made in `batches`
and those for products in `products`; `texts`, `writer` and `blas` write their code, in which `guard` keeps the library
to one thread.
"""
