"""Bindings to NVIDIA's libraries by ctypes: their locations, and the calls that programs make.

A `Call` step of a program has a routine and integers. `LibraryCalls.prepare` converts it, once for each GPU, to a
function of a stream and addresses: it creates descriptors and chooses an algorithm of the library. In a stream that is
captured, the function adds nodes to the graph.
"""
