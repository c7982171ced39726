"""Shows what a check has found; shared by `doctor` and `compute check`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dray.cli.documents import write_json
from dray.cli.voice import paint_word
from dray.core.errors import printable

if TYPE_CHECKING:
    from dray.workspace import Finding


def show_findings(findings: Sequence[Finding], *, wants_json: bool) -> int:
    """One line each on stdout, with what to do below those that need it; the exit code."""
    if wants_json:
        write_json([dataclasses.asdict(finding) for finding in findings])
    else:
        width = max((len(finding.what) for finding in findings), default=0)
        for finding in findings:
            line = f"{paint_word(f'{finding.level:4}')}  {printable(finding.what):{width}}  {printable(finding.detail)}"
            sys.stdout.write(line.rstrip() + "\n")
            if finding.hint:
                sys.stdout.write(f"{'':{width + 8}}try: {printable(finding.hint)}\n")
    return 1 if any(finding.level == "bad" for finding in findings) else 0
