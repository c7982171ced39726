"""The language of the OpenSSH client: what it asks, what it complains of, what it says of its configuration. Text in, value out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dray.core.errors import DrayError
from dray.hosts.errors import (
    HostAway,
    HostKeyChanged,
    HostKeyUnknown,
    HostPythonMissing,
    HostUnreachable,
    LoginRefused,
    SshConfigBroken,
)
from dray.hosts.questions import Question

_WHO = r"(?P<who>[^\s()'@]+@[^\s()']+)"
_PASSWORD = re.compile(rf"{_WHO}'s password: ?\Z")
_NAMED = re.compile(rf"\({_WHO}\) (?P<rest>.*)\Z", re.DOTALL)
_PLAIN_PASSWORD = re.compile(
    r"(?:password|passwort|mot de passe|contrase\w+)(?: for \S+)?\s*:?\s*\Z", re.IGNORECASE
)
_PASSPHRASE = re.compile(r"Enter passphrase for (?:\w+ )?(?:key )?'(?P<key>[^\n]*)': ?\Z")
_UNKNOWN_KEY = "Are you sure you want to continue connecting"
_FINGERPRINT = re.compile(r"(?P<kind>\S+) key fingerprint is (?P<print>\S+?)\.?$", re.MULTILINE)
_OFFENDING = re.compile(r"^Offending (?P<kind>\S+) key in (?P<file>.+):(?P<line>[0-9]+)\s*$", re.MULTILINE)
_SENT = re.compile(
    r"^The fingerprint for the \S+ key sent by the remote host is\s+(?P<print>\S+?)\.?$", re.MULTILINE
)
_CHANGED_FOR = re.compile(r"[Hh]ost key for (?P<host>\S+) has changed")
_DENIED = re.compile(r"Permission denied \((?P<ways>[^)]*)\)")
_NO_PYTHON = re.compile(
    r"python3?[0-9.]*['\"]?: (?:command )?not found|exec: .*python\S*: not found|Unknown command:? .*python|No such file or directory.*python|python\S*: No such file",
    re.IGNORECASE,
)
_NO_CONNECTION = (
    ("Could not resolve hostname", "its name is unknown: check the address, or the `Host` in ~/.ssh/config"),
    ("Connection refused", "the machine answers, but no ssh server listens on that port"),
    ("Connection timed out", "no answer: is the machine on, and reachable from this network?"),
    ("Operation timed out", "no answer: is the machine on, and reachable from this network?"),
    ("No route to host", "no way there from this network"),
    ("Network is unreachable", "this computer has no network, or no way there"),
    ("kex_exchange_identification", "the ssh server hung up at once: too many connections at a time, or it bans this address"),
    ("stdio forwarding failed", "the jump host could not reach it"),
    ("Too many authentication failures", "the agent offered too many keys: name the right one with `--identity-file`"),
)  # fmt: skip
_BROKEN = (
    ("Connection closed by", "the ssh server hung up"),
    ("Connection reset by", "the connection was reset on the way"),
)


@dataclass(frozen=True, slots=True)
class Config:
    """What `ssh -G` says of an address: the user's configuration, applied."""

    user: str
    host: str
    port: int
    values: Mapping[str, str]

    @property
    def who(self) -> str:
        """As ssh names it when it asks for a password."""
        return f"{self.user}@{self.values.get('hostkeyalias') or self.host}"

    @property
    def through(self) -> str | None:
        """The jump host or the proxy command, if the way leads through one."""
        for name in ("proxyjump", "proxycommand"):
            if self.values.get(name, "none") != "none":
                return self.values[name]
        return None

    @property
    def known_hosts(self) -> list[str]:
        """The files of host keys; ssh spells them all out from the root, and does not quote blanks."""
        named = self.values.get("userknownhostsfile", "none")
        return [path for path in re.split(r" (?=[/~])", named) if path not in ("", "none")]

    def has(self, name: str, *unset: str) -> bool:
        """Whether the user has set it to something else than the values that mean "not set"."""
        return self.values.get(name, "none").lower() not in ("none", *unset)


def read_config(text: str) -> Config:
    """From the output of `ssh -G`."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name.lower(), value.strip())
    port = values.get("port", "22")
    return Config(
        values.get("user", ""), values.get("hostname", ""), int(port) if port.isdigit() else 22, values
    )


def read_question(prompt: str) -> Question:
    """What an askpass helper was started with."""
    if _UNKNOWN_KEY in prompt:
        found = re.search(r"authenticity of host '([^' ]*)", prompt)
        return Question("host-key", prompt, found[1] if found else "")
    key = _PASSPHRASE.match(prompt.strip() + " ")
    if key:
        return Question("passphrase", prompt, key["key"])
    whose = _PASSWORD.match(prompt.lstrip())
    if whose:
        return Question("password", prompt, whose["who"])
    named = _NAMED.match(prompt.lstrip())
    rest, who = (named["rest"], named["who"]) if named else (prompt, "")
    # A keyboard-interactive login may ask for anything; only what is a password beyond doubt is taken for one.
    return Question("password" if _PLAIN_PASSWORD.match(rest.strip()) else "code", prompt, who)


def fingerprint(question: Question) -> tuple[str, str]:
    """Kind and fingerprint of the key that an unknown host has shown."""
    found = _FINGERPRINT.search(question.text)
    return (found["kind"], found["print"]) if found else ("", "")


def trouble(
    said: str,
    code: int | None,
    name: str,
    where: str,
    unanswered: Question | None,
    *,
    was_wrong: bool = False,
) -> DrayError | None:
    """What went wrong, from ssh's last words and exit code; None when they explain nothing.

    `unanswered` is the question that nobody could answer, if there was one; `was_wrong`: it had been answered before.
    """
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        offending, sent, host = _OFFENDING.search(said), _SENT.search(said), _CHANGED_FOR.search(said)
        return HostKeyChanged(
            name,
            where,
            host=host["host"] if host else where,
            file=offending["file"] if offending else None,
            shown=sent["print"] if sent else None,
        )
    if unanswered is not None:
        if unanswered.kind == "host-key":
            return HostKeyUnknown(name, where, *fingerprint(unanswered), about=unanswered.about)
        return LoginRefused(name, where, "", unanswered, was_wrong=was_wrong)
    if "Host key verification failed" in said:
        return HostKeyUnknown(name, where, "", "", about="")
    denied = _DENIED.search(said)
    if denied:
        return LoginRefused(name, where, denied["ways"], None)
    if "Bad configuration option" in said or "Bad owner or permissions" in said or "terminating, " in said:
        return SshConfigBroken(said)
    for mark, why in _NO_CONNECTION:
        if mark in said:
            return HostAway(where, why, quoted=_line_with(said, mark))
    for mark, why in _BROKEN:
        if mark in said:
            return HostUnreachable(where, why, quoted=_line_with(said, mark))
    if code == 127 or (code in (1, 126) and _NO_PYTHON.search(said)):
        return HostPythonMissing(name, where, _last_line(said))
    if code == 255:
        return HostUnreachable(where, _last_line(said) or "ssh gave up without a word")
    return None


def _line_with(said: str, mark: str) -> str:
    return next(line.strip() for line in said.splitlines() if mark in line)


def _last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else ""
