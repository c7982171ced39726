"""Puts one picture beside the events: written under a hidden name, complete when its real name appears."""

from __future__ import annotations

import os
import re
from io import BytesIO
from typing import Any, Tuple

LARGEST = 64 * 1024 * 1024
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\x00", "tif"),
    (b"MM\x00*", "tif"),
    (b"%PDF-", "pdf"),
)


def keep(folder: str, picture: Any) -> Tuple[str, int]:
    """Write `picture` into `folder`; the name of its stream and its size."""
    content = _content(picture)
    if len(content) > LARGEST:
        raise ValueError(f"the picture has {len(content)} bytes; at most {LARGEST} are kept")
    media = f"media.{os.urandom(8).hex()}.{_extension(content)}"
    hidden = os.path.join(folder, f".{media}.part")
    try:
        # "x": nobody else writes there. No fsync: what must outlive the script is in the kernel already.
        with open(hidden, "xb") as file:
            file.write(content)
        os.rename(hidden, os.path.join(folder, media))
    except BaseException:
        if os.path.lexists(hidden):
            os.unlink(hidden)
        raise
    return media, len(content)


def _content(picture: Any) -> bytes:
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return bytes(picture)
    if isinstance(picture, (str, os.PathLike)):
        with open(picture, "rb") as file:
            return file.read(LARGEST + 1)
    if not hasattr(picture, "savefig") and hasattr(getattr(picture, "figure", None), "savefig"):
        picture = picture.figure  # matplotlib's axes know their figure
    memory = BytesIO()
    if hasattr(picture, "savefig"):
        picture.savefig(memory, format="png")
    elif hasattr(picture, "save"):
        picture.save(memory, format="PNG")
    elif hasattr(picture, "read"):
        content = picture.read()
        if not isinstance(content, bytes):
            raise TypeError("the picture's file is open as text, not as bytes")
        return content
    else:
        raise TypeError(
            f"a picture is a figure, an image, a path or bytes, not a value of type {type(picture).__name__}"
        )
    return memory.getvalue()


def _extension(content: bytes) -> str:
    """Told by the content: a wrong ending of a file's name would make a viewer fail much later."""
    for beginning, extension in _BEGINNINGS:
        if content.startswith(beginning):
            return extension
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    if re.match(
        rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*|<!DOCTYPE svg[^>]*>\s*)*<svg[\s>]", content[:4096], re.DOTALL
    ):
        return "svg"
    raise ValueError("these bytes are not a picture in PNG, JPEG, GIF, WebP, BMP, TIFF, SVG or PDF")
