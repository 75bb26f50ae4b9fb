"""The commands on topics and groups: what Heroku refuses is refused here too."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from devstack.errors import StackError
from devstack.heroku import rights
from devstack.heroku.account import KafkaAddOn
from devstack.heroku.durations import parse_ms, shown

REPLICAS = 3
"""What every topic has there, and what the plans' limits count; here it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A topic as it was asked for; None: as the plan has it by default."""

    name: str
    partitions: int | None = None
    retention: str | None = None
    compaction: bool = False
    replication: int | None = None


class Cluster:
    """The add-on of one app, by the administrator's door of its broker."""

    def __init__(self, add_on: KafkaAddOn, admin_bootstrap: str) -> None:
        self._add_on = add_on
        self._plan = add_on.plan
        self._admin: AdminClient = rights.admin_client(admin_bootstrap)

    def topics(self) -> dict[str, int]:
        """Return the partitions of each of the app's topics, by bare names."""
        found = self._admin.list_topics(timeout=rights.TIMEOUT_S).topics
        return {
            self._add_on.bare(name): len(topic.partitions)
            for name, topic in sorted(found.items())
            if name.startswith(self._add_on.prefix) and not name.startswith("__")
        }

    def create_topic(self, wish: Wish) -> str:
        """Make it, and say so; raise StackError for what the plan does not allow."""
        name = self._add_on.full(wish.name)
        partitions = wish.partitions or self._plan.default_partitions
        settings = self._settings(wish)
        self._require_room(wish, partitions)
        new = NewTopic(name, partitions, 1, config=settings)
        _wait(self._admin.create_topics([new])[name], f"topic {wish.name}")
        _until(lambda: wish.name in self.topics(), f"topic {wish.name} to be there")
        kept = settings.get("retention.ms")
        how = "enabled" if wish.compaction else "disabled"
        time = f"retention time {shown(int(kept))}" if kept else "no retention time"
        where = f", under the prefix {self._add_on.prefix}" if self._add_on.prefix else ""
        return f"Creating topic {wish.name} with compaction {how} and {time}... done{where}"

    def _settings(self, wish: Wish) -> dict[str, str]:
        if wish.replication not in (None, REPLICAS):
            raise StackError(f"replication factor must be {REPLICAS} on this plan")
        retention_ms = None
        if wish.retention is not None:
            retention_ms = self._checked_ms(parse_ms(wish.retention))
        elif self._plan.shared or not wish.compaction:
            retention_ms = max(self._plan.min_retention_ms, parse_ms("24h"))
        policies = [*(["compact"] * wish.compaction), *(["delete"] * (retention_ms is not None))]
        settings = {"cleanup.policy": ",".join(policies)}
        return settings | ({} if retention_ms is None else {"retention.ms": str(retention_ms)})

    def _checked_ms(self, retention_ms: int) -> int:
        lowest, highest = self._plan.min_retention_ms, self._plan.max_retention_ms
        if not lowest <= retention_ms <= highest:
            raise StackError(
                f"retention time must be between {shown(lowest)} and {shown(highest)} "
                f"on {self._plan.name}, not {shown(retention_ms)}"
            )
        return retention_ms

    def _require_room(self, wish: Wish, partitions: int) -> None:
        there = self.topics()
        if wish.name in there:
            raise StackError(f"topic {wish.name} already exists")
        wanted = REPLICAS * (sum(there.values()) + partitions)
        if wanted > self._plan.max_replicas:
            raise StackError(
                f"{wanted} partition replicas are more than the {self._plan.max_replicas} "
                f"of {self._plan.name}"
            )
        if self._plan.max_topics is not None and len(there) >= self._plan.max_topics:
            raise StackError(f"{self._plan.name} has no more than {self._plan.max_topics} topics")

    def describe_topic(self, name: str) -> list[str]:
        """Return what `kafka:topics:info` shows."""
        settings = self._settings_of(name)
        policies = settings["cleanup.policy"].split(",")
        kept = shown(int(settings["retention.ms"])) if "delete" in policies else "none"
        count = self.topics()[name]
        return [
            f"=== {name}",
            f"Partitions:         {count} partition{'s' * (count != 1)}",
            f"Replication Factor: {REPLICAS}",
            f"Compaction:         {'enabled' if 'compact' in policies else 'disabled'}",
            f"Retention:          {kept}",
        ]

    def destroy_topic(self, name: str) -> None:
        """Delete it with all it holds."""
        self._require_topic(name)
        full = self._add_on.full(name)
        _wait(self._admin.delete_topics([full])[full], f"topic {name}")
        _until(lambda: name not in self.topics(), f"topic {name} to be gone")

    def set_retention(self, name: str, text: str) -> None:
        """Change how long records are kept; `disable` is for compacted topics of own clusters."""
        policies = set(self._settings_of(name)["cleanup.policy"].split(","))
        if text == "disable":
            if self._plan.shared or "compact" not in policies:
                raise StackError("retention time cannot be disabled here")
            self._alter(name, {"cleanup.policy": "compact"})
            return
        retention_ms = self._checked_ms(parse_ms(text))
        self._alter(
            name,
            {
                "retention.ms": str(retention_ms),
                "cleanup.policy": ",".join(sorted({*policies, "delete"})),
            },
        )

    def set_compaction(self, name: str, *, on: bool) -> None:
        """Change whether only the last record of a key is sure to stay."""
        policies = set(self._settings_of(name)["cleanup.policy"].split(","))
        policies = policies | {"compact"} if on else (policies - {"compact"}) | {"delete"}
        self._alter(name, {"cleanup.policy": ",".join(sorted(policies))})

    def groups(self) -> list[str]:
        """Return the groups that were granted, by bare names."""
        full = rights.granted_groups(self._admin, self._add_on.principal)
        return [self._add_on.bare(group) for group in full]

    def create_group(self, group: str) -> str:
        """Grant it; where all groups are granted, say that nothing was to be done."""
        if not self._plan.shared:
            return "consumer groups need not be created on this plan: the command does nothing"
        full = self._add_on.full(group)
        if group in self.groups():
            raise StackError(f"consumer group {group} already exists")
        rights.grant_group(self._admin, self._add_on.principal, full)
        return f"Creating consumer group {group}... done"

    def destroy_group(self, group: str) -> None:
        """Take the rights on it away."""
        if group not in self.groups():
            raise StackError(f"there is no consumer group {group}")
        full = self._add_on.full(group)
        rights.revoke_group(self._admin, self._add_on.principal, full)

    def _require_topic(self, name: str) -> None:
        if name not in self.topics():
            raise StackError(f"topic {name} not found")

    def _settings_of(self, name: str) -> dict[str, str]:
        self._require_topic(name)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._add_on.full(name))
        found = _wait(self._admin.describe_configs([resource])[resource], f"topic {name}")
        return {each: entry.value for each, entry in found.items()}

    def _alter(self, name: str, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, self._add_on.full(name), incremental_configs=entries
        )
        changed = self._admin.incremental_alter_configs([resource])
        _wait(changed[resource], f"topic {name}")
        _until(
            lambda: settings.items() <= self._settings_of(name).items(),
            f"topic {name} to have {', '.join(settings)}",
        )


def _until(seen: Callable[[], bool], what: str) -> None:
    """Wait until what a broker has done can be seen: it answers a moment before."""
    end_s = time.monotonic() + rights.TIMEOUT_S
    while not seen():
        if time.monotonic() > end_s:
            raise StackError(f"waited {rights.TIMEOUT_S} s for {what}")
        time.sleep(0.02)


def _wait(future: Any, what: str) -> Any:
    try:
        return future.result(timeout=rights.TIMEOUT_S)
    except KafkaException as problem:
        raise StackError(f"{what}: {problem.args[0].str()}") from None
