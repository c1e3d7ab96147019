"""One call of the model for many requests."""
