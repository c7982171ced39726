"""Reads what the builders print: how far they are, and the sentence that says why they failed."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional, Tuple

_SIZE = re.compile(r"([\d.]+)\s*([KMGT]?)i?B")
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FETCHING = re.compile(r"Downloading (\S+) \(([^)]*)\)")
_FETCHED = re.compile(r"Downloaded (\S+)")
_MADE = re.compile(r"(?:Building|Built) (\S+)")
_COUNTED = re.compile(r"(Resolved|Prepared|Installed) (\d+) packages?")
_BYTES = re.compile(r"dray: bytes (\d+) of (\d+)(?: (\S+))?")
_BEGINS = ("\u00d7", "error:", "ERROR:", "error ", "critical ")
_MORAL = ", we can conclude that your requirements are unsatisfiable"
_FULL = "No space left on device"
_MOST = 400


class Watch:
    """Follows the log of one command while it is written, and says how far that is."""

    def __init__(self, log: str, since: int, packages: Optional[int] = None) -> None:
        self.log = log
        self.packages = packages
        self.announced: Dict[str, int] = {}
        self.fetched: Dict[str, int] = {}
        self._at = since
        self._rest = b""
        self._said: Optional[Dict[str, Any]] = None

    @property
    def to_come(self) -> int:
        """Bytes that are still to be downloaded, as far as was said."""
        return sum(self.announced.values()) - sum(self.fetched.values())

    def news(self) -> Optional[Dict[str, Any]]:
        """The latest progress, if it is another than last time."""
        latest = None
        for line in self._lines():
            latest = self._read(line) or latest
        if latest is None or latest == self._said:
            return None
        self._said = latest
        return latest

    def _lines(self) -> List[str]:
        try:
            with open(self.log, "rb") as file:
                file.seek(self._at)
                data = file.read(1 << 20)
        except OSError:
            return []
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_ANSI.sub("", line.decode(errors="replace")).strip() for line in lines]

    def _read(self, line: str) -> Optional[Dict[str, Any]]:
        found = _FETCHING.match(line)
        if found:
            self.announced[found[1]] = size_of(found[2])
            return self._downloading(found[1])
        found = _FETCHED.match(line)
        if found and found[1] in self.announced:
            self.fetched[found[1]] = self.announced[found[1]]
            return self._downloading(found[1])
        found = _BYTES.match(line)
        if found:
            return step("downloading", int(found[1]), int(found[2]), "bytes", found[3])
        found = _MADE.match(line)
        if found:
            return step("installing", 0, self.packages, text=found[1])
        found = _COUNTED.match(line)
        if found:
            number = int(found[2])
            if found[1] == "Installed":
                return step("installing", number, self.packages or number)
            return (
                step("solving", number, number) if found[1] == "Resolved" else step("installing", 0, number)
            )
        return None

    def _downloading(self, name: str) -> Dict[str, Any]:
        return step("downloading", sum(self.fetched.values()), sum(self.announced.values()), "bytes", name)


def step(
    phase: str, done: int = 0, total: Optional[int] = None, unit: str = "packages", text: Optional[str] = None
) -> Dict[str, Any]:
    """The data of an event `progress`."""
    return {"of": "environment", "phase": phase, "done": done, "total": total, "unit": unit, "text": text}


def size_of(words: str) -> int:
    """Bytes of "16.1MiB"."""
    found = _SIZE.match(words)
    return int(float(found[1]) * 1024 ** _POWER[found[2]]) if found else 0


def last_words(log: str, since: int) -> str:
    """The sentence of a build's log that tells most: the resolver's own reason, else its error with the last cause, else its last line."""
    try:
        with open(log, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(since, size - (1 << 20)))
            text = file.read(1 << 20).decode(errors="replace")
    except OSError:
        return ""
    return sentence(text)


def sentence(text: str) -> str:
    """The same, of a text."""
    lines = [line.strip() for line in _ANSI.sub("", text).splitlines() if line.strip()]
    start = next((number for number, line in enumerate(lines) if line.startswith(_BEGINS)), None)
    if start is None:
        return lines[-1][:_MOST] if lines else ""
    # uv draws a tree, or writes `cause:` before each; the branch says why, the trunk only that.
    told = [line.lstrip("\u00d7\u2570\u2500\u25b6\u251c\u2502 ") for line in lines[start:]]
    hints = [number for number, line in enumerate(told) if line.startswith(("hint:", "help:"))]
    body = told[: hints[0]] if hints else told
    if len(body) == 1 and " Caused by: " in body[0]:
        first, *causes = body[0].split(" Caused by: ")
        body = [first, *("cause: " + cause for cause in causes)]
    joined = " ".join(line[7:] if line.startswith("cause: ") else line for line in body)
    why = joined.find("Because ")
    if why >= 0:
        return joined[why:].replace(_MORAL, "")[:_MOST]
    if _FULL in joined:
        return _FULL
    first, causes = _with_causes(body)
    return (first + (": " + causes[-1] if causes else ""))[:_MOST]


def _with_causes(lines: List[str]) -> Tuple[str, List[str]]:
    """What failed, and the chain of reasons, the deepest last."""
    first = lines[0]
    for beginning in ("error: ", "ERROR: "):
        first = first[len(beginning) :] if first.startswith(beginning) else first
    causes = [line[7:] for line in lines[1:] if line.startswith("cause: ")]
    if not causes and len(lines) > 1:
        return " ".join([first, *lines[1:4]]), []
    # An address that both name is said once.
    if causes and causes[0].startswith("Failed to "):
        first = causes[0]
    return first, causes


def is_full(words: str) -> bool:
    """Whether the disk was full."""
    return _FULL in words or "Disk quota exceeded" in words


def is_unknown(words: str) -> Optional[str]:
    """The package that no index has."""
    found = re.search(
        r"Because ([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])? was not found in the (?:package registry|provided)",
        words,
    )
    return found[1] if found else None
