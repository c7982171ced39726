"""What an environment would do with GPUs, told before it is built: CPU-only packages, a CUDA newer than the driver, cards that are too old.

Read `doubts`. It knows only what the requirements say; what was really installed is measured by the run itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.core.spec import Environment
from dray.gpu.drivers import (
    Fit,
    Gpus,
    fit,
    needed_driver,
    newest_torch,
    oldest_card,
    shown,
    torch_build,
    version,
)
from dray.gpu.tables import (
    CPU_ONLY,
    JAX_OLDEST_CARD,
    SHIPPED_DRIVER,
    TENSORFLOW,
    TENSORFLOW_EXTRA_SINCE,
    TORCH,
    TorchRelease,
    Version,
)

_LINE = re.compile(r"(?P<name>[a-z0-9][a-z0-9.-]*)(?:\[(?P<extras>[^\]]*)\])?\s*(?P<clauses>[^;@ ]*)")
_PINNED = re.compile(r'^name = "([^"]+)"\nversion = "([^"]+)"', re.MULTILINE)
_LOCAL = re.compile(r"\+(?P<label>cpu|cu\d{2,3}|rocm[\d.]+)")
_PLACE = re.compile(r"/(?P<label>cpu|cu\d{3})(?:[/\"']|$)")
_CLAUSE = re.compile(r"(==|!=|<=|>=|<|>|~=)(\d+(?:\.\d+)*)(\.\*)?")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that would keep a run from its GPU, or may."""

    kind: str
    """cpu-build, driver-too-old, driver-old, card-too-old."""
    text: str
    hint: str

    @property
    def is_certain(self) -> bool:
        """Whether the GPU surely stays unused."""
        return self.kind != "driver-old"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One package, as far as it was said which."""

    name: str
    extras: frozenset[str]
    clauses: str
    label: str | None
    """cpu, cu126: of the version, or of the place that it comes from."""


def doubts(environment: Environment, gpus: Gpus) -> list[Doubt]:
    """What speaks against this environment using the GPUs of that machine; nothing for a machine without."""
    if gpus.driver is None:
        return []
    found: list[Doubt] = []
    for wanted in _wanted(environment):
        if wanted.name == "torch":
            found += _of_torch(wanted, gpus)
        elif wanted.name in ("tensorflow", "tf-nightly"):
            found += _of_tensorflow(wanted, gpus, environment)
        elif wanted.name == "jax":
            found += _of_jax(wanted, gpus, environment)
        elif wanted.name in CPU_ONLY:
            instead = CPU_ONLY[wanted.name]
            hint = instead if instead.startswith("remove") else f"write `{instead}`"
            found.append(Doubt("cpu-build", f"`{wanted.name}` never uses a GPU", hint))
    return found


def concerns(environment: Environment) -> bool:
    """Whether anything in it could be about GPUs: then it is worth asking the machine."""
    return any(
        w.name in ("torch", "tensorflow", "tf-nightly", "jax") or w.name in CPU_ONLY
        for w in _wanted(environment)
    )


def torch_release(environment: Environment) -> TorchRelease | None:
    """The release of PyTorch that the environment would get, as far as the tables know; None: it names no PyTorch."""
    for wanted in _wanted(environment):
        if wanted.name == "torch":
            return _release(wanted)
    return None


def backend(cuda: Version) -> str:
    """(12, 6) as PyTorch's builds are called: cu126."""
    return "cu" + "".join(map(str, cuda[:2]))


def allows(clauses: str, release: Version) -> bool:
    """Whether any version of that release (2.9 stands for all 2.9.x) fits `>=2.6,<2.10`."""
    return all(
        _allows(sign, tuple(map(int, text.split("."))), bool(star), release)
        for sign, text, star in _CLAUSE.findall(clauses)
    )


def _allows(sign: str, wanted: Version, star: bool, release: Version) -> bool:
    short = (*wanted, 0)[:2]
    if sign == "==":
        return release[: len(wanted[:2])] == wanted[:2] if star else release == short
    if sign == "!=":
        return not star or release[: len(wanted)] != wanted
    if sign == "<":
        return release < wanted
    if sign == "<=":
        return release <= short
    family = wanted[:-1][:2] if sign == "~=" else ()
    return release >= short and release[: len(family)] == family


def _wanted(environment: Environment) -> Iterator[Wanted]:
    addresses = [
        str(environment.index.get("index_url") or ""),
        *map(str, environment.index.get("extra_index_urls") or ()),
    ]
    placed = next((m["label"] for address in addresses if (m := _PLACE.search(address + "/"))), None)
    placed = environment.index.get("torch_backend") or placed
    lines: Iterable[str] = environment.packages
    if environment.lock:
        lines = [f"{n}=={v}" for n, v in _PINNED.findall(environment.lock)] or environment.lock.splitlines()
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        label = _LOCAL.search(line)
        extras = frozenset(e.strip() for e in (found["extras"] or "").split(",") if e.strip())
        said = label["label"] if label else placed if found["name"] == "torch" else None
        yield Wanted(found["name"], extras, found["clauses"].partition("+")[0], said)


