"""The one mechanism under `weft.linen` and `weft.haiku`: scopes, variables, streams of random keys, lifting."""
