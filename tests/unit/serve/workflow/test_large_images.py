"""A client that has a huge image decoded by a real deployment, and what others notice of it."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from calotype.core.process import process_start_time
from calotype.serve.lifecycle.registry import Endpoint
from tests.polling import until
from tests.unit.serve.workflow.conftest import Connect

SIDE = 8192
"""The most that `requests.max_given_pixels` allows; a preview of it takes many seconds."""


def decoding_processes(server: int) -> set[int]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, status = (process / "cmdline").read_bytes(), (process / "stat").read_text()
        except OSError:
            continue
        if b"calotype.serve.decoding" in command and status.rpartition(")")[2].split()[1] == str(server):
            found.add(int(process.name))
    return found


def png(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (side, side)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_huge_preview_delays_no_other_image_and_ends_with_its_connection(
    deployed: Endpoint, connect: Connect
) -> None:
    other, server = connect(), deployed.pid
    other.upload(png(SIDE), "huge.png")
    before = decoding_processes(server)
    where = urlsplit(deployed.http)
    query = "filename=huge.png&type=input&preview=webp"
    with socket.create_connection((where.hostname, where.port)) as attacker:
        attacker.sendall(f"GET /view?{query} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        until(lambda: decoding_processes(server) - before, "the preview is being made")
        (process,) = decoding_processes(server) - before
        for number in range(3):
            other.upload(png(8 + number), "tiny.png")
            assert other.get_bytes("/view", filename="tiny.png", type="input", preview="webp")
        attacker.setblocking(False)
        with pytest.raises(BlockingIOError):
            attacker.recv(1)
        assert process_start_time(process) is not None, "others were served before the preview was made"
    until(lambda: process_start_time(process) is None, "the process of a client that has gone is killed")
    assert other.upload(png(9), "tiny.png")
