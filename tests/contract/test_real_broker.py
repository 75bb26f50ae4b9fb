"""The broker's contract on the real one, through the adapters of production."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from devstack.kafka import Broker
from devstack.pytest_plugin import TEST_SETTINGS, Names
from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.adapters.kafka_groups import GIVE_UP_S, KafkaGroups
from streamcore.adapters.kafka_settings import Settings
from streamcore.adapters.rare_log import RareLog
from streamcore.config import StreamsConfig
from streamcore.errors import (
    MemberFencedError,
    NotDeliveredError,
    ProducerFencedError,
    ProductionError,
    Recovery,
    RetriableError,
    StreamsError,
    TopicError,
)
from streamcore.model import OffsetAndMetadata, Refused, Send, TopicPartition
from streamcore.runtime.ports import GroupView, TopicSpec
from streamcore.testing.contracts.broker import (
    T0_MS,
    TIMEOUT_MS,
    Member,
    poll_until,
    read_to_end,
    rows_of,
    send_all,
)
from streamcore.testing.contracts.group import NOBODY, GroupContract, ask
from streamcore.topology.partitioning import partition_of

pytestmark = pytest.mark.broker


class TestRealBroker(GroupContract):
    @pytest.fixture(autouse=True)
    def _use(self, broker: Broker, names: Names) -> Iterator[None]:
        self._broker, self._names, self._number = broker, names, 0
        self._clusters: list[KafkaCluster] = []
        yield
        for cluster in self._clusters:
            cluster.close()

    def cluster(self, group: str, **settings: Any) -> KafkaCluster:
        config = StreamsConfig(application_id=group, kafka_url=self._broker.url, **settings)
        self._clusters.append(KafkaCluster(config, group))
        return self._clusters[-1]

    def name(self, bare: str) -> str:
        self._number += 1
        return self._names(f"{bare}-{self._number}")

    # -- what only a real broker does

    def test_refused_records_are_told_and_the_others_are_written(self) -> None:
        cases = {
            "too large": (Send("", [b"k"], [b"x" * 2_000_000], [T0_MS], None, 0), {}),
            "no key": (
                Send("", [None], [b"v"], [T0_MS], None, 0),
                {"cleanup.policy": "compact"},
            ),
            "no such partition": (Send("", [b"k"], [b"v"], [T0_MS], None, 7), {}),
            "from the future": (Send("", [b"k"], [b"v"], [4_000_000_000_000], None, 0), {}),
        }
        for case, (bad, settings) in cases.items():
            with self.topic(1, **settings) as topic, self.plain() as (_, producer, reader):
                send_all(producer, rows_of(topic, [b"before"]))
                bad.topic = topic
                assert producer.send(bad) is None
                with pytest.raises(ProductionError) as caught:
                    poll_until(lambda producer=producer: producer.flush(1_000))  # type: ignore[misc]
                assert caught.value.partition.topic == topic, case
                send_all(producer, rows_of(topic, [b"behind"]))
                source = TopicPartition(topic, 0)
                assert read_to_end(reader, {source: 0}).values(source) == [b"before", b"behind"]

    @pytest.mark.parametrize(
        "limits",
        [
            {},
            {"producer.batch.num.messages": "7"},
            {"producer.queue.buffering.max.messages": "60", "producer.linger.ms": "0"},
        ],
        ids=["one batch", "many batches", "small queue"],
    )
    def test_refused_records_are_sifted_out_and_all_others_keep_their_order(
        self, limits: dict[str, str]
    ) -> None:
        cluster = self.cluster(
            self.name("group"), production_error="continue", kafka_settings=limits
        )
        producer, reader = cluster.producer(), cluster.changelog_reader()
        with self.topic(3, **{"cleanup.policy": "compact"}) as topic:
            numbers = range(1_000)
            bad = {17: "no key", 18: "no key", 500: "future", 502: "no key", 999: "no key"}
            keys = [None if bad.get(i) == "no key" else b"k%d" % i for i in numbers]
            values = [b"%d" % i for i in numbers]
            stamps_ms = [4_000_000_000_000 if bad.get(i) == "future" else T0_MS for i in numbers]
            headers = [(("i", value),) for value in values]
            partitions = [i % 3 if i != 600 else 8 for i in numbers]
            send: Send | None = Send(topic, keys, values, stamps_ms, headers, partitions)
            refused: list[Refused] = []

            def flushed() -> bool:
                try:
                    return producer.flush(1_000)
                except ProductionError as error:
                    refused.extend(error.refused)
                    return False

            while send is not None:
                send = producer.send(send)
                poll_until(flushed)
            found = {int(r.send.values[0] or b""): r for r in refused}
            assert len(refused) == len(found)
            assert found.keys() == {*bad, 600}
            for i, each in found.items():
                row = each.send
                assert (row.topic, each.partition) == (topic, partitions[i])
                assert [*row.keys, *row.values] == [keys[i], values[i]]
                assert (row.stamps_ms, row.headers) == ([stamps_ms[i]], [headers[i]])
            assert "INVALID_TIMESTAMP" in found[500].reason
            log = read_to_end(reader, {TopicPartition(topic, i): 0 for i in range(3)})
            for partition in range(3):
                wanted = [values[i] for i in numbers if i % 3 == partition and i not in found]
                assert log.values(TopicPartition(topic, partition)) == wanted

    def test_a_topic_that_is_missing_is_no_fault_of_its_records(self) -> None:
        limits = {"producer.topic.metadata.propagation.max.ms": "100"}
        cluster = self.cluster(
            self.name("group"), production_error="continue", kafka_settings=limits
        )
        producer = cluster.producer()
        producer.send(Send(self.name("missing"), [b"k"], [b"v"], [T0_MS]))
        with pytest.raises(TopicError, match="missing"):
            poll_until(lambda: producer.flush(1_000))

    def test_a_full_queue_hands_back_what_did_not_fit(self) -> None:
        cluster = self.cluster(
            self.name("group"), kafka_settings={"producer.queue.buffering.max.messages": "100"}
        )
        producer, reader = cluster.producer(), cluster.changelog_reader()
        with self.topic(6) as topic:
            keys = [b"%d" % i for i in range(5_000)]
            headers = [(("i", key),) for key in keys]
            rest: Send | None = Send(topic, keys, keys, [T0_MS] * 5_000, headers)
            assert rest is not None
            rest.partition_keys = keys
            handed_back = 0
            while rest is not None:
                rest = producer.send(rest)
                if rest is not None:
                    handed_back += 1
                    assert len(rest.keys) == len(rest.values) == len(rest.stamps_ms)
                    producer.flush(5)
            poll_until(lambda: producer.flush(1_000))
            assert handed_back > 1
            log = read_to_end(reader, {TopicPartition(topic, i): 0 for i in range(6)})
            for i in range(6):
                expected = [key for key in keys if partition_of(key, 6) == i]
                source = TopicPartition(topic, i)
                assert log.values(source) == expected
                assert log.headers[source] == [(("i", key),) for key in expected]

    def test_a_session_that_the_broker_refuses_is_no_matter_of_trying_again(self) -> None:
        # Its default for the longest one is half an hour.
        cluster = self.cluster(
            self.name("group"), session_timeout_ms=3_000_000, max_poll_interval_ms=3_000_000
        )
        with self.topic() as topic:
            member = Member(cluster.consumer())
            member.consumer.subscribe([topic], member)
            with pytest.raises(StreamsError, match="session_timeout_ms must lie") as caught:
                poll_until(lambda: False, member.poll, polls_max=100)
            assert caught.value.recovery is Recovery.STOP
            member.consumer.close()

    def test_timestamps_at_the_edge(self) -> None:
        with self.topic() as topic, self.plain() as (_, producer, reader):
            send_all(producer, Send(topic, [b"k"] * 3, [b"v"] * 3, [-1, 0, 1], None, 0))
            source = TopicPartition(topic, 0)
            rows = read_to_end(reader, {source: 0}).rows[source]
            assert [stamp_ms for *_, stamp_ms in rows] == [-1, 1, 1]

    def test_a_member_that_polls_too_rarely_is_lost_and_comes_back(self) -> None:
        cluster = self.cluster(
            self.name("group"), session_timeout_ms=1_000, max_poll_interval_ms=1_000
        )
        with self.topic() as topic, self.member(cluster, topic) as member:
            poll_until(lambda: member.consumer.member_id() is None, lambda: time.sleep(0.05))
            with pytest.raises(MemberFencedError):
                member.consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)}, 1_000)
            poll_until(lambda: member.history == ["assigned", "lost", "assigned"], member.poll)

    def test_an_expired_transaction_is_the_end_of_its_producer(self) -> None:
        name = self.name("txn")
        cluster = self.cluster(
            self.name("group"), processing_guarantee="exactly_once_v2",
            transaction_timeout_ms=1_000, commit_interval_ms=100,
        )  # fmt: skip
        with self.topic() as topic, self.plain() as (_, plain, reader):
            with self.transactional(cluster, name) as producer:
                producer.begin_transaction()
                send_all(producer, rows_of(topic, [b"expired"]))
                # The broker ends it, which lets the plain record behind it be read.
                send_all(plain, rows_of(topic, [b"plain"]))
                source = TopicPartition(topic, 0)
                assert read_to_end(reader, {source: 0}).values(source) == [b"plain"]
                with pytest.raises(ProducerFencedError):
                    producer.commit_transaction({}, None, TIMEOUT_MS)
                with pytest.raises(ProducerFencedError):
                    producer.abort_transaction(TIMEOUT_MS)
            with self.transactional(cluster, name) as producer:
                producer.begin_transaction()
                send_all(producer, rows_of(topic, [b"new"]))
                producer.commit_transaction({}, None, TIMEOUT_MS)
                assert read_to_end(reader, {source: 0}).values(source) == [b"plain", b"new"]

    def test_an_answer_that_waits_for_too_long_to_be_heard_is_asked_for_anew(self) -> None:
        now_s, group = [0.0], self.name("group")
        settings: Settings = {"bootstrap.servers": self._broker.bootstrap}
        groups = KafkaGroups(settings, RareLog(), monotonic_s=lambda: now_s[0])
        with self.topic() as topic:
            poll_until(lambda: groups.describe(group, 1_000) == NOBODY)  # the connection is up
            assert groups.describe(group, 0) is None
            with self.members(self.cluster(group), [topic], "a"):
                now_s[0] += GIVE_UP_S
                views: list[GroupView | None] = []
                poll_until(lambda: any(views), lambda: views.append(groups.describe(group, 1_000)))
                assert [m.client_id for view in views if view for m in view.members] == ["a"]
        groups.close()

    def test_a_member_that_wakes_up_in_a_later_generation_commits_nothing(self) -> None:
        group = self.name("group")
        cluster = self.cluster(group, session_timeout_ms=1_000)
        with self.topic() as topic, self.sleeper(group, topic) as zombie:
            source = TopicPartition(topic, 0)
            with self.members(cluster, [topic], "heir") as (heir,):
                heir.consumer.commit({source: OffsetAndMetadata(5, "new")}, TIMEOUT_MS)
                zombie.send_signal(signal.SIGCONT)
                said, _ = zombie.communicate("commit\n", timeout=20)
                assert said.split() == ["MemberFencedError"]
                kept = heir.consumer.committed([source], TIMEOUT_MS)
                assert kept == {source: OffsetAndMetadata(5, "new")}

    @contextmanager
    def sleeper(self, group: str, topic: str) -> Iterator["subprocess.Popen[str]"]:
        """A member in a process of its own, stopped (SIGSTOP); it commits when it is told to."""
        command = [sys.executable, "-c", SLEEPER, self._broker.url, group, topic]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "in\n"
                process.send_signal(signal.SIGSTOP)
                yield process
            finally:
                process.kill()

    def test_offsets_of_a_dead_transaction_are_pending_until_somebody_takes_its_id(self) -> None:
        with (
            self.topic() as topic, self.group() as (_, cluster, _admin),
            self.members(cluster, [topic], "a") as (member,),
        ):  # fmt: skip
            source, name = TopicPartition(topic, 0), self.name("txn")
            dead = confluent_kafka.Producer(
                {"bootstrap.servers": self._broker.bootstrap, "transactional.id": name}
            )
            dead.init_transactions(20)
            dead.begin_transaction()
            proof = member.consumer.group_metadata()
            dead.send_offsets_to_transaction([confluent_kafka.TopicPartition(topic, 0, 7)], proof)
            with pytest.raises(RetriableError):
                member.consumer.committed([source], 1_000)
            began_s = time.monotonic()
            with self.transactional(cluster, name):
                pass
            assert member.consumer.committed([source], TIMEOUT_MS) == {source: None}
            assert time.monotonic() - began_s < 4


SLEEPER = """
import sys
from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.config import StreamsConfig
from streamcore.errors import StreamsError
from streamcore.model import OffsetAndMetadata, TopicPartition
from streamcore.testing.contracts.broker import Member, poll_until

