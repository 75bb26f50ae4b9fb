"""The limit of the caches while a worker runs: earlier commits, less for reading, right counts."""

from tests.unit.runtime.simulated import START_MS, Cluster

OLD_MS = START_MS - 86_400_000


def test_a_lower_limit_commits_early_empties_read_caches_and_changes_no_count() -> None:
    cluster = Cluster(partitions=2)
    worker = cluster.worker(commit_interval_ms=60_000)
    words = [f"word-{number}" for number in range(1_000)]
    cluster.feed(words, OLD_MS)
    cluster.run(worker, turns=30, step_ms=200)
    before = worker.metrics.value("streamcore_commits_total")
    caches = worker.caches
    assert caches.taken_bytes > 100_000
    caches.limit(1 << 40)
    assert caches.limit_bytes == 32 << 20
    full_before = caches.full
    caches.limit(10_000)
    assert (full_before, caches.full) == (False, True)
    cluster.run(worker, turns=5, step_ms=200)
    assert caches.taken_bytes <= 5_000
    cluster.feed(words, OLD_MS)
    cluster.run(worker, turns=30, step_ms=200)
    assert worker.metrics.value("streamcore_commits_total") >= before + 2
    assert caches.taken_bytes <= 5_000
    cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)


def test_a_limit_of_nothing_still_works() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker(commit_interval_ms=60_000)
    cluster.run(worker, turns=30, step_ms=200)
    worker.caches.limit(0)
    cluster.feed(["a", "b", "a"], OLD_MS)
    cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)
