"""Rights: groups, idempotence and transactions; allowed, refused, or not to be told."""

from collections.abc import Iterator

from streamcore.doctor.case import Case
from streamcore.findings import Finding
from streamcore.plan.lines import group_line


def groups(case: Case) -> Iterator[Finding]:
    """Yield a line for each consumer group."""
    if not case.facts.reachable:
        return
    for group in case.plan.groups:
        answer = case.facts.groups.get(group.wire)
        what = f"group {group.name}"
        if answer is None or answer.allowed is None:
            said = "not asked" if answer is None else answer.said
            yield Finding("unknown", what, f"its coordinator does not tell ({said})")
        elif answer.allowed:
            yield Finding("ok", what, f"{group.application} may take part")
        else:
            command = group_line(group, case.target)
            hint = "" if command else "; READ and DESCRIBE on it are needed"
            yield Finding(
                case.absent([group.application]),
                what,
                f"not granted: {group.application} may not take part{hint}",
                command,
            )


def producers(case: Case) -> Iterator[Finding]:
    """Yield whether records can be written at all, and in transactions."""
    if case.facts.reachable:
        yield _idempotence(case)
        yield _transactions(case)


def _idempotence(case: Case) -> Finding:
    answer = case.facts.idempotence
    if answer.allowed:
        return Finding("ok", "idempotence", "producers may retry without writing twice")
    if answer.allowed is None:
        return Finding("unknown", "idempotence", f"nobody could tell ({answer.said})")
    return Finding(
        "failure",
        "idempotence",
        "the broker refuses it, and every producer needs it: WRITE on a topic is enough from "
        f"brokers 2.8 on, IDEMPOTENT_WRITE on the cluster before ({answer.said})",
    )


def _transactions(case: Case) -> Finding:
    answer, needy = case.facts.transactions, ", ".join(case.exactly_once)
    if answer.allowed:
        return Finding("ok", "transactions", "allowed: exactly_once_v2 works here")
    if answer.allowed is None:
        return Finding("unknown", "transactions", f"nobody could tell ({answer.said})")
    if not needy:
        return Finding("ok", "transactions", "refused, and not needed: at_least_once")
    command = None
    if case.target.form == "heroku":
        app = f" --app {case.target.app}" if case.target.app else ""
        command = f"heroku config:set STREAMCORE_PROCESSING_GUARANTEE=at_least_once{app}"
    return Finding(
        "failure",
        "transactions",
        f"refused ({answer.said}), and exactly_once_v2 is set ({needy}); at_least_once needs none",
        command,
    )
