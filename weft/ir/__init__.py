"""Types, the class of a primitive with its rules, and jaxprs with their printer, verifier and interpreter."""
