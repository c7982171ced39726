"""Which folders lie on a network, and what the history does there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.runner import mounts
from dray.store import Store
from tests.store.world import metric, new_run

MOUNTS = """\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:44 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 0:45 / /home/ana/local rw,relatime - xfs /dev/sdb rw
32 22 0:46 / /mnt/my\\040disk rw master:1 propagate_from:2 - lustre mds@tcp:/x rw
33 22 0:47 / /mnt/cloud rw - fuse.sshfs ana@host: rw
34 22 0:48 / /containers rw - fuse.fuse-overlayfs fuse-overlayfs rw
35 22 0:49 / /twice rw - ext4 /dev/sdc rw
36 22 0:50 / /twice rw - cifs //server/share rw
garbled
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homework", "ext4"),
        ("/home", "nfs4"),
        ("/home/ana/x", "nfs4"),
        ("/home/ana/local/x", "xfs"),
        ("/mnt/my disk/x", "lustre"),
        ("/twice/x", "cifs"),
    ],
)
def test_the_file_system_is_the_one_of_the_nearest_mount(path: str, kind: str) -> None:
    assert mounts.file_system(path, MOUNTS) == kind


def test_network_file_systems_are_told_from_local_ones(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)

    assert [
        mounts.is_network(folder, str(table))
        for folder in (
            "/home/ana",
            "/mnt/my disk",
            "/mnt/cloud",
            "/containers",
            "/nowhere",
            "/home/ana/local",
        )
    ] == [True, True, True, False, False, False]
    assert not mounts.is_network("/home/ana", str(tmp_path / "not Linux"))
    assert not mounts.is_network(str(tmp_path))


def test_on_a_network_file_system_the_history_needs_no_shared_memory(home: Path, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"1 1 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path} rw - nfs4 server:/x rw\n")

    with Store.open(home, mountinfo=str(table)) as here, Store.open(home, mountinfo=str(table)) as there:
        run_id = new_run(here)
        there.ingest(run_id, 1, "events.0.jsonl", 0, metric(1, loss=0.5))

        assert here.metrics(run_id)["loss"].values == [0.5]
        assert sorted(path.name for path in home.iterdir()) == ["history.db"]


def test_a_history_that_moved_to_or_from_a_network_changes_its_journal(home: Path, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"2 1 0:2 / {tmp_path} rw - nfs4 server:/x rw\n")
    with Store.open(home) as store:
        run_id = new_run(store)
        assert (home / "history.db-wal").exists()

    with Store.open(home, mountinfo=str(table)) as store:
        store.looked(run_id, 1.0)
        assert not (home / "history.db-wal").exists()

    with Store.open(home) as store:
        store.looked(run_id, 2.0)
        assert store.run(run_id).as_of == 2.0
        assert (home / "history.db-wal").exists()
