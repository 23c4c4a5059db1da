"""The level below the fused jaxpr: ordered steps over memory, with loops and branches as steps."""
