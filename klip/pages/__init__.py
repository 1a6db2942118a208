"""Pages for a browser: the report of a study, the token experiment, the explorer of shapes.

Knows disk, shapes, theory, runs, studies and draw; only the commands import it.
"""
