"""Images that clients send or look at, decoded outside the server process.

`decoder.py` is what interfaces call. `turns.py` decides which client is next and how many pixels are decoded
at a time. `process.py` is the program of a decoding process, `processes.py` starts and ends such processes,
`frames.py` is what they exchange, `operations.py` what is made of an image.
"""
