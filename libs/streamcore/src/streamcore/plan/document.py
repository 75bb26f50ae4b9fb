"""The plan as one JSON document, for scripts."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from streamcore import heroku
from streamcore.plan.difference import Difference
from streamcore.plan.lines import Target, group_line, heroku_topic, lines, topic_line
from streamcore.plan.topics import Plan
from streamcore.plan.traffic import Throttle, Traffic


@dataclass(frozen=True, slots=True)
class Told:
    """Everything there is to print. None: not asked for, or not to be known (``silence``: why)."""

    services: tuple[str, ...]
    prefix: str
    plan: Plan
    target: Target
    traffic: Traffic | None = None
    throttle: Throttle | None = None
    silence: str = ""
    differences: tuple[Difference, ...] | None = None

    @property
    def misfits(self) -> tuple[Difference, ...]:
        """The differences that keep the plan from being fulfilled, or may do so."""
        return tuple(
            one
            for one in self.differences or ()
            if one.undecided or one.what in {"missing", "other"}
        )

    @property
    def budgets(self) -> tuple[heroku.Budget, ...]:
        """What the topics take of each of the platform's plans."""
        return tuple(self._budget(plan) for plan in heroku.PLANS.values())

    @property
    def budget(self) -> heroku.Budget:
        """What they take of the plan that is meant."""
        return self._budget(self.target.plan)

    def _budget(self, plan: heroku.Plan) -> heroku.Budget:
        return heroku.budget((heroku_topic(topic, plan) for topic in self.plan.topics), plan)


def as_json(told: Told) -> str:
    """Return the document; scripts read it, so its names stay."""
    document = {
        "services": told.services,
        "prefix": told.prefix,
        "form": told.target.form,
        "plan": told.target.plan.name,
        "topics": [
            {
                **asdict(topic),
                "settings": dict(topic.settings),
                "command": topic_line(topic, told.target),
            }
            for topic in told.plan.topics
        ],
        "groups": [
            {**asdict(group), "command": group_line(group, told.target)}
            for group in told.plan.groups
        ],
        "commands": lines(told.plan.topics, told.plan.groups, told.target),
        "warnings": told.plan.warnings,
        "budgets": [
            {
                "plan": budget.plan.name,
                "partitions": budget.partitions,
                "replicas": budget.replicas,
                "replicas_max": budget.plan.replicas_max,
                "problems": budget.problems,
            }
            for budget in told.budgets
        ],
        "traffic": None if told.traffic is None else _traffic(told.traffic),
        "throttle": None if told.throttle is None else _throttle(told.throttle),
        "differences": None
        if told.differences is None
        else [asdict(difference) for difference in told.differences],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _traffic(traffic: Traffic) -> dict[str, Any]:
    return {
        "words_per_s": traffic.load.words_per_s,
        "words_per_line": round(traffic.load.words_per_line, 2),
        "distinct_words": None if traffic.load.text else traffic.load.distinct_words,
        "produced_bytes_per_line": round(traffic.produced_bytes, 1),
        "consumed_bytes_per_line": round(traffic.consumed_bytes, 1),
        "produced_bytes_per_s": round(traffic.produced_bytes_per_s),
        "consumed_bytes_per_s": round(traffic.consumed_bytes_per_s),
        "topics": [
            {
                "name": topic.topic.name,
                "records_per_line": round(topic.records, 2),
                "produced_bytes_per_line": round(topic.produced_bytes, 1),
                "consumed_bytes_per_line": round(topic.consumed_bytes, 1),
            }
            for topic in traffic.topics
        ],
    }


def _throttle(throttle: Throttle) -> dict[str, Any]:
    return {
        "plan": throttle.plan.name,
        "words_per_s": round(throttle.words_per_s),
        "binds": throttle.binds,
    }
