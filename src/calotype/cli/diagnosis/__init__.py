"""Turns facts about a machine into findings that say what they mean for the user.

Pure: asks no hardware, prints nothing.
"""

from calotype.cli.diagnosis import cards, host, software
from calotype.cli.diagnosis.facts import Facts, Finding, Level

_SEVEREST_FIRST = (Level.PROBLEM, Level.WARNING, Level.NOTE, Level.OK)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Every finding, the severest first and otherwise in the order of the report."""
    found = [*software.findings(facts), *cards.findings(facts), *host.findings(facts)]
    return tuple(sorted(found, key=lambda finding: _SEVEREST_FIRST.index(finding.level)))
