"""NVIDIA's management library by ctypes: the few calls that dray makes of it (why not a package: decision 0033).

Read `Nvml` first. Each method is one question; what the driver does not answer raises `NvmlError`, and a reader that can do without
asks through `or_none`. Nothing in here knows what the answers mean for a run.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_char, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, TypeVar

LIBRARY = "libnvidia-ml.so.1"
DOOR = "DRAY_NVML"
"""The variable that names another library with the same calls."""

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 3, 4, 6, 7
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 12, 13
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 15, 16, 18

_WORDS = {
    1: "not initialised",
    2: "invalid argument",
    NOT_SUPPORTED: "not supported by this GPU or driver",
    NO_PERMISSION: "permission denied",
    NOT_FOUND: "nothing found",
    8: "not enough external power",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    10: "the driver did not answer in time",
    11: "the kernel reports an interrupt issue with a GPU",
    LIBRARY_NOT_FOUND: "the library was not found",
    FUNCTION_NOT_FOUND: "the driver is too old for this question",
    14: "the GPU's infoROM is corrupted",
    GPU_IS_LOST: "the GPU has fallen off the bus or is otherwise lost",
    RESET_REQUIRED: "the GPU requires a reset",
    17: "the operating system has blocked the request",
    VERSION_MISMATCH: "the driver's kernel module and its library have different versions",
    20: "not enough memory",
    23: "the GPU's resources are exhausted",
    999: "an internal driver error occurred",
}

_NOT_AVAILABLE = (1 << 64) - 1
_MEMORY_V2 = ctypes.sizeof(c_ulonglong) * 5 | 2 << 24
_SM_CLOCK = 1
_TEMPERATURE = 0
_VOLATILE, _CORRECTED, _UNCORRECTED = 0, 0, 1
_UTILISATION_SAMPLES = 1
_LONGEST_LIST = 4096

_T = TypeVar("_T")


class NvmlError(Exception):
    """The driver's own word for why it gives no answer."""

    def __init__(self, code: int, call: str) -> None:
        self.code = code
        self.call = call
        self.words = _WORDS.get(code, "the driver's error %d" % code)
        super().__init__("%s (%s: %d)" % (self.words, call, code))


