"""Kernel: one fusion as loops, loads, stores and typed operations over lanes; its printer, verifier and interpreter."""
