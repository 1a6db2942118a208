"""What runs say: studies of them, statistics over seeds, findings, tables.

Knows disk, shapes, ppo, runs and engine, and draws nothing; draw, pages and the commands import it.
"""
