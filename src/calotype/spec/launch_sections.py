"""The parts of a launch: what is said of the network, of Slurm, Kubernetes and Ray; how values are written.

A value may end up in a shell script or a manifest: nothing here takes a line break, and names take only the
characters that every back end takes. Knows nothing of what the parts have to agree on, nor of any back end's
files.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from calotype.spec.validation_errors import short_repr

MAX_JOB_NAME_LENGTH = 40
"""Back ends add to it, and Kubernetes takes 63 characters in all."""
MAX_GPUS_IN_A_NODE = 16
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NO_TIME = "is no time; write 30m, 12h or 2d, HH:MM:SS, or D-HH:MM:SS"
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}
_NOT_ON_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What ends lines, and what YAML has no place for. Joined emoji and wide spaces are text like any other."""


def _matching(pattern: str, rule: str) -> AfterValidator:
    """A whole string of this form; `rule` says the form in words."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{short_repr(text)} {rule}")
        return text

    return AfterValidator(check)


def _one_line(text: str) -> str:
    if _NOT_ON_A_LINE.search(text):
        raise ValueError(
            f"{short_repr(text)} holds a line break or control character; write it on one line without"
        )
    return text


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("is empty; leave it out or say what is meant")
    return text


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_seconds(value: Any) -> Any:
    """YAML reads 12:00:00 as a number of seconds; less than an hour of them was no HH:MM:SS."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if value < _UNITS_S["h"]:
        raise ValueError(f"{value} {_NO_TIME}")
    return f"{value}s"


Count = Annotated[int, Field(ge=1, le=10**6)]
Line = Annotated[str, BeforeValidator(_as_text), AfterValidator(_one_line)]
"""Any text without line breaks; YAML's numbers are texts here."""
JobName = Annotated[
    str,
    _matching(
        rf"[a-z]([-a-z0-9]{{0,{MAX_JOB_NAME_LENGTH - 2}}}[a-z0-9])?",
        f"is no job name; use 1 to {MAX_JOB_NAME_LENGTH} lower-case letters, digits and '-', first a letter, "
        "last no '-'",
    ),
]
Word = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9_][A-Za-z0-9_.,:@-]*", "is no name here; use letters, digits and any of _ . , : @ -"
    ),
]
Label = Annotated[
    str,
    _matching(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "is no name here; use lower-case letters, digits and '-'"
    ),
]
VariableName = Annotated[
    str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "is no variable's name; use letters, digits and '_'")
]
Image = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9/][A-Za-z0-9_.:/@#+-]*",
        "is no image; use REGISTRY/NAME:TAG, or an absolute path of a .sqsh file for Slurm",
    ),
]
Path = Annotated[str, AfterValidator(_not_empty), AfterValidator(_one_line)]


def duration_s(text: str) -> int:
    """Seconds in `30m`, `12h`, `2d`, `HH:MM:SS` or `D-HH:MM:SS`."""
    short = re.fullmatch(r"(\d{1,8})([smhd])", text)
    if short:
        seconds = int(short[1]) * _UNITS_S[short[2]]
    else:
        clock = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,3}):([0-5]\d):([0-5]\d)", text)
        if not clock:
            raise ValueError(f"{short_repr(text)} {_NO_TIME}")
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not seconds:
        raise ValueError(f"{short_repr(text)} is no time at all; give the job at least a second")
    return seconds


def memory_mib(text: str) -> int:
    """Mebibytes in `512M`, `64G` or `2T`; units are binary."""
    found = re.fullmatch(r"(\d{1,7})([MGT])", text)
    if not found or not int(found[1]):
        raise ValueError(
            f"{short_repr(text)} is no memory; write for instance 512M, 64G or 2T (units of 1024)"
        )
    return int(found[1]) * _MIB[found[2]]


def _checked_duration(text: str) -> str:
    duration_s(text)
    return text


def _checked_memory(text: str) -> str:
    memory_mib(text)
    return text


Duration = Annotated[str, BeforeValidator(_as_seconds), AfterValidator(_checked_duration)]
Memory = Annotated[str, AfterValidator(_checked_memory)]


class LaunchSection(BaseModel):
    """Of a launch: frozen and strict, each key with what it means below it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Mount(LaunchSection):
    """A folder of the outside world inside the container. Written `SOURCE:TARGET` or `SOURCE:TARGET:ro`."""

    source: Annotated[
        str, _matching(r"(/|pvc:)[^:,]*", "is no source; use /FOLDER or pvc:CLAIM"), AfterValidator(_one_line)
    ]
    """A folder of the node, or `pvc:CLAIM`, a Kubernetes volume claim."""
    target: Annotated[
        str, _matching(r"/[^:,]*", "is no target; use /FOLDER without ':' and ','"), AfterValidator(_one_line)
    ]
    read_only: bool = False

    @property
    def claim(self) -> str | None:
        """The volume claim's name, where it is one."""
        return self.source.removeprefix("pvc:") if self.source.startswith("pvc:") else None

    def __str__(self) -> str:
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")


