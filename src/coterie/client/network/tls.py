"""TLS of a client: the context that the settings describe, and what a failed handshake means (S24 to S30).

Certificates and keys are PEM files, PEM text or PKCS12 files. An error is one sentence that names the setting.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from tempfile import NamedTemporaryFile

from coterie.errors import ConnectionLostError, KafkaError, SslAuthenticationError
from coterie.extras import how_to_install
from coterie.settings.client_settings import Address
from coterie.settings.config_def import Password, SettingsError
from coterie.settings.security_settings import SecuritySettings

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


# --- the context ------------------------------------------------------------------------------------------------------


def client_context(settings: SecuritySettings) -> ssl.SSLContext:
    """Return the context for connections to brokers.

    Raises:
        SettingsError: A file cannot be read, or does not have what it should.
    """
    if isinstance(settings.ssl_context, ssl.SSLContext):
        return settings.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols or _VERSIONS]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(settings.ssl_cipher_suites))
        except ssl.SSLError:
            raise SettingsError(
                "ssl.cipher.suites has no suite that OpenSSL knows: `openssl ciphers -tls1_2` lists their names; those "
                "of TLS 1.3 cannot be chosen"
            ) from None
    if not settings.enable_ssl_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)
        _load_authorities(context, settings)
    _load_own_certificate(context, settings)
    return context


def _load_authorities(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    location, store, text = (
        settings.ssl_ca_location,
        settings.ssl_truststore_location,
        settings.ssl_truststore_certificates,
    )
    if location is not None and Path(location).is_dir():
        context.load_verify_locations(capath=location)
    elif location is not None:
        _trust(context, _read("ssl.ca.location", location), "ssl.ca.location")
    elif store is not None:
        data = _read("ssl.truststore.location", store)
        if _is_pkcs12(data, "ssl.truststore.location"):
            data = _from_pkcs12(data, settings.ssl_truststore_password, "ssl.truststore.location")
        _trust(context, data, "ssl.truststore.location")
    elif text is not None:
        _trust(context, text.value.encode(), "ssl.truststore.certificates")
    else:
        context.load_default_certs()


def _trust(context: ssl.SSLContext, data: bytes, name: str) -> None:
    found = _CERTIFICATE.findall(data)
    try:
        context.load_verify_locations(cadata="\n".join(each.decode("ascii") for each in found))
    except (ssl.SSLError, ValueError):
        raise SettingsError(
            f"{name} has no certificate that can be read: it must be in the format PEM (BEGIN CERTIFICATE)"
        ) from None


def _load_own_certificate(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    certificate, key, store = (
        settings.ssl_certificate_location,
        settings.ssl_key_location,
        settings.ssl_keystore_location,
    )
    chain_text, key_text = settings.ssl_keystore_certificate_chain, settings.ssl_keystore_key
    password = settings.ssl_key_password
    if certificate is not None:
        chain = _read("ssl.certificate.location", certificate)
        both = _read("ssl.key.location", key) + b"\n" + chain if key is not None else chain
        name = "ssl.certificate.location" if key is None else "ssl.key.location and ssl.certificate.location"
        _load_chain(context, both, password, name)
    elif store is not None:
        data = _read("ssl.keystore.location", store)
        if _is_pkcs12(data, "ssl.keystore.location"):
            data = _from_pkcs12(data, settings.ssl_keystore_password or password, "ssl.keystore.location")
            password = None
        _load_chain(context, data, password, "ssl.keystore.location")
    elif chain_text is not None and key_text is not None:
        both = f"{key_text.value}\n{chain_text.value}".encode()
        _load_chain(context, both, password, "ssl.keystore.key and ssl.keystore.certificate.chain")


def _load_chain(context: ssl.SSLContext, data: bytes, password: Password | None, name: str) -> None:
    """Load a key and its chain. Python takes only files: it is a temporary one that its owner alone can read."""
    if b"PRIVATE KEY-----" not in data or not _CERTIFICATE.search(data):
        raise SettingsError(f"{name} must have a private key and its certificate, in the format PEM")
    if b"ENCRYPTED" in data and password is None:
        raise SettingsError(f"{name}: the key is encrypted, so that it needs ssl.key.password")
    with NamedTemporaryFile(prefix="coterie-") as file:
        file.write(data)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password.value if password is not None else "")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                why = "the key does not belong to the certificate"
            elif b"ENCRYPTED" in data:
                why = "the key cannot be decrypted; is ssl.key.password right?"
            else:
                why = "key or certificate cannot be read; they must be in the format PEM"
            raise SettingsError(f"{name}: {why}") from None


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not the name of a file"
        raise SettingsError(f"{name} = {path!r} cannot be read: {why}") from None


# --- PKCS12 -----------------------------------------------------------------------------------------------------------


def _is_pkcs12(data: bytes, name: str) -> bool:
    """Return whether the data is PKCS12. Like Java, this reads the file and not its type, which may be JKS (S29)."""
    if data.startswith(_JKS):
        raise SettingsError(
            f"{name} is a JKS file, which cannot be read: convert it with `keytool -importkeystore -srckeystore FILE "
            "-destkeystore FILE.p12 -deststoretype PKCS12`"
        )
    return data.startswith(b"\x30") and b"-----BEGIN" not in data


def _from_pkcs12(data: bytes, password: Password | None, name: str) -> bytes:
    """Return the key, if there is one, and the certificates as PEM, that of the key first."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise SettingsError(
            f"{name} is a PKCS12 file, which needs the library cryptography: {how_to_install('tls')}"
        ) from None
    try:
        store = load_pkcs12(data, password.value.encode() if password is not None else None)
    except ValueError:
        raise SettingsError(
            f"{name} is a PKCS12 file that cannot be read: is {name.replace('location', 'password')} right?"
        ) from None
    parts = [store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())] if store.key else []
    found = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    return b"".join([*parts, *(each.certificate.public_bytes(Encoding.PEM) for each in found)])


