"""Who may start: decided from values alone, so every order of events can be tried."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.runner.queue import turn
from dray.runner.queue.turn import Scene, Ticket
from dray.runner.queue.wants import Impossible, Unit, Wants, check, of_spec, size

GB = 10**9
A0 = Unit("GPU-a0", "NVIDIA A100-SXM4-80GB", 0, 80 * GB)
A1 = Unit("GPU-a1", "NVIDIA A100-SXM4-80GB", 1, 80 * GB)
K80 = Unit("GPU-k0", "Tesla K80", 2, 12 * GB)
PART = Unit("MIG-p0", "NVIDIA A100 MIG 1g.10gb", 3, 10 * GB, part=0)


def scene(*units: Unit, cores: int = 8, locked: Sequence[str] = ()) -> Scene:
    return Scene(units, cores, frozenset(locked))


def waits(number: int, *, ready: bool = True, **wants: Any) -> Ticket:
    return Ticket(number, Wants(**wants), ready)


def holds(number: int, *uuids: str, memory: int | None = None, cpus: int = 0) -> Ticket:
    wants = Wants(gpus=len(uuids), memory=memory, share=memory is not None, cpus=cpus)
    return Ticket(number, wants, True, tuple((uuid, memory) for uuid in uuids))


def starts(tickets: list[Ticket], where: Scene) -> dict[int, list[str]]:
    return {number: [uuid for uuid, _ in held] for number, held in turn.grants(tickets, where).items()}


def test_first_come_first_served() -> None:
    tickets = [waits(3, gpus=1), waits(1, gpus=1), waits(2, gpus=1)]

    assert starts(tickets, scene(A0, A1)) == {1: ["GPU-a0"], 2: ["GPU-a1"]}


def test_a_small_wish_does_not_pass_a_big_one_that_waits() -> None:
    tickets = [holds(1, "GPU-a0"), waits(2, gpus=2), waits(3, gpus=1)]

    assert starts(tickets, scene(A0, A1)) == {}


def test_what_the_first_could_not_use_anyway_is_free_to_others() -> None:
    tickets = [holds(1, "GPU-a0"), waits(2, gpus=2, model="a100"), waits(3, gpus=1), waits(4, cpus=2)]

    assert starts(tickets, scene(A0, A1, K80)) == {3: ["GPU-k0"], 4: []}


def test_who_is_not_ready_is_passed_and_keeps_its_place() -> None:
    where = scene(A0)

    assert starts([waits(1, gpus=1, ready=False), waits(2, gpus=1)], where) == {2: ["GPU-a0"]}
    assert starts([waits(1, gpus=1), waits(2, gpus=1)], where) == {1: ["GPU-a0"]}
    assert turn.place_of(2, [waits(1, ready=False), waits(2), holds(7, "GPU-a0")]) == (2, 2)


def test_what_others_use_without_dray_counts_as_taken_and_is_named() -> None:
    used = A0._replace(users=((4711, 1000),))
    tickets = [waits(1, gpus=1)]

    assert starts(tickets, scene(used)) == {}
    assert turn.in_the_way(1, tickets, scene(used)) == [(1000, "GPU-a0", 0.0)]


def test_a_lease_that_no_ticket_tells_of_counts_too() -> None:
    assert starts([waits(1, gpus=1)], scene(A0, A1, locked=["GPU-a0"])) == {1: ["GPU-a1"]}


def test_sharing_goes_by_declared_memory() -> None:
    half: dict[str, Any] = {"gpus": 1, "share": True, "memory": 40 * GB}
    tickets = [waits(n, **half) for n in (1, 2, 3)]

    assert starts(tickets, scene(A0)) == {1: ["GPU-a0"], 2: ["GPU-a0"]}
    assert starts([holds(1, "GPU-a0"), waits(2, **half)], scene(A0)) == {}
    assert starts([holds(1, "GPU-a0", memory=GB), waits(2, gpus=1)], scene(A0)) == {}
    greedy = A0._replace(used=60 * GB)  # it declared less than it uses
    assert starts([holds(1, "GPU-a0", memory=GB), waits(2, **half)], scene(greedy)) == {}


def test_a_wish_for_memory_takes_the_smallest_that_is_enough() -> None:
    assert starts([waits(1, gpus=1, memory=8 * GB)], scene(A0, K80)) == {1: ["GPU-k0"]}
    assert starts([waits(1, gpus=1, memory=20 * GB)], scene(A0, K80)) == {1: ["GPU-a0"]}


def test_cores_are_counted_and_kept_for_who_waits_for_them() -> None:
    tickets = [holds(1, cpus=6), waits(2, cpus=4), waits(3, cpus=1), waits(4, gpus=1)]

    assert starts(tickets, scene(A0, cores=8)) == {4: ["GPU-a0"]}
    assert starts(tickets[1:], scene(A0, cores=8)) == {2: [], 3: [], 4: ["GPU-a0"]}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"count": 3}, "3 GPUs are asked for, and the machine has 2 x NVIDIA A100-SXM4-80GB (0, 1; 80 GB)"),
        ({"count": 1, "model": "h100"}, "1 h100 GPU is asked for, and the machine has"),
        ({"count": 1, "memory": 100 * GB}, "1 GPU with 100 GB is asked for, and the machine has"),
        ({"ids": ["5"]}, "`5` is no GPU of this machine"),
        ({"ids": ["GPU-a"]}, "`GPU-a` is no GPU of this machine"),
        ({"ids": ["0", "GPU-a0"]}, "the same GPU is named twice"),
        ({"count": -1}, "makes no sense"),
        ({"count": 1, "share": True}, "how much memory"),
    ],
)
def test_what_can_never_be_is_refused_with_what_there_is(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words.replace("(", r"\(").replace(")", r"\)")):
        check(of_spec({"gpus": asked}, [A0, A1]), [A0, A1], 8)


def test_more_cores_than_there_are_are_refused() -> None:
    with pytest.raises(Impossible, match="9 cores are asked for, and the machine has 8"):
        check(Wants(cpus=9), [], 8)
    with pytest.raises(Impossible, match="1 GPU is asked for, and there is no driver"):
        check(Wants(gpus=1), [], 8, "there is no driver")


def test_the_default_is_one_where_there_is_one() -> None:
    assert of_spec({"gpus": {"count": None}}, [A0, A1]).gpus == 1
    assert of_spec({"gpus": {"count": None}}, []).gpus == 0
    assert of_spec({"gpus": {"count": "all"}}, [A0, A1]).gpus == 2
    assert of_spec({}, [A0]).gpus == 0


def test_names_are_found_by_index_part_and_beginning() -> None:
    units = [A0, A1, PART]
    wishes = (["0", "GPU-a1"], ["3/0"], ["mig-p0"])
    assert [of_spec({"gpus": {"ids": ids}}, units).ids for ids in wishes] == [
        ("GPU-a0", "GPU-a1"), ("MIG-p0",), ("MIG-p0",)
    ]  # fmt: skip


def test_sizes_read_as_people_say_them() -> None:
    assert [size(n) for n in (20 * GB, 80 << 30, 12 << 20, 7)] == ["20 GB", "80 GiB", "12 MiB", "7 bytes"]


UNITS = (A0, A1, A0._replace(uuid="GPU-a2", slot=2), K80._replace(slot=3))


def _possible(wants: Wants) -> bool:
    try:
        check(wants, UNITS, 4)
    except Impossible:
        return False
    return wants.is_anything


WISHES = [
    wants
    for gpus, model, memory, share, cpus in itertools.product(
        range(4), (None, "a100", "k80"), (None, 8 * GB, 40 * GB), (False, True), range(5)
    )
    if _possible(wants := Wants(gpus, model, (), memory, share, cpus))
]


def _story(arrivals: list[tuple[int, Wants, int]], seed: int) -> dict[int, int]:
    """Play it through: (arrival, wish, duration) each; number -> when it started. Checks every step for double grants."""
    starts_at: dict[int, int] = {}
    tickets: dict[int, Ticket] = {}
    ends: list[tuple[int, int]] = []
    times = sorted({at for at, _, _ in arrivals})
    while times or ends:
        now = min([*times[:1], *([ends[0][0]] if ends else [])])
        times = [at for at in times if at > now]
        while ends and ends[0][0] <= now:
            del tickets[heapq.heappop(ends)[1]]
        for number, (at, wants, _) in enumerate(arrivals, 1):
            if at == now:
                tickets[number] = Ticket(number, wants, ready=True)
        # Who asks first is chance; each takes only what is its own.
        order = list(tickets)
        random.Random(seed + now).shuffle(order)
        for number in order:
            held = turn.grants(list(tickets.values()), Scene(UNITS, 4)).get(number)
            if held is not None:
                tickets[number] = tickets[number]._replace(holds=held)
                starts_at[number] = now
                heapq.heappush(ends, (now + arrivals[number - 1][2], number))
                _check_nothing_is_granted_twice(tickets)
    return starts_at


def _check_nothing_is_granted_twice(tickets: dict[int, Ticket]) -> None:
    alone = [u for t in tickets.values() for u, memory in t.holds or () if memory is None]
    shared: dict[str, int] = {}
    for ticket in tickets.values():
        for uuid, memory in ticket.holds or ():
            if memory is not None:
                shared[uuid] = shared.get(uuid, 0) + memory
    assert len(alone) == len(set(alone))
    assert not set(alone) & set(shared)
    room = {unit.uuid: unit.memory or 0 for unit in UNITS}
    assert all(declared <= room[uuid] for uuid, declared in shared.items())
    assert sum(t.wants.cpus for t in tickets.values() if t.holds is not None) <= 4


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from(WISHES), st.integers(1, 9)), min_size=2, max_size=9
    ),
    st.integers(0, 1000),
)
def test_who_comes_later_never_delays_who_came_before(
    arrivals: list[tuple[int, Wants, int]], seed: int
) -> None:
    arrivals = sorted(arrivals, key=lambda row: row[0])
    all_of_them = _story(arrivals, seed)
    assert len(all_of_them) == len(arrivals), "everybody starts at last"

    for number in range(1, len(arrivals)):
        without_later_ones = _story(arrivals[:number], seed)
        assert all_of_them[number] == without_later_ones[number]
