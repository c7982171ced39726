"""What a run holds, and the variables by which its program sees that and nothing else."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

from .wants import Unit

NOTHING = "-1"
"""An index that no GPU has. An empty text would do for CUDA, but programs and shells take it for "not set"."""
ORDER = "CUDA_DEVICE_ORDER"
NVIDIA = "CUDA_VISIBLE_DEVICES"
AMD, HIP = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
NAMES = (NVIDIA, AMD, HIP)


class Granted(NamedTuple):
    """Devices that a run holds now."""

    units: Tuple[Unit, ...] = ()
    others: Tuple[Unit, ...] = ()
    """Devices of the machine that the run does not hold."""
    by_index: bool = False
    hides: bool = False
    """Whether the program sees none, if it holds none. False where nothing was said and there is nothing to hide."""

    def variables(self, users: Dict[str, str]) -> Dict[str, str]:
        """What the program's environment needs; `users` is what the submit said of its own."""
        if not self.units and not self.hides:
            return {}
        mine = {
            vendor: [unit for unit in self.units if unit.vendor == vendor] for vendor in ("nvidia", "amd")
        }
        nvidia = ",".join(self._name(unit) for unit in mine["nvidia"]) or NOTHING
        if mine["amd"]:
            # HIP counts what ROCR leaves, and takes CUDA's variable for its own.
            left = ",".join(str(number) for number in range(len(mine["amd"])))
            said = {AMD: ",".join(self._name(unit) for unit in mine["amd"]), HIP: left, NVIDIA: left}
        else:
            said = {NVIDIA: nvidia, AMD: NOTHING, HIP: NOTHING}
        said[ORDER] = "PCI_BUS_ID"
        return {name: value for name, value in said.items() if not self._may_stay(users.get(name))}

    def _may_stay(self, users: Optional[str]) -> bool:
        """Who wants to see less than it holds may; nobody sees what another holds."""
        if users is None or users in ("", NOTHING) or not self.units:
            return users in ("", NOTHING)
        words = [word.strip() for word in users.split(",")]
        named = (unit for unit in self.others for word in words if _names(word, unit))
        return next(named, None) is None

    def _name(self, unit: Unit) -> str:
        return str(unit.slot) if self.by_index and unit.part is None else unit.uuid

    def to_json(self) -> Dict[str, Any]:
        """For the run's own words."""
        return {"gpus": [{"index": u.label, "uuid": u.uuid, "name": u.name} for u in self.units]}


def _names(word: str, unit: Unit) -> bool:
    """CUDA takes the beginning of a UUID for it."""
    return word == unit.label or (len(word) > 4 and unit.uuid.lower().startswith(word.lower()))


def of(
    uuids: Tuple[str, ...], units: Tuple[Unit, ...], spec: Dict[str, Any], *, may_be_more: bool = False
) -> Granted:
    """The grant of those devices to that run, in the order of the bus. `may_be_more`: nobody knows what there is."""
    asked: Optional[Dict[str, Any]] = spec.get("gpus")
    held = tuple(unit for unit in units if unit.uuid in uuids)
    said = asked is not None and (bool(units) or may_be_more or not asked.get("default"))
    others = tuple(unit for unit in units if unit.uuid not in uuids)
    return Granted(held, others, bool((asked or {}).get("numbers")), hides=said)
