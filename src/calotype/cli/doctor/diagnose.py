"""Derives findings from facts about a machine, as a pure function."""

from calotype.cli.doctor import gpu_checks, host_checks, package_checks
from calotype.cli.doctor.types import Facts, Finding, Level

_SEVEREST_FIRST = (Level.PROBLEM, Level.WARNING, Level.NOTE, Level.OK)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """All findings, most severe first, otherwise in the order of the report."""
    found = [*package_checks.findings(facts), *gpu_checks.findings(facts), *host_checks.findings(facts)]
    return tuple(sorted(found, key=lambda finding: _SEVEREST_FIRST.index(finding.level)))
