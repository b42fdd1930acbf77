"""Decodes clients' images outside the server process.

Interfaces call `decoder.py`. `fair_queue.py` decides which client is next and how many pixels are decoded at
a time. `child_process.py` is the program of a decoding process, `process_pool.py` starts and ends such
processes, `frames.py` is their wire format, and `operations.py` holds the operations on images.
"""
