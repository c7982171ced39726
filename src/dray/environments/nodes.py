"""YAML as nodes that know their lines, and the shapes that an environment file is made of.

PyYAML is imported when a file is there to be read, because most commands read none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dray.environments.errors import EnvironmentFileError, EnvironmentSyntax, Place

if TYPE_CHECKING:
    import yaml

LARGEST = 1_000_000  # bytes; whoever names more has named the wrong file
EXAMPLE = "a whole file: `dependencies: [python=3.11, numpy]`"


def read_text(path: Path) -> str:
    """The file's text, or an error in the user's words."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as trouble:
        raise EnvironmentFileError(
            f"cannot read the environment file {Place(path)}", why=trouble.strerror
        ) from trouble
    if len(content) > LARGEST:
        raise EnvironmentSyntax(Place(path), f"it is larger than {LARGEST // 1000} kB; is it the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        line = content[: trouble.start].count(b"\n") + 1
        raise EnvironmentSyntax(Place(path, line), "it is not UTF-8 text") from trouble


def parse(path: Path) -> yaml.Node:
    """The file as nodes that know their lines. The safe loader, so nothing in the file is ever executed."""
    import yaml

    text = read_text(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as trouble:
        mark = getattr(trouble, "problem_mark", None)
        place = Place(path, mark.line + 1, mark.column + 1) if mark else Place(path)
        problem = getattr(trouble, "problem", None) or "it holds characters that YAML does not allow"
        # PyYAML's own text repeats the line, in which there may be a password: no `from trouble`.
        raise EnvironmentSyntax(place, f"it is not YAML: {problem}") from None
    except RecursionError:
        raise EnvironmentSyntax(Place(path), "it is nested too deeply") from None
    if root is None:
        raise EnvironmentSyntax(Place(path), "it is empty", hint=EXAMPLE)
    return root


def is_mapping(node: yaml.Node) -> bool:
    """Names with values, as opposed to a list or a single value."""
    import yaml

    return isinstance(node, yaml.MappingNode)


def pairs(node: yaml.Node, path: Path) -> list[tuple[str, yaml.Node]]:
    """The names of a mapping with their values; each name once."""
    if not is_mapping(node):
        raise EnvironmentSyntax(
            at(path, node), "here should be names with values, `name: value`", hint=EXAMPLE
        )
    pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        name = text_of(key, path, "a name")
        if name in pairs:
            first = pairs[name][0].start_mark.line + 1
            raise EnvironmentSyntax(
                at(path, key), f"`{name[:60]}:` stands here again; the first is in line {first}"
            )
        pairs[name] = (key, value)
    return [(name, value) for name, (_, value) in pairs.items()]


def items(node: yaml.Node, path: Path, name: str) -> list[yaml.Node]:
    """The entries of a list that is called `name`."""
    import yaml

    if not isinstance(node, yaml.SequenceNode):
        raise EnvironmentSyntax(
            at(path, node),
            f"`{name}:` must be a list, each entry in a line that begins with `- `",
            hint=EXAMPLE,
        )
    found: list[yaml.Node] = node.value
    return found


def text_of(node: yaml.Node, path: Path, what: str) -> str:
    """A string. What YAML takes for a number or a date was meant as something else, and would lose digits."""
    import yaml

    if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
        kinds = {
            "null": "nothing",
            "float": "a number",
            "int": "a number",
            "bool": "yes or no",
            "timestamp": "a date",
        }
        shapes: dict[type[yaml.Node], str] = {yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping"}
        found = shapes.get(type(node)) or kinds.get(node.tag.rpartition(":")[2], node.tag)
        raise EnvironmentSyntax(at(path, node), f"here should be {what}, and there is {found}")
    text: str = node.value
    return text


def at(path: Path, node: yaml.Node) -> Place:
    """Where a node begins."""
    return Place(path, node.start_mark.line + 1, node.start_mark.column + 1)
