"""The command lines of a plan, and the scripts made of them, run with stand-ins of the programs."""

import subprocess
from pathlib import Path

import pytest
from tests.unit.plan.services import count, service, split

from streamcore import heroku
from streamcore.config import StreamsConfig
from streamcore.plan.lines import Form, Target, lines, script, target_for
from streamcore.plan.topics import Plan, make_plan

PLAN = make_plan(
    [
        service("split", split(), prefix="mill-1."),
        service("count", count(), prefix="mill-1."),
    ]
)
PEM = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"
KEY = PEM.replace("CERTIFICATE", "PRIVATE KEY")


def on(plan: str, form: Form = "heroku", app: str | None = "sushi") -> Target:
    return Target(form, heroku.plan_named(plan), app)


def all_lines(target: Target, plan: Plan = PLAN) -> list[str]:
    return list(lines(plan.topics, plan.groups, target))


def test_a_basic_plan_is_told_bare_names_times_compaction_and_groups() -> None:
    create, grant = "heroku kafka:topics:create", "heroku kafka:consumer-groups:create"
    internal, compacted = "count-counted", "--retention-time 49h --compaction"
    assert all_lines(on("basic-0")) == [
        f"{create} lines --partitions 4 --retention-time 24h --app sushi",
        f"{create} words --partitions 4 --retention-time 24h --app sushi",
        f"{create} counts --partitions 4 --retention-time 24h --app sushi",
        f"{create} {internal}-repartition --partitions 4 --retention-time 24h --app sushi",
        f"{create} {internal}-changelog --partitions 4 {compacted} --app sushi",
        f"{grant} split --app sushi",
        f"{grant} count --app sushi",
    ]


def test_a_dedicated_plan_keeps_compacted_topics_for_ever_and_grants_no_groups() -> None:
    told = all_lines(on("standard-0", app=None))
    assert told[-1] == (
        "heroku kafka:topics:create count-counted-changelog --partitions 4 --compaction"
    )
    assert len(told) == 5


def test_kafkas_own_form_has_the_names_of_the_broker_and_all_settings() -> None:
    target = Target("kafka", heroku.PLANS["basic-0"], None, "one:9092,two:9092", "tls.properties")
    told = all_lines(target)
    assert told[1] == (
        "kafka-topics.sh --bootstrap-server one:9092,two:9092 --command-config tls.properties "
        "--create --if-not-exists --topic mill-1.words --partitions 4 "
        "--config cleanup.policy=delete --config retention.ms=604800000"
    )
    assert "--topic mill-1.count-counted-changelog" in told[4]
    assert "--config cleanup.policy=compact" in told[4]
    assert len(told) == 5


@pytest.mark.parametrize(
    ("settings", "environment", "form", "plan", "app"),
    [
        ({}, {}, "kafka", "basic-0", None),
        ({"prefix": "mill-1."}, {}, "heroku", "basic-0", None),
        ({}, {"DYNO": "run.1"}, "heroku", "standard-0", None),
    ],
)
def test_the_form_is_seen_in_the_settings(
    settings: dict[str, str],
    environment: dict[str, str],
    form: str,
    plan: str,
    app: str | None,
) -> None:
    config = StreamsConfig(application_id="a", bootstrap_servers="one:9092", **settings)  # type: ignore[arg-type]
    target = target_for(config, environment)
    assert (target.form, target.plan.name, target.app) == (form, plan, app)
    assert target.servers == "one:9092"


def test_tls_without_a_prefix_is_a_dedicated_plan() -> None:
    config = StreamsConfig(
        application_id="a",
        kafka_url="kafka+ssl://one:9096",
        kafka_trusted_cert=PEM,
        kafka_client_cert=PEM,
        kafka_client_cert_key=KEY,
    )
    target = target_for(config, {})
    assert (target.form, target.plan.name) == ("heroku", "standard-0")


def test_what_is_asked_for_wins() -> None:
    config = StreamsConfig(application_id="a", bootstrap_servers="one:9092", prefix="mill-1.")
    assert target_for(config, {}, form="kafka").form == "kafka"
    target = target_for(config, {}, plan="heroku-kafka:basic-2", app="sushi")
    assert (target.plan.name, target.app) == ("basic-2", "sushi")
    plain = StreamsConfig(application_id="a", bootstrap_servers="one:9092")
    assert target_for(plain, {}, form="heroku").plan.name == "basic-0"


HEROKU = """#!/bin/sh
# A platform that has a folder of topics and a file of groups, and refuses what it is told to.
case "$1" in
  kafka:topics:create)
    [ "$2" != "$REFUSED" ] || { echo "no room for $2" >&2; exit 1; }
    [ ! -e "$HOME/$2" ] || { echo "topic $2 already exists" >&2; exit 1; }
    : > "$HOME/$2" ;;
  kafka:topics:info) [ -e "$HOME/$2" ] || { echo "no topic $2" >&2; exit 1; } ;;
  kafka:consumer-groups:create)
    ! grep -qx " mill-1.$2 " "$HOME/.groups" || { echo "$2 already exists" >&2; exit 1; }
    [ "$2" != "$REFUSED" ] || { echo "no room for $2" >&2; exit 1; }
    echo " mill-1.$2 " >> "$HOME/.groups" ;;
  kafka:consumer-groups) cat "$HOME/.groups" ;;
esac
"""


def run(text: str, folder: Path, refused: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a script where `heroku` and `kafka-topics.sh` are the programs of the folder."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / ".groups").touch()
    for name, program in (("heroku", HEROKU), ("kafka-topics.sh", "#!/bin/sh\nexit 3\n")):
        (folder / name).write_text(program, encoding="utf-8")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", "-c", text],
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(home), "REFUSED": refused},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_script_may_be_run_again(tmp_path: Path) -> None:
    text = script(PLAN.topics, PLAN.groups, on("basic-0"))
    first, again = run(text, tmp_path), run(text, tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    made = {topic.name for topic in PLAN.topics}
    assert {path.name for path in (tmp_path / "home").iterdir()} == {*made, ".groups"}
    assert again.returncode == 0
    assert again.stderr.count("already exists") == 7


@pytest.mark.parametrize("refused", ["words", "count"])
def test_a_script_goes_on_after_a_refusal_and_fails_at_the_end(
    tmp_path: Path, refused: str
) -> None:
    done = run(script(PLAN.topics, PLAN.groups, on("basic-0")), tmp_path, refused)
    assert done.returncode == 1
    assert f"no room for {refused}" in done.stderr
    assert (tmp_path / "home" / "count-counted-changelog").exists()


def test_a_group_is_not_taken_for_one_with_a_longer_name(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".groups").write_text(" mill-1.re-count \n mill-1.count-2 \n")
    done = run(script((), PLAN.groups, on("basic-0")), tmp_path, "count")
    assert done.returncode == 1


def test_a_script_in_kafkas_form_fails_with_the_program(tmp_path: Path) -> None:
    done = run(script(PLAN.topics, PLAN.groups, on("basic-0", "kafka")), tmp_path)
    assert done.returncode == 1
