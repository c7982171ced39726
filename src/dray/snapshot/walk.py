"""Walks a code folder once and says what would travel. Nothing is read but folders, sizes and ignore files.

Ignored folders are not entered. The loop in `_Walk.run` sees every entry, so it works on strings and plain tuples, and
asks the exact rules only about names that the quick probe (ignores.py) knows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from dray.snapshot.errors import NoSuchFolder, Unreadable
from dray.snapshot.ignores import Rules
from dray.snapshot.limit import ignore_line, limit_from_environment, require_below
from dray.snapshot.links import stored_target
from dray.snapshot.plans import DEVICE, OWN, PIPE, RESULTS, SOCKET, LeftOut, Plan

Progress = Callable[[str, int, int | None], None]
"""what is done ("looking", "reading"), how much of it is done (entries, bytes), of how much (None: unknown)."""

NEVER = OWN + "never travels)"
CACHE = OWN + "cache)"
VIRTUAL_ENVIRONMENT = OWN + "virtual environment)"
OWN_DATA = OWN + "its own data)"

# node_modules is not among them: a run may need it, no tool makes it again by itself, and ignore files name it anyway.
_BY_NAME = {
    ".git": NEVER,
    ".hg": NEVER,
    ".svn": NEVER,
    "__pycache__": CACHE,
    ".mypy_cache": CACHE,
    ".ruff_cache": CACHE,
    ".pytest_cache": CACHE,
    ".ipynb_checkpoints": CACHE,
}
_IN_ENVIRONMENTS = frozenset({"pyvenv.cfg", "conda-meta"})
_TELLING = _IN_ENVIRONMENTS | {".gitignore"}
_NO_FILES = {stat.S_IFSOCK: SOCKET, stat.S_IFIFO: PIPE}


def plan(root: str | Path, *, home: str | Path | None = None, progress: Progress | None = None) -> Plan:
    """What of the code folder `root` would travel. `home` (DRAY_HOME) never does, wherever it lies.

    Raises FolderTooBig, Unreadable (for folders; files are opened by `take`), BadLimit.
    """
    limit = limit_from_environment()
    real = os.path.realpath(root)
    if not os.path.isdir(real):
        raise NoSuchFolder(str(root), is_file=os.path.exists(real))
    found = _Walk(real, home, progress).run()
    require_below(limit, found)
    return found


class _Walk:
    def __init__(self, root: str, home: str | Path | None, progress: Progress | None) -> None:
        self.plan = Plan(root)
        self.progress = progress
        self.start = root if root.endswith(os.sep) else root + os.sep
        real_home = os.path.realpath(home) if home is not None else ""
        self.home = (
            real_home[len(self.start) :].replace(os.sep, "/") if real_home.startswith(self.start) else ""
        )
        always = {*_BY_NAME, "outputs", *([self.home.rpartition("/")[2]] if self.home else [])}
        self.rules = Rules.at_root(root, frozenset(always))
        self.unreadable: list[str] = []

    def run(self) -> Plan:
        found = self.plan
        found.ignore_file = self.rules.kind
        todo = [("", self.rules)]
        while todo:
            folder, rules = todo.pop()
            try:
                with os.scandir(self.start + folder) as listing:
                    entries = list(listing)
            except (FileNotFoundError, NotADirectoryError):  # gone since its parent was listed
                continue
            except PermissionError:
                self.unreadable.append(folder)
                continue
            if not _TELLING.isdisjoint([entry.name for entry in entries]):
                names = {entry.name for entry in entries}
                if folder and not _IN_ENVIRONMENTS.isdisjoint(names):
                    found.left_out.append(LeftOut(folder[:-1], VIRTUAL_ENVIRONMENT, True))
                    continue
                if folder and rules.nested and ".gitignore" in names:
                    rules = rules.with_file_in(self.start, folder)
            before = len(found.files) + len(found.links)
            inner = self._look(folder, entries, rules)
            todo += [(f"{folder}{name}/", rules) for name in inner]
            if folder and not inner and len(found.files) + len(found.links) == before:
                found.dirs.append(folder[:-1])
            if self.progress is not None:
                self.progress("looking", len(found.files), None)
        if self.unreadable:
            told = [(path or "./", ignore_line(path)) for path in sorted(self.unreadable)]
            raise Unreadable(told, found.ignore_file)
        found.files.sort()
        found.links.sort()
        found.dirs.sort()
        found.left_out.sort()
        found.bytes = sum([row[1] for row in found.files])
        return found

    def _look(self, folder: str, entries: list[os.DirEntry[str]], rules: Rules) -> list[str]:
        """Sort the entries of one folder into the plan; the names of the folders that travel."""
        names, suffixes, wild = rules.probe(folder)
        add = self.plan.files.append
        inner = []
        for entry in entries:
            name = entry.name
            if (
                name in names or name.endswith(suffixes) or (wild is not None and wild(name))
            ) and self._leaves_out(folder, entry, rules):
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:  # a folder that may be listed but not entered
                self.unreadable.append(folder + name)
                continue
            mode = info.st_mode
            if mode & 0o170000 == 0o100000:
                add((folder + name, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, mode))
            elif mode & 0o170000 == 0o040000:
                inner.append(name)
            else:
                self._add_other(folder + name, mode)
        return inner

    def _leaves_out(self, folder: str, entry: os.DirEntry[str], rules: Rules) -> bool:
        name = entry.name
        path = folder + name
        is_dir = entry.is_dir(follow_symlinks=False)
        rule = _BY_NAME.get(name)
        if rule == CACHE and not is_dir:
            rule = None
        if path == self.home:
            rule = OWN_DATA
        elif path == "outputs":  # a folder, or a link to where there is more room: the run makes its own
            rule = RESULTS
        rule = rule or rules.verdict(path, name, is_dir)
        if rule is None:
            return False
        self.plan.left_out.append(LeftOut(path, rule, is_dir))
        return True

    def _add_other(self, path: str, mode: int) -> None:
        if not stat.S_ISLNK(mode):
            self.plan.left_out.append(LeftOut(path, _NO_FILES.get(stat.S_IFMT(mode), DEVICE), False))
            return
        try:
            target = os.readlink(self.start + path)
        except OSError:  # gone, or no link any more
            return
        self.plan.links.append((path, stored_target(self.plan.root, path, target)))
