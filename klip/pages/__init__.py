"""Pages for a browser: the report of a study, the token experiment, the explorer of shapes.

Knows studies and draw; only the commands import it.
"""
