"""What the Java side is made of: the jars of `java-jars.sha256`, beside this file.

`python -m benchmarks.jars` writes that list anew from the coordinates below.
"""

import sys
from pathlib import Path

from devstack.jars import KAFKA_VERSION, JarList, maven, sha256_of
from devstack.places import CACHE as PROJECT_CACHE

ECJ = "org.eclipse.jdt:ecj:3.45.0"
ROOTS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-streams-test-utils:{KAFKA_VERSION}",
    ECJ,
)
FOLDER = Path(__file__).resolve().parent
CACHE = PROJECT_CACHE / "benchmarks"
JAVA_SIDE = JarList(FOLDER / "java-jars.sha256", CACHE / "jars")


def fetched() -> dict[str, Path]:
    """Return the jar of every listed coordinate, fetching what the cache lacks.

    Raises StackError when one cannot be fetched or differs from the list.
    """
    JAVA_SIDE.fetch()
    return {jar.coordinate: JAVA_SIDE.path(jar) for jar in JAVA_SIDE.jars()}


def class_path(jars: dict[str, Path]) -> str:
    """Return the class path of everything but the compiler."""
    return ":".join(str(jar) for coordinate, jar in jars.items() if coordinate != ECJ)


def write_list() -> None:
    """Resolve the coordinates above with all they need, and write the list anew."""
    context = maven()
    inputs, needed = context.resolver.resolve([context.create_dependency(root) for root in ROOTS])
    lines = []
    for dependency in (*inputs, *needed):
        artifact = dependency.artifact
        coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        lines.append(f"{sha256_of(Path(artifact.resolve()))}  {coordinate}\n")
    lines.sort(key=lambda line: line.split()[1])
    JAVA_SIDE.file.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write_list()
    sys.stdout.write(f"{JAVA_SIDE.file.name}: {len(JAVA_SIDE.jars())} jars\n")