class _Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _MemoryV2(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("device_id", c_uint),
        ("subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    ]


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("instance", c_uint)]


class _OldProcess(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("memory", c_ulonglong)]


class _ProcessSample(ctypes.Structure):
    _fields_ = [
        ("pid", c_uint),
        ("t", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    ]


class _Sample(ctypes.Structure):
    _fields_ = [("t", c_ulonglong), ("value", c_ulonglong)]


class _Accounting(ctypes.Structure):
    _fields_ = [
        ("gpu", c_uint),
        ("memory", c_uint),
        ("peak_memory", c_ulonglong),
        ("time_ms", c_ulonglong),
        ("start_us", c_ulonglong),
        ("running", c_uint),
        ("reserved", c_uint * 5),
    ]


class OnDevice(NamedTuple):
    """A process that holds a GPU: its pid, and its bytes there (None: the driver does not tell)."""

    pid: int
    memory: Optional[int]


class Share(NamedTuple):
    """What one process had of a GPU's multiprocessors, in percent, up to the driver's time `t` in microseconds."""

    pid: int
    t: int
    sm: int


class Account(NamedTuple):
    """The driver's own books about one process, over its whole life: percent of that time, peak bytes, milliseconds."""

    gpu: int
    peak_memory: Optional[int]
    time_ms: int


class Memory(NamedTuple):
    """Bytes; `used` is without what the driver keeps for itself, where it tells the two apart."""

    total: int
    free: int
    used: int


def or_none(ask: Callable[..., _T], *words: Any) -> Optional[_T]:
    """The answer, or None where the driver gives none."""
    try:
        return ask(*words)
    except NvmlError:
        return None


class Nvml:
    """The library, loaded and initialised. Raises NvmlError; OSError when there is none, or it cannot be loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ.get(DOOR) or LIBRARY)
        self._call("nvmlInit_v2")

    def close(self) -> None:
        """Let go of the driver."""
        or_none(self._call, "nvmlShutdown")

    # -- the machine

    def driver(self) -> str:
        """Version of the driver, such as "570.86.15"."""
        return self._text("nvmlSystemGetDriverVersion", size=80)

    def cuda(self) -> Tuple[int, int]:
        """The newest CUDA that this driver runs."""
        number = self._number(("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"))
        return number // 1000, number % 1000 // 10

    def count(self) -> int:
        """How many GPUs there are; those that this user may not open count too."""
        return self._number(("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"))

    def device(self, index: int) -> c_void_p:
        """The handle of a GPU, in the order of the PCI bus."""
        handle = c_void_p()
        self._first(
            ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"), c_uint(index), byref(handle)
        )
        return handle

    # -- what a GPU is

    def uuid(self, device: c_void_p) -> str:
        """`GPU-...` or `MIG-...`."""
        return self._text("nvmlDeviceGetUUID", device, size=96)

    def name(self, device: c_void_p) -> str:
        """As NVIDIA sells it."""
        return self._text("nvmlDeviceGetName", device, size=96)

    def pci_bus_id(self, device: c_void_p) -> str:
        """As the old log lines wrote it: "06c3:00:00.0"."""
        pci = _Pci()
        self._first(("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"), device, byref(pci))
        return "%04x:%02x:%02x.0" % (pci.domain, pci.bus, pci.device)

    def capability(self, device: c_void_p) -> Tuple[int, int]:
        """Compute capability."""
        major, minor = c_int(), c_int()
        self._call("nvmlDeviceGetCudaComputeCapability", device, byref(major), byref(minor))
        return major.value, minor.value

    def minor(self, device: c_void_p) -> int:
        """N of /dev/nvidiaN."""
        return self._number(("nvmlDeviceGetMinorNumber",), device)

    def memory(self, device: c_void_p) -> Memory:
        """Of the whole GPU, or of a MIG instance."""
        newer = _MemoryV2(version=_MEMORY_V2)
        try:
            self._call("nvmlDeviceGetMemoryInfo_v2", device, byref(newer))
            return Memory(newer.total, newer.free, newer.used)
        except NvmlError as trouble:
            if trouble.code not in (FUNCTION_NOT_FOUND, 25, NOT_SUPPORTED):
                raise
        older = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", device, byref(older))
        return Memory(older.total, older.free, older.used)

    def mig_devices(self, device: c_void_p) -> Optional[List[c_void_p]]:
        """The instances that the GPU is cut into; None when it is not."""
        current, pending = c_uint(), c_uint()
        try:
            self._call("nvmlDeviceGetMigMode", device, byref(current), byref(pending))
        except NvmlError as trouble:
            if trouble.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                return None
            raise
        if not current.value:
            return None
        found = []
        for index in range(self._number(("nvmlDeviceGetMaxMigDeviceCount",), device)):
            handle = c_void_p()
            try:
                self._call("nvmlDeviceGetMigDeviceHandleByIndex", device, c_uint(index), byref(handle))
            except NvmlError as trouble:
                if trouble.code != NOT_FOUND:
                    raise
                continue  # a place without an instance
            found.append(handle)
        return found

    def persistence(self, device: c_void_p) -> bool:
        """Whether the driver stays initialised while nobody uses the GPU."""
        return bool(self._number(("nvmlDeviceGetPersistenceMode",), device))

    def ecc_errors(self, device: c_void_p) -> Tuple[int, int]:
        """Memory errors since the driver was loaded: corrected, uncorrected."""
        found = []
        for kind in (_CORRECTED, _UNCORRECTED):
            count = c_ulonglong()
            self._call("nvmlDeviceGetTotalEccErrors", device, c_uint(kind), c_uint(_VOLATILE), byref(count))
            found.append(count.value)
        return found[0], found[1]

    # -- what it does now

    def utilisation(self, device: c_void_p) -> int:
        """Percent of the driver's last period in which anything ran."""
        rates = _Utilisation()
        self._call("nvmlDeviceGetUtilizationRates", device, byref(rates))
        return int(rates.gpu)

    def power_w(self, device: c_void_p) -> float:
        """Watts."""
        return self._number(("nvmlDeviceGetPowerUsage",), device) / 1000.0

    def energy_mj(self, device: c_void_p) -> int:
        """Millijoules since the driver was loaded."""
        value = c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", device, byref(value))
        return value.value

    def temperature(self, device: c_void_p) -> int:
        """Degrees Celsius."""
        value = c_uint()
        self._call("nvmlDeviceGetTemperature", device, c_uint(_TEMPERATURE), byref(value))
        return value.value

    def clock(self, device: c_void_p) -> int:
        """MHz of the multiprocessors now."""
        return self._clock("nvmlDeviceGetClockInfo", device)

    def most_clock(self, device: c_void_p) -> int:
        """MHz of the multiprocessors at most."""
        return self._clock("nvmlDeviceGetMaxClockInfo", device)

    def _clock(self, call: str, device: c_void_p) -> int:
        value = c_uint()
        self._call(call, device, c_uint(_SM_CLOCK), byref(value))
        return value.value

    def slowed_by(self, device: c_void_p) -> int:
        """Bits: why the clock is below the most."""
        value = c_ulonglong()
        calls = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        self._first(calls, device, byref(value))
        return value.value

    # -- who is on it

    def processes(self, device: c_void_p) -> List[OnDevice]:
        """Those that compute."""
        return self._processes("nvmlDeviceGetComputeRunningProcesses", device)

    def drawing(self, device: c_void_p) -> List[OnDevice]:
        """Those that draw."""
        return self._processes("nvmlDeviceGetGraphicsRunningProcesses", device)

    def _processes(self, call: str, device: c_void_p) -> List[OnDevice]:
        versions = [(call + "_v3", _Process), (call + "_v2", _Process), (call, _OldProcess)]
        for name, shape in versions:
            try:
                rows = self._list(name, shape, lambda n, rows: (device, byref(n), rows))
            except NvmlError as trouble:
                if trouble.code != FUNCTION_NOT_FOUND or shape is _OldProcess:
                    raise
                continue
            return [OnDevice(row.pid, None if row.memory == _NOT_AVAILABLE else row.memory) for row in rows]
        return []

    def shares(self, device: c_void_p, since: int) -> List[Share]:
        """What each process had of the GPU since the driver's time `since` (0: all that it remembers).

        Entries that are none - process 0, or more than all of a GPU - come from some drivers, and are left out.
        """
        last = c_ulonglong(since)
        try:
            rows = self._list(
                "nvmlDeviceGetProcessUtilization",
                _ProcessSample,
                lambda n, rows: (device, rows, byref(n), last),
            )
        except NvmlError as trouble:
            if trouble.code == NOT_FOUND:  # nothing ran since then
                return []
            raise
        return [Share(row.pid, row.t, row.sm) for row in rows if row.pid and row.t > since and row.sm <= 100]

    def peaks(self, device: c_void_p, since: int) -> List[Tuple[int, int]]:
        """The driver's own samples of the utilisation since its time `since`: (time in microseconds, percent)."""
        kind = c_uint()
        last = c_ulonglong(since)
        try:
            rows = self._list(
                "nvmlDeviceGetSamples",
                _Sample,
                lambda n, rows: (device, c_uint(_UTILISATION_SAMPLES), last, byref(kind), byref(n), rows),
            )
        except NvmlError as trouble:
            if trouble.code == NOT_FOUND:
                return []
            raise
        values = [(row.t, row.value & 0xFFFFFFFF) for row in rows]
        return [(t, value) for t, value in values if t > since and value <= 100]

    def accounts(self, device: c_void_p) -> bool:
        """Whether the driver keeps books about processes."""
        return bool(self._number(("nvmlDeviceGetAccountingMode",), device))

    def account(self, device: c_void_p, pid: int) -> Account:
        """The books about that process; NOT_FOUND when it never used the GPU."""
        row = _Accounting()
        self._call("nvmlDeviceGetAccountingStats", device, c_uint(pid), byref(row))
        peak = None if row.peak_memory == _NOT_AVAILABLE else row.peak_memory
        return Account(row.gpu, peak, row.time_ms)

    # -- calling

    def _list(self, call: str, shape: Any, words: Callable[[Any, Any], Tuple[Any, ...]]) -> List[Any]:
        """A list whose length is asked for first; it may have grown when it comes."""
        count = c_uint(0)
        try:
            self._call(call, *words(count, POINTER(shape)()))
            if not count.value:
                return []
        except NvmlError as trouble:
            if trouble.code != INSUFFICIENT_SIZE:
                raise
        size = count.value or 64  # some drivers do not tell the size
        while True:
            size = min(size + 8, _LONGEST_LIST)
            rows = (shape * size)()
            count = c_uint(size)
            try:
                self._call(call, *words(count, rows))
                return list(rows[: count.value])
            except NvmlError as trouble:
                if trouble.code != INSUFFICIENT_SIZE or size >= _LONGEST_LIST:
                    raise
                size = max(size * 2, count.value)

    def _number(self, calls: Tuple[str, ...], *words: Any) -> int:
        value = c_uint()
        self._first(calls, *words, byref(value))
        return value.value

    def _text(self, call: str, *words: Any, size: int) -> str:
        buffer = ctypes.create_string_buffer(size)
        self._call(call, *words, buffer, c_uint(size))
        return buffer.value.decode(errors="replace")

    def _first(self, calls: Tuple[str, ...], *words: Any) -> None:
        """The newest of `calls` that this driver has."""
        for call in calls[:-1]:
            try:
                return self._call(call, *words)
            except NvmlError as trouble:
                if trouble.code != FUNCTION_NOT_FOUND:
                    raise
        return self._call(calls[-1], *words)

    def _call(self, call: str, *words: Any) -> None:
        try:
            function = getattr(self._library, call)
        except AttributeError:
            raise NvmlError(FUNCTION_NOT_FOUND, call) from None
        code = function(*words)
        if code:
            raise NvmlError(code, call)
