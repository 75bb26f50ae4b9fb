"""Nothing is sent under an old id before what was sent under it is decided (decision 0016)."""

import pytest
from tests.unit.runtime.simulated import REPARTITION, START_MS, Cluster

from streamcore.errors import ProducerFencedError, TransactionsHangError
from streamcore.runtime.aftermath import PATIENCE_MS
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import Worker
from streamcore.testing.partition_log import Transaction

OLD_MS = START_MS - 86_400_000


def open_transaction(cluster: Cluster) -> tuple[Worker, Transaction]:
    """Return a worker in the middle of a transaction, whose rows are with the broker."""
    worker = cluster.worker("one", commit_interval_ms=5_000)
    cluster.run(worker, turns=30)
    cluster.feed(["a", "b", "c", "d"] * 5, OLD_MS, 100)
    cluster.run(worker, turns=3)
    assert worker._outbound._producer is not None
    assert worker._outbound._producer.flush(1_000)
    (transaction,) = cluster.broker.transactions.values()
    return worker, transaction


def abort(cluster: Cluster, transaction: Transaction, *, with_markers: bool) -> None:
    """Let it expire; a broker that comes back may forget to write that into the logs."""
    cluster.broker.late_markers = True
    (name,) = cluster.broker.transactions
    cluster.broker.fence(name)
    if with_markers:
        cluster.broker.late_markers = False
        cluster.broker.write_markers()
    else:
        cluster.broker._unwritten.remove(transaction)
    cluster.broker.late_markers = False


def test_a_worker_goes_on_by_itself_when_the_broker_has_decided() -> None:
    cluster = Cluster(guarantee="exactly_once_v2")
    worker, transaction = open_transaction(cluster)
    abort(cluster, transaction, with_markers=True)
    cluster.run(worker, turns=150)
    assert cluster.counts() == dict(cluster.fed)


def test_rows_that_stay_undecided_are_never_made_to_count() -> None:
    cluster = Cluster(guarantee="exactly_once_v2")
    worker, transaction = open_transaction(cluster)
    ends = [log.end for log in cluster.broker.topics[REPARTITION].partitions]
    abort(cluster, transaction, with_markers=False)
    with pytest.raises(TransactionsHangError) as stopped:
        cluster.run(worker, turns=2 * PATIENCE_MS // 200)
    assert worker.state is WorkerState.ERROR
    assert REPARTITION in str(stopped.value)
    assert [log.end for log in cluster.broker.topics[REPARTITION].partitions] == ends


def test_a_refused_producer_is_looked_into_as_well() -> None:
    cluster = Cluster(guarantee="exactly_once_v2")
    worker, _ = open_transaction(cluster)
    cluster.broker.faults.next("producer.commit_transaction", ProducerFencedError("fenced"))
    cluster.run(worker, turns=150)
    assert cluster.counts() == dict(cluster.fed)


def test_an_outage_is_no_time_in_which_a_broker_could_decide() -> None:
    cluster = Cluster(guarantee="exactly_once_v2")
    worker, transaction = open_transaction(cluster)
    abort(cluster, transaction, with_markers=False)
    cluster.run(worker, turns=60)
    assert not worker._outbound.is_open, "it does not wait for the markers yet"
    cluster.broker.away = True
    cluster.run(worker, turns=2 * PATIENCE_MS // 200)
    cluster.broker.away = False
    cluster.run(worker, turns=30)
    assert not worker._outbound.is_open
    cluster.broker._unwritten.append(transaction)
    cluster.broker.write_markers()
    cluster.run(worker, turns=150)
    assert cluster.counts() == dict(cluster.fed)
