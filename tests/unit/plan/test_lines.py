"""The command lines of a plan, and the scripts made of them, run with stand-ins of the programs."""

import re
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
    for form in (None, "heroku"):
        target = target_for(config, {}, form=form)
        assert (target.form, target.plan.name) == ("heroku", "standard-0")
    assert target_for(config, {}, form="heroku", plan="basic-0").plan.shared


def test_what_is_asked_for_wins() -> None:
    config = StreamsConfig(application_id="a", bootstrap_servers="one:9092", prefix="mill-1.")
    assert target_for(config, {}, form="kafka").form == "kafka"
    target = target_for(config, {}, plan="heroku-kafka:basic-2", app="sushi")
    assert (target.plan.name, target.app) == ("basic-2", "sushi")
    plain = StreamsConfig(application_id="a", bootstrap_servers="one:9092")
    assert target_for(plain, {}, form="heroku").plan.name == "basic-0"


def test_of_two_clusters_every_line_of_a_plan_and_its_script_names_one() -> None:
    environ = {"KAFKA_URL": "kafka://a:9092", "PINK_URL": "kafka://b:9092"}
    config = StreamsConfig(application_id="a", kafka_url="kafka://b:9092", prefix="mill-1.")
    target = target_for(config, environ, app="sushi")
    told = all_lines(target)
    assert told
    text = script(PLAN.topics, PLAN.groups, target)
    calls = [call for line in text.splitlines() for call in re.findall(r"heroku kafka:[^|]*", line)]
    assert len(calls) == 2 * len(told), "each is created, or looked at"
    for line in (*told, *calls):
        assert " PINK_URL " in line
    assert all_lines(target_for(config, {"PINK_URL": "kafka://b:9092"}, app="sushi")) == [
        line.replace(" PINK_URL", "") for line in told
    ]


HEROKU = """#!/bin/sh
# A platform that has a folder of topics and a file of groups, and refuses what it is told to.
case "$1" in
  kafka:topics:create)
    [ "$2" != "$REFUSED" ] || { echo "no room for $2" >&2; exit 1; }
    [ ! -e "$HOME/$2" ] || { echo "topic $2 already exists" >&2; exit 1; }
    echo "${WIDTH:-$4}" > "$HOME/$2" ;;
  kafka:topics:info)
    [ -e "$HOME/$2" ] || { echo "no topic $2" >&2; exit 1; }
    echo "=== kafka-clear-1 :: $2"
    [ -z "$SILENT" ] || exit 0
    echo "Partitions:         $(cat "$HOME/$2") partitions"
    echo "Replication Factor: 3" ;;
  kafka:consumer-groups:create)
    ! grep -qx " mill-1.$2 " "$HOME/.groups" || { echo "$2 already exists" >&2; exit 1; }
    [ "$2" != "$REFUSED" ] || { echo "no room for $2" >&2; exit 1; }
    echo " mill-1.$2 " >> "$HOME/.groups" ;;
  kafka:consumer-groups) cat "$HOME/.groups" ;;
esac
"""


KAFKA = """#!/bin/sh
# Creates what is not there, says nothing of what is, and describes it.
if [ "$3" = --describe ]; then
  printf 'Topic: %s\\tPartitionCount: %s\\tReplicationFactor: 3\\n' "$5" "$(cat "$HOME/$5")"
  printf '\\tTopic: %s\\tPartition: 0\\tLeader: 1\\n' "$5"
elif [ -n "$REFUSED" ]; then exit 3
elif [ ! -e "$HOME/$6" ]; then echo "${WIDTH:-$8}" > "$HOME/$6"; fi
"""


def run(
    text: str, folder: Path, refused: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a script where `heroku` and `kafka-topics.sh` are the programs of the folder."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / ".groups").touch()
    for name, program in (("heroku", HEROKU), ("kafka-topics.sh", KAFKA)):
        (folder / name).write_text(program, encoding="utf-8")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", "-c", text],
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(home), "REFUSED": refused, **variables},
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
    text = script(PLAN.topics, PLAN.groups, on("basic-0", "kafka"))
    assert run(text, tmp_path, "all").returncode == 1
    assert run(text, tmp_path).returncode == 0
    assert run(text, tmp_path).returncode == 0


@pytest.mark.parametrize("form", ["heroku", "kafka"])
def test_a_topic_that_is_there_with_other_partitions_fails(tmp_path: Path, form: Form) -> None:
    text = script(PLAN.topics, PLAN.groups, on("basic-0", form))
    run(script(PLAN.topics[1:2], (), on("basic-0", form)), tmp_path, WIDTH="8")
    done = run(text, tmp_path)
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if "needed" in line]
    name = PLAN.topics[1].name if form == "heroku" else PLAN.topics[1].wire
    assert told == [f"{name} has 8 partitions, and 4 are needed"]
    assert len([*(tmp_path / "home").iterdir()]) == len(PLAN.topics) + 1, "the rest was made"


def test_where_the_partitions_are_not_shown_that_is_said_and_no_failure(tmp_path: Path) -> None:
    text = script(PLAN.topics[:1], (), on("basic-0"))
    run(text, tmp_path)
    done = run(text, tmp_path, SILENT="yes")
    assert done.returncode == 0
    assert "nobody knows how many partitions" in done.stderr
