"""Topics: missing ones, partition counts, rights, what the broker would forget, and the budget."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from streamcore import heroku
from streamcore.cluster import TopicFacts
from streamcore.doctor.case import Case, users_of
from streamcore.findings import Finding, Level
from streamcore.plan.lines import anew_line, heroku_topic, topic_line
from streamcore.plan.topics import PlannedTopic
from streamcore.runtime import internal_topics
from streamcore.runtime.ports import TopicSpec

_HOUR_MS: Final = 3_600_000
_OURS: Final = ("changelog", "repartition")


def topics(case: Case) -> Iterator[Finding]:
    """Yield a line for each topic that the services use, and one for each pair that misfits."""
    if not case.facts.reachable:
        return
    for reason in case.misfits:
        yield Finding("failure", "partitions", reason)
    for topic in case.plan.topics:
        found = case.facts.topics.get(topic.wire)
        if topic.wire in case.facts.hidden:
            yield _finding(
                "failure",
                topic,
                f"the broker refuses to speak of it: {case.variables['prefix']} is another's, or "
                "the right DESCRIBE is missing",
            )
        elif found is None:
            yield _missing(case, topic)
        else:
            problems = [*_problems(case, topic, found)]
            yield from problems or [_good(case, topic, found)]


def _finding(level: Level, topic: PlannedTopic, detail: str, command: str | None = None) -> Finding:
    return Finding(level, f"topic {topic.name}", detail, command)


def _missing(case: Case, topic: PlannedTopic) -> Finding:
    if topic.kind in _OURS and topic.wire in case.facts.creatable:
        return _finding("ok", topic, "missing; the first start makes it, as it may here")
    users = users_of(topic) or tuple(one.name for one in case.services)
    ending = [name for name in users if name not in case.waiting]
    waiting = [name for name in users if name in case.waiting]
    said = [
        *_said(ending, "does not start", "do not start"),
        *_said(waiting, "waits", "wait"),
    ]
    detail = f"missing; {', '.join(said)}"
    return _finding(case.absent(users), topic, detail, topic_line(topic, case.target))


def _said(names: list[str], of_one: str, of_several: str) -> Iterator[str]:
    if names:
        yield f"{', '.join(names)} {of_several if len(names) > 1 else of_one}"


def _good(case: Case, topic: PlannedTopic, found: TopicFacts) -> Finding:
    shape = f"{found.partitions} partitions x {found.replication}"
    if topic.kind not in _OURS or found.settings is not None:
        return _finding("ok", topic, shape)
    command = _heroku(case, "info", topic) if case.target.form == "heroku" else None
    return _finding(
        "unknown", topic, f"{shape}; its settings are not told (DescribeConfigs)", command
    )


def _problems(case: Case, topic: PlannedTopic, found: TopicFacts) -> Iterator[Finding]:
    if topic.kind not in _OURS and case.misfits and case.remade is not None:
        fitting = case.remade.topic(topic.wire)
        if fitting.partitions != found.partitions:
            yield _finding(
                "failure",
                topic,
                f"{found.partitions} partitions, and {fitting.partitions} would fit; made anew it "
                "loses its records",
                anew_line(fitting, case.target),
            )
    if topic.kind in _OURS and found.partitions != topic.partitions:
        yield _finding(
            "failure",
            topic,
            f"{found.partitions} partitions, and {topic.partitions} are needed; it must be made "
            "anew, which costs its records: they are state, or on their way to be counted",
            anew_line(topic, case.target),
        )
    if found.rights is not None and (refused := _needed(topic) - found.rights):
        yield _finding("failure", topic, f"this client may not {' and '.join(sorted(refused))} it")
    if found.settings is not None:
        yield from _kept(case, topic, found.settings)


def _needed(topic: PlannedTopic) -> set[str]:
    if topic.kind in _OURS:
        return {"READ", "WRITE"}
    return {
        *(["WRITE"] if topic.writers else []),
        *(["READ"] if topic.readers else []),
    }


# --- what is kept, and for how long ---------------------------------------------------------------


def _kept(case: Case, topic: PlannedTopic, settings: Mapping[str, str]) -> Iterator[Finding]:
    policy = _policies(settings)
    if topic.kind in _OURS:
        spec = TopicSpec(topic.wire, topic.partitions, topic.settings)
        for problem in internal_topics.setting_problems([spec], {topic.wire: settings}):
            command = _mend(case, topic) if "cleanup.policy" in problem else None
            yield _finding("failure", topic, _short(problem, topic), command)
    elif "compact" in policy and not topic.compaction and topic.readers:
        yield _finding(
            "warning",
            topic,
            f"cleanup.policy={','.join(sorted(policy))}: of records with one key the broker keeps "
            "the last, so some may never be read",
            _mend(case, topic),
        )
    read = topic.kind == "repartition" or (topic.kind == "outer" and topic.readers)
    if "delete" in policy and (topic.compaction or read):
        yield from _forgets(case, topic, int(settings.get("retention.ms") or -1))


def _forgets(case: Case, topic: PlannedTopic, kept_ms: int) -> Iterator[Finding]:
    """Yield it if records are deleted by time while they are needed."""
    if kept_ms < 0:
        return
    needed_ms = _needed_ms(case, topic)
    if needed_ms is None:
        yield _finding(
            "warning",
            topic,
            f"deletes by time, too: a key that is not written for {_time(kept_ms)} is forgotten",
            _as_long_as_can_be(case, topic, kept_ms),
        )
    elif kept_ms < needed_ms:
        # What has left its source is nowhere else: a worker that is away cannot read it again.
        lost = "; what is not counted by then is lost" if topic.kind == "repartition" else ""
        yield _finding(
            "failure" if topic.kind in _OURS else "warning",
            topic,
            f"deletes after {_time(kept_ms)}, and {_time(needed_ms)} are needed{lost}",
            _longer(case, topic, max(needed_ms, _told_ms(case, topic) or 0)),
        )


def _as_long_as_can_be(case: Case, topic: PlannedTopic, kept_ms: int) -> str | None:
    if case.target.form != "heroku" or not case.target.plan.shared:
        return _mend(case, topic)
    longest_ms = case.target.plan.retention_max_ms  # there it can only be so
    return _longer(case, topic, longest_ms) if kept_ms < longest_ms else None


def _needed_ms(case: Case, topic: PlannedTopic) -> int | None:
    """Return for how long records must stay; None: for ever."""
    for service in case.services:
        for sub in service.topology.sub_topologies:
            for store in sub.changelogged:
                if service.names.internal(store.changelog) == topic.wire:
                    return internal_topics.needed_for_ms(store)
    return _told_ms(case, topic)


def _told_ms(case: Case, topic: PlannedTopic) -> int | None:
    """Return the time that the command to create it has; None: none, or for ever."""
    if case.target.form != "heroku" or topic.retention_ms is None:
        return topic.retention_ms
    return heroku_topic(topic, case.target.plan).retention_ms or topic.retention_ms


def _time(ms: int) -> str:
    return f"{ms / _HOUR_MS:.3g} h" if ms >= _HOUR_MS else f"{ms / 1_000:g} s"


def _policies(settings: Mapping[str, str]) -> set[str]:
    return {one.strip() for one in settings.get("cleanup.policy", "").split(",")} - {""}


def _short(problem: str, topic: PlannedTopic) -> str:
    """Return a problem without the name in front, which the line has already."""
    return problem.partition(f"{topic.wire} ")[2] or problem


def _mend(case: Case, topic: PlannedTopic) -> str:
    if case.target.form == "heroku":
        word = "enable" if topic.compaction else "disable"
        return _heroku(case, "compaction", topic, word)
    return _kafka(case, topic, f"cleanup.policy={'compact' if topic.compaction else 'delete'}")


def _longer(case: Case, topic: PlannedTopic, keep_ms: int) -> str:
    if case.target.form == "heroku":
        return _heroku(case, "retention-time", topic, heroku.duration(keep_ms))
    # Records of a repartition topic go when they were counted, and never by time.
    keep = topic.settings["retention.ms"] if topic.kind == "repartition" else keep_ms
    return _kafka(case, topic, f"retention.ms={keep}")


def _heroku(case: Case, command: str, topic: PlannedTopic, *values: str) -> str:
    target = case.target
    return heroku.kafka_command(
        f"topics:{command}", topic.name, *values, app=target.app, cluster=target.cluster
    )


def _kafka(case: Case, topic: PlannedTopic, setting: str) -> str:
    words = ["kafka-configs.sh", "--bootstrap-server", case.target.servers, "--alter"]
    words += ["--entity-type", "topics", "--entity-name", topic.wire, "--add-config", setting]
    return shlex.join(words)


# --- budget -----------------------------------------------------------------------------------


def budget(case: Case) -> Iterator[Finding]:
    """Yield whether a shared plan has room for what is there and what is missing."""
    plan = case.target.plan
    if not case.facts.reachable or not plan.shared or case.target.form != "heroku":
        return
    there = [
        heroku.Topic(name.removeprefix(case.prefix), topic.partitions)
        for name, topic in case.facts.topics.items()
        if case.is_ours(name)
    ]
    missing = [
        heroku_topic(topic, plan)
        for topic in case.plan.topics
        if topic.wire not in case.facts.topics
    ]
    spent = heroku.budget([*there, *missing], plan)
    used = f"{spent.replicas} of {plan.replicas_max} replicas on {plan.name}"
    if spent.fits:
        yield Finding("ok", "plan", f"{used}, with what is missing" if missing else used)
        return
    for problem in spent.problems:
        guess = "" if case.plan_known else "; name the plan with --plan if it is a larger one"
        yield Finding("failure" if case.plan_known else "warning", "plan", problem + guess)
