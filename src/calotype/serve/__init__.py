"""A persistent deployment: the server owns the queue and the interfaces, workers own engines.

One server process accepts requests, stores them in SQLite (`queue/`) and dispatches them to its workers
(`scheduler/`), one process for each GPU or MIG slice (`worker/`), over a channel of messages (`ipc/`). A
worker that dies loses no jobs: they go back to the queue. A server that dies takes its workers with it and
continues at its next start. Interfaces (`http/`, `grpc/`) call a `Service` (`service.py`) and nothing else.
"""
