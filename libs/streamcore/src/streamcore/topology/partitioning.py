"""Which partition a key belongs to: Java's murmur2, in Python, for whoever has no producer at hand.

Java's default partitioner and librdkafka's ``murmur2_random`` put a key into the same partition. A
null key has no partition: the caller decides.
"""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of ``data`` as an unsigned number.

    >>> murmur2(b"cat") & 0x7FFFFFFF == murmur2(b"cat") % 2**31
    True
    """
    length = len(data)
    whole = length & ~3
    hashed = _SEED ^ length
    for i in range(0, whole, 4):
        word = int.from_bytes(data[i : i + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:  # the one to three bytes left over
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of ``key`` in a topic of that many partitions.

    >>> [partition_of(word.encode(), 6) for word in ("cat", "to", "a", "b", "word-7")]
    [5, 0, 4, 2, 3]
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
