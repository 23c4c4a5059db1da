"""From a fusion to a kernel, one emitter a hero; everything that is not the hero is the value at an index."""
