"""Whole runs as plain files, and into another history: nothing is lost, nothing is doubled, nothing is there by halves."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from dray import DrayError, Workspace
from dray.workspace.errors import BadExport, ExportThere, RunDiffers
from dray.workspace.exporting import GONE, LEFT_OUT, NO_ANSWER, NOT_KEPT
from tests.recorded.test_recorded import HERE as RECORDED
from tests.store.world import EVENTS, metric, new_run
from tests.workspace.exports import CODE, exported, facts, keep_code, listed_again, make_run, tree
from tests.workspace.worlds import World, wait_until

TRAIN = """
import os, sys, dray
dray.log_params(lr=0.1)
for step in range(5):
    dray.log(loss=1 / (step + 1), step=step)
open("outputs/model.pkl", "wb").write(bytes(5000))
os.makedirs("results"); open("results/a.csv", "w").write("a,b")
print("the token is", os.environ.get("TOKEN"))
sys.exit(3)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("others", [0, 3])
def test_a_thousand_runs_exported_and_imported_are_the_same_runs(
    here: Path, there: Path, archive: Path, others: int
) -> None:
    with Workspace(here) as workspace:
        digest = keep_code(here)
        for number in range(1000):
            make_run(workspace.store, number, snapshot=digest)
        workspace.export_runs([workspace.run(record.id) for record in workspace.store.runs()], archive)
    with Workspace(there) as workspace:
        for number in range(others):
            make_run(workspace.store, number)
    before = facts(there)

    with Workspace(there) as workspace:
        first = workspace.import_runs(archive)
        second = workspace.import_runs(archive)

    assert {one.outcome for one in first} == {"imported"}
    assert {one.outcome for one in second} == {"already here"}
    assert facts(there) == facts(here) | before
    assert len(facts(there)) == 1000 + others


def test_a_run_that_really_ran_travels_with_its_outputs_and_asks_no_machine_again(
    world: World, tmp_path: Path
) -> None:
    world.write("train.py", TRAIN)
    environment = {"TOKEN": "swordfish-9"}
    assert (
        world.dray("submit", "--secret", "TOKEN", "--outputs", "results", "train.py", env=environment).code
        == 3
    )
    keep_code_of(world)
    run = world.show()
    listed = world.dray("outputs").out
    log = world.dray("logs").out

    said = world.dray("export", "@last", "--to", "out")

    folder = world.project / "out" / run["id"]
    assert (said.code, said.out.decode()) == (0, f"out/{run['id']}\n")
    assert (folder / "outputs" / "model.pkl").read_bytes() == bytes(5000)
    assert (folder / "outputs" / "results" / "a.csv").read_text() == "a,b"
    assert (folder / "code" / "train.py").read_text() == TRAIN
    assert not any(b"swordfish" in data for data in tree(folder).values())

    shutil.move(world.home, tmp_path / "gone")
    assert world.dray("import", "out").out.decode() == f"{run['id']}\timported\n"
    shown = world.show()
    assert shown["imported"] is not None
    for name in set(run) - {"imported", "as_of", "unreachable"}:
        assert shown[name] == run[name], name
    assert "imported" in world.dray("show").out.decode()
    assert world.dray("outputs").out == listed
    assert world.dray("logs").out == log == world.dray("logs", "-f").out
    assert world.dray("logs", "--tail", "1").out == log.splitlines(keepends=True)[-1]
    assert world.dray("follow").code == 3 == world.dray("wait").code
    assert world.dray("metrics", "loss", "--csv").out.count(b"\n") == 6
    assert world.dray("cancel", "@last").out.decode() == f"{run['id']}\tfailed\n"
    assert world.dray("outputs", "--to", "back").code == 0
    assert tree(world.project / "back") == tree(folder / "outputs")
    assert not (world.home / "machine").exists(), "a machine was asked"

    again = world.dray("export", "@last", "--to", "again")
    assert again.code == 0, again
    assert tree(world.project / "again") == tree(world.project / "out")
    assert world.dray("rm", "@last").code == 0
    assert [*(world.home / "imported").iterdir(), *(world.home / "logs").iterdir()] == []
    assert not (world.home / "machine").exists(), "a machine was asked"


def keep_code_of(world: World) -> None:
    """Keep the manifests of all run folders, as a submit does that keeps them."""
    from dray.core.spec import canonical_json
    from tests.workspace.exports import keep

    for manifest in world.home.glob("machine/*/runs/*/manifest.json"):
        keep(world.home, canonical_json(json.loads(manifest.read_text())))


