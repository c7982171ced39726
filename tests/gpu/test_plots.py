"""`dray metrics --plot gpu`: samples as curves."""

from __future__ import annotations

import math
import time

from dray.cli.axes import LENGTH
from dray.cli.gpu_plots import panels
from tests.gpu.fake import GIB, FakeNvml
from tests.gpu.machines import Machine


def _sample(t: float, **row: object) -> tuple[float, dict[str, object]]:
    return t, {"gpus": [{"gpu": "GPU-a", **row}], "run": {"cpu": None, "memory": None}}


def test_what_is_not_measurable_is_left_out_and_never_drawn_as_nothing() -> None:
    samples = [
        _sample(1.0, util=10, own_util=None),
        _sample(2.0, util=None, own_util=None),
        _sample(3.0, util=30),
    ]

    (panel,) = panels(samples, 0.0, LENGTH, {})

    assert panel.title.startswith("GPU busy")
    (curve,) = panel.curves  # of the run's own share nothing is known
    assert [point.value for point in curve.points][::2] == [10, 30]
    assert math.isnan(curve.points[1].value)


def test_a_machine_may_send_nonsense() -> None:
    samples = [(1.0, {"gpus": [{"gpu": 7, "util": "much"}], "run": [3]}), (2.0, {"gpus": [], "run": None})]

    assert panels(samples, 0.0, LENGTH, {}) == []  # type: ignore[arg-type]  # that is what nonsense means


def test_the_greatest_value_between_two_lines_is_seen() -> None:
    (panel,) = panels([_sample(1.0, own_util=5, own_util_max=90)], 0.0, LENGTH, {})

    assert (panel.curves[0].points[0].value, panel.curves[0].points[0].high) == (5, 90)


def test_a_run_is_drawn_and_so_is_one_that_never_had_a_gpu(world: Machine, driver: FakeNvml) -> None:
    world.write("cpu.py", "import time\nbegun = time.time()\nwhile time.time() - begun < 0.6: pass")
    world.dray("submit", "cpu.py")
    driver.gpu()
    world.write(
        "gpu.py",
        f"import os, time\nopen(os.environ['DRAY_FAKE_NVML'], 'a').write('0.process %d {GIB}\\n0.util 70\\n' % os.getpid())\ntime.sleep(1)",
    )
    world.dray("submit", "gpu.py")

    first = world.dray("metrics", "@last-1", "--plot", "gpu").out.decode()
    second = world.dray("metrics", "--plot", "gpu").out.decode()

    assert "cores, by time since the start" in first and "GPU" not in first
    for title in ("GPU busy, percent", "GPU memory, GiB", "GPU power, watts", "memory, GiB"):
        assert title in second


def test_a_metric_that_is_called_gpu_is_drawn_as_a_metric(world: Machine, driver: FakeNvml) -> None:
    world.write("own.py", "import dray\nfor step in range(5): dray.log(gpu=step)")
    world.dray("submit", "own.py")

    assert "gpu, by point" in world.dray("metrics", "--plot", "gpu").out.decode()


def test_lines_of_samples_grow_rarer_with_the_runs_age(world: Machine, driver: FakeNvml) -> None:
    world.write("a.py", "import time\ntime.sleep(4)")
    begun = time.monotonic()
    world.dray("submit", "a.py")

    (stream,) = world.home.rglob("telemetry.jsonl")
    assert 4 <= len(stream.read_bytes().splitlines()) <= 8 + 2 * (time.monotonic() - begun)
