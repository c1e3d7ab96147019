"""A model in a process of its own: both ends of the conversation with it, and that process's main."""
