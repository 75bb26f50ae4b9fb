"""Brokers and the prefix: who answers, why the others do not, and whether the names are ours."""

import re
from collections.abc import Iterator
from typing import Final

from streamcore.cluster import BrokerFacts, Reach
from streamcore.doctor.case import Case
from streamcore.findings import Finding, Level

# What a shared cluster hands out: words and a number, with a dot behind.
_HANDED_OUT: Final = re.compile(r"[a-z]+(?:-[a-z]+)*-[0-9]+\.")

_OWN_PREFIX: Final = "STREAMCORE_PREFIX"

_WHY: Final[dict[Reach, str]] = {
    "nobody": "nobody listens there",
    "unresolved": "there is no such host",
    "silent": "no answer in time: a firewall, or a broker that hangs",
    "foreign": (
        "its certificate does not come from the authority in {kafka_trusted_cert}, so it is not "
        "trusted"
    ),
    "refuses us": (
        "it hangs up on our certificate ({kafka_client_cert}, {kafka_client_cert_key}): missing, "
        "expired, or of another cluster"
    ),
    "plain": (
        "it hangs up on TLS, as one does that speaks none; then {kafka_url} must begin with "
        "kafka://"
    ),
    "tls": (
        "it hangs up at the first word; if it speaks TLS, {kafka_url} must begin with kafka+ssl://"
    ),
    "trouble": "it cannot be asked",
}
# librdkafka's own words for these name settings that nobody here has made.
_SAYS_IT_ALL: Final[frozenset[Reach]] = frozenset({"nobody", "unresolved", "foreign", "plain"})
_MENDED_BY: Final[dict[Reach, str]] = {
    "nobody": "heroku kafka:info",
    "unresolved": "heroku config:get {kafka_url}",
    "silent": "heroku kafka:info",
    "foreign": "heroku config:get {kafka_trusted_cert}",
    "refuses us": "heroku kafka:credentials --reset",
}


def brokers(case: Case) -> Iterator[Finding]:
    """Yield a line for those that answer, and one for each that does not."""
    found = case.facts.brokers
    answering = [one for one in found if one.reach == "answers"]
    if answering:
        how = "over TLS, the chain checked" if case.config.brokers.tls else "without TLS"
        yield Finding("ok", "brokers", f"{len(answering)} of {len(found)} answer, {how}")
    for broker in found:
        if broker.reach != "answers":
            yield _silent(case, broker, "warning" if answering else "failure")


def _silent(case: Case, broker: BrokerFacts, level: Level) -> Finding:
    if broker.advertised:  # clients are sent there whatever the settings say
        level = "failure"
    why = _WHY[broker.reach].format(**case.variables)
    if broker.advertised:
        why = f"the cluster sends clients there, and {why}"
    said = f" ({broker.said})" if broker.said and broker.reach not in _SAYS_IT_ALL else ""
    command = None
    if case.target.form == "heroku" and broker.reach in _MENDED_BY:
        command = _MENDED_BY[broker.reach].format(**case.variables)
        if command.startswith("heroku kafka:") and case.target.cluster is not None:
            command = f"{command} {case.target.cluster}"
    return Finding(level, f"broker {broker.address}", f"{why}{said}", _for_app(command, case))


def _for_app(command: str | None, case: Case) -> str | None:
    app = case.target.app
    return command if command is None or app is None else f"{command} --app {app}"


def prefix(case: Case) -> Iterator[Finding]:
    """Yield what speaks for another prefix than the one that is set."""
    if not case.facts.reachable:
        return
    seen = [name for name in case.facts.topics if not name.startswith("__")]
    variable = case.variables["prefix"]
    hidden = case.facts.hidden.issuperset(topic.wire for topic in case.plan.topics)
    if case.prefix and hidden:
        yield Finding(
            "failure",
            "prefix",
            f"{variable} is {case.prefix}, and the broker speaks of no topic behind it: it is "
            "another's, or this client has no rights",
            _right_prefix(case),
        )
    elif case.prefix:
        yield from _with_prefix(case, seen)
    elif hidden:
        yield Finding(
            "failure",
            "prefix",
            f"{variable} is not set, and the broker speaks of no topic without: this is a shared "
            "cluster, or the rights are another's",
            _right_prefix(case),
        )
    elif handed_out := _common(seen):
        command = None
        if case.target.form == "heroku":
            # What an add-on has set cannot be set by hand; this one goes before it.
            command = _for_app(f"heroku config:set {_OWN_PREFIX}={handed_out}", case)
        yield Finding(
            "failure",
            "prefix",
            f"{variable} is not set, and all {len(seen)} topics begin with {handed_out} as on a "
            "shared cluster, which refuses names without it",
            command,
        )
    else:
        yield Finding("ok", "prefix", "none, as on a cluster of one's own")


def _right_prefix(case: Case) -> str | None:
    """Return the command that shows the add-on's prefix, or lets it through."""
    if not case.config.brokers.tls:
        return None
    variable = case.variables["prefix"]
    how = "unset" if case.prefix and variable == _OWN_PREFIX else "get"
    return _for_app(f"heroku config:{how} {variable}", case)


def _with_prefix(case: Case, seen: list[str]) -> Iterator[Finding]:
    own = [name for name in seen if name.startswith(case.prefix)]
    twice = [name for name in own if name.removeprefix(case.prefix).startswith(case.prefix)]
    wanted = {topic.name for topic in case.plan.topics if topic.wire not in case.facts.topics}
    bare = sorted(wanted.intersection(seen))
    if twice:
        yield Finding(
            "warning",
            "prefix",
            f"{', '.join(sorted(twice))}: the prefix is there twice, so nobody finds it; commands "
            "take bare names",
        )
    if bare:
        yield Finding(
            "warning",
            "prefix",
            f"{', '.join(bare)}: there without {case.prefix}, and looked for with it; unset "
            f"{case.variables['prefix']} if this cluster is nobody else's",
        )
    if case.target.form == "heroku" and case.config.brokers.tls and not case.prefix.endswith("."):
        yield Finding(
            "warning",
            "prefix",
            f"{case.variables['prefix']} is {case.prefix}; one that was given out ends in a dot",
        )
    if not twice and not bare:
        how_many = f"{len(own)} of {len(seen)} topics have it" if seen else "no topic is there yet"
        yield Finding("ok", "prefix", f"{case.prefix}, {how_many}")


def _common(names: list[str]) -> str | None:
    """Return the prefix that all names share, if it looks like one that was handed out."""
    found = _HANDED_OUT.match(names[0]) if names else None
    return found[0] if found and all(name.startswith(found[0]) for name in names) else None
