"""The commands that mend what the checks find: Heroku's for its apps, a shell's elsewhere.

None holds a secret: an address is named by its variable.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sink.connection import LogInRefusedError
from sink.settings import EXAMPLE, Settings
from streamcore import heroku
from streamcore.errors import AuthorizationError, ConfigError, StreamsError

MIGRATE: Final = "python -m sink migrate"
_OWN: Final = f"{Settings.service}_".upper()


@dataclass(frozen=True, slots=True)
class Remedies:
    """Commands for the database in ``variable``. ``app`` None: Heroku's are of no use here."""

    app: heroku.App | None = None
    variable: str = "DATABASE_URL"

    def no_database(self) -> str:
        """Return what gives us one."""
        if self.app is None:
            return self._set()
        return heroku.database_create_command(self.app.name)

    def after(self, error: StreamsError) -> str:
        """Return what mends an error that the database, or the way to it, ended in."""
        if isinstance(error, LogInRefusedError):
            return self._log_in()
        if isinstance(error, ConfigError):
            return self.other_address()
        if isinstance(error, AuthorizationError):
            return self._look(r"\dp")
        return self._look("select 1")

    def other_address(self) -> str:
        """Return what shows the address that is wrong, or sets another."""
        if self.app is None:
            return self._set()
        return heroku.variable_command(self.variable, self.app.name)

    def read_only(self) -> str:
        """Return what shows why, where that can be asked, or names another database."""
        return self._set() if self.app is None else heroku.database_info_command(self.app.name)

    def grant(self, user: str, tables: Sequence[str]) -> str:
        """Return what the owner of the tables must run; a plan that is full takes the rights away,
        too, and then its state tells.
        """
        if self.app is not None:
            return heroku.database_info_command(self.app.name)
        quoted = user.replace('"', '""')
        rights = f'grant select, insert, update on {", ".join(tables)} to "{quoted}"'
        return shlex.join(["psql", "-c", rights])

    def migrate(self) -> str:
        """Return what makes or changes the tables."""
        return MIGRATE if self.app is None else heroku.run_command(MIGRATE, self.app.name)

    def _log_in(self) -> str:
        # What an add-on gave has its password changed by it; what somebody has set is theirs.
        if self.app is None or self.variable.startswith(_OWN):
            return self.other_address()
        return heroku.database_log_in_command(self.variable, self.app.name)

    def _look(self, statement: str) -> str:
        if self.app is not None:
            return heroku.database_info_command(self.app.name)
        return f'psql "${self.variable}" -c {shlex.quote(statement)}'

    def _set(self) -> str:
        return f"export {self.variable}={EXAMPLE}"
