"""What Prefork costs, measured beside the least that its own foundation can cost. `python -m benchmarks --help`."""
