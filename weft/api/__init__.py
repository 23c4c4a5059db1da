"""jit, grad, vmap and friends: thin functions that put the floors together."""
