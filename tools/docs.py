"""Writes the pages that the code itself can tell, and checks that links lead somewhere.

docs/reference/cli.md from the commands, docs/reference/python.md from the docstrings, docs/decisions/index.md from the
titles of the decisions, src/dray/cli/completion_table.py from the commands, and in docs/errors.md one heading for each error code; what a person wrote below a heading stays. With `--check` nothing is written, and a page that is
not what the code says, or a link to nowhere, is an error.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import dray
from dray.cli.commands import NAME, help_text
from dray.cli.group import root
from dray.core.errors import DrayError
from dray.store import Series
from dray.workspace import Image, Outputs, Submission, Table
from dray.workspace.built import BuiltEnvironment, BuiltEnvironments
from dray.workspace.exporting import Exported
from dray.workspace.importing import Imported
from dray.workspace.registered import Registered, RegisteredEnvironment

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import completion_table  # noqa: E402 - found only now

DOCS = ROOT / "docs"
CLI = DOCS / "reference" / "cli.md"
API = DOCS / "reference" / "python.md"
ERRORS = DOCS / "errors.md"
DECISIONS = DOCS / "decisions"
COMPLETION = ROOT / "src" / "dray" / "cli" / "completion_table.py"
TRAVELS = ("dray.runner", "dray.tracking")
# Not imported by people, but met by them.
HANDED_OUT = (
    Exported, Imported, Outputs, Series, Submission, Table, Image, Registered, RegisteredEnvironment, BuiltEnvironments, BuiltEnvironment,
)  # fmt: skip
WRITTEN = "<!-- written by `./dev docs` from the code; change it there -->\n"


def main(words: Sequence[str]) -> int:
    """Write, or with `--check` compare; 1 when something does not fit."""
    pages = {CLI: cli_page(), API: api_page(), ERRORS: errors_page(ERRORS.read_text())}
    pages[DECISIONS / "index.md"] = decisions_page()
    known = (
        (path.partition(" ")[2], command) for path, command in commands(root, NAME) if command is not root
    )
    pages[COMPLETION] = completion_table.page(known)
    trouble: list[str] = []
    for path, page in pages.items():
        if "--check" in words:
            if not path.exists() or path.read_text() != page:
                trouble.append(f"{path.relative_to(ROOT)} is not what the code says; run `./dev docs`")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page)
    trouble += dead_links()
    for sentence in trouble:
        print(sentence, file=sys.stderr)
    return 1 if trouble else 0


# The command line


def cli_page() -> str:
    """Every command with its help."""
    parts = [f"# Commands\n\n{WRITTEN}\n```text\n{help_text().strip()}\n```\n"]
    for path, command in commands(root, NAME):
        if not command.hidden and command is not root:
            parts.append(f"{'#' * (path.count(' ') + 1)} {path}\n\n```text\n{own_help(path, command)}\n```\n")
    return "\n".join(parts)


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """`command` and all below it, with the words that call them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from commands(inner, f"{path} {name}")


def own_help(path: str, command: click.Command) -> str:
    """What `--help` prints, 100 columns wide, whatever the terminal."""
    context = click.Context(command, info_name=path, terminal_width=100, max_content_width=100, color=False)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


# The Python API


def api_page() -> str:
    """Every public name with its signature and its docstring."""
    parts = [f"# Python API\n\n{WRITTEN}", inspect.getdoc(dray) or ""]
    for name in sorted(dray.__all__, key=str.lower):
        thing = getattr(dray, name)
        if inspect.isclass(thing):
            parts.append(class_part(f"dray.{name}", thing))
        elif callable(thing):
            parts.append(f"## dray.{name}\n\n{signature(name, thing)}\n\n{docstring(thing)}")
    parts += [class_part(thing.__name__, thing) for thing in HANDED_OUT]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def class_part(title: str, thing: type[Any]) -> str:
    """A class, then its public members in the order in which they are written."""
    name = thing.__name__
    called = "" if issubclass(thing, BaseException) else f"{signature(name, thing)}\n\n"
    parts = [f"## {title}\n\n{called}{docstring(thing)}"]
    for member, value in vars(thing).items():
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            kind = inspect.signature(value.fget).return_annotation if value.fget else ""
            parts.append(f"### {name}.{member}\n\n```python\n{member}: {kind}\n```\n\n{docstring(value)}")
        elif inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod)):
            function = getattr(thing, member)
            parts.append(f"### {name}.{member}\n\n{signature(member, function)}\n\n{docstring(function)}")
    return "\n\n".join(parts)


