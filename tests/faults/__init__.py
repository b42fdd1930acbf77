"""Deployments under kill -9 and worse. `python -m tests.faults --kills 50` is the long form.

Read `ledger` (what a client was promised), `client` (who asks), `storm` (who is killed), `checks` (what must
hold in the end).
"""
