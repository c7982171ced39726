"""What `import dray` gives inside a run whose Python has no dray: the five functions, and the way to a full dray.

The runner's folder holds this file as `dray/__init__.py` beside `dray/tracking/`, at the end of PYTHONPATH. It is
written in the oldest syntax (Python 2.7 and 3.5 read it), so that a Python that is too old gets a sentence.
"""
# ruff: noqa: ANN001, ANN002, ANN003, ANN202
# (annotations are not in the oldest syntax; mypy reads the comments)

import importlib
import sys

MYPY = False
if MYPY:
    from typing import Any, List  # noqa: F401  # novm: only mypy comes here

__all__ = ["log", "log_image", "log_params", "log_table", "tag"]

_said = []  # type: List[bool]


def _too_old(*_values, **_named):
    # type: (*Any, **Any) -> None
    """Record nothing, and say so once."""
    if _said:
        return
    _said.append(True)
    version = ".".join(str(n) for n in sys.version_info[:2])
    try:
        sys.stderr.write(
            "dray: this Python is %s; recording needs 3.8 or newer, so nothing is recorded\n" % version
        )
    except Exception:
        pass


def __getattr__(name):
    # type: (str) -> Any
    if name.startswith("__"):
        raise AttributeError("module 'dray' has no attribute '%s'" % name)
    raise AttributeError(
        "`dray.%s` needs the full dray, which is not installed in this Python (%s); here are only %s"
        % (name, sys.executable, ", ".join(__all__))
    )


if sys.version_info < (3, 8):
    log = log_image = log_params = log_table = tag = _too_old
elif "__path__" in globals():  # in its place it is a package; elsewhere it is only being looked at
    if not importlib.import_module(".tracking.handover", __name__).hand_over(__name__, __file__):
        _tracking = importlib.import_module(".tracking", __name__)
        log = _tracking.log
        log_image = _tracking.log_image
        log_params = _tracking.log_params
        log_table = _tracking.log_table
        tag = _tracking.tag
