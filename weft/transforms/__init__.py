"""What walks a program and asks its primitives: jvp, linearize, transpose, batch."""
