"""Clearing away: which runs go, what is spared, what a budget takes; and that others at work lose nothing by it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray import Workspace
from dray.core.ids import new_run_id
from dray.core.spec import RunSpec, canonical_json
from dray.core.states import RunState
from dray.runner import gate
from dray.store import HomeReadOnly
from tests.workspace.worlds import World, wait_until

DAY = 86400.0
LONG_AGO = time.time() - 90 * DAY
HAMMER = Path(__file__).with_name("hammer.py")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "home") as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')")
    return folder


def ended(
    workspace: Workspace, days_ago: float, experiment: str = "e", *, outputs: int = 0, **spec: Any
) -> str:
    """A run of the history that ended so long ago."""
    run_id, then = new_run_id(), time.time() - days_ago * DAY
    made = RunSpec(id=run_id, experiment=experiment, compute="local", command=("x",), created=then, **spec)
    files = [[f"outputs/{number}", 5] for number in range(outputs)]
    end = {"state": "completed", "reason": {"kind": "done", "text": ""}, "ended": then}
    workspace.store.create_run(made)
    workspace.store.end(
        run_id, 1, {**end, "outputs": {"files": files, "count": outputs, "bytes": 5 * outputs}}, True
    )
    return run_id


def left(workspace: Workspace) -> set[str]:
    return {record.id for record in workspace.store.runs()}


def blobs(workspace: Workspace) -> set[str]:
    found = (workspace.home / "blobs").glob("[0-9a-f][0-9a-f]/*")
    return {path.parent.name + path.name for path in found}


def put(workspace: Workspace, text: bytes, written: float = LONG_AGO) -> str:
    """A blob in the store."""
    digest = hashlib.sha256(text).hexdigest()
    path = workspace.home / "blobs" / digest[:2] / digest[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    os.utime(path, (written, written))
    return digest


# -- which runs go


def test_without_a_limit_no_run_goes(workspace: Workspace) -> None:
    runs = {ended(workspace, days) for days in (1, 1000)}

    assert workspace.gc().goes == []
    assert left(workspace) == runs


def test_the_newest_of_each_experiment_stay(workspace: Workspace) -> None:
    noisy = [ended(workspace, days, "noisy") for days in (4, 3, 2, 1)]
    quiet = [ended(workspace, days, "quiet") for days in (40, 30, 20)]

    workspace.gc(keep=2)

    assert left(workspace) == {*noisy[-2:], *quiet[-2:]}


def test_what_is_older_goes_unless_it_is_among_those_to_keep(workspace: Workspace) -> None:
    runs = [ended(workspace, days) for days in (50, 40, 30, 1)]

    done = workspace.gc(older_than="20d", keep=2)

    assert left(workspace) == {*runs[2:]}
    assert [thing.why for thing in done.goes] == ["older than 20d"] * 2


def test_a_run_that_is_tagged_keep_stays_unless_the_tag_says_false(workspace: Workspace) -> None:
    at_submit = ended(workspace, 9, tags={"keep": "yes"})
    afterwards, empty, false = (ended(workspace, 9) for _ in range(3))
    workspace.store.edit(afterwards, tags={"keep": "for the paper"})
    workspace.store.edit(empty, tags={"keep": ""})
    workspace.store.edit(false, tags={"keep": "False"})

    done = workspace.gc(keep=0)

    assert left(workspace) == {at_submit, afterwards, empty}
    assert {*done.spared["tagged `keep`"]} == {at_submit, afterwards, empty}


def test_outputs_count_as_fetched_when_all_of_them_are(workspace: Workspace) -> None:
    none, some, every, changed = (ended(workspace, 9, outputs=3) for _ in range(4))
    for run, sizes in ((some, (5, 5)), (every, (5, 5, 5)), (changed, (5, 5, 4))):
        for number, size in enumerate(sizes):
            workspace.store.mark_fetched(run, f"outputs/{number}", size, "0" * 64)

    done = workspace.gc(keep=0)

    assert left(workspace) == {none, some, changed}
    assert {*done.spared["with outputs that were not fetched"]} == {none, some, changed}
    workspace.gc(keep=0, unfetched=True)
    assert left(workspace) == set()


def test_what_was_fetched_while_the_script_was_writing_does_not_count(
    workspace: Workspace, project: Path, tmp_path: Path
) -> None:
    (project / "train.py").write_text(
        "import os, time\nopen('outputs/m', 'w').write('a')\n"
        "while not os.path.exists('outputs/go'): time.sleep(0.01)\nopen('outputs/m', 'w').write('b')\nos.unlink('outputs/go')\n"
    )
    run = workspace.submit("train.py", cwd=str(project))
    (code,) = wait_until(lambda: [*workspace.home.glob("machine/*/runs/*/code/outputs")])
    wait_until((code / "m").exists)
    assert run.outputs.fetch("m", tmp_path).read_text() == "a"
    (code / "go").touch()
    run.wait()

    workspace.gc(keep=0)

    assert left(workspace) == {run.id}


def test_a_run_that_came_in_from_elsewhere_is_forgotten_here_alone(workspace: Workspace) -> None:
    run = ended(workspace, 9, outputs=1)
    workspace.store.mark_imported(run, time.time())

    workspace.gc(keep=0)

    assert left(workspace) == set()


def test_a_run_that_is_tagged_after_the_plan_was_shown_stays(workspace: Workspace) -> None:
    run, other = ended(workspace, 9), ended(workspace, 9)

    def agree(plan: Any) -> bool:
        workspace.store.edit(run, tags={"keep": "yes"})
        return True

    done = workspace.gc(keep=0, agree=agree)

    assert left(workspace) == {run}
    assert done.kept == {"tagged `keep`": [f"run {run}"]}
    assert other not in str(done.kept)


def test_who_does_not_agree_loses_nothing(workspace: Workspace) -> None:
    run, blob = ended(workspace, 9), put(workspace, b"unused")

    done = workspace.gc(keep=0, agree=lambda plan: False)

    assert (left(workspace), blobs(workspace), done.freed) == ({run}, {blob}, None)


# -- blobs of this client


def test_a_blob_that_no_run_needs_goes(workspace: Workspace) -> None:
    put(workspace, b"unused")

    done = workspace.gc()

    assert [(thing.kind, thing.count, thing.why) for thing in done.goes] == [
        ("blobs", 1, "no run needs them")
    ]
    assert blobs(workspace) == set()


def test_what_a_run_needs_is_read_from_its_manifest_among_the_blobs(workspace: Workspace) -> None:
    content, unused = put(workspace, b"content"), put(workspace, b"unused")
    manifest = canonical_json({"v": 1, "files": [["a", content, 7, 0]], "links": [], "dirs": []})
    snapshot = put(workspace, manifest)
    ended(workspace, 1, snapshot=snapshot)

    workspace.gc()

    assert blobs(workspace) == {content, snapshot}
    assert unused not in blobs(workspace)


def test_a_damaged_manifest_is_not_believed(workspace: Workspace, project: Path) -> None:
    run = workspace.submit("train.py", cwd=str(project)).wait()
    content = blobs(workspace)
    path = workspace.home / "blobs" / run.record.spec.snapshot[:2] / run.record.spec.snapshot[2:]
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(b'{"v":1,"files":[],"links":[],"dirs":[]}')

    workspace.gc()

    assert content - {run.record.spec.snapshot} <= blobs(workspace)


def test_while_nobody_can_tell_what_a_run_needs_everything_older_stays(workspace: Workspace) -> None:
    old, young = put(workspace, b"old"), put(workspace, b"young", time.time())
    spec = RunSpec(
        id=new_run_id(),
        experiment="e",
        compute="gone",
        command=("x",),
        created=time.time() - 2 * DAY,
        snapshot="a" * 64,
    )
    workspace.store.create_run(spec)

    done = workspace.gc()

    assert (blobs(workspace), young in blobs(workspace)) == ({old}, False)
    assert done.notes == [f"nobody can tell now what run {spec.id} needs: blobs that are older stay"]


def test_run_folders_that_a_lost_history_knew_keep_what_they_need(
    workspace: Workspace, project: Path
) -> None:
    workspace.submit("train.py", cwd=str(project)).wait()
    needed = blobs(workspace)
    workspace.close()
    for path in workspace.home.glob("history.db*"):
        path.unlink()

    workspace.gc()

    assert {digest for digest in needed if _is_file_of(project, digest)} <= blobs(workspace)


def _is_file_of(project: Path, digest: str) -> bool:
    return any(hashlib.sha256(path.read_bytes()).hexdigest() == digest for path in project.iterdir())


def test_a_history_that_is_replaced_meanwhile_stops_the_clearing(workspace: Workspace) -> None:
    blob = put(workspace, b"unused")

    def agree(plan: Any) -> bool:
        (workspace.home / "history.db").rename(workspace.home / "elsewhere.db")
        return True

    done = workspace.gc(agree=agree)

    assert done.kept == {"the history was replaced meanwhile": ["blobs: 1"]}
    assert blobs(workspace) == {blob}


def test_no_blob_goes_while_a_submit_is_in_the_gate(workspace: Workspace) -> None:
    blob = put(workspace, b"found by a submit")
    inside = gate.enter(str(workspace.home))

    done = workspace.gc()
    gate.leave(inside)

    assert done.kept == {"runs are just being submitted": ["blobs: 1"]}
    assert blobs(workspace) == {blob}


def test_a_submit_is_in_the_gate_from_the_first_look_at_the_blobs_to_the_claim(
    workspace: Workspace, project: Path
) -> None:
    seen: list[bool] = []

    def on(event: object) -> None:
        held = gate.enter_alone(str(workspace.home), 0.0)
        seen.append(held is None)
        gate.leave(held)

    run = workspace.submit("train.py", cwd=str(project), on=on)
    held = gate.enter_alone(str(workspace.home), 0.0)

    assert seen and all(seen)
    assert held is not None
    gate.leave(held)
    run.wait()


def test_a_submit_after_its_blobs_were_cleared_away_stores_them_again(
    workspace: Workspace, project: Path
) -> None:
    time.sleep(2.1)  # so that the stat cache trusts the files
    workspace.submit("train.py", cwd=str(project)).wait()
    time.sleep(2.1)  # and the folders of the blobs
    workspace.submit("train.py", cwd=str(project)).wait()
    workspace.gc(keep=0)
    assert blobs(workspace) == set()

    assert workspace.submit("train.py", cwd=str(project)).wait().log() == b"hello\n"


# -- what is left lying about


def test_what_killed_clients_left_goes_when_it_is_old(workspace: Workspace) -> None:
    workspace.store  # noqa: B018
    old = [
        "blobs/incoming/123-0123456789abcdef", "cache/" + "a" * 32 + ".stats", "submitting/abcdefghjk",
        "cache/" + "a" * 32 + ".stats.77.01234567", "cache/traceback-20260101-000000-5.txt",
    ]  # fmt: skip
    foreign = [
        "blobs/incoming/mine",
        "blobs/aa/README",
        "cache/mine.txt",
        "submitting/Mine",
        "mine.txt",
        "logs/mine/x",
    ]
    young = ["blobs/incoming/124-0123456789abcdef", "cache/" + "b" * 32 + ".stats", "submitting/abcdefghjm"]
    for name in (*old, *foreign, *young):
        path = workspace.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        if name not in young:
            os.utime(path, (LONG_AGO, LONG_AGO))

    workspace.gc()

    assert [name for name in old if (workspace.home / name).exists()] == []
    assert [name for name in (*foreign, *young) if not (workspace.home / name).exists()] == []


def test_the_mark_of_a_submit_that_takes_hours_stays(workspace: Workspace) -> None:
    with workspace.store.submitting("abcdefghjk"):
        os.utime(workspace.home / "submitting" / "abcdefghjk", (LONG_AGO, LONG_AGO))
        workspace.gc()

        assert workspace.store.is_submitting("abcdefghjk")


def test_links_in_the_home_are_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ("c" * 62)).write_text("mine")
    (workspace.home / "blobs").mkdir(parents=True)
    (workspace.home / "blobs" / "aa").symlink_to(outside)
    (workspace.home / "blobs" / "bb").mkdir()
    (workspace.home / "blobs" / "bb" / ("c" * 62)).symlink_to(outside / ("c" * 62))

    workspace.gc()

    assert (outside / ("c" * 62)).read_text() == "mine"
    assert (workspace.home / "blobs" / "bb" / ("c" * 62)).is_symlink()


def test_old_tombstones_go_once_the_history_knows_that_it_is_over(workspace: Workspace) -> None:
    spec = RunSpec(id=new_run_id(), experiment="e", compute="local", command=("x",), created=LONG_AGO)
    stranger = new_run_id()
    workspace.store.create_run(spec)
    workspace.refresh()  # nobody brings it there: a tombstone
    with workspace.connect("local") as connection:
        connection.call({"op": "never", "run": stranger, "spec": {}})
    for grave in workspace.home.glob("machine/*/runs/*/never.json"):
        os.utime(grave, (LONG_AGO, LONG_AGO))

    done = workspace.gc()

    assert [(thing.kind, thing.count) for thing in done.goes] == [("tombstones", 1)]
    assert [path.parent.name for path in workspace.home.glob("machine/*/runs/*/never.json")] == [stranger]
    assert workspace.run(spec.id).refresh().status is RunState.FAILED


# -- environments and the budget


def environment(workspace: Workspace, letter: str, size: int, used: float) -> Path:
    """A complete one, as big as that."""
    with workspace.connect("local") as connection:
        machine = str(connection.call({"op": "probe"})["machine"]["machine"])
    folder = workspace.home / "machine" / machine / "environments" / (letter * 24 + "-x86_64-py3.11.7")
    folder.mkdir(parents=True)
    (folder / "lib").write_bytes(os.urandom(size))
    (folder / "complete").write_text('{"python":"there"}')
    os.utime(folder / "complete", (used, used))
    return folder


def test_environments_go_when_they_are_older_or_were_never_finished(workspace: Workspace) -> None:
    old, young = (
        environment(workspace, letter, 10, used) for letter, used in (("a", LONG_AGO), ("b", time.time()))
    )
    broken = environment(workspace, "c", 10, time.time())
    (broken / "complete").unlink()

    assert [thing.why for thing in workspace.gc(dry_run=True).goes] == ["never finished"]
    workspace.gc(older_than="30d")

    assert [path.exists() for path in (old, young, broken)] == [False, True, False]


def test_a_budget_takes_what_is_unused_then_environments_then_runs_and_of_each_the_oldest_first(
    workspace: Workspace,
) -> None:
    put(workspace, os.urandom(1_000_000))
    old = environment(workspace, "a", 3_000_000, LONG_AGO)
    young = environment(workspace, "b", 3_000_000, time.time())
    first, second = ended(workspace, 20), ended(workspace, 10)
    for run in (first, second):
        folder = old.parent.parent / "runs" / run
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"spec": {}, "machine": old.parent.parent.name}))
        (folder / "attempts" / "1").mkdir(parents=True)
        (folder / "attempts" / "1" / "end.json").write_text('{"state":"completed"}')
        (folder / "big").write_bytes(os.urandom(3_000_000))
    steps = []

    used = workspace.gc(budget="1TB", dry_run=True).used or 0
    for less in (500_000, 2_000_000, 5_000_000, 8_000_000):
        done = workspace.gc(budget=used - less)
        steps.append([thing.kind for thing in done.goes])
        assert done.over == 0
        assert (done.used or 0) - done.bytes <= used - less

    assert steps == [["blobs"], ["environment"], ["environment"], ["run"]]
    assert (old.exists(), young.exists(), left(workspace)) == (False, False, {second})


def test_a_budget_says_what_it_cannot_reach(workspace: Workspace, project: Path) -> None:
    (project / "train.py").write_text("import time; time.sleep(300)")
    live = workspace.submit("train.py", cwd=str(project))
    wait_until(lambda: live.refresh().status is RunState.RUNNING)
    kept = ended(workspace, 3)
    unfetched = ended(workspace, 4, "other", outputs=1)
    ended(workspace, 5, "other", outputs=1)

    done = workspace.gc(budget=1000, keep=1)

    assert done.over > 0
    assert {*done.spared} == {"not over yet", "with outputs that were not fetched"}
    assert done.notes == ["runs stay because of --keep (2)"]
    assert {live.id, kept, unfetched} <= left(workspace)
    live.cancel(0.0)
    live.wait()


# -- homes that are not as they should be


def test_a_read_only_home_is_refused_before_anything_is_done(workspace: Workspace) -> None:
    run = ended(workspace, 9)
    workspace.close()
    home = str(workspace.home)
    subprocess.run(["mount", "--bind", home, home], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
        with Workspace(home) as reader, pytest.raises(HomeReadOnly):
            reader.gc(keep=0)
    finally:
        subprocess.run(["umount", home], check=True)

    assert left(workspace) == {run}


def test_what_cannot_be_removed_is_told_and_keeps_nothing_else_there(
    workspace: Workspace, tmp_path: Path
) -> None:
    stuck, free = put(workspace, b"stuck"), put(workspace, b"free")
    folder = workspace.home / "blobs" / stuck[:2]
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        done = workspace.gc()
    finally:
        subprocess.run(["umount", str(folder)], check=True)

    assert done.kept == {"Read-only file system": [f"blob {stuck[:12]}"]}
    assert (stuck in blobs(workspace), free in blobs(workspace)) == (True, False)


def test_the_doctor_names_gc_when_the_disk_is_nearly_full(workspace: Workspace, tmp_path: Path) -> None:
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], check=True)
    try:
        with Workspace(disk / "home") as small:
            hints = {finding.what: finding.hint for finding in small.doctor()}
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)

    assert hints["disk of the history"] == hints["disk of local"] == "dray gc"


# -- under load


class Hammer:
    """Submits and clearings without end, killed at random and begun again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.home = folder / "home"
        self.folder = folder
        self.rng = random.Random(seed)
        self.said = folder / "said"
        env = {k: v for k, v in os.environ.items() if not k.startswith("DRAY_")}
        self.env = {**env, "DRAY_HOME": str(self.home)}
        self.started = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        kind = name.rstrip("0123456789")
        where = [str(self.folder / name)] if kind == "submit" else []
        self.started += 1
        words = [sys.executable, str(HAMMER), kind, str(self.home), *where, str(self.started)]
        with self.said.open("ab") as said:
            self.processes[name] = subprocess.Popen(words, env=self.env, stdout=said, stderr=said)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def strike(self, seconds: float) -> None:
        for name in ("submit1", "submit2", "clean1", "clean2"):
            self.start(name)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self.rng.uniform(0.2, 1.2))  # the moment is the test
            victim = self.rng.choice(list(self.processes))
            assert self.processes[victim].poll() is None, self.said.read_text()
            self.kill(victim)
            self.start(victim)
        for name in self.processes:
            self.kill(name)


