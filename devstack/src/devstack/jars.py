"""Jars: fetched once into a folder, each one known by its SHA-256.

A list is a file with a line for every jar (`SHA-256  group:artifact:version`). Nothing is resolved
when they are fetched, so what is not on the list never runs. jgo knows where artifacts come from.
The broker's list is `kafka-jars.sha256`.
"""

import hashlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from devstack.errors import StackError
from devstack.places import CACHE

if TYPE_CHECKING:
    from jgo.maven import MavenContext

KAFKA_VERSION = "4.3.1"
_AT_ONCE = 6

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the list."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def filename(self) -> str:
        """The name that the jar has in every repository."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        """How Maven names it."""
        return f"{self.group}:{self.artifact}:{self.version}"


def parse(text: str, name: str) -> list[Jar]:
    """Return the jars of a list; raise StackError for a line that is none.

    `name` is what the list is called then.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split()
        names = fields[-1].split(":")
        if len(fields) != 2 or len(names) != 3 or len(fields[0]) != 64:
            raise StackError(f"{name} line {number} is not 'SHA-256  group:artifact:version'")
        jars.append(Jar(fields[0], *names))
    return jars


def missing(folder: Path, jars: list[Jar]) -> list[Jar]:
    """Return the jars that the folder lacks, or holds with other contents."""
    return [jar for jar in jars if sha256_of(folder / jar.filename) != jar.sha256]


@dataclass(frozen=True, slots=True)
class JarList:
    """A file that lists jars, and the folder that they are kept in."""

    file: Path
    folder: Path

    def jars(self) -> list[Jar]:
        """Return what is listed."""
        return parse(self.file.read_text(encoding="utf-8"), self.file.name)

    def path(self, jar: Jar) -> Path:
        """Return where a jar lies, once it is fetched."""
        return self.folder / jar.filename

    def fetch(self, progress: Progress | None = None) -> None:
        """Bring every listed jar into the folder; those that are there and right are not touched.

        Raises StackError without a network, or when what arrives is not what the list says.
        """
        wanted = missing(self.folder, self.jars())
        if not wanted:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            waiting = [pool.submit(_fetch_one, jar, self.path(jar)) for jar in wanted]
            try:
                for done, future in enumerate(as_completed(waiting), 1):
                    name = future.result()
                    if progress is not None:
                        progress(done, len(wanted), name)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


KAFKA = JarList(Path(__file__).with_name("kafka-jars.sha256"), CACHE / "kafka-jars")
"""What the broker is made of."""


@cache
def class_path() -> str:
    """Return the broker's class path, fetching what is missing."""
    KAFKA.fetch(_say_so)
    return ":".join(str(KAFKA.path(jar)) for jar in KAFKA.jars())


def _say_so(done: int, of: int, name: str) -> None:
    print(f"  jar {done}/{of}: {name}", file=sys.stderr, flush=True)  # noqa: T201


def maven() -> "MavenContext":
    """Return what finds artifacts; what it downloads lies in the project's cache."""
    # Imported here: it takes a while, and is needed once in the life of a check-out.
    from jgo.maven import MavenContext  # noqa: PLC0415

    return MavenContext(repo_cache=CACHE / "maven", timeout=60)


def _fetch_one(jar: Jar, target: Path) -> str:
    context = maven()
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    cached = artifact.cached_path
    if cached is not None and cached.exists():
        cached.unlink()  # half of a download that was broken off
    try:
        source = Path(artifact.resolve())
        found = sha256_of(source)
        if found != jar.sha256:
            source.unlink()
            raise StackError(f"{jar.filename}: SHA-256 is {found}, expected {jar.sha256}")
        source.replace(target)
    except (OSError, RuntimeError) as problem:
        reason = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise StackError(
            f"cannot fetch {jar.filename}: no network or no space? ({reason})"
        ) from None
    return jar.filename


def sha256_of(path: Path) -> str:
    """Return the digest of a file; empty if there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