def test_the_same_run_exported_twice_gives_the_same_bytes(here: Path, archive: Path, tmp_path: Path) -> None:
    folder = exported(here, archive)

    with Workspace(here) as workspace:
        (again,) = workspace.export_runs([workspace.run(folder.name)], archive)
        (other,) = workspace.export_runs([workspace.run(folder.name)], tmp_path / "other")

    assert again.was_there
    assert not other.was_there
    assert tree(archive) == tree(tmp_path / "other")


def test_a_different_export_is_replaced_by_force_only(here: Path, archive: Path) -> None:
    folder = exported(here, archive)
    with Workspace(here) as workspace:
        run = workspace.run(folder.name)
        workspace.store.edit(run.id, note="afterwards")
        before = tree(archive)

        with pytest.raises(ExportThere, match="another export"):
            workspace.export_runs([run], archive)

        assert tree(archive) == before
        workspace.export_runs([run], archive, force=True)
        assert b"afterwards" in (folder / "edits.json").read_bytes()
        (folder / "run.json").write_text("{}")
        with pytest.raises(ExportThere, match="damaged"):
            workspace.export_runs([run], archive)
        workspace.export_runs([run], archive, force=True)
        (folder / "export.json").unlink()
        with pytest.raises(ExportThere, match="no export"):
            workspace.export_runs([run], archive, force=True)
    assert os.listdir(archive) == [run.id]


def test_runs_of_one_code_have_it_once_on_the_disk(here: Path, archive: Path) -> None:
    with Workspace(here) as workspace:
        digest = keep_code(here)
        ids = [make_run(workspace.store, number, snapshot=digest) for number in range(3)]
        workspace.export_runs(map(workspace.run, ids), archive)

    for path, data in CODE.items():
        places = [archive / run_id / "code" / path for run_id in ids]
        assert {place.read_bytes() for place in places} == {data}
        assert len({place.stat().st_ino for place in places}) == 1
    assert os.access(archive / ids[0] / "code" / "train.py", os.X_OK)


def test_the_code_comes_along_for_whoever_wants_to_run_it_again(
    here: Path, there: Path, archive: Path
) -> None:
    exported(here, archive)

    with Workspace(there) as workspace:
        workspace.import_runs(archive)

    blobs = {str(p.relative_to(there)) for p in (there / "blobs").rglob("*") if p.is_file()}
    assert blobs == {str(p.relative_to(here)) for p in (here / "blobs").rglob("*") if p.is_file()}


def test_what_is_left_out_or_not_kept_is_written_down(here: Path, there: Path, archive: Path) -> None:
    with Workspace(here) as workspace:
        kept = workspace.run(make_run(workspace.store, 1, snapshot=keep_code(here)))
        lost = workspace.run(make_run(workspace.store, 2, snapshot="ab" * 32))
        without, *_ = workspace.export_runs([kept], archive, code=False)
        (unknown,) = workspace.export_runs([lost], archive)

    assert (without.missing, without.is_whole) == ({"code": LEFT_OUT}, True)
    assert (unknown.missing, unknown.is_whole) == ({"code": NOT_KEPT}, True)
    assert json.loads((archive / kept.id / "export.json").read_text())["missing"] == {"code": LEFT_OUT}
    with Workspace(there) as workspace:
        done = workspace.import_runs(archive)
    assert [one.remarks for one in done] == [("without code, which the export does not have",)] * 2


def test_a_blob_that_rotted_is_not_exported(here: Path, archive: Path) -> None:
    with Workspace(here) as workspace:
        run = workspace.run(make_run(workspace.store, snapshot=keep_code(here)))
        for blob in (here / "blobs").rglob("*"):
            if blob.is_file() and blob.read_bytes() == CODE["train.py"]:
                blob.write_bytes(b"print('other')\n")

        (done,) = workspace.export_runs([run], archive)

    assert done.missing == {"code/train.py": NOT_KEPT}
    assert not (archive / run.id / "code" / "train.py").exists()


def test_a_machine_that_cannot_be_asked_is_told_and_the_rest_goes_on(world: World) -> None:
    world.write("train.py", TRAIN)
    world.dray("submit", "train.py")
    (world.home / "machine").rename(world.home / "machine-away")
    (world.home / "machine").write_text("no folder")

    said = world.dray("export", "@last", "--to", "out")
    without = world.dray("export", "@last", "--to", "out2", "--no-outputs")

    assert said.code == 1
    assert f"outputs: {NO_ANSWER}" in said.err
    assert said.out.decode().strip() == f"out/{world.show()['id']}"
    assert without.code == 0
    (listing,) = world.project.glob("out/*/export.json")
    assert json.loads(listing.read_text())["missing"]["outputs"] == NO_ANSWER
    (world.home / "machine").unlink()
    (world.home / "machine-away").rename(world.home / "machine")
    assert world.dray("export", "@last", "--to", "out").code == 1  # another one is there
    assert world.dray("export", "@last", "--to", "out", "--force").code == 0
    assert len(list(world.project.glob("out/*/outputs/model.pkl"))) == 1


