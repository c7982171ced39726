"""One line as pip writes it: checked, and brought into the one form that equal needs share.

Read `pip_requirement` first. What would be stored with the run is looked at for passwords before anything else, so that
no error message repeats one.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from dray.environments.errors import CredentialsInFile, EnvironmentSyntax, Place, UnsupportedRequirement
from dray.environments.names import normal

VERSION = r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?\d*)*(?:\+[a-z0-9._-]+)?"
CLAUSE = re.compile(
    rf"(?:(?:==|!=)\s*{VERSION}(?:\.\*)?|(?:~=|<=|>=|<|>)\s*{VERSION}|===\s*[^\s,;]+)", re.IGNORECASE
)
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_LINE = re.compile(rf"(?P<name>{_NAME})\s*(?P<extras>\[[^\]]*\])?\s*(?P<rest>.*)", re.DOTALL)
_URL = re.compile(r"(?:[a-z][a-z0-9.-]*\+)?[a-z][a-z0-9.-]*://", re.IGNORECASE)
_SECRET_FIELDS = re.compile(
    r"(?i)(^|[-_])(sig|signature|token|password|passwd|secret|credential|auth|(api|access)?[-_]?key)$"
)
_HASH = re.compile(r"\s--hash[=\s]\s*([a-z0-9]+:[0-9a-f]+)(?=\s|$)")


def refuse_credentials(text: str, place: Place) -> None:
    """Raise CredentialsInFile when an address in `text` holds a password, a token or a signature."""
    for word in text.split():
        start = _URL.search(word)
        if start is None:
            continue
        try:
            url = urlsplit(word[start.start() :])
            host, user, password = url.hostname or "", url.username, url.password
        except ValueError:
            host, user, password = "", "unreadable" if "@" in word else None, None
        # `git@` of an ssh address is a name that everyone uses; a name alone in a web address is a token.
        named = user is not None and not url_is_ssh(word)
        fields = [name for name, _ in parse_qsl(word.partition("?")[2].partition("#")[0])]
        if named or password is not None or any(_SECRET_FIELDS.search(f) for f in fields):
            raise CredentialsInFile(place, host)


def url_is_ssh(word: str) -> bool:
    """ssh://, git+ssh:// and their like."""
    return re.search(r"(?:^|[+=@\s])ssh://", word, re.IGNORECASE) is not None


def pip_requirement(text: str, place: Place) -> tuple[str, str]:
    """`(normal name, requirement)` of one line; the name of a bare address is the address."""
    refuse_credentials(text, place)
    text = text.strip()
    _refuse_options(text, place)
    if _URL.match(text):
        return text.partition("#")[0], _address(text, place)
    if re.match(r"[./~]|[A-Za-z]:\\", text) or re.search(r"[\\/]", text.partition("@")[0].partition(";")[0]):
        raise UnsupportedRequirement(
            place,
            text,
            "it is a path; only packages from an index or an address can be built",
            hint=f"write `-e {text}` if it is a project inside the code folder"
            if text.startswith(".")
            else None,
        )
    if re.fullmatch(r"\S+\.(?:whl|tar\.gz|zip)", text):
        raise UnsupportedRequirement(
            place, text, "it is a file; only packages from an index or an address can be built"
        )
    match = _LINE.fullmatch(text)
    if match is None:
        raise EnvironmentSyntax(place, f"`{text[:80]}` is not the name of a package")
    name = normal(match["name"])
    extras = ",".join(
        sorted(normal(e.strip()) for e in (match["extras"] or "[]")[1:-1].split(",") if e.strip())
    )
    head = name + (f"[{extras}]" if extras else "")
    rest = match["rest"].strip()
    if rest.startswith("@"):
        address, marker = _cut_marker(rest[1:].strip(), " ;")
        return name, _join(f"{head} @ {_address(address, place)}", marker)
    wanted, marker = _cut_marker(rest, ";")
    return name, _join(head + clauses(wanted, text, place), marker)


def clauses(wanted: str, text: str, place: Place) -> str:
    """`>=1.2, <2` as `<2,>=1.2`: sorted, without blanks."""
    inner = wanted[1:-1] if wanted.startswith("(") and wanted.endswith(")") else wanted
    parts = [part.strip() for part in inner.split(",")] if inner.strip() else []
    for part in parts:
        if CLAUSE.fullmatch(part) is None:
            raise EnvironmentSyntax(
                place,
                f"`{part or inner}` in `{text[:80]}` is not a version",
                hint="write versions as in `numpy>=1.26,<2`",
            )
    return ",".join(sorted({re.sub(r"\s+", "", part) for part in parts}))


def cut_hashes(text: str) -> tuple[str, tuple[str, ...]]:
    """`(the requirement, its hashes)` of `numpy==2 --hash=sha256:...`."""
    hashes = tuple(_HASH.findall(text))
    return _HASH.sub(" ", text).strip(), hashes


def _refuse_options(text: str, place: Place) -> None:
    if text.startswith("-"):
        option = re.split(r"[\s=]", text, maxsplit=1)[0]
        raise UnsupportedRequirement(place, option, "this option of pip is not supported")
    if re.search(r"\s--\w", text):
        raise UnsupportedRequirement(place, text, "this option of a single requirement is not supported")


def _address(text: str, place: Place) -> str:
    if re.match(r"(?:[a-z]+\+)?file:", text, re.IGNORECASE):
        raise UnsupportedRequirement(
            place, text, "it is a path on this machine; it would not be found elsewhere"
        )
    if not _URL.match(text) or re.search(r"\s", text):
        raise EnvironmentSyntax(place, f"`{text[:80]}` is not an address")
    return text


def _cut_marker(text: str, sign: str) -> tuple[str, str]:
    head, _, marker = text.partition(sign)
    return head.strip(), " ".join(marker.split())


def _join(requirement: str, marker: str) -> str:
    return f"{requirement} ; {marker}" if marker else requirement