# --- what went wrong --------------------------------------------------------------------------------------------------

_UNKNOWN_CA = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME = frozenset({62, 64})
_HAS_EXPIRED, _NOT_YET_VALID = 10, 9
_AUTHORITIES = ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates")
_OWN = ("ssl.certificate.location", "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.context")
_OUR_CERTIFICATE = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "ALERT_UNKNOWN_CA",
)
_VERSION = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE")
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
_CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ConnectionError)


def handshake_error(address: Address, error: Exception, settings: SecuritySettings) -> KafkaError | None:
    """Return the error of a TLS handshake that failed; None if it did not begin."""
    if isinstance(error, ConnectionRefusedError) or not settings.uses_tls:
        return None
    if isinstance(error, _CUT_OFF):  # a broker that is stopped does this too, so that it may work later
        return ConnectionLostError(
            f"{address} closed the connection during the TLS handshake: is it a listener of "
            f"{_without_tls(settings)}? security.protocol is {settings.security_protocol}"
        )
    if isinstance(error, ssl.SSLError):
        return SslAuthenticationError(f"{address}: {_sentence(error, settings)}")
    return None


def certificate_error(address: Address, error: Exception | None, settings: SecuritySettings) -> KafkaError | None:
    """Return the error of an alert about our certificate, which TLS 1.3 sends after the handshake (S25)."""
    if isinstance(error, ssl.SSLError) and (error.reason or "").endswith(_OUR_CERTIFICATE):
        return SslAuthenticationError(f"{address}: {_sentence(error, settings)}")
    return None


def wants_tls(address: Address, settings: SecuritySettings) -> KafkaError:
    """Return the error of a listener that answers a client without TLS with an alert (S26)."""
    other = "SASL_SSL" if settings.uses_sasl else "SSL or SASL_SSL"
    return SslAuthenticationError(
        f"{address}: the listener speaks TLS, and security.protocol is {settings.security_protocol}: set it to {other}"
    )


def other_listener(settings: SecuritySettings, *, is_after_versions: bool) -> str:
    """Say which kind of listener closes the connection on a client like this one (S26)."""
    protocol = settings.security_protocol
    if is_after_versions and not settings.uses_sasl:
        return f". Does the listener want a login? security.protocol is {protocol}, and not SASL_{protocol}"
    if not is_after_versions and not settings.uses_tls:
        return f". Does the listener speak TLS? security.protocol is {protocol}"
    return ""


def _without_tls(settings: SecuritySettings) -> str:
    return "SASL_PLAINTEXT" if settings.uses_sasl else "PLAINTEXT"


def _sentence(error: ssl.SSLError, settings: SecuritySettings) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error, settings)
    reason = error.reason or ""
    said = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
    if reason.endswith(_OUR_CERTIFICATE):
        own = [name for name in _OWN if name in settings.given]
        if own:
            return f"the broker does not accept the client's certificate in {own[0]} ({said}): is its CA one it trusts?"
        return (
            f"the broker wants a client certificate ({said}): give ssl.certificate.location and ssl.key.location, or "
            "ssl.keystore.location"
        )
    if reason.endswith(_VERSION):
        return f"broker and client share no version of TLS ({said}); see ssl.enabled.protocols"
    if reason.endswith(_NOT_TLS):
        return (
            f"the listener does not speak TLS, and security.protocol is {settings.security_protocol}: is it a listener "
            f"of {_without_tls(settings)}?"
        )
    if reason.endswith("HANDSHAKE_FAILURE"):
        return (
            f"the broker ended the TLS handshake ({said}): if it wants a client certificate, give "
            "ssl.certificate.location and ssl.key.location; else ssl.cipher.suites may not suit it"
        )
    return f"the TLS handshake failed ({said or error}); see ssl.enabled.protocols and ssl.cipher.suites"


def _verification(error: ssl.SSLCertVerificationError, settings: SecuritySettings) -> str:
    said = error.verify_message.rstrip(".")
    if error.verify_code in _UNKNOWN_CA:
        given = [name for name in _AUTHORITIES if name in settings.given]
        where = f"{given[0]} does not have" if given else "this machine does not know: give it in ssl.ca.location"
        return f"the broker's certificate is of a CA that {where} ({said})"
    if error.verify_code in _WRONG_NAME:
        return (
            f"the broker's certificate is for another host ({said}): use its name in bootstrap.servers and in the "
            "broker's advertised.listeners, or set ssl.endpoint.identification.algorithm to empty for no check"
        )
    if error.verify_code == _HAS_EXPIRED:
        return "the broker's certificate has expired, or its CA's has (ssl.ca.location): it has to be renewed"
    if error.verify_code == _NOT_YET_VALID:
        return "the broker's certificate is not valid yet: is the clock of this machine right?"
    return f"the broker's certificate cannot be verified ({said}); ssl.ca.location names its CA"
