"""The machine's GPUs are looked at before anything is sent: through the driver's library, or the fake one that stands in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray import DrayError, Workspace
from dray.core.errors import UnknownName, UsageError
from dray.core.spec import Environment
from dray.workspace.events import Said
from tests.gpu.conftest import driver
from tests.gpu.fake import FakeNvml

__all__ = ["driver"]
SCRIPT = "print('ran')\n"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "home")


def plan(ws: Workspace, code: Path, requirement: str, **words: object) -> tuple[Environment, list[str]]:
    from dray.workspace import Submission

    (code / "requirements.txt").write_text(requirement + "\n")
    planned = ws.plan(Submission(script=str(code / "train.py"), folder=str(code), **words))  # type: ignore[arg-type]
    assert planned.environment is not None
    return planned.environment, planned.notes


def test_torch_auto_takes_the_build_for_the_driver(ws: Workspace, code: Path, driver: FakeNvml) -> None:
    driver.says("driver 550.54.14")
    driver.gpu()

    environment, notes = plan(ws, code, "torch", torch="auto")

    assert environment.index == {"torch_backend": "cu126"}
    assert notes == ["torch: the build cu126, the newest for driver 550.54.14"]
    assert environment.digest != Environment(("torch",)).digest


def test_torch_auto_is_the_cpu_build_where_there_is_no_gpu(
    ws: Workspace, code: Path, driver: FakeNvml
) -> None:
    environment, notes = plan(ws, code, "torch", torch="auto")

    assert environment.index == {"torch_backend": "cpu"}
    assert "sees no GPU" in notes[0]


def test_a_required_gpu_refuses_what_would_not_use_it(ws: Workspace, code: Path, driver: FakeNvml) -> None:
    driver.says("driver 550.54.14")
    driver.gpu()

    with pytest.raises(DrayError, match="--torch auto") as caught:
        plan(ws, code, "torch", require_gpu=True)
    assert "driver 580" in str(caught.value)
    with pytest.raises(DrayError, match="built for the CPU"):
        plan(ws, code, "jax", require_gpu=True)
    assert plan(ws, code, "jax[cuda12]", require_gpu=True)[1] == []


def test_no_build_that_fits_is_told_with_the_driver(ws: Workspace, code: Path, driver: FakeNvml) -> None:
    driver.says("driver 470.82.01")
    driver.gpu()

    with pytest.raises(DrayError, match=r"470\.82\.1"):
        plan(ws, code, "torch", torch="auto")


def test_a_submit_says_what_it_noticed_and_goes_on(ws: Workspace, code: Path, driver: FakeNvml) -> None:
    driver.says("driver 550.54.14")
    driver.gpu()
    # Nothing is installed for another platform, so this builds in no time; what is noticed is what the line says.
    (code / "requirements.txt").write_text('jax ; sys_platform == "never"\n')
    said: list[str] = []

    run = ws.submit(
        str(code / "train.py"),
        folder=str(code),
        on=lambda event: said.append(event.text) if isinstance(event, Said) else None,
    )
    run.wait()

    assert run.status == "completed"
    assert [line for line in said if line.startswith("gpu:")] == [
        "gpu: `jax` alone is built for the CPU; write `jax[cuda12]`"
    ]


@pytest.mark.parametrize(
    ("requirement", "torch", "kind", "said"),
    [
        ("torch", "cu12", UnknownName, "build of torch"),
        ("torch", "cuda", UnknownName, "build of torch"),
        ("numpy", "auto", UsageError, "does not name `torch`"),
        ("six==1.17.0 --hash=sha256:ab", "auto", UsageError, "a lock"),
    ],
)
def test_words_that_make_no_sense(
    ws: Workspace,
    code: Path,
    driver: FakeNvml,
    requirement: str,
    torch: str,
    kind: type[DrayError],
    said: str,
) -> None:
    from dray.workspace import Submission

    (code / "requirements.txt").write_text(requirement + "\n")
    with pytest.raises(kind, match=said):
        ws.submit_planned(Submission(script=str(code / "train.py"), folder=str(code), torch=torch))


def test_the_chosen_build_reaches_uv() -> None:
    from dray.runner.environments.variables import with_index

    assert with_index({}, {"torch_backend": "cu126"}, {})["UV_TORCH_BACKEND"] == "cu126"
