"""The gRPC interface of a `Service`.

`calotype.proto` defines the methods; scripts/generate-grpc generates `calotype_pb2*` from it. Every call
passes `interceptor.py` (access log, API key, status codes) before `servicer.py` handles it. `converters.py`
converts between messages and plain values.
Reading order: `calotype.proto`, `server.py`, `interceptor.py`, `servicer.py`.
"""
