"""What a container is shown of its machine: folders that the user names, an account, certificates, and the run's own where it is another's."""

from __future__ import annotations

import os
import shutil
import stat
from typing import Any, Dict, List

from .. import results
from ..environments.variables import machine_authorities
from ..files import make_folder, write_once
from ..machine import user_of
from . import users, words
from .engines import ContainerFailed
from .images import Inside


def wanted(wish: Dict[str, Any], environ: Dict[str, str]) -> List[words.Mount]:
    """What the user wants to be seen. Raises ContainerFailed for what is not there."""
    found = []
    for said, there, read_only in wish.get("mounts") or []:
        here = _at_home(said, environ)
        if not os.path.exists(here):
            text = "`--mount %s`: there is no such file or folder on the machine" % said
            raise ContainerFailed("container-failed", text)
        found.append((os.path.realpath(here), there, bool(read_only)))
    return found


def certificates(wish: Dict[str, Any], environ: Dict[str, str]) -> words.Mount | None:
    """The file of certificates that programs inside are to trust, if one is wanted."""
    said = wish.get("ca")
    if not said:
        return None
    path = machine_authorities() if said == "machine" else _at_home(said, environ)
    if not path or not os.path.isfile(path):
        text = "there is no bundle of certificates on the machine: %s" % said
        raise ContainerFailed("container-failed", text)
    return os.path.realpath(path), words.CA, True


def account(attempt: str, inside: Inside) -> List[words.Mount]:
    """An entry in the lists of users and groups, and a home that is theirs."""
    uid, gid = os.getuid(), os.getgid()
    name = user_of(uid)[0] or "user"
    home = os.path.join(attempt, "home")
    make_folder(home)
    found: List[words.Mount] = [(home, words.HOME, False)]
    for file, text in (
        ("passwd", users.passwd(inside.passwd, name, uid, gid, words.HOME)),
        ("group", users.group(inside.group, name, gid)),
    ):
        path = os.path.join(attempt, file)
        write_once(path, text.encode("utf-8", "surrogateescape"))
        os.chmod(path, 0o644)
        found.append((path, "/etc/" + file, True))
    return found


def copy_of(travel: str, attempt: str) -> str:
    """The tracking module for a reader who may not read ours."""
    place = os.path.join(attempt, "travel")
    shutil.copytree(travel, place)
    for folder, _, files in os.walk(place):
        os.chmod(folder, 0o755)
        for file in files:
            os.chmod(os.path.join(folder, file), 0o644)
    return place


def open_for_others(code: str, streams: str) -> None:
    """The container is not the user's: what it writes into has to be open. Nobody else of the machine gets past the run's folder."""
    make_folder(os.path.join(code, results.OUTPUTS))
    for folder in (code, os.path.join(code, results.OUTPUTS), streams):
        os.chmod(folder, 0o777)
    for folder, folders, files in os.walk(code):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                more = 0o777 if stat.S_ISDIR(mode) or mode & 0o100 else 0o666
                os.chmod(path, stat.S_IMODE(mode) | more)


def _at_home(path: str, environ: Dict[str, str]) -> str:
    """`~/x` is in the user's home on this machine."""
    return environ.get("HOME", "") + path[1:] if path.startswith("~/") else path
