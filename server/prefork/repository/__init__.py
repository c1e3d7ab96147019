"""Models on disk, and what each of them asks for. Nothing here runs a model's code."""
