"""A conda channel of our own: packages made by hand, with a Python that is a link to one of the machine's."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SUBDIR = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}[os.uname().machine]
VERSION = "{}.{}.{}".format(*sys.version_info[:3])
BASE = Path(sys.base_prefix) / "bin" / "python3"


class Channel:
    """In a folder: `file://` is how it is named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, dict[str, Any]] = {SUBDIR: {}, "noarch": {}}
        self._write()

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def add_python(self) -> None:
        """As small as a Python can be: a virtual environment of the one that runs the tests."""
        settings = f"home = {BASE.parent}\ninclude-system-site-packages = false\nversion = {VERSION}\n"
        self.add(
            "python",
            VERSION,
            {"pyvenv.cfg": settings},
            links={"bin/python": str(BASE), "bin/python3": str(BASE)},
        )

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, str],
        *,
        links: Mapping[str, str] | None = None,
        depends: Sequence[str] = (),
        noarch: bool = False,
    ) -> None:
        """A package. Files of a `noarch` one lie below `site-packages/`."""
        subdir = "noarch" if noarch else SUBDIR
        index: dict[str, Any] = {"name": name, "version": version, "build": "0", "build_number": 0}
        index.update(depends=list(depends), subdir=subdir, timestamp=1)
        if noarch:
            index["noarch"] = "python"
        data = _archive(files, links or {}, index)
        path = self.folder / subdir / f"{name}-{version}-0.tar.bz2"
        path.write_bytes(data)
        digests = {"md5": hashlib.md5(data).hexdigest(), "sha256": hashlib.sha256(data).hexdigest()}
        self.records[subdir][path.name] = {**index, **digests, "size": len(data)}
        self._write()

    def _write(self) -> None:
        for subdir, records in self.records.items():
            (self.folder / subdir).mkdir(parents=True, exist_ok=True)
            document = {
                "info": {"subdir": subdir},
                "packages": records,
                "packages.conda": {},
                "repodata_version": 1,
            }
            (self.folder / subdir / "repodata.json").write_text(json.dumps(document))


def _archive(files: Mapping[str, str], links: Mapping[str, str], index: Mapping[str, Any]) -> bytes:
    paths = [
        {
            "_path": path,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "size_in_bytes": len(text),
        }
        for path, text in files.items()
    ]
    paths += [
        {
            "_path": path,
            "path_type": "softlink",
            "sha256": hashlib.sha256(b"").hexdigest(),
            "size_in_bytes": 0,
        }
        for path in links
    ]
    information = {
        "info/index.json": json.dumps(index),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/files": "".join(f"{path}\n" for path in [*files, *links]),
    }
    if "noarch" in index:
        information["info/link.json"] = json.dumps(
            {"noarch": {"type": "python"}, "package_metadata_version": 1}
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for path, text in {**information, **files}.items():
            info = tarfile.TarInfo(path)
            info.size = len(text.encode())
            info.mode = 0o755 if path.startswith("bin/") else 0o644
            file.addfile(info, io.BytesIO(text.encode()))
        for path, to in links.items():
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, to
            file.addfile(info)
    return bz2.compress(buffer.getvalue())
