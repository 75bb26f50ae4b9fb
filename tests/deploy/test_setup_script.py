"""bin/setup takes an app from nothing to running workers, says what it lacks, may be run again."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from tests.deploy.buildpack import ROOT

import aggregator.settings
import ingest.settings
import sink.settings
from streamcore.heroku import kafka_variables
from streamcore.settings import ServiceSettings, variables

SETTINGS: list[type[ServiceSettings]] = [
    ingest.settings.Settings,
    aggregator.settings.Settings,
    sink.settings.Settings,
]

# Variables of attachments with other names than KAFKA.
OF_ADD_ONS = {
    field: [kafka_variables({f"{name}_URL": "kafka://h:1"})[field] for name in ("MAUVE", "OLD_2")]
    for field in kafka_variables({})
}

SCRIPT = ROOT / "bin" / "setup"
STUB = ROOT / "tests" / "deploy" / "heroku_stub.sh"
REMEMBERING = ROOT / "tests" / "deploy" / "remembering_python.sh"
PROGRAMS = ("cat", "cksum", "dirname", "env", "grep", "head", "mv", "sed", "sh", "sort")
WORKERS = "aggregator_worker=0:Basic ingest_worker=0:Basic release=0:Basic sink_worker=0:Basic"
RUN_S = 60.0


@dataclass(frozen=True, slots=True)
class Account:
    """A Heroku account in files, a `heroku` and a `git` which write down how they are called."""

    folder: Path

    def write(self, name: str, *lines: str) -> None:
        """Say what there is: apps, addons, config, topics, groups, formation, ..."""
        text = "".join(f"{line}\n" for line in lines)
        (self.folder / name).write_text(text, encoding="utf-8")

    def read(self, name: str) -> list[str]:
        """Return what there is now."""
        return (self.folder / name).read_text(encoding="utf-8").splitlines()

    def set_up(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run bin/setup and nothing else that could be on this machine."""
        (self.folder / "calls").write_text("")
        environment = {
            "PATH": str(self.folder / "bin"),
            "HOME": str(self.folder),
            "STUB": str(self.folder),
            "PYTHON": str(self.folder / "bin" / "python"),
            **variables,
        }
        return subprocess.run(
            [str(SCRIPT), *words],
            env=environment, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=RUN_S,
        )  # fmt: skip

    def calls(self, *kinds: str) -> list[str]:
        """Return the calls of the last run, or those of some commands only."""
        calls = self.read("calls")
        return [call for call in calls if not kinds or call.split()[1] in kinds]


CHANGES = ("addons:create", "config:set", "push", "ps:scale")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that plays Python: it remembers plans, each of which takes a second."""
    memory = tmp_path_factory.mktemp("memory")
    text = REMEMBERING.read_text(encoding="utf-8")
    return text.replace("@PYTHON@", sys.executable).replace("@MEMORY@", str(memory))


@pytest.fixture
def account(tmp_path: Path, python: str) -> Account:
    """An account with an empty app, all programs there, logged in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in PROGRAMS:
        found = next(path for path in ("/usr/bin", "/bin") if (Path(path) / program).exists())
        (programs / program).symlink_to(Path(found) / program)
    (programs / "heroku").symlink_to(STUB)
    # What is pushed has a Procfile, so from then on there are process types.
    git = f"""#!/bin/sh
echo "git $*" >>"$STUB/calls"
[ -s "$STUB/formation" ] || echo "{WORKERS}" >"$STUB/formation"
"""
    (programs / "git").write_text(git, encoding="utf-8")
    (programs / "git").chmod(0o755)
    (programs / "python").write_text(python, encoding="utf-8")
    (programs / "python").chmod(0o755)
    made = Account(tmp_path)
    made.write("state", "logged-in")
    made.write("plugins", "heroku-kafka 3.0.3")
    made.write("apps", "sushi")
    for nothing in ("addons", "config", "topics", "groups", "formation", "refused"):
        made.write(nothing)
    return made


