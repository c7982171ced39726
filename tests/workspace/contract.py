"""What every target promises, whatever lies between the client and its machine. A new target inherits this class."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray import DrayError, Workspace
from dray.core.interfaces import Target
from dray.core.states import RunState
from dray.workspace import Ended, Output, StateChanged
from tests.workspace.worlds import wait_until


class TargetContract:
    """Give it a `target` fixture; each test is one promise."""

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        folder = tmp_path / "project"
        (folder / "sub dir").mkdir(parents=True)
        (folder / "sub dir" / "data 'x'.txt").write_text("data")
        (folder / "helper.py").write_text("WORD = 'helped'\n")
        (folder / "train.py").write_text(
            "import sys, dray, helper\n"
            "print(helper.WORD, open(\"sub dir/data 'x'.txt\").read(), sys.argv[1:])\n"
            "for i in range(5): dray.log(loss=1 / (i + 1), step=i)\n"
            "dray.log_params(lr=0.1)\n"
            "open('outputs/model', 'w').write('weights')\n"
        )
        return folder

    @pytest.fixture
    def workspace(self, target: Target, tmp_path: Path) -> Iterator[Workspace]:
        with Workspace(tmp_path / "history", targets=[target]) as made:
            yield made

    def test_a_script_is_run_with_its_folder_and_its_words(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        run = workspace.submit("train.py", "--lr", "a b", compute=target.name, cwd=str(project))
        run.wait()

        assert run.status is RunState.COMPLETED
        assert run.log() == b"helped data ['--lr', 'a b']\n"
        assert run.metrics["loss"].values == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
        assert run.params == {"lr": 0.1}

    def test_outputs_come_back(
        self, workspace: Workspace, target: Target, project: Path, tmp_path: Path
    ) -> None:
        run = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()

        assert list(run.outputs.list()) == [("model", 7)]
        assert run.outputs.fetch("model", tmp_path / "there").read_text() == "weights"

    def test_following_tells_states_output_and_end_in_order(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        run = workspace.submit("train.py", compute=target.name, cwd=str(project))
        events = list(run.follow())

        states = [e.state for e in events if isinstance(e, StateChanged)]
        assert states == [RunState.PREPARING, RunState.RUNNING, RunState.FINALIZING][-len(states) :]
        assert b"".join(e.data for e in events if isinstance(e, Output)) == run.log()
        assert isinstance(events[-1], Ended)

    def test_a_run_can_be_left_and_taken_up_again(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        (project / "slow.py").write_text("import time\nfor i in range(50): print(i); time.sleep(0.02)\n")
        run = workspace.submit("slow.py", compute=target.name, cwd=str(project))
        for event in run.follow():
            if isinstance(event, Output):
                break
        run.detach()

        again = workspace.run(run.id)
        assert b"".join(e.data for e in again.follow() if isinstance(e, Output)) == b"".join(
            b"%d\n" % i for i in range(50)
        )

    def test_cancel_ends_a_run(self, workspace: Workspace, target: Target, project: Path) -> None:
        (project / "long.py").write_text("import time; print('on'); time.sleep(300)")
        run = workspace.submit("long.py", compute=target.name, cwd=str(project))
        wait_until(lambda: run.refresh().status is RunState.RUNNING)
        run.cancel(2.0)
        run.wait()

        assert run.status is RunState.CANCELED
        assert run.reason is not None
        assert run.reason["kind"] == "cancelled"

    def test_secrets_and_variables_reach_the_script(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        (project / "env.py").write_text(
            "import os; print(os.environ['SEEN'], len(os.environ['HIDDEN']), os.environ['HIDDEN'])"
        )
        run = workspace.submit(
            "env.py",
            compute=target.name,
            cwd=str(project),
            env={"SEEN": "plain"},
            secrets={"HIDDEN": "s3cret-value"},
        ).wait()

        assert run.log() == b"plain 12 ***\n"
        for file in workspace.home.rglob("*"):
            if file.is_file():
                assert b"s3cret-value" not in file.read_bytes(), file

    def test_a_command_that_is_no_script(self, workspace: Workspace, target: Target, project: Path) -> None:
        run = workspace.submit(
            command=["sh", "-c", "echo $0; exit 4", "it's"], compute=target.name, cwd=str(project)
        ).wait()

        assert (run.status, run.exit_code, run.log()) == (RunState.FAILED, 4, b"it's\n")

    def test_a_run_that_never_arrived_is_never_started(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        from dray.core.spec import RunSpec

        spec = RunSpec(id="abcdefghjk", experiment="e", compute=target.name, command=("x",), created=1.0)
        workspace.store.create_run(spec)  # and the client died here

        (run,) = workspace.runs()
        assert run.status is RunState.FAILED
        assert run.reason is not None
        assert run.reason["kind"] == "not-started"
        with workspace.connect(target.name) as connection:
            request = {
                "op": "submit",
                "spec": spec.to_json(),
                "manifest": {"v": 1, "files": [], "links": [], "dirs": []},
            }
            connection.ask(request)
            assert connection.receive()[0]["refused"] == "never"

    def test_removed_runs_are_gone_on_both_sides(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        run = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()
        run.remove()

        assert workspace.runs() == []
        with workspace.connect(target.name) as connection:
            assert connection.call({"op": "list"}) == {"runs": [], "never": []}

    def test_the_exact_code_of_a_run_is_had_again_from_its_machine_alone(
        self, workspace: Workspace, target: Target, project: Path, tmp_path: Path
    ) -> None:
        (project / "tool.sh").write_text("echo tool\n")
        (project / "tool.sh").chmod(0o755)
        (project / "link").symlink_to("tool.sh")
        (project / "empty").mkdir()
        (project / "big.bin").write_bytes(os.urandom(3_000_000))
        run = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()
        shutil.rmtree(workspace.home / "blobs")

        restored = run.restore(tmp_path / "again")

        assert _tree(tmp_path / "again") == _tree(project)
        assert restored.digest == run.record.spec.snapshot

    def test_a_run_is_repeated_from_its_own_code_whatever_became_of_the_folder(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        run = workspace.submit(
            "train.py", "--lr", "a b", compute=target.name, cwd=str(project), tags={"a": "b"}, timeout=60
        ).wait()
        shutil.rmtree(workspace.home / "blobs")
        shutil.rmtree(project)

        again = run.rerun(tags={"c": "d"}).wait()
        other = again.rerun("--lr", "2").wait()

        assert again.log() == run.log() == b"helped data ['--lr', 'a b']\n"
        assert other.log() == b"helped data ['--lr', '2']\n"
        first, second = run.record.spec, again.record.spec
        assert second.snapshot == first.snapshot
        assert (second.rerun_of, other.record.spec.rerun_of) == (run.id, again.id)
        assert again.tags == {"a": "b", "c": "d"}
        assert (second.timeout_s, second.experiment, second.compute) == (60, first.experiment, target.name)

    def test_a_run_of_this_machine_is_repeated_there(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        here = workspace.submit("train.py", cwd=str(project)).wait()
        shutil.rmtree(workspace.home / "blobs")
        shutil.rmtree(project)

        there = here.rerun(compute=target.name).wait()

        assert (there.status, there.record.compute) == (RunState.COMPLETED, target.name)
        assert there.log() == here.log()

    def test_a_live_run_is_not_removed(self, workspace: Workspace, target: Target, project: Path) -> None:
        (project / "long.py").write_text("import time; time.sleep(300)")
        run = workspace.submit("long.py", compute=target.name, cwd=str(project))
        with pytest.raises(DrayError, match="is (created|staging|preparing|running)"):
            run.remove()
        run.cancel(0.0)
        run.wait()

    def test_cleaning_up_takes_nothing_that_a_run_needs(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        run = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()
        blobs = _blobs(workspace)

        done = workspace.gc(compute=target.name)

        assert (done.goes, done.kept, _blobs(workspace)) == ([], {}, blobs)
        again = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()
        assert [run.status, again.status] == [RunState.COMPLETED] * 2

    def test_cleaning_up_forgets_runs_on_both_sides_with_what_only_they_needed(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        first = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()
        (project / "helper.py").write_text("WORD = 'helped again'\n")
        second = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()
        before = _blobs(workspace)

        shown = workspace.gc(keep=1, unfetched=True, compute=target.name, dry_run=True)
        assert (len(workspace.runs()), _blobs(workspace)) == (2, before)
        done = workspace.gc(keep=1, unfetched=True, compute=target.name)

        assert [(t.kind, t.count) for t in shown.goes] == [(t.kind, t.count) for t in done.goes]
        assert [run.id for run in workspace.runs()] == [second.id]
        with workspace.connect(target.name) as connection:
            assert [row["run"] for row in connection.call({"op": "list"})["runs"]] == [second.id]
        assert _blobs(workspace) < before
        assert first.id in done.goes[0].what
        assert done.freed is not None and done.freed > 0
        workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()
        assert workspace.run("@last").log().startswith(b"helped again")

    def test_cleaning_up_spares_live_runs_and_outputs_that_were_not_fetched(
        self, workspace: Workspace, target: Target, project: Path, tmp_path: Path
    ) -> None:
        (project / "long.py").write_text("import time; time.sleep(300)")
        live = workspace.submit("long.py", compute=target.name, cwd=str(project))
        run = workspace.submit("train.py", compute=target.name, cwd=str(project)).wait()

        done = workspace.gc(keep=0, compute=target.name)

        assert done.spared == {"not over yet": [live.id], "with outputs that were not fetched": [run.id]}
        assert {left.id for left in workspace.runs()} == {live.id, run.id}
        run.outputs.fetch("model", tmp_path / "there")
        workspace.gc(keep=0, compute=target.name)
        assert [left.id for left in workspace.runs()] == [live.id]
        live.cancel(0.0)
        live.wait()

    def test_a_budget_counts_the_machine_and_takes_the_oldest_run_first(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        (project / "big.py").write_text("import os; open('outputs/big', 'wb').write(os.urandom(500_000))")
        runs = [workspace.submit("big.py", compute=target.name, cwd=str(project)).wait() for _ in range(3)]
        used = workspace.gc(budget="1TB", compute=target.name, dry_run=True).used
        assert used is not None
        assert used > 1_500_000

        done = workspace.gc(budget=used - 600_000, unfetched=True, compute=target.name)

        assert (done.over, [thing.kind for thing in done.goes]) == (0, ["run", "run"])
        assert [run.id for run in workspace.runs()] == [runs[2].id]
        again = workspace.gc(budget="1TB", compute=target.name, dry_run=True).used
        assert again is not None
        assert used - again >= 600_000

    def test_the_history_can_be_made_again_from_the_machine(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        run = workspace.submit(
            "train.py", compute=target.name, cwd=str(project), name="kept", tags={"a": "b"}
        ).wait()
        before = workspace.store.export_state(run.id)
        workspace.close()
        for path in workspace.home.glob("history.db*"):
            path.unlink()

        workspace.rebuild()

        assert workspace.run("kept").log() == run.log()
        assert workspace.store.export_state(run.id) == before

    def test_a_name_that_cannot_be_is_refused_before_anything_is_stored(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        with pytest.raises(DrayError, match="cannot be the name"):
            workspace.submit("train.py", compute=target.name, cwd=str(project), name="two\nlines")
        assert workspace.runs() == []

    def test_what_the_machine_says_of_itself(self, workspace: Workspace, target: Target) -> None:
        facts = workspace.describe(target.name)["machine"]

        assert facts["cpus"] >= 1
        assert all(finding.level != "bad" for finding in workspace.check(target.name))

    def test_a_link_that_is_cut_while_following_is_taken_up_at_the_byte(
        self, workspace: Workspace, target: Target, project: Path
    ) -> None:
        (project / "slow.py").write_text("import time\nfor i in range(100): print(i); time.sleep(0.02)\n")
        run = workspace.submit("slow.py", compute=target.name, cwd=str(project))
        heard, cuts = b"", 0
        for event in run.follow():
            if isinstance(event, Output):
                heard += event.data
                if len(heard) > 60 * (cuts + 1) and cuts < 3:
                    cuts += 1
                    _servers_of(workspace, target)
        assert heard == b"".join(b"%d\n" % i for i in range(100))
        assert cuts == 3
        assert run.log() == heard


def _tree(folder: Path) -> dict[str, object]:
    """All there is below a folder: contents with their executable bit, targets of links, folders."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else (path.read_bytes(), os.access(path, os.X_OK) and path.stat().st_mode & 0o100)
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def _blobs(workspace: Workspace) -> set[str]:
    found = (workspace.home / "blobs").glob("[0-9a-f][0-9a-f]/*")
    return {path.parent.name + path.name for path in found}


def _servers_of(workspace: Workspace, target: Target) -> None:
    """kill -9 of everything that this process started as a channel: the link is gone, the run is not."""
    import signal

    me = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                if parent == me:
                    os.kill(int(name), signal.SIGKILL)
            except (OSError, ProcessLookupError):
                continue
