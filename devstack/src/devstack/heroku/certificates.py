"""Authorities and certificates, as the PEM texts that Heroku puts into variables."""

from dataclasses import dataclass
from typing import Self

import trustme
from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key."""

    certificate: str
    key: str


class Authority:
    """Signs certificates; whoever trusts `certificate` trusts them."""

    def __init__(self, ca: trustme.CA | None = None) -> None:
        self._ca = trustme.CA() if ca is None else ca

    @classmethod
    def from_identity(cls, identity: Identity) -> Self:
        """Return the authority that was once kept as its certificate and key."""
        pems = identity.certificate.encode(), identity.key.encode()
        return cls(trustme.CA.from_pem(*pems))

    @property
    def certificate(self) -> str:
        """What KAFKA_TRUSTED_CERT holds."""
        return self._ca.cert_pem.bytes().decode()

    @property
    def identity(self) -> Identity:
        """Itself, to be kept."""
        return Identity(self.certificate, self._ca.private_key_pem.bytes().decode())

    def issue(self, host: str, common_name: str) -> Identity:
        """Return a certificate for a host, or for a client (then the host means nothing)."""
        made = self._ca.issue_cert(host, common_name=common_name)
        return Identity(
            made.cert_chain_pems[0].bytes().decode(), _pkcs8(made.private_key_pem.bytes())
        )


def _pkcs8(key: bytes) -> str:
    """Return the key in the one form that Java reads."""
    loaded = serialization.load_pem_private_key(key, password=None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