def test_an_output_that_is_gone_is_told_and_the_others_come(world: World) -> None:
    world.write("train.py", TRAIN)
    world.dray("submit", "--outputs", "results", "train.py")
    (lost,) = world.home.glob("machine/*/runs/*/code/outputs/model.pkl")
    lost.unlink()

    said = world.dray("export", "@last", "--to", "out")

    assert said.code == 1
    assert f"outputs/model.pkl: {GONE}" in said.err
    assert len(list(world.project.glob("out/*/outputs/results/a.csv"))) == 1
    shutil.move(world.home, world.home.with_name("gone"))
    assert "outputs/model.pkl, which the export does not have" in world.dray("import", "out").err
    fetched = world.dray("outputs", "--to", "back")
    assert fetched.code == 1
    assert GONE in fetched.err
    assert tree(world.project / "back") == {"results/a.csv": b"a,b"}


def test_outputs_of_an_imported_run_are_checked_when_they_are_read(world: World) -> None:
    world.write("train.py", TRAIN)
    world.dray("submit", "train.py")
    world.dray("export", "@last", "--to", "out")
    shutil.move(world.home, world.home.with_name("gone"))
    world.dray("import", "out")
    (model,) = world.home.glob("imported/*/outputs/model.pkl")
    model.write_bytes(b"x" * 5000)

    said = world.dray("outputs", "--to", "back")

    assert said.code == 1
    assert "its content is not what the list says" in said.err
    assert tree(world.project / "back") == {}


def test_a_run_that_has_not_ended_is_not_exported(world: World) -> None:
    world.write("train.py", "import time\nprint('on', flush=True)\ntime.sleep(60)\n")
    run_id = world.dray("submit", "-d", "train.py").out.decode().strip()
    wait_until(lambda: world.show(run_id)["status"] == "running")

    named = world.dray("export", run_id, "--to", "out")
    described = world.dray("export", "--all", "--to", "out")

    assert (named.code, named.out) == (1, b"")
    assert f"dray wait {run_id}" in named.err
    assert (described.code, described.out) == (0, b"")
    assert run_id in described.err
    assert world.dray("cancel", run_id, "--grace", "0s").code == 0
    world.dray("wait", run_id)
    assert world.dray("export", run_id, "--to", "out").code == 0


def test_runs_to_export_can_be_described(here: Path, archive: Path, world: World) -> None:
    with Workspace(world.home) as workspace:
        ids = [make_run(workspace.store, number) for number in range(6)]

    def names(*words: str) -> set[str]:
        said = world.dray("export", *words, "--to", str(archive), "--json")
        assert said.code == 0, said
        return {one["id"] for one in json.loads(said.out)}

    assert names("--all") == set(ids)
    assert names("--experiment", "e0") == {ids[0], ids[3]}
    assert names("--where", "params.lr > 0.25 and params.deep") == {ids[4]}
    assert names(ids[1], "--where", "status = failed") == {ids[1]}
    assert world.dray("export", "--where", "params.lr >", "--to", "x").code == 2
    assert world.dray("export", "--to", "x").code == 2
    assert world.dray("export", "nosuchrun", "--to", "x").code == 2
    assert not (world.project / "x").exists()


def test_import_says_of_each_run_what_became_of_it(world: World, tmp_path: Path, archive: Path) -> None:
    good = exported(tmp_path / "a", archive)
    bad = exported(tmp_path / "b", archive)
    (bad / "attempts/1/streams/log.script").write_bytes(b"LINE 0\n\xff\x00")

    tried = world.dray("import", str(archive), "--dry-run")
    assert facts(world.home) == {}
    done = world.dray("import", str(archive))
    again = world.dray("import", str(good), "--json")

    assert (tried.code, tried.out.decode()) == (1, f"{good.name}\tcan be imported\n")
    assert (done.code, done.out.decode()) == (1, f"{good.name}\timported\n")
    assert "`attempts/1/streams/log.script`: its content is not what the list says" in done.err
    assert "1 refused" in done.err
    assert json.loads(again.out)[0]["outcome"] == "already here"
    assert set(facts(world.home)) == {good.name}
    assert [path.name for path in (world.home / "imported").iterdir()] == [good.name]


def test_a_run_of_the_same_id_that_differs_is_refused_and_named(here: Path, archive: Path) -> None:
    folder = exported(here, archive)
    before = facts(here)
    (folder / "attempts/1/streams/log.script").write_bytes(b"forged!!\n")
    listed_again(folder)

    with Workspace(here) as workspace, pytest.raises(RunDiffers, match="log.script"):
        workspace.import_runs(archive)

    assert facts(here) == before


