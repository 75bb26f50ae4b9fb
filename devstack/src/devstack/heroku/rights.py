"""Rights on the broker: exactly those that Heroku documents for an app, and no other.

Topics of the prefix: read, write, describe. A group that was granted by its name: read, describe,
delete. Dedicated plans have no prefix; there the same holds for all topics and all groups.
"""

from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devstack.errors import StackError

TIMEOUT_S = 20.0
ON_TOPICS = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
ON_GROUPS = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE)
_EVERYWHERE = "*"


def admin_client(bootstrap: str) -> AdminClient:
    """Return a client of the administrator's door."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def grant_topics(admin: AdminClient, principal: str, prefix: str) -> None:
    """Let the app use the topics of its prefix; without a prefix: all topics and all groups."""
    if prefix:
        kind = ResourcePatternType.PREFIXED
        _create(admin, _bindings(ResourceType.TOPIC, prefix, kind, principal, ON_TOPICS))
        return
    kind = ResourcePatternType.LITERAL
    _create(
        admin,
        [
            *_bindings(ResourceType.TOPIC, _EVERYWHERE, kind, principal, ON_TOPICS),
            *_bindings(ResourceType.GROUP, _EVERYWHERE, kind, principal, ON_GROUPS),
        ],
    )


def grant_group(admin: AdminClient, principal: str, group: str) -> None:
    """Let the app use the one group of this full name."""
    literal = ResourcePatternType.LITERAL
    _create(admin, _bindings(ResourceType.GROUP, group, literal, principal, ON_GROUPS))


def revoke_group(admin: AdminClient, principal: str, group: str) -> None:
    """Take the group away again."""
    wanted = _filter(ResourceType.GROUP, group, principal)
    for future in admin.delete_acls([wanted]).values():
        future.result(timeout=TIMEOUT_S)


def granted_groups(admin: AdminClient, principal: str) -> list[str]:
    """Return the full names of the groups that the app was granted."""
    found = admin.describe_acls(_filter(ResourceType.GROUP, None, principal))
    return sorted({binding.name for binding in found.result(timeout=TIMEOUT_S)} - {_EVERYWHERE})


def _bindings(
    resource: ResourceType,
    name: str,
    kind: ResourcePatternType,
    principal: str,
    operations: Iterable[AclOperation],
) -> Iterator[AclBinding]:
    for operation in operations:
        yield AclBinding(resource, name, kind, principal, "*", operation, AclPermissionType.ALLOW)


def _filter(resource: ResourceType, name: str | None, principal: str) -> AclBindingFilter:
    return AclBindingFilter(
        resource,
        name,  # type: ignore[arg-type]  # None is any
        ResourcePatternType.LITERAL,
        principal,
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def _create(admin: AdminClient, bindings: Iterable[AclBinding]) -> None:
    try:
        for future in admin.create_acls(list(bindings)).values():
            future.result(timeout=TIMEOUT_S)
    except KafkaException as problem:
        raise StackError(f"rights cannot be given: {problem.args[0].str()}") from None
