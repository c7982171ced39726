"""Hides secrets in a stream of bytes, whatever pieces it comes in."""

from __future__ import annotations

import base64
import json
import re

STARS = b"***"
SHORTEST = 4  # a shorter secret would turn half of the log into stars


def forms(secret: str) -> list[bytes]:
    """The secret, and what it looks like when a program prints it line by line, as JSON, quoted, in an address, in base64."""
    raw = secret.encode("utf-8", "surrogateescape")
    found = [
        raw,
        # Of a key or a JSON document: not its blank lines and brackets, of which every log is full.
        *(line for line in raw.splitlines() if len(line.strip()) >= SHORTEST),
        json.dumps(secret)[1:-1].encode(),
        repr(secret)[1:-1].encode(errors="replace"),
    ]
    found.append(_percent(raw))
    for text in (raw, raw + b"\n"):
        found.append(base64.b64encode(text))
        found.append(base64.urlsafe_b64encode(text))
    return sorted({form for form in found if len(form) >= SHORTEST}, key=len, reverse=True)


def _percent(raw: bytes) -> bytes:
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
    return b"".join(b"%c" % c if c in plain else b"%%%02X" % c for c in raw)


class Mask:
    """Replaces every secret by stars. Holds back only what may be the beginning of one."""

    def __init__(self, secrets: list[bytes]) -> None:
        # Longest first: one secret may be the beginning of another.
        self._secrets = sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True)
        self._longest = max(map(len, self._secrets), default=0)
        self._begins = re.compile(b"(?=%s)" % b"|".join(_first_bytes(s[:SHORTEST]) for s in self._secrets))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown of all that was fed so far and not shown yet."""
        data = self._held + data
        out = []
        start = 0
        # Each secret is looked for from where it was last found: a log full of secrets is read once for each, not once for each hit.
        ahead = {s: at for s in self._secrets for at in (data.find(s),) if at >= 0}
        while ahead:
            secret, at = min(ahead.items(), key=lambda hit: (hit[1], -len(hit[0])))
            if self._could_be_longer(data, at):
                break
            out += [data[start:at], STARS]
            start = at + len(secret)
            ahead = {s: at if at >= start else data.find(s, start) for s, at in ahead.items()}
            ahead = {s: at for s, at in ahead.items() if at >= 0}
        keep = self._beginning(data, start)
        self._held = data[len(data) - keep :] if keep else b""
        out.append(data[start : len(data) - keep])
        return b"".join(out)

    def rest(self) -> bytes:
        """What was held back, at the end."""
        held, self._held = self._held, b""
        for secret in self._secrets:
            held = held.replace(secret, STARS)
        return held

    def _could_be_longer(self, data: bytes, at: int) -> bool:
        """Whether a longer secret may start at `at` and go on in what has not come yet."""
        if len(data) - at >= self._longest:
            return False
        tail = data[at:]
        return any(len(s) > len(tail) and s.startswith(tail) for s in self._secrets)

    def _beginning(self, data: bytes, start: int) -> int:
        """How many last bytes of `data` are the beginning of a secret."""
        if not self._secrets:
            return 0
        for begins in self._begins.finditer(data, max(start, len(data) - self._longest + 1)):
            tail = data[begins.start() :]
            if any(s.startswith(tail) for s in self._secrets):
                return len(tail)
        return 0


def _first_bytes(head: bytes) -> bytes:
    """A pattern for `head`, or for as much of it as stands at the end."""
    if len(head) == 1:
        return re.escape(head)
    return rb"%s(?:%s|\Z)" % (re.escape(head[:1]), _first_bytes(head[1:]))
