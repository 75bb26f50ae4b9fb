"""The servers start, keep their data, freeze and wake, and leave nothing behind."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from devstack.errors import StackError
from devstack.kafka import Broker
from devstack.ports import LOOPBACK, free_port, is_free
from devstack.postgres import Database
from devstack.processes import Child
from devstack.pytest_plugin import Names
from devstack.topics import Topic, create_topics

WAIT_S = 20.0


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and is not yet collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.05)


def values_of(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=WAIT_S)]
    finally:
        consumer.close()


@pytest.mark.broker
def test_a_broker_keeps_its_records_and_its_port_over_a_crash_and_a_stop(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        create_topics({"bootstrap.servers": broker.bootstrap}, [Topic("kept", 1)])
        for value, end in ((b"one", broker.kill), (b"two", broker.stop)):
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("kept", value)
            assert producer.flush(WAIT_S) == 0
            pid, bootstrap = broker.pid, broker.bootstrap
            end()
            assert not is_alive(pid)
            broker.start()
            assert broker.bootstrap == bootstrap
        assert values_of(broker, "kept", 2) == [b"one", b"two"]
        pid = broker.pid
    assert not is_alive(pid)


@pytest.mark.broker
def test_a_frozen_broker_does_not_answer_until_it_is_woken(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 0,
        }
        client = AdminClient(settings)
        client.list_topics(timeout=WAIT_S)
        broker.pause()
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.5)
        broker.resume()
        assert client.list_topics(timeout=WAIT_S).brokers
        broker.pause()
        assert broker.stop() is True, "a frozen broker is woken, so that it can end cleanly"


@pytest.mark.broker
def test_settings_reach_the_broker(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"Kafka ended while starting.*log.retention.bytes"):
        Broker(tmp_path / "kafka", settings={"log.retention.bytes": "many"}).start()


def test_topics_that_exist_are_left_alone(broker: Broker, names: Names) -> None:
    client: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
    old, new = Topic(names("old"), 3), Topic(names("new"), 1)
    assert create_topics(client, [old]) == [old.name]
    assert create_topics(client, [Topic(old.name, 5), new]) == [new.name]
    found = AdminClient(client).list_topics(timeout=WAIT_S).topics
    assert len(found[old.name].partitions) == 3


def test_a_topic_that_the_broker_refuses_is_one_line(broker: Broker) -> None:
    with pytest.raises(StackError, match="topic a/b cannot be created"):
        create_topics({"bootstrap.servers": broker.bootstrap}, [Topic("a/b")])


@pytest.mark.postgres
def test_a_database_keeps_its_rows_over_a_crash_and_a_stop(tmp_path: Path) -> None:
    with Database(tmp_path / "postgres") as database:
        with psycopg.connect(database.url) as connection:
            connection.execute("create table kept (number int)")
        for number, end in ((1, database.kill), (2, database.stop)):
            with psycopg.connect(database.url) as connection:
                connection.execute("insert into kept values (%s)", (number,))
            pid, url = database.pid, database.url
            end()
            assert not is_alive(pid)
            database.start()
            assert database.url == url
        with psycopg.connect(database.url) as connection:
            rows = connection.execute("select number from kept order by 1").fetchall()
        assert rows == [(1,), (2,)]
        pid = database.pid
    assert not is_alive(pid)


@pytest.mark.postgres
def test_a_fast_stop_does_not_wait_for_clients(tmp_path: Path) -> None:
    with Database(tmp_path / "postgres") as database:
        connection = psycopg.connect(database.url)
        assert database.stop(fast=True) is True
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
        connection.close()


def test_the_database_speaks_unicode_and_utc(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        row = connection.execute(
            "select upper('naïve हिन्दी'), current_setting('timezone')"
        ).fetchone()
    assert row == ("NAÏVE हिन्दी", "UTC")


def test_the_database_asks_for_the_password(database: Database) -> None:
    without = f"postgresql://streamcore@{LOOPBACK}:{database.port}/streamcore"
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(without)
    assert (database.folder / "password").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("server", [Broker, Database])
def test_a_taken_port_is_one_clear_line(
    server: type[Broker] | type[Database], tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StackError, match=rf"port {port} for \w+ is taken.*_PORT"):
            server(tmp_path, port).start()


def test_a_free_port_is_one_that_no_client_is_given() -> None:
    port = free_port()
    assert is_free(port)
    with socket.socket() as client:
        client.bind((LOOPBACK, 0))
        assert port < client.getsockname()[1]


# Starts a child, says its process id, and waits to be killed.
_PARENT = """
import json, sys, time
from pathlib import Path
from typing import Any
from devstack.processes import Child
child = Child("sleeper", ["sleep", "600"], log=Path(sys.argv[1]))
print(json.dumps(child.pid), flush=True)
time.sleep(600)
"""


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = json.loads(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
        parent.wait()
        wait_until_gone(pid)


def test_a_child_that_does_not_listen_is_killed_in_the_end(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(600)"
    child = Child("deaf", [sys.executable, "-uc", deaf], log=tmp_path / "log")
    while child.tail() != "up":
        assert child.returncode is None
        time.sleep(0.01)
    assert child.stop(patience_s=0.2) is False
    assert child.returncode == -signal.SIGKILL
    assert not is_alive(child.pid)


def test_a_signal_to_an_ended_child_hits_nobody(tmp_path: Path) -> None:
    child = Child("quick", ["true"], log=tmp_path / "log")
    assert child.wait(WAIT_S)
    child.send(signal.SIGTERM)
    assert child.stop() is True


def states_in(group: int) -> set[str]:
    """Return what the processes of a group do, as the kernel says it."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, of = stat.read_text().rpartition(")")[2].split()[:3]
            found |= {state} if of == str(group) else set()
    return found


# The child comes last on its processor; another one that is busy there is no child of ours, but of
# the same session, for sessions get equal shares.
_LAST = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
us = os.getpid()
if os.fork() == 0:
    os.setpgid(0, 0)
    while os.getppid() == us:
        pass
    os._exit(0)
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("up", flush=True)
while True:
    pass
"""


def test_a_frozen_child_stands_still_however_late_it_hears_its_signal(tmp_path: Path) -> None:
    child = Child("last", [sys.executable, "-c", _LAST], log=tmp_path / "log")
    try:
        while child.tail() != "up":
            assert child.returncode is None
            time.sleep(0.01)
        child.send(signal.SIGSTOP)
        assert states_in(child.pid) == {"T"}
    finally:
        child.kill()
