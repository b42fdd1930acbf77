"""Load tests of a deployment and of a baseline diffusers server.

Reading order: `load_generator` (request timing), `stats` (latency and throughput), `clients` (interfaces),
`server_metrics` (metrics and memory of the deployment), `reconcile` (lost and duplicated jobs), `targets`
(starts and stops servers), `run` (the phases of a run), then `measurement` and `report`.
"""
