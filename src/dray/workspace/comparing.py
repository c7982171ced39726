"""What is different between runs, as plain data: what they were, were given and gave, their environments, their code.

Read `Comparison` first. All of it is the history's, but the contents of files: those are had as `Code` has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray.core.errors import UsageError
from dray.core.where_tree import Field
from dray.workspace.code import Code
from dray.workspace.events import Event

if TYPE_CHECKING:
    from dray.core.spec import Environment
    from dray.workspace.code_diff import CodeDifference
    from dray.workspace.facade import Workspace
    from dray.workspace.run import Run

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Row:
    """One field of all runs that are compared, as `--where` names it."""

    field: str
    values: tuple[Any, ...]
    """In the order of the runs; None: it has none."""
    is_detail: bool = False
    """It only adds to another row."""

    @property
    def is_equal(self) -> bool:
        """Whether all runs have the same."""
        return all(_is_same(self.values[0], value) for value in self.values[1:])

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"field": self.field, "values": list(self.values), "equal": self.is_equal}


class Comparison:
    """Some runs side by side. The first one is what the code of the others is compared with."""

    def __init__(self, workspace: Workspace, runs: Sequence[Run]) -> None:
        """Raises UsageError for fewer than two runs, or one of them twice."""
        ids = [run.id for run in runs]
        if len(ids) < 2:
            raise UsageError("one run alone cannot be compared", hint=f"dray compare {ids[0]} OTHER")
        twice = [run for n, run in enumerate(ids) if run in ids[:n]]
        if twice:
            raise UsageError(f"run {twice[0]} is named twice", why="a run is always equal to itself")
        self.runs = list(runs)
        self._workspace = workspace

    def __repr__(self) -> str:
        return (
            f"<Comparison of {', '.join(run.id for run in self.runs)}: {len(self.differences)} rows differ>"
        )

    @cached_property
    def rows(self) -> list[Row]:
        """All fields that one of the runs has, equal or not."""
        facts = [_facts(run) for run in self.runs]
        rows = [Row(name, tuple(fact.get(name) for fact in facts)) for name in facts[0]]
        rows += self._named("env", [dict(run.record.spec.env) for run in self.runs])
        store = self._workspace.store
        rows += self._named("tags", [store.tags(run.id) for run in self.runs])
        rows += self._named("params", [store.params(run.id) for run in self.runs])
        rows += self._metrics()
        return [row for row in rows if any(value is not None for value in row.values)]

    @property
    def differences(self) -> list[Row]:
        """Only the rows that are not equal."""
        return [row for row in self.rows if not row.is_equal]

    @cached_property
    def environments(self) -> list[Row]:
        """What was to be installed, package by package, and the Python that it came to."""
        facts = [_environment(run) for run in self.runs]
        names = dict.fromkeys(name for fact in facts for name in fact)
        packages = [_packages(run.record.spec.environment) for run in self.runs]
        rows = [Row(name, tuple(fact.get(name) for fact in facts)) for name in names]
        rows += [
            Row(name, tuple(of_run.get(name) for of_run in packages))
            for name in sorted(set().union(*packages))
        ]
        return [row for row in rows if any(value is not None for value in row.values)]

    def code(self, on: Callable[[Event], None] | None = None) -> list[CodeDifference]:
        """For each run but the first, what it changed in the first one's code. Raises NoCode, CodeGone."""
        from dray.workspace.code_diff import CodeDifference

        codes = [Code(self._workspace, run.record, on or (lambda event: None)) for run in self.runs]
        first = self.runs[0].id
        return [
            CodeDifference.between((first, codes[0]), (run.id, code))
            for run, code in zip(self.runs[1:], codes[1:], strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """For `--json`: the rows, equal ones too."""
        return {
            "runs": [{"id": run.id, "name": run.name} for run in self.runs],
            "rows": [row.to_json() for row in self.rows],
        }

    def _named(self, family: str, values: Sequence[dict[str, Any]]) -> list[Row]:
        names = sorted(set().union(*values))
        return [Row(_called(family, name), tuple(v.get(name) for v in values)) for name in names]

    def _metrics(self) -> list[Row]:
        """The latest value of each metric, and as details its least and greatest."""
        store, ids = self._workspace.store, [run.id for run in self.runs]
        names = sorted({name for latest in store.latest(ids).values() for name in latest})
        fields = [Field("metrics", name, part) for name in names for part in ("", "min", "max")]
        found = store.columns(ids, fields)
        return [Row(str(f), tuple(found[run].get(f) for run in ids), is_detail=bool(f.part)) for f in fields]


def _called(family: str, name: str) -> str:
    """`params.lr`, or `params."learning rate"`; variables are written like tags."""
    return family + str(Field("tags", name)).removeprefix("tags")


def _facts(run: Run) -> dict[str, Any]:
    """What every run has, in the order in which people ask."""
    record, spec = run.record, run.record.spec
    git, environment = spec.git or {}, record.environment or {}
    commit = git.get("commit")
    return {
        "status": str(record.status),
        "reason": None if str(record.status) == "completed" else (record.reason or {}).get("text"),
        "exit_code": record.exit_code,
        "duration": record.duration_s,
        "experiment": record.experiment,
        "compute": record.compute,
        "host": (record.host or {}).get("host"),
        "command": list(spec.command),
        "git": f"{commit}{' and changes' if git.get('dirty') else ''}" if commit else None,
        "snapshot": spec.snapshot or None,
        "environment": spec.environment.digest if spec.environment else None,
        "python": environment.get("version") or environment.get("python") or spec.python,
        "timeout": spec.timeout_s,
        "secrets": sorted(spec.secrets) or None,
        "outputs": sorted(spec.outputs) or None,
    }


def _environment(run: Run) -> dict[str, Any]:
    spec, made = run.record.spec.environment, run.record.environment or {}
    return {
        "file": spec.source.rpartition("/")[2] if spec else None,
        "digest": spec.digest if spec else None,
        "python wanted": spec.python if spec else None,
        "python": made.get("python") or run.record.spec.python,
        "python version": made.get("version"),
    }


def _packages(environment: Environment | None) -> dict[str, str]:
    """Name -> what is asked of it."""
    found: dict[str, str] = {}
    from dray.workspace.environment_changes import locked

    lines = (*environment.packages, *environment.conda, *locked(environment)) if environment else ()
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        name, rest = (match[1], match[2] or "any") if match else (line, "any")
        found[name] = f"{found[name]}, {rest}" if name in found else rest
    return found


def _is_same(one: Any, other: Any) -> bool:
    """Equal, or both not a number; 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other) or (one != one and other != other)
