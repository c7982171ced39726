"""The commands that build an environment: what they are told, and by whom."""

from __future__ import annotations

import os

from dray.runner.environments.variables import build_variables

BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")


def test_a_build_trusts_whom_the_machine_trusts() -> None:
    env = build_variables({"PATH": "/bin"})

    trusts = env.get("UV_SYSTEM_CERTS") == env.get("UV_NATIVE_TLS") == "true"
    assert trusts or not any(map(os.path.exists, BUNDLES))


def test_whom_a_build_trusts_is_the_users_word_where_there_is_one() -> None:
    for name in ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS"):
        assert build_variables({name: "false", "A": "b"}) == {name: "false", "A": "b"}


def test_a_build_is_not_told_of_the_shells_own_python() -> None:
    theirs = {"VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "PYTHONPATH": "/p"}

    assert not theirs.keys() & build_variables(theirs).keys()
