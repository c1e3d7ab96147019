"""The server's own processes: gunicorn's arbiter and workers, with what Prefork adds. Nothing above knows gunicorn."""
