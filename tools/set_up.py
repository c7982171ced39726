"""Makes `.venv` for `./dray` and `./dev`: whole, or not at all.

`main()` is called by tools/ready.sh when the stamp in `.venv` does not fit. The stamp is written last and holds what was
installed (`dray` or `dev`), for which folder, and the digest of pyproject.toml; its time is pyproject.toml's, so that
the shell can compare without starting a process. A mark left by an interrupted set-up makes the next one begin anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PROJECT = ROOT / "pyproject.toml"
STAMP = VENV / "dray-stamp"
BEGUN = VENV / "dray-set-up-begun"
NOT_STARTED = 125
MAKER: str = getattr(sys, "_base_executable", sys.executable)  # an active .venv may be the one to be removed


class SetUpFailed(Exception):
    """A step of the set-up ended badly; the text is for the user."""


def main(kind: str) -> int:
    """Bring `.venv` to what `kind` needs. Two at once: the second waits, and finds the work done."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with only_one():
            if not fits(kind):
                set_up(kind)
    except SetUpFailed as failure:
        print(f"dray could not be set up: {failure}", file=sys.stderr)
        return NOT_STARTED
    except OSError as error:
        print(f"dray could not be set up in {ROOT}: {error}", file=sys.stderr)
        return NOT_STARTED
    except KeyboardInterrupt:
        print("\nset-up interrupted; the next start begins it anew", file=sys.stderr)
        return 130
    return 0


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the one lock of this checkout. It ends with the process, however that ends."""
    with Path(__file__).open("r+b") as lock:  # this very file: writable where .venv is, and no litter
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another shell is making .venv here; waiting for it ...\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fits(kind: str) -> bool:
    """Whether `.venv` has all that `kind` needs. Mends the stamp's time where only pyproject.toml's moved."""
    found = read_stamp()
    if found is None or not PYTHON.exists() or found[0] not in {kind, "dev"}:
        return False
    if found[1:] != [str(ROOT), digest()]:
        return False
    copy_time(STAMP)
    return True


def set_up(kind: str) -> None:
    """Install, compile, and write the stamp at the very end."""
    found = read_stamp()
    if found and found[0] == "dev":
        kind = "dev"  # `./dray` saw a changed pyproject.toml; the tools of `./dev` must not fall behind
    began, before = time.monotonic(), digest()
    moved = found is not None and found[1] != str(ROOT)  # the scripts in bin/ name the old place
    uv = find_uv()
    what = "dray and the tools to work on it" if kind == "dev" else "dray"
    say(f"setting up {what} in {VENV} with {'uv' if uv else 'pip'}, once ...")
    STAMP.unlink(missing_ok=True)
    if moved or BEGUN.exists() or not PYTHON.exists():
        remove(VENV)
        VENV.mkdir()
        BEGUN.touch()
        make_venv(uv)
    BEGUN.touch()
    install(uv, f"{ROOT}[dev]" if kind == "dev" else str(ROOT))
    compile_all()
    write_stamp(kind, before)
    BEGUN.unlink()
    say(f" {time.monotonic() - began:.1f} s\n")


def make_venv(uv: str | None) -> None:
    """An empty virtual environment of the Python that runs this."""
    if uv:
        do(uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", MAKER, str(VENV))
        return
    try:
        import ensurepip  # noqa: F401 (a question, not a use: Debian packs it apart from Python)
    except ImportError as missing:
        raise SetUpFailed(
            f"{MAKER} cannot make virtual environments\n"
            f"  try: apt install python3-venv, or install uv: https://docs.astral.sh/uv/"
        ) from missing
    do(MAKER, "-I", "-m", "venv", str(VENV))


def find_uv() -> str | None:
    """The user's uv; never the one that `.venv` itself holds."""
    found = shutil.which("uv")
    return None if found is None or Path(found).is_relative_to(VENV) else found


def install(uv: str | None, project: str) -> None:
    """The project itself, editable, and what it needs."""
    if uv:
        do(uv, "pip", "install", "--quiet", "--python", str(PYTHON), "--editable", project)
    else:
        pip = [str(PYTHON), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        do(*pip, "--editable", project)


def compile_all() -> None:
    """Bytecode for everything, so that no start pays for it. A file of some package that cannot be compiled is no fault."""
    site = next((VENV / "lib").glob("python3*/site-packages"))
    command = [str(PYTHON), "-I", "-m", "compileall", "-q", "-j", "0", str(site), str(ROOT / "src")]
    subprocess.run(command, capture_output=True, check=False, env=environment())


def do(*command: str) -> None:
    """Run one step; its output is shown only when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        tail = "\n".join("    " + line for line in done.stdout.strip().splitlines()[-15:])
        raise SetUpFailed(f"this step ended with code {done.returncode}:\n  {' '.join(command)}\n{tail}")


def environment() -> dict[str, str]:
    """The caller's variables less those that would send packages or bytecode elsewhere."""
    strange = {"VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"}
    return {k: v for k, v in os.environ.items() if k not in strange and not k.startswith("PYTHON")}


def read_stamp() -> list[str] | None:
    """[kind, folder, digest of pyproject.toml] of a finished set-up."""
    try:
        lines = STAMP.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return lines if len(lines) == 3 else None


def write_stamp(kind: str, project_digest: str) -> None:
    """Say that all is done. A pyproject.toml that changed meanwhile does not match, and is synced next time."""
    draft = STAMP.with_suffix(".new")
    draft.write_text(f"{kind}\n{ROOT}\n{project_digest}\n")
    if digest() == project_digest:
        copy_time(draft)
    draft.replace(STAMP)


def copy_time(stamp: Path) -> None:
    """Give `stamp` the time of pyproject.toml: equal times mean that nothing changed."""
    status = PROJECT.stat()
    os.utime(stamp, ns=(status.st_mtime_ns, status.st_mtime_ns))


def digest() -> str:
    """What pyproject.toml says, in 64 letters."""
    return hashlib.sha256(PROJECT.read_bytes()).hexdigest()


def remove(folder: Path) -> None:
    """Take `folder` away; a link is taken, and what it points to stays."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def say(words: str) -> None:
    """Words for people, at once."""
    print(words, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
