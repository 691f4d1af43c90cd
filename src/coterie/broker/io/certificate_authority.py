"""A CA of one's own for tests and first steps: it signs a certificate for this machine, or for a client.

It needs `cryptography`, which is the extra `tls`.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import Any, NamedTuple

from coterie.errors import CoterieError
from coterie.extras import how_to_install

YEARS = 10
_CLOCKS_MAY_DIFFER = dt.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Signs certificates. Keys are of the curve P-256, in PKCS#8, which Java needs."""

    def __init__(self, pair: Pair) -> None:
        modules = _cryptography()
        self.pair = pair
        self._certificate = modules.x509.load_pem_x509_certificate(pair.certificate)
        self._key = modules.serialization.load_pem_private_key(pair.key, None)

    @classmethod
    def create(cls, name: str, now: dt.datetime) -> CertificateAuthority:
        modules = _cryptography()
        x509 = modules.x509
        key = modules.ec.generate_private_key(modules.ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            _builder(modules, _name(modules, name), _name(modules, name), key, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
        )
        return cls(_pair(modules, builder, key, key))

    def issue(self, name: str, hosts: Sequence[str], now: dt.datetime) -> Pair:
        """Issue a certificate for host names and addresses, for servers and clients."""
        modules = _cryptography()
        x509, oids = modules.x509, modules.x509.oid.ExtendedKeyUsageOID
        key = modules.ec.generate_private_key(modules.ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(modules, _name(modules, name), self._certificate.subject, key, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([oids.SERVER_AUTH, oids.CLIENT_AUTH]), critical=False)
            .add_extension(authority, critical=False)
        )
        if hosts:
            names = [_alternative_name(x509, host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pair(modules, builder, key, self._key)


def _cryptography() -> Any:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise CoterieError(f"to make certificates, cryptography is needed: {how_to_install('tls')}") from None

    class Modules(NamedTuple):
        x509: Any
        hashes: Any
        serialization: Any
        ec: Any

    return Modules(x509, hashes, serialization, ec)


def _name(modules: Any, name: str) -> Any:
    x509, oids = modules.x509, modules.x509.oid.NameOID
    parts = {oids.ORGANIZATION_NAME: "Coterie", oids.COMMON_NAME: name}
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts.items()])


def _builder(modules: Any, subject: Any, issuer: Any, key: Any, now: dt.datetime) -> Any:
    x509 = modules.x509
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_MAY_DIFFER)
        .not_valid_after(now + dt.timedelta(days=365 * YEARS))
    )


def _pair(modules: Any, builder: Any, key: Any, signing_key: Any) -> Pair:
    encoding = modules.serialization.Encoding.PEM
    certificate = builder.sign(signing_key, modules.hashes.SHA256()).public_bytes(encoding)
    form, encryption = modules.serialization.PrivateFormat.PKCS8, modules.serialization.NoEncryption()
    return Pair(certificate, key.private_bytes(encoding, form, encryption))


def _alternative_name(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
