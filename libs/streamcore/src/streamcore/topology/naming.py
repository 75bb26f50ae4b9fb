"""Names: from the bare names of a topology to the names on the broker, prefix and application id.

Internal topics are called as in Kafka Streams, ``<application id>-<store>-changelog``; the prefix
stands in front of all.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """Prefix and application id of one running application.

    The prefix is put on once: a topic or an application id that carries it already is left as it is
    (a shared cluster hands out names with its prefix in them).

    >>> names = Names("rec-", "app")
    >>> names.topic("words"), names.topic("rec-words"), names.group
    ('rec-words', 'rec-words', 'rec-app')
    >>> names.internal("windowed-counts-changelog")
    'rec-app-windowed-counts-changelog'
    """

    prefix: str
    application_id: str

    def topic(self, bare: str) -> str:
        """Return the name on the broker of a topic that the topology names."""
        return self._prefixed(bare)

    def internal(self, bare: str) -> str:
        """Return the name on the broker of a repartition or changelog topic."""
        return f"{self.group}-{bare}"

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._prefixed(self.application_id)

    def bare(self, name: str) -> str:
        """Return the name without the prefix, as commands and messages for people want it.

        >>> Names("rec-", "rec-app").bare("rec-app-counts-changelog")
        'app-counts-changelog'
        """
        return name.removeprefix(self.prefix)

    def _prefixed(self, name: str) -> str:
        return name if name.startswith(self.prefix) else self.prefix + name
