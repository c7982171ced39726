"""An Environment that was made in Python: brought into the one form that the files' have, and refused where they would be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dray.core.errors import UsageError
from dray.core.spec import Environment
from dray.environments.channels import written
from dray.environments.conda import match_spec
from dray.environments.errors import Place
from dray.environments.gathering import Found, Gathering, Wish
from dray.environments.index import Index
from dray.environments.requirements import pip_requirement

_HERE = Path("Environment(...)")


def normalised(environment: Environment, wish: Wish) -> Found:
    """What it means. Lists may be given for tuples, and packages of conda also where pip could have them."""
    for name in ("packages", "conda", "channels", "editable"):
        if isinstance(getattr(environment, name), str):
            raise UsageError(f"`{name}` of an Environment is a list of texts, not one text")
    place = Place(_HERE)
    if environment.lock and environment.lock_kind not in ("pylock", "requirements"):
        raise UsageError(
            "an Environment with a lock has to say its kind",
            hint='Environment(lock=text, lock_kind="pylock"), or "requirements"',
        )
    top = Path(wish.top or Path.cwd()).resolve()
    gathering = Gathering(wish, top)
    gathering.index = Index()
    said = environment.index
    gathering.index.add_all(
        said.get("index_url"), said.get("extra_index_urls") or (), said.get("find_links") or (), place
    )
    for text in environment.packages:
        gathering.requirement(*pip_requirement(str(text), place), place)
    for channel in environment.channels:
        gathering.channel(written(str(channel), Path.cwd()))
    for text in environment.conda:
        gathering.conda(match_spec(str(text), place), place)
    from dray.environments.projects import read_editable

    for folder in environment.editable:
        read_editable((top / folder).resolve(), (), gathering, place)
    python = environment.python or gathering.python
    gathering.python = str(python) if python is not None else None
    found = gathering.environment(Path(environment.source or "Environment(...)"))
    made = replace(
        found.environment, source=environment.source, lock=environment.lock, lock_kind=environment.lock_kind
    )
    return replace(found, environment=made)
