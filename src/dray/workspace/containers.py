"""What a submit says about a container: `--image` and what goes with it, checked before anything is sent.

`of` puts together what was said now and what the compute says; a run without either is a plain process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from dray.core.container_wish import ContainerWish
from dray.core.durations import show_bytes
from dray.core.errors import UnknownName, UsageError, printable
from dray.core.spec import Container
from dray.runner.containers import DEFAULT_IMAGE
from dray.workspace import registry_logins

_ENGINE = re.compile(r"[a-z][a-z0-9-]*|/\S+")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,400}")


def of(said: ContainerWish, default: ContainerWish | None) -> Container | None:
    """The container of a run; None: none. `default` is that of a compute whose runs are in containers, else None."""
    if said.image == "none":
        refuse_settings(ContainerWish(**{**said.fields(), "image": None}))
        return None
    if said.image and said.dockerfile:
        raise UsageError(
            "`--image` and `--dockerfile` exclude one another", why="the Dockerfile makes the image"
        )
    if default is None and said.image is None and said.dockerfile is None:
        refuse_settings(said)
        return None
    base = default or ContainerWish()
    merged = {name: value or getattr(base, name) for name, value in said.fields().items()}
    merged["mounts"] = (*base.mounts, *said.mounts)
    merged["logins"] = tuple(registry_logins.by_registry((*base.logins, *said.logins)).values())
    if said.image or said.dockerfile:  # the one that was said now, and not the other of the compute
        merged.update({"image": said.image, "dockerfile": said.dockerfile})
    return checked(ContainerWish(**merged))


def with_old_file(
    default: ContainerWish, gpus: int | None, folder: Path, name: str
) -> tuple[ContainerWish, int | None]:
    """The same with what an old `NAME.compute` of the project says: its image, and whether there is a GPU."""
    from dray.workspace.old_files import old_compute

    old = old_compute(folder, name)
    if old is None:
        return default, gpus
    if old.image:
        default = replace(default, image=old.image, dockerfile=None)
    return default, gpus if old.gpu is None else int(old.gpu)


def refuse_settings(said: ContainerWish) -> None:
    """What is about a container says nothing without one."""
    given = [name for name, value in said.fields().items() if value]
    if given:
        flag = {"mounts": "mount", "shm": "shm-size", "ca": "ca-bundle", "logins": "registry-login"}.get(
            given[0], given[0]
        )
        raise UsageError(
            f"`--{flag}` is about a container, and this run has none",
            why="a run is in a container when an image is named, or on a compute that was attached so",
            hint="--image python:3.12-slim",
        )


def checked(wish: ContainerWish) -> Container:
    """The container that is meant. Raises UsageError for what no engine could take."""
    if wish.image is not None and not _IMAGE.fullmatch(wish.image):
        raise UsageError(
            f"`{printable(wish.image[:80])}` cannot name an image", hint="--image python:3.12-slim"
        )
    if wish.engine is not None and not _ENGINE.fullmatch(wish.engine):
        raise UsageError(
            f"`{printable(wish.engine[:80])}` cannot name an engine",
            why="it is docker, podman, nerdctl, or an absolute path",
        )
    from dray.runner.containers.users import is_valid

    if wish.user is not None and not is_valid(wish.user):
        raise UsageError(
            f"`{printable(wish.user[:80])}` cannot be a container's user",
            why="it is `image`, `root`, NAME[:GROUP] or UID[:GID]",
        )
    if wish.memory is not None and wish.memory < 6 << 20:
        raise UsageError("a container needs at least 6 MiB of memory", hint="--memory 8GB")
    for text in (wish.network, wish.ca):
        if text is not None and (not text.strip() or text.startswith("-") or not text.isprintable()):
            raise UsageError(f"`{printable(text[:80])}` is no name")
    if wish.ca is not None and wish.ca != "machine" and not wish.ca.startswith(("/", "~/")):
        raise UsageError(
            f"`{printable(wish.ca)}` is no file of the machine",
            why="it is `machine` for the machine's own certificates, or an absolute path there",
        )
    if wish.dockerfile is not None and (
        wish.dockerfile.startswith(("/", "-"))
        or ".." in wish.dockerfile.split("/")
        or "\0" in wish.dockerfile
    ):
        raise UsageError(
            f"`{printable(wish.dockerfile[:120])}` is no Dockerfile of the project",
            why="it is a path in the code folder, which travels",
            hint="--dockerfile Dockerfile",
        )
    return Container(
        image=wish.image,
        dockerfile=wish.dockerfile,
        engine=wish.engine,
        mounts=tuple(read_mounts(wish.mounts)),
        memory=wish.memory,
        shm=wish.shm,
        user=wish.user,
        network=wish.network,
        ca=wish.ca,
        logins=tuple(registry_logins.by_registry(wish.logins).values()),
    )


def refuse_for_builds(offline_host: bool, credentials: Collection[str]) -> None:
    """What reaches no environment that is put into an image."""
    if offline_host:
        raise UsageError(
            "`--offline-host` sends packages for an environment beside the image, and this run is in a container",
            why="packages that are sent along do not get into an image",
            hint="--image IMAGE --env none    (an image that has them)",
        )
    if credentials:
        place = printable(min(credentials))
        raise UsageError(
            f"the password for {place} is not given to the build of an image",
            why="it would stand in the command that builds the image",
            hint="a Dockerfile with `RUN --mount=type=secret`, built and pushed, then --image IMAGE --env none",
        )


def check_dockerfile(path: str, folder: Path) -> None:
    """Refuse one that is not there, with those that are."""
    if (folder / path).is_file():
        return
    names = sorted(
        p.relative_to(folder).as_posix() for p in (*folder.glob("*ockerfile*"), *folder.glob("*/*ockerfile*"))
    )
    raise UnknownName("Dockerfile", path, names)


def read_mounts(words: Iterable[str]) -> Iterable[tuple[str, str, bool]]:
    """`/data`, `/data:/in/there`, `~/sets:/sets:ro` -> (here, there, read-only)."""
    for word in words:
        parts = word.split(":")
        mode = parts.pop() if len(parts) > 1 and parts[-1] in ("ro", "rw") else "rw"
        here, there = (parts[0], parts[0]) if len(parts) == 1 else (parts[0], parts[-1])
        if len(parts) > 2 or not here.startswith(("/", "~/")) or not there.startswith("/") or "\0" in word:
            raise UsageError(
                f"`--mount {printable(word[:120])}` is not understood",
                why="it is /ON/THE/MACHINE[:/IN/THE/CONTAINER][:ro], both absolute; ~/ is your home on the machine",
                hint="--mount /data/imagenet:/data:ro",
            )
        if there == "/" or there.rstrip("/") == "/dray" or there.startswith("/dray/"):
            raise UsageError(f"`{printable(there)}` is taken in a container: below /dray lies the run itself")
        yield here, there.rstrip("/"), mode == "ro"


def in_words(container: Container) -> str:
    """One line for people."""
    built = f"built from {container.dockerfile}" if container.dockerfile else None
    pieces = [built or container.image or f"{DEFAULT_IMAGE} (none was named)"]
    if container.engine:
        pieces.append(f"by {container.engine}")
    pieces += [f"pulled as {printable(login)}" for login in container.logins]
    if container.memory:
        pieces.append(f"{show_bytes(container.memory)} of memory")
    pieces += [f"{here} as {there}{', read-only' * ro}" for here, there, ro in container.mounts]
    return ", ".join(pieces)
