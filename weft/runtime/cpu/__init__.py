"""How CPUs compile, load and run programs."""
