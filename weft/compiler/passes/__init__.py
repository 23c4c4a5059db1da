"""Passes over jaxprs, one file each: pure functions `Jaxpr -> Jaxpr` that also enter the programs that equations carry."""
