"""The core of `weft.linen` and `weft.haiku`: scopes, variables, streams of random keys and lifting."""
