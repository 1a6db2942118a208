"""What runs say: studies of them, statistics over seeds, findings, tables.

Knows runs and shapes, and draws nothing; `klip.draw`, `klip.pages` and the commands import it.
"""
