"""What ssh says, and what we understand of it: recorded words of real clients, and words that want to look like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.hosts.questions import Question
from dray.hosts.ssh.host import Stored
from dray.hosts.ssh.words import fingerprint, read_config, read_question, trouble

NEW_KEY = """The authenticity of host '[10.0.0.5]:2222 ([10.0.0.5]:2222)' can't be established.
ED25519 key fingerprint is SHA256:jL6XlYlX2dGQp0S7zBXcQbH1hyN2i1k4wqzH9qfQm2s.
This key is not known by any other names.
Are you sure you want to continue connecting (yes/no/[fingerprint])? """
CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
The fingerprint for the ED25519 key sent by the remote host is
SHA256:new.
Offending ED25519 key in /home/ana/my hosts:3
Host key for [10.0.0.5]:2222 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("prompt", "kind", "about"),
    [
        ("ana@10.0.0.5's password: ", "password", "ana@10.0.0.5"),
        ("(ana@10.0.0.5) Password: ", "password", "ana@10.0.0.5"),
        ("(ana@gpu1) Password for ana@EXAMPLE.ORG: ", "password", "ana@gpu1"),
        ("(ana@gpu1) One-time password (OATH) for `ana': ", "code", "ana@gpu1"),
        ("(ana@gpu1) Duo two-factor login for ana\n\nPasscode or option (1-3): ", "code", "ana@gpu1"),
        ("(ana@gpu1) Verification code: ", "code", "ana@gpu1"),
        ("Enter passphrase for key '/home/ana/.ssh/id_ed25519': ", "passphrase", "/home/ana/.ssh/id_ed25519"),
        (
            "Enter passphrase for key '/home/ana/it's mine/id_x': ",
            "passphrase",
            "/home/ana/it's mine/id_x",
        ),
        (NEW_KEY, "host-key", "[10.0.0.5]:2222"),
        ("Confirm user presence for key ED25519-SK SHA256:x", "code", ""),
        ("", "code", ""),
    ],
)
def test_what_is_asked_is_understood(prompt: str, kind: str, about: str) -> None:
    question = read_question(prompt)
    assert (question.kind, question.about) == (kind, about)


def test_a_new_key_is_named_by_kind_and_fingerprint() -> None:
    found = fingerprint(read_question(NEW_KEY))
    assert found == ("ED25519", "SHA256:jL6XlYlX2dGQp0S7zBXcQbH1hyN2i1k4wqzH9qfQm2s")


@given(st.text())
def test_no_question_is_taken_for_a_password_by_what_it_says_before_the_end(text: str) -> None:
    """A hostile server writes the prompt of keyboard-interactive; ssh puts in front of it who asks."""
    question = read_question(f"(eve@evil) {text}'s password: ")
    assert question.kind != "password" or question.about == "eve@evil"


def test_a_secret_goes_to_its_own_question_once() -> None:
    kept = {("password", "ana@gpu1"): "s3cret"}
    answer = Stored(lambda question: kept.get((question.kind, question.about)))

    assert answer(read_question("(eve@jump) Password: ")) is None
    assert answer(read_question("(ana@gpu1) ana@gpu1's one-time code: ")) is None
    assert answer(Question("password", "Password:", "")) is None
    assert answer(read_question("ana@gpu1's password: ")) == "s3cret"
    assert (
        answer(read_question("ana@gpu1's password: ")) is None
    )  # it was wrong: saying it again locks people out


@pytest.mark.parametrize(
    ("said", "code", "says"),
    [
        (CHANGED, "host-key-changed", "ssh-keygen -f '/home/ana/my hosts' -R '[10.0.0.5]:2222'"),
        ("ana@gpu1: Permission denied (publickey,password).", "login-needed", "dray ssh gpu1"),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "host-unreachable", "Host` in"),
        (
            "ssh: connect to host gpu1 port 22: Connection refused",
            "host-unreachable",
            "listens on that port",
        ),
        ("ssh: connect to host gpu1 port 22: Connection timed out", "host-unreachable", "is the machine on"),
        ("Connection closed by 10.0.0.5 port 22", "host-unreachable", "hung up"),
        ("channel 0: open failed: stdio forwarding failed", "host-unreachable", "jump host"),
        ("/home/ana/.ssh/config: line 3: Bad configuration option: portt", "ssh-config-broken", "portt"),
    ],
)
def test_what_went_wrong_is_told_in_our_words(said: str, code: str, says: str) -> None:
    found = trouble(said, 255, "gpu1", "ana@gpu1", None)
    assert found is not None
    assert found.code == code
    assert says in f"{found.what} {found.why} {found.hint}"


@pytest.mark.parametrize(
    "said",
    [
        "bash: line 1: exec: python3: not found",
        "fish: Unknown command: python3",
        "python3: Command not found.",
    ],
)
def test_a_missing_python_is_told_apart_from_a_missing_link(said: str) -> None:
    found = trouble(said, 127, "gpu1", "ana@gpu1", None)
    assert found is not None
    assert found.code == "host-python-missing"


@given(st.text(), st.integers(1, 255))
def test_no_words_of_a_server_break_us_or_command_a_terminal(said: str, code: int) -> None:
    found = trouble(said, code, "gpu1", "ana@gpu1", None)
    assert found is None or "\x1b" not in f"{found.what} {found.why} {found.hint}"


def test_the_users_configuration_is_read_as_ssh_spells_it_out() -> None:
    config = read_config(
        "user ana\nhostname 10.0.0.5\nport 2222\nproxyjump none\nproxycommand nc -x p %h %p\nhostkeyalias lab\n"
        "userknownhostsfile /home/ana/my hosts /home/ana/.ssh/known_hosts2\ncontrolpath none\n"
    )
    assert (config.who, config.port, config.through) == ("ana@lab", 2222, "nc -x p %h %p")
    assert config.known_hosts == ["/home/ana/my hosts", "/home/ana/.ssh/known_hosts2"]
    assert not config.has("controlpath")
