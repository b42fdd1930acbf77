"""Workers on the nodes of a Ray cluster, with the same protocol as local workers.

Reading order: `settings` (resources of a replica), `worker_host` (runs on a node: a worker and its socket),
`actor_worker` (the server's handle on a replica), `cluster` (connects to a cluster or starts one). Only the
last two import ray, and a server without Ray does not import them.
"""
