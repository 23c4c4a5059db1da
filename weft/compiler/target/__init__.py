"""What kernels become: LLVM text for CPUs and GPUs, and the mathematics of single lanes. Only here is llvmlite used."""
