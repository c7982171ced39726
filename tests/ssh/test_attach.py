"""A machine becomes a compute: logins of every kind, host keys, identity, second names, removal."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.cli.dray_shell import Shell
from tests.ssh.world import Server, World, wait_until


def address(server: Server) -> list[str]:
    return ["--address", f"{server.user}@{server.address}", "--port", str(server.port)]


def attached(shell: Shell, server: Server, name: str = "box") -> None:
    done = shell.dray("attach", "vm", name, *address(server))
    assert done.returncode == 0, done.stderr.decode() + server.log()


def test_a_host_of_the_users_configuration_is_attached_by_its_name_alone(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(
        f"Host gpu1\n  HostName {server.address}\n  Port {server.port}\n  User {server.user}\n"
        f'  IdentityFile "{world.client.key}"\n'
    )
    done = shell.dray("attach", "vm", "gpu1")

    assert (done.returncode, done.stdout) == (0, b"gpu1\n"), done.stderr.decode()
    shell.write("hello.py", "import os, getpass; print('hello from', getpass.getuser(), os.environ['HOME'])")
    run = shell.dray("submit", "-c", "gpu1", "hello.py")
    assert run.stdout.decode() == f"hello from {server.user} {server.home}\n", run.stderr.decode()


def test_a_key_file_is_enough(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    key = world.client.new_key("special key")
    server.let_in(key.with_suffix(".pub"))
    done = shell.dray("attach", "vm", "box", *address(server), "--identity-file", str(key))

    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(shell.dray("compute", "show", "box", "--json").stdout)["machine"]["user"] == server.user


def test_a_password_from_stdin_is_kept_and_never_seen(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    with shell.start("attach", "vm", "box", *address(server), "--password-stdin", stdin=True) as process:
        out, err = process.communicate((server.password + "\n").encode())
    assert process.returncode == 0, err.decode() + server.log()
    assert b"which only you can read" in err

    shell.dray("ssh", "box", "true")
    world.client.close()  # nothing is kept open: the next command has to log in again
    world.client.runtime.mkdir(mode=0o700)
    shell.write("hello.py", "print('in')")
    assert shell.dray("submit", "-c", "box", "hello.py").stdout == b"in\n"

    seen = [
        path for path in world.folder.rglob("*") if path.is_file() and not path.is_relative_to(server.folder)
    ]
    holding = [path for path in seen if server.password.encode() in path.read_bytes()]
    assert [path.name for path in holding] == ["login-secrets.json"]
    assert holding[0].stat().st_mode & 0o777 == 0o600
    assert server.password.encode() not in out + err


def test_the_words_of_old_attach_the_same_thing_with_a_warning(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    world.client.configure(f"Host {server.address}\n  Port {server.port}\n")
    done = shell.dray(
        *("computetarget", "attach", "remote", "--name", "my_vm", "--address", server.address),
        *("--username", server.user, "--password", server.password),
    )

    assert (done.returncode, done.stdout) == (0, b"my_vm\n"), done.stderr.decode()
    assert b"every process of this machine could read it" in done.stderr


def test_a_wrong_password_is_told_and_nothing_is_attached(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    done = shell.dray("attach", "vm", "box", *address(server), env={"DRAY_PASSWORD": "not-the-one"})

    assert done.returncode == 1
    assert b"is not the right one" in done.stderr
    assert server.log().count("Failed password") <= 1  # no lock-out by empty passwords
    assert shell.dray("compute", "show", "box").returncode == 2
    assert not (world.client.dray_home / "login-secrets.json").exists()


def test_a_key_with_a_passphrase_is_opened_by_what_was_kept(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    key = world.client.new_key("locked", "pass-phrase-7")
    server.let_in(key.with_suffix(".pub"))
    words = ("attach", "vm", "box", *address(server), "--identity-file", str(key))
    refused = shell.dray(*words)
    assert refused.returncode == 1
    assert b"wants its passphrase" in refused.stderr

    done = shell.dray(*words, env={"DRAY_PASSPHRASE": "pass-phrase-7"})
    assert done.returncode == 0, done.stderr.decode()
    world.client.close()
    world.client.runtime.mkdir(mode=0o700)
    assert shell.dray("compute", "check", "box").returncode == 0


def test_a_jump_host_with_a_password_of_its_own_never_gets_the_machines(world: World, shell: Shell) -> None:
    jump, inner = world.server(), world.server()
    world.client.trust(jump)
    world.client.trust(inner)
    world.client.configure(
        f"Host jump\n  HostName {jump.address}\n  Port {jump.port}\n  User {jump.user}\n"
        f"Host inner\n  HostName {inner.address}\n  Port {inner.port}\n  User {inner.user}\n  ProxyJump jump\n"
    )
    alone = shell.dray("attach", "vm", "inner", env={"DRAY_PASSWORD": inner.password})
    assert alone.returncode == 1
    assert f"{jump.user}@{jump.address}".encode() in alone.stderr  # it says who asked
    assert "Failed password" not in jump.log()  # the inner machine's password was not offered to it

    with shell.terminal("attach", "vm", "inner", columns=200) as terminal:
        terminal.until(f"{jump.user}@{jump.address}".encode())
        terminal.press(jump.password.encode() + b"\n")
        terminal.until(f"{inner.user}@{inner.address}".encode())
        terminal.press(inner.password.encode() + b"\n")
        assert terminal.ended() == 0, terminal.seen.decode() + inner.log()

    world.client.close()
    world.client.runtime.mkdir(mode=0o700)
    assert shell.dray("compute", "check", "inner").returncode == 0  # both are kept, each for its own


def test_a_new_host_key_is_shown_confirmed_and_pinned(world: World, shell: Shell) -> None:
    server = world.server()
    server.let_in(world.client.key.with_suffix(".pub"))
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    refused = shell.dray("attach", "vm", "box", *address(server))
    assert refused.returncode == 1
    assert b"SHA256:" in refused.stderr
    assert b"--accept-new" in refused.stderr

    with shell.terminal("attach", "vm", "box", *address(server)) as terminal:
        terminal.until(b"Is it the right machine? [yes/no]")
        assert b"SHA256:" in terminal.seen
        terminal.press(b"yes\n")
        assert terminal.ended() == 0, terminal.seen.decode()
    world.client.close()
    world.client.runtime.mkdir(mode=0o700)
    assert shell.dray("compute", "check", "box").returncode == 0
    assert not world.client.known_hosts.exists()  # the user's own file is the user's


def test_a_changed_host_key_stops_everything(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\nStrictHostKeyChecking no\n')
    attached(shell, server)
    world.client.close()
    world.client.runtime.mkdir(mode=0o700)
    server.new_host_key()
    shell.write("hello.py", "print('in')")

    done = shell.dray("submit", "-c", "box", "hello.py")
    assert done.returncode == 125, done.stderr.decode()
    assert b"shows another host key" in done.stderr
    assert b"ssh-keygen" in done.stderr
    assert b"another network" in done.stderr
    assert "Accepted" not in server.log().rpartition("Server listening")[2]


def test_the_same_machine_under_two_names_is_noticed_and_both_work(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, server, "one")
    shell.write("hello.py", "print('in')")
    first = shell.detached("-c", "one", "hello.py")
    second = shell.dray("attach", "vm", "two", *address(server))

    assert b"the same machine as one" in second.stderr
    assert shell.dray("submit", "-c", "two", "hello.py").returncode == 0
    assert shell.dray("wait", first).returncode == 0
    again = shell.dray("attach", "vm", "one", *address(server))
    assert again.returncode == 0
    assert b"already attached" in again.stderr


def test_an_attached_compute_is_not_attached_in_another_way(world: World, shell: Shell) -> None:
    one, other = world.known(), world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, one)
    done = shell.dray("attach", "vm", "box", *address(other))

    assert done.returncode == 2
    assert b"dray compute update box" in done.stderr


def test_a_compute_is_updated_in_place_and_keeps_its_runs(world: World, shell: Shell) -> None:
    server, other = world.known(), world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, server)
    shell.write("hello.py", "print('in')")
    run = shell.dray("submit", "-c", "box", "--json", "hello.py")
    run_id = json.loads(run.stdout)["id"]
    words = ("--address", other.address, "--port", str(other.port), "--username", other.user)
    elsewhere = shell.dray("compute", "update", "box", *words)
    assert elsewhere.returncode == 2
    assert b"is another machine" in elsewhere.stderr
    server.stop()
    server.port = other.port + 1
    server.start()
    world.client.trust(server)

    assert shell.dray("compute", "update", "box", "--port", str(server.port)).returncode == 0
    assert shell.dray("logs", run_id).stdout == b"in\n"
    assert shell.dray("submit", "-c", "box", "hello.py").returncode == 0


def test_aliases_and_the_default(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, server, "gpu1")
    assert shell.dray("compute", "alias", "gpu-cluster", "gpu1").returncode == 0
    assert shell.dray("compute", "default", "gpu-cluster").stdout == b"gpu-cluster\n"
    shell.write("who.py", "import getpass; print(getpass.getuser())")

    run = shell.dray("submit", "who.py")
    assert run.stdout.decode().strip() == server.user, run.stderr.decode() + server.log()
    assert json.loads(shell.dray("show", "--json").stdout)["compute"] == "gpu1"
    assert shell.dray("submit", "-c", "local", "who.py").stdout.decode().strip() != server.user
    assert b"gpu-cluster" in shell.dray("compute", "list").stdout
    assert shell.dray("compute", "rm", "gpu-cluster").returncode == 0
    assert shell.dray("compute", "show", "gpu-cluster").returncode == 2


def test_a_key_file_is_looked_at_and_means_the_same_in_every_folder(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    key = world.client.new_key("mine")
    server.let_in(key.with_suffix(".pub"))
    (shell.folder / "key").symlink_to(key)
    refused = shell.dray("attach", "vm", "box", *address(server), "--identity-file", "/no/such/key")
    assert refused.returncode == 2
    assert b"there is no key file `/no/such/key`" in refused.stderr

    done = shell.dray("attach", "vm", "box", *address(server), "--identity-file", "key")
    assert done.returncode == 0, done.stderr.decode()
    world.client.close()
    world.client.runtime.mkdir(mode=0o700)
    elsewhere = Shell(world.folder, shell.home)
    elsewhere.env.update(shell.env)
    assert elsewhere.dray("compute", "check", "box").returncode == 0
    other = world.client.new_key("other")  # the machine does not know it
    assert shell.dray("compute", "update", "box", "--identity-file", str(other)).returncode == 1
    assert shell.dray("compute", "check", "box").returncode == 0  # it is as it was


def test_a_broken_file_of_one_compute_hides_no_other_and_can_be_removed(shell: Shell) -> None:
    folder = Path(shell.env["DRAY_HOME"]) / "computes"
    folder.mkdir(parents=True)
    (folder / "good.compute").write_text(
        '{"v": 1, "kind": "vm", "options": {"address": "127.0.0.99", "port": 9}}'
    )
    (folder / "bad.compute").write_text("{")
    listed = shell.dray("compute", "list")
    assert listed.returncode == 0, listed.stderr
    assert b"127.0.0.99" in listed.stdout
    assert b"broken" in listed.stdout
    assert shell.dray("submit", "-c", "bad", "--", "true").returncode != 0
    assert b"cannot be read" in shell.dray("compute", "check", "bad").stderr
    assert b"cannot be read" in shell.dray("doctor").stdout

    assert shell.dray("compute", "rm", "bad").returncode == 0
    assert b"bad" not in shell.dray("compute", "list").stdout


def test_a_key_is_tried_even_where_a_connection_is_kept(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, server)
    world.client.configure("")  # where the key that fits is named no more
    stranger = world.client.new_key("stranger")
    done = shell.dray("attach", "vm", "other", *address(server), "--identity-file", str(stranger))

    assert done.returncode == 1
    assert b"does not let you in" in done.stderr or b"it asks" in done.stderr


def test_who_says_no_to_a_host_key_is_told_that_nothing_was_sent(world: World, shell: Shell) -> None:
    server = world.server()
    with shell.terminal("attach", "vm", "box", *address(server), columns=200) as terminal:
        terminal.until(b"[yes/no]")
        terminal.press(b"no\n")
        assert terminal.ended() == 1
    assert b"nothing was sent" in terminal.seen
    assert b"nobody to ask" not in terminal.seen


def test_a_second_name_that_means_another_machine_now_is_told(world: World, shell: Shell) -> None:
    one, other = world.known(), world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, one, "one")
    attached(shell, other, "other")
    shell.dray("compute", "alias", "gpu", "one")

    assert b"no longer one" in shell.dray("compute", "alias", "gpu", "other").stderr
    assert b"no longer" not in shell.dray("compute", "alias", "gpu", "other").stderr


def test_a_machine_that_is_gone_for_good_can_be_forgotten_and_its_runs_are_lost(
    world: World, shell: Shell
) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, server)
    shell.write("long.py", "import time; print('on', flush=True); time.sleep(300)")
    run_id = shell.detached("-c", "box", "long.py")
    assert shell.dray("compute", "rm", "box").returncode == 1
    assert b"it is not gone" in shell.dray("compute", "rm", "box", "--gone").stderr
    server.kill()

    refused = shell.dray("cancel", run_id)
    assert refused.returncode == 1
    assert b"cannot reach" in refused.stderr
    assert b"it goes on, as far as is known" in refused.stderr
    assert b"--gone" in shell.dray("compute", "rm", "box").stderr
    done = shell.dray("compute", "rm", "box", "--gone")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(shell.dray("show", run_id, "--json").stdout)["status"] == "lost"
    assert shell.dray("wait", run_id).returncode != 0


def test_after_purge_the_machine_is_as_it_was(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    before = server.files()
    attached(shell, server)
    shell.write("long.py", "import time; print('on', flush=True); time.sleep(300)")
    run_id = shell.detached("-c", "box", "long.py")
    refused = shell.dray("compute", "rm", "box", "--purge", "-y")
    assert refused.returncode == 1
    assert b"alive" in refused.stderr
    shell.dray("cancel", run_id, "--grace", "0")
    shell.dray("wait", run_id)

    done = shell.dray("compute", "rm", "box", "--purge", "-y")
    assert done.returncode == 0, done.stderr.decode()
    wait_until(lambda: not server.processes(), server.log)
    left = [name for name in server.files() if name not in (".local", ".local/share", ".cache")]
    assert left == before
    assert shell.dray("logs", run_id).stdout == b"on\n"  # the history keeps what it said
    assert not list(world.client.runtime.glob("dray/" + "?" * 40))  # no connection is kept open


def test_words_that_ssh_could_take_for_options_are_refused(shell: Shell) -> None:
    for word in ("-oProxyCommand=touch x", "a b", "$(id)", "a;b"):
        done = shell.dray("attach", "vm", "box", f"--address={word}")
        assert done.returncode == 2, word
        assert b"is no address" in done.stderr
    assert shell.dray("attach", "vm", "box", "--address=a", "--username=-oX").returncode == 2
    assert not (Path(shell.env["DRAY_HOME"]) / "computes").exists()


def test_a_kind_that_is_not_there_and_a_run_get_their_own_words(shell: Shell) -> None:
    shell.write("hello.py", "print('in')")
    shell.dray("submit", "--name", "mine", "hello.py")

    assert b"dray follow" in shell.dray("attach", "mine").stderr
    assert b"dray attach vm x" in shell.dray("attach", "vmm", "x").stderr
    assert b"cannot be attached yet" in shell.dray("attach", "slurm", "x").stderr


def test_a_machine_that_is_not_there_is_told_in_a_persons_words(world: World, shell: Shell) -> None:
    server = world.known()
    server.stop()
    done = shell.dray("attach", "vm", "box", *address(server))
    assert b"no ssh server listens on that port" in done.stderr
    done = shell.dray("attach", "vm", "box", "--address", "no-such-host.invalid")
    assert b"its name is unknown" in done.stderr


def test_others_on_the_client_cannot_read_or_answer(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    attached(shell, server)

    for path in (world.client.dray_home, world.client.dray_home / "computes", world.client.runtime / "dray"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert os.path.isdir(world.client.dray_home)
