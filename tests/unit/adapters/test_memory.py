"""The soft limit: caches halve while memory is short, and come back slowly."""

from structlog.testing import capture_logs

from streamcore.adapters.memory import GROW_S, LOOK_S, SoftLimit, give_back, rss_bytes

MIB = 1 << 20


class Machine:
    """A process whose memory and time a test sets; it is the caches as well."""

    def __init__(self, limit_bytes: int | None = 400 * MIB) -> None:
        self.rss = 0
        self.now_s = 0.0
        self.released = 0
        self.limits: list[int] = []
        self.limit_bytes = 32 * MIB
        self.taken_bytes = 1 << 40
        self.soft = SoftLimit(
            limit_bytes, self, lambda: self.rss, lambda: self.now_s, self._release
        )

    def limit(self, limit_bytes: int) -> None:
        self.limits.append(limit_bytes)

    def _release(self) -> None:
        self.released += 1

    def pass_s(self, seconds: float, rss_mib: int) -> int:
        """Let time pass with its looks; return what is allowed afterwards, in MiB."""
        self.rss = rss_mib * MIB
        for _ in range(int(seconds / LOOK_S)):
            self.now_s += LOOK_S
            assert self.soft.look()
            assert not self.soft.look()  # too early
        return self.limits[-1] // MIB if self.limits else 32


def test_the_memory_of_this_process_is_seen_to_grow() -> None:
    before = rss_bytes()
    assert MIB < before < 1 << 40
    block = bytearray(b"x") * (64 * MIB)
    assert rss_bytes() >= before + 60 * MIB
    del block
    give_back()
    assert rss_bytes() <= before + 30 * MIB


def test_caches_halve_at_each_look_down_to_the_smallest_and_each_change_is_told_once() -> None:
    machine = Machine()
    with capture_logs() as logs:
        assert machine.pass_s(3, 399) == 32
        assert machine.limits == []
        assert [machine.pass_s(LOOK_S, 401) for _ in range(6)] == [16, 8, 4, 2, 2, 2]
    assert [log["cache_bytes"] // MIB for log in logs] == [16, 8, 4, 2]
    assert {log["event"] for log in logs} == {"memory is short, caches shrink"}
    assert logs[0]["rss_bytes"] == 401 * MIB
    assert logs[0]["limit_bytes"] == 400 * MIB
    assert machine.released == 6


def test_half_of_what_they_take_is_less_than_half_of_what_they_may_take() -> None:
    machine = Machine()
    machine.taken_bytes = 20 * MIB
    assert machine.pass_s(LOOK_S, 401) == 10
    machine.taken_bytes = 0
    assert machine.pass_s(LOOK_S, 401) == 2


def test_they_come_back_step_by_step_when_there_is_room_for_long_enough() -> None:
    machine = Machine()
    machine.pass_s(2 * LOOK_S, 500)
    with capture_logs() as logs:
        assert machine.pass_s(GROW_S - LOOK_S, 100) == 8
        assert machine.pass_s(LOOK_S, 100) == 10
        assert machine.pass_s(GROW_S - LOOK_S, 100) == 10
        assert machine.pass_s(11 * GROW_S + 1, 100) == 32
        assert [log["event"] for log in logs] == ["memory is enough again, caches have their size"]
    count = len(machine.limits)
    machine.pass_s(100, 100)
    assert len(machine.limits) == count


def test_just_under_the_limit_they_stay_as_they_are() -> None:
    machine = Machine()
    machine.pass_s(LOOK_S, 500)
    assert machine.pass_s(10 * GROW_S, 390) == 16


def test_without_a_limit_memory_is_only_looked_at() -> None:
    machine = Machine(None)
    machine.pass_s(10, 5_000)
    assert machine.limits == []
    assert machine.soft.rss_bytes == 5_000 * MIB
