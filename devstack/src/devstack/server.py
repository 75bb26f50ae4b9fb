"""Server: a child process whose whole state is one folder, and what can be done to it."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from devstack.ports import free_port, require_free
from devstack.processes import Child, wait_until_up

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


class Server(ABC):
    """The life of a server. The port is chosen once and kept over restarts, as the data is."""

    name: ClassVar[str]
    port_variable: ClassVar[str]  # whoever finds the port taken may set another by it
    log_name: ClassVar[str]

    def __init__(self, folder: Path, port: int | None) -> None:
        self.folder = folder.resolve()
        self.port = free_port() if port is None else port
        self._child: Child | None = None

    @abstractmethod
    def _launch(self) -> Child:
        """Make what is missing in the folder, and start the program."""

    @abstractmethod
    def _probe(self) -> Callable[[], bool]:
        """Return what tells whether the program that was just started answers."""

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    @property
    def returncode(self) -> int | None:
        """None while it runs, else how it ended (0 before the first start)."""
        return 0 if self._child is None else self._child.returncode

    @property
    def log(self) -> Path:
        """The file with the server's warnings."""
        return self.folder / self.log_name

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start and return when the server answers; the data of a former start is kept.

        Raises StackError when the port is taken or no answer comes in time.
        """
        assert self.returncode is not None, "it runs already"
        require_free(self.port, self.name, self.port_variable)
        self._child = self._launch()
        wait_until_up(self._child, self._probe(), timeout_s)
        return self

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End it cleanly, by force after the time-out; say whether it was clean."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """Freeze it: connections stay, answers do not come."""
        self._running().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen server go on."""
        self._running().send(signal.SIGCONT)

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop and start again with the same port and data."""
        self.stop()
        self.start(timeout_s)

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of its log."""
        return "" if self._child is None else self._child.tail(lines)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, number: signal.Signals, timeout_s: float) -> bool:
        return self._child is None or self._child.stop(number, patience_s=timeout_s)

    def _running(self) -> Child:
        assert self._child is not None, f"{self.name} was not started"
        assert self._child.returncode is None, f"{self.name} has ended"
        return self._child
