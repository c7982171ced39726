"""The options that say which Python a run gets: `submit`, `env` and `prepare` share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def names_an_environment(command: F) -> F:
    """Add --env, --python and all that says how an environment is made."""
    options = (
        click.option(
            "--env",
            "environment",
            metavar="FILE|NAME|none",
            help="What to install: a file, a registered environment, or `none`; default: the file nearest to the script.",
        ),
        click.option(
            "--python",
            metavar="P",
            help="An existing interpreter, used as it is; or a version to wish for, such as 3.12.",
        ),
        click.option(
            "--extra",
            "extras",
            metavar="E",
            multiple=True,
            help="An extra of the pyproject.toml; may be repeated.",
        ),
        click.option(
            "--group",
            "groups",
            metavar="G",
            multiple=True,
            help="A dependency group of the pyproject.toml; may be repeated.",
        ),
        click.option(
            "--locked", metavar="FILE", help="Install exactly this lock, as `dray env lock RUN` prints it."
        ),
        click.option("--refresh", is_flag=True, help="Resolve the environment again, for newer versions."),
        click.option(
            "--upgrade-retired",
            is_flag=True,
            help="Take the successors of packages and Pythons that are no more (also DRAY_UPGRADE_RETIRED=1).",
        ),
        click.option(
            "--torch",
            metavar="BUILD",
            help="The build of PyTorch: `auto` (what fits the driver there), cpu, cu126, ...",
        ),
        click.option(
            "--index-url", metavar="URL", help="Take packages from this index in place of the usual one."
        ),
        click.option(
            "--extra-index-url",
            "extra_index_urls",
            metavar="URL",
            multiple=True,
            help="And from this one; may be repeated.",
        ),
        click.option(
            "--find-links",
            "find_links",
            metavar="URL|DIR",
            multiple=True,
            help="And from this page or folder of files; may be repeated.",
        ),
        click.option(
            "--offline-host",
            is_flag=True,
            help="The machine reaches no index: resolve and download here, and send the packages along.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
