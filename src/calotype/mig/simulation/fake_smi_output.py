"""Renders the output of the fake `nvidia-smi`, column for column as captured from real ones.

Widths depend on the driver's generation.
"""

from html import escape

from calotype.mig.profiles import GIB, Profile
from calotype.mig.simulation import rules
from calotype.mig.simulation.fake_host import FakeGpu, FakeHost, Part

_UNKNOWN = "N/A"


def bus_id(index: int) -> str:
    return f"{index + 1:08X}:00:00.0"


def _generation(host: FakeHost) -> int:
    """0 before R470, 1 before R570, 2 since."""
    major = int(host.driver_version.split(".")[0])
    return (major >= 470) + (major >= 570)


def compute_name(card: FakeGpu, gi: int, part: Part) -> str:
    """`2g.20gb` for the whole slice, `1c.2g.20gb` for a part of it."""
    cut = next(each for each in card.cuts if each.gi == gi)
    profile = card.gpu.by_id(cut.profile_id)
    whole = part.size == profile.compute_slices
    return profile.plain_name if whole else f"{part.size}c.{profile.plain_name}"


def profiles(host: FakeHost, index: int) -> str:
    """`mig -lgip`."""
    card = host.cards[index]
    width = (15, 18, 20)[_generation(host)]
    rule = f"+{'-' * (59 + width)}+"
    lines = [
        rule,
        f"| {'GPU instance profiles:':<{58 + width}}|",
        f"| GPU   {'Name':<{width - 1}}ID    Instances   Memory     P2P    SM    DEC   ENC  |",
        f"|{' ' * (12 + width)}Free/Total   GiB              CE    JPEG  OFA  |",
        f"|{'=' * (59 + width)}|",
    ]
    for profile in card.gpu.profiles:
        free = _num_free(card, profile)
        lines += [*_profile_rows(index, profile, free, width), rule]
    return "\n".join(lines)


def _profile_rows(index: int, profile: Profile, free: int, width: int) -> list[str]:
    gib = f"{profile.memory_bytes / GIB:.2f}"
    name, sms = f"MIG {profile.name}", profile.sms or 0
    dec, enc = profile.decoders or 0, profile.encoders or 0
    ce, jpeg, ofa = profile.copy_engines or 0, profile.jpeg_engines or 0, profile.ofa_engines or 0
    return [
        f"| {index:3d}  {name:<{width}}{profile.profile_id:>2}     {free}/{profile.max_instances}        "
        f"{gib:<11}No     {sms:<7}{dec:<6}{enc}   |",
        f"|{' ' * (43 + width)}{ce:<6}{jpeg:<6}{ofa}   |",
    ]


def _num_free(card: FakeGpu, profile: Profile) -> int:
    """Number of additional instances of this profile that fit."""
    trial = FakeGpu(card.model, card.uuid, current=True, cuts=list(card.cuts))
    host, count = FakeHost([trial]), 0
    for start in profile.starts:
        try:
            rules.create_gpu_instance(host, 0, profile.profile_id, start)
        except rules.SimulatedRefusalError:
            continue
        count += 1
    return count


def placements(host: FakeHost, index: int) -> str:
    """`mig -lgipp`."""
    lines = []
    for profile in host.cards[index].gpu.profiles:
        word = "Placements:" if len(profile.starts) > 1 else "Placement :"
        starts = ",".join(map(str, profile.starts))
        lines.append(
            f"GPU {index:>2} Profile ID {profile.profile_id:>2} {word} {{{starts}}}:{profile.memory_slices}"
        )
    return "\n".join(lines)


def instances(host: FakeHost, index: int) -> str:
    """`mig -lgi`."""
    width = (17, 20, 22)[_generation(host)]
    rule = f"+{'-' * (35 + width)}+"
    lines = [
        rule,
        f"| {'GPU instances:':<{34 + width}}|",
        f"| GPU   {'Name':<{width - 3}}Profile  Instance   Placement  |",
        f"|{' ' * (6 + width)}ID       ID       Start:Size |",
        f"|{'=' * (35 + width)}|",
    ]
    card = host.cards[index]
    for cut in sorted(card.cuts, key=lambda each: (each.profile_id, each.gi)):
        profile = card.gpu.by_id(cut.profile_id)
        name = f"MIG {profile.name}"
        place = f"{cut.start}:{profile.memory_slices}"
        lines += [
            f"| {index:3d}  {name:<{width}}{profile.profile_id:>2}       {cut.gi:>2}          {place}     |",
            rule,
        ]
    return "\n".join(lines)


