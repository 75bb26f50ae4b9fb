"""Diagnosis: all findings of a case in the order in which one thing depends on another."""

from collections.abc import Iterator

from streamcore.doctor.brokers import brokers, prefix
from streamcore.doctor.case import Case
from streamcore.doctor.rights import groups, producers
from streamcore.doctor.topics import budget, topics
from streamcore.findings import Finding

_PARTS = (brokers, prefix, topics, groups, budget, producers)


def diagnose(case: Case) -> Iterator[Finding]:
    """Yield what is to be said of a cluster; a cluster that is away is all there is to say."""
    for part in _PARTS:
        yield from part(case)
