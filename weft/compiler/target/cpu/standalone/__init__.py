"""Programs as functions of a C library: a driver in LLVM text runs the steps, without Python and without bytecode."""
