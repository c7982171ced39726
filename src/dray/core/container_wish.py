"""What a submit or a compute says about containers, as it was said: workspace.containers makes a Container of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ContainerWish:
    """The words of one submit, or of one compute."""

    image: str | None = None
    dockerfile: str | None = None
    engine: str | None = None
    mounts: tuple[str, ...] = ()
    memory: int | None = None
    shm: int | None = None
    user: str | None = None
    network: str | None = None
    ca: str | None = None
    logins: tuple[str, ...] = ()
    """USER@REGISTRY: logins whose passwords this computer keeps."""

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> ContainerWish:
        """From the words of a command line, of a call, or of a compute's file; what is none of it is passed over."""
        known = {k: v for k, v in words.items() if k in cls.__dataclass_fields__ and v not in (None, (), [])}
        for name in ("mounts", "logins"):
            if name in known:
                known[name] = tuple(map(str, known[name]))
        return cls(**known)

    def fields(self) -> dict[str, Any]:
        """By name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def to_json(self) -> dict[str, Any]:
        """What was said, as plain data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.fields().items() if v}

    def __bool__(self) -> bool:
        return self != ContainerWish()
