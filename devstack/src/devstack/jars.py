"""The broker's jars: fetched once, each one known by its SHA-256.

`kafka-jars.sha256` lists every jar (`SHA-256  group:artifact:version`). Nothing is resolved when
they are fetched, so what is not on the list never runs. jgo knows where artifacts come from.
"""

import hashlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from devstack.errors import StackError
from devstack.places import CACHE

KAFKA_VERSION = "4.3.1"
LIST = Path(__file__).with_name("kafka-jars.sha256")
FOLDER = CACHE / "kafka-jars"
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


def parse(text: str) -> list[Jar]:
    """Return the jars of a list; raise StackError for a line that is none."""
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split()
        names = fields[-1].split(":")
        if len(fields) != 2 or len(names) != 3 or len(fields[0]) != 64:
            raise StackError(f"{LIST.name} line {number} is not 'SHA-256  group:artifact:version'")
        jars.append(Jar(fields[0], *names))
    return jars


def listed() -> list[Jar]:
    """Return the broker's jars."""
    return parse(LIST.read_text(encoding="utf-8"))


def missing(folder: Path, jars: list[Jar]) -> list[Jar]:
    """Return the jars that the folder lacks, or holds with other contents."""
    return [jar for jar in jars if _sha256(folder / jar.filename) != jar.sha256]


def fetch(progress: Progress | None = None, folder: Path = FOLDER) -> None:
    """Bring every listed jar into the folder; those that are there and right are not touched.

    Raises StackError without a network, or when what arrives is not what the list says.
    """
    wanted = missing(folder, listed())
    if not wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = [pool.submit(_fetch_one, jar, folder) for jar in wanted]
        try:
            for done, future in enumerate(as_completed(waiting), 1):
                name = future.result()
                if progress is not None:
                    progress(done, len(wanted), name)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@cache
def class_path() -> str:
    """Return the broker's class path, fetching what is missing."""
    fetch(_say_so)
    return ":".join(str(FOLDER / jar.filename) for jar in listed())


def _say_so(done: int, of: int, name: str) -> None:
    print(f"  jar {done}/{of}: {name}", file=sys.stderr, flush=True)  # noqa: T201


def _fetch_one(jar: Jar, folder: Path) -> str:
    # Imported here: it takes a while, and is needed once in the life of a check-out.
    from jgo.maven import MavenContext  # noqa: PLC0415

    store = CACHE / "maven"
    context = MavenContext(repo_cache=store, timeout=60)
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    cached = artifact.cached_path
    if cached is not None and cached.exists():
        cached.unlink()  # half of a download that was broken off
    try:
        source = Path(artifact.resolve())
        found = _sha256(source)
        if found != jar.sha256:
            source.unlink()
            raise StackError(f"{jar.filename}: SHA-256 is {found}, expected {jar.sha256}")
        source.replace(folder / jar.filename)
    except (OSError, RuntimeError) as problem:
        reason = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise StackError(
            f"cannot fetch {jar.filename}: no network or no space? ({reason})"
        ) from None
    return jar.filename


def _sha256(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