def compute_instances(host: FakeHost, index: int) -> str:
    """`mig -lci`."""
    rule = f"+{'-' * 68}+"
    lines = [
        rule,
        f"| {'Compute instances:':<67}|",
        "| GPU     GPU       Name             Profile   Instance   Placement  |",
        "|       Instance                       ID        ID       Start:Size |",
        f"|         {'ID':<59}|",
        f"|{'=' * 68}|",
    ]
    card = host.cards[index]
    for cut in sorted(card.cuts, key=lambda each: each.gi):
        for part in cut.parts:
            name = f"MIG {compute_name(card, cut.gi, part)}"
            lines += [
                f"| {index:3d}     {cut.gi:>2}       {name:<20}{part.profile_id:>2}        "
                f"{part.ci:>2}          {part.start}:{part.size}     |",
                rule,
            ]
    return "\n".join(lines)


def devices(host: FakeHost, which: list[int]) -> list[str]:
    """`-L`."""
    lines = []
    for index in which:
        card = host.cards[index]
        lines.append(f"GPU {index}: {_product(card)} (UUID: {card.uuid})")
        for number, (gi, part) in enumerate(_slices(card)):
            name = f"MIG {compute_name(card, gi, part)}"
            lines.append(f"  {name:<15} Device {number:>2}: (UUID: {card.slice_uuid(gi, part.ci)})")
    return lines


def _slices(card: FakeGpu) -> list[tuple[int, Part]]:
    if not card.current:
        return []
    return [(cut.gi, part) for cut in sorted(card.cuts, key=lambda each: each.gi) for part in cut.parts]


def _product(card: FakeGpu) -> str:
    return f"NVIDIA {card.model.replace('-', ' ')}"


def query(host: FakeHost, which: list[int]) -> str:
    """`-q -x`, the parts that concern slices."""
    gpus = "".join(_gpu_xml(index, host.cards[index]) for index in which)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<driver_version>{host.driver_version}</driver_version>\n"
        f"\t<attached_gpus>{len(host.cards)}</attached_gpus>\n{gpus}</nvidia_smi_log>"
    )


def _gpu_xml(index: int, card: FakeGpu) -> str:
    def word(enabled: bool) -> str:
        return "Enabled" if enabled else "Disabled"

    slices = "".join(
        f"\t\t\t<mig_device>\n\t\t\t\t<index>{number}</index>\n\t\t\t\t<gpu_instance_id>{gi}</gpu_instance_id>\n"
        f"\t\t\t\t<compute_instance_id>{part.ci}</compute_instance_id>\n\t\t\t</mig_device>\n"
        for number, (gi, part) in enumerate(_slices(card))
    )
    processes = "".join(
        "\t\t\t<process_info>\n"
        f"\t\t\t\t<gpu_instance_id>{_UNKNOWN if each.gi is None else each.gi}</gpu_instance_id>\n"
        f"\t\t\t\t<pid>{each.pid}</pid>\n\t\t\t\t<type>C</type>\n"
        f"\t\t\t\t<process_name>{escape(each.name)}</process_name>\n"
        f"\t\t\t\t<used_memory>{each.used_bytes // 2**20} MiB</used_memory>\n\t\t\t</process_info>\n"
        for each in card.holders
    )
    device = next(iter(card.gpu.pci_device_ids), "0x0").removeprefix("0x")
    return (
        f'\t<gpu id="{bus_id(index)}">\n\t\t<product_name>{_product(card)}</product_name>\n'
        f"\t\t<mig_mode>\n\t\t\t<current_mig>{word(card.current)}</current_mig>\n"
        f"\t\t\t<pending_mig>{word(card.pending)}</pending_mig>\n\t\t</mig_mode>\n"
        f"\t\t<mig_devices>\n{slices or f'{chr(9) * 3}None{chr(10)}'}\t\t</mig_devices>\n"
        f"\t\t<uuid>{card.uuid}</uuid>\n\t\t<pci>\n\t\t\t<pci_device_id>{device}</pci_device_id>\n\t\t</pci>\n"
        f"\t\t<processes>\n{processes}\t\t</processes>\n\t</gpu>\n"
    )
