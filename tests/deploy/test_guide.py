"""docs/HEROKU.md gives the commands of bin/setup, and every other command in it exists."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from tests.deploy.buildpack import ROOT

from devstack.procfile import read_procfile

GUIDE = (ROOT / "docs" / "HEROKU.md").read_text(encoding="utf-8")
PLANS = {"basic-0": "basic", "standard-0": "dedicated"}
# What a user runs besides, with the options of the command line of Heroku that are used here.
OTHER_COMMANDS = {
    "heroku apps:create": set(),
    "heroku kafka:credentials": {"--reset"},
    "heroku labs:enable": set(),
    "heroku logs": {"--tail", "--process-type"},
    "heroku pg:credentials:rotate": set(),
    "heroku pg:psql": {"-c"},
    "heroku plugins:install": set(),
    "heroku ps:scale": set(),
    "heroku releases:retry": set(),
    "heroku run": {"--", "--exit-code"},
    "bin/setup": set(),
}


def section(kind: str) -> str:
    """Return a section of the guide."""
    (found,) = re.findall(
        rf"^## Step by step on a {kind} plan$(.*?)^## ", GUIDE, re.MULTILINE | re.DOTALL
    )
    return str(found)


def commands(text: str) -> list[str]:
    """Return the lines of its blocks that are to be typed."""
    return [line.strip()[2:] for line in text.splitlines() if line.strip().startswith("$ ")]


def dry_run(plan: str) -> list[str]:
    """Return what bin/setup would do for the app of the guide."""
    done = subprocess.run(
        [str(ROOT / "bin" / "setup"), "sushi", plan, "--dry-run"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return commands(done.stdout)


@pytest.fixture(scope="module")
def planned() -> dict[str, list[str]]:
    return {plan: dry_run(plan) for plan in PLANS}


def test_the_steps_of_a_basic_plan_are_those_of_setup(planned: dict[str, list[str]]) -> None:
    told = commands(section("basic"))
    assert told[: len(planned["basic-0"])] == planned["basic-0"]


def test_the_differences_of_a_dedicated_plan_are_those_of_setup(
    planned: dict[str, list[str]],
) -> None:
    differences = [line for line in planned["standard-0"] if line not in planned["basic-0"]]
    assert commands(section("dedicated")) == differences
    left_out = [line for line in planned["basic-0"] if line not in planned["standard-0"]]
    kinds = {line.split()[1] for line in left_out} - {line.split()[1] for line in differences}
    assert kinds == {"kafka:consumer-groups:create"}  # "no groups to be granted"


def test_every_other_command_is_one_that_is_known(planned: dict[str, list[str]]) -> None:
    for line in commands(GUIDE):
        words = shlex.split(line)
        if line in planned["basic-0"] or line in planned["standard-0"] or words[0] == "make":
            continue
        name = words[0] if words[0] == "bin/setup" else " ".join(words[:2])
        options = {word for word in words if word.startswith("-")} - {"--app"}
        if "--" in words:  # what comes behind is ours; tests/docs looks at it
            options = {word for word in words[: words.index("--") + 1] if word.startswith("-")}
            options -= {"--app"}
        assert options <= OTHER_COMMANDS[name], line


def test_whoever_asks_the_doctor_gets_its_exit_code() -> None:
    asked = [line for line in commands(GUIDE) if "heroku run" in line and " doctor" in line]
    assert asked, "the guide asks the doctor"
    assert all("--exit-code" in shlex.split(line)[: line.split().index("--")] for line in asked)


def test_what_is_scaled_is_in_the_procfile() -> None:
    services = read_procfile(ROOT / "Procfile").services
    scaled = re.findall(r"([a-z]+[_-]worker)=\d", GUIDE)
    assert "aggregator_worker" in scaled
    assert {name.replace("-", "_") for name in scaled} <= set(services)


def test_what_setup_hints_at_in_the_end_is_in_the_guide() -> None:
    text = (ROOT / "bin" / "setup").read_text(encoding="utf-8")
    (block,) = re.findall(r'^step "what next"\ncat <<END\n(.*?)^END$', text, re.M | re.DOTALL)
    hints = block.replace("$app", "sushi").splitlines()
    assert len(hints) == 3
    assert set(hints) <= set(commands(GUIDE))


def test_the_words_a_second_at_which_a_plan_throttles_are_what_the_command_counts() -> None:
    (told,) = re.findall(r"on basic-0 throttles:\s+about ([0-9,]+) when", GUIDE)
    counted = subprocess.run(
        [sys.executable, "-m", "streamcore", "plan", "--plan", "basic-0", "--json"],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    words_per_s = json.loads(counted)["throttle"]["words_per_s"]
    assert int(told.replace(",", "")) == pytest.approx(words_per_s, rel=0.05)


def test_every_topic_of_the_command_that_it_names_is_spelt_as_the_plan_spells_it(
    planned: dict[str, list[str]],
) -> None:
    topics = {line.split()[2] for line in planned["basic-0"] if "topics:create" in line}
    assert topics == set(re.findall(r"topics:create (\S+) --partitions", GUIDE))
