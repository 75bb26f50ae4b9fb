"""user_code: exceptions of user code that no single record is to blame for."""

from collections.abc import Iterator
from contextlib import contextmanager

from streamcore.errors import StreamsError, UserCodeError
from streamcore.model import TaskId


@contextmanager
def user_code(task: TaskId, where: str) -> Iterator[None]:
    """Turn what user code raises inside into a UserCodeError; the engine's own errors pass."""
    try:
        yield
    except StreamsError:
        raise
    except Exception as error:
        raise UserCodeError(task, where, f"{type(error).__name__}: {error}") from error
