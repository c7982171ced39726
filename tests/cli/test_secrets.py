"""Where the values of secrets come from, and where they never go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell

SHOW = "import os; print(os.environ['TOKEN'][::-1])\n"  # backwards: a masked value would not be seen
VALUE = "hush-hush-1234"
BACKWARDS = VALUE[::-1].encode() + b"\n"


@pytest.fixture
def ready(shell: Shell) -> Shell:
    """A script that shows the secret it was given."""
    shell.write("env.py", SHOW)
    return shell


def everything_below(folder: Path) -> bytes:
    """All bytes that lie there."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_secret_comes_from_the_environment(ready: Shell) -> None:
    done = ready.dray("submit", "--secret", "TOKEN", "env.py", env={"TOKEN": VALUE})

    assert done.stdout == BACKWARDS


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_secret_comes_from_a_file_without_its_last_newline(ready: Shell, ending: str) -> None:
    file = ready.home.parent / "token"
    file.write_bytes((VALUE + ending).encode())

    done = ready.dray("submit", "--secret", f"TOKEN=@{file}", "env.py")

    assert done.stdout == BACKWARDS


def test_a_secret_is_written_nowhere(ready: Shell) -> None:
    ready.dray("submit", "--secret", "TOKEN", "env.py", env={"TOKEN": VALUE})

    assert b"env.py" in everything_below(ready.home)
    assert VALUE.encode() not in everything_below(ready.home)


def test_a_value_on_the_command_line_is_refused_with_the_reason_and_not_repeated(ready: Shell) -> None:
    done = ready.dray("submit", "--secret", f"TOKEN={VALUE}", "env.py")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"every process" in done.stderr
    assert b"TOKEN=@FILE" in done.stderr
    assert VALUE.encode() not in done.stderr


def test_a_secret_without_any_value_names_the_ways_to_give_one(ready: Shell) -> None:
    done = ready.dray("submit", "--secret", "TOKEN", "env.py")

    assert done.returncode == 2
    for way in (b"export TOKEN", b"TOKEN=@FILE", b"keyring set dray TOKEN"):
        assert way in done.stderr


@pytest.mark.parametrize(
    ("word", "value", "trouble"),
    [
        ("TOKEN", "", "is empty"),
        ("TOKEN=@/no/such/file", None, "cannot be read"),
        ("=@x", None, "needs a name"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused(
    ready: Shell, word: str, value: str | None, trouble: str
) -> None:
    done = ready.dray("submit", "--secret", word, "env.py", env={} if value is None else {"TOKEN": value})

    assert done.returncode == 2
    assert trouble in done.stderr.decode()


def test_the_same_name_as_secret_and_as_variable_is_refused(ready: Shell) -> None:
    done = ready.dray("submit", "-e", "TOKEN=x", "--secret", "TOKEN", "env.py", env={"TOKEN": VALUE})

    assert done.returncode == 2


KEYRING = """
import os
from keyring.backend import KeyringBackend

class Pocket(KeyringBackend):
    priority = 1

    def get_password(self, service, username):
        return os.environ["POCKET"] if (service, username) == ("dray", "TOKEN") else None

    def set_password(self, service, username, password):
        raise NotImplementedError

    def delete_password(self, service, username):
        raise NotImplementedError
"""


def test_a_secret_comes_from_the_keyring(ready: Shell) -> None:
    pytest.importorskip("keyring")
    lib = ready.home.parent / "lib"
    lib.mkdir()
    (lib / "pocket.py").write_text(KEYRING)
    env = {"PYTHONPATH": str(lib), "PYTHON_KEYRING_BACKEND": "pocket.Pocket", "POCKET": VALUE}

    found = ready.dray("submit", "--secret", "TOKEN", "env.py", env=env)
    environment_first = ready.dray(
        "submit", "--secret", "TOKEN", "env.py", env={**env, "TOKEN": "other-value"}
    )
    nothing = ready.dray("submit", "--secret", "OTHER", "env.py", env=env)

    assert found.stdout == BACKWARDS
    assert environment_first.stdout == b"eulav-rehto\n"
    assert nothing.returncode == 2
