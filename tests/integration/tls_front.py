"""A TLS front for PostgreSQL: the server of the tests has no TLS, so this stands before it.

It answers the client's question for TLS with yes, does the handshake, and hands on every byte. Who
does not ask for TLS is not let in.
"""

import contextlib
import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trustme

_SSL_REQUEST: Final = struct.pack(">ii", 8, 80877103)
_GSS_REQUEST: Final = struct.pack(">ii", 8, 80877104)


class TlsFront:
    """Listens on a port of its own and speaks for the server at ``behind``."""

    def __init__(self, behind: tuple[str, int], certificate: trustme.LeafCert) -> None:
        self._behind = behind
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.sessions = 0  # in which a client said anything
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # a client that does not trust us hangs up
            question = client.recv(8, socket.MSG_WAITALL)
            while question == _GSS_REQUEST:
                client.sendall(b"N")
                question = client.recv(8, socket.MSG_WAITALL)
            if question != _SSL_REQUEST:
                return
            client.sendall(b"S")
            with self._context.wrap_socket(client, server_side=True) as ours:
                first = ours.recv(1 << 16)
                if not first:  # it has looked at our certificate and left
                    return
                self.sessions += 1
                with socket.create_connection(self._behind) as theirs:
                    theirs.sendall(first)
                    _join(ours, theirs)


def _join(ours: ssl.SSLSocket, theirs: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(ours, selectors.EVENT_READ, theirs)
        selector.register(theirs, selectors.EVENT_READ, ours)
        while True:
            for key, _ in selector.select():
                source, sink = key.fileobj, key.data
                assert isinstance(source, socket.socket)
                data = source.recv(1 << 16)
                while isinstance(source, ssl.SSLSocket) and (waiting := source.pending()):
                    data += source.recv(waiting)
                if not data:
                    return
                sink.sendall(data)


@contextlib.contextmanager
def tls_front(
    behind: tuple[str, int], authority: trustme.CA, host: str = "localhost"
) -> Iterator[TlsFront]:
    """Run a front with a certificate of this authority for this host."""
    front = TlsFront(behind, authority.issue_cert(host))
    try:
        yield front
    finally:
        front.close()


def authority_file(authority: trustme.CA, path: Path) -> Path:
    """Write down whom to trust."""
    authority.cert_pem.write_to_path(str(path))
    return path
