"""Sets the project up, inside the project: tools, packages, the broker's jars.

Nothing but the standard library, because it runs before anything is installed. `--check` only
says (by its exit code) whether the stamp of the last set-up still fits.
"""

import argparse
import contextlib
import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
TOOLS = ROOT / ".tools"
CACHE = ROOT / ".cache"
STAMP = VENV / "set-up-for"
LOG = TOOLS / "setup.log"
POETRY = TOOLS / "poetry"
REQUIREMENTS = ("poetry==2.4.1", "poetry-plugin-pypi-mirror==0.6.5")
SPACE_BYTES = 1_500_000_000
# What decides which packages are there; the folder because a virtual environment cannot move.
INPUTS = (
    "poetry.lock",
    "pyproject.toml",
    "poetry.toml",
    "tools/bootstrap.py",
    "devstack/src/devstack/kafka-jars.sha256",
    "devstack/pyproject.toml",
    "libs/streamcore/pyproject.toml",
    "services/aggregator/pyproject.toml",
    "services/ingest/pyproject.toml",
    "services/sink/pyproject.toml",
)
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution"
    r"|Name or service not known|Connection refused|Connection reset|Network is unreachable"
    r"|No route to host|Max retries exceeded|timed out|All attempts to connect|no network",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_STALE_LOCK = re.compile(r"pyproject\.toml changed significantly")


class SetupError(Exception):
    """Set-up cannot go on; the message is one line."""


def main() -> int:
    """Set up what is missing; print progress, and on failure one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether all is set up")
    parser.add_argument("--lock", action="store_true", help="resolve poetry.lock anew, then stop")
    options = parser.parse_args()
    if options.check:
        return 0 if is_set_up() else 1
    try:
        with one_line_for_full_disks():
            require_space()
            install_poetry()
            if options.lock:
                run(
                    "resolving",
                    [poetry_program(), "lock", "--no-interaction"],
                    show_all,
                    poetry_env(),
                )
                return 0
            make_venv()
            install_packages()
            fetch_jars()
            STAMP.write_text(fingerprint(), encoding="ascii")
    except SetupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "error: set-up was interrupted; `make setup` goes on where it stopped", file=sys.stderr
        )
        return 130
    say("everything is set up")
    return 0


def fingerprint() -> str:
    """Return a digest of all that the environment is made from."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in INPUTS:
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes() + b"\0")
    return digest.hexdigest()


def is_set_up() -> bool:
    """Say whether the last set-up was complete and made from the same files."""
    return STAMP.is_file() and STAMP.read_text(encoding="ascii") == fingerprint()


def require_space() -> None:
    """Raise SetupError when the disk is too full to begin."""
    free = shutil.disk_usage(ROOT).free
    if free < SPACE_BYTES and not VENV.exists():
        raise SetupError(
            f"no disk space: {free // 1_000_000} MB free in {ROOT}, "
            f"{SPACE_BYTES // 1_000_000} MB needed"
        )


@contextlib.contextmanager
def one_line_for_full_disks() -> Iterator[None]:
    """Turn an error of the file system into ours."""
    try:
        yield
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SetupError(f"no disk space left in {ROOT}") from None
        raise SetupError(f"{problem.filename or ROOT}: {problem.strerror or problem}") from None


def install_poetry() -> None:
    """Put Poetry into an environment of its own, where the lock's packages cannot meet it."""
    wanted = "\n".join((str(POETRY), *REQUIREMENTS))
    mark = POETRY / "installed"
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return
    say("installing Poetry into .tools")
    shutil.rmtree(POETRY, ignore_errors=True)
    run("making .tools/poetry", [sys.executable, "-m", "venv", str(POETRY)], show_none, clean_env())
    pip = [str(POETRY / "bin" / "python"), "-m", "pip", "install", "--no-input", "--retries", "2"]
    run("installing Poetry", [*pip, *REQUIREMENTS], show_none, clean_env())
    mark.write_text(wanted, encoding="utf-8")


def make_venv(venv: Path = VENV, program: str = sys.executable, version: str = "") -> None:
    """Make .venv, or make it anew when its Python is gone or the project was moved.

    Another one is made of `program`, which is of that version.
    """
    mark = venv / "made-in"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if mark.read_text(encoding="utf-8") == str(venv):
            probe = (
                "import sys; assert (3, 11) <= sys.version_info[:2] < (3, 13);"
                'assert sys.argv[1] in ("", "%d.%d" % sys.version_info[:2])'
            )
            command = [str(venv / "bin" / "python"), "-c", probe, version]
            subprocess.run(command, check=True, capture_output=True)
            return
    shutil.rmtree(venv, ignore_errors=True)
    command = [program, "-m", "venv", "--without-pip", str(venv)]
    run(f"making {venv.name}", command, show_none, clean_env())
    mark.write_text(str(venv), encoding="utf-8")


