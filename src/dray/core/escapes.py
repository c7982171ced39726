"""Keeps a script's output from commanding the terminal: colours, cursor movement and erasing pass, the rest is dropped.

What else a terminal understands can retitle it, write to the clipboard, or make it type answers into the shell. Read
`EscapeFilter.feed()` first. It works on bytes as they come: whatever is not complete yet is held back, and every
decision is made on a complete token, so that the result does not depend on how the bytes were cut.
"""

from __future__ import annotations

import re

STRING_LIMIT = 1 << 20
"""Bytes of one unterminated title, picture or the like that are dropped before text counts as text again."""
CSI_LIMIT = 128

_CONTROLS = bytes(b for b in [*range(0x20), 0x7F] if b not in b"\b\t\n\r")
_SUSPECT = re.compile(rb"\x1b|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]+|[\x80-\xff]+")
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
# What comes between ESC and the final byte of a sequence.
_CSI = re.compile(rb"\[[\x20-\x3f]{0,%d}" % CSI_LIMIT)
_SHORT = re.compile(rb"[\x20-\x2f]{0,%d}" % CSI_LIMIT)
# A-H a d e f `: cursor; J K: erase (without 3, which would take the scroll-back); m: colours; s u: save, restore.
_GOOD_CSI = re.compile(rb"\[(?:[0-9;]{0,126}[A-HKade-f`]|[0-2]?J|[0-9;:]{0,126}m|[su])")
_ESCAPES = re.compile(rb"\x1b(?:%s)" % _GOOD_CSI.pattern)
_GOOD_SHORT = frozenset(b"78DEM")  # save and restore the cursor; one line down, next line, one line up
_STRINGS = frozenset(b"]P^_X")  # OSC, DCS, PM, APC, SOS: everything up to a terminator belongs to them
_STRING_END = re.compile(rb"[\x07\x18\x1a\x1b\n]|\xc2\x9c")
# What may stay of bytes above 0x7f that are not UTF-8 as a whole: well-formed characters, and bytes that no
# terminal takes for a control character. A stray 0x80-0x9f is one on an 8-bit terminal.
_KEEP_HIGH = re.compile(
    rb"\xc2[\xa0-\xbf]|[\xc3-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]{2}|(?!\xc2[\x80-\x9f])[\xa0-\xff]"
)


class EscapeFilter:
    """One stream's filter. Feed it all bytes in order, then `finish()`."""

    def __init__(self) -> None:
        self._held = b""
        self._dropping = 0  # bytes dropped of the string we are in; 0: in none
        self.coloured = False
        """A colour was let through: it may still be switched on."""

    def feed(self, data: bytes) -> bytes:
        """What of `data`, and of what was held back before, may reach the terminal now."""
        if not self._held and not self._dropping and _is_plain(data):
            return data
        data = self._held + data
        end = len(data) - _cut_character(data)
        if not self._dropping and _is_plain(_ESCAPES.sub(b" ", data[:end])):
            self.coloured = self.coloured or b"\x1b" in data
            self._held = data[end:]
            return data[:end]
        out, used = self._scan(data, end)
        self._held = data[used:]
        return out

    def finish(self) -> bytes:
        """What was held back and turned out to be harmless. The filter is as new afterwards."""
        held, self._held = self._held, b""
        dropping, self._dropping = self._dropping, 0
        if dropping or held[:1] in (b"\x1b", b""):
            return b""
        return _keep_high(held)

    def _scan(self, data: bytes, end: int) -> tuple[bytes, int]:
        """The harmless part of `data[:end]`, and how many bytes are decided."""
        out: list[bytes] = []
        at = 0
        while at < end:
            if self._dropping:
                next_at = self._drop(data, at, end)
                if next_at is None:
                    # A last ESC is looked at again together with the byte after it.
                    return b"".join(out), end - (data[end - 1] == 0x1B)
                at = next_at
                continue
            found = _SUSPECT.search(data, at, end)
            if found is None:
                out.append(data[at:end])
                break
            out.append(data[at : found.start()])
            at = found.start()
            if data[at] >= 0x80:
                out.append(_keep_high(found.group()))
                at = found.end()
            elif data[at] == 0x1B:
                size = _escape_size(data, at, end)
                if size is None:
                    return b"".join(out), at
                if self._is_good(data, at, size):
                    out.append(data[at : at + size])
                at += size
            else:
                at = found.end()
        return b"".join(out), end

    def _is_good(self, data: bytes, at: int, size: int) -> bool:
        """Whether the escape sequence at `at` may pass; notes colours and the beginning of strings."""
        if size == 2 and data[at + 1] in _STRINGS:
            self._dropping = 1
            return False
        if size == 2:
            return data[at + 1] in _GOOD_SHORT
        good = _GOOD_CSI.fullmatch(data, at + 1, at + size) is not None
        self.coloured |= good and data[at + size - 1] == 0x6D
        return good

    def _drop(self, data: bytes, at: int, end: int) -> int | None:
        """Where the string that we are in ends; None: not in these bytes."""
        limit = at + STRING_LIMIT - self._dropping
        found = _STRING_END.search(data, at, min(end, limit))
        if found is None and limit <= end:
            self._dropping = 0
            return limit
        if found is None:
            self._dropping += end - at
            return None
        if found.group() == b"\x1b" and found.end() == end:  # held back, so not counted yet
            self._dropping += found.start() - at
            return None
        self._dropping = 0
        if found.group() == b"\x1b":
            # ESC \ ends it; another ESC ends it too, and begins something new.
            return found.end() + 1 if data[found.end()] == 0x5C else found.start()
        return found.start() if found.group() == b"\n" else found.end()


def _is_plain(data: bytes) -> bool:
    """Nothing in it that could be more than text. Decides nearly everything that scripts print, at memory speed."""
    if len(data.translate(None, _CONTROLS)) != len(data):
        return False
    return data.isascii() or _is_text(data)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return _C1.search(data) is None


def _keep_high(data: bytes) -> bytes:
    return data if _is_text(data) else b"".join(_KEEP_HIGH.findall(data))


def _cut_character(data: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of a character that goes on in the next piece."""
    for back in range(1, min(3, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            needed = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return back if needed > back else 0
        if lead < 0x80:
            return 0
    return 0


def _escape_size(data: bytes, at: int, end: int) -> int | None:
    """Bytes of the escape sequence at `at`, to be judged as a whole; None: it is not complete yet.

    A sequence that breaks off (a control character, a byte above 0x7f, too long) counts up to there.
    """
    if at + 1 >= end:
        return None
    first = data[at + 1]
    if first in _STRINGS:
        return 2
    body = (_CSI if first == 0x5B else _SHORT).match(data, at + 1, end)
    stop = body.end() if body else at + 1
    if stop >= end and stop - at <= CSI_LIMIT:
        return None
    final = 0x40 if first == 0x5B else 0x30
    if stop < end and final <= data[stop] <= 0x7E and stop - at <= CSI_LIMIT:
        return stop + 1 - at
    return stop - at
