"""CPU backend: target description, kernels to LLVM text, and text to machine code that is called by address."""
