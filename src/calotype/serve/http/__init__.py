"""The HTTP interface of a `Service`: native jobs, OpenAI, A1111 and ComfyUI routes, operations.

Every request passes `middleware/access_log.py` (request id, access log) and `middleware/security.py` (host,
origin, key, size and shape of the body) before a route sees it. Routes read bodies with `request_body.py`,
wait with `disconnect.py` and stream with `sse.py`. `errors.py` turns errors into responses, and
`connection_limits.py` closes slow connections.
Reading order: `app.py`, `middleware/security.py`, `routes/jobs.py`, `routes/openai/images.py`,
`routes/a1111/api.py`, `routes/comfyui/queue.py`.
"""
