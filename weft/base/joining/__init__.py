"""Joining of processes by an address: the protocol, the coordinator and the detection of environments.

It imports the standard library only, since the launcher needs it before the rest of Weft is loaded.
"""
