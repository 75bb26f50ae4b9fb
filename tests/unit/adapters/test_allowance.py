"""What may be under way: little at first, more as answers come, little again after a throttling."""

from streamcore.adapters.allowance import BEGIN_BYTES, WINDOW_S, Allowance, mean_bytes

KB = 1_000


class Road:
    """A producer's way to a broker that a test lets answer."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.under_way = 0
        self.allowance = Allowance(lambda: self.now_s)

    def fill(self, row_bytes: float = KB) -> int:
        """Send as much as may be sent; return how many rows."""
        room = self.allowance.room(self.under_way, row_bytes)
        self.allowance.sent(room, row_bytes)
        self.under_way += room
        return room

    def answer(self, rows: int | None = None, after_s: float = 0.005) -> None:
        self.now_s += after_s
        self.under_way -= self.under_way if rows is None else rows


def test_little_is_under_way_until_answers_come() -> None:
    road = Road()
    assert road.fill() == BEGIN_BYTES // KB
    assert road.fill() == 0
    road.now_s += 100
    assert road.fill() == 0
    road.answer(3)
    assert road.fill() in (3, 4)


def test_without_a_quota_it_is_in_nobodys_way_within_a_fraction_of_a_second() -> None:
    road = Road()
    answers = 0
    while road.fill() < 2_000:
        road.answer()
        answers += 1
    assert answers < 50


def test_at_a_steady_rate_a_second_of_it_is_under_way() -> None:
    road = Road()
    for _ in range(100):  # 64 kB a second in steps of a quarter
        road.fill()
        road.answer(min(road.under_way, 16), after_s=0.25)
    seconds = road.under_way / 64
    assert 1 <= seconds <= 2


def test_what_was_long_ago_says_nothing() -> None:
    road = Road()
    for _ in range(40):
        road.fill()
        road.answer()
    road.allowance.room(road.under_way, KB)  # answers count when they are seen
    road.now_s += WINDOW_S + 1
    assert road.fill() == BEGIN_BYTES // KB


def test_after_a_throttling_it_begins_anew() -> None:
    road = Road()
    for _ in range(40):
        road.fill()
        road.answer()
    before = road.fill()
    road.allowance.throttled()
    assert road.fill() == 0
    road.answer()
    assert road.fill() <= BEGIN_BYTES / KB + before / WINDOW_S


def test_a_row_of_any_size_goes_when_nothing_else_does() -> None:
    road = Road()
    assert road.fill(10_000 * KB) == 1
    assert road.fill(1) == 0
    road.answer()
    assert road.fill(10_000 * KB) == 1


def test_events_that_are_no_rows_do_no_harm() -> None:
    road = Road()
    road.fill()
    road.under_way += 1_000
    assert road.fill() == 0
    road.under_way = 0
    assert road.fill() >= BEGIN_BYTES // KB


def test_the_size_of_rows_is_known_from_some_of_them() -> None:
    assert mean_bytes([], []) == 1
    assert mean_bytes([None], [None]) == 1
    assert mean_bytes([b"key", None], [None, b"value"]) == 4
    assert 40 < mean_bytes([b"k" * 10] * 1_000, [b"v" * 20, b"v" * 60] * 500) < 80
