"""`dray show`: all of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import (
    count_of,
    environment_text,
    git_text,
    pairs_text,
    shell_words,
    show_number,
    write_facts,
)
from dray.cli.options import as_json, one_run, voiced
from dray.cli.times import ago, at, took
from dray.cli.voice import Voice
from dray.core.durations import show_bytes


@click.command("show")
@one_run
@as_json("the run")
@voiced
def show(word: str, wants_json: bool, voice: Voice) -> int:
    """Show all that is known of a run.

    \b
    Example:
      dray show @last --json
    """  # noqa: D301
    with desk.workspace() as ws:
        run = desk.fresh(desk.find(ws, word), voice)
        document = run.to_json()
        if wants_json:
            write_json(document)
            return 0
        write_facts(_facts(document))
    return 0


def _facts(run: Mapping[str, Any]) -> list[tuple[str, object]]:
    """The document in a person's order and words."""
    reason = run["reason"] or {}
    attempts = run["attempts"] if isinstance(run["attempts"], int) else len(run["attempts"] or ())
    return [
        ("id", run["id"]),
        ("name", run["name"]),
        ("repeats", run["rerun_of"]),
        ("experiment", run["experiment"]),
        ("compute", run["compute"]),
        ("status", run["status"]),
        ("reason", reason.get("text")),
        ("exit code", run["exit_code"]),
        ("created", at(run["created"])),
        ("started", run["started"] and at(run["started"])),
        ("ended", run["ended"] and at(run["ended"])),
        ("took", _took(run)),
        ("imported", run["imported"] and at(run["imported"])),
        ("attempts", attempts if attempts > 1 else None),
        ("command", shell_words(run["command"])),
        ("folder", run.get("folder")),
        ("code", _code(run["snapshot"] or {})),
        ("git", git_text(run["git"])),
        ("python", _python(run["environment"])),
        ("environment", environment_text((run["environment"] or {}).get("spec"))),
        ("image", _image(run["environment"] or {})),
        ("docker line", ((run["environment"] or {}).get("container") or {}).get("line")),
        ("host", _host(run["host"] or {})),
        ("variables", [f"{name}={value}" for name, value in run["env"].items()]),
        ("secrets", ", ".join(run["secrets"])),
        ("params", pairs_text(run["params"])),
        ("tags", pairs_text(run["tags"])),
        ("note", (run["note"] or "").splitlines()),
        ("edited", [text for edit in run["edits"] if (text := _edited(edit))]),
        ("metrics", [_metric(name, point) for name, point in run["metrics"].items()]),
        (
            "texts",
            [f"{name} {_at_step(point['value'][:200], point)}" for name, point in run["texts"].items()],
        ),
        ("outputs", [f"{file['path']} ({show_bytes(file['bytes'])})" for file in run["outputs"]]),
        ("gpu", _gpu(run["gpu"] or {})),
        ("remarks", run["explanations"]),
    ]


def _image(environment: Mapping[str, Any]) -> str:
    """python:3.12-slim, sha256:0123..., by docker 28.1."""
    container = environment.get("container") or {}
    if not container:
        return ""
    digest = str(container.get("digest") or container.get("id") or "")
    return f"{container.get('image')}, {digest}, by {container.get('engine')} {container.get('version') or ''}".rstrip()


def _took(run: Mapping[str, Any]) -> str:
    """3m20s, or 12s so far."""
    text = took(run["duration_s"], run["started"], run["ended"])
    return "" if text == "-" else f"{text} so far" if run["duration_s"] is None else text


def _code(snapshot: Mapping[str, Any]) -> str:
    """0123456789ab, 41 files, 0.3 MB."""
    return f"{str(snapshot.get('digest'))[:12]}, {count_of(snapshot.get('files') or 0, 'file')}, {show_bytes(snapshot.get('bytes') or 0)}"


def _host(host: Mapping[str, Any]) -> str:
    """ana@gpu1, Linux 6.1, 32 cores."""
    facts = [
        host.get("user") and f"{host['user']}@{host.get('host')}",
        host.get("os"),
        host.get("cpus") and f"{host['cpus']} cores",
    ]
    return ", ".join(str(fact) for fact in facts if fact)


def _gpu(gpu: Mapping[str, Any]) -> list[str]:
    """The verdict with what was measured, and the devices with their five facts."""
    if not gpu:
        return []
    from dray.gpu.verdict import Told, familiar_lines

    rest = {name: value for name, value in gpu.items() if name not in ("verdict", "reason", "next")}
    lines = Told(gpu["verdict"], gpu["reason"], gpu["next"], rest).lines()
    lines += [", ".join(familiar_lines(device)) for device in gpu.get("devices") or ()]
    return [line.removeprefix("gpu: ").strip() for line in lines]


def _metric(name: str, point: Mapping[str, Any]) -> str:
    return f"{name} {_at_step(show_number(point['value']), point)}"


def _at_step(value: str, point: Mapping[str, Any]) -> str:
    return f"{value} (step {point['step']})" if point["step"] is not None else value


def _python(environment: Mapping[str, Any] | None) -> str:
    """/usr/bin/python3 (3.11.7)."""
    environment = environment or {}
    version = f" ({environment['version']})" if environment.get("version") else ""
    return f"{environment['python']}{version}" if environment.get("python") else ""


def _edited(edit: Mapping[str, Any]) -> str:
    """tag stage 3m ago; the run said `dev`. Nothing of a note: a run has none of its own."""
    if edit["kind"] == "note":
        return ""
    what = f"tag {edit['name']}" if edit["kind"] == "tag" else edit["kind"]
    how = " taken away" if edit["value"] is None else ""
    said = f"the run said `{edit['said']}`" if edit["said"] is not None else "the run said none"
    return f"{what}{how} {ago(edit['time'])}; {said}" if edit["said"] != edit["value"] else ""
