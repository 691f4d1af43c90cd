"""`sasl.jaas.config` is read as Java reads it (S56)."""

from __future__ import annotations

import pytest

from coterie.settings.config_def import Password, Secret, SettingsError
from coterie.settings.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="alice" password="a b";', {"username": "alice", "password": "a b"}),
        ("username='alice' password=\"it's\";", {"username": "alice", "password": "it's"}),
        ("username=alice\n  password=se-cret_$1;", {"username": "alice", "password": "se-cret_$1"}),
        (r'password="\"\\\n\155";', {"password": '"\\\nm'}),
        (r'password="\u006d\x73";', {"password": "u006dx73"}),
        ('username=a /* not "this" */ password="//kept" // nor this\n;', {"username": "a", "password": "//kept"}),
        ('username="$ConnectionString";', {"username": "$ConnectionString"}),
        (";", {}),
    ],
)
def test_options_are_read_as_java_reads_them(options: str, expected: dict[str, str]) -> None:
    """S56."""
    module = parse_jaas(f"{PLAIN} Required {options}")
    assert module.name == "PlainLoginModule"
    assert module.options == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no login module"),
        (f"{PLAIN}", "after the login module"),
        (f'{PLAIN} username="secret-1";', "after the login module"),
        (f'{PLAIN} required username="secret-1"', "semicolon"),
        (f"{PLAIN} required password=1secret-1;", "a value is missing for key 'password'"),
        (f"{PLAIN} required username secret-1;", "a value is missing"),
        (f'{PLAIN} required a="secret-1"; {PLAIN} required a="b";', "more than one"),
        ('KafkaClient { module required password="secret-1"; };', "after the login module"),
    ],
)
def test_a_line_that_java_refuses_is_refused_without_its_values(line: str, message: str) -> None:
    """S56 and S57."""
    with pytest.raises(SettingsError, match=message) as refused:
        parse_jaas(line)
    assert "secret-1" not in str(refused.value)


def test_the_package_before_the_class_does_not_matter() -> None:
    """S56: notebooks write `kafkashaded.org.apache…`."""
    assert parse_jaas(f"kafkashaded.{PLAIN} required;").name == "PlainLoginModule"


def test_neither_a_login_module_nor_a_password_shows_its_values() -> None:
    """S57."""
    module = parse_jaas(f'{PLAIN} required password="secret-1";')
    password = Secret().read("secret-1")
    assert isinstance(password, Password) and password.value == "secret-1"
    assert "secret-1" not in f"{module!r} {password!r} {password} {Secret().write(password)}"
