"""What a run in a container shares with the world around it: ports on a network of its own, and whom it trusts."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell, wait_until
from tests.docker.world import BASE, Docker, require

_SERVE = (
    "import http.server, pathlib\n"
    "pathlib.Path('hello.txt').write_text('from inside')\n"
    "http.server.ThreadingHTTPServer(('0.0.0.0', 7007), http.server.SimpleHTTPRequestHandler).serve_forever()\n"
)


@pytest.fixture
def bridge(docker: Docker) -> Iterator[str]:
    """A network of the engine's whose containers have addresses of their own."""
    name = "dray-test-bridge"
    made = docker.docker("network", "create", "--subnet", "10.231.7.0/24", name, check=False)
    if not made:
        require("docker", "no bridge can be made here")
    yield name
    docker.docker("network", "rm", name)


def test_a_port_in_a_container_on_a_bridge_is_brought_here(shell: Shell, bridge: str) -> None:
    shell.write("serve.py", _SERVE)
    run = shell.detached("--network", bridge, "--image", BASE, "serve.py")
    with shell.start("forward", run, "7007") as forward:
        try:
            assert forward.stdout
            url = forward.stdout.readline().decode().split()[-1]
            with urllib.request.urlopen(f"{url}/hello.txt", timeout=20) as answer:
                assert answer.read() == b"from inside"
        finally:
            forward.terminate()
            forward.communicate(timeout=20)
    shell.dray("cancel", run, "--grace", "0")
    wait_until(lambda: json.loads(shell.dray("show", run, "--json").stdout)["status"] == "canceled")


def test_programs_inside_trust_the_bundle_that_was_named(shell: Shell, tmp_path: Path) -> None:
    for name in ("good", "other"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", tmp_path / f"{name}.key",
             "-out", tmp_path / f"{name}.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
        (tmp_path / f"{name}.pem").chmod(0o644)
    server = subprocess.Popen(
        ["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", tmp_path / "good.pem", "-key", tmp_path / "good.key", "-www"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert server.stdout
        line = server.stdout.readline().decode()
        while not line.startswith("ACCEPT"):
            line = server.stdout.readline().decode()
        port = line.strip().rpartition(":")[2]
        shell.write(
            "ask.py",
            "import ssl, urllib.request, sys, urllib.error\n"
            "try:\n    print(urllib.request.urlopen('https://localhost:' + sys.argv[1]).status)\n"
            "except urllib.error.URLError as e:\n    print(type(e.reason).__name__)\n",
        )
        words = ["--network", "host", "--image", BASE]
        trusted = shell.dray("submit", *words, "--ca-bundle", str(tmp_path / "good.pem"), "ask.py", port)
        other = shell.dray("submit", *words, "--ca-bundle", str(tmp_path / "other.pem"), "ask.py", port)
    finally:
        server.kill()
        server.communicate()

    assert trusted.stdout == b"200\n", (trusted.stdout, trusted.stderr.decode())
    assert other.stdout == b"SSLCertVerificationError\n", other.stderr.decode()
    missing = shell.dray("submit", "--image", BASE, "--ca-bundle", "/no/such.pem", "ask.py", "1")
    assert missing.returncode == 125
    assert b"there is no bundle of certificates on the machine" in missing.stderr
