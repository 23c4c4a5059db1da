"""NVIDIA's libraries without a GPU: the functions that Weft calls, with the same arguments, computed by NumPy in the
memory of a simulated GPU. Constants are written down here once more, so that a wrong one is found."""
