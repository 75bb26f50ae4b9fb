"""A broker as Heroku runs it: TLS with client certificates, rights for each, no topic by itself."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from devstack.heroku.certificates import Authority
from devstack.kafka import NODE_ID, Broker
from devstack.ports import LOOPBACK, free_port

# What the broker calls itself is not what it is reached by: no client may check the name.
SERVER_NAME = "ec2-203-0-113-7.compute-1.example.com"

_SETTINGS: Mapping[str, str] = {
    "listener.security.protocol.map": "SSL:SSL,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "ADMIN",
    "ssl.client.auth": "required",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    # A client's certificate stands for the common name in it.
    "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    # By the administrator's door, and by that of the broker's own controller, comes nobody else.
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
}


class HerokuBroker(Broker):
    """`bootstrap` and `url` are the door with TLS, `admin_bootstrap` the administrator's.

    The latter is for what Heroku itself does; no service may be told of it.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        java_options: Sequence[str] | None = None,
        *,
        authority: Authority | None = None,
        admin_port: int | None = None,
    ) -> None:
        super().__init__(folder, port, settings, java_options)
        self.authority = authority or Authority()
        self.admin_port = free_port() if admin_port is None else admin_port

    @property
    def admin_bootstrap(self) -> str:
        """The door of whoever may do everything."""
        return f"{LOOPBACK}:{self.admin_port}"

    @property
    def url(self) -> str:
        """The address as KAFKA_URL wants it."""
        return f"kafka+ssl://{self.bootstrap}"

    def _properties(self) -> dict[str, str]:
        controller = f"{LOOPBACK}:{self._controller_port}"
        doors = f"SSL://{self.bootstrap},ADMIN://{self.admin_bootstrap}"
        own = {
            **_SETTINGS,
            "listeners": f"{doors},CONTROLLER://{controller}",
            "advertised.listeners": doors,
            "controller.quorum.voters": f"{NODE_ID}@{controller}",
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "ssl.truststore.location": str(self.folder / "trusted.pem"),
        }
        plain = super()._properties()
        return {**plain, **own, **{name: plain[name] for name in self.settings}}

    def _write_properties(self) -> Path:
        server = self.authority.issue(SERVER_NAME, SERVER_NAME)
        keys = self.folder / "server.pem"
        keys.touch(mode=0o600)
        keys.write_text(server.key + server.certificate, encoding="ascii")
        trusted = self.folder / "trusted.pem"
        trusted.write_text(self.authority.certificate, encoding="ascii")
        return super()._write_properties()

    def _probe(self) -> Callable[[], bool]:
        return self._answers_at(self.admin_port)
