"""What runs say: studies of them, statistics over seeds, findings, tables.

Knows runs, shapes, the settings of the paper's PPO and the samples of token runs, and draws
nothing; `klip.draw`, `klip.pages` and the commands import it.
"""
