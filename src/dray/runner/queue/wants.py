"""What a run asks for, and which GPUs it may be given. Touches nothing: documents and devices in, values out."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

MOST = 64  # GPUs that one run can hold
_MOST_CORES = 1 << 16


class Unit(NamedTuple):
    """What can be held: a GPU, or a part of one that was cut up (MIG)."""

    uuid: str
    name: str
    slot: int
    """Of the GPU, in the order of the PCI bus."""
    memory: Optional[int] = None
    used: int = 0
    """Bytes of its memory that are in use, by whomever."""
    users: Tuple[Tuple[int, Optional[int]], ...] = ()
    """(pid, uid) of the processes that compute on it; the uid is None where nobody can see it."""
    part: Optional[int] = None
    """Which part of the GPU; None: the whole of it."""
    vendor: str = "nvidia"
    trouble: Optional[str] = None
    busy: Optional[int] = None
    """Percent of the last second in which it computed, where somebody has asked."""

    @property
    def label(self) -> str:
        """How people call it: 0, or 0/1 for a part."""
        return str(self.slot) if self.part is None else "%d/%d" % (self.slot, self.part)


class Wants(NamedTuple):
    """What a run asks for."""

    gpus: int = 0
    model: Optional[str] = None
    """A part of the device's name, such as `a100`."""
    ids: Tuple[str, ...] = ()
    """Just these, by UUID; then `gpus` is their number."""
    memory: Optional[int] = None
    """Bytes on each."""
    share: bool = False
    """Beside others, each with the memory that it declares."""
    cpus: int = 0

    @property
    def is_anything(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self.gpus or self.cpus)

    def words(self) -> str:
        """For people: `2 GPUs`, `1 a100 GPU with 20 GB`, `4 cores`."""
        pieces = []
        if self.gpus:
            model = self.model + " " if self.model else ""
            text = "%d %sGPU%s" % (self.gpus, model, "s" if self.gpus != 1 else "")
            if self.share:
                text = "a share of " + text
            if self.memory:
                text += " with %s" % size(self.memory)
            if self.ids:
                text += " (named)"
            pieces.append(text)
        if self.cpus:
            pieces.append("%d core%s" % (self.cpus, "s" if self.cpus != 1 else ""))
        return " and ".join(pieces) or "nothing"

    def to_json(self) -> Dict[str, Any]:
        """For a ticket."""
        return {
            "gpus": self.gpus,
            "model": self.model,
            "ids": list(self.ids),
            "memory": self.memory,
            "share": self.share,
            "cpus": self.cpus,
        }


class Impossible(Exception):
    """The machine can never give that. Its words are for the user."""


def size(count: int) -> str:
    """20 GB where somebody said so, 80 GiB as a device has it."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")):
        if count >= unit and (count % 10**8 == 0 or name[1] == "i"):
            return "%.3g %s" % (count / unit, name)
    return "%d bytes" % count


def from_json(data: Any) -> Wants:
    """What a ticket says, which anybody may have written. Raises ValueError."""
    if not isinstance(data, dict):
        raise ValueError("no object")  # noqa: TRY004 # a document that is wrong, and no mistake of a program's
    ids = data.get("ids") or []
    if not isinstance(ids, list) or len(ids) > MOST or not all(_is_word(one) for one in ids):
        raise ValueError("no ids")
    model, memory = data.get("model"), data.get("memory")
    if model is not None and not _is_word(model):
        raise ValueError("no model")
    return Wants(
        _count(data.get("gpus"), MOST),
        model,
        tuple(ids),
        None if memory is None else _count(memory, 1 << 50),
        data.get("share") is True,
        _count(data.get("cpus"), _MOST_CORES),
    )


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 100 and value.isprintable()


def _count(value: Any, most: int) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError("no count")
    return value


def of_spec(spec: Dict[str, Any], units: Sequence[Unit]) -> Wants:
    """What that RunSpec asks for on a machine with those devices. Raises Impossible when it asks in a way that means nothing here.

    A count of None is the machine's default: one GPU where there is one, or those of `prefer`.
    """
    asked = spec.get("gpus") or {}
    try:
        cpus = _count(spec.get("cpus"), _MOST_CORES)
        count = asked.get("count", 0)
        named = asked.get("ids") or (_known(asked.get("prefer"), units) if count is None else ())
        ids = tuple(resolved(str(word), units) for word in named)
        if count is None:
            count = 1 if any(unit.trouble is None for unit in units) else 0
        model = asked.get("model")
        wants = from_json(
            {
                "gpus": len(ids) or (len(units) if count == "all" else count),
                "model": _plain(str(model)) if model else None,
                "ids": list(ids),
                "memory": asked.get("memory"),
                "share": asked.get("share"),
            }
        )
    except ValueError:
        raise Impossible("the wish for GPUs or cores makes no sense here") from None
    if len(set(ids)) != len(ids):
        raise Impossible("the same GPU is named twice")
    return wants._replace(cpus=cpus)


def _known(words: Any, units: Sequence[Unit]) -> List[str]:
    """Those of the user's own CUDA_VISIBLE_DEVICES, if they all are devices of this machine."""
    try:
        return [resolved(str(word), units) for word in words or ()]
    except Impossible:
        return []