url, group, topic = sys.argv[1:]
config = StreamsConfig(application_id=group, kafka_url=url, session_timeout_ms=1_000)
member = Member(KafkaCluster(config, group).consumer())
member.consumer.subscribe([topic], member)
poll_until(lambda: member.share is not None, member.poll)
print("in", flush=True)
sys.stdin.readline()
try:
    member.consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "old")}, 10_000)
    print("committed")
except StreamsError as error:
    print(type(error).__name__)
"""

ASKER = """
import sys, time
import structlog
from streamcore.adapters.kafka_groups import KafkaGroups
from streamcore.adapters.rare_log import RareLog

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
groups = KafkaGroups({"bootstrap.servers": sys.argv[1], "log_level": 0}, RareLog(), give_up_s=1.0)
longest_s, asked, view = 0.0, 0, None
while view is None:
    began_s = time.monotonic()
    view = groups.describe("nobody", 100)
    longest_s = max(longest_s, time.monotonic() - began_s)
    asked += 1
    if asked in (1, 40):
        print(asked, flush=True)
print(view.stable, view.members, asked, longest_s < 5.0)
groups.close()
"""


@pytest.mark.parametrize("away", ["frozen", "down"])
def test_a_coordinator_that_is_away_ends_nobody_who_asks_for_the_first_time(
    tmp_path: Path, away: str
) -> None:
    """Four seconds without an answer: enough for two clients to be given up."""
    with Broker(tmp_path / "kafka", settings=dict(TEST_SETTINGS)) as broker:
        config = StreamsConfig(application_id="app", kafka_url=broker.url)
        cluster = KafkaCluster(config, "app")
        assert ask(cluster.admin(), "app") == NOBODY
        cluster.close()
        broker.pause() if away == "frozen" else broker.stop()
        command = [sys.executable, "-c", ASKER, broker.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert [process.stdout.readline() for _ in range(2)] == ["1\n", "40\n"]
                broker.resume() if away == "frozen" else broker.start()
                said, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 0
        stable, members, asked, in_time = said.split()
        assert (stable, members, in_time) == ("True", "()", "True")
        assert int(asked) > 40


def test_a_frozen_broker_holds_nobody_longer_than_asked(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", settings=dict(TEST_SETTINGS)) as broker:
        config = StreamsConfig(application_id="app", kafka_url=broker.url, session_timeout_ms=3_000)
        cluster = KafkaCluster(config, "app")
        admin, producer, consumer = cluster.admin(), cluster.producer(), cluster.consumer()
        admin.create([TopicSpec("t", 1, {})], TIMEOUT_MS)
        member, source = Member(consumer), TopicPartition("t", 0)
        consumer.subscribe(["t"], member)
        poll_until(lambda: member.share is not None, member.poll)
        send_all(producer, rows_of("t", [b"1"]))
        broker.pause()
        try:
            began_s = time.monotonic()
            with pytest.raises(RetriableError):
                consumer.commit({source: OffsetAndMetadata(1)}, 300)
            with pytest.raises(RetriableError):
                consumer.commit({source: OffsetAndMetadata(1)}, 300)
            with pytest.raises(RetriableError):
                admin.offsets([source], "latest", 300)
            assert admin.group("app", 300) is None
            assert admin.group("app", 300) is None
            with pytest.raises(RetriableError):
                consumer.committed([source], 300)
            producer.send(rows_of("t", [b"2"]))
            assert not producer.flush(100)
            assert time.monotonic() - began_s < 9, "none waits 10 s for its connection, or for ever"
            with pytest.raises(NotDeliveredError):  # after the session time-out
                poll_until(lambda: producer.flush(100))
            began_s = time.monotonic()
            cluster.close()
            assert time.monotonic() - began_s < 15, "it would wait for ever"
        finally:
            broker.resume()
        again = KafkaCluster(config, "app")
        assert ask(again.admin(), "app") == NOBODY
        send_all(again.producer(), rows_of("t", [b"3"]))
        again.close()
