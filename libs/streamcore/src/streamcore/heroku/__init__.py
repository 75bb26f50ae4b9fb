"""All that is known of Heroku: environment in, values out; nothing is read, written or connected.

Every function takes the environment as a mapping and says nothing about hosts that are not Heroku,
so the same program runs anywhere.
"""

from streamcore.heroku.attachments import (
    attachment_of,
    cluster_argument,
    database_variable,
    is_pooled,
    kafka_variables,
)
from streamcore.heroku.commands import (
    App,
    Topic,
    database_create_command,
    database_info_command,
    database_log_in_command,
    duration,
    group_command,
    kafka_command,
    recreate_command,
    run_command,
    topic_command,
    variable_command,
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
    "App",
    "Budget",
    "Plan",
    "Topic",
    "app_name",
    "attachment_of",
    "budget",
    "cluster_argument",
    "database_create_command",
    "database_info_command",
    "database_log_in_command",
    "database_variable",
    "duration",
    "engine_defaults",
    "group_command",
    "is_pooled",
    "kafka_command",
    "kafka_variables",
    "on_heroku",
    "plan_named",
    "recreate_command",
    "release_of",
    "run_command",
    "smallest_plan",
    "topic_command",
    "topic_on",
    "variable_command",
]
