"""What a client can ask about the environments of a machine."""

from __future__ import annotations

import shutil

import pytest

from dray.hosts.errors import MachineRefused
from tests.runner.environments.world import Builder, Index, wants
from tests.runner.machines import wait_until

SHOW = "import apple; print(apple.VERSION)"


def test_the_list_says_what_each_is_and_when_it_was_used(builder: Builder) -> None:
    builder.run(SHOW, environment=wants("pear"))
    (row,) = [answer["environment"] for answer in builder.all(list=True)]

    assert row["name"] == builder.folders()[0].name
    assert (row["kind"], row["packages"], row["complete"], row["busy"], row["frozen"]) == (
        "uv",
        2,
        True,
        False,
        True,
    )
    assert row["bytes"] > 1000
    assert row["digest"] == wants("pear")["digest"]
    assert abs(row["used"] - row["built"]) < 60
    assert row["built_s"] > 0


def test_a_machine_without_environments_has_an_empty_list(builder: Builder) -> None:
    assert builder.all(list=True) == []


def test_what_is_being_built_names_its_builder(builder: Builder, index: Index) -> None:
    index.silent = lambda path: path.startswith("/files/pear")
    run = builder.submit(SHOW, environment=wants("pear"))
    wait_until(lambda: any(path.startswith("/files/pear") for path in index.asked))
    (row,) = [answer["environment"] for answer in builder.all(list=True)]

    assert (row["complete"], row["busy"], row["run"]) == (False, True, run)
    with builder.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0.0, "by": "ana"})
    builder.follow(run)
    index.given_up.set()


def test_one_is_shown_with_its_spec_its_packages_and_what_was_resolved(builder: Builder) -> None:
    heard = builder.run(SHOW, environment=wants("pear"))
    answer, lock = builder.ask(show=wants("pear")["digest"][:8])

    found = answer["environment"]
    assert found["spec"]["packages"] == ["pear"]
    assert found["installed"] == [["apple", "1.0"], ["pear", "1.0"]]
    assert lock == heard.streams["lock.environment"]
    assert found["lock"] == heard.events("environment")[0]["lock"]


@pytest.mark.parametrize("name", ["", "ffffffff", "../../runs", "."])
def test_one_that_is_not_there_is_an_error(builder: Builder, name: str) -> None:
    builder.run(SHOW, environment=wants("pear"))
    with pytest.raises(MachineRefused, match="there is no environment"):
        builder.ask(show=name)


def test_what_a_run_would_meet_can_be_asked_before(builder: Builder) -> None:
    before, _ = builder.ask(find=wants("pear"))
    builder.run(SHOW, environment=wants("pear"))
    after, _ = builder.ask(find=wants("pear"))

    assert (before["complete"], before["frozen"]) == (False, False)
    assert (after["complete"], after["frozen"]) == (True, True)
    assert after["name"] == before["name"] == builder.folders()[0].name


def test_removing_one_keeps_what_was_resolved_unless_that_goes_too(builder: Builder, index: Index) -> None:
    builder.run(SHOW, environment=wants("pear"))
    name = builder.folders()[0].name
    index.add("apple", "2.0")

    assert builder.all(remove=[name])[0]["gone"] == [["environment", name]]
    assert builder.folders() == []
    assert builder.run(SHOW, environment=wants("pear")).log == b"1.0\n"
    builder.all(remove=[name], frozen=True)
    assert builder.run(SHOW, environment=wants("pear")).log == b"2.0\n"


def test_one_that_a_run_uses_is_not_removed(builder: Builder) -> None:
    run = builder.submit("import time; print(1); time.sleep(60)", environment=wants("pear"))
    wait_until(lambda: builder.follow(run, wait=False).log)
    name = builder.folders()[0].name

    assert builder.all(remove=[name], frozen=True)[0]["kept"] == [["environment", name, "a run uses it"]]
    assert builder.ask(find=wants("pear"))[0]["frozen"]
    with builder.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0.0, "by": "ana"})
    builder.follow(run)


@pytest.mark.parametrize("name", ["../runs", "x", "a" * 24 + "-x86_64-py3.11/../.."])
def test_nothing_else_is_removed_under_the_name_of_an_environment(builder: Builder, name: str) -> None:
    builder.run(SHOW, environment=wants("pear"))

    assert builder.all(remove=[name], frozen=True)[0]["gone"] == []
    assert len(builder.folders()) == 1


def test_the_pythons_and_builders_of_the_machine_are_told(builder: Builder) -> None:
    answer, _ = builder.ask(pythons=True)

    assert all(version.startswith("3.") for version, _ in answer["pythons"])
    assert any(shutil.which(path) for _, path in answer["pythons"])
    assert answer["platform"]
    assert answer["libc"][0] in ("glibc", "musl")
