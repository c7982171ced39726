"""What cannot be built says why, in a sentence; what was killed leaves nothing that looks finished; passwords are seen nowhere."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.environments.world import UV, Builder, Index, texts_below, wants
from tests.runner.machines import Followed, is_alive, kill, parent_of, wait_until

SHOW = "import apple; print(apple.VERSION)"


def _why(heard: Followed) -> str:
    assert (heard.end["state"], heard.kind) == ("failed", "environment-failed")
    return str(heard.end["reason"]["text"])


def test_pins_that_contradict_each_other_are_named(builder: Builder) -> None:
    why = _why(builder.run("", environment=wants("pear", "apple>=2")))

    assert "Because " in why
    assert "apple" in why
    assert "\n" not in why
    assert len(why) < 500


def test_a_build_that_fails_leaves_nothing(builder: Builder) -> None:
    builder.run("", environment=wants("pear", "apple>=2"))

    assert builder.folders() == []


def test_an_unknown_package_is_answered_with_the_nearest_name(builder: Builder) -> None:
    assert "`scikit-lern` in the index; did you mean `scikit-learn`" in _why(
        builder.run("", environment=wants("scikit-lern"))
    )
    assert "did you mean `opencv-python`" in _why(builder.run("", environment=wants("cv2")))


def test_an_index_that_does_not_answer_is_named(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{port}/simple")

    why = _why(builder.run("", environment=wants("pear")))

    assert f"127.0.0.1:{port}" in why
    assert "refused" in why.lower()


def test_a_python_that_does_not_exist_is_answered_with_those_there_are(builder: Builder) -> None:
    why = _why(builder.run("", environment=wants("pear", python="3.99")))

    assert why.startswith(
        "there is no Python 3.99 on this machine, and there is none to fetch for this platform"
    )
    assert "Here are: 3." in why


def test_a_python_that_cannot_be_fetched_says_why(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, index: Index
) -> None:
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", f"http://{index.where}/nothing")
    why = _why(builder.run("", environment=wants("pear", python="3.14")))

    assert "there is no Python 3.14 on this machine, and none could be fetched: " in why
    assert "404" in why


@pytest.fixture
def small_disk(builder: Builder, tmp_path: Path) -> Iterator[Path]:
    """The machine's folder on a disk of 40 MB."""
    place = tmp_path / "machine"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a small disk")
def test_a_disk_without_room_is_seen_before_the_build(builder: Builder, small_disk: Path) -> None:
    why = _why(builder.run("", environment=wants("pear")))

    assert "there is no room for the environment: " in why
    assert "MB are left on the disk" in why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a small disk")
def test_a_disk_that_fills_up_during_the_build_says_so(
    builder: Builder, index: Index, tmp_path: Path
) -> None:
    place = tmp_path / "machine"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", place], check=True)
    index.add("melon", "1.0", files={"melon/seeds": "x" * (100 << 20)})
    try:
        why = _why(builder.run("", environment=wants("melon")))
        assert "there is no room for the environment: " in why
        assert not list(place.glob("*/environments/*/complete"))
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_without_uv_the_run_says_what_is_missing(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.near = {}
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(builder.root))

    assert _why(builder.run("", environment=wants("pear"))).startswith("`uv` (0.8 or newer) is needed")


def test_uv_comes_along_where_the_machine_has_none(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    builder.near = {}
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(builder.root))
    data = Path(UV).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    tools = {"tools": {"uv": {os.uname().machine: [digest, len(data)]}}}
    run = builder.submit(SHOW, environment=wants("pear"), beside=tools, brought={digest: data})

    assert builder.follow(run).log == b"1.0\n"
    assert builder.run(SHOW, environment=wants("apple")).log == b"1.0\n"  # it stays


