"""`python -m prefork.remote`, which only the supervisor calls."""

from prefork.remote.process import main

main()
