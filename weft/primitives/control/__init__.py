"""Calls, control flow, derivatives of the user's own, callbacks and checks."""
