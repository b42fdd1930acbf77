"""Load on a deployment and on a plain diffusers server, by the clock.

Read `driving` (who asks when), `figures` (what is told of the answers), `asking` (over which interface),
`watching` (what the deployment says of itself), `accounts` (nothing lost, nothing doubled), `targets` (what
is asked, started and stopped), `run` (the phases of a run), then `records` and `report`.
"""
