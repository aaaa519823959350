"""Processes that judge and can be killed: a pool, the server that forks its workers, and the worker."""
