"""TLS to Temporal, in both directions: a TLS end in front of the dev server that asks for a certificate."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from relight.cli.devserver import DevServer
from relight.temporal import TemporalUnavailable, connect


class Authority:
    """Issues certificates into a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA {directory.name}")])
        self.root = self._write("ca.pem", self._sign(self._name, self._key.public_key(), ca=True))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        secret = self._directory / f"{name}.key"
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return self._write(f"{name}.pem", self._sign(subject, key.public_key())), secret

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        file = self._directory / name
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return file


@asynccontextmanager
async def tls_end(server: DevServer, authority: Authority) -> AsyncIterator[str]:
    """Takes TLS from clients with a certificate of this authority, and passes on to the dev server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.root))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*authority.issue("server"))
    context.set_alpn_protocols(["h2"])
    host, port = server.address.split(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, forth), copy(back, writer))

    end = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"localhost:{end.sockets[0].getsockname()[1]}"
    finally:
        end.close()


async def test_mutual_tls_by_temporals_own_settings(
    server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("worker")
    async with tls_end(server, authority) as address:
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        with pytest.raises(TemporalUnavailable):
            await connect()  # without TLS
        monkeypatch.setenv("TEMPORAL_TLS", "true")
        monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(authority.root))
        with pytest.raises(TemporalUnavailable):
            await connect()  # without a certificate of its own
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(certificate))
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", str(key))
        client = await connect()
        assert client.namespace == "default"
        other = tmp_path / "other"
        other.mkdir()
        monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(Authority(other).root))
        with pytest.raises(TemporalUnavailable):
            await connect()  # a server that somebody else vouches for
