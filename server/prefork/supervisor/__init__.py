"""The one process that loads, watches, replaces, drains and kills the processes of models."""
