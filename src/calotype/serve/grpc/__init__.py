"""gRPC in front of a `Service`.

`calotype.proto` says what can be called; scripts/generate-grpc makes `calotype_pb2*` of it. Every call passes
`door.py` (its id, its key, errors as status codes) before `servicer.py` sees it; `wire.py` turns messages
into plain values and back. Reading order: `calotype.proto`, `server.py`, `door.py`, `servicer.py`.
"""
