"""Clearing away on the machine: only what nobody needs, never what dray has not put there, and never through a link."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.core.ids import new_run_id
from dray.runner import gate
from dray.runner.cleaning import Cleaning
from dray.runner.environments import fingerprint
from dray.runner.folder import RunFolder
from dray.runner.machine import Machine
from tests.runner.machines import Here, Place, kill, people_of, wait_until

LONG_AGO = time.time() - 90 * 86400
EMPTY: dict[str, Any] = {"packages": [], "python": None, "digest": "d" * 64}


def listed(place: Place, *kinds: str) -> dict[str, dict[str, Any]]:
    """Name -> thing, of what the machine tells."""
    found = {}
    with place.connect() as connection:
        connection.ask({"op": "gc"})
        while "done" not in (answer := connection.receive()[0]):
            found.update(
                {thing["name"]: thing for thing in answer.get("things", ()) if thing["kind"] in kinds}
            )
    return found


def take(place: Place, *things: tuple[str, str]) -> tuple[list[str], dict[str, str]]:
    """(names that are gone, name -> why it stays)."""
    gone, kept = [], {}
    with place.connect() as connection:
        connection.ask({"op": "gc", "take": things})
        while "done" not in (answer := connection.receive()[0]):
            gone += [name for _, name in answer["gone"]]
            kept.update({name: why for _, name, why in answer["kept"]})
    return gone, kept


def machine_folder(place: Place) -> Path:
    (runs,) = Path(place.root_path()).glob("*/runs")
    return runs.parent


def blob_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def age(path: Path, to: float = LONG_AGO) -> Path:
    os.utime(path, (to, to), follow_symlinks=False)
    return path


def build(place: Place) -> Path:
    """An environment as uv would leave it, for machines where there is no uv."""
    place.run("", environment=EMPTY)  # fails, and leaves the lock with its name
    (lock,) = (machine_folder(place) / "environments").glob("*.lock")
    folder = lock.with_name(lock.name.removesuffix(".lock"))
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(os.path.realpath(place.runs_python))
    python = str(folder / "bin" / "python")
    facts = {"python": python, "version": None, "digest": "d", "built_s": 1, "name": folder.name}
    (folder / "complete").write_text(json.dumps({**facts, "fingerprint": fingerprint.take(str(folder))}))
    owner = lock.stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return folder


def test_a_blob_goes_when_no_run_folder_names_it_any_more(place: Place) -> None:
    text = "print('only here')"
    run = place.submit(text)
    place.follow(run)
    digest = blob_of(text)
    assert take(place, ("blob", digest)) == ([], {digest: "a run needs it"})
    assert digest not in listed(place, "blob")

    with place.connect() as connection:
        connection.call({"op": "remove", "run": run})

    assert digest in listed(place, "blob")
    assert take(place, ("blob", digest)) == ([digest], {})
    assert listed(place, "blob") == {}


def test_an_environment_of_a_live_run_stays_and_goes_after_its_end(place: Place) -> None:
    build(place)
    run = place.submit("import time; time.sleep(300)", environment=EMPTY)
    wait_until(lambda: "running" in place.follow(run, wait=False).states)
    ((name, thing),) = listed(place, "environment").items()
    assert thing["busy"]
    assert take(place, ("environment", name)) == ([], {name: "a run uses it"})

    with place.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0})
    place.follow(run)

    assert take(place, ("environment", name)) == ([name], {})
    assert list((machine_folder(place) / "environments").iterdir()) == []


def test_an_environment_that_is_being_built_stays(here: Here) -> None:
    name = build(here).name
    with (machine_folder(here) / "environments" / f"{name}.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        assert listed(here, "environment")[name]["busy"]
        assert take(here, ("environment", name)) == ([], {name: "it is being built"})


def test_who_waits_for_a_build_whose_lock_is_cleared_away_builds_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build(here)
    lock = folder.with_name(folder.name + ".lock")
    (folder / "complete").unlink()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # where uv is
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = here.submit("print('built')", environment=EMPTY)
        wait_until(lambda: b"waiting for it" in here.follow(run, wait=False).streams.get("state.jsonl", b""))
        lock.unlink()

        assert here.follow(run).log == b"built\n"


def test_an_environment_that_was_never_finished_is_told_as_such(here: Here) -> None:
    (build(here) / "complete").unlink()

    ((name, thing),) = listed(here, "environment").items()

    assert (thing["complete"], thing["busy"]) == (False, False)
    assert take(here, ("environment", name)) == ([name], {})


def test_taking_an_environment_notes_its_use(here: Here) -> None:
    age(build(here) / "complete")
    assert next(iter(listed(here, "environment").values()))["used"] == pytest.approx(LONG_AGO)

    here.run("", environment=EMPTY)

    assert next(iter(listed(here, "environment").values()))["used"] > time.time() - 60


# -- runner versions


def test_the_version_that_is_at_work_stays(place: Place) -> None:
    ((name, thing),) = listed(place, "runner").items()

    assert thing["busy"]
    assert take(place, ("runner", name)) == ([], {name: "it is in use"})


def test_another_version_goes_only_when_no_process_lives_in_it(here: Here) -> None:
    listed(here)
    (present,) = (Path(here.root_path()) / "runner").iterdir()
    other = shutil.copytree(present, present.with_name("0" * 24))
    held = os.open(other, os.O_RDONLY)  # as its processes do
    fcntl.flock(held, fcntl.LOCK_SH)
    assert take(here, ("runner", other.name)) == ([], {other.name: "it is in use"})
    os.close(held)

    assert not listed(here, "runner")[other.name]["busy"]
    assert take(here, ("runner", other.name)) == ([other.name], {})
    assert [path.name for path in present.parent.iterdir()] == [present.name]


def test_a_run_keeps_the_version_that_it_was_started_by(here: Here) -> None:
    run = here.submit("import time; time.sleep(300)")
    wait_until(lambda: "running" in here.follow(run, wait=False).states)
    (version,) = (Path(here.root_path()) / "runner").iterdir()

    file = os.open(version, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with here.connect() as connection:
            connection.call({"op": "cancel", "run": run, "grace": 0})
        here.follow(run)
        wait_until(lambda: _can_be_locked(file))
    finally:
        os.close(file)


def _can_be_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_a_version_from_before_there_were_locks_stays_while_runs_are_alive(here: Here) -> None:
    run = here.submit("import time; time.sleep(300)")
    old = Path(here.root_path()) / "runner" / ("1" * 24)
    (old / "dray_runner").mkdir(parents=True)

    ((_, why),) = take(here, ("runner", old.name))[1].items()
    with here.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0})
    here.follow(run)

    assert "so old" in why
    assert take(here, ("runner", old.name)) == ([old.name], {})


def test_a_version_that_is_cleared_away_while_a_channel_starts_is_sent_again(here: Here) -> None:
    listed(here)
    for _ in range(15):
        connections = [here.connect() for _ in range(2)]
        for version in (Path(here.root_path()) / "runner").glob("[!.]*"):
            _clear_version(version)
        for connection in connections:
            with connection:
                assert connection.call({"op": "list"}) == {"runs": [], "never": []}


def _clear_version(version: Path) -> None:
    """As `gc` does it: only when nobody lives there."""
    file = os.open(version, os.O_RDONLY)
    try:
        if _can_be_locked(file) and not version.name.endswith(".new"):
            version.rename(version.with_name(f".trash-{version.name}-{os.urandom(4).hex()}"))
    finally:
        os.close(file)


# -- the gate


def test_nothing_goes_while_a_submit_is_in_the_gate(here: Here) -> None:
    listed(here)
    inside = gate.enter(str(machine_folder(here)))
    began = time.monotonic()
    try:
        gone, kept = take(here, ("blob", "a" * 64), ("environment", "b" * 24 + "-x-py3"))
    finally:
        gate.leave(inside)

    assert (gone, set(kept.values())) == ([], {"runs are just being submitted"})
    assert time.monotonic() - began < 20


def test_a_submit_waits_in_the_gate_until_it_is_claimed_and_no_longer(here: Here) -> None:
    run = here.submit("import time; time.sleep(300)")

    held = gate.enter_alone(str(machine_folder(here)), 5.0)

    assert held is not None
    gate.leave(held)
    with here.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0})


def test_a_channel_that_dies_while_it_brings_blobs_leaves_the_gate(here: Here) -> None:
    listed(here)
    spec = {"id": new_run_id(), "token": "t", "command": ["x"], "script": True}
    manifest = {"v": 1, "files": [["x", "a" * 64, 3, 0]], "links": [], "dirs": []}
    with here.connect() as connection:
        connection.ask({"op": "submit", "spec": spec, "manifest": manifest, "near": {}, "secrets": {}})
        assert connection.receive()[0] == {"lacks": ["a" * 64], "partial": {}}
        assert gate.enter_alone(str(machine_folder(here)), 0.0) is None

    held = gate.enter_alone(str(machine_folder(here)), 10.0)
    assert held is not None
    gate.leave(held)


# -- what killed processes leave


@pytest.mark.parametrize(
    ("place_of_it", "at_any_age"),
    [("runs/.trash-abcdefghjk-01234567", True), ("runs/.new-abcdefghjk-01234567", False),
     ("environments/.trash-" + "a" * 24 + "-x86_64-py3.11.7-01234567", True),
     ("../runner/.trash-" + "a" * 24 + "-01234567", True), ("../runner/" + "a" * 24 + ".01234567.new", False)],
)  # fmt: skip
def test_what_a_killed_process_left_goes(here: Here, place_of_it: str, at_any_age: bool) -> None:
    listed(here)
    folder = Path(os.path.normpath(machine_folder(here) / place_of_it))
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("x" * 5000)
    name = os.path.relpath(folder, here.root_path())
    assert (name in listed(here, "leftover")) == at_any_age

    age(folder)
    assert listed(here, "leftover")[name]["bytes"] >= 5000
    assert take(here, ("leftover", name)) == ([name], {})

    assert not folder.exists()
    assert listed(here, "leftover") == {}


def test_trash_whose_folders_are_shut_goes_too(here: Here) -> None:
    listed(here)
    folder = machine_folder(here) / "runs" / ".trash-abcdefghjk-01234567"
    (folder / "shut" / "in").mkdir(parents=True)
    (folder / "shut").chmod(0)

    take(here, ("leftover", os.path.relpath(folder, here.root_path())))

    assert not folder.exists()


def test_tombstones_are_told_when_they_are_old(here: Here) -> None:
    young, old = new_run_id(), new_run_id()
    with here.connect() as connection:
        for run in (young, old):
            connection.call({"op": "never", "run": run, "spec": {}})
    age(machine_folder(here) / "runs" / old / "never.json")

    assert list(listed(here, "tombstone")) == [old]
    assert take(here, ("tombstone", old)) == ([old], {})


def test_a_run_is_never_taken_for_a_tombstone(here: Here) -> None:
    run = here.submit("")
    here.follow(run)

    assert take(here, ("tombstone", run)) == ([], {run: "it is no tombstone"})


# -- what is not dray's


def test_foreign_files_and_links_are_passed_over(here: Here, tmp_path: Path) -> None:
    here.run("", environment=EMPTY)
    outside = tmp_path / "outside"
    (outside / "precious").mkdir(parents=True)
    (outside / "precious" / "file").write_text("mine")
    top = machine_folder(here)
    blobs = top / "blobs"
    strange = [
        top / "environments" / "my-own-env", top / "runs" / ".mine", top / "runs" / "UPPER", blobs / "zz",
        top.parent / "runner" / "notes",
    ]  # fmt: skip
    for folder in strange:
        folder.mkdir(parents=True)
        (folder / "file").write_text("mine")
        age(folder)
    (blobs / "aa").mkdir(exist_ok=True)
    files = [blobs / "aa" / "README", blobs / "notes.txt", top / "runs" / "notes"]
    for file in files:
        age(Path(shutil.copy(outside / "precious" / "file", file)))
    links = [
        blobs / "aa" / ("0" * 62), blobs / "bb", top / "environments" / ("a" * 24 + "-x86_64-py3.11"),
        top / "runs" / ".trash-abcdefghjk-01234567", top.parent / "runner" / ("2" * 24),
        blobs / "aa" / ("1" * 62 + ".01234567.new"),
    ]  # fmt: skip
    for link in links:
        link.unlink(missing_ok=True)
        link.symlink_to(outside / "precious")
        age(link)

    kinds = ("blob", "environment", "runner", "leftover", "tombstone")
    everything = [(thing["kind"], name) for name, thing in listed(here, *kinds).items()]
    take(here, *everything, ("blob", "aa" + "0" * 62), ("environment", links[2].name), ("runner", "2" * 24))

    assert all((folder / "file").read_text() == "mine" for folder in strange)
    assert all(file.read_text() == "mine" for file in files)
    assert all(link.is_symlink() for link in links)
    assert (outside / "precious" / "file").read_text() == "mine"


NAMES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["..", ".", "../../outside", "/etc", "a" * 64, "../" + "a" * 61, ".trash-x-01234567"]),
    st.from_regex(r"(\.\./){0,4}(outside|runs|blobs|runner|environments)(/[a-z.]{1,9}){0,2}", fullmatch=True),
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "file").write_text("mine")
    return Machine(str(tmp_path / "root"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    kind=st.sampled_from(["blob", "environment", "runner", "leftover", "tombstone", "run", "x"]), name=NAMES
)
def test_no_name_from_outside_leads_out_of_dray_s_folders(
    machine: Machine, tmp_path: Path, kind: str, name: str
) -> None:
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for _ in Cleaning(machine, str(tmp_path / "here")).take([(kind, name.replace("\0", ""))]):
        continue

    after = sorted(str(path) for path in tmp_path.rglob("*") if path.name != gate.NAME)
    assert [path for path in before if not path.endswith("/" + gate.NAME)] == after


def test_a_run_whose_manifest_a_script_has_forged_harms_no_other(here: Here) -> None:
    forged = here.submit("import os; open('../manifest.json', 'w').write('[')")
    other = here.submit("print('other')")
    here.follow(forged)
    here.follow(other)

    assert blob_of("print('other')") not in listed(here, "blob")


def test_what_a_run_needs_is_told_for_others(here: Here) -> None:
    run = here.submit("print('mine')", files={"more.txt": "words"})
    here.follow(run)
    with here.connect() as connection:
        connection.ask({"op": "gc", "codes": [run, "zzzzzzzzzz"]})
        answer, body = connection.receive()
        last, _ = connection.receive()

    assert answer == {"code": run}
    assert {body[at : at + 32].hex() for at in range(0, len(body), 32)} == {
        blob_of("print('mine')"),
        blob_of("words"),
    }
    assert last == {"done": True}


def test_a_runner_that_is_killed_frees_what_it_used(here: Here) -> None:
    build(here)
    run = here.submit("import time; time.sleep(300)", environment=EMPTY)
    script = wait_until(lambda: _script_of(here, run))
    kill(*people_of(script))

    ((name, _),) = listed(here, "environment").items()

    assert take(here, ("environment", name)) == ([name], {})


def _script_of(here: Here, run: str) -> int:
    for line in here.follow(run, wait=False).streams.get("state.jsonl", b"").splitlines():
        data = json.loads(line)["data"]
        if data.get("state") == "running":
            return int(data["pid"])
    return 0


def test_clearing_killed_at_any_moment_is_taken_up_by_the_next(tmp_path: Path) -> None:
    machine = Machine(str(tmp_path / "root"))
    for number in range(6):
        place = Path(machine.environments) / f"{number:024x}-x86_64-py3.11"
        for inner in range(40):
            (place / f"lib{inner}").mkdir(parents=True)
            (place / f"lib{inner}" / "file").write_text("x")
    code = (
        "import sys; from dray.runner.cleaning import Cleaning; from dray.runner.machine import Machine\n"
        "m = Machine(sys.argv[1]); c = Cleaning(m, '/nowhere'); things = [t for a in c.listing([]) for t in a.get('things', [])]\n"
        "print('on', flush=True)\n"
        "for _ in c.take([(t['kind'], t['name']) for t in things if t['name']]): pass\n"
    )
    for moment in (0.0, 0.001, 0.003, 0.006, 0.01):
        words = [sys.executable, "-c", code, machine.root]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            process.stdout.read(3)
            time.sleep(moment)  # the moment is the test
            process.kill()

    subprocess.run([sys.executable, "-c", code, machine.root], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", code, machine.root], check=True, stdout=subprocess.DEVNULL)

    assert os.listdir(machine.environments) == []


def test_a_folder_of_a_run_is_no_leftover_whatever_it_is_called(tmp_path: Path) -> None:
    machine = Machine(str(tmp_path / "root"))
    folder = RunFolder(machine, new_run_id())
    os.close(folder.claim({"id": folder.id}, {"files": [], "links": [], "dirs": []}))

    for answer in Cleaning(machine, "/nowhere").take([("leftover", f"{machine.id}/runs/{folder.id}")]):
        assert answer["kept"]

    assert folder.run_json() is not None
