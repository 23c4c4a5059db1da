"""NVIDIA GPUs: the driver, memory, and programs on them. Loaded when a GPU is first asked for."""
