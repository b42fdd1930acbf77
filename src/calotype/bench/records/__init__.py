"""Where measurements are kept: one file of JSON Lines a run, and questions to all of them.

Reading order: `store` (append and read), `columns` (the flat table of a measurement), `query` (SQL over it).
"""
