"""Member: this worker in the group, generation after generation; at first only as a guest.

A guest is no member yet. It reads the list, computes what it would get, and follows those
changelogs while their present owners go on; it joins when it has caught up. So whoever joins takes
over warm tasks, and nobody waits for a restore. Where nobody is in the group there is nothing to
wait for.
"""

from collections.abc import Callable
from typing import Any

import structlog

from streamcore.errors import RetriableError, StreamsError
from streamcore.model import TaskId
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.membership import Membership, Plan
from streamcore.runtime.ports import Consumer, Producer, World
from streamcore.runtime.rebalance import Callbacks
from streamcore.runtime.standby import Standbys

_log = structlog.get_logger("streamcore.member")

LOOK_MS = 500
"""How often a guest looks whether the list has changed."""


class Member:
    """The consumer of a worker with its place in the group."""

    def __init__(
        self,
        blueprint: Blueprint,
        world: World,
        standbys: Standbys,
        commit_and_drop: Callable[[], None],
        drop_lost: Callable[[], None],
    ) -> None:
        self._blueprint = blueprint
        self._settings = blueprint.settings
        self._world = world
        self._standbys = standbys
        self._ends = commit_and_drop, drop_lost
        self.membership = Membership(blueprint, world)
        self.consumer: Consumer = world.consumer(self.membership.tag)
        self._callbacks = self._listener()
        self._guest_since_ms: int | None = None
        self._known_ms = 0  # when a guest could last tell what it would get
        self._look_ms = 0
        self._awaited: frozenset[TaskId] | None = None

    @property
    def is_guest(self) -> bool:
        """True before this worker has asked to join."""
        return self._guest_since_ms is not None

    @property
    def settled(self) -> bool:
        """True while we have our part of a generation."""
        return self._callbacks.joined and self._callbacks.assigned is None

    @property
    def group_metadata(self) -> Any:
        """Proof of membership for the transactions of this generation."""
        return self._callbacks.group_metadata

    def producer(self) -> Producer:
        """Return a new producer for this worker; under exactly-once it has our id."""
        return self._world.producer(self.membership.transactional_id)

    def come(self, now_ms: int) -> None:
        """Be a guest from now on; ``advance`` does the rest."""
        self._guest_since_ms = self._known_ms = self._look_ms = now_ms
        self._awaited = None

    def advance(self, now_ms: int) -> Plan | None:
        """Do the next step; return our part of a new generation, once for each.

        :raises MemberFencedError, AuthorizationError: as the broker says.
        """
        try:
            if self._guest_since_ms is not None:
                self._warm_up(now_ms, self._guest_since_ms)
                return None
            if self._callbacks.assigned is None:
                return None
            plan = self.membership.decide(self.consumer, self._callbacks.assigned, now_ms)
        except RetriableError as error:
            self.membership.tell_waiting(str(error), now_ms)
            return None
        if plan is not None:
            self._callbacks.take()
        return plan

    def raise_from_callbacks(self) -> None:
        """Raise what went wrong inside a callback since the last call."""
        error, self._callbacks.error = self._callbacks.error, None
        if error is not None:
            raise error

    def come_back(self, error: StreamsError, now_ms: int) -> None:
        """The group went on without us: come anew, as somebody it does not know."""
        _log.warning("no member of the group any more; joining anew", reason=str(error))
        self.close()
        self.consumer = self._world.consumer(self.membership.tag)
        self._callbacks = self._listener()
        self.come(now_ms)

    def go_deaf(self) -> None:
        """Hear nothing from the group any more."""
        self._callbacks.go_deaf()

    def close(self) -> None:
        """Leave the group at once."""
        self._callbacks.go_deaf()
        self.consumer.close()
        self.membership.orphans.close()

    # -- a guest -----------------------------------------------------------------------------

    def _warm_up(self, now_ms: int, since_ms: int) -> None:
        if self._settings.warmup_max_ms == 0:
            self._join()
            return
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self._look(now_ms)
        if self._awaited is None:
            # A list that stays unstable for longer than that waits for somebody: for us, maybe.
            if now_ms - self._known_ms > self._settings.session_timeout_ms:
                self._join()
            return
        self._standbys.advance(self.consumer, now_ms)
        lag = self._standbys.lag() if self._awaited else 0
        if lag is not None and lag <= self._settings.acceptable_recovery_lag:
            self._join()
        elif now_ms - since_ms > self._settings.warmup_max_ms:
            _log.warning("joining although the state is not read yet", lag=lag)
            self._join()

    def _look(self, now_ms: int) -> None:
        wanted = self.membership.look(self.consumer)
        if wanted is None:
            return
        self._known_ms = now_ms
        awaited = wanted & self._blueprint.stateful()
        if awaited != self._awaited:
            if awaited:
                _log.info("reading state before joining", tasks=" ".join(map(str, sorted(awaited))))
            self._standbys.want(awaited)
            self._awaited = awaited

    def _join(self) -> None:
        self._guest_since_ms = None
        self.consumer.subscribe(sorted(self._blueprint.readers()), self._callbacks)

    def _listener(self) -> Callbacks:
        return Callbacks(self.consumer, *self._ends, needs_metadata=self._settings.exactly_once)
