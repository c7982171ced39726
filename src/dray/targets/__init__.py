"""The kinds of compute: each names its host, and how runs are started on it."""

from dray.targets.local import LocalTarget

__all__ = ["LocalTarget"]
