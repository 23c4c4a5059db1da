"""Passes over jaxprs, one file each: pure functions `Jaxpr -> Jaxpr` that also enter programs which equations carry."""
