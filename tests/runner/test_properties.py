"""Where input is wild: masks, manifests, cursors, frames."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.runner import frames, layout
from dray.runner.folder import RunFolder
from dray.runner.machine import Machine
from dray.runner.mask import SHORTEST, STARS, Mask, forms
from dray.runner.streams import Reader

SECRETS = st.lists(st.text("abc", min_size=SHORTEST, max_size=8).map(str.encode), min_size=1, max_size=3)


@given(secrets=SECRETS, text=st.lists(st.text("abcd\n", max_size=12).map(str.encode), max_size=12))
def test_a_masked_text_is_the_same_in_any_pieces_and_holds_no_secret(
    secrets: list[bytes], text: list[bytes]
) -> None:
    in_pieces, at_once = Mask(secrets), Mask(secrets)

    pieces = b"".join([*(in_pieces.feed(piece) for piece in text), in_pieces.rest()])

    assert pieces == at_once.feed(b"".join(text)) + at_once.rest()
    assert not any(secret in part for secret in secrets for part in pieces.split(STARS))


@given(secrets=SECRETS, text=st.binary(max_size=50))
def test_a_text_without_secrets_passes_unharmed(secrets: list[bytes], text: bytes) -> None:
    mask = Mask(secrets)
    if not any(secret in text for secret in secrets):
        assert mask.feed(text) + mask.rest() == text


_PART = st.one_of(st.sampled_from(["..", ".", "", "a", "b", "c d", "\n", "\udcff", "l"]), st.text(max_size=4))
_PATH = st.lists(_PART, min_size=1, max_size=3).map("/".join)
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@settings(max_examples=150)
@given(
    files=st.lists(_PATH, max_size=4),
    links=st.lists(st.tuples(_PATH, st.sampled_from(["/etc", "..", "a", "l"])), max_size=2),
    dirs=st.lists(_PATH, max_size=2),
)
def test_no_manifest_can_write_outside_its_folder(
    files: list[str], links: list[tuple[str, str]], dirs: list[str]
) -> None:
    manifest: dict[str, Any] = {
        "v": 1,
        "files": [[p, EMPTY, 0, 0] for p in files],
        "links": [list(x) for x in links],
        "dirs": dirs,
    }
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(f"{folder}/root")
        blob = Path(machine.blob(EMPTY))
        blob.parent.mkdir(parents=True)
        blob.touch()
        code = Path(folder) / "run" / "code"
        code.mkdir(parents=True)
        before = sorted(Path(folder).rglob("*"))
        try:
            layout.check(manifest)
            layout.lay_out(machine, None, manifest, str(code), lambda: True)
        except (layout.BadManifest, OSError, ValueError):
            pass
        outside = [path for path in Path(folder).rglob("*") if code not in path.parents]
        assert sorted(outside) == before


@given(sizes=st.lists(st.integers(0, 700), max_size=8), piece=st.integers(1, 300))
def test_a_stream_read_in_any_pieces_is_the_stream(sizes: list[int], piece: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = RunFolder(Machine(root), "abcdefghjk")
        os.close(folder.claim({"id": "abcdefghjk"}, {"files": [], "links": [], "dirs": []}))
        path = Path(folder.streams(1)) / "log.script"
        reader = Reader(folder, {}, [""])
        heard = b""

        def listen() -> bytes:
            news = b""
            for found in reader.news(piece):
                assert found.offset == len(heard) + len(news)
                news += found.data
            return news

        for size in sizes:
            with path.open("ab") as file:
                file.write(os.urandom(size))
            heard += listen()
        while True:
            more = listen()
            if not more:
                break
            heard += more
        assert heard == (path.read_bytes() if path.exists() else b"")


@given(
    header=st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())),
    body=st.binary(max_size=2000),
    piece=st.integers(1, 64),
)
def test_frames_survive_any_channel(header: dict[str, Any], body: bytes, piece: int) -> None:
    wire = frames.encode(header, body)
    at = 0

    def read(size: int) -> bytes:
        nonlocal at
        data = wire[at : at + min(size, piece)]
        at += len(data)
        return data

    receive = frames.exact_reader(read)
    assert frames.decode(receive) == (header, body)
    assert frames.decode(receive) is None


@given(wire=st.binary(min_size=1, max_size=60))
def test_garbage_is_no_frame(wire: bytes) -> None:
    at = 0

    def read(size: int) -> bytes:
        nonlocal at
        data = wire[at : at + size]
        at += len(data)
        return data

    try:
        frame = frames.decode(frames.exact_reader(read))
    except frames.BrokenFrame:
        return
    assert frame is not None
    assert isinstance(frame[0], dict)


@pytest.mark.parametrize("word", ["", "../x", "a" * 60, "A2", "/etc", "ab\ncd", "-rf", "1abcdefghj"])
def test_what_is_no_run_id_becomes_no_path(word: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run id"):
        RunFolder(Machine(str(tmp_path)), word)


@pytest.mark.parametrize("secret", ["hunter2-token", "{\n" + "  long line of a key file\n" * 4000 + "}"])
def test_a_log_full_of_secrets_costs_little_more_than_one_without(secret: str) -> None:
    line = secret.splitlines()[-2 if "\n" in secret else 0].encode()
    mask = Mask(forms(secret))
    began = time.monotonic()

    shown = b"".join(mask.feed(b"key: " + line + b"\n") for _ in range(300))
    shown += mask.feed((b"key: " + line + b"\n") * 30_000) + mask.rest()

    assert shown == b"key: ***\n" * 30_300
    assert time.monotonic() - began < 15
