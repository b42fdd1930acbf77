"""What is run somewhere else: a command, the nodes it runs on and what it finds there.

One spec for every back end; what only one of them knows stands in its part. Frozen and strict like a recipe,
and what its parts have to agree on is checked here. Knows nothing of how anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from calotype.core.errors import Problem, RequestError
from calotype.spec.launch_sections import (
    MAX_GPUS_IN_A_NODE,
    Count,
    Duration,
    Image,
    JobName,
    KubernetesConfig,
    LaunchSection,
    Line,
    Memory,
    MountText,
    NetworkConfig,
    Path,
    RayConfig,
    SlurmConfig,
    VariableName,
    duration_s,
    memory_mib,
)
from calotype.spec.recipe import with_tuples
from calotype.spec.validation_errors import problems_of

TASK, TASKS = "{task}", "{tasks}"
"""In a command: which task of an array this is, from 0, and how many there are."""
FOLDER = "{folder}"
"""In a command: the work folder."""


class LaunchSpec(LaunchSection):
    """A job."""

    name: JobName = "calotype"
    command: tuple[Line, ...]
    """What is run, without the word `calotype` itself: `[train, sd2-base, trainer.nodes=2]`. In an array
    `{task}` stands for the task's number, from 0, and `{tasks}` for how many there are; `{folder}` is the
    work folder."""
    launcher: Literal["torchrun", "plain"] = "torchrun"
    """`torchrun` starts as many processes as there are GPUs on every node; `plain` runs the command once."""

    nodes: Annotated[int, Field(ge=1, le=4096)] = 1
    min_nodes: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Carry on with as few nodes as this when some are lost; all of them if not said."""
    gpus_per_node: Annotated[int, Field(ge=0, le=MAX_GPUS_IN_A_NODE)] = 0
    processes_per_node: Annotated[int, Field(ge=1, le=256)] | None = None
    """One for each GPU, or a single one without GPUs, if not said."""
    cpus_per_node: Count | None = None
    memory_per_node: Memory | None = None
    """`512M`, `64G` or `2T`, in units of 1024."""
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often torchrun starts all processes again when one of them dies."""

    image: Image | None = None
    """A container to run in; the machine's own Python if not said."""
    mounts: tuple[MountText, ...] = ()
    """Folders inside the container: `SOURCE:TARGET`, with `:ro` for reading only."""
    environment: dict[VariableName, Line] = Field(default={})
    """Variables of every process; they win over those the network's settings make."""
    setup: tuple[Line, ...] = ()
    """Lines of shell before everything else, outside containers: `module load cuda`."""
    python: Path | None = None
    """The interpreter that has Calotype, there. If not said the one in use now; in an image, python3."""
    directory: Path | None = None
    """Where the command runs. If not said the folder it is handed in from; in an image, the image's own."""
    work_folder: Path = "launches/{name}"
    """Where rendered files, logs and the record of the job go; on a cluster, a folder that all nodes see."""

    time_limit: Duration | None = None
    """`30m`, `12h`, `2d`, `HH:MM:SS` or `D-HH:MM:SS`."""
    requeue: bool = True
    """When the job is preempted or its time is over: save, wait in the queue again and go on."""
    grace_s: Annotated[int, Field(ge=1, le=65535)] = 120
    """Seconds for that save: how long before the time limit the job is warned."""
    array: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """As many tasks of one command, each a job of its own."""
    array_at_once: Count | None = None
    """So many of them at the same time; as many as there is room for if not said."""

    network: NetworkConfig = NetworkConfig()
    slurm: SlurmConfig = SlurmConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()
    ray: RayConfig = RayConfig()

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Build from plain values; raises RequestError listing every problem."""
        try:
            return cls.model_validate(with_tuples(values))
        except ValidationError as error:
            disagreements = [str(d["ctx"]["error"]) for d in error.errors() if not d["loc"]]
            general = [Problem("", line) for text in disagreements for line in text.splitlines()]
            raise RequestError([*problems_of(cls, error), *general]) from None

    def changed(self, **values: Any) -> Self:
        """With other values, which are checked like the first ones."""
        return self.parse({**self.model_dump(exclude_unset=True), **values})

    @property
    def processes_on_a_node(self) -> int:
        if self.launcher == "plain":
            return 1
        return self.processes_per_node or max(self.gpus_per_node, 1)

    @property
    def num_processes(self) -> int:
        return self.nodes * self.processes_on_a_node

    @property
    def time_limit_s(self) -> int | None:
        return duration_s(self.time_limit) if self.time_limit else None

    @property
    def memory_mib(self) -> int | None:
        return memory_mib(self.memory_per_node) if self.memory_per_node else None

    @property
    def folder(self) -> str:
        """The work folder with the name put in."""
        return self.work_folder.replace("{name}", self.name)

    @property
    def interpreter(self) -> str:
        return self.python or "python3"

    def words(self) -> list[str]:
        """The command with the work folder put in, and how many tasks there are; `{task}` stays."""
        words = [word.replace(FOLDER, self.folder) for word in self.command]
        return [word.replace(TASKS, str(self.array)) for word in words] if self.array else words

    def variables(self) -> dict[str, str]:
        """The environment of every process: what the network's settings make, then what was asked for."""
        made: dict[str, str] = {}
        if self.network.interface:
            made["NCCL_SOCKET_IFNAME"] = made["GLOO_SOCKET_IFNAME"] = self.network.interface
        if self.network.efa_devices:
            # Data workers are forked, which huge pages do not survive.
            made |= {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_USE_HUGE_PAGE": "0"}
        made |= {f"NCCL_{name}": value for name, value in self.network.nccl.items()}
        return made | self.environment

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        wrong = [
            ("command", not self.command, "is empty; say what to run, for instance [train, sd2-base]"),
            (
                "min_nodes",
                self.min_nodes is not None and self.min_nodes > self.nodes,
                f"{self.min_nodes} is more than nodes, {self.nodes}; lower it",
            ),
            (
                "launcher",
                self.launcher == "plain" and self.nodes * (self.processes_per_node or 1) > 1,
                f"plain runs the command once, and {self.nodes} nodes × {self.processes_per_node or 1} "
                "processes were asked for; use torchrun, or one of each",
            ),
            (
                "array_at_once",
                self.array_at_once is not None and self.array is None,
                f"{self.array_at_once} says something about an array; set array too",
            ),
            (
                "command",
                self.array is None and any(TASK in word or TASKS in word for word in self.command),
                f"{TASK} and {TASKS} say something about an array; set array too",
            ),
            (
                "grace_s",
                self.time_limit_s is not None and self.grace_s >= self.time_limit_s,
                f"{self.grace_s} s of warning leave nothing of the time limit, {self.time_limit}; lower it, "
                "or allow more time",
            ),
        ]
        found = [f"{name}: {rule}" for name, is_wrong, rule in wrong if is_wrong]
        if found:
            raise ValueError("\n".join(found))
        return self
