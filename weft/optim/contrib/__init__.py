"""Methods that others contributed: less settled than the rest."""
