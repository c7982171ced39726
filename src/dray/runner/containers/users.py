"""Whose process a container is: such that the files it writes are the user's, under every kind of engine.

Pure: facts in, words out. Why so for each: docs/how-to/docker.md.
"""

from __future__ import annotations

import re
from typing import Iterable, List

from .engines import Facts

_ID = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?\Z")
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}(:[a-z_][a-z0-9_-]{0,31})?\Z")


class Who:
    """How a container is to be started for somebody."""

    def __init__(self, words: List[str], uid: int | None, *, is_own: bool) -> None:
        self.words = words
        self.uid = uid
        """Inside; None: whoever the image or a name says."""
        self.is_own = is_own
        """What it writes belongs to the user, and it can read what is the user's."""


def choose(engine: str, facts: Facts, uid: int, gid: int, groups: Iterable[int], wanted: str | None) -> Who:
    """`wanted`: None (the user), "image", "root", or what `--user` of the engine takes."""
    if wanted == "image":
        return Who([], None, is_own=False)
    if wanted == "root":
        return Who(_userns(facts, ["--user", "0:0"]), 0, is_own=facts.is_rootless or uid == 0)
    if wanted:
        head = wanted.partition(":")[0]
        inside = int(head) if head.isdigit() else None
        same = inside == uid and not facts.is_rootless
        return Who(_userns(facts, ["--user", wanted]), inside, is_own=same)
    if facts.is_rootless and engine == "podman":
        return Who(["--userns", "keep-id", "--user", "%d:%d" % (uid, gid)], uid, is_own=True)
    if facts.is_rootless:
        # Root inside is the user outside, and nobody else.
        return Who(["--user", "0:0"], 0, is_own=True)
    words = ["--user", "%d:%d" % (uid, gid)]
    if uid:
        for group in groups:
            if group != gid:
                words += ["--group-add", str(group)]
    return Who(_userns(facts, words), uid, is_own=True)


def _userns(facts: Facts, words: List[str]) -> List[str]:
    """With remapped users a container could write nothing of the user's, so it is started without."""
    return ["--userns", "host", *words] if facts.is_remapped else words


def is_valid(wanted: str) -> bool:
    """Whether it can be meant as a user."""
    return wanted in ("image", "root") or bool(_ID.match(wanted) or _NAME.match(wanted))


def passwd(theirs: str, name: str, uid: int, gid: int, home: str) -> str:
    """The image's /etc/passwd with an entry for the user, who takes the place of whoever has that number or name."""
    lines = theirs.splitlines() or ["root:x:0:0:root:/root:/bin/sh"]
    kept = []
    for line in lines:
        fields = line.split(":")
        if len(fields) >= 3 and fields[0] != name and fields[2] != str(uid):
            kept.append(line)
    return "\n".join([*kept, "%s:x:%d:%d::%s:/bin/sh" % (name, uid, gid, home)]) + "\n"


def group(theirs: str, name: str, gid: int) -> str:
    """The same for /etc/group."""
    lines = theirs.splitlines() or ["root:x:0:"]
    if any(line.split(":")[2:3] == [str(gid)] for line in lines):
        return "\n".join(lines) + "\n"
    taken = {line.split(":")[0] for line in lines}
    return "\n".join([*lines, "%s:x:%d:" % (name if name not in taken else "dray%d" % gid, gid)]) + "\n"
