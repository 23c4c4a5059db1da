"""The compiler: from a program over arrays to machine code, in four levels (jaxpr, Program, Kernel, LLVM text)."""
