"""What a back end has to offer: a byte channel (Host), and a name for the whole (Target).

A run on a machine is host x scheduler x launcher. The host is the client's half and lives here; scheduler and launcher
work on the machine, inside the runner. Adding a kind of machine means writing `Host.open` and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dray.core.container_wish import ContainerWish
    from dray.core.errors import DrayError


class ByteChannel(Protocol):
    """Two pipes to a process that executes one `sh` word on some machine."""

    def write(self, data: bytes) -> None:
        """Send all of `data`. Raises BrokenPipeError when the other side is gone."""

    def read(self, size: int) -> bytes:
        """At least one byte and at most `size`, waiting for them; empty when the other side has ended."""

    def wait_readable(self, timeout_s: float | None) -> bool:
        """True when `read` would return at once; False when `timeout_s` seconds passed first."""

    def close(self) -> None:
        """End the channel. What was started on the machine and detached goes on. Safe to repeat."""

    def last_words(self) -> str:
        """What the channel's own program said on stderr, for an error message; bounded."""

    def greeted(self) -> None:
        """The other side has spoken for the first time: whatever logging in needed is over."""
        return

    def trouble(self) -> DrayError | None:
        """Why there is no other side, when the channel knows better than its last words say."""
        return None


class Host(Protocol):
    """A machine that can be reached. Inherit from it: what most hosts have no use for is here already."""

    name: str
    """As the compute is called."""

    def open(self, word: str, *, without: Collection[str] = ()) -> ByteChannel:
        """Start `sh -c word` over there. Raises DrayError when the machine cannot be reached.

        `without` names variables of ours that hold secrets: where the channel would inherit them, it must not.
        """

    greeting_patience_s: float | None = None
    """How long a greeting may take before `renew` is worth a try; None: it never is."""

    patience_s: float = 0.0
    """How long a link that broke is worth trying again while a run is followed."""

    def renew(self) -> bool:
        """Give up what is kept of an earlier connection, because it leads nowhere; False when nothing is."""
        return False

    def describe(self) -> str:
        """Where it is, for people: "this machine", "ana@10.0.0.5:2222"."""


class Target(Protocol):
    """A compute: a host and how runs are started on it."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def kind(self) -> str:
        """`local`, `vm` ..."""

    @property
    def host(self) -> Host:
        """The way to its machine."""

    @property
    def root(self) -> str | None:
        """dray's folder on that machine; None: the runner's default."""

    @property
    def python(self) -> str | None:
        """The Python that runs the runner there; None: `python3`."""

    @property
    def is_here(self) -> bool:
        """The submitting shell and the run share a machine, a user and a PATH: the user's Python can be named here.

        Elsewhere a run has the environment of the user's login shell.
        """

    @property
    def setup(self) -> str | None:
        """What the user's login shell there runs before each run's environment is taken from it, such as `module load cuda`."""

    @property
    def container(self) -> ContainerWish | None:
        """What its runs' containers are like when a submit says nothing; None: its runs are processes."""

    @property
    def default_gpus(self) -> int | None:
        """GPUs of a run that says nothing of them; None: one where its machine has one."""

    def near(self) -> dict[str, Any]:
        """What the client has at hand for this machine: docs/design.md, "The wire"."""
