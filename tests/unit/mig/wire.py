"""The pretended machine's end of `stand_in_nvml.c`: one line asked, one line answered."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from calotype.mig.simulation import rules
from calotype.mig.simulation.host import Card, Host, shared_host
from calotype.mig.simulation.rules import COMPUTE_SIZES, Code, SimulatedRefusalError

Answers = list[int | str]


def _profile(card: Card, k: int) -> Answers:
    if k >= len(card.gpu.profiles):
        raise SimulatedRefusalError(Code.NOT_SUPPORTED)
    p = card.gpu.profiles[k]
    engines = (p.copy_engines, p.decoders, p.encoders, p.jpeg_engines, p.ofa_engines)
    figures = [p.profile_id, p.compute_slices, p.max_instances, p.sms or 0, *(each or 0 for each in engines)]
    return [*figures, p.memory_bytes // 2**20, f"MIG {p.name}"]


def _compute_profile(card: Card, gi: int, number: int) -> Answers:
    cut = next(cut for cut in card.cuts if cut.gi == gi)
    room = card.gpu.by_id(cut.profile_id).compute_slices
    usual = rules.usual_compute(card.gpu, cut.profile_id)
    size = COMPUTE_SIZES.get(number)
    # A double-memory shape has a compute profile of its own, and no other has that one.
    if size is None or size > room or (7 in (usual, number) and usual != number):
        raise SimulatedRefusalError(Code.NOT_SUPPORTED)
    return [number, size, 14 * size]


def _compute_instance(card: Card, gi: int, ci: int) -> Answers:
    part = next((p for cut in card.cuts if cut.gi == gi for p in cut.parts if p.ci == ci), None)
    if part is None:
        raise SimulatedRefusalError(Code.NOT_FOUND)
    return [part.profile_id, part.start, part.size]


def _instance(card: Card, gi: int) -> Answers:
    cut = next((cut for cut in card.cuts if cut.gi == gi), None)
    if cut is None:
        raise SimulatedRefusalError(Code.NOT_FOUND)
    return [cut.profile_id, cut.start, card.gpu.by_id(cut.profile_id).memory_slices]


def _mig_device(card: Card, index: int) -> Answers:
    parts = [(cut.gi, part.ci) for cut in card.cuts for part in cut.parts]
    if index >= len(parts):
        raise SimulatedRefusalError(Code.NOT_FOUND)
    return list(parts[index])


def _placements(card: Card, profile_id: int) -> Answers:
    profile = card.gpu.by_id(profile_id)
    return [len(profile.starts), *(n for start in profile.starts for n in (start, profile.memory_slices))]


def _listed(ids: list[int]) -> Answers:
    return [len(ids), *ids]


def _processes(card: Card) -> Answers:
    rows = [(each.pid, each.used_bytes, 0xFFFFFFFF if each.gi is None else each.gi) for each in card.holders]
    return [len(rows), *(number for row in rows for number in row)]


_READS: dict[str, Callable[[Card, int, int], Answers]] = {
    "card": lambda card, a, b: [],
    "name": lambda card, a, b: [f"NVIDIA {card.model.replace('-', ' ')}"],
    "uuid": lambda card, a, b: [card.uuid if a < 0 else card.slice_uuid(a, b)],
    "capability": lambda card, a, b: [int(part) for part in card.gpu.compute_capability.split(".")],
    "pci": lambda card, a, b: [int(card.gpu.pci_device_ids[0], 16)],
    "mode": lambda card, a, b: [int(card.current), int(card.pending)],
    "profile": lambda card, a, b: _profile(card, a),
    "placements": lambda card, a, b: _placements(card, a),
    "instances": lambda card, a, b: _listed([cut.gi for cut in card.cuts if cut.profile_id == a]),
    "instance": lambda card, a, b: _instance(card, a),
    "compute_profile": lambda card, a, b: _compute_profile(card, a, b),
    "compute_instances": lambda card, a, b: _listed(
        [part.ci for cut in card.cuts if cut.gi == a for part in cut.parts if part.profile_id == b]
    ),
    "compute_instance": lambda card, a, b: _compute_instance(card, a, b),
    "mig_device": lambda card, a, b: _mig_device(card, a),
    "processes": lambda card, a, b: _processes(card),
}
_CHANGES: dict[str, Callable[[Host, int, int, int, int], Answers]] = {
    "set_mode": lambda host, i, a, b, c: [int(rules.set_mode(host, i, bool(a)))],
    "create": lambda host, i, a, b, c: [rules.create_gpu_instance(host, i, a, b).gi],
    "destroy": lambda host, i, a, b, c: [rules.destroy_gpu_instance(host, i, a) or 0],
    "create_compute": lambda host, i, a, b, c: [
        rules.create_compute_instance(host, i, a, b, c if c >= 0 else None).ci
    ],
    "destroy_compute": lambda host, i, a, b, c: [rules.destroy_compute_instance(host, i, a, b) or 0],
}


def answer(host: Host, line: str) -> str:
    """NVML's return value and what else it says."""
    what, *words = line.split()
    index, a, b, c = [*(int(word) for word in words), 0, 0, 0, 0][:4]
    try:
        if not host.loaded:
            raise SimulatedRefusalError(Code.DRIVER_NOT_LOADED)
        if what in _CHANGES:
            said = _CHANGES[what](host, index, a, b, c)
        elif what in _READS:
            said = _READS[what](rules.look(host, index), a, b)
        else:
            said = _of_the_host(host, what, index)
    except SimulatedRefusalError as error:
        return str(int(error.code))
    return " ".join(["0", *map(str, said)])


def _of_the_host(host: Host, what: str, number: int) -> Answers:
    if what == "process":
        names = [each.name for card in host.cards for each in card.holders if each.pid == number]
        return [names[0]]
    return {"open": [], "count": [len(host.cards)], "driver": [host.driver_version]}[what]


@contextmanager
def served(machine: Path, socket: Path) -> Iterator[None]:
    """Answer at `socket` for as long as the block runs."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline().decode()
            with shared_host(machine) as host:
                said = answer(host, line)
            self.wfile.write(said.encode())

    with socketserver.ThreadingUnixStreamServer(str(socket), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
