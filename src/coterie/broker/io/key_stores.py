"""Loads keys and certificates into a TLS context: PEM files, PEM text in settings, PKCS12 files (S29).

Python's ssl takes a key only from a file. Text goes through a temporary file that only we can read, and that is
deleted at once.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Password

_JKS = b"\xfe\xed\xfe\xed"
_PEM = b"-----BEGIN"


def load_key_and_chain(context: ssl.SSLContext, settings: BrokerSettings) -> None:
    """Load the broker's own certificate, the chain to its CA, and its key."""
    password = _text(settings.ssl_key_password)
    if settings.ssl_keystore_location is None:
        pem = f"{_text(settings.ssl_keystore_key)}\n{_text(settings.ssl_keystore_certificate_chain)}\n".encode()
        _load_chain(context, pem, password, "ssl.keystore.key and ssl.keystore.certificate.chain")
        return
    what = f"ssl.keystore.location {settings.ssl_keystore_location}"
    data = _read(settings.ssl_keystore_location, what)
    if not _is_pem(data):
        data = _pem_of_pkcs12(data, _text(settings.ssl_keystore_password), what)
    _load_chain(context, data, password, what)


def load_authorities(context: ssl.SSLContext, settings: BrokerSettings) -> None:
    """Load the CAs that certificates of clients are verified with."""
    if settings.ssl_truststore_location is None:
        what, data = "ssl.truststore.certificates", _text(settings.ssl_truststore_certificates).encode()
    else:
        what = f"ssl.truststore.location {settings.ssl_truststore_location}"
        data = _read(settings.ssl_truststore_location, what)
        if not _is_pem(data):
            data = _pem_of_pkcs12(data, _text(settings.ssl_truststore_password), what)
    try:
        context.load_verify_locations(cadata=data.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise CoterieError(f"{what} has no certificate that can be read ({error.reason})") from None


def _text(password: Password | None) -> str:
    return password.value if password is not None else ""


def _read(location: str, what: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise CoterieError(f"{what}: {error.strerror}") from None


def _is_pem(data: bytes) -> bool:
    return _PEM in data


def _load_chain(context: ssl.SSLContext, pem: bytes, password: str, what: str) -> None:
    handle, name = tempfile.mkstemp(prefix="coterie-", suffix=".pem")  # it is 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
        context.load_cert_chain(name, password=password)  # without a password, OpenSSL would ask for one
    except ssl.SSLError as error:
        hint = "; is ssl.key.password right?" if b"ENCRYPTED" in pem else ""
        reason = error.reason or "no certificate and key in PEM"
        raise CoterieError(f"{what} cannot be used: {reason.lower().replace('_', ' ')}{hint}") from None
    finally:
        Path(name).unlink()


def _pem_of_pkcs12(data: bytes, password: str, what: str) -> bytes:
    """Return key and certificates of a PKCS12 file as PEM."""
    if data.startswith(_JKS):
        raise CoterieError(
            f"{what} is a JKS file, which is not supported. Convert it: keytool -importkeystore -deststoretype PKCS12"
        )
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise CoterieError(
            f"{what} is not PEM; to read PKCS12, cryptography is needed: {how_to_install('tls')}"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError:
        raise CoterieError(f"{what} is neither PEM nor PKCS12, or its password is wrong") from None
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) if store.key else b""
    certificates = [each for each in (store.cert, *store.additional_certs) if each is not None]
    return key + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates)
