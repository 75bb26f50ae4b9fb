"""The calls of plyvel that the engine uses; it ships no types of its own."""

from collections.abc import Iterator

class Error(Exception): ...
class IOError(Error, OSError): ...  # noqa: A001 - its name there
class CorruptionError(Error): ...

class WriteBatch:
    def put(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def write(self) -> None: ...
    def clear(self) -> None: ...

class PrefixedDB:
    def get(self, key: bytes, *, verify_checksums: bool = False) -> bytes | None: ...
    def iterator(
        self,
        *,
        start: bytes | None = None,
        stop: bytes | None = None,
        verify_checksums: bool = False,
        fill_cache: bool = True,
    ) -> Iterator[tuple[bytes, bytes]]: ...

class DB:
    closed: bool

    def __init__(
        self,
        name: str,
        *,
        create_if_missing: bool = False,
        error_if_exists: bool = False,
        paranoid_checks: bool | None = None,
        write_buffer_size: int | None = None,
        max_open_files: int | None = None,
        lru_cache_size: int | None = None,
        block_size: int | None = None,
        compression: str | None = "snappy",
        bloom_filter_bits: int = 0,
    ) -> None: ...
    def get(self, key: bytes, *, verify_checksums: bool = False) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, *, sync: bool = False) -> None: ...
    def write_batch(self, *, transaction: bool = False, sync: bool = False) -> WriteBatch: ...
    def prefixed_db(self, prefix: bytes) -> PrefixedDB: ...
    def iterator(
        self,
        *,
        start: bytes | None = None,
        stop: bytes | None = None,
        verify_checksums: bool = False,
        fill_cache: bool = True,
    ) -> Iterator[tuple[bytes, bytes]]: ...
    def compact_range(self, *, start: bytes | None = None, stop: bytes | None = None) -> None: ...
    def get_property(self, name: bytes) -> bytes | None: ...
    def close(self) -> None: ...
