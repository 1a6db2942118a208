"""Pictures: shapes and studies, described once, drawn by matplotlib and by Plotly in one style.

Knows disk, shapes, theory, runs and studies; `klip.pages` and the commands import it.
"""
