"""The Slurm backend, which combines the modules of this package."""

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
    """Runs jobs on the cluster whose Slurm programs are on this machine."""

    name = "slurm"

    def render(self, spec: LaunchSpec) -> Rendered:
        return rendered(spec)

    def check(self, spec: LaunchSpec) -> list[Problem]:
        return problems_with(spec, partitions())

    def gpus_of_a_node(self, spec: LaunchSpec, /) -> int:
        kind, chosen = spec.slurm.gpu_type, partitions_of(spec, partitions())
        largest = (max((node.num_gpus(kind) for node in each.nodes), default=0) for each in chosen)
        # The minimum, so that each partition with GPUs can run the job.
        return min((number for number in largest if number), default=0)

    def submit(self, spec: LaunchSpec, folder: Path, rendered: Rendered, /) -> str:
        script = folder / rendered.main
        try:
            # The cluster's name may follow after a semicolon.
            return run_slurm("sbatch", "--parsable", str(script)).strip().partition(";")[0]
        except LaunchError:
            # A busy controller may accept a job although its answer is lost.
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
