"""What can go wrong between a code folder and its snapshot, in the user's words.

DrayError
├── UsageError
│   ├── NoSuchScript     the script to submit is not there
│   ├── NoSuchFolder     `--dir` names something that is no folder
│   ├── ScriptOutside    the script lies outside the code folder
│   └── BadLimit         DRAY_SNAPSHOT_LIMIT is no size
└── SnapshotError
    ├── FolderTooBig     more would travel than the limit allows
    ├── BadManifest      a manifest that came from elsewhere is not what it should be
    ├── Unreadable       files or folders that this user may not read
    └── NoRoomForBlobs   the disk under DRAY_HOME is too full for a copy
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.core.durations import show_bytes
from dray.core.errors import DrayError, UsageError, nearest, printable


class NoSuchScript(UsageError):
    """The script to submit is not there, or is no file."""

    code = "no-such-script"

    def __init__(
        self, script: str, folder: str, names: Sequence[str] | None, *, is_folder: bool = False
    ) -> None:
        """`names`: the files in `folder`, where the script was looked for; None when there is no such folder."""
        near = nearest(script.rpartition("/")[2], names or ())
        if is_folder:
            what, why = f"`{printable(script)}` is a folder, not a script", None
        else:
            what = f"there is no script `{printable(script)}`"
            why = f"looked in `{printable(folder)}`"
            if names is None:
                why = f"there is no folder `{printable(folder)}`"
            elif near:
                why += f"; did you mean `{printable(near)}`?"
        super().__init__(what, why=why)
        self.near = near


class NoSuchFolder(UsageError):
    """`--dir` names something that is not there, or is no folder."""

    code = "no-such-folder"

    def __init__(self, folder: str, *, is_file: bool) -> None:
        super().__init__(
            f"`--dir {printable(folder)}` is not a folder",
            why="it is a file" if is_file else "it does not exist",
        )


class ScriptOutside(UsageError):
    """The script would not travel, because it lies outside the code folder."""

    code = "script-outside-folder"

    def __init__(self, script: str, folder: str, parent: str) -> None:
        import shlex

        super().__init__(
            f"the script `{printable(script)}` lies outside the code folder `{printable(folder)}`",
            why="only the code folder travels to the machine",
            hint=f"name a folder that holds the script: `--dir {printable(shlex.quote(parent))}`",
        )


class BadLimit(UsageError):
    """DRAY_SNAPSHOT_LIMIT does not read as a size."""

    code = "bad-snapshot-limit"

    def __init__(self, text: str) -> None:
        super().__init__(
            f"DRAY_SNAPSHOT_LIMIT=`{printable(text)}` is not a size",
            why="sizes look like 500MB, 40GB or 1.5TB",
        )


class SnapshotError(DrayError):
    """The root of what can go wrong with the contents of a code folder."""

    code = "snapshot"


class FolderTooBig(SnapshotError):
    """More would travel than the limit allows. Found before anything was read."""

    code = "folder-too-big"

    def __init__(
        self, folder: str, total: int, limit: int, biggest: Sequence[tuple[str, int, str]], ignore_file: str
    ) -> None:
        """`biggest`: (path, bytes, the ignore line that drops it), the biggest first."""
        width = max((len(printable(p)) for p, _, _ in biggest), default=0)
        listed = "\n".join(f"    {printable(p):<{width}}  {show_bytes(n)}" for p, n, _ in biggest)
        lines = "\n".join(f"    {printable(line)}" for _, _, line in biggest)
        super().__init__(
            f"the code folder `{printable(folder)}` is too big to travel: {show_bytes(total)}",
            why=f"the limit is {show_bytes(limit)}; the biggest in it:\n{listed}",
            hint=f"add the lines of what the run does not need to `{printable(ignore_file)}`:\n{lines}\n"
            f"    or raise the limit: `export DRAY_SNAPSHOT_LIMIT={_rounded_up(total)}`",
        )
        self.total = total
        self.limit = limit
        self.biggest = tuple(biggest)


class BadManifest(SnapshotError):
    """A manifest that is damaged, is another one, or would write outside its folder. Nothing was written."""

    code = "bad-manifest"

    def __init__(self, trouble: str) -> None:
        super().__init__("the list of the code's files cannot be used", why=printable(trouble))


class Unreadable(SnapshotError):
    """Files or folders that should travel, and that this user may not read."""

    code = "unreadable-files"

    def __init__(self, found: Sequence[tuple[str, str]], ignore_file: str) -> None:
        """`found`: (path, the ignore line that drops it)."""
        named = ", ".join(f"`{printable(p)}`" for p, _ in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        lines = "\n".join(f"    {printable(line)}" for _, line in found[:5])
        one = len(found) == 1
        super().__init__(
            f"{'one entry' if one else f'{len(found)} entries'} of the code folder cannot be read",
            why=f"you have no permission to read {named}{more}",
            hint=f"`chmod u+r` {'it' if one else 'them'}, or leave {'it' if one else 'them'} out by adding to "
            f"`{printable(ignore_file)}`:\n{lines}",
        )
        self.paths = tuple(p for p, _ in found)


class NoRoomForBlobs(SnapshotError):
    """The disk under DRAY_HOME is too full for a copy of the code folder."""

    code = "no-room-for-snapshot"

    def __init__(self, home: str, needed: int, free: int) -> None:
        super().__init__(
            "the disk is too full to keep a copy of the code",
            why=f"`{printable(home)}` needs {show_bytes(needed)} more and has {show_bytes(free)} left",
            hint="free some space there, or set DRAY_HOME to a folder on another disk",
        )


def _rounded_up(count: int) -> str:
    """A limit in whole gigabytes that lets `count` bytes pass."""
    return f"{count // 1_000_000_000 + 1}GB"
