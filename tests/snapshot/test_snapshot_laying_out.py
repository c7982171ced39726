"""Laying a snapshot out again is the identity, and no manifest from elsewhere gets a byte written that it should not."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.core.spec import canonical_json
from dray.snapshot import BadManifest, BlobStore, checked, is_same, lay_out, leads_out, take

NAMES = st.binary(min_size=1, max_size=40).map(
    lambda raw: b"n" + raw.replace(b"/", b"_").replace(b"\0", b"0")
)
LEAVES = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=200), st.booleans()),
    st.tuples(st.just("link"), NAMES.map(lambda name: b"../" + name), st.just(False)),
    st.tuples(st.just("link"), NAMES.map(lambda name: b"/nowhere/" + name), st.just(False)),
)
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=5), max_leaves=25).filter(
    lambda tree: isinstance(tree, dict)
)

EMPTY = hashlib.sha256(b"").hexdigest()


def make(place: bytes, tree: Any) -> None:
    """A folder, a file or a link, as hypothesis has drawn it."""
    if isinstance(tree, dict):
        os.mkdir(place)
        for name, inside in tree.items():
            make(os.path.join(place, name), inside)
        return
    kind, data, executable = tree
    if kind == "link":
        os.symlink(data, place)
        return
    with open(place, "wb") as file:
        file.write(data)
    os.chmod(place, 0o755 if executable else 0o644)


def seen(place: bytes) -> Any:
    """What lies there, in the form that `make` takes."""
    if os.path.islink(place):
        return ("link", os.readlink(place), False)
    if os.path.isdir(place):
        return {name: seen(os.path.join(place, name)) for name in os.listdir(place)}
    with open(place, "rb") as file:
        return ("file", file.read(), bool(os.stat(place).st_mode & 0o100))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREES)
def test_laid_out_again_a_folder_is_the_same_in_every_name_byte_link_and_bit(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[bytes, Any]
) -> None:
    top = tmp_path_factory.mktemp("wild")
    make(os.fsencode(top / "code"), tree)
    snapshot = take(top / "code", top / "home")
    before = seen(os.fsencode(top / "code"))

    (top / "again").mkdir()
    lay_out(
        checked(snapshot.manifest, snapshot.digest), str(top / "home"), str(top / "again"), lambda size: None
    )

    # A link that leads out of the folder is kept by its absolute target: it points to the same place as before.
    outside = {path: target for path, target in snapshot.manifest["links"] if leads_out(path, target)}
    for path, target in outside.items():
        place = os.path.join(os.fsencode(top / "code"), os.fsencode(path))
        assert os.path.normpath(os.path.join(os.path.dirname(place), os.readlink(place))) == os.fsencode(
            target
        )
        os.unlink(place)
        os.symlink(os.fsencode(target), place)
        before = seen(os.fsencode(top / "code"))
    assert seen(os.fsencode(top / "again")) == before
    assert is_same(snapshot.manifest, str(top / "again"))
    assert take(top / "again", top / "home").digest == snapshot.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda top: (top / "a.py").write_text("2"),
        lambda top: (top / "a.py").chmod(0o755),
        lambda top: (top / "new").touch(),
        lambda top: (top / "sub" / "b.py").unlink(),
        lambda top: (top / "empty").rmdir(),
        lambda top: (top / "empty" / "x").mkdir(),
        lambda top: (top / "link").unlink() or (top / "link").symlink_to("sub"),
    ],
)
def test_a_folder_that_differs_in_one_thing_is_not_the_same(code: Path, home: Path, change: Any) -> None:
    (code / "sub").mkdir()
    (code / "empty").mkdir()
    (code / "a.py").write_text("1")
    (code / "sub" / "b.py").write_text("1")
    (code / "link").symlink_to("a.py")
    manifest = take(code, home).manifest
    assert is_same(manifest, str(code))

    change(code)

    assert not is_same(manifest, str(code))


def test_what_is_executable_stays_so_under_any_umask(code: Path, home: Path, tmp_path: Path) -> None:
    (code / "run.sh").write_text("echo")
    (code / "run.sh").chmod(0o755)
    manifest = take(code, home).manifest
    (tmp_path / "again").mkdir()

    before = os.umask(0o177)
    try:
        lay_out(manifest, str(home), str(tmp_path / "again"), lambda size: None)
    finally:
        os.umask(before)

    assert is_same(manifest, str(tmp_path / "again"))


@pytest.mark.parametrize(
    ("path", "target", "leads"),
    [
        ("a/b", "c", False),
        ("a/b", "../c", False),
        ("a/b", "../../c", True),
        ("b", "..", True),
        ("b", "/etc", True),
    ],
)
def test_a_link_that_leads_out_is_known(path: str, target: str, leads: bool) -> None:
    assert leads_out(path, target) is leads


def manifest(**parts: Any) -> dict[str, Any]:
    return {"v": 1, "files": [], "links": [], "dirs": [], **parts}


def row(path: Any, **other: Any) -> list[Any]:
    return [path, other.get("digest", EMPTY), other.get("size", 0), other.get("bit", 0)]


@pytest.mark.parametrize(
    "bad",
    [
        manifest(files=[row("/etc/passwd")]),
        manifest(files=[row("../out")]),
        manifest(files=[row("a/../../out")]),
        manifest(files=[row("a//b")]),
        manifest(files=[row("./a")]),
        manifest(files=[row("")]),
        manifest(files=[row("a\0b")]),
        manifest(files=[row("\ud800")]),
        manifest(files=[row("x" * 5000)]),
        manifest(files=[row(7)]),
        manifest(files=[row("a"), row("a")]),
        manifest(files=[row("a"), row("a/b")]),
        manifest(files=[row("a/b")], links=[["a", "/etc"]]),
        manifest(files=[row("a/b/c")], links=[["a", "/etc"]]),
        manifest(dirs=["a/b"], links=[["a", "/etc"]]),
        manifest(links=[["a", "x"], ["a/b", "y"]]),
        manifest(links=[["../a", "x"]]),
        manifest(links=[["a", ""]]),
        manifest(links=[["a", "x\0y"]]),
        manifest(links=[["a"]]),
        manifest(dirs=["/tmp"]),
        manifest(dirs=[".."]),
        manifest(dirs="ab"),
        manifest(dirs=[["a"]]),
        manifest(files=[row("a", digest="../" + EMPTY[3:])]),
        manifest(files=[row("a", digest=EMPTY.upper())]),
        manifest(files=[row("a", size=-1)]),
        manifest(files=[row("a", size=1 << 80)]),
        manifest(files=[row("a", size="0")]),
        manifest(files=[row("a", size=True)]),
        manifest(files=[row("a", bit=2)]),
        manifest(files=[["a", EMPTY, 0]]),
        manifest(v=2),
        {"v": 1},
        [],
        "manifest",
        None,
    ],
)
def test_a_manifest_that_would_write_outside_or_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(BadManifest):
        checked(bad, hashlib.sha256(canonical_json(bad)).hexdigest())


def test_a_manifest_of_another_digest_is_refused() -> None:
    good = manifest(files=[row("a")])

    assert checked(good, hashlib.sha256(canonical_json(good)).hexdigest()) == good
    with pytest.raises(BadManifest, match="cannot be used"):
        checked(good, EMPTY)


def test_a_blob_is_intact_only_with_the_content_that_its_name_says(code: Path, home: Path) -> None:
    (code / "a").write_bytes(b"12345")
    take(code, home)
    digest = hashlib.sha256(b"12345").hexdigest()
    blobs = BlobStore(str(home))
    assert blobs.is_intact(digest, 5)

    place = Path(blobs.path(digest))
    place.chmod(0o600)
    place.write_bytes(b"54321")

    assert blobs.has(digest, 5)
    assert not blobs.is_intact(digest, 5)
