"""An environment is built once, found again in milliseconds, frozen, mended, and never changed by a run."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dray.core.spec import Environment
from tests.runner.environments.world import Builder, Index, marker, snapshot_of, wants
from tests.runner.machines import Followed
from tests.runner.test_alone import PYTHONS

SHOW = "import apple, sys; print(apple.VERSION)"


def test_an_environment_is_built_once_and_then_asks_nobody(builder: Builder, index: Index) -> None:
    first = builder.run(SHOW, environment=wants("pear"))
    asked = len(index.asked)
    second = builder.run(SHOW, environment=wants("pear"))

    assert (first.log, second.log) == (b"1.0\n", b"1.0\n")
    assert len(index.asked) == asked
    assert first.events("environment")[0]["built_s"] > 0
    assert second.events("environment")[0]["built_s"] is None
    assert "log.environment" not in second.streams
    assert len(builder.folders()) == 1


def test_finding_an_environment_takes_less_than_fifty_milliseconds(builder: Builder) -> None:
    builder.run(SHOW, environment=wants("pear"))

    def preparing() -> float:
        events = [
            json.loads(line)
            for line in builder.run(SHOW, environment=wants("pear")).streams["state.jsonl"].splitlines()
        ]
        times = {e["data"].get("state") or e["type"]: e["t"] for e in events}
        return float(times["environment"] - times["preparing"])

    assert min(preparing() for _ in range(5)) < 0.05


def test_a_build_is_told_while_it_goes_on(builder: Builder) -> None:
    heard = builder.run(SHOW, environment=wants("pear"))

    phases = [data["phase"] for data in heard.events("progress")]
    assert phases[0] == "solving"
    assert {"installing", "checking"} <= set(phases)
    done = [data for data in heard.events("progress") if data["phase"] == "installing"][-1]
    assert (done["done"], done["total"], done["unit"]) == (2, 2, "packages")
    assert b"+ pear==1.0" in heard.streams["log.environment"]


def test_what_was_resolved_goes_with_every_run_and_names_its_digest(builder: Builder) -> None:
    runs = [builder.run(SHOW, environment=wants("pear")) for _ in range(2)]

    for heard in runs:
        lock, facts = heard.streams["lock.environment"], heard.events("environment")[0]
        assert b'name = "apple"' in lock
        assert lock.startswith(b"# dray: python 3.")
        assert facts["lock"] == hashlib.sha256(lock).hexdigest()
        assert facts["lock_kind"] == "pylock"


def test_the_same_spec_gets_the_same_packages_until_it_is_resolved_again(
    builder: Builder, index: Index
) -> None:
    builder.run(SHOW, environment=wants("pear"))
    index.add("apple", "2.0")
    shutil.rmtree(builder.folders()[0])

    assert builder.run(SHOW, environment=wants("pear")).log == b"1.0\n"
    assert builder.run(SHOW, environment=wants("pear"), refresh=True).log == b"2.0\n"
    assert builder.run(SHOW, environment=wants("pear")).log == b"2.0\n"


def test_a_run_keeps_its_environment_while_another_has_it_resolved_again(
    builder: Builder, index: Index, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = f"import os, time, sys\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{SHOW}"
    early = builder.submit(code, environment=wants("pear"))
    builder.run(SHOW, environment=wants("pear"))
    index.add("apple", "2.0")

    assert builder.run(SHOW, environment=wants("pear"), refresh=True).log == b"2.0\n"
    go.touch()

    assert builder.follow(early).log == b"1.0\n"
    assert len(builder.folders()) == 2


def test_resolving_again_to_the_same_builds_nothing(builder: Builder) -> None:
    builder.run(SHOW, environment=wants("pear"))
    heard = builder.run(SHOW, environment=wants("pear"), refresh=True)

    assert heard.events("environment")[0]["built_s"] is None
    assert "resolved again: the same packages as before" in [data["text"] for data in heard.events("note")]
    assert len(builder.folders()) == 1


@pytest.mark.parametrize("damage", ["a module", "a package", "a half file", "the interpreter", "everything"])
def test_a_damaged_environment_is_noticed_and_built_again(builder: Builder, damage: str) -> None:
    builder.run(SHOW, environment=wants("pear"))
    folder = builder.folders()[0]
    package = next(folder.glob("lib/*/site-packages/apple"))
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    if damage == "a module":
        (package / "__init__.py").unlink()
    elif damage == "a package":
        shutil.rmtree(package)
    elif damage == "a half file":
        beside = package / "x"
        beside.write_text((package / "__init__.py").read_text()[:-10])
        beside.replace(package / "__init__.py")  # not through the link into uv's cache
    elif damage == "the interpreter":
        (folder / "bin" / "python").unlink()
    else:
        shutil.rmtree(folder)

    heard = builder.run(SHOW, environment=wants("pear"))

    assert heard.log == b"1.0\n"
    assert heard.events("environment")[0]["built_s"] > 0


def test_a_run_installs_into_a_layer_of_its_own(builder: Builder, index: Index) -> None:
    index.add("apple", "2.0")
    index.add("plum", "1.0")
    code = f"""
