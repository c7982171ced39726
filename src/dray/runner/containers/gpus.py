"""How an engine hands GPUs to a container, and what is missing when it cannot. Pure: what the engine and the machine say in, words out.

Known from NVIDIA's documentation and from recorded answers; the tests replay those (tests/docker/recorded).
"""

from __future__ import annotations

from typing import Iterable, List

from .engines import ContainerFailed, Facts

_INSTALL = (
    "install NVIDIA's container toolkit (package `nvidia-container-toolkit`), then "
    "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
)


class Toolkit:
    """What a machine has for GPUs in containers, as far as files and programs tell."""

    def __init__(
        self,
        *,
        has_gpu: bool = False,
        ctk: str | None = None,
        hook: str | None = None,
        cdi_files: Iterable[str] = (),
        snap: bool = False,
        driver_trouble: str = "",
    ) -> None:
        self.has_gpu = has_gpu
        """A card of NVIDIA's is in the machine."""
        self.ctk = ctk
        """nvidia-ctk"""
        self.hook = hook
        """nvidia-container-runtime-hook or nvidia-container-cli"""
        self.cdi_files = list(cdi_files)
        """Descriptions of NVIDIA's devices in /etc/cdi or /var/run/cdi."""
        self.snap = snap
        """The engine is a snap: it sees its own file system, and no toolkit."""
        self.driver_trouble = driver_trouble
        """Why the driver does not answer, though there is a card."""

    @property
    def is_anything(self) -> bool:
        """Whether there is a word to be said of GPUs here."""
        return self.has_gpu or bool(self.ctk or self.hook or self.cdi_files)


def way(engine: str, facts: Facts, toolkit: Toolkit) -> str:
    """How GPUs get in: "gpus", "runtime" or "cdi". Raises ContainerFailed with what mends it."""
    if toolkit.driver_trouble:
        raise ContainerFailed("no-gpu-in-containers", driver_words(toolkit.driver_trouble))
    if not toolkit.has_gpu:
        raise ContainerFailed("no-gpu-in-containers", "there is no NVIDIA GPU on this machine")
    if toolkit.snap:
        raise ContainerFailed(
            "no-gpu-in-containers",
            "docker is a snap here, and a snap cannot use NVIDIA's container toolkit; "
            "`sudo snap remove docker`, then install docker from your distribution or docker.com",
        )
    has_cdi = bool(toolkit.cdi_files)
    if engine == "podman":
        if has_cdi:
            return "cdi"
        if toolkit.ctk:
            raise ContainerFailed(
                "no-gpu-in-containers",
                "podman knows no GPU here: there is no CDI description; "
                "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
            )
        raise ContainerFailed("no-gpu-in-containers", "podman cannot hand in GPUs here: " + _INSTALL)
    if toolkit.hook:
        return "gpus"
    if "nvidia" in facts.runtimes:
        return "runtime"
    if has_cdi and facts.cdi and _at_least(facts.version, 25):
        return "cdi"
    if toolkit.ctk:
        raise ContainerFailed(
            "no-gpu-in-containers",
            "the container toolkit is installed, and docker does not know it: "
            "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`",
        )
    raise ContainerFailed(
        "no-gpu-in-containers", "this machine has a GPU, but containers cannot get it: " + _INSTALL
    )


def words(how: str, uuids: Iterable[str]) -> List[str]:
    """What the command line needs for exactly these GPUs."""
    wanted = list(uuids)
    if not wanted:
        return []
    caps = ["--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    if how == "cdi":
        found = []
        for uuid in wanted:
            found += ["--device", "nvidia.com/gpu=" + uuid]
        return found
    if how == "runtime":
        return ["--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=" + ",".join(wanted), *caps]
    # The quotes are part of the value: the engine reads it as a line of comma-separated fields.
    return ["--gpus", '"device=%s"' % ",".join(wanted), *caps]


def none_words(image_env: Iterable[str]) -> List[str]:
    """A run without GPUs sees none, though its image asks for all and the engine's default runtime would give them."""
    return ["--env", "NVIDIA_VISIBLE_DEVICES=void"] if "NVIDIA_VISIBLE_DEVICES" in set(image_env) else []


def explain(said: str) -> str | None:
    """What an engine's refusal of a GPU means, with what mends it; None when it is about something else."""
    low = said.lower()
    if "could not select device driver" in low and "gpu" in low:
        return "docker cannot hand in GPUs: " + _INSTALL
    if "unknown runtime specified nvidia" in low or (
        "unknown or invalid runtime name" in low and "nvidia" in low
    ):
        return "docker does not know NVIDIA's runtime: `sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
    if "unresolvable cdi devices" in low or ('device driver "cdi"' in low):
        return "the engine does not know the GPU by CDI: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
    if (
        "driver/library version mismatch" in low
        or "nvml error: driver not loaded" in low
        or "initialization error" in low
    ):
        return driver_words(said)
    if "failed to initialize nvml" in low and "unknown error" in low:
        return (
            "the container has lost its GPU, as after `systemctl daemon-reload` with systemd cgroups; "
            'start the run again; for good: "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json, or CDI'
        )
    return None


def driver_words(said: str) -> str:
    """What a failing nvidia-smi means."""
    low = said.lower()
    if "version mismatch" in low:
        return (
            "the NVIDIA driver was upgraded and the old one is still loaded (driver/library version mismatch): "
            "reboot the machine, or unload the nvidia modules while nothing uses them"
        )
    if "couldn't communicate" in low or "driver not loaded" in low:
        return "the NVIDIA driver is installed and not loaded: `sudo modprobe nvidia`, or reboot after a kernel upgrade"
    return "the NVIDIA driver does not work: " + " ".join(said.split())[:300]


def _at_least(version: str, major: int) -> bool:
    head = version.split(".", maxsplit=1)[0]
    return head.isdigit() and int(head) >= major
