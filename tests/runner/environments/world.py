"""A package index of our own, small packages to put into it, and a machine that builds from it."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dray.core.spec import Environment
from tests.runner.machines import Here

UV = str(Path(sys.executable).parent / "uv")


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    script: str = "",
) -> Path:
    """A wheel of one module that knows its version. `script` names a program that prints its interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents = {
        f"{name}/__init__.py": f"VERSION = {version!r}\ndef main():\n    import sys\n    print(sys.executable)\n",
        **(files or {}),
        f"{info}/METADATA": head + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: here\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    record = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for inside, text in {**contents, f"{info}/RECORD": record}.items():
            file.writestr(zipfile.ZipInfo(inside), text)
    return path


class Index:
    """An index on loopback. It counts what it is asked for, may want a password, and may fall silent."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.silent: Callable[[str], bool] = lambda path: False
        self.given_up = threading.Event()
        index = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append(self.path)
                if index.silent(self.path):
                    index.given_up.wait(60)
                    return
                wanted = base64.b64encode(f"ana:{password}".encode()).decode()
                if password and self.headers.get("Authorization") != f"Basic {wanted}":
                    self.answer(401, b"", ("WWW-Authenticate", 'Basic realm="x"'))
                else:
                    self.answer(*index.page(self.path))

            def do_HEAD(self) -> None:
                self.send_error(405)  # as indexes do that know no ranges

            def answer(self, code: int, body: bytes, *headers: tuple[str, str]) -> None:
                self.send_response(code)
                for header in headers:
                    self.send_header(*header)
                self.send_header("Content-Type", "text/html" if body[:1] == b"<" else "application/zip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: Any) -> None:
                """Nothing on the terminal."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.where = f"127.0.0.1:{self.server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.where}/simple"

    def page(self, path: str) -> tuple[int, bytes]:
        parts = path.strip("/").split("/")
        if parts[0] == "files":
            return 200, (self.folder / parts[1]).read_bytes()
        found = sorted(self.folder.glob(f"{parts[-1].replace('-', '_')}-*.whl"))
        if not found:
            return 404, b""
        rows = (
            f'<a href="/files/{f.name}#sha256={hashlib.sha256(f.read_bytes()).hexdigest()}">{f.name}</a>'
            for f in found
        )
        return 200, ("<html><body>" + "".join(rows) + "</body></html>").encode()

    def add(self, name: str, version: str, **more: Any) -> Path:
        return make_wheel(self.folder, name, version, **more)

    def files_asked(self) -> list[str]:
        return [path for path in self.asked if path.startswith("/files/")]

    def stop(self) -> None:
        self.given_up.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Builder(Here):
    """This machine, with uv at hand, and a cache of its own for it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.near = {"uv": UV}

    def folders(self) -> list[Path]:
        found = Path(self.root_path()).glob("*/environments/*")
        return sorted(path for path in found if path.is_dir() and not path.name.startswith("."))

    def ask(self, **request: Any) -> tuple[dict[str, Any], bytes]:
        with self.connect() as connection:
            connection.ask({"op": "env", **request})
            return connection.receive()

    def all(self, **request: Any) -> list[dict[str, Any]]:
        with self.connect() as connection:
            connection.ask({"op": "env", **request})
            return list(iter(lambda: connection.receive()[0], {"done": True}))


def wants(*packages: str, **more: Any) -> dict[str, Any]:
    """An environment as it stands in a spec."""
    return Environment(packages=tuple(sorted(packages)), **more).to_json()


def texts_below(root: str) -> Iterator[tuple[Path, bytes]]:
    """All files of a machine's folder with their bytes."""
    for path in Path(root).rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


def marker(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "complete").read_text())
    return found


def snapshot_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below `folder` with size and mode: to see that nothing has touched it."""
    return {
        str(path.relative_to(folder)): (os.lstat(path).st_size, os.lstat(path).st_mode)
        for path in sorted(folder.rglob("*"))
    }
