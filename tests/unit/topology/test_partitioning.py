import pytest

from streamcore.topology.partitioning import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "partition"),
    [("cat", 5), ("to", 0), ("a", 4), ("b", 2), ("word-7", 3), ("naïve", 3), ("\U0001f4a5", 2)],
)
def test_a_key_goes_where_the_java_client_puts_it(key: str, partition: int) -> None:
    assert partition_of(key.encode(), 6) == partition


def test_the_hash_is_that_of_javas_own_unit_test() -> None:
    # UtilsTest.testMurmur2 of Apache Kafka, signed there
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == {k: v % 2**32 for k, v in known.items()}


def test_the_empty_key_has_a_partition_too() -> None:
    assert 0 <= partition_of(b"", 3) < 3
