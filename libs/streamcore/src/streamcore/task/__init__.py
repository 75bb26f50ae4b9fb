"""Tasks: one sub-topology on one partition. ``build_task`` is the only way to get one."""

from streamcore.task.build import build_task
from streamcore.task.config import TaskConfig
from streamcore.task.lifecycle import TaskState
from streamcore.task.parts import ChangelogState
from streamcore.task.task import Task

__all__ = ["ChangelogState", "Task", "TaskConfig", "TaskState", "build_task"]
