"""Stores measurements, one JSON Lines file per run, and queries them.

Reading order: `store` (append and read), `columns` (the flat table of a measurement), `query` (SQL over it).
"""
