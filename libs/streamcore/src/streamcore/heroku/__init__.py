"""All that is known of Heroku: environment in, values out; nothing is read, written or connected.

Every function takes the environment as a mapping and says nothing about hosts that are not Heroku,
so the same program runs anywhere.
"""

from streamcore.heroku.attachments import database_variable, is_pooled, kafka_variables
from streamcore.heroku.commands import (
    Topic,
    duration,
    group_command,
    recreate_command,
    topic_command,
)
from streamcore.heroku.dyno import app_name, engine_defaults, on_heroku, release_of
from streamcore.heroku.plans import (
    PLANS,
    Budget,
    Plan,
    budget,
    plan_named,
    smallest_plan,
    topic_on,
)

__all__ = [
    "PLANS",
    "Budget",
    "Plan",
    "Topic",
    "app_name",
    "budget",
    "database_variable",
    "duration",
    "engine_defaults",
    "group_command",
    "is_pooled",
    "kafka_variables",
    "on_heroku",
    "plan_named",
    "recreate_command",
    "release_of",
    "smallest_plan",
    "topic_command",
    "topic_on",
]