def signature(name: str, function: Any) -> str:
    """How it is called, one parameter a line where the line would be long."""
    called = inspect.signature(function)
    shown = [
        p.replace(annotation=words(p.annotation)) for p in called.parameters.values() if p.name != "self"
    ]
    called = called.replace(parameters=shown, return_annotation=words(called.return_annotation))
    text = f"{name}{called}"
    if len(text) > 96:
        inner, _, returned = text.removeprefix(f"{name}(").rpartition(")")
        # A comma inside brackets, such as that of `Mapping[str, Any]`, parts no parameters.
        parts = re.split(r", (?![^\[\]]*\])(?![^()]*\))", inner)
        text = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"
    return f"```python\n{text}\n```"


def words(annotation: Any) -> Any:
    """An annotation that is shown as it was written."""
    written = getattr(annotation, "__forward_arg__", annotation)
    return Words(written) if isinstance(written, str) else written


class Words(str):
    """Text without quotes around it."""

    __slots__ = ()
    __repr__ = str.__str__


def docstring(thing: Any) -> str:
    """The docstring, or an error: what is public is explained."""
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"{getattr(thing, '__qualname__', thing)} is public and has no docstring")
    return text


# The errors


def error_classes() -> dict[str, list[type[DrayError]]]:
    """All subclasses of DrayError by code, the rooms imported first."""
    for module in pkgutil.walk_packages(dray.__path__, "dray."):
        # What travels imports nobody, so it has no DrayError; and one of its modules is a program to be sent.
        if not module.name.endswith("__main__") and not module.name.startswith(TRAVELS):
            importlib.import_module(module.name)
    found: dict[str, list[type[DrayError]]] = {}
    todo: list[type[DrayError]] = [DrayError]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if kind.__module__.startswith("dray.") and kind not in found.setdefault(kind.code, []):
            found[kind.code].append(kind)
    return {code: sorted(kinds, key=lambda k: k.__qualname__) for code, kinds in sorted(found.items())}


def errors_page(page: str) -> str:
    """The page with a heading for every code; the words that a person added below each stay."""
    intro, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    by_hand = {}
    for section in sections:
        code, _, rest = section.partition("\n")
        by_hand[code.strip()] = rest.strip().partition("\n\n")[2].strip()
    parts = [intro.strip()]
    for code, kinds in error_classes().items():
        said = " ".join(error_sentence(kind) for kind in kinds)
        parts.append(f"## {code}\n\n{said}" + (f"\n\n{by_hand[code]}" if by_hand.get(code) else ""))
    return "\n\n".join(parts) + "\n"


def error_sentence(kind: type[DrayError]) -> str:
    """What the class says of itself."""
    first = docstring(kind).split("\n\n", maxsplit=1)[0].replace("\n", " ")
    return f"{first} *(`{kind.__module__}.{kind.__name__}`, exit code {kind.exit_code})*"


# The decisions


def decisions_page() -> str:
    """All decisions by number, with their titles."""
    lines = [f"# Decisions\n\n{WRITTEN}\nOne page for each; never rewritten, only replaced by a later one.\n"]
    for path in sorted(DECISIONS.glob("[0-9]*.md")):
        title = path.read_text().partition("\n")[0].lstrip("# ").strip()
        lines.append(f"- [{re.split(r'  +', title)[0]}]({path.name})")
    return "\n".join(lines) + "\n"


# Links


def dead_links() -> Iterator[str]:
    """Links inside the project that lead to no file, or to no heading of it."""
    for page in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, heading = target.partition("#")
            goal = (page.parent / name).resolve() if name else page
            if not goal.exists():
                yield f"{page.relative_to(ROOT)}: there is no `{target}`"
            elif heading and goal.suffix == ".md" and heading not in anchors(goal):
                yield f"{page.relative_to(ROOT)}: `{target}` has no such heading"


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
