"""What all tests share: the slow tier, which runs only when it is asked for, and a Ctrl-C that arrives."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# A shell that starts the tests in the background has them ignore Ctrl-C, and whatever they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a machine that others use too.
settings.register_profile("dray", deadline=None)
settings.load_profile("dray")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tier as well")
    parser.addoption("--gigabytes", type=float, default=2.0, help="of the very large output (tests/ssh)")
    parser.addoption("--drills", type=int, default=20, help="how many drills of the slow tier (tests/ssh)")


def pytest_configure() -> None:
    """Let the commands that tests start hear Ctrl-C.

    A shell without job control starts what it puts in the background deaf to it, and that is handed down.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow tests out, unless `--slow` is given or a test was named with `::`."""
    if config.getoption("--slow") or any("::" in word for word in config.args):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
