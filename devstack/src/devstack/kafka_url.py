"""From the variables of a Heroku-like environment to the settings of a Kafka client."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from devstack.errors import StackError

_PEM_SETTINGS = {
    "KAFKA_TRUSTED_CERT": "ssl.ca.pem",
    "KAFKA_CLIENT_CERT": "ssl.certificate.pem",
    "KAFKA_CLIENT_CERT_KEY": "ssl.key.pem",
}


def client_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Return what a client needs to reach the brokers of KAFKA_URL.

    >>> client_settings({"KAFKA_URL": "kafka://one:9092, kafka://two:9092"})
    {'bootstrap.servers': 'one:9092,two:9092'}
    """
    schemes, servers = set(), []
    for item in env["KAFKA_URL"].rstrip(", ").split(","):
        parts = urlsplit(item.strip())
        if parts.scheme not in ("kafka", "kafka+ssl") or not parts.hostname or not parts.port:
            raise StackError(
                "KAFKA_URL is not a list of kafka://HOST:PORT or kafka+ssl://HOST:PORT"
            )
        schemes.add(parts.scheme)
        servers.append(f"{parts.hostname}:{parts.port}")
    if len(schemes) > 1:
        raise StackError("KAFKA_URL mixes kafka:// and kafka+ssl://")
    settings = {"bootstrap.servers": ",".join(servers)}
    if schemes == {"kafka+ssl"}:
        settings["security.protocol"] = "ssl"
        # Such brokers have certificates without their host's name; the chain is still checked.
        settings["ssl.endpoint.identification.algorithm"] = "none"
        for variable, setting in _PEM_SETTINGS.items():
            if env.get(variable):
                settings[setting] = env[variable].replace("\\n", "\n")
    return settings
