"""The names in certificates, as Java writes them, and the rules that map them to principals."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.broker.security.principals import distinguished_name, parse_mapping_rules, principal_of
from coterie.errors import MalformedError
from coterie.settings.config_def import SettingsError

ORG, OU, CN = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME
KEY = ec.generate_private_key(ec.SECP256R1())
Part = tuple[x509.ObjectIdentifier, str]


def certificate(*parts: list[Part]) -> bytes:
    """The least specific part first, as in a certificate."""
    name = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for oid, value in part]) for part in parts]
    )
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2040, 1, 1, tzinfo=dt.UTC))
        .sign(KEY, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.DER)


ALICE = certificate([(ORG, "Coterie")], [(OU, "Tests")], [(CN, "tlsuser")])


@pytest.mark.parametrize(
    ("parts", "java"),
    [
        ([[(ORG, "Coterie")], [(OU, "Tests")], [(CN, "tlsuser")]], "CN=tlsuser,OU=Tests,O=Coterie"),
        (
            [
                [(NameOID.COUNTRY_NAME, "DE")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "B, C")],
                [(NameOID.LOCALITY_NAME, "x=y+z")],
                [(CN, 'a"b\\c<d>;#e')],
            ],
            'CN=a\\"b\\\\c\\<d\\>\\;\\#e,L=x\\=y\\+z,ST=B\\, C,C=DE',
        ),
        ([[(CN, " lead and trail  ")]], "CN=\\ lead and trail\\ \\ "),
        ([[(CN, "#hash")]], "CN=\\#hash"),
        ([[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(CN, "m")]], "CN=m,1.2.840.113549.1.9.1=#16056140622e63"),
        (
            [[(NameOID.DOMAIN_COMPONENT, "org")], [(NameOID.USER_ID, "u1")], [(NameOID.SERIAL_NUMBER, "12")]],
            "2.5.4.5=#13023132,UID=u1,DC=org",
        ),
        ([[(ORG, "O")], [(CN, "m"), (OU, "n")]], "CN=m+OU=n,O=O"),
        ([[(CN, "Zoë 日本")]], "CN=Zoë 日本"),
        ([[(NameOID.STREET_ADDRESS, "s 1")], [(NameOID.TITLE, "T")]], "2.5.4.12=#0c0154,STREET=s 1"),
        ([], ""),
    ],
)
def test_a_name_is_written_as_java_writes_it(parts: list[list[Part]], java: str) -> None:
    """S30 and S35; what Java 17 writes was looked at."""
    assert distinguished_name(certificate(*parts)) == java


@pytest.mark.parametrize(
    "data",
    [b"", b"\x30", ALICE[:100], b"\x30\x03\x02\x01\x01", bytes(100)],
    ids=["empty", "a tag", "a part", "a number", "zeros"],  # a certificate is another in each process
)
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError, match="cannot be read"):
        distinguished_name(data)


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=tlsuser,OU=Tests,O=Coterie"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT", "User:tlsuser@tests"),
        ("RULE:^CN=(.*?),.*$/$1/U", "User:TLSUSER"),
        ("RULE:^CN=other,.*$/other/,RULE:^CN=(.*?),OU=.*$/$1/, DEFAULT", "User:tlsuser"),
        ("RULE:^CN=tls/part/,DEFAULT", "User:CN=tlsuser,OU=Tests,O=Coterie"),
        (r"RULE:^CN=(\w+)\/?,.*$/$1/", "User:tlsuser"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(rules: str, principal: str) -> None:
    """S36."""
    assert principal_of(ALICE, rules) == principal


def test_a_name_that_no_rule_matches_is_refused() -> None:
    """S36."""
    with pytest.raises(MalformedError, match="no rule"):
        principal_of(ALICE, "RULE:^CN=other$/other/")


@pytest.mark.parametrize("rules", ["", "default", "RULE:a/b", "RULE:(/a/", "DEFAULT,", "RULE:a/$1/", "DEFAULT;DEFAULT"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    """S36."""
    with pytest.raises(SettingsError, match=r"ssl\.principal\.mapping\.rules"):
        parse_mapping_rules(rules)