def install_packages(venv: Path = VENV) -> None:
    """Make an environment hold what poetry.lock says, no more and no less."""
    say(f"installing packages into {venv.name}")
    env = poetry_env()
    if venv != VENV:  # without this Poetry takes the one that is called .venv
        env["VIRTUAL_ENV"] = str(venv)
    command = [poetry_program(), "sync", "--no-interaction", "--no-ansi"]
    run("installing packages", command, Installed(), env)


def fetch_jars() -> None:
    """Have the broker's jars fetched and checked."""
    say("fetching Apache Kafka")
    command = [str(VENV / "bin" / "python"), "-m", "devstack", "prepare"]
    run("fetching Apache Kafka", command, show_all, clean_env())


def poetry_program() -> str:
    """Return the path of our own Poetry."""
    return str(POETRY / "bin" / "poetry")


def poetry_env() -> dict[str, str]:
    """Return an environment in which Poetry takes packages from where pip would.

    Some indexes serve pip's Simple API alone; the plugin lets Poetry use that. The address is
    asked of pip when it is needed, so no file names a host.
    """
    env = clean_env()
    env["POETRY_CACHE_DIR"] = str(CACHE / "poetry")
    env["POETRY_CONFIG_DIR"] = env["POETRY_DATA_DIR"] = str(TOOLS / "poetry-home")
    env["POETRY_VIRTUALENVS_IN_PROJECT"] = "true"
    env["VIRTUALENV_OVERRIDE_APP_DATA"] = str(CACHE / "virtualenv")
    env["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
    env.setdefault("POETRY_PYPI_MIRROR_URL", index_url())
    return env


def index_url() -> str:
    """Return the address of the index that pip uses here."""
    configured = pip_output("-m", "pip", "config", "get", "global.index-url")
    asked = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return os.environ.get("PIP_INDEX_URL") or configured or pip_output("-c", asked)


def pip_output(*arguments: str) -> str:
    """Return what the tool environment's Python prints, or nothing when it fails."""
    command = [str(POETRY / "bin" / "python"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_env())
    return done.stdout.strip() if done.returncode == 0 else ""


def clean_env() -> dict[str, str]:
    """Return our environment without what belongs to another Python, with caches in the project."""
    foreign = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHOME")
    env = {name: value for name, value in os.environ.items() if name not in foreign}
    env["PIP_CACHE_DIR"] = str(CACHE / "pip")
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    if "PIP_CERT" in env:
        env.setdefault("REQUESTS_CA_BUNDLE", env["PIP_CERT"])
    return env


def run(what: str, command: list[str], show: Callable[[str], None], env: dict[str, str]) -> None:
    """Run a program, its words into the log and, as `show` likes, to the terminal.

    Raises SetupError with one line that names the likeliest reason.
    """
    TOOLS.mkdir(exist_ok=True)
    words: list[str] = []
    with LOG.open("a", encoding="utf-8") as log, subprocess.Popen(
        command, cwd=ROOT, env=env, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                words.append(line.strip())
                show(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise SetupError(reason(what, words))


def reason(what: str, words: list[str]) -> str:
    """Return one line on why a step has failed, from what its program wrote."""
    text = "\n".join(words)
    see = f"(all of it: {LOG.relative_to(ROOT)})"
    if _NO_SPACE.search(text):
        return f"no disk space left while {what} {see}"
    if _STALE_LOCK.search(text):
        return "poetry.lock does not fit pyproject.toml: run `make lock`"
    if _NO_NETWORK.search(text):
        return f"no network while {what}: is the package index reachable? {see}"
    last = next((word for word in reversed(words) if word), "no output")
    return f"{what} failed: {last[:200]} {see}"


class Installed:
    """Shows Poetry's packages as they come, with how many there are."""

    def __init__(self) -> None:
        self._total = 0
        self._done = 0

    def __call__(self, line: str) -> None:
        if found := re.match(r"Package operations: (\d+) installs?, (\d+) updates?", line):
            self._total = int(found[1]) + int(found[2])
        elif found := re.match(r"\s*- (?:Installing|Updating|Downgrading) (.+)", line):
            self._done += 1
            say(f"  {self._done}/{self._total} {found[1]}")


def show_all(line: str) -> None:
    """Show every line."""
    say(line)


def show_none(line: str) -> None:
    """Show nothing: the line is in the log."""


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
