"""Libraries: programs as C libraries and WebAssembly modules, which run without Python."""
