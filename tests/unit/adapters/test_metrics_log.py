"""Lines for l2met: differences, sums, largest times, bounded lines, any source."""

import threading
from typing import Any

from streamcore.adapters.metrics_log import LINE_BYTES_MAX, MetricsLog, MetricsLogThread
from streamcore.runtime.metrics import Sample


class Told:
    """Lines of one process whose numbers a test sets."""

    def __init__(self, source: str = "worker.1") -> None:
        self.samples: list[Sample] = []
        self.lines: list[str] = []
        self.log = MetricsLog(source, lambda: self.samples, self.lines.append)

    def tell(self, *samples: tuple[Any, float, dict[str, str]]) -> dict[str, str]:
        self.samples = [Sample(name, tuple(at.items()), value) for name, value, at in samples]
        self.lines.clear()
        self.log.tell()
        parts = [part for line in self.lines for part in line.split()[1:]]
        assert len(parts) == len({part.partition("=")[0] for part in parts})
        return dict(part.split("=") for part in parts)


def test_a_line_names_its_source_and_each_kind() -> None:
    told = Told()
    told.tell(
        ("streamcore_rows_processed_total", 5_000, {}),
        ("streamcore_lag_records", 120, {}),
        ("streamcore_commit_last_ms", 12.5, {}),
    )
    lag = "sample#streamcore.lag_records=120"
    assert "".join(told.lines) == (
        "source=worker.1 count#streamcore.rows_processed=5000"
        f" measure#streamcore.commit_last_ms=12.5ms {lag}\n"
    )


def test_counters_are_told_as_differences_also_of_series_that_come_and_go() -> None:
    told, name = Told(), "streamcore_rows_dropped_total"
    one, two = {"reason": "late", "task": "0_0"}, {"reason": "late", "task": "0_1"}
    key = "count#streamcore.rows_dropped.late"
    assert told.tell((name, 5, one), (name, 7, two))[key] == "12"
    assert told.tell((name, 6, one), (name, 7, two))[key] == "1"
    assert told.tell((name, 6, one))[key] == "0"  # one went to another worker
    assert told.tell((name, 6, one), (name, 9, two))[key] == "2"  # and came back, and goes on
    assert told.tell((name, 1, one), (name, 9, two))[key] == "1"  # begun anew between two lines


def test_reasons_stay_apart_and_all_other_series_become_one_number() -> None:
    found = Told().tell(
        ("streamcore_rows_dropped_total", 1, {"reason": "late", "task": "0_0"}),
        ("streamcore_rows_dropped_total", 2, {"reason": "null key", "task": "0_0"}),
        ("streamcore_store_lag_records", 3, {"partition": "0", "store": "s", "worker": "1"}),
        ("streamcore_store_lag_records", 4, {"partition": "1", "store": "s", "worker": "2"}),
        ("streamcore_task_watermark_delay_ms", 10, {"task": "0_0"}),
        ("streamcore_task_watermark_delay_ms", 30, {"task": "0_1"}),
        ("streamcore_task_watermark_delay_ms", 20, {"task": "0_2"}),
        ("streamcore_task_watermark_ms", 1_700_000_000_000, {"task": "0_2"}),
    )
    assert found == {
        "count#streamcore.rows_dropped.late": "1",
        "count#streamcore.rows_dropped.null_key": "2",
        "sample#streamcore.store_lag_records": "7",
        "measure#streamcore.task_watermark_delay_ms": "30ms",
    }


def test_no_line_is_too_long_and_each_has_its_source() -> None:
    told = Told("a dyno/with=odd letters")
    found = told.tell(
        *(("streamcore_rows_dropped_total", n, {"reason": f"r{n}" * 20}) for n in range(1, 500))
    )
    assert len(found) == 499
    assert len(told.lines) > 1
    for line in told.lines:
        assert len(line) <= LINE_BYTES_MAX + 1
        assert line.startswith("source=a-dyno-with-odd-letters count#")
        assert line.endswith("\n")


def test_nothing_to_tell_is_no_line() -> None:
    told = Told()
    told.tell()
    assert told.lines == []


def test_the_thread_tells_again_and_again_and_at_the_end() -> None:
    lines: list[str] = []
    twice = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            twice.set()

    log = MetricsLog("s", lambda: [Sample("streamcore_tasks", (), len(lines))], write)
    with MetricsLogThread(log, 10):
        assert twice.wait(10)
    assert lines[-1] == f"source=s sample#streamcore.tasks={len(lines) - 1}\n"
    count = len(lines)
    assert not threading.Event().wait(0.05)
    assert len(lines) == count
