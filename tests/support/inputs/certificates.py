"""Certificates that sign themselves, for servers of tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PLAIN = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@dataclass(frozen=True)
class CertificateFiles:
    """Files in PEM."""

    certificate: Path
    """The certificate, which is its own authority."""
    key: Path


def write_certificate(folder: Path, names: Sequence[str] = ("localhost",)) -> CertificateFiles:
    """Write a certificate of 127.0.0.1 and of `names` to `ca.crt`, and its key to `key`."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    begin = datetime.now(UTC) - timedelta(hours=1)
    hosts = [x509.IPAddress(ip_address("127.0.0.1")), *(x509.DNSName(each) for each in names)]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = CertificateFiles(folder / "ca.crt", folder / "key")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(key.private_bytes(*_PLAIN))
    return files