def resolved(word: str, units: Sequence[Unit]) -> str:
    """The UUID that `word` means: an index, a part such as 0/1, or a UUID or its unique beginning. Raises Impossible."""
    found = [unit for unit in units if word in (unit.label, unit.uuid)]
    if not found and len(word) >= 6:
        found = [unit for unit in units if unit.uuid.lower().startswith(word.lower())]
    if len(found) != 1:
        why = "is no GPU of this machine" if not found else "is the beginning of several UUIDs"
        raise Impossible("`%s` %s: %s" % (word[:60], why, inventory(units)))
    return found[0].uuid


def fits(unit: Unit, wants: Wants) -> bool:
    """Whether that device could ever be given to such a run."""
    if unit.trouble is not None:
        return False
    if wants.ids:
        return unit.uuid in wants.ids
    if wants.model and wants.model not in _plain(unit.name):
        return False
    return not wants.memory or (unit.memory is not None and unit.memory >= wants.memory)


def check(wants: Wants, units: Sequence[Unit], cores: int, why: Optional[str] = None) -> None:
    """Raise Impossible for what the machine can never give. `why`: why no GPU is seen."""
    if wants.cpus > cores:
        raise Impossible("%s are asked for, and the machine has %d" % (Wants(cpus=wants.cpus).words(), cores))
    if not wants.gpus:
        return
    if not units:
        raise Impossible("%s asked for, and %s" % (_are(wants), why or "the machine has none"))
    if wants.share and not wants.memory:
        raise Impossible("who shares a GPU has to say how much memory it needs")
    fitting = [unit for unit in units if fits(unit, wants)]
    if len(fitting) < wants.gpus:
        broken = [unit for unit in units if unit.trouble is not None and unit.uuid in wants.ids]
        if broken:
            raise Impossible("GPU %s cannot be used: %s" % (broken[0].label, broken[0].trouble))
        raise Impossible("%s asked for, and the machine has %s" % (_are(wants), inventory(units)))


def _are(wants: Wants) -> str:
    words = wants._replace(cpus=0).words()
    return "%s %s" % (words, "are" if wants.gpus != 1 else "is")


def inventory(units: Sequence[Unit]) -> str:
    """What there is: `2 x NVIDIA A100 (0, 1; 80 GB)`."""
    kinds: Dict[Tuple[str, Optional[int]], List[Unit]] = {}
    for unit in units:
        kinds.setdefault((unit.name, unit.memory), []).append(unit)
    told = []
    for (name, memory), same in kinds.items():
        room = "; " + size(memory) if memory else ""
        told.append("%d x %s (%s%s)" % (len(same), name, ", ".join(unit.label for unit in same), room))
    return ", ".join(told) or "none"


def _plain(name: str) -> str:
    """Without what people leave out: `NVIDIA A100-SXM4-80GB` -> `nvidiaa100sxm480gb`."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
