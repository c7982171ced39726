"""What can go wrong on the way to a machine.

DrayError
├── HostUnreachable     the channel could not be opened, or gave no greeting
├── WayBarred           for certain nothing has reached the machine
│   ├── HostAway          (a HostUnreachable, too) there was not even a connection
│   ├── HostKeyUnknown    nobody has said yet that this is the right machine
│   ├── HostKeyChanged    it does not show the key that it showed before
│   ├── LoginRefused      it does not let this user in, or wants to know something that nobody could tell it
│   ├── NoSsh             this client has no `ssh`
│   ├── SshConfigBroken   `ssh` refuses the user's configuration
│   ├── HostPythonMissing it has no python3 where we look
│   └── HostPythonTooOld  its python3 cannot run the runner
├── MachineRefused      the machine understood and said no
├── UvNotFetched        the machine has no uv, and there is none to bring along
└── LinkLost            (core) the channel broke in the middle
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray.core.errors import DrayError, printable

if TYPE_CHECKING:
    from dray.hosts.questions import Question


class WayBarred(DrayError):
    """Not one byte of ours has reached the machine: it knows of no run."""

    code = "way-barred"


class HostUnreachable(DrayError):
    """No runner answered at the other end."""

    code = "host-unreachable"

    failed = "cannot start dray's runner on"

    def __init__(self, where: str, said: str, hint: str | None = None, *, quoted: str | None = None) -> None:
        last = printable(said.strip().splitlines()[-1]) if said.strip() else "it said nothing"
        if quoted:
            last += f" ({printable(quoted)[:200]})"
        super().__init__(f"{self.failed} {where}", why=last, hint=hint)


class HostAway(WayBarred, HostUnreachable):
    """There was not even a connection."""

    code = HostUnreachable.code
    failed = "cannot reach"


class HostKeyUnknown(WayBarred):
    """The machine shows a key that was never confirmed."""

    code = "host-key-unknown"

    def __init__(self, name: str, where: str, kind: str, fingerprint: str, *, about: str) -> None:
        shown = f", {printable(kind)} {printable(fingerprint)}," if fingerprint else ""
        of = f"the host key of {printable(about)}" if about else "its host key"
        super().__init__(
            f"{where} is not known yet",
            why=f"{of}{shown} was never confirmed, and there is nobody to ask"
            if shown
            else "its host key was not confirmed, so nothing was sent",
            hint=f"dray compute check {name} --accept-new    (compare the fingerprint first)",
        )


class HostKeyChanged(WayBarred):
    """The machine shows another key than before: it was made anew, or somebody stands in between."""

    code = "host-key-changed"

    def __init__(self, name: str, where: str, *, host: str, file: str | None, shown: str | None) -> None:
        now = f" now it shows {printable(shown)}." if shown else ""
        super().__init__(
            f"{where} shows another host key than before; nothing was sent",
            why=f"either the machine was made anew, or somebody between here and there listens.{now} Ask who runs it",
            hint=(
                f"if it was made anew: ssh-keygen -f {_quoted(file)} -R {_quoted(host)} && dray compute check {name}"
                if file
                else f"if it was made anew: ssh-keygen -R {_quoted(host)} && dray compute check {name}"
            )
            + "; if not: use another network, and tell its administrator",
        )


class LoginRefused(WayBarred):
    """The machine does not let us in."""

    code = "login-needed"

    def __init__(
        self, name: str, where: str, ways: str, unanswered: Question | None, *, was_wrong: bool = False
    ) -> None:
        if unanswered is not None and was_wrong and unanswered.kind != "code":
            why = f"the {unanswered.kind} for {printable(unanswered.about)} is not the right one"
        elif unanswered is None:
            tried = f"it accepts {printable(ways)}; " if ways else ""
            why = f"{tried}no key of yours and no stored password fits"
        elif unanswered.kind == "passphrase":
            why = f"the key {printable(unanswered.about)} wants its passphrase, and there is nobody to ask"
        else:
            asked = (
                printable(unanswered.text.strip().splitlines()[-1])[:200]
                if unanswered.text.strip()
                else "something"
            )
            why = f"it asks `{asked}`, and there is nobody to ask"
        super().__init__(f"{where} does not let you in", why=why, hint=f"log in: dray ssh {name}")
        self.question = unanswered


class NoSsh(WayBarred):
    """There is no OpenSSH client."""

    code = "no-ssh"

    def __init__(self) -> None:
        super().__init__("there is no `ssh` on this computer's PATH", hint="install the OpenSSH client")


class SshConfigBroken(WayBarred):
    """ssh refuses its own configuration."""

    code = "ssh-config-broken"

    def __init__(self, said: str) -> None:
        lines = [printable(line.strip()) for line in said.strip().splitlines() if line.strip()]
        super().__init__(
            "`ssh` does not accept its configuration",
            why="; ".join(lines[:3])[:400] or None,
            hint="ssh -G HOST",
        )


class HostPythonMissing(WayBarred):
    """The machine has no python3 where a login finds programs."""

    code = "host-python-missing"

    def __init__(self, name: str, where: str, said: str) -> None:
        super().__init__(
            f"{where} has no `python3` that dray could start",
            why=printable(said)[:300] or None,
            hint=f"dray compute update {name} --host-python /path/to/python3",
        )


class HostPythonTooOld(WayBarred):
    """The runner needs Python 3.8."""

    code = "host-python-too-old"

    def __init__(self, where: str, found: str, program: str) -> None:
        super().__init__(
            f"{where} cannot run dray's runner",
            why=f"its Python ({printable(program)}) is {printable(found)}; 3.8 or newer is needed",
        )


class MachineRefused(DrayError):
    """The runner answered with an error."""

    code = "machine-refused"

    def __init__(self, where: str, code: str, text: str) -> None:
        super().__init__(
            f"{where} refused: {printable(text)}", why=f"its runner calls this `{printable(code)}`"
        )
        self.refusal = code
        self.said = text


def _quoted(word: str | None) -> str:
    import shlex

    return printable(shlex.quote(word or ""))


class UvNotFetched(DrayError):
    """There is no uv to bring to a machine that has none."""

    code = "uv-not-fetched"

    def __init__(self, version: str, platform: str, why: str) -> None:
        super().__init__(
            f"uv {version} for {platform}, which the machine lacks, could not be fetched to bring it along",
            why=printable(why),
            hint="install it over there (`pip install --user uv`), and submit again",
        )
