"""Adapters, one file per kind of data. A kind is recognised by its methods, so its library is never imported."""
