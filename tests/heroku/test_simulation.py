"""`make heroku-sim`: a shell that reads its file is the app's, until Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.harness import wait_until

from devstack.processes import Child

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SCRIPT = """
set -a; . ./heroku.env; set +a
heroku kafka:topics:create words --partitions 2 >/dev/null
heroku kafka:topics
python -c 'import os, psycopg; psycopg.connect(os.environ["DATABASE_URL"]).close()'
python -m streamcore doctor --json ingest >report.json || true
"""


def test_its_variables_lead_to_broker_database_and_commands(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    child = Child(
        "heroku-sim",
        [sys.executable, "-m", "devstack", "heroku-sim", "--folder", str(tmp_path)],
        log=tmp_path / "sim.log",
        env={**os.environ, "PATH": path},
        cwd=tmp_path,
    )
    try:
        wait_until(lambda: "Ctrl-C" in child.tail(), "a cluster", alive=[child])
        variables = tmp_path / "heroku.env"
        assert variables.stat().st_mode & 0o777 == 0o600
        done = subprocess.run(
            ["/bin/sh", "-eu", "-c", SCRIPT], cwd=tmp_path, env={"PATH": path},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "words  2 partitions\n"), done.stderr
        report = (tmp_path / "report.json").read_text(encoding="utf-8")
        assert "textlines" in report, "it has not looked"
        assert "PRIVATE KEY" not in child.tail(1000)
        child.send(signal.SIGINT)
        assert child.wait(30)
        assert child.returncode == 0, child.tail()
        assert not variables.exists()
    finally:
        child.kill()
