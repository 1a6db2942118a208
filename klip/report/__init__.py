"""What a person looks at: figures in one style.

Knows shapes and theory; only the commands import it.
"""
