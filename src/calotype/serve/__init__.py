"""A persistent deployment: the server owns the queue and the interfaces, workers own engines.

One server process accepts requests, keeps them in SQLite (`queue/`) and hands them to its workers, one
process for each GPU or slice (`worker/`), over a channel of messages (`messages.py`). A worker that dies
loses nothing: its jobs go back to the queue. A server that dies takes its workers with it and goes on where
it stopped. Interfaces (`http/`, `grpc/`) call a `Service` (`service.py`) and nothing else.
"""
