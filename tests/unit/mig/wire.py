"""The pretended machine's end of `stand_in_nvml.c`: one line asked, one line answered."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from calotype.mig.layout import usual_part
from calotype.mig.simulation import rules
from calotype.mig.simulation.fake_host import FakeGpu, FakeHost, shared_host
from calotype.mig.simulation.rules import COMPUTE_SIZES, Code, SimulatedRefusalError

Answers = list[int | str]


def _profile(card: FakeGpu, k: int) -> Answers:
    if k >= len(card.gpu.profiles):
        raise SimulatedRefusalError(Code.NOT_SUPPORTED)
    p = card.gpu.profiles[k]
    engines = (p.copy_engines, p.decoders, p.encoders, p.jpeg_engines, p.ofa_engines)
    figures = [p.profile_id, p.compute_slices, p.max_instances, p.sms or 0, *(each or 0 for each in engines)]
    return [*figures, p.memory_bytes // 2**20, f"MIG {p.name}"]


def _compute_profile(card: FakeGpu, gi: int, number: int) -> Answers:
    cut = next(cut for cut in card.cuts if cut.gi == gi)
    profile = card.gpu.by_id(cut.profile_id)
    room, usual = profile.compute_slices, usual_part(card.gpu, profile).profile_id
    size = COMPUTE_SIZES.get(number)
    # A double-memory shape has a compute profile of its own, and no other has that one.
    if size is None or size > room or (7 in (usual, number) and usual != number):
        raise SimulatedRefusalError(Code.NOT_SUPPORTED)
    return [number, size, 14 * size]


def _compute_instance(card: FakeGpu, gi: int, ci: int) -> Answers:
    part = next((p for cut in card.cuts if cut.gi == gi for p in cut.parts if p.ci == ci), None)
    if part is None:
        raise SimulatedRefusalError(Code.NOT_FOUND)
    return [part.profile_id, part.start, part.size]


def _instance(card: FakeGpu, gi: int) -> Answers:
    cut = next((cut for cut in card.cuts if cut.gi == gi), None)
    if cut is None:
        raise SimulatedRefusalError(Code.NOT_FOUND)
    return [cut.profile_id, cut.start, card.gpu.by_id(cut.profile_id).memory_slices]


def _mig_device(card: FakeGpu, index: int) -> Answers:
    parts = [(cut.gi, part.ci) for cut in card.cuts for part in cut.parts]
    if index >= len(parts):
        raise SimulatedRefusalError(Code.NOT_FOUND)
    return list(parts[index])


def _placements(card: FakeGpu, profile_id: int) -> Answers:
    profile = card.gpu.by_id(profile_id)
    return [len(profile.starts), *(n for start in profile.starts for n in (start, profile.memory_slices))]


def _listed(ids: list[int]) -> Answers:
    return [len(ids), *ids]


def _processes(card: FakeGpu) -> Answers:
    rows = [(each.pid, each.used_bytes, 0xFFFFFFFF if each.gi is None else each.gi) for each in card.holders]
    return [len(rows), *(number for row in rows for number in row)]


_READS: dict[str, Callable[..., Answers]] = {
    "card": lambda *_: [],
    "name": lambda card, *_: [f"NVIDIA {card.model.replace('-', ' ')}"],
    "uuid": lambda card, a, b: [card.uuid if a < 0 else card.slice_uuid(a, b)],
    "capability": lambda card, *_: [int(part) for part in card.gpu.compute_capability.split(".")],
    "pci": lambda card, *_: [int(card.gpu.pci_device_ids[0], 16)],
    "mode": lambda card, *_: [int(card.current), int(card.pending)],
    "profile": lambda card, a, _: _profile(card, a),
    "placements": lambda card, a, _: _placements(card, a),
    "instances": lambda card, a, _: _listed([cut.gi for cut in card.cuts if cut.profile_id == a]),
    "instance": lambda card, a, _: _instance(card, a),
    "compute_profile": _compute_profile,
    "compute_instances": lambda card, a, b: _listed(
        [part.ci for cut in card.cuts if cut.gi == a for part in cut.parts if part.profile_id == b]
    ),
    "compute_instance": _compute_instance,
    "mig_device": lambda card, a, _: _mig_device(card, a),
    "processes": lambda card, *_: _processes(card),
}


_HOST = ("open", "count", "driver", "process")


def _changed(host: FakeHost, what: str, index: int, a: int, b: int, c: int) -> Answers:
    match what:
        case "set_mode":
            return [int(rules.set_mode(host, index, bool(a)))]
        case "create":
            return [rules.create_gpu_instance(host, index, a, b).gi]
        case "create_compute":
            return [rules.create_compute_instance(host, index, a, b, c if c >= 0 else None).ci]
        case "destroy":
            rules.destroy_gpu_instance(host, index, a)
        case "destroy_compute":
            rules.destroy_compute_instance(host, index, a, b)
    return []


def _of_the_host(host: FakeHost, what: str, pid: int) -> Answers:
    if what == "process":
        return [next(each.name for card in host.cards for each in card.holders if each.pid == pid)]
    answers: dict[str, Answers] = {"open": [], "count": [len(host.cards)], "driver": [host.driver_version]}
    return answers[what]


def answer(host: FakeHost, line: str) -> str:
    """NVML's return value and what else it says."""
    what, *words = line.split()
    index, a, b, c = [*(int(word) for word in words), 0, 0, 0, 0][:4]
    try:
        if not host.loaded:
            raise SimulatedRefusalError(Code.DRIVER_NOT_LOADED)
        if what in _READS:
            said = _READS[what](rules.look(host, index), a, b)
        elif what in _HOST:
            said = _of_the_host(host, what, index)
        else:
            said = _changed(host, what, index, a, b, c)
    except SimulatedRefusalError as error:
        return str(int(error.code))
    return " ".join(["0", *map(str, said)])


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
            thread.join(60)
