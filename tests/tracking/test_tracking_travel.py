"""The door that travels: which dray a script gets, on every Python at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracking.tracked import TRACKING, World, pythons, travelling

VERMIN = str(Path(sys.executable).with_name("vermin"))
OLD = sorted(v for v in pythons() if v < (3, 8))
NEW = sorted(v for v in pythons() if v >= (3, 8))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("version", NEW, ids=str)
def test_the_functions_need_nothing_but_the_standard_library(world: World, version: tuple[int, int]) -> None:
    _, err = world.run(
        "import dray\n"
        "dray.log(loss=0.5, step=1); dray.log_params(lr=1); dray.tag(a='b'); dray.log_table('t', [[1]])\n"
        "dray.log_image('i', b'GIF89a'); dray.log(text='x')\n"
        "from dray.tracking import log; assert log is dray.log\n",
        python=pythons()[version],
    )

    (events,) = world.events().values()
    assert [e["type"] for e in events] == ["opened", "metrics", "params", "tags", "table", "image", "text"]
    assert err.count("\n") == 1


@pytest.mark.parametrize("version", OLD, ids=str)
def test_a_python_that_is_too_old_gets_one_sentence(world: World, version: tuple[int, int]) -> None:
    out, err = world.run(
        "import dray\n"
        "dray.log({'a/b': 1}, step=1, loss=0.5); dray.log_params(lr=1); dray.tag(a='b')\n"
        "dray.log_table('t', [[1]]); dray.log_image('i', b'GIF89a'); print('on')",
        python=pythons()[version],
    )

    assert out == "on\n"
    number = ".".join(map(str, version))
    assert err == f"dray: this Python is {number}; recording needs 3.8 or newer, so nothing is recorded\n"
    assert os.listdir(world.streams) == []


def test_the_package_needs_at_most_python_3_8() -> None:
    files = [str(p) for p in TRACKING.glob("*.py") if p.name != "travel.py"]
    done = subprocess.run([VERMIN, "-q", "--no-tips", "-t=3.8-", "--violations", *files], check=False)
    assert done.returncode == 0


def test_the_door_can_be_read_by_the_oldest() -> None:
    door = str(TRACKING / "travel.py")
    done = subprocess.run(
        [VERMIN, "-q", "--no-tips", "-t=2.7-", "-t=3.5-", "--violations", door], check=False
    )
    assert done.returncode == 0


def test_what_only_the_full_dray_has_is_named(world: World) -> None:
    out, _ = world.run(
        "import dray\n"
        "try: dray.Workspace\n"
        "except AttributeError as e: print(e)\n"
        "print(hasattr(dray, '__wrapped__'), hasattr(dray, 'log'))"
    )

    assert out.startswith("`dray.Workspace` needs the full dray, which is not installed in this Python (")
    assert out.endswith("False True\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages with dray installed, as `pip install --target` leaves it."""
    site = tmp_path / "site"
    shutil.copytree(TRACKING.parent, site / "dray", ignore=shutil.ignore_patterns("__pycache__"))
    return site


def test_the_full_dray_behind_it_takes_over(world: World, site: Path) -> None:
    out, err = world.run(
        f"sys.path.append({str(site)!r})\n"
        "import dray.tracking\n"
        "import dray, dray.core.states\n"
        "dray.log(loss=1)\n"
        "from dray import log, DrayError\n"
        "log(loss=2); dray.tracking.log(loss=3)\n"
        "print(dray.__file__); print(dray.tracking.__file__); print(dray.__version__, DrayError.code)\n"
        "print([m for m in sys.modules if m.startswith('dray') and str(site) not in sys.modules[m].__file__])".replace(
            "str(site)", repr(str(site))
        )
    )

    home, tracking, version, others = out.splitlines()
    assert home == str(site / "dray" / "__init__.py")
    assert tracking == str(site / "dray" / "tracking" / "__init__.py")
    assert version.endswith(" error")
    assert others == "[]"
    assert [m["values"]["loss"] for m in world.only("metrics")] == [1, 2, 3]
    assert err == ""


def test_the_full_dray_is_found_through_a_finder_of_an_editable_install(world: World, site: Path) -> None:
    out, _ = world.run(
        "from importlib.machinery import PathFinder\n"
        "class Editable:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        return PathFinder.find_spec(name, [{str(site)!r}]) if name == 'dray' else None\n"
        "sys.meta_path.append(Editable)\n"
        "import dray; print(dray.__file__)"
    )

    assert out == f"{site}/dray/__init__.py\n"


@pytest.mark.parametrize("order", [0, 1])
def test_other_things_of_that_name_are_looked_behind(
    world: World, site: Path, order: int, tmp_path: Path
) -> None:
    outer = travelling(tmp_path / "outer run")  # a run that was submitted from inside a run
    (tmp_path / "project" / "dray").mkdir(parents=True)  # a folder of that name
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "dray.py").write_text("raise SystemExit('wrong')")
    others = [outer, tmp_path / "project", tmp_path / "toys"]
    found, _ = world.run(
        f"sys.path += {[str(o) for o in (others[::-1] if order else others)]} + [{str(site)!r}]\n"
        "import dray; print(dray.__file__)"
    )
    alone, _ = world.run(
        f"sys.path += {[str(o) for o in (others[::-1] if order else others)]}\nimport dray; print(dray.__file__)"
    )

    assert found == f"{site}/dray/__init__.py\n"
    assert alone == f"{world.path}/dray/__init__.py\n"


@pytest.mark.parametrize("broken", ["raise RuntimeError('broken')", "import dray.nothing", "pass"])
def test_a_full_dray_that_does_not_work_is_left_alone(world: World, site: Path, broken: str) -> None:
    (site / "dray" / "__init__.py").write_text(broken)
    out, err = world.run(
        f"sys.path.append({str(site)!r})\nimport dray; dray.log(loss=1); import dray.tracking; print(dray.__file__)"
    )

    assert out == f"{world.path}/dray/__init__.py\n"
    assert world.only("metrics") == [{"step": None, "values": {"loss": 1}}]
    assert err == ""


def test_pythonpath_of_a_run_reaches_scripts_and_their_children(world: World) -> None:
    script = world.folder / "plain.py"
    script.write_text(
        "import multiprocessing, dray\n"
        "def work(n): dray.log(child=n)\n"
        "if __name__ == '__main__':\n"
        "    dray.log(parent=0)\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool: pool.map(work, [1, 2, 3])\n"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(world.path), "DRAY_STREAMS": str(world.streams)}
    subprocess.run([sys.executable, "-S", script], env=env, check=True, timeout=60)

    values = [
        v for events in world.events().values() for e in events[1:] for v in e["data"]["values"].values()
    ]
    assert sorted(values) == [0, 1, 2, 3]
