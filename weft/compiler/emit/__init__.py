"""From a fusion to its kernels, one emitter per hero; everything else in a fusion is the value at an index."""
