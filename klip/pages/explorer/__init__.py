"""The explorer: any shape with its parameters on sliders, computed in the page.

Knows shapes and draw; the report and the commands import it.
"""
