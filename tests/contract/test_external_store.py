"""The external store in memory keeps the contract."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from streamcore.testing.contracts.external_store import ExternalStoreContract
from streamcore.testing.external import Shelf
from streamcore.topology.external import ExternalStore


class TestShelf(ExternalStoreContract):
    @pytest.fixture(autouse=True)
    def _shelf(self) -> None:
        self.shelf = Shelf()

    def open(self) -> ExternalStore:
        return self.shelf.store()

    def contents(self) -> Mapping[Any, Any]:
        return self.shelf.contents()

    def away(self) -> AbstractContextManager[None]:
        return self._away()

    @contextmanager
    def _away(self) -> Iterator[None]:
        self.shelf.away = True
        yield
        self.shelf.away = False