def _as_mount(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    _one_line(value)
    found = re.fullmatch(r"(pvc:[^:]+|[^:]+):([^:]+)(:ro)?", value)
    if not found:
        raise ValueError(f"{short_repr(value)} is no mount; write SOURCE:TARGET or SOURCE:TARGET:ro")
    return Mount(source=found[1], target=found[2], read_only=bool(found[3]))


MountText = Annotated[Mount, BeforeValidator(_as_mount)]


class NetworkConfig(LaunchSection):
    """How processes reach each other."""

    interface: (
        Annotated[
            str,
            _matching(r"\^?[A-Za-z0-9_.=-]+(,[A-Za-z0-9_.=-]+)*", "is no interface; write for instance ens5"),
        ]
        | None
    ) = None
    """What NCCL and gloo talk over, for instance `ens5`; they choose if not said."""
    efa_devices: Annotated[int, Field(ge=0, le=64)] = 0
    """Elastic Fabric Adapters a node brings: 4 on p4d, 32 on p5. Any makes libfabric use them."""
    nccl: dict[
        Annotated[
            str,
            _matching(r"(?!NCCL_)[A-Z][A-Z0-9_]*", "is no setting of NCCL; write DEBUG for NCCL_DEBUG"),
        ],
        Line,
    ] = {}
    """Settings of NCCL without their NCCL_: `{DEBUG: INFO}`."""
    rendezvous_port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Where the first node waits for the others. If not said 29500, on Slurm a port of the job's own."""


class SlurmConfig(LaunchSection):
    """What only Slurm knows."""

    partition: Word | None = None
    """One, or several with commas between: the job runs in whichever can begin it first."""
    account: Word | None = None
    qos: Word | None = None
    constraint: (
        Annotated[
            str,
            _matching(r"[A-Za-z0-9_.&|*()\[\]-]+", "is no constraint; write features such as h100&nvlink"),
        ]
        | None
    ) = None
    """Features that nodes must have."""
    reservation: Word | None = None
    gpu_type: Word | None = None
    """Which GPUs, where a partition has several kinds: `h100`."""
    exclusive: bool = False
    """Share the nodes with nobody."""


ResourceName = Annotated[
    str, _matching(r"[a-z0-9.-]+/[A-Za-z0-9_.-]+", "is no resource; write for instance nvidia.com/gpu")
]
LabelKey = Annotated[
    str,
    _matching(
        r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
        "is no label; write NAME or DOMAIN/NAME, for instance karpenter.sh/nodepool",
    ),
]
LabelValue = Annotated[
    str,
    _matching(
        r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?",
        "is no label's value; use up to 63 letters, digits and '-', '_' or '.' between them",
    ),
]


class PodPlacement(LaunchSection):
    """Where pods go on a Kubernetes cluster and what they may use there."""

    namespace: Label = "default"
    context: Line | None = None
    """Of the kubeconfig file; the current one if not said. Inside a cluster, that cluster."""
    gpu_resource: ResourceName = "nvidia.com/gpu"
    """What a GPU is called: `nvidia.com/gpu`, or a MIG slice as `nvidia.com/mig-2g.20gb`."""
    instance_type: Word | None = None
    """Only nodes of this type: `p5.48xlarge`. Of AWS's large GPU machines it is known what they have."""
    node_selector: dict[LabelKey, LabelValue] = {}
    """Only nodes with these labels."""
    tolerations: tuple[LabelKey, ...] = ("nvidia.com/gpu",)
    """Taints, by their key, that keep others off the nodes and not these pods."""
    image_pull_secrets: tuple[Label, ...] = ()
    """Secrets of the namespace with which images are pulled."""
    service_account: Label | None = None
    shared_memory: Memory = "16G"
    """Of /dev/shm, which data workers and NCCL use; it counts as the pod's memory."""


class KubernetesConfig(PodPlacement):
    """What only Kubernetes knows."""

    kind: Literal["TrainJob", "PyTorchJob"] = "TrainJob"
    """Kubeflow Trainer v2, or the training operator v1."""
    runtime: Label = "torch-distributed"
    """Of a TrainJob: the cluster's training runtime that it starts from."""
    huge_pages: Memory | None = None
    """Pages of 2 MiB for EFA, for instance `5G`; with FI_EFA_USE_HUGE_PAGE=1 in the environment."""


class RayConfig(LaunchSection):
    """What only Ray knows."""

    address: (
        Annotated[
            str,
            _matching(r"https?://[A-Za-z0-9_.\[\]:-]+(/[\w./-]*)?", "is no address; write http://HEAD:8265"),
        ]
        | None
    ) = None
    """Of the cluster's dashboard, which takes jobs. If not said that of `RAY_ADDRESS`, or of this machine."""
    resources: dict[
        Annotated[str, _matching(r"[A-Za-z0-9_.:-]+", "is no resource; write for instance mig-2g.20gb")],
        Annotated[float, Field(gt=0, le=10**6)],
    ] = {}
    """Of the cluster's own, on every node: `{mig-2g.20gb: 2}`, `{"accelerator_type:H100": 0.001}`."""
    grows: bool = False
    """The cluster starts nodes when they are wanted: do not refuse what those of now do not have."""