def test_what_was_said_afterwards_here_is_left_alone(here: Path, archive: Path) -> None:
    folder = exported(here, archive)
    with Workspace(here) as workspace:
        workspace.store.edit(folder.name, note="mine")

        (done,) = workspace.import_runs(folder)

        assert done.outcome == "already here"
        assert "afterwards" in done.remarks[0]
        assert workspace.store.run(folder.name).note == "mine"


def test_a_live_run_of_the_same_id_is_safe(there: Path, here: Path, archive: Path) -> None:
    folder = exported(here, archive)
    with Workspace(there) as workspace:
        new_run(workspace.store, id=folder.name)
        workspace.store.ingest(folder.name, 1, EVENTS, 0, metric(1, loss=0.5))
        before = facts(there)

        with pytest.raises(RunDiffers):
            workspace.import_runs(archive)

        assert facts(there) == before


def test_a_lost_history_has_its_imported_runs_again(
    there: Path, here: Path, archive: Path, world: World
) -> None:
    folder = exported(here, archive)
    assert world.dray("import", str(archive)).code == 0
    with Workspace(world.home) as workspace:
        workspace.store.edit(folder.name, note="mine", tags={"n": None})
    before = facts(world.home)
    for path in world.home.glob("history.db*"):
        path.unlink()

    assert "1 run folders are not in the history: dray rebuild" in world.dray("runs").err
    assert world.dray("rebuild").out == b"1 run in the history, 1 of them imported\n"
    assert facts(world.home) == before
    assert world.dray("rebuild").out == b"0 runs in the history\n"
    assert world.show(folder.name)["imported"] is not None


def test_an_imported_folder_that_rotted_is_told_by_rebuild_and_not_believed(
    here: Path, archive: Path, world: World
) -> None:
    folder = exported(here, archive)
    world.dray("import", str(archive))
    for path in world.home.glob("history.db*"):
        path.unlink()
    (world.home / "imported" / folder.name / "attempts/1/streams/log.script").write_bytes(b"forged!!\n")

    said = world.dray("rebuild")

    assert said.out == b"0 runs in the history\n"
    assert "log.script" in said.err
    assert facts(world.home) == {}


def test_a_folder_may_have_any_name_and_may_be_read_only(here: Path, there: Path, archive: Path) -> None:
    folder = exported(here, archive)
    renamed = folder.rename(archive / "the best one")
    renamed.chmod(0o500)

    with Workspace(there) as workspace:
        (done,) = workspace.import_runs(archive)

    assert (done.run_id, done.outcome) == (folder.name, "imported")


def test_what_is_no_export_is_told(there: Path, archive: Path, tmp_path: Path) -> None:
    archive.mkdir()
    with Workspace(there) as workspace:
        for place in (archive, tmp_path / "nowhere"):
            with pytest.raises(DrayError) as caught:
                workspace.import_runs(place)
            assert caught.value.exit_code == 2
        (archive / "abcdefghjk").mkdir()
        with pytest.raises(BadExport, match="export.json"):
            workspace.import_runs(archive)


def test_a_run_recorded_by_the_first_version_travels(tmp_path: Path, there: Path, archive: Path) -> None:
    recorded = RECORDED / "0.1.0"
    run_id = json.loads((recorded / "run.json").read_text())["spec"]["id"]
    with Workspace(tmp_path / "old") as workspace:
        machine = workspace.describe("local")["machine"]["machine"]
        place = tmp_path / "old" / "machine" / machine / "runs" / run_id
        shutil.copytree(recorded, place, ignore=shutil.ignore_patterns("expected.json"))
        (place / "lock").touch()
        workspace.rebuild()
        (done,) = workspace.export_runs([workspace.run(run_id)], archive)

    with Workspace(there) as workspace:
        workspace.import_runs(archive)

    assert "code" in done.missing
    assert facts(there) == facts(tmp_path / "old")


EXPORTS = sorted(path.parent for path in (RECORDED / "exports").glob("*/*/export.json"))


@pytest.mark.parametrize("folder", EXPORTS, ids=lambda path: path.parent.name)
def test_an_export_of_an_earlier_commit_is_read_as_it_was(folder: Path, there: Path, archive: Path) -> None:
    with Workspace(there) as workspace:
        workspace.import_runs(folder)
        state = json.loads(json.dumps(workspace.store.export_state(folder.name)))
        workspace.export_runs([workspace.run(folder.name)], archive)

    assert state == json.loads((folder.parent / "expected.json").read_text())
    assert tree(archive / folder.name) == tree(folder)
