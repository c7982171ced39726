"""What the build's commands are told by their environment: whom to trust, where packages come from, and with which password.

What the user has said to uv counts; else what they have said to pip, in variables and in its files, is said to uv too. Passwords are in
variables only, never among the words of a command, and all of them are to be hidden in the log.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional

from ..mask import SHORTEST, forms

# Where systems keep the authorities that they trust, in one file: Debian and Arch, Fedora, openSUSE, Alpine.
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_UV_INDEXES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_NO_INDEX",
    "UV_FIND_LINKS",
)
_IN_ADDRESS = re.compile(r"(https?://)[^/\s\"'@]+@", re.IGNORECASE)


def machine_authorities() -> Optional[str]:
    """The file of the authorities that this machine trusts."""
    return next((path for path in _AUTHORITIES if os.path.exists(path)), None)


def build_variables(ours: Mapping[str, str]) -> Dict[str, str]:
    """The environment of the build's commands: `ours`, less what names another Python."""
    env = {
        k: v for k, v in ours.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME")
    }
    names = ("UV_NATIVE_TLS", "UV_SYSTEM_CERTS")  # the first one for older versions
    if machine_authorities() and not any(name in env for name in names):
        # Else uv trusts a list of its own, which lacks the authority of a company or a proxy. The user may never have
        # heard of uv, and git, pip and curl work on the same machine.
        env.update(dict.fromkeys(names, "true"))
    return env


def with_pip_settings(env: Dict[str, str]) -> Dict[str, str]:
    """What pip was told here, said to uv, unless uv was told something itself."""
    pip = dict(_pip_files(env))
    pip.update((k[4:].lower().replace("_", "-"), v) for k, v in env.items() if k.startswith("PIP_") and v)
    bundle = pip.get("cert") or env.get("REQUESTS_CA_BUNDLE")
    if bundle and os.path.exists(bundle):
        env.setdefault("SSL_CERT_FILE", bundle)
    if any(env.get(name) for name in _UV_INDEXES) or _has_uv_file(env):
        return env
    if pip.get("index-url"):
        env["UV_DEFAULT_INDEX"] = pip["index-url"]
    if pip.get("extra-index-url"):
        env["UV_INDEX"] = " ".join(pip["extra-index-url"].split())
        # pip takes the best of all its indexes, and that is what these settings were written for.
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if pip.get("find-links"):
        env["UV_FIND_LINKS"] = ",".join(pip["find-links"].split())
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        env["UV_NO_INDEX"] = "1"
    if pip.get("trusted-host"):
        env.setdefault("UV_INSECURE_HOST", " ".join(pip["trusted-host"].split()))
    return env


def with_index(
    env: Dict[str, str], index: Mapping[str, Any], credentials: Mapping[str, str]
) -> Dict[str, str]:
    """Where the spec itself says that packages come from; it counts for more than any setting."""
    if index.get("torch_backend"):
        env["UV_TORCH_BACKEND"] = str(index["torch_backend"])
    if index.get("index_url") or index.get("extra_index_urls"):
        for name in _UV_INDEXES[:-1]:
            if name != "UV_INDEX" or index.get("extra_index_urls"):
                env.pop(name, None)
    if index.get("index_url"):
        env["UV_DEFAULT_INDEX"] = with_password(str(index["index_url"]), credentials)
    if index.get("extra_index_urls"):
        env["UV_INDEX"] = " ".join(with_password(str(url), credentials) for url in index["extra_index_urls"])
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if index.get("find_links"):
        env["UV_FIND_LINKS"] = ",".join(with_password(str(url), credentials) for url in index["find_links"])
    # What the machine's own settings name may need the same password.
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        if env.get(name) and credentials:
            env[name] = " ".join(with_password(url, credentials) for url in env[name].split())
    return env


def with_password(url: str, credentials: Mapping[str, str]) -> str:
    """`url` with the user and password that were sent for it, or for the beginning of it."""
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    if "@" in parts.netloc:
        return url
    fitting = [place for place in credentials if (url + "/").startswith(place.rstrip("/") + "/")]
    if not fitting:
        return url
    word = credentials[max(fitting, key=len)]
    return urlunsplit(parts._replace(netloc="%s@%s" % (word, parts.netloc)))


def hidden(env: Mapping[str, str], credentials: Mapping[str, str]) -> List[str]:
    """What the log must not show: every password in an address among the variables, and all that were sent."""
    from urllib.parse import unquote

    words = {word.partition(":")[2] or word for word in credentials.values()}
    for value in env.values():
        for found in re.findall(r"[a-z+]+://([^/\s\"'@]+)@", value, re.IGNORECASE):
            user, colon, password = found.partition(":")
            words.add(password if colon else user)
    words |= {unquote(word) for word in words}
    found = [form for word in words if len(word.encode()) >= SHORTEST for form in forms(word)]
    return [form.decode("utf-8", "surrogateescape") for form in found]


def without_passwords(text: str) -> str:
    """`text` with no user and no password in any address of the web."""
    return _IN_ADDRESS.sub(r"\1", text)


def _has_uv_file(env: Mapping[str, str]) -> bool:
    """Whether the user has told uv itself where packages come from."""
    config = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME") or "", ".config")
    for path in (env.get("UV_CONFIG_FILE") or "", os.path.join(config, "uv", "uv.toml"), "/etc/uv/uv.toml"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                if re.search(
                    r"^\s*(index-url|extra-index-url|find-links|no-index|\[\[index)",
                    file.read(),
                    re.MULTILINE,
                ):
                    return True
        except OSError:
            continue
    return False


def _pip_files(env: Mapping[str, str]) -> Iterator["tuple[str, str]"]:
    """What pip's own files say, the strongest last."""
    home = env.get("HOME") or ""
    config = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    said = env.get("PIP_CONFIG_FILE")
    if said == os.devnull:
        return
    places: List[Optional[str]] = [
        "/etc/pip.conf",
        os.path.join(home, ".pip/pip.conf"),
        os.path.join(config, "pip/pip.conf"),
        said,
    ]
    for place in places:
        if place and os.path.isfile(place):
            yield from _settings(place)


def _settings(path: str) -> Iterator["tuple[str, str]"]:
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, ValueError):
        return  # pip says what is wrong with it
    for section in ("global", "install"):
        if parser.has_section(section):
            yield from parser.items(section)
