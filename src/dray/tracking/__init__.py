"""What a script says about itself: metrics, parameters, tags, tables and pictures, in the run that it is part of.

Read `api.py` first. This package travels alone to the machine of a run: standard library only, Python 3.8 and newer,
and nothing of dray is imported. Outside a run all five functions do nothing, and say so once.
"""

from __future__ import annotations

from .api import log, log_image, log_params, log_table, tag

__all__ = ["log", "log_image", "log_params", "log_table", "tag"]