def test_a_password_of_the_index_is_seen_nowhere(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(tmp_path / "packages", password="s3cr3t-w0rd")
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    address = f"http://{index.where}/simple"
    wanted = wants("pear", index={"index_url": address})
    try:
        refused = builder.submit(
            SHOW, environment=wanted, beside={"credentials": {address: "ana:wr0ng-w0rd"}}
        )
        assert builder.follow(refused).kind == "environment-failed"
        run = builder.submit(SHOW, environment=wanted, beside={"credentials": {address: "ana:s3cr3t-w0rd"}})
        heard = builder.follow(run)
        assert heard.log == b"1.0\n"
    finally:
        index.stop()
    for word in (b"s3cr3t-w0rd", b"wr0ng-w0rd"):
        assert not [path for path, data in texts_below(builder.root_path()) if word in data]
        assert not any(word in data for data in heard.streams.values())


def test_what_pip_was_told_counts_for_the_build(
    builder: Builder, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nindex-url = {index.url}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "")

    assert builder.run(SHOW, environment=wants("pear")).log == b"1.0\n"


def test_a_password_in_the_users_own_settings_is_hidden_in_the_log(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(tmp_path / "packages", password="0wn-s3cret")
    # A source that prints its surroundings, as set-up scripts do.
    folder = tmp_path / "packages"
    make_talkative(folder)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://ana:0wn-s3cret@{index.where}/simple")
    try:
        heard = builder.run("", environment=wants(f"talker @ {(folder / 'talker-1.0.tar.gz').as_uri()}"))
    finally:
        index.stop()
    assert b"0wn-s3cret" not in heard.streams["log.environment"]
    assert heard.kind == "environment-failed"
    assert "0wn-s3cret" not in heard.end["reason"]["text"]
    assert not [path for path, data in texts_below(builder.root_path()) if b"0wn-s3cret" in data]


def make_talkative(folder: Path) -> None:
    import io
    import tarfile

    with tarfile.open(folder / "talker-1.0.tar.gz", "w:gz") as file:
        backend = "import os, sys\nprint(dict(os.environ), file=sys.stderr)\nraise SystemExit(3)\n"
        project = '[build-system]\nrequires = []\nbuild-backend = "talk"\nbackend-path = ["."]\n'
        for name, text in (("talk.py", backend), ("pyproject.toml", project)):
            info = tarfile.TarInfo(f"talker-1.0/{name}")
            info.size = len(text)
            file.addfile(info, io.BytesIO(text.encode()))


def _runner_of(step: int) -> int:
    return parent_of(parent_of(step))


def _steps(run: str) -> list[int]:
    """Processes of that run that are uv."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            is_uv = name.isdigit() and Path(f"/proc/{name}/exe").resolve().name == "uv"
            if is_uv and f"DRAY_RUN_ID={run}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
    return found


def _stalled_at(builder: Builder, index: Index, phase: str) -> str:
    """A run whose build stands still in that phase."""
    begins = {"solve": "/simple/", "download": "/files/pear"}[phase]
    index.silent = lambda path: path.startswith(begins)
    run = builder.submit(SHOW, environment=wants("pear"))
    wait_until(lambda: any(path.startswith(begins) for path in index.asked))
    return run


@pytest.mark.parametrize("who", ["runner", "guard", "both", "uv"])
@pytest.mark.parametrize("phase", ["solve", "download"])
def test_a_build_that_is_killed_leaves_nothing_that_looks_finished(
    builder: Builder, index: Index, phase: str, who: str
) -> None:
    run = _stalled_at(builder, index, phase)
    (step,) = wait_until(lambda: _steps(run))
    guard = parent_of(step)
    runner = parent_of(guard)
    kill(*{"runner": [runner], "guard": [guard], "both": [runner, guard], "uv": [step]}[who])
    heard = builder.follow(run)

    assert heard.end["state"] == "failed"
    assert not list(Path(builder.root_path()).glob("*/environments/*/complete"))
    wait_until(lambda: not is_alive(step))
    index.silent = lambda path: False
    index.given_up.set()
    assert builder.run(SHOW, environment=wants("pear")).log == b"1.0\n"


@pytest.mark.parametrize("phase", ["solve", "download"])
def test_who_waits_for_a_build_that_is_killed_builds_it(builder: Builder, index: Index, phase: str) -> None:
    run = _stalled_at(builder, index, phase)
    (step,) = wait_until(lambda: _steps(run))
    waiting = builder.submit(SHOW, environment=wants("pear"))
    wait_until(
        lambda: any(p["phase"] == "waiting" for p in builder.follow(waiting, wait=False).events("progress"))
    )
    index.silent = lambda path: False
    kill(_runner_of(step))
    heard = builder.follow(waiting)
    index.given_up.set()

    assert heard.log == b"1.0\n"
    assert [data["text"] for data in heard.events("note")] == [
        f"run {run} is building the same environment; waiting for it"
    ]


def test_a_build_that_is_killed_between_its_last_file_and_its_marker_is_begun_anew(builder: Builder) -> None:
    builder.run(SHOW, environment=wants("pear"))
    folder = builder.folders()[0]
    (folder / "complete").unlink()
    stray = folder / "stray"
    stray.touch()

    assert builder.run(SHOW, environment=wants("pear")).log == b"1.0\n"
    assert not stray.exists()


def test_a_build_can_be_cancelled(builder: Builder, index: Index) -> None:
    run = _stalled_at(builder, index, "download")
    with builder.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 1.0, "by": "ana"})
    heard = builder.follow(run)

    assert heard.end["state"] == "canceled"
    assert not _steps(run)


def test_who_waits_can_be_cancelled(builder: Builder, index: Index) -> None:
    _stalled_at(builder, index, "solve")
    waiting = builder.submit(SHOW, environment=wants("pear"))
    wait_until(
        lambda: any(p["phase"] == "waiting" for p in builder.follow(waiting, wait=False).events("progress"))
    )
    with builder.connect() as connection:
        connection.call({"op": "cancel", "run": waiting, "grace": 1.0, "by": "ana"})

    assert builder.follow(waiting).end["state"] == "canceled"
    index.given_up.set()


@pytest.mark.parametrize(
    "after_s", [0.0, 0.2, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.05, 0.1, 0.3, 0.5, 1.0))]
)
def test_a_build_that_is_killed_at_any_moment_is_whole_or_begun_anew(
    builder: Builder, index: Index, after_s: float
) -> None:
    index.add("melon", "1.0", files={f"melon/seed{n}.py": f"N = {n}\n" for n in range(1000)})
    run = builder.submit("", environment=wants("melon"))
    wait_until(
        lambda: (
            b"installing the packages" in builder.follow(run, wait=False).streams.get("log.environment", b"")
        )
    )
    deadline = time.monotonic() + after_s
    while time.monotonic() < deadline:
        assert all(_is_whole(folder) for folder in builder.folders() if (folder / "complete").exists())
    with contextlib.suppress(ProcessLookupError, IndexError):
        kill(_runner_of(_steps(run)[0]))
    builder.follow(run)

    assert all(_is_whole(folder) for folder in builder.folders() if (folder / "complete").exists())
    heard = builder.run("import melon.seed999, glob; print(melon.seed999.N)", environment=wants("melon"))
    assert heard.log == b"999\n"


def _is_whole(folder: Path) -> bool:
    return len(list(folder.glob("lib/*/site-packages/melon/*.py"))) == 1001
