"""The folder that all users share: what in it is not ours is doubted, and where it cannot work it is refused in words."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dray.runner.queue.desk import Desk, NoDesk, folder_name, let_go
from dray.runner.queue.turn import Ticket
from dray.runner.queue.wants import Wants
from tests.runner.machines import make_user, wait_until

UUID = "GPU-00000000-0000-4000-8000-000000000000"
ALONE = ((UUID, None),)
SHARE = ((UUID, 1000),)
TICKET = Ticket(0, Wants(gpus=1), ready=True, run="abcdefghij", since=time.time())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "leases"


@pytest.fixture
def desk(place: Path) -> Desk:
    return Desk(str(place))


def _mounted(place: Path, kind: str) -> str:
    table = place.parent / "mountinfo"
    table.write_text(f"1 1 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {place} rw - {kind} server:/x rw\n")
    return str(table)


def test_the_first_one_makes_it_for_everybody_whatever_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        desk = Desk(str(place))
        (fd,) = desk.take(ALONE) or [0]
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o7777 == 0o1777
    assert [file.stat().st_mode & 0o7777 for file in place.iterdir()] == [0o644]
    let_go([fd])


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "9p"])
def test_a_folder_on_a_network_is_refused(place: Path, kind: str) -> None:
    with pytest.raises(NoDesk, match="network file system.*name another one in /etc/dray/leases"):
        Desk(str(place), _mounted(place, kind))
    Desk(str(place), _mounted(place, "tmpfs"))


def test_a_folder_with_wrong_rights_is_refused_and_its_owner_named(place: Path) -> None:
    make_user("drayuser1")
    place.mkdir(0o755)
    subprocess.run(["chown", "drayuser1", place], check=True)
    with pytest.raises(NoDesk, match=f"`chmod 1777 {place}` as drayuser1 mends it"):
        Desk(str(place))
    place.chmod(0o777)  # everybody could remove everybody's tickets
    with pytest.raises(NoDesk, match="chmod 1777"):
        Desk(str(place))


def test_a_link_or_file_in_its_place_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o1777)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoDesk, match="is no folder; root made it"):
        Desk(str(place))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_admin_names_another_folder_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "named"
    monkeypatch.setenv("DRAY_LEASES", "/users/own")
    assert folder_name(str(named)) == "/users/own"
    named.write_text("/shared/leases\n")
    assert folder_name(str(named)) == "/shared/leases"
    named.write_bytes(b"\xff\xfe not a path")
    assert folder_name(str(named)) == "/users/own"
    monkeypatch.setenv("DRAY_LEASES", "relative")
    assert folder_name(str(named)) == "/var/tmp/dray-leases"


def test_tickets_are_numbered_in_order_and_vanish_with_their_people(desk: Desk) -> None:
    drawn = [desk.draw(TICKET) for _ in range(3)]
    assert [number for number, _ in drawn] == [1, 2, 3]
    os.close(drawn[1][1])

    assert [ticket.number for ticket in desk.tickets()] == [1, 3]
    assert [ticket.number for ticket in desk.tickets(lambda dead: True)] == [1, 3]
    assert not os.path.exists(f"{desk.path}/t-2")
    for _, fd in drawn[::2]:
        os.close(fd)


def test_many_that_draw_at_once_get_a_number_each(desk: Desk, place: Path) -> None:
    script = (
        "import sys, time; from dray.runner.queue.desk import Desk; from dray.runner.queue.turn import Ticket\n"
        "from dray.runner.queue.wants import Wants\n"
        f"d = Desk({str(place)!r}); got = [d.draw(Ticket(0, Wants(gpus=1)))[0] for _ in range(20)]; print(*got, flush=True)\n"
        "sys.stdin.read()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    numbers = [int(word) for one in started for word in one.stdout.readline().split()]
    assert len(desk.tickets()) == 80
    for one in started:
        one.communicate()
    assert sorted(numbers) == list(range(1, 81))


def test_a_lease_is_one_s_alone_or_shared(desk: Desk) -> None:
    held = desk.take(ALONE)
    assert held
    assert desk.locked([UUID]) == {UUID}
    assert desk.take(ALONE) is None
    assert desk.take(SHARE) is None
    let_go(held)

    sharers = [desk.take(SHARE), desk.take(SHARE)]
    assert all(sharers)
    assert desk.locked([UUID]) == frozenset()
    assert desk.take(ALONE) is None
    for one in sharers:
        let_go(one or [])
    let_go(desk.take(ALONE) or [])


def test_a_lock_on_a_file_that_was_removed_is_no_lease(desk: Desk, place: Path) -> None:
    held = desk.take(ALONE) or []
    (file,) = place.glob("gpu-*")
    file.unlink()
    file.touch(0o644)

    again = desk.take(ALONE) or []
    assert desk.is_in_place(again[0], UUID)
    assert not desk.is_in_place(
        held[0], UUID
    )  # which its holder notices, and its ticket says so all the time
    let_go(held + again)


def test_leases_of_other_users_can_be_locked_and_kept_young_and_not_written(place: Path) -> None:
    make_user("drayuser1")
    desk = Desk(str(place))
    file = place / f"gpu-{UUID}"
    file.touch(0o644)
    os.utime(file, (1, 1))
    for folder in place.parents:
        if folder == Path("/tmp"):
            break
        folder.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        try:
            os.setuid(pwd.getpwnam("drayuser1").pw_uid)
            mine = desk.take(ALONE) or []
            desk.refresh(mine[0])
            try:
                os.write(mine[0], b"x")
            except OSError:
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert file.stat().st_size == 0


def _hostile(place: Path) -> None:
    """What somebody may have put there, with and without a lock."""
    (place / "t-1").symlink_to("/etc/passwd")
    os.mkfifo(place / "t-2")
    (place / "t-3").mkdir()
    (place / "t-4").write_bytes(b"\xff" * 100)
    (place / "t-5").write_text("[" * 100_000)
    (place / "t-6").write_text("{}")
    (place / "t-7").symlink_to("t-7")
    (place / "t-08").write_text("{}")
    (place / "t-9\n").write_text("{}")
    (place / "other").write_text("x")
    wrong: list[dict[str, object]] = [
        {"wants": {"gpus": 1e99}},
        {"wants": {"gpus": -1}},
        {"wants": {"ids": ["x"] * 100}},
        {"wants": {"model": "\x1b[2J"}},
        {"gpus": [["x"]]},
        {"gpus": "all"},
        {"since": "now"},
        {"run": ["x"]},
    ]
    for number, words in enumerate(wrong, 20):
        whole = {"v": 1, "pid": 1, "run": "x", "wants": {}, "ready": True, "gpus": None, "since": 1.0}
        (place / f"t-{number}").write_text(json.dumps({**whole, **words}))


def test_hostile_files_are_no_tickets_and_hold_nobody_up(desk: Desk, place: Path) -> None:
    _hostile(place)
    locked = []
    for file in place.iterdir():
        if file.is_file() and not file.is_symlink():
            locked.append(open(file))
            fcntl.flock(locked[-1], fcntl.LOCK_EX)

    number, fd = desk.draw(TICKET)
    began = time.monotonic()
    assert [ticket.number for ticket in desk.tickets()] == [number] == [28]
    assert time.monotonic() - began < 1
    os.close(fd)
    for one in locked:
        one.close()


def test_a_ticket_is_its_owners_whatever_it_says(desk: Desk, place: Path) -> None:
    make_user("drayuser1")
    number, fd = desk.draw(TICKET)
    subprocess.run(["chown", "drayuser1", place / f"t-{number}"], check=True)

    (ticket,) = desk.tickets()
    assert ticket.uid != os.getuid()
    os.close(fd)
    assert desk.tickets(lambda dead: pytest.fail("another user's run is not ours to end")) == []


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_lease_that_is_none_is_passed_and_its_owner_named(desk: Desk, place: Path, kind: str) -> None:
    file = place / f"gpu-{UUID}"
    if kind == "link":
        file.symlink_to("/etc/passwd")
    elif kind == "folder":
        file.mkdir()
    else:
        os.mkfifo(file)

    assert desk.locked([UUID]) == {UUID}
    assert "root or an admin has to remove it" in desk.trouble[UUID]
    with pytest.raises(NoDesk, match="root or an admin"):
        desk.take(ALONE)


def test_who_has_not_said_for_long_that_it_is_ready_is_not(desk: Desk, place: Path) -> None:
    number, fd = desk.draw(TICKET)
    assert desk.tickets()[0].ready
    os.utime(place / f"t-{number}", (1, 1))
    assert not desk.tickets()[0].ready
    desk.write(fd, TICKET)
    wait_until(lambda: desk.tickets()[0].ready)
    os.close(fd)


def test_the_last_number_is_an_error_that_names_it(desk: Desk, place: Path) -> None:
    (place / "t-999999999").touch()
    with pytest.raises(NoDesk, match="t-999999999"):
        desk.draw(TICKET)
    assert [file.name for file in place.iterdir()] == ["t-999999999"]
