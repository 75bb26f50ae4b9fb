"""What the place gives: a name, a memory, a way to log; and nothing away from dynos."""

import pytest

from streamcore.config import StreamsConfig
from streamcore.heroku import app_name, engine_defaults, on_heroku

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("dyno", "instance"),
    [
        ("aggregator_worker.1", "aggregator_worker.1"),
        ("run.1234", "run.1234"),
        ("release.9482", "release.9482"),
        ("worker-23z34x56y-w78k9", "worker-23z34x56y-w78k9"),
        ("sink worker/1", "sink-worker-1"),
    ],
)
def test_any_form_of_dyno_is_a_legal_name(dyno: str, instance: str) -> None:
    defaults = engine_defaults({"DYNO": dyno})
    assert defaults["instance"] == instance
    StreamsConfig(application_id="app", kafka_url="kafka://h:1", **defaults)


def test_a_dyno_logs_for_its_platform_and_stays_below_its_memory() -> None:
    assert engine_defaults({"DYNO": "worker.1"}) == {
        "instance": "worker.1",
        "log_format": "logfmt",
        "metrics_log_interval_ms": 20_000,
        "memory_limit_bytes": 512 * MIB * 9 // 10,
        "cache_max_bytes": 32 * MIB,
    }


@pytest.mark.parametrize(
    ("ram", "limit_mib", "cache_mib"),
    [
        ("512", 460, 32),
        ("1024", 921, 64),
        ("14336", 12_902, 128),
        ("64", 57, 8),
        # What cannot be read counts as the smallest dyno.
        ("", 460, 32),
        ("0", 460, 32),
        ("-1", 460, 32),
        ("1 GB", 460, 32),
        ("²", 460, 32),
    ],
)
def test_memory_follows_the_size_of_the_dyno(ram: str, limit_mib: int, cache_mib: int) -> None:
    defaults = engine_defaults({"DYNO": "worker.1", "DYNO_RAM": ram})
    assert defaults["memory_limit_bytes"] // MIB == limit_mib
    assert defaults["cache_max_bytes"] // MIB == cache_mib


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_several_processes_share_the_memory(processes: int) -> None:
    defaults = engine_defaults({"DYNO": "worker.1", "DYNO_RAM": "1024"}, processes)
    assert defaults["memory_limit_bytes"] * processes < 1024 * MIB * 9 // 10
    assert defaults["cache_max_bytes"] * processes <= 64 * MIB


@pytest.mark.parametrize("processes", [-1, 0, 1_000])
def test_any_number_of_processes_gives_legal_settings(processes: int) -> None:
    defaults = engine_defaults({"DYNO": "worker.1"}, processes)
    StreamsConfig(application_id="app", kafka_url="kafka://h:1", **defaults)


@pytest.mark.parametrize(
    ("environ", "defaults"),
    [
        ({}, {}),
        ({"DYNO": ""}, {}),
        ({"DYNO_RAM": "512"}, {}),
        ({"FOREMAN_WORKER_NAME": "sink.2"}, {"instance": "sink.2"}),
        ({"HONCHO_PROCESS_NAME": "sink.3"}, {"instance": "sink.3"}),
        ({"FOREMAN_WORKER_NAME": "", "HONCHO_PROCESS_NAME": "sink.3"}, {"instance": "sink.3"}),
    ],
)
def test_away_from_dynos_there_is_a_name_at_most(
    environ: dict[str, str], defaults: dict[str, str]
) -> None:
    assert engine_defaults(environ) == defaults
    assert not on_heroku(environ)


def test_the_platform_tells_who_we_are() -> None:
    assert on_heroku({"DYNO": "worker.1"})
    assert app_name({"HEROKU_APP_NAME": "sushi"}) == "sushi"
    assert app_name({"HEROKU_APP_NAME": ""}) is None
    assert app_name({}) is None