def done(account: Account, *words: str, **variables: str) -> str:
    ended = account.set_up(*words, **variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def failed(account: Account, code: int, *words: str) -> str:
    """Run it, expect that exit code and one line that says why, and return the line."""
    ended = account.set_up(*words)
    assert ended.returncode == code, ended.stdout + ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, ended.stderr
    assert ended.stderr.endswith(f"{lines[0]}\n")
    return lines[0]


# --- an empty app ---------------------------------------------------------------------------------


def test_an_empty_app_gets_everything_in_an_order_that_works(account: Account) -> None:
    done(account, "sushi", "basic-0")
    kinds = [call.split()[1] for call in account.calls()]
    order = list(dict.fromkeys(kind for kind in kinds if not kind.startswith("config:get")))
    assert order == [
        "auth:whoami", "plugins", "apps:info",
        "addons", "addons:create", "kafka:wait", "pg:wait",
        "config:set", "config",
        "kafka:topics:create", "kafka:consumer-groups:create",
        "git:remote", "push",
        "ps:scale",
    ]  # fmt: skip
    assert account.read("addons") == ["heroku-kafka:basic-0", "heroku-postgresql:essential-0"]
    assert account.calls("push") == ["git push heroku-sushi HEAD:main"]
    assert account.read("config") == ["STREAMCORE_WAIT_FOR_TOPICS=true"]
    assert {"textlines", "words", "windowed-counts"} < set(account.read("topics"))
    assert {"ingest-app", "aggregator-app", "sink-app"} == set(account.read("groups"))
    assert "aggregator_worker=1" in account.read("formation")[0]
    assert not any("sushi" not in call for call in account.calls()[2:])


def test_a_changelog_is_compacted_and_every_topic_has_a_retention(account: Account) -> None:
    done(account, "sushi", "basic-0")
    created = account.calls("kafka:topics:create")
    changelogs = [call for call in created if "-changelog " in call]
    assert changelogs
    assert all("--compaction" in call for call in changelogs)
    assert all("--retention-time" in call and "--partitions" in call for call in created)


def test_on_a_dedicated_plan_no_group_is_granted(account: Account) -> None:
    done(account, "sushi", "standard-0")
    assert account.read("addons")[0] == "heroku-kafka:standard-0"
    assert account.read("topics")
    assert account.calls("kafka:consumer-groups:create") == []


def test_the_newer_platforms_spelling_is_taken_as_it_is(account: Account) -> None:
    account.write("formation", WORKERS.replace("_", "-"))
    done(account, "sushi", "basic-0")
    assert account.calls("ps:scale")[-1] == (
        "heroku ps:scale aggregator-worker=1 ingest-worker=1 sink-worker=1 --app sushi"
    )


# --- again ----------------------------------------------------------------------------------------


def test_a_second_run_changes_nothing(account: Account) -> None:
    done(account, "sushi", "basic-0", "EMIT=final")
    before = {name: account.read(name) for name in ("addons", "config", "topics", "groups")}
    done(account, "sushi", "basic-0", "EMIT=final")
    assert {name: account.read(name) for name in before} == before
    assert account.calls("addons:create", "config:set") == []
    assert account.calls("ps:scale") == ["heroku ps:scale --app sushi"]


def test_workers_that_run_keep_their_number(account: Account) -> None:
    account.write("formation", WORKERS.replace("aggregator_worker=0", "aggregator_worker=2"))
    done(account, "sushi", "basic-0")
    assert "aggregator_worker=2" in account.read("formation")[0]
    assert "sink_worker=1" in account.read("formation")[0]


def test_whoever_does_not_want_to_wait_is_not_overruled(account: Account) -> None:
    account.write("config", "STREAMCORE_WAIT_FOR_TOPICS=false")
    done(account, "sushi", "basic-0")
    assert account.read("config") == ["STREAMCORE_WAIT_FOR_TOPICS=false"]


# --- settings -------------------------------------------------------------------------------------


def created(account: Account, part: str) -> str:
    (line,) = (call for call in account.calls("kafka:topics:create") if part in call)
    return line


def test_topics_follow_from_the_config_vars_of_the_app(account: Account) -> None:
    done(account, "sushi", "basic-0")
    usual = created(account, "-changelog ")
    account.write("topics")
    account.write(
        "config", "GRACE_MS=180000000", "COUNTS_TOPIC='counts-b'", "KAFKA_URL=secret", "PATH=/none"
    )
    printed = done(account, "sushi", "basic-0")
    assert created(account, "-changelog ") != usual
    assert "counts-b" in account.read("topics")
    assert "secret" not in printed


def test_variables_of_this_shell_are_not_the_apps(account: Account) -> None:
    done(account, "sushi", "basic-0", WINDOW_SIZE_MS="999999999", COUNTS_TOPIC="counts-b")
    assert "counts-b" not in account.read("topics")


def test_every_setting_that_is_no_secret_reaches_the_plan() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    ours, secret = (re.search(rf"^{name}='(.*)'$", text, re.M) for name in ("ours", "secret"))
    assert ours is not None
    assert secret is not None
    for variable in chain.from_iterable(map(variables, SETTINGS)):
        for name in (*variable.names, *OF_ADD_ONS.get(variable.field, ())):
            passed = re.match(ours[1], f"{name}=x") and not re.match(secret[1], f"{name}=x")
            if variable.secret or variable.field == "database_attachment":
                assert not passed, f"{name} is a secret, or of no use without one"
            else:
                assert passed, f"{name} is left out"


BARE = {"WORDS_TOPIC": "words", "AGGREGATOR_APPLICATION_ID": "aggregator-app"}


@pytest.mark.parametrize("attachment", ["KAFKA", "HEROKU_KAFKA_MAUVE"])
def test_names_that_carry_the_prefix_are_made_without_it(account: Account, attachment: str) -> None:
    given = [f"{name}=mill-1.{bare}" for name, bare in BARE.items()]
    account.write(
        "config",
        f"{attachment}_URL='kafka+ssl://h1:9096,kafka+ssl://h2:9096'",
        f"{attachment}_PREFIX=mill-1.",
        f"{attachment}_CLIENT_CERT='{PEM}'",
    )
    done(account, "sushi", "basic-0", *given)
    assert not [name for name in account.read("topics") if "mill-1." in name]
    assert "aggregator-app" in account.read("groups")
    dry = done(account, "sushi", "basic-0", *given, "KAFKA_PREFIX=mill-1.", "--dry-run")
    created = [line for line in dry.splitlines() if ":create" in line]
    assert not [line for line in created if "mill-1." in line]
    assert "KAFKA_PREFIX" not in dry, "nobody but an add-on sets it"


PEM = "-----BEGIN CERTIFICATE-----\nA_URL=kafka=\n-----END CERTIFICATE-----"
TWO = (
    "KAFKA_URL=kafka+ssl://h1:9096",
    "KAFKA_PREFIX=mill-1.",
    "HEROKU_KAFKA_MAUVE_URL='kafka+ssl://h2:9096'",
    "HEROKU_KAFKA_MAUVE_PREFIX=mauve-2.",
)


@pytest.mark.parametrize(
    ("set_to", "cluster"),
    [("", "KAFKA_URL"), ("HEROKU_KAFKA_MAUVE", "HEROKU_KAFKA_MAUVE_URL")],
)
def test_of_two_clusters_the_commands_name_the_one_that_the_app_uses(
    account: Account, set_to: str, cluster: str
) -> None:
    account.write("addons", "heroku-kafka:standard-0", "heroku-kafka:basic-0")
    account.write("config", *TWO, *([f"STREAMCORE_KAFKA_ATTACHMENT={set_to}"] if set_to else []))
    for _ in range(2):  # what is there is looked at, too
        done(account, "sushi", "basic-0", "WORDS_TOPIC=mauve-2.words")
        calls = account.calls("kafka:topics:create", "kafka:consumer-groups:create")
        assert len(calls) == 8
        assert {call.split()[3] for call in calls} == {cluster}
    assert ("words" in account.read("topics")) == (set_to != ""), "each has its own prefix"
    refused = failed(account, 1, "sushi", "basic-1")
    assert "has the plan standard-0 basic-0 of heroku-kafka" in refused


def test_of_two_clusters_that_nobody_has_chosen_from_none_is_taken(account: Account) -> None:
    account.write("addons", "heroku-kafka:basic-0", "heroku-kafka:basic-0")
    account.write("config", *(line.replace("KAFKA_", "PINK_", 1) for line in TWO))
    ended = account.set_up("sushi", "basic-0")
    assert ended.returncode != 0
    assert "set STREAMCORE_KAFKA_ATTACHMENT to one of" in ended.stderr
    assert account.calls("kafka:topics:create", "push") == []


def test_on_a_dry_run_an_attachment_that_is_named_is_there(account: Account) -> None:
    given = ("STREAMCORE_KAFKA_ATTACHMENT=OLD_2", "OLD_2_PREFIX=mill-1.", "LINES_TOPIC=mill-1.text")
    printed = done(account, "sushi", "basic-0", *given, "--dry-run")
    assert "$ heroku kafka:topics:create text OLD_2_URL --partitions 4 " in printed


def test_a_config_var_that_is_given_is_set_before_the_topics_are_made(account: Account) -> None:
    done(account, "sushi", "basic-0", "WORDS_TOPIC=tokens", "EMIT=final")
    assert {"WORDS_TOPIC=tokens", "EMIT=final"} < set(account.read("config"))
    assert "tokens" in account.read("topics")
    assert "words" not in account.read("topics")


def test_another_database_plan_more_partitions_and_no_push(account: Account) -> None:
    options = ("--database", "standard-0", "--partitions", "8", "--no-push")
    printed = done(account, "sushi", "basic-0", *options)
    assert all("--partitions 8 " in call for call in account.calls("kafka:topics:create"))
    assert account.read("addons")[1] == "heroku-postgresql:standard-0"
    assert account.calls("push") == []
    assert "push, then run this again" in printed


# --- a dry run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["basic-0", "standard-0"])
def test_a_dry_run_prints_what_a_run_does_and_does_nothing(account: Account, plan: str) -> None:
    printed = done(account, "sushi", plan, "EMIT=final", "--dry-run")
    assert account.calls() == []
    shown = [line[2:] for line in printed.splitlines() if line.startswith("$ ")]
    done(account, "sushi", plan, "EMIT=final")
    looks = re.compile(r"heroku (auth|plugins|apps|addons |config |config:get|ps:scale --app)")
    ran = [call for call in account.calls() if not looks.match(call)]
    assert sorted(shown[-1].split()) == sorted(ran[-1].split())  # the formation is sorted by name
    assert shown[:-1] == ran[:-1]


# --- what is missing ------------------------------------------------------------------------------


def test_it_says_what_is_missing_and_how_to_get_it(account: Account) -> None:
    account.write("apps", "sashimi")
    assert "heroku apps:create sushi" in failed(account, 1, "sushi", "basic-0")
    account.write("plugins", "heroku-other 1.0")
    assert "plugins:install heroku-kafka" in failed(account, 1, "sushi", "basic-0")
    account.write("state")
    assert "heroku login" in failed(account, 1, "sushi", "basic-0")
    (account.folder / "bin" / "heroku").unlink()
    assert "no heroku command" in failed(account, 1, "sushi", "basic-0")


def test_another_plan_than_the_apps_is_refused(account: Account) -> None:
    account.write("addons", "heroku-kafka:standard-0")
    assert "bin/setup sushi standard-0" in failed(account, 1, "sushi", "basic-0")
    assert account.calls("addons:create", "kafka:topics:create") == []


def test_addons_that_cannot_be_listed_are_not_added_a_second_time(account: Account) -> None:
    (account.folder / "addons").unlink()
    assert account.set_up("sushi", "basic-0").returncode != 0
    assert account.calls()[-1] == "heroku addons --app sushi --json"


def test_config_vars_that_cannot_be_read_make_no_topics(account: Account) -> None:
    (account.folder / "config").unlink()
    assert account.set_up("sushi", "basic-0").returncode != 0
    assert account.calls("kafka:topics:create", "push") == []


def test_an_unknown_plan_is_refused_before_anything_is_paid(account: Account) -> None:
    ended = account.set_up("sushi", "basic-9")
    assert ended.returncode == 2
    assert "basic-0" in ended.stderr
    assert account.calls() == []


def test_a_plan_without_room_is_refused_before_anything_is_paid(account: Account) -> None:
    ended = account.set_up("sushi", "basic-0", "--partitions", "99")
    assert ended.returncode == 1
    assert "basic-0 has room for 240" in ended.stderr
    assert account.calls() == []


def test_a_topic_that_is_there_with_other_partitions_stops_it_before_the_push(
    account: Account,
) -> None:
    done(account, "sushi", "basic-0", "--no-push")
    line = failed(account, 1, "sushi", "basic-0", "--partitions", "8")
    assert "otherwise there" in line
    assert account.calls("push", "ps:scale") == []
    told = account.set_up("sushi", "basic-0", "--partitions", "8").stderr
    assert "words has 4 partitions, and 8 are needed" in told


def test_a_topic_that_cannot_be_made_stops_it_before_the_push(account: Account) -> None:
    account.write("refused", "words")
    line = failed(account, 1, "sushi", "basic-0")
    assert "run this again" in line
    assert "windowed-counts" in account.read("topics"), "the others are made all the same"
    assert account.calls("push", "ps:scale") == []


@pytest.mark.parametrize(
    "words",
    [
        (), ("sushi",), ("sushi", "basic-0", "more"), ("Su$hi", "basic-0"), ("sushi", "a;b"),
        ("sushi", "basic-0", "--force"), ("sushi", "basic-0", "--database"),
        ("sushi", "basic-0", "--partitions", "four"), ("sushi", "basic-0", "--partitions"),
        ("sushi", "basic-0", "TEXT=a b"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_exit_code_2(account: Account, words: tuple[str, ...]) -> None:
    assert "--help" in failed(account, 2, *words)
    assert account.calls() == []


def test_help_is_on_standard_output(account: Account) -> None:
    assert done(account, "--help").startswith("Usage: bin/setup APP PLAN")


def test_it_is_a_program() -> None:
    assert os.access(SCRIPT, os.X_OK)
    assert subprocess.run(["/bin/sh", "-n", str(SCRIPT)], check=False).returncode == 0
