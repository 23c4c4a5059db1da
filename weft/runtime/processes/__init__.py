"""Many processes that run one program together: what carries their messages, and what watches over them."""
