"""What the trials of the field reports share: a worker with a trial in it, and EXACT.

EXACT: for every word and window the local store, the last value in the output topic, the changelog,
the row in the database where there is one, and a plain recount of the source say the same number.
"""

import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import plyvel
from tests.integration.harness import (
    AGGREGATOR,
    Counts,
    Stack,
    difference,
    wait_until,
)

from devstack.processes import Child

WORKER = "tests.integration.trial_worker"
ROOT = Path(__file__).parents[2]


def start_worker(stack: Stack, instance: str = "", **settings: str) -> Child:
    """Start an aggregator that knows the variables of `trial_worker`."""
    return start_program(stack, WORKER, instance, **settings)


def start_program(stack: Stack, module: str, instance: str = "", **settings: str) -> Child:
    """Start a program of the tests as `Stack.start` starts a service."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return stack.start(module, instance, PYTHONPATH=path, **settings)


def tasks_of(stack: Stack, *workers: Child) -> dict[str, int]:
    """Return how many tasks each worker runs, over all its processes."""
    return {worker.name: _tasks(stack.metrics(worker.name)) for worker in workers}


def _tasks(metrics: dict[str, float]) -> int:
    return sum(int(n) for series, n in metrics.items() if series.startswith("streamcore_tasks"))


def owners(stack: Stack, *workers: Child) -> dict[str, list[str]]:
    """Return which workers say that they run a task, for each task that somebody runs."""
    found: dict[str, list[str]] = {}
    for worker in workers:
        for series in stack.metrics(worker.name):
            if series.startswith("streamcore_task_watermark_ms{"):
                task = series.partition('task="')[2].partition('"')[0]
                found.setdefault(task, []).append(worker.name)
    return found


def wait_for_one_owner_each(
    stack: Stack, tasks: int, *workers: Child, patience_s: float = 30
) -> None:
    """Wait until so many tasks run, each on one worker, and each worker has one at least."""

    def settled() -> bool:
        found = tasks_of(stack, *workers)
        each = owners(stack, *workers).values()
        return (
            all(found.values())
            and sum(found.values()) == tasks
            and sorted(map(len, each)) == [1] * tasks
        )

    wait_until(
        settled,
        lambda: f"{tasks} tasks with one owner each; {owners(stack, *workers)}",
        patience_s=patience_s,
        alive=workers,
    )


def members(stack: Stack, application: str = AGGREGATOR) -> list[str]:
    """Return the ids of the group's members."""
    group = stack.name(application)
    described = stack.admin.describe_consumer_groups([group])[group].result(timeout=20)
    return sorted(member.member_id for member in described.members)


# -- EXACT -----------------------------------------------------------------------------------


def counts_in_stores(stack: Stack) -> Counts:
    """Return what lies on the disk: of each task the store that has come furthest.

    The workers must have ended. Read from copies, for opening a store changes it.
    """
    newest: dict[str, tuple[int, Counts]] = {}
    for marker in sorted(stack.state_dir.rglob("CURRENT")):
        if "~" in marker.parent.name:
            continue
        position, counts = _store(marker.parent)
        task = marker.parents[1].name
        if position > newest.get(task, (-1, {}))[0]:
            newest[task] = position, counts
    return {key: count for _, counts in newest.values() for key, count in counts.items()}


def _store(folder: Path) -> tuple[int, Counts]:
    """Return position and counts; on disk: `d` start(8) word -> stamp(8) count(8)."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(folder, copy)
        database = plyvel.DB(str(copy))
        raw = database.get(b"m:position")
        counts = {
            (key[9:].decode(), struct.unpack(">q", key[1:9])[0]): struct.unpack(">q", value[8:])[0]
            for key, value in database.iterator(start=b"d", stop=b"e")
        }
        database.close()
    return (-1 if raw is None else int.from_bytes(raw[:8], "big")), counts


def assert_exact(stack: Stack, wanted: Counts) -> None:
    """Assert EXACT; all workers have ended."""
    assert difference(wanted, stack.counts_in_topic()) == {}, "output topic"
    assert difference(wanted, stack.counts_in_changelog()) == {}, "changelog"
    assert difference(wanted, counts_in_stores(stack)) == {}, "local stores"
    if stack.database_url:
        assert difference(wanted, stack.counts_in_database()) == {}, "database"


def assert_no_store_is_ahead(stack: Stack) -> None:
    """Assert that no stored count is higher than what the changelog has committed."""
    committed = stack.counts_in_changelog()
    ahead = {
        key: (count, committed.get(key, 0))
        for key, count in counts_in_stores(stack).items()
        if count > committed.get(key, 0)
    }
    assert ahead == {}, "(in the store, committed)"


# -- input that goes on ----------------------------------------------------------------------


@contextmanager
def fed(feed: Callable[[int], object], every_s: float) -> Iterator[None]:
    """Call `feed` with 0, 1, 2... at that pace while the block runs; its faults come out."""
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        turn = 0
        try:
            while not over.wait(every_s):
                feed(turn)
                turn += 1
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failed, failed
