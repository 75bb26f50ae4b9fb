"""What can go wrong in a history, by kind, and how it is mended."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from tests.sim.processes import Disk, Process
from tests.sim.words import CHANGELOG, COUNTS, FINALS, NAMES, WORDS

from streamcore.errors import (
    MemberFencedError,
    NotDeliveredError,
    RetriableError,
    StreamsError,
    TransactionAbortedError,
)
from streamcore.model import TopicPartition
from streamcore.testing.consumer import MemoryConsumer

if TYPE_CHECKING:
    from tests.sim.history import History

NO_ANSWER = RetriableError("no answer")
ANSWERS: list[tuple[str, Any]] = [
    ("consumer.commit", NO_ANSWER),
    ("consumer.commit.after", NO_ANSWER),
    ("consumer.committed", NO_ANSWER),
    ("admin.offsets.latest", NO_ANSWER),
    ("admin.offsets.earliest", NO_ANSWER),
    ("producer.flush", False),
    ("producer.flush", NotDeliveredError("too late")),
]
TRANSACTION_ANSWERS: list[tuple[str, Any]] = [
    ("producer.init_transactions", NO_ANSWER),
    ("producer.commit_transaction", NO_ANSWER),
    ("producer.commit_transaction.offsets_sent", NO_ANSWER),
    ("producer.commit_transaction.after", NO_ANSWER),
    ("producer.commit_transaction", TransactionAbortedError("abort")),
    ("producer.commit_transaction", MemberFencedError("fenced")),
    ("producer.abort_transaction", NO_ANSWER),
]
CALLS: tuple[str, ...] = (
    *("consumer.poll", "consumer.commit", "consumer.committed", "consumer.assign"),
    *("producer.send", "producer.flush", "producer.init_transactions"),
    *("producer.commit_transaction", "producer.abort_transaction"),
    *("engine.write", "admin.offsets", "admin.group", "admin.topic_ids", "reader.poll"),
)
KINDS = frozenset(
    {
        *("SIGTERM", "SIGKILL", "SIGKILL with its disk", "freeze", "slow member"),
        *("rolling deploy", "two of one slot", "foreign member", "time jump"),
        *("broker away", "late leaders", "late markers", "rows held back", "expired transaction"),
        *("compaction", "retention", "admin.group fails"),
        *(f"{call} fails" for call, _outcome in ANSWERS + TRANSACTION_ANSWERS),
    }
)
"""Every kind of fault that somebody can meet, as a history names them."""
SENDING = ("producer.send", "producer.flush", "consumer.poll")
"""Who stands still in front of a send may overwrite what its successor has counted by then: only
transactions exclude that."""


class Foreign:
    """The listener of a consumer that is none of ours: it reads what it is given, and no more."""

    def __init__(self) -> None:
        self.consumer: MemoryConsumer | None = None

    def on_assigned(self, shares: object) -> None:
        assert self.consumer is not None
        self.consumer.assign({})

    def on_revoked(self, shares: object) -> None: ...

    def on_lost(self, shares: object) -> None: ...


class Faults:
    """The kinds of faults of one history."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._rng = history.rng
        self._broker = history.broker
        if self._rng.random() < 0.5:
            self._broker.late_markers = True
            history.met["late markers"] += 1
        if self._rng.random() < 0.5:
            self._broker.lingers = True
            history.met["rows held back"] += 1

    def odds(self) -> dict[Callable[[], None], int]:
        """Return the events and how likely each one is."""
        gentle: dict[Callable[[], None], int] = {
            self.stop: 1,
            self.deploy: 1,
            self.compact: 1,
            self.retain: 1,
            self.jump: 1,
            self.unanswered_list: 1,
            self.foreign: 1,
        }
        if self._history.gentle:
            return gentle
        return gentle | {
            self.kill: 1,
            self.kill_at_a_call: 2,
            self.freeze: 1,
            self.stand_at_a_call: 3,
            self.no_answer: 3,
            self.away: 1,
            self.same_slot: 1,
            self.expire: 1,
        }

    def end(self) -> None:
        """Mend everything."""
        broker = self._broker
        broker.away = False
        broker.silent_until_ms.clear()
        broker.faults.clear()
        broker.write_markers()
        if self._history.foreign is not None:
            self._history.foreign.close()
            self._history.foreign = None
        for process in self._history.workers:
            process.plan("", 0, _nothing, before=True)

    def disturbances(self) -> int:
        """Return how often somebody met what may keep a commit from being made."""
        calls = self._broker.faults.met
        return self._history.met.total() + sum(
            times
            for call, times in calls.items()
            if call.startswith(("producer.", "consumer.commit"))
        )

    def _pick(self) -> Process | None:
        workers = list(self._history.workers)
        return self._rng.choice(workers) if workers else None

    # -- workers -------------------------------------------------------------------------------

    def stop(self) -> None:
        process = self._pick()
        if process is not None:
            self._history.stop(process)
            self._history.met["SIGTERM"] += 1

    def deploy(self) -> None:
        """Replace one worker by one of the other version, as a rolling deploy does one by one."""
        history = self._history
        history.version = 3 - history.version
        self._history.tell(f"from now on version {history.version}", "rolling deploy")
        process = self._pick()
        if process is not None:
            history.stop(process)
        history.start()

    def kill(self) -> None:
        process = self._pick()
        if process is not None:
            self._kill(process, "between turns")

    def _kill(self, process: Process, where: str) -> None:
        history = self._history
        process.die()
        history.workers.pop(process, None)
        history.doubled = True
        slot = process.name.split(".")[0]
        if self._rng.random() < 0.4:
            history.disks[slot] = Disk()
            history.tell(f"kill {process.name} {where}, its disk is lost", "SIGKILL with its disk")
        else:
            history.tell(f"kill {process.name} {where}", "SIGKILL")

    def kill_at_a_call(self) -> None:
        self._plan(self._kill, CALLS)

    def _plan(self, act: Callable[[Process, str], None], calls: tuple[str, ...]) -> None:
        process = self._pick()
        if process is None:
            return
        target = process
        process.plan(
            self._rng.choice(calls),
            self._rng.randrange(1, 6),
            lambda where: act(target, where),
            before=self._rng.random() < 0.5,
        )

    def freeze(self) -> None:
        """One stands still until the group may have gone on without it, then goes on itself."""
        process = self._pick()
        if process is not None:
            self._stand(process, "between turns")

    def stand_at_a_call(self) -> None:
        calls = CALLS
        if not self._history.exactly_once:
            calls = tuple(call for call in CALLS if call not in SENDING)
        self._plan(self._stand, calls)

    def _stand(self, process: Process, where: str) -> None:
        history = self._history
        if history.standing is not None or self._broker.away:
            return
        silent = self._rng.random() < 0.6  # else its heartbeats go on: it is slow
        kind = "freeze" if silent else "slow member"
        history.tell(f"{process.name} stands still {where}: {kind}", kind)
        history.doubled = True
        history.standing = process
        process.silence(silent=silent)
        try:
            for _ in range(self._rng.randrange(2, 40)):
                if self._rng.random() < 0.25:
                    history.feed()
                history.round()
                history.clock.advance(self._rng.choice((150, 800)))
        finally:
            history.standing = None
            process.silence(silent=process.dead)
        history.tell(f"{process.name} goes on")

    def same_slot(self) -> None:
        """Somebody with a slot that is taken: two machines with one name during a deploy."""
        process = self._pick()
        if process is not None and len(self._history.workers) < 4:
            self._history.met["two of one slot"] += 1
            self._history.launch(process.name.split(".")[0], Disk())

    def foreign(self) -> None:
        """A consumer that is none of ours comes into the group, or leaves it."""
        history = self._history
        if history.foreign is not None:
            history.tell("the foreign member leaves")
            history.foreign.close()
            history.foreign = None
            return
        listener = Foreign()
        history.tell("a foreign member comes", "foreign member")
        history.foreign = listener.consumer = MemoryConsumer(
            self._broker, self._broker.group(NAMES.group), "kcat"
        )
        history.foreign.subscribe([WORDS], listener)

    # -- the broker ----------------------------------------------------------------------------

    def no_answer(self) -> None:
        answers = ANSWERS + (TRANSACTION_ANSWERS if self._history.exactly_once else [])
        call, outcome = self._rng.choice(answers)
        self._history.tell(f"{call}: {outcome!r}")
        self._history.doubled |= isinstance(outcome, StreamsError)
        self._broker.faults.next(call, outcome)

    def unanswered_list(self) -> None:
        self._history.tell("admin.group: no answer")
        self._broker.faults.next("admin.group", False, times=self._rng.randrange(1, 8))

    def away(self) -> None:
        self._history.tell("the broker goes away", "broker away")
        self._history.doubled = True
        self._broker.away = True
        self._history.turns(4)
        late = self._history.late_leaders
        if late is not None:
            self._longer(late)
        self._broker.away = False
        self._history.tell("the broker is back")
        if late is not None:
            self._leaders_later(late)

    def _longer(self, rng: Random) -> None:
        """Stay away while others, who are nearer, write."""
        for _ in range(rng.randrange(12)):
            if rng.random() < 0.3:
                self._history.source.feed(rng.randrange(1, 10))
            self._history.round()
            self._history.clock.advance(rng.choice((150, 400)))

    def _leaders_later(self, rng: Random) -> None:
        """Let some partitions of the words have no leader for a while, when all else is answered.

        That takes less than the silence that makes an input idle.
        """
        partitions = range(self._history.source.partitions)
        some = rng.sample(partitions, rng.randrange(1, len(partitions)))
        idle_after_ms = self._history.settings.task.idle_after_ms
        until_ms = self._history.clock.now_ms() + min(idle_after_ms, 8_000) - rng.choice((100, 900))
        self._broker.silent_until_ms = {TopicPartition(WORDS, at): until_ms for at in some}
        self._history.tell(f"without a leader yet: {some} of the words", "late leaders")

    def expire(self) -> None:
        """Time goes on until every transaction that is open now has expired."""
        self._history.tell("transactions expire", "expired transaction")
        self._history.clock.advance(self._broker.transaction_ms + 1)
        self._broker.expire_transactions()
        self._history.doubled = True

    def compact(self) -> None:
        self._history.tell("compaction", "compaction")
        for topic in (CHANGELOG, COUNTS, FINALS):
            if topic in self._broker.topics:
                self._broker.compact(topic)

    def retain(self) -> None:
        self._history.tell("retention", "retention")
        self._history.source.delete_what_is_counted()

    def jump(self) -> None:
        by_ms = self._rng.choice((-2_000, -300, 3_000, 6_000))
        self._history.tell(f"the clocks jump by {by_ms}", "time jump")
        self._history.clock.advance(by_ms)


def _nothing(_where: str) -> None:
    """What a plan does that was called off."""