def _strike(world: World, seed: int, seconds: float) -> None:
    hammer = Hammer(world.home.parent, seed)
    try:
        hammer.strike(seconds)
    finally:
        for process in hammer.processes.values():
            process.kill()
    assert hammer.said.read_text() == ""

    with Workspace(world.home) as workspace:
        wait_until(lambda: all(run.ended for run in workspace.runs()), 60)
        for run in workspace.runs():
            kind = (run.reason or {})["kind"]
            assert kind == "done" or (kind == "not-started" and run.record.started is None), run.reason
        workspace.gc()
        needed = set()
        for run in workspace.runs():
            needed |= _can_be_laid_out(workspace, run.id)
        manifests = {run.record.spec.snapshot for run in workspace.runs()}
        assert needed <= blobs(workspace) <= needed | manifests
        assert [*world.home.glob("machine/*/*/.trash-*")] == []
        assert workspace.gc().goes == []


def _can_be_laid_out(workspace: Workspace, run: str) -> set[str]:
    """Digests of the run's code, each of which is there and right."""
    found = set()
    for manifest in workspace.home.glob(f"machine/*/runs/{run}/manifest.json"):
        for path, digest, size, _ in json.loads(manifest.read_text())["files"]:
            data = (workspace.home / "blobs" / digest[:2] / digest[2:]).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (size, digest), path
            found.add(digest)
    return found


def test_clearing_under_load_with_kills_takes_nothing_that_is_in_use(world: World) -> None:
    _strike(world, 1, 10.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_clearing_under_load_for_a_minute_takes_nothing_that_is_in_use(world: World, seed: int) -> None:
    _strike(world, seed, 60.0)
