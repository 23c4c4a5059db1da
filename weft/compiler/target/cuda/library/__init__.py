"""Equations that are calls of NVIDIA's libraries: which, and with which parameters.

`compose` finds groups of equations that a library computes by one call (a matmul with what follows it, a convolution,
attention) and makes each a fusion of the kind "library". `planning.plan` returns the call of such a fusion, or of an
unfused equation. What a call is, in integers, is a record of `calls`: the runtime reads it back
(`runtime/cuda/libraries`). Nothing here needs a GPU, or the libraries themselves.
"""