import subprocess, sys
def install(*words):
    subprocess.run([*words, "--index-url", {index.url!r}], check=True, stdout=2)
install(sys.executable, "-m", "pip", "install", "apple==2.0")
install("pip", "install", "plum")
print(subprocess.check_output([sys.executable, "-c", "import apple, plum, pear; print(apple.VERSION)"], text=True))
"""
    wanted = wants("pear", "apple==1.0")
    builder.run(SHOW, environment=wanted)
    before = snapshot_of(builder.folders()[0])
    heard = builder.run(code, environment=wanted)

    assert heard.log.endswith(b"2.0\n\n"), heard.log
    assert snapshot_of(builder.folders()[0]) == before
    assert builder.run(SHOW, environment=wanted).log == b"1.0\n"
    assert builder.run("import plum", environment=wanted).kind == "exit-code"


def test_uv_too_installs_into_the_layer(builder: Builder, index: Index) -> None:
    index.add("plum", "1.0")
    code = f"import subprocess; subprocess.run([{builder.near['uv']!r}, 'pip', 'install', '-q', 'plum'], check=True); import plum; print(plum.VERSION)"

    assert builder.run(code, environment=wants("pear")).log == b"1.0\n"
    assert not list(builder.folders()[0].glob("lib/*/site-packages/plum"))


def test_programs_of_the_environment_run_in_the_layer(builder: Builder) -> None:
    code = "import subprocess, sys; print(subprocess.check_output(['eat-apple'], text=True).strip() == sys.executable)"

    assert builder.run(code, environment=wants("pear")).log == b"True\n"


def test_nothing_is_compiled_into_the_environment(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    builder.run(SHOW, environment=wants("pear"))
    run = builder.submit("import sys; print(sys.pycache_prefix)", environment=wants("pear"))
    prefix = Path(builder.follow(run).log.decode().strip())

    assert not list(builder.folders()[0].glob("lib/*/site-packages/apple/__pycache__"))
    assert list(prefix.rglob("apple/__init__*.pyc"))
    with builder.connect() as connection:
        connection.call({"op": "remove", "run": run})
    assert not list(prefix.rglob(f"{run}/**"))


def test_a_folder_of_the_code_is_used_where_it_lies(builder: Builder) -> None:
    files = {"libs/mine/mine.py": "A = 'flat'", "other/src/deep/__init__.py": "A = 'src'"}
    wanted = wants("pear", editable=("libs/mine", "other", "../../../etc"))
    heard = builder.run(
        "import apple, mine, deep; print(mine.A, deep.A, mine.__file__)", environment=wanted, files=files
    )

    assert heard.log.startswith(b"flat src ")
    assert b"/code/libs/mine/mine.py" in heard.log


def test_a_lock_is_installed_as_it_is(builder: Builder, index: Index) -> None:
    lock = builder.run(SHOW, environment=wants("pear")).streams["lock.environment"].decode()
    index.add("apple", "2.0")
    index.asked.clear()
    again = builder.run(SHOW, environment=wants("pear", lock=lock, lock_kind="pylock"))
    pinned = builder.run(SHOW, environment=wants(lock="apple==2.0\n", lock_kind="requirements"))

    assert (again.log, pinned.log) == (b"1.0\n", b"2.0\n")
    assert again.streams["lock.environment"].decode() == lock


def test_wheels_that_come_along_need_no_index(builder: Builder, index: Index, tmp_path: Path) -> None:
    wheels = [path.read_bytes() for path in (tmp_path / "packages").glob("*.whl")]
    names = [path.name for path in (tmp_path / "packages").glob("*.whl")]
    brought = {hashlib.sha256(data).hexdigest(): data for data in wheels}
    rows = [
        [name, hashlib.sha256(data).hexdigest(), len(data)] for name, data in zip(names, wheels, strict=True)
    ]
    run = builder.submit(SHOW, environment=wants("pear"), beside={"wheels": rows}, brought=brought)

    assert builder.follow(run).log == b"1.0\n"
    assert not index.asked
    assert not (builder.folder(run) / "wheels").exists()
    shutil.rmtree(builder.folders()[0])
    assert builder.run(SHOW, environment=wants("pear")).log == b"1.0\n"  # from what was frozen, by the index


def test_preparing_builds_and_starts_nothing(builder: Builder) -> None:
    heard = builder.run("print('never')", environment=wants("pear"), prepare=True)

    assert (heard.end["state"], heard.kind) == ("completed", "prepared")
    assert "log.script" not in heard.streams
    assert marker(builder.folders()[0])["packages"] == 2


def test_an_environment_of_nothing_is_built_without_an_index(builder: Builder, index: Index) -> None:
    heard = builder.run("import sys; print(sys.prefix)", environment=wants())

    assert b"overlay" in heard.log
    assert not index.asked


_NEW_ENOUGH = sorted((v for v in PYTHONS if int(v.split(".")[1]) >= 8), key=lambda v: int(v.split(".")[1]))


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(v, marks=() if v in (_NEW_ENOUGH[0], _NEW_ENOUGH[-1]) else pytest.mark.slow)
        for v in _NEW_ENOUGH
    ],
)
def test_every_python_of_the_machine_is_found_by_its_version(builder: Builder, version: str) -> None:
    heard = builder.run(
        "import sys, apple; print(sys.version[:4].rstrip('.'), apple.VERSION)",
        environment=wants("pear", python=version),
    )

    assert heard.log.decode() == f"{version} 1.0\n", heard.end
    assert heard.events("environment")[0]["version"].startswith(version)


def test_twenty_runs_at_once_with_one_new_spec_build_once(builder: Builder, index: Index) -> None:
    runs = [builder.submit(SHOW, environment=wants("pear")) for _ in range(20)]
    heard = [builder.follow(run) for run in runs]

    assert [h.log for h in heard] == [b"1.0\n"] * 20
    built = [h for h in heard if h.events("environment")[0]["built_s"]]
    assert len(built) == 1
    assert len(index.files_asked()) <= 4  # each of two wheels, and perhaps its metadata
    waited = [h for h in heard if any(p["phase"] == "waiting" for p in h.events("progress"))]
    assert waited
    assert all(b"resolving the packages" in h.streams["log.environment"] for h in waited)
    assert len(builder.folders()) == 1


def test_an_environments_name_says_digest_platform_and_python(builder: Builder) -> None:
    wanted = wants("pear")
    builder.run(SHOW, environment=wanted)

    name = builder.folders()[0].name
    assert name.startswith(Environment(packages=("pear",)).digest[:24])
    assert name.endswith(f"-py{'.'.join(map(str, sys.version_info[:3]))}")


def test_the_client_is_asked_for_nothing_when_it_is_built(builder: Builder) -> None:
    builder.run(SHOW, environment=wants("pear"))
    builder.near = {}
    began = time.monotonic()

    heard = builder.run(SHOW, environment=wants("pear"))

    assert heard.kind == "done"
    assert time.monotonic() - began < 5


def test_one_script_gives_the_same_metrics_in_a_built_and_in_an_existing_environment(
    builder: Builder,
) -> None:
    code = (
        "import dray, apple\nfor step in range(3): dray.log(loss=1 / (step + 1), apple=float(apple.VERSION))"
    )
    built = builder.run(code, environment=wants("pear"))
    existing = builder.run(code, python=str(builder.folders()[0] / "bin" / "python"))

    assert _metrics(built) == _metrics(existing) != []


def _metrics(heard: Followed) -> list[object]:
    assert heard.kind == "done", heard.end
    (events,) = (data for name, data in heard.streams.items() if name.startswith("events."))
    return [event["data"] for event in map(json.loads, events.splitlines()) if event["type"] == "metrics"]
