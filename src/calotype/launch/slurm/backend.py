"""Slurm as a back end. Puts the files of this room together."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from calotype.core.errors import Problem
from calotype.launch.backend import JobRecord, JobStatus, LaunchError, LogsWanted, Rendered
from calotype.launch.log_files import lines_of
from calotype.launch.slurm.commands import run_slurm
from calotype.launch.slurm.preflight import partitions, partitions_of, problems_with
from calotype.launch.slurm.sbatch import rendered
from calotype.launch.slurm.status import number_of, status_of
from calotype.spec.launch import LaunchSpec


class SlurmBackend:
    """Jobs of the cluster whose programs are on this machine."""

    name = "slurm"

    def render(self, spec: LaunchSpec) -> Rendered:
        return rendered(spec)

    def check(self, spec: LaunchSpec) -> list[Problem]:
        return problems_with(spec, partitions())

    def gpus_of_a_node(self, spec: LaunchSpec, /) -> int:
        kind, chosen = spec.slurm.gpu_type, partitions_of(spec, partitions())
        most = (max((node.num_gpus(kind) for node in one.nodes), default=0) for one in chosen)
        # So few that each partition with GPUs can run it.
        return min((number for number in most if number), default=0)

    def submit(self, spec: LaunchSpec, folder: Path, rendered: Rendered, /) -> str:
        script = folder / rendered.main
        try:
            # Told apart by a semicolon, the cluster's name may follow.
            return run_slurm("sbatch", "--parsable", str(script)).strip().partition(";")[0]
        except LaunchError:
            # A controller that is busy may take a job and lose the answer.
            number = number_of(script, spec.name)
            if number is None:
                raise
            return number
        except BaseException:
            number = number_of(script, spec.name)
            if number is not None:
                run_slurm("scancel", number)
            raise

    def status(self, record: JobRecord) -> JobStatus:
        return record.ended or status_of(record)

    def logs(self, record: JobRecord, wanted: LogsWanted) -> Iterable[str]:
        return lines_of(record, wanted, lambda: self.status(record).state.is_over)

    def cancel(self, record: JobRecord) -> None:
        run_slurm("scancel", record.handle)
