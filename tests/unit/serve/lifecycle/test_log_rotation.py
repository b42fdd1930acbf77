"""A log that others write to while it is shortened."""

from pathlib import Path

from calotype.serve.lifecycle.log_rotation import shorten


def test_a_log_that_has_grown_too_large_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    shorten(log)
    assert not list(tmp_path.iterdir())
    with log.open("ab", buffering=0) as server, log.open("ab", buffering=0) as worker:
        server.write(b"1\n")
        shorten(log, 8)
        assert log.read_bytes() == b"1\n"
        for number in range(2, 7):
            (server if number % 2 else worker).write(f"{number}\n".encode())
        shorten(log, 8)
        assert (tmp_path / "server.log.1").read_bytes() == b"1\n2\n3\n4\n5\n6\n"
        worker.write(b"7\n")
        server.write(b"8\n")
    assert log.read_bytes() == b"7\n8\n", "they go on at its beginning"
