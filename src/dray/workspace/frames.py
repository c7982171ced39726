"""Histories as pandas DataFrames, where pandas is there. It is no dependency of dray: whoever wants frames has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.core.where_tree import Field
from dray.workspace.errors import PandasMissing

if TYPE_CHECKING:
    from dray.store import RunRecord, Series, Store
    from dray.workspace.logged import Table

_FACTS = (
    "id",
    "name",
    "experiment",
    "compute",
    "status",
    "exit_code",
    "created",
    "started",
    "ended",
    "duration_s",
    "note",
)
_MOMENTS = ("created", "started", "ended")


def metrics_frame(series: Mapping[str, Series]) -> Any:
    """One row a point: name, step, time, value."""
    pandas = _pandas()
    steps = [step for one in series.values() for step in one.steps]
    times = [time for one in series.values() for time in one.times]
    values = [value for one in series.values() for value in one.values]
    return pandas.DataFrame(
        {
            "name": [name for name, one in series.items() for _ in one.values],
            "step": pandas.array(
                steps, dtype="Int64"
            ),  # a step may be missing, and is a whole number all the same
            "time": _moments(pandas, times),
            "value": pandas.array(values, dtype="float64"),
        }
    )


def runs_frame(store: Store, records: Sequence[RunRecord]) -> Any:
    """One row a run: facts, then `params.X`, `tags.X` and the latest `metrics.X` of all that any of them has."""
    pandas = _pandas()
    facts: dict[str, list[Any]] = {name: [getattr(record, name) for record in records] for name in _FACTS}
    facts["status"] = [str(record.status) for record in records]
    facts["reason"] = [(record.reason or {}).get("text") for record in records]
    columns: dict[str, Any] = {**facts, "exit_code": pandas.array(facts["exit_code"], dtype="Int64")}
    columns.update((name, _moments(pandas, facts[name])) for name in _MOMENTS)
    ids = [record.id for record in records]
    for family in ("params", "tags", "metrics"):
        fields = [Field(family, name) for name in store.names(family)] if ids else []
        found = store.columns(ids, fields)
        there = [one for one in fields if any(one in found[run] for run in ids)]
        columns.update((f"{family}.{one.name}", [found[run].get(one) for run in ids]) for one in there)
    return pandas.DataFrame(columns)


def table_frame(table: Table) -> Any:
    """The table as it was logged."""
    return _pandas().DataFrame(table.rows, columns=table.columns)


def _moments(pandas: Any, times: Sequence[float | None]) -> Any:
    """Seconds since 1970 as moments in UTC; what no calendar has is missing."""
    return pandas.to_datetime(pandas.Series(times, dtype="float64"), unit="s", utc=True, errors="coerce")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise PandasMissing(str(error)) from None
    return pandas
