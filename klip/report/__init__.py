"""Runs as they go on: the live view and the list of runs; only the commands import it."""
