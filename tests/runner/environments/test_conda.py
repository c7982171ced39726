"""Packages of conda channels, with nothing of conda on the machine, and with a program of the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dray.runner.environments.conda import RATTLER
from tests.runner.environments.channel import VERSION, Channel
from tests.runner.environments.world import UV, Builder, Index, marker, wants

SHOW = "import stone; print(stone.VERSION)"


@pytest.fixture(scope="session")
def rattler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What dray would install once for each user: here once for all tests."""
    folder = tmp_path_factory.mktemp("tools") / RATTLER.replace("==", "-")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    words = [UV, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), RATTLER]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        required = "index" in os.environ.get("DRAY_REQUIRE", "").split(",")
        (pytest.fail if required else pytest.skip)(f"no package index: {done.stderr.strip()}")
    (folder / "complete").write_text('{"tool":"by hand"}\n')
    return folder


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    made = Channel(tmp_path / "a channel")
    made.add_python()
    made.add("stone", "1.0", {"site-packages/stone.py": "VERSION = '1.0'\n"}, depends=["python"], noarch=True)
    made.add("rock", "3.1", {"share/rock.txt": "hard\n", "bin/rock": "#!/bin/sh\necho rolling\n"})
    return made


@pytest.fixture
def bare(builder: Builder, rattler: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """A machine without conda, where dray has installed its tool."""
    monkeypatch.setenv("HOME", str(builder.root))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CONDA_EXE", "MAMBA_EXE"):
        monkeypatch.delenv(name, raising=False)
    with builder.connect() as connection:
        machine = connection.call({"op": "probe"})["machine"]["machine"]
    tools = Path(builder.root_path()) / machine / "tools"
    tools.mkdir(parents=True)
    (tools / rattler.name).symlink_to(rattler)
    return builder


def test_packages_that_are_not_pythons_are_installed_without_any_conda(
    bare: Builder, channel: Channel
) -> None:
    code = "import stone, subprocess, sys; print(stone.VERSION, subprocess.check_output(['rock'], text=True), open(sys.prefix + '/share/rock.txt').read())"
    heard = bare.run(code, environment=wants(conda=("rock", "stone"), channels=(channel.url,)))

    assert heard.log == b"1.0 rolling\n hard\n\n", heard.streams
    facts = heard.events("environment")[0]
    assert facts["version"] == VERSION
    lock = heard.streams["lock.environment"].decode()
    assert f"# channel {channel.url}" in lock
    assert f"# conda {channel.url}/noarch/stone-1.0-0.tar.bz2#" in lock
    assert marker(bare.folders()[0])["kind"] == "conda"
    assert any(data["phase"] == "solving" for data in heard.events("progress"))


def test_what_pip_is_asked_for_comes_on_top(bare: Builder, channel: Channel, index: Index) -> None:
    code = "import stone, pear, apple; print(stone.VERSION, apple.VERSION)"
    wanted = wants("pear", conda=("stone",), channels=(channel.url,))
    first = bare.run(code, environment=wanted)

    assert first.log == b"1.0 1.0\n", (first.end, first.streams)
    assert b"\napple==1.0\npear==1.0\n" in first.streams["lock.environment"]
    index.add("apple", "2.0")
    shutil.rmtree(bare.folders()[0])
    assert bare.run(code, environment=wanted).log == b"1.0 1.0\n"


def test_the_first_channel_wins_even_with_an_older_version(
    bare: Builder, channel: Channel, tmp_path: Path
) -> None:
    other = Channel(tmp_path / "other")
    other.add(
        "stone", "9.0", {"site-packages/stone.py": "VERSION = '9.0'\n"}, depends=["python"], noarch=True
    )

    assert (
        bare.run(SHOW, environment=wants(conda=("stone",), channels=(channel.url, other.url))).log == b"1.0\n"
    )
    assert (
        bare.run(SHOW, environment=wants(conda=("stone",), channels=(other.url, channel.url))).log == b"9.0\n"
    )


def test_a_conda_environment_is_frozen_until_it_is_resolved_again(bare: Builder, channel: Channel) -> None:
    wanted = wants(conda=("stone",), channels=(channel.url,))
    first = bare.run(SHOW, environment=wanted)
    channel.add(
        "stone", "2.0", {"site-packages/stone.py": "VERSION = '2.0'\n"}, depends=["python"], noarch=True
    )

    assert bare.run(SHOW, environment=wanted).log == b"1.0\n"
    shutil.rmtree(bare.folders()[0])
    again = bare.run(SHOW, environment=wanted)
    assert again.log == b"1.0\n"
    assert again.streams["lock.environment"] == first.streams["lock.environment"]
    anew = bare.run(SHOW, environment=wanted, refresh=True)
    assert anew.log == b"2.0\n", (anew.end, anew.streams)


def test_a_lock_with_conda_packages_builds_the_same_elsewhere(bare: Builder, channel: Channel) -> None:
    lock = bare.run(SHOW, environment=wants(conda=("stone",), channels=(channel.url,))).streams[
        "lock.environment"
    ]
    channel.add(
        "stone", "2.0", {"site-packages/stone.py": "VERSION = '2.0'\n"}, depends=["python"], noarch=True
    )
    heard = bare.run(SHOW, environment=wants(lock=lock.decode(), lock_kind="requirements"))

    assert heard.log == b"1.0\n", heard.streams


def test_pip_install_in_a_run_leaves_a_conda_environment_alone(
    bare: Builder, channel: Channel, index: Index
) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--index-url', {index.url!r}, 'apple'], check=True); import apple; print(apple.VERSION)"
    heard = bare.run(code, environment=wants(conda=("stone",), channels=(channel.url,)))

    assert heard.log.endswith(b"1.0\n"), heard.log
    assert not list(bare.folders()[0].glob("lib/*/site-packages/apple"))


def test_what_activation_scripts_set_is_set(bare: Builder, channel: Channel) -> None:
    script = 'export ROCK_DATA="$CONDA_PREFIX/share/rock"\n'
    channel.add("granite", "1.0", {"etc/conda/activate.d/granite.sh": script})
    heard = bare.run(
        "import os; print(os.environ['ROCK_DATA'])",
        environment=wants(conda=("granite",), channels=(channel.url,)),
    )

    assert heard.log.decode().strip() == f"{bare.folders()[0]}/share/rock"


@pytest.mark.parametrize(
    ("spec", "says"),
    [("marble", "marble"), ("stone >=7", "stone"), ("stone 1.0.*|rock", "rock")],
)
def test_what_no_channel_has_is_told_in_the_solvers_words(
    bare: Builder, channel: Channel, spec: str, says: str
) -> None:
    heard = bare.run(SHOW, environment=wants(conda=(spec,), channels=(channel.url,)))

    assert heard.kind == "environment-failed"
    assert says in heard.end["reason"]["text"]
    assert "Traceback" not in heard.end["reason"]["text"]


@pytest.mark.parametrize("where", ["http://127.0.0.1:9/channel", "file:///nowhere/at-all"])
def test_a_channel_that_does_not_answer_is_named(bare: Builder, where: str) -> None:
    heard = bare.run(SHOW, environment=wants(conda=("stone",), channels=(where,)))

    assert heard.kind == "environment-failed"
    assert where.split("://")[1] in heard.end["reason"]["text"]


def test_a_conda_of_the_users_is_used_where_there_is_one(
    bare: Builder, channel: Channel, rattler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `micromamba` with the words of the real one, and rattler behind them."""
    programs = tmp_path / "programs"
    programs.mkdir()
    fake = programs / "micromamba"
    fake.write_text(MICROMAMBA.format(python=rattler / "bin" / "python"))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    wanted = wants(conda=("stone",), channels=(channel.url,))
    first = bare.run(SHOW, environment=wanted)
    channel.add(
        "stone", "2.0", {"site-packages/stone.py": "VERSION = '2.0'\n"}, depends=["python"], noarch=True
    )
    shutil.rmtree(bare.folders()[0])
    again = bare.run(SHOW, environment=wanted)

    assert (first.log, again.log) == (b"1.0\n", b"1.0\n"), first.streams
    assert b"installing conda packages by micromamba" in first.streams["log.environment"]
    asked = (tmp_path / "programs" / "asked").read_text().splitlines()
    assert f"--override-channels --strict-channel-priority --channel {channel.url} stone python" in asked[0]
    assert "--file" in asked[1]


MICROMAMBA = """#!{python}
import asyncio, os, sys
import rattler
words = sys.argv[1:]
with open(os.path.dirname(os.path.abspath(sys.argv[0])) + "/asked", "a") as file:
    file.write(" ".join(words) + "\\n")
assert words.pop(0) == "create"
channels, specs, prefix, explicit = [], [], None, []
while words:
    word = words.pop(0)
    if word == "--prefix": prefix = words.pop(0)
    elif word == "--channel": channels.append(words.pop(0))
    elif word == "--file": explicit = [l.strip() for l in open(words.pop(0)) if "://" in l]
    elif not word.startswith("--"): specs.append(word)
if explicit:
    channels = sorted({{l.rsplit("/", 2)[0] for l in explicit}})
    specs = ["%s ==%s %s" % tuple(l.rsplit("/", 1)[1][:-8].rsplit("-", 2)) for l in explicit]
async def main():
    records = await rattler.solve([rattler.Channel(c) for c in channels], specs, platforms=[str(rattler.Subdir.current()) if hasattr(rattler.Subdir, "current") else "linux-64", "noarch"], virtual_packages=rattler.VirtualPackage.detect())
    await rattler.install(records, prefix, show_progress=False)
asyncio.run(main())
os._exit(0)
"""
