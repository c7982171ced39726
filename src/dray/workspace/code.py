"""The exact code of a run, had again: from this client's blobs, else from the run's machine. Every byte checked.

Read `Code` first. What comes from a machine goes through the blobs of this client, so it is asked for only once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError
from dray.core.spec import canonical_json
from dray.runner.frames import MAX_HEADER
from dray.snapshot import (
    Arriving,
    BadManifest,
    BlobStore,
    NoRoomForBlobs,
    Snapshot,
    WrongContent,
    checked,
    is_digest,
)
from dray.workspace.errors import CodeGone, NoCode
from dray.workspace.events import Event, Progress

if TYPE_CHECKING:
    from dray.hosts import Connection
    from dray.store import RunRecord
    from dray.workspace.facade import Workspace


class Code:
    """The code of one run. Asking for what is not here asks the machine."""

    def __init__(
        self, workspace: Workspace, record: RunRecord, tell: Callable[[Event], None] = lambda event: None
    ) -> None:
        """Raises NoCode for a run that carried none."""
        self._workspace = workspace
        self._record = record
        self._tell = tell
        self._spec = record.spec
        self._blobs = BlobStore(str(workspace.home))
        self.digest = self._spec.snapshot
        if not is_digest(self.digest):
            raise NoCode(record.id)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """docs/design.md, "Snapshot". Raises CodeGone, BadManifest."""
        found = self._kept()
        if found is None:
            try:
                answer = self._ask({"op": "manifest", "run": self._record.id})
            except DrayError as trouble:
                why = f"the list of its files is not here, and {self._of_machine(trouble)}"
                raise CodeGone(self._record.id, why) from trouble
            found = answer.get("manifest")
            if found is None:
                why = f"the list of its files is not here, and `{self._record.compute}` does not know the run any more"
                raise CodeGone(self._record.id, why)
            checked(found, self.digest)
            self._blobs.mend(canonical_json(found), self.digest)
        return checked(found, self.digest)

    def whole(self) -> Snapshot:
        """All of it, every content intact in the blobs of this client. Raises CodeGone, BadManifest, NoRoomForBlobs."""
        self.bring({row[1] for row in self.manifest["files"]})
        files, links = self.manifest["files"], self.manifest["links"]
        return Snapshot(
            root=Path(self._spec.folder),
            manifest=self.manifest,
            digest=self.digest,
            files=len(files) + len(links),
            bytes=sum(row[2] for row in files),
            left_out=(),
            home=self._workspace.home,
        )

    def bring(self, digests: Collection[str]) -> None:
        """See to it that these contents of it are here, and intact."""
        sizes = {row[1]: row[2] for row in self.manifest["files"] if row[1] in digests}
        total, done, missing = sum(sizes.values()), 0, {}
        for digest, size in sizes.items():
            self._tell(Progress("checking the code", done, total))
            done += size
            if not self._blobs.is_intact(digest, size):
                missing[digest] = size
        if not missing:
            return
        trouble = f"nor on `{self._record.compute}`"
        try:
            with self._workspace.connect(self._record.compute) as connection:
                gone = _Bringing(connection, self._blobs, missing, self._tell).from_run(self._record.id)
        except NoRoomForBlobs:
            raise
        except DrayError as error:
            gone, trouble = set(missing), f"and {self._of_machine(error)}"
        if gone:
            paths = [row[0] for row in self.manifest["files"] if row[1] in gone]
            raise CodeGone.files(self._record.id, paths, len(self.manifest["files"]), trouble)

    def content(self, digest: str, most: int) -> bytes:
        """At most so many bytes of one content, after `bring`."""
        with open(self._blobs.path(digest), "rb") as file:
            return file.read(most)

    def _kept(self) -> Any:
        """The manifest among the blobs; None when it is not there, or is damaged."""
        try:
            with open(self._blobs.path(self.digest), "rb") as file:
                words = file.read(MAX_HEADER + 1)
        except OSError:
            return None
        if sha256(words).hexdigest() != self.digest:
            return None
        try:
            return json.loads(words)
        except (ValueError, RecursionError):
            raise BadManifest("it is no JSON") from None

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._workspace.connect(self._record.compute) as connection:
            return connection.call(request)

    def _of_machine(self, trouble: DrayError) -> str:
        """What it had against being asked, as a part of a sentence."""
        why = f" ({trouble.why})" if trouble.why else ""
        return f"`{self._record.compute}` could not help: {trouble.what}{why}"


class _Bringing:
    """One conversation in which contents come from a machine. What it sends is believed only as far as it is checked."""

    def __init__(
        self,
        connection: Connection,
        blobs: BlobStore,
        wanted: dict[str, int],
        tell: Callable[[Event], None],
    ) -> None:
        self._connection = connection
        self._blobs = blobs
        self._wanted = wanted
        self._tell = tell
        self._came = 0

    def from_run(self, run_id: str) -> set[str]:
        """Bring what is wanted; the digests that were not to be had."""
        self._blobs.prepare()
        total, free = sum(self._wanted.values()), self._blobs.free()
        if total > free:
            raise NoRoomForBlobs(self._blobs.folder, total, free)
        self._connection.ask({"op": "blobs", "run": run_id, "digests": [*self._wanted]})
        left = dict(self._wanted)
        gone: set[str] = set()
        while True:
            header, body = self._connection.receive()
            digest = header.get("blob", header.get("gone"))
            if digest is None:  # done, or it does not know the run
                return gone | set(left)
            if not isinstance(digest, str) or digest not in left:
                raise DrayError("it sent what nobody had asked for")
            size = left.pop(digest)
            if "gone" in header or not self._take(digest, size, header, body):
                gone.add(digest)

    def _take(self, digest: str, size: int, header: dict[str, Any], body: bytes) -> bool:
        """Store one content of which the first piece is here; False when it is another than was told."""
        is_right = True
        with Arriving(self._blobs, digest, size) as blob:
            while True:
                try:
                    blob.write(body)
                except WrongContent:
                    raise DrayError("it sent more than there was") from None
                self._came += len(body)
                self._tell(Progress("fetching the code", self._came, sum(self._wanted.values())))
                if header.get("last"):
                    break
                header, body = self._connection.receive()
                if header.get("blob") != digest or not body:
                    raise DrayError("it sent a content by halves")
            try:
                blob.finish()
            except WrongContent:
                is_right = False
        return is_right
