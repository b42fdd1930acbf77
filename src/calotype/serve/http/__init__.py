"""HTTP in front of a `Service`: OpenAI's image routes, native jobs, A1111's routes, operations.

Every request passes `logs.py` (its id, the access log) and `door.py` (host, origin, key, size and shape of
the body) before a route sees it. Routes read bodies by `bodies.py`, wait by `waiting.py`, stream by
`events.py`, and whatever goes wrong is answered by `errors.py`; `connections.py` closes what is too slow.
Reading order: `app.py`, `door.py`, `jobs.py`, `openai.py`, `sdapi.py`.
"""
