"""NVIDIA's libraries through ctypes: where they are, and the calls that programs make of them.

A `Call` step of a program has a routine and integers. `LibraryCalls.prepare` makes of it, once for each GPU, a function
of a stream and addresses: descriptors, and the choice among the algorithms that a library has. What it starts in a
stream that is recorded becomes a part of the graph.
"""
