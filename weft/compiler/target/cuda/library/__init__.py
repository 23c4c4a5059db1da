"""Library calls of NVIDIA's libraries: which equations they compute, and their parameters.

`compose` finds groups of equations that one call computes (a matmul with an epilogue, a convolution, attention) and
makes each a fusion of kind "library". `planning.plan` returns the call of such a fusion, or of an unfused equation. A
call is a record of integers in `calls`, which the runtime reads (`runtime/cuda/libraries`). Nothing here needs a GPU or
the libraries themselves.
"""
