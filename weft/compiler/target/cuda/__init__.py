"""Code for NVIDIA GPUs: PTX, which the driver or NVIDIA's linker assembles."""
