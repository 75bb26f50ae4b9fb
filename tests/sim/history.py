"""One seed is one history: workers on a broker in memory, and what can happen to them.

After the history everything is left in peace until nothing is unread, and the counts are compared
with those of the words themselves: equal under exactly-once; not lower under at-least-once.
"""

from random import Random

from tests.unit.runtime.simulated import START_MS, Cluster

from streamcore.errors import (
    NotDeliveredError,
    RetriableError,
    StreamsError,
    TransactionAbortedError,
)
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import Worker
from streamcore.testing.broker import MemoryStateDir
from streamcore.testing.consumer import MemoryConsumer

WORDS = ("to", "be", "or", "not", "question")


class History:
    """A cluster, its workers by slot, and everything that was done to them."""

    def __init__(self, seed: int, guarantee: str, *, gentle: bool = False) -> None:
        self.rng = Random(seed)
        self.cluster = Cluster(partitions=self.rng.choice((1, 2, 4)), guarantee=guarantee)
        self.exactly_once = guarantee == "exactly_once_v2"
        self.cluster.broker.late_markers = self.rng.random() < 0.3
        self.workers: dict[str, Worker] = {}
        self.disks: dict[str, MemoryStateDir] = {}
        self.log: list[str] = [f"seed {seed}, {guarantee}"]
        self.stamp_ms = START_MS - 86_400_000
        self.crashed = False
        self.gentle = gentle  # nothing but starts and clean stops

    def play(self, events: int) -> None:
        actions = {
            self.feed: 6,
            self.turns: 12,
            self.start: 3,
            self.stop: 1,
            self.crash: 1,
            self.freeze: 1,
            self.fault: 2,
            self.cluster_away: 1,
            self.markers: 1,
        }
        if self.gentle:
            actions = {self.feed: 6, self.turns: 12, self.start: 3, self.stop: 2}
        for _ in range(events):
            (action,) = self.rng.choices(list(actions), list(actions.values()))
            self.log.append(action.__name__)
            action()

    def feed(self) -> None:
        words = self.rng.choices(WORDS, k=self.rng.randrange(1, 60))
        self.cluster.feed(words, self.stamp_ms, self.rng.choice((0, 7, 300)))
        self.stamp_ms += self.rng.choice((0, 1_000, 20_000)) + 300 * len(words)

    def turns(self) -> None:
        for _ in range(self.rng.randrange(1, 12)):
            for slot in self.rng.sample(sorted(self.workers), len(self.workers)):
                self.turn(slot)
            self.cluster.clock.advance(self.rng.choice((10, 150, 400)))

    def turn(self, slot: str) -> None:
        self.workers[slot].turn(self.cluster.clock.now_ms())

    def start(self) -> None:
        free = [slot for slot in "abc" if slot not in self.workers]
        if free:
            slot = self.rng.choice(free)
            disk = self.disks.setdefault(slot, MemoryStateDir())
            if self.rng.random() < 0.3:
                self.log.append(f"{slot} lost its disk")
                disk.wipe()
            self.log.append(f"start {slot}")
            try:
                self.workers[slot] = self.cluster.worker(slot, state_dir=disk)
            except RetriableError:
                self.log.append("did not start")

    def pick(self) -> str | None:
        return self.rng.choice(sorted(self.workers)) if self.workers else None

    def stop(self) -> None:
        slot = self.pick()
        if slot is not None:
            worker = self.workers.pop(slot)
            if not worker.stop(self.cluster.clock.now_ms()):
                self.crashed = True

    def crash(self) -> None:
        slot = self.pick()
        if slot is not None:
            self.log.append(f"crash {slot}")
            _silence(self.workers.pop(slot), dead=True)
            self.crashed = True

    def freeze(self) -> None:
        """One stands still until the group has gone on without it, then goes on itself."""
        slot = self.pick()
        if slot is None:
            return
        self.log.append(f"freeze {slot}")
        self.crashed = True
        frozen = self.workers.pop(slot)
        _silence(frozen, dead=True)
        for _ in range(self.rng.randrange(2, 60)):
            for other in self.workers:
                self.turn(other)
            self.cluster.clock.advance(400)
        _silence(frozen, dead=False)
        self.workers[slot] = frozen

    def fault(self) -> None:
        faults: list[tuple[str, object]] = [
            ("consumer.commit", RetriableError("no answer")),
            ("consumer.commit.after", RetriableError("no answer")),
            ("producer.flush", False),
            ("consumer.committed", RetriableError("no answer")),
            ("admin.offsets.latest", RetriableError("no answer")),
            ("producer.flush", NotDeliveredError("too late")),
        ]
        if self.exactly_once:
            faults += [
                ("producer.commit_transaction", RetriableError("no answer")),
                ("producer.commit_transaction.after", RetriableError("no answer")),
                ("producer.commit_transaction", TransactionAbortedError("abort")),
                ("producer.abort_transaction", RetriableError("no answer")),
            ]
        call, outcome = self.rng.choice(faults)
        self.log.append(f"{call}: {outcome!r}")
        self.crashed |= isinstance(outcome, StreamsError)
        self.cluster.broker.faults.next(call, outcome)

    def cluster_away(self) -> None:
        self.cluster.broker.away = True
        self.turns()
        self.cluster.broker.away = False
        self.crashed = True

    def markers(self) -> None:
        self.cluster.broker.write_markers()

    def settle(self) -> None:
        """Leave everything in peace until all is read."""
        self.cluster.broker.late_markers = False
        self.cluster.broker.write_markers()
        self.cluster.broker.faults.clear()
        if not self.workers:
            self.start()
        workers = list(self.workers.values())
        states: set[WorkerState] = set()
        for _ in range(1_000):
            self.cluster.run(*workers, turns=3)
            self.cluster.broker.expire_transactions()
            states = {worker.state for worker in workers}
            if states == {WorkerState.RUNNING} and self.cluster.lag() == 0:
                break
        else:
            raise AssertionError(f"{states}, lag {self.cluster.lag()}")
        self.cluster.run(*workers, turns=12)

    def check(self) -> None:
        counts, fed = self.cluster.counts(), dict(self.cluster.fed)
        if self.exactly_once or not self.crashed:
            assert counts == fed
        else:
            assert counts.keys() == fed.keys()
            low = {key: (counts[key], fed[key]) for key in fed if counts[key] < fed[key]}
            assert not low


def _silence(worker: Worker, *, dead: bool) -> None:
    """Let a worker send no heartbeats, or send them again."""
    consumer = worker._consumer
    assert isinstance(consumer, MemoryConsumer)
    consumer.dead = dead


def simulate(seed: int, guarantee: str, *, events: int = 60, gentle: bool = False) -> None:
    """Play one history; a failure tells it."""
    history = History(seed, guarantee, gentle=gentle)
    try:
        history.play(events)
        history.log.append("settle")
        history.settle()
        history.check()
    except Exception as failure:
        failure.add_note("\n".join(history.log))
        raise