def _of_torch(wanted: Wanted, gpus: Gpus) -> Iterator[Doubt]:
    release = _release(wanted)
    auto = "--torch auto takes the build that fits"
    if wanted.label == "cpu":
        yield Doubt(
            "cpu-build",
            "this build of torch has no CUDA, and uses no GPU",
            f"remove `+cpu` or its index; {auto}",
        )
        return
    if wanted.label and wanted.label.startswith("rocm"):
        return
    cuda = _labelled(wanted.label) or (release.default if release else None)
    if cuda is None or gpus.driver is None:
        return
    better = torch_build(release, gpus) if release else None
    hint = (
        f"{auto}: {backend(better)}" if better else "update the driver of the machine, or name an older torch"
    )
    named = f"torch{' ' + shown(release.version) if release else ''} comes with CUDA {shown(cuda)}"
    yield from _of_driver(named, cuda, gpus, hint)
    if release and gpus.oldest and gpus.oldest < oldest_card(release.version, cuda):
        card = next(
            name for name, able in zip(gpus.names, gpus.capabilities, strict=False) if able == gpus.oldest
        )
        needed = shown(oldest_card(release.version, cuda))
        yield Doubt(
            "card-too-old",
            f"{named}, which has code for compute capability {needed} and newer; {card} has {shown(gpus.oldest)}",
            hint,
        )


def _of_tensorflow(wanted: Wanted, gpus: Gpus, environment: Environment) -> Iterator[Doubt]:
    known = [(release, cuda) for release, cuda in TENSORFLOW if allows(wanted.clauses, release)]
    locked = bool(environment.lock) and "nvidia-cudnn" in str(environment.lock)
    if "and-cuda" not in wanted.extras and not locked:
        old = bool(known) and known[-1][0] < TENSORFLOW_EXTRA_SINCE
        yield Doubt(
            "cpu-build",
            f"`{wanted.name}` alone brings no CUDA, and uses the GPU only where the machine has the very version of it",
            "write `tensorflow>=2.14`, which has an extra for it"
            if old
            else f"write `{wanted.name}[and-cuda]`",
        )
        return
    if known:
        release, cuda = known[-1]
        hint = "name an older tensorflow, or update the driver of the machine"
        yield from _of_driver(f"tensorflow {shown(release)} comes with CUDA {shown(cuda)}", cuda, gpus, hint)


def _of_jax(wanted: Wanted, gpus: Gpus, environment: Environment) -> Iterator[Doubt]:
    extra = next((m for e in wanted.extras if (m := re.fullmatch(r"cuda(\d+)(?:[-_]local)?", e))), None)
    locked = re.search(r"jax-cuda(\d+)-plugin", str(environment.lock)) if environment.lock else None
    major = int((extra or locked)[1]) if (extra or locked) else None  # type: ignore[index] # one of the two is there
    fitting = [
        m
        for m in sorted(JAX_OLDEST_CARD, reverse=True)
        if gpus.driver and fit(gpus.driver, (m, 0)) is not Fit.TOO_OLD
    ]
    fitting = [m for m in fitting if gpus.oldest is None or gpus.oldest >= JAX_OLDEST_CARD[m]]
    hint = f"write `jax[cuda{fitting[0]}]`" if fitting else "update the driver of the machine"
    if major is None:
        yield Doubt("cpu-build", "`jax` alone is built for the CPU", hint)
    elif major not in fitting:
        kind = (
            "driver-too-old"
            if gpus.driver and fit(gpus.driver, (major, 0)) is Fit.TOO_OLD
            else "card-too-old"
        )
        needs = (
            f"driver {shown(needed_driver((major, 0)))}"
            if kind == "driver-too-old"
            else f"compute capability {shown(JAX_OLDEST_CARD.get(major, (7, 5)))}"
        )
        has = shown(gpus.driver or ()) if kind == "driver-too-old" else shown(gpus.oldest or ())
        yield Doubt(kind, f"`jax[cuda{major}]` needs {needs} or newer, and there is {has}", hint)


def _of_driver(named: str, cuda: Version, gpus: Gpus, hint: str) -> Iterator[Doubt]:
    if gpus.driver is None:
        return
    found = fit(gpus.driver, cuda)
    if found is Fit.TOO_OLD:
        yield Doubt(
            "driver-too-old",
            f"{named}, which needs driver {shown(needed_driver(cuda))} or newer; there is {shown(gpus.driver)}",
            hint,
        )
    elif found is Fit.MAYBE:
        needs = SHIPPED_DRIVER.get(cuda[:2])
        made_for = f"driver {shown(needs)}" if needs else "a newer driver"
        yield Doubt(
            "driver-old",
            f"{named}, made for {made_for}; {shown(gpus.driver)} runs it, but not all that is compiled while running",
            hint,
        )


def _labelled(label: str | None) -> Version | None:
    """cu126 as (12, 6)."""
    found = re.fullmatch(r"cu(\d{2})(\d)", label or "")
    return (int(found[1]), int(found[2])) if found else None


def _release(wanted: Wanted) -> TorchRelease | None:
    """The newest row of the tables that the clauses allow."""
    return newest_torch(lambda numbers: allows(wanted.clauses, numbers)) or _newer(wanted)


def _newer(wanted: Wanted) -> TorchRelease | None:
    """Of a release that the tables do not have: the newest row for a newer one, none for an older one."""
    numbers = version(wanted.clauses.lstrip("=<>~!"))
    return TORCH[-1] if numbers is None or numbers >= TORCH[-1].version else None
