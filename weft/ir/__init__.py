"""Types, the card of a primitive, and programs (jaxprs) with their printer, verifier and interpreter."""
