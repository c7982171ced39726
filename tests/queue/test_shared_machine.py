"""Several users, two GPUs, and death at random: nothing is granted twice, and everybody's turn comes in order."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from dray.runner.queue.turn import Ticket
from tests.queue.people import Person, SharedMachine
from tests.runner.machines import is_alive, kill, people_of, wait_until

USERS = ("drayuser1", "drayuser2", "drayuser3")


def _drawn(shared: SharedMachine, run: str) -> Ticket:
    found: Ticket = wait_until(lambda: (seen := shared.ticket(run)) and seen.ready and seen)
    return found


def _blocked(shared: SharedMachine, person: Person) -> str:
    """All GPUs are held, so that whatever comes now has to wait."""
    run = shared.job(person, 300, gpus={"count": 2})
    wait_until(lambda: run in shared.started())
    return run


def _end(person: Person, run: str) -> None:
    with person.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0})
    person.follow(run)


@pytest.mark.parametrize("seed", range(2))
def test_three_users_twenty_jobs_and_random_kills_nothing_double_and_all_in_order(
    shared: SharedMachine, seed: int
) -> None:
    chance = random.Random(seed)
    people = [shared.person(user) for user in USERS]
    blocker = _blocked(shared, people[0])
    jobs = []
    for _ in range(20):
        person = chance.choice(people)
        run = shared.job(person, chance.uniform(0.1, 0.4))
        jobs.append((run, person))
        _drawn(shared, run)
    queue = [run for run, _ in jobs]
    doomed = chance.sample(queue[4:], 4)
    kill(*[_drawn(shared, run).pid for run in doomed[:2]])  # while they wait
    doomed_later = set(doomed[2:])
    _end(people[0], blocker)

    killed: set[str] = set()
    victims = chance.sample([run for run in queue if run not in doomed[:2]], 3) + list(doomed_later)
    ways = dict(zip(victims, ["runner", "guard", "both", "both", "runner"], strict=True))

    def all_over() -> bool:
        for run, pid in shared.started().items():
            if run in ways and run not in killed and is_alive(pid):
                killed.add(run)
                try:
                    runner, guard = people_of(pid)
                    dying = {"runner": [runner], "guard": [guard], "both": [runner, guard]}[ways[run]]
                    if len(dying) == 2:
                        os.kill(runner, signal.SIGSTOP)  # so that none has time to see the other's death
                    kill(*reversed(dying))
                except (OSError, ValueError):
                    pass  # it was over before we came
        return not shared.tickets()

    wait_until(all_over, 60)
    assert not shared.was_ever_double()
    times = {run: person.granted_at(run) for run, person in jobs}
    assert {run for run, when in times.items() if not when} == set(doomed[:2])
    assert sorted(queue, key=lambda run: times[run])[2:] == [r for r in queue if times[r]], (
        "strictly in order"
    )
    assert set(shared.started()) == {blocker, *queue} - set(doomed[:2])
    assert killed, "at least one was killed while it ran"


def test_a_gpu_is_free_within_two_seconds_of_its_holders_death(shared: SharedMachine) -> None:
    ana, ben = shared.person(USERS[0]), shared.person(USERS[1])
    for dying in ("runner", "guard", "both"):
        holder = _blocked(shared, ana)
        next_one = shared.job(ben, 0)
        _drawn(shared, next_one)
        script = shared.started()[holder]
        runner, guard = people_of(script)
        os.kill(runner, signal.SIGSTOP)
        began = time.monotonic()
        kill(*{"runner": [runner], "guard": [guard], "both": [guard, runner]}[dying])
        os.kill(runner, signal.SIGCONT) if dying == "guard" else None
        wait_until(lambda: next_one in shared.started())  # noqa: B023 # it is waited for right here
        assert time.monotonic() - began < 2.0, dying
        assert not is_alive(script)
        assert ben.follow(next_one).kind == "done"
    assert not shared.was_ever_double()


def test_place_and_holders_are_shown_while_it_waits(shared: SharedMachine) -> None:
    ana, ben = shared.person(USERS[0]), shared.person(USERS[1])
    holder = _blocked(shared, ana)
    first = shared.job(ben, 0)
    _drawn(shared, first)
    second = shared.job(ben, 0, gpus={"count": 1, "default": "gpu1"})

    said = wait_until(lambda: ben.queued(second))[-1]
    assert (said["place"], said["of"], said["wants"], said["default"]) == (2, 2, "1 GPU", "gpu1")
    assert [(one["user"], one["gpu"]) for one in said["holders"]] == [(USERS[0], "0"), (USERS[0], "1")]

    _end(ben, first)
    wait_until(lambda: ben.queued(second)[-1]["place"] == 1)
    _end(ana, holder)
    assert ben.follow(second).states == [
        "preparing",
        *["queued"] * len(ben.queued(second)),
        "running",
        "finalizing",
    ]


def test_a_cancel_while_it_waits_ends_it_and_gives_its_place_away(shared: SharedMachine) -> None:
    ana = shared.person(USERS[0])
    holder = _blocked(shared, ana)
    waiting = shared.job(ana, 0)
    _drawn(shared, waiting)

    began = time.monotonic()
    with ana.connect() as connection:
        connection.call({"op": "cancel", "run": waiting, "by": "ana"})
    heard = ana.follow(waiting)
    assert time.monotonic() - began < 2
    assert (heard.end["state"], heard.kind) == ("canceled", "cancelled")
    assert [ticket.run for ticket in shared.tickets()] == [holder]
    assert waiting not in shared.started()
    _end(ana, holder)


def test_a_guard_killed_while_it_waits_starts_nothing(shared: SharedMachine) -> None:
    ana = shared.person(USERS[0])
    holder = _blocked(shared, ana)
    waiting = shared.job(ana, 0)
    runner = _drawn(shared, waiting).pid
    kill(*map(int, Path(f"/proc/{runner}/task/{runner}/children").read_text().split()))

    assert ana.follow(waiting).kind == "not-started"
    assert shared.ticket(waiting) is None
    _end(ana, holder)


def test_who_uses_a_gpu_without_dray_is_waited_for_and_named(shared: SharedMachine) -> None:
    ana = shared.person(USERS[0])
    shared.driver.used(0, os.getpid(), 90)
    shared.driver.used(1, os.getpid(), 90)
    waiting = shared.job(ana, 0)

    said = wait_until(lambda: ana.queued(waiting))[-1]
    assert said["holders"] == [
        {"user": "root", "gpu": "0", "since": None},
        {"user": "root", "gpu": "1", "since": None},
    ]
    shared.driver.says(f"1.gone {os.getpid()}")
    assert ana.follow(waiting).kind == "done"


def test_a_stopped_runner_at_the_head_is_passed_and_keeps_its_place(shared: SharedMachine) -> None:
    ana, ben = shared.person(USERS[0]), shared.person(USERS[1])
    holder = _blocked(shared, ana)
    head = shared.job(ana, 0)
    stopped = _drawn(shared, head)
    second = shared.job(ben, 0)
    _drawn(shared, second)
    os.kill(stopped.pid, signal.SIGSTOP)
    long_ago = time.time() - 60
    os.utime(shared.leases / f"t-{stopped.number}", (long_ago, long_ago))
    _end(ana, holder)

    assert ben.follow(second).kind == "done"
    assert shared.ticket(head).number == stopped.number
    os.kill(stopped.pid, signal.SIGCONT)
    assert ana.follow(head).kind == "done"


def test_a_lease_or_ticket_that_was_removed_or_aged_grants_nothing_twice(shared: SharedMachine) -> None:
    ana, ben = shared.person(USERS[0]), shared.person(USERS[1])
    holder = _blocked(shared, ana)
    waiting = shared.job(ben, 0)
    number = _drawn(shared, waiting).number

    for file in shared.leases.glob("gpu-*"):
        file.unlink()  # the holder's ticket tells of it all the same
    time.sleep(0.5)
    assert waiting not in shared.started()
    for uuid in shared.uuids:
        (shared.leases / f"gpu-{uuid}").touch(0o644)
    (shared.leases / f"t-{number}").unlink()  # it draws another one
    wait_until(lambda: (seen := shared.ticket(waiting)) and seen.ready)
    assert waiting not in shared.started()
    _end(ana, holder)
    assert ben.follow(waiting).kind == "done"
    assert not shared.was_ever_double()


def test_the_whole_folder_removed_is_made_again(shared: SharedMachine) -> None:
    ana = shared.person(USERS[0])
    holder = _blocked(shared, ana)
    waiting = shared.job(ana, 0)
    _drawn(shared, waiting)
    shared.leases.rename(shared.folder / "away")

    wait_until(lambda: shared.leases.exists() and shared.ticket(waiting))
    _end(ana, holder)
    assert ana.follow(waiting).end["state"] in ("completed", "failed")


def test_sharers_run_side_by_side_and_exclusive_ones_wait(shared: SharedMachine) -> None:
    people = [shared.person(user) for user in USERS]
    half = {"count": 1, "share": True, "memory": 35 << 30, "ids": ["0"]}
    # Two locks on one GPU of the test's own: sharing is what would be double elsewhere.
    code = "import time; print('begun', flush=True); time.sleep(300)"
    runs = [person.submit(code, gpus=half) for person in people[:2]]
    for person, run in zip(people, runs, strict=False):
        wait_until(lambda person=person, run=run: person.follow(run, wait=False).log)  # type: ignore[misc]
    third = people[2].submit(code, gpus=half)
    said = wait_until(lambda: people[2].queued(third))[-1]
    assert {one["user"] for one in said["holders"]} == {USERS[0], USERS[1]}
    _end(people[0], runs[0])
    wait_until(lambda: people[2].follow(third, wait=False).log)
    for person, run in ((people[1], runs[1]), (people[2], third)):
        _end(person, run)


def test_cores_make_a_queue_of_their_own(shared: SharedMachine) -> None:
    ana = shared.person(USERS[0])
    cores = len(os.sched_getaffinity(0))
    first = ana.submit("import time; time.sleep(300)", cpus=cores)
    wait_until(lambda: (seen := shared.ticket(first)) and seen.holds is not None)
    second = ana.submit("print('two')", cpus=1)

    assert wait_until(lambda: ana.queued(second))[-1]["wants"] == "1 core"
    _end(ana, first)
    assert ana.follow(second).log == b"two\n"
