"""Workers on the nodes of a Ray cluster, behind the same small protocol as those on this machine.

Reading order: `plan` (what a replica takes), `host` (what runs on a node: a worker and its socket), `replica`
(the server's handle on one), `connecting` (to a cluster, or to one of our own). Only the last two import ray,
and nobody imports them who serves without it.
"""
