"""Topic ids as Kafka prints them: URL-safe base64 without its padding."""

from __future__ import annotations

from base64 import urlsafe_b64encode

__all__ = ["topic_id_text"]


def topic_id_text(data: bytes) -> str:
    return urlsafe_b64encode(data)[:22].decode()
