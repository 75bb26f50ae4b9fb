"""What user code raises: which of it is an answer to the engine, and what becomes of the rest."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from streamcore.errors import Recovery, StreamsError, UserCodeError, UserRetryError
from streamcore.model import TaskId


@contextmanager
def user_code(task: TaskId, where: str) -> Iterator[None]:
    """Turn what user code raises inside into a UserCodeError; the engine's own errors go on, as
    ``pass_on`` says.
    """
    try:
        yield
    except StreamsError as error:
        pass_on(task, error)
    except Exception as error:
        raise UserCodeError(task, where, f"{type(error).__name__}: {error}") from error


def blame_no_record(error: Exception) -> None:
    """Raise again what asks for another try: a policy for bad records is no answer to that."""
    if isinstance(error, StreamsError) and error.recovery is Recovery.RETRY:
        raise error


def pass_on(task: TaskId, error: StreamsError) -> NoReturn:
    """Raise what an error of the engine's own kind means that came out of user code.

    "The same again, later" is no answer there: half of a batch has been done, and to go on behind
    it would leave the other half out. So such an error takes the task back to its last commit.
    """
    if error.recovery is not Recovery.RETRY:
        raise error
    raise UserRetryError(task, error) from error
