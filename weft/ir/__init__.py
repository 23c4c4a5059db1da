"""Types, the card of a primitive, and jaxprs with their printer, verifier and interpreter."""
