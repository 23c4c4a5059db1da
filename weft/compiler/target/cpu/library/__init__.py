"""Equations that are library calls: large matmuls by BLAS, matrix factorisations by LAPACK, others by NumPy.

`planning.plan(equation)` returns the call with its parameters and scratch memory; `routines.address(name)` compiles a
routine at its first use and returns its address. Plans for batches of matrices are in `batches` and those for matmuls
in `matmuls`; `texts`, `writer` and `blas` write their code, in which `guard` limits the library to one thread.
"""
