"""Workspace: a history and the computes it knows. Everything a person can do starts here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, UnknownName, UsageError
from dray.core.interfaces import Target
from dray.core.spec import Environment, RunSpec
from dray.hosts import Answers, Connection, nobody
from dray.runner.containers import ENGINES
from dray.store import HistoryDamaged, RunExists, Store
from dray.targets import HERE, LocalTarget, near_target
from dray.workspace import ahead
from dray.workspace.computes import Compute, Computes
from dray.workspace.events import Event, Progress, Said
from dray.workspace.handing_over import hand_over
from dray.workspace.home import default_home
from dray.workspace.run import Run
from dray.workspace.several import first_free, names_of
from dray.workspace.submission import Plan, Prepared, Submission, header, submission_of

if TYPE_CHECKING:
    from dray.core.where_tree import Field, Sort, Tree
    from dray.targets import VmTarget
    from dray.workspace.attaching import Attached, Login
    from dray.workspace.built import BuiltEnvironments
    from dray.workspace.cleanup import CleanUp
    from dray.workspace.exporting import Exported
    from dray.workspace.importing import Imported
    from dray.workspace.registered import Registered

_ALL = Callable[[Event], None]


class Workspace:
    """The embedded workspace: a folder on this machine. Use it as a context manager, or close it, or just let it go."""

    def __init__(self, home: Path | str | None = None, *, targets: Iterable[Target] = ()) -> None:
        self.home = Path(home).expanduser().absolute() if home else default_home()
        self._store: Store | None = None
        local: Target = LocalTarget(self.home)
        self._targets = {"local": local}
        self._targets.update({target.name: target for target in targets})
        self.computes = Computes(self.home)
        self.answers: Answers = nobody
        """Who is asked what a login wants to know: the command line sets the person at the terminal."""
        self.warnings: list[str] = []

    @property
    def store(self) -> Store:
        """The history, opened when first needed."""
        if self._store is None:
            self._store = Store.open(self.home)
        return self._store

    def close(self) -> None:
        """Close the history."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- computes

    def compute_names(self) -> list[str]:
        """All computes that can be submitted to, second names included."""
        return [*self._targets, *(name for name in self.computes.names() if name not in self._targets)]

    def target(self, name: str | None = None) -> Target:
        """That compute; without a name the default: DRAY_COMPUTE, else the one that was chosen, else local."""
        wanted = name or os.environ.get("DRAY_COMPUTE") or self.computes.default()
        if wanted not in self._targets:
            attached = self.computes.get(wanted)
            if attached is None:
                raise UnknownName("compute", wanted, self.compute_names(), hint="dray compute list")
            if attached.name not in self._targets:
                if attached.kind in HERE:
                    self._targets[attached.name] = near_target(attached.name, attached.options, self.home)
                else:
                    return self.attached_target(attached)
            wanted = attached.name
        return self._targets[wanted]

    @property
    def environments(self) -> Registered:
        """Environments that have a name here, in versions: `ws.environments.register("torch", environment)`."""
        from dray.workspace.registered import Registered

        return Registered(self.home)

    def attached_target(self, compute: Compute) -> VmTarget:
        """The target of a compute behind ssh; its login is answered by what is kept, else by `answers`."""
        from dray.hosts.ssh.host import Stored
        from dray.targets import far_target
        from dray.workspace.login_secrets import LoginSecrets

        answers = Stored(LoginSecrets(self.home).look_up, self.answers)
        return far_target(compute.kind, compute.name, compute.options, self.home, answers)

    def attach(
        self,
        name: str,
        kind: str = "vm",
        *,
        password: str | None = None,
        passphrase: str | None = None,
        accept_new: bool = False,
        keep: bool = True,
        **options: Any,
    ) -> Attached:
        """Make a machine a compute: `ws.attach("gpu1", address="ana@10.0.0.5")`. Safe to repeat."""
        from dray.targets import options_of
        from dray.workspace.attaching import Login, attach

        login = Login(password, passphrase, accept_new, keep)
        return attach(self, name, kind, options_of(kind)(**options), login)

    def update_compute(self, name: str, changes: Mapping[str, Any], login: Login | None = None) -> Attached:
        """Change options of an attached compute, in place: `ws.update_compute("gpu1", {"port": 22})`."""
        from dray.workspace.attaching import update

        return update(self, name, changes, login)

    def remove_compute(self, name: str, *, purge: bool = False, gone: bool = False) -> list[str]:
        """Forget a compute; with `purge` remove dray's folder there, too. Sentences about what was done.

        `gone` says that the machine will never answer again: runs that it had are lost.
        """
        from dray.workspace.removing import remove

        return remove(self, name, purge=purge, gone=gone)

    def set_default_gpus(self, count: int) -> None:
        """GPUs of a run on this machine that says nothing of them; for attached computes `update_compute` does it."""
        from dray.core.errors import UsageError

        if not 0 <= count <= 64:
            raise UsageError("a run has 0 to 64 GPUs", hint="--default-gpus 1")
        LocalTarget(self.home).set_default_gpus(count)

    def list_computes(self) -> list[dict[str, Any]]:
        """All computes, as far as it is known without asking them."""
        aliases, broken = self.computes.aliases(), self.computes.broken()
        default = os.environ.get("DRAY_COMPUTE") or self.computes.default()
        default = aliases.get(default, default)
        found = []
        for name in self.compute_names():
            if name in broken:
                found.append(
                    {"name": name, "kind": "broken", "where": broken[name], "aliases": [], "default": name == default}
                )  # fmt: skip
            elif name not in aliases:
                target = self.target(name)
                also = [alias for alias, meant in aliases.items() if meant == name]
                found.append(
                    {"name": name, "kind": target.kind, "where": target.host.describe(), "aliases": also,
                     "default": name == default}
                )  # fmt: skip
        return found

    def adopt(self, compute: str) -> list[str]:
        """Take runs found on that machine, which this history does not know, into it; their ids."""
        from dray.workspace.adopting import adopt

        return adopt(self, compute)

    def readable_root(self, compute: str) -> str | None:
        """dray's folder of that compute, when this very process can read it."""
        target = self._targets.get(compute) or self._near(compute)
        return target.root if target is not None and target.is_here else None

    def _near(self, compute: str) -> Target | None:
        """That compute, when it is attached and yet this machine."""
        attached = self.computes.get(compute) if compute in self.computes.names() else None
        return self.target(attached.name) if attached and attached.kind in HERE else None

    def connect(self, compute: str) -> Connection:
        """A conversation with that compute's machine."""
        target = self.target(compute)
        return Connection(target.host, target.root, target.python)

    # -- submit

    def plan(self, submission: Submission) -> Plan:
        """What a submit would do; starts nothing, stores nothing."""
        from dray.snapshot import plan

        prepared = Prepared(submission, self.target(names_of(submission.compute)[0] or None), self.home)
        if submission.torch == "auto" or submission.require_gpu:
            with self.connect(prepared.target.name) as connection:
                prepared.check_gpus(connection)
        walked = plan(prepared.folder, home=self.home)
        travels = [str(row[0]) for row in (*walked.files, *walked.links)]
        prepared.check_script_travels(travels, walked.left_out)
        return Plan(
            compute=prepared.target.name,
            folder=str(prepared.folder),
            command=list(prepared.command),
            script=prepared.is_script,
            python=prepared.choice.python,
            python_from=prepared.choice.python_from,
            environment=prepared.choice.environment,
            environment_why=prepared.choice.why,
            notes=list(prepared.choice.notes),
            container=prepared.container,
            gpus=prepared.gpus,
            cpus=submission.gpus.cpus,
            experiment=prepared.experiment,
            git=prepared.git.answer(),
            summary=walked.summary(),
            files=sorted(((row[0], row[1]) for row in walked.files), key=lambda f: (-f[1], f[0])),
            links=list(walked.links),
            left_out=[(item.path, item.rule) for item in walked.left_out],
        )

    def submit(self, script: str | None = None, *args: str, on: _ALL | None = None, **fields: Any) -> Run:
        """Send a script (or `command=[...]`) to a compute; returns once the run has begun its life there.

        `fields` are those of Submission: compute, experiment, name, tags, env, secrets, outputs, folder, buffered ...;
        `timeout` is in seconds, or a text such as "10m".
        """
        wish = submission_of(script, args, fields)
        return self.submit_planned(wish, on)

    def submit_planned(self, submission: Submission, on: _ALL | None = None) -> Run:
        """The same, for a Submission."""
        from dray.runner import gate
        from dray.snapshot import nothing, take
        from dray.workspace.registry_logins import passwords

        tell: _ALL = on or (lambda event: None)
        hidden = submission.secrets.keys()
        several = "," in (submission.compute or "")
        target = self.target(names_of(submission.compute)[0] or None)
        prepared = Prepared(submission, target, self.home)
        self.store  # noqa: B018  # a history that cannot be written is better known before than after
        if several:
            target, connection = first_free(self, submission, tell, hidden)
            try:
                prepared = Prepared(submission, target, self.home)
            except BaseException:
                connection.close()
                raise
        else:
            # The machine's runner starts while the folder is read.
            connection = ahead.take(target, hidden) or Connection(
                target.host, target.root, target.python, without=hidden
            )
        # What the snapshot finds among the blobs is not cleared away before the run is where it names them.
        inside = gate.enter(str(self.home))
        try:
            logins = passwords(
                self, prepared.container
            )  # asked for, or missed, before anything is said of a run
            snapshot = (
                nothing(self.home)
                if submission.prepare
                else take(
                    prepared.folder,
                    self.home,
                    progress=lambda what, done, total: tell(Progress(what, done, total)),
                )
            )
            travels = [row[0] for row in (*snapshot.manifest["files"], *snapshot.manifest["links"])]
            prepared.check_script_travels(travels, snapshot.left_out)
            prepared.check_gpus(connection)
            spec = prepared.spec(snapshot)
            choice = prepared.choice
            for line in header(spec, choice.python_from, snapshot.summary(), choice.why):
                tell(Said(line))
            for note in choice.notes:
                tell(Said(note))
            beside: dict[str, Any] = {"credentials": dict(choice.credentials)} if choice.credentials else {}
            beside |= logins
            files = self._gathered(submission, spec, connection, beside, tell)
            return hand_over(
                self, target, spec, snapshot, connection, submission.secrets, tell, beside, files
            )
        except BaseException:
            connection.close()
            raise
        finally:
            gate.leave(inside)

    def _gathered(
        self,
        submission: Submission,
        spec: RunSpec,
        connection: Connection,
        beside: dict[str, Any],
        tell: _ALL,
    ) -> dict[str, Path]:
        """For a machine without an index: the wheels that go along, named in `beside`."""
        if not submission.offline_host or spec.environment is None:
            return {}
        from dray.workspace.offline import gather

        found = gather(
            self.home,
            connection,
            spec.environment,
            beside.get("credentials") or {},
            lambda what, done, total: tell(Progress(what, done, total)),
            refresh=spec.refresh,
        )
        beside["wheels"] = found.wheels
        return found.files

    def prepare(self, compute: str | None = None, *, on: _ALL | None = None, **fields: Any) -> Run:
        """Make an environment ready ahead: `ws.prepare("gpu1", environment="requirements.txt")`. Returns while it is made.

        It is a run that starts nothing. Followed to its end it can be removed; what it made stays.
        """
        wish = submission_of(None, (), {**fields, "compute": compute, "command": ["true"], "prepare": True})
        return self.submit_planned(wish, on)

    def environment_of(self, submission: Submission) -> Environment:
        """The environment that a submit would have. Raises UsageError when it would have none."""
        choice = Prepared(submission, self.target(submission.compute), self.home).choice
        if choice.environment is None:
            raise UsageError(
                "there is no environment: the run would use the Python of its machine", hint="--env FILE"
            )
        return choice.environment

    def built_environments(self, compute: str | None = None) -> BuiltEnvironments:
        """The environments that are on that compute's machine."""
        from dray.workspace.built import BuiltEnvironments

        return BuiltEnvironments(self, compute)

    # -- looking back

    def run(self, word: str = "@last") -> Run:
        """By id, a unique beginning of one, a name, or `@last`."""
        return Run(self, self.store.find(word))

    def runs(
        self,
        *,
        experiment: str | None = None,
        status: str | None = None,
        where: Tree | str | None = None,
        sort: Sequence[Sort] | str | None = None,
        limit: int | None = None,
        refresh_within_s: float | None = 2.0,
    ) -> list[Run]:
        """The history, newest first or as `sort` says; active runs are asked after first, for at most so long.

        `where` is an expression such as `metrics.loss < 0.2 and params.lr = 0.1`, `sort` a list of fields such as
        `-metrics.acc,created`. Raises WhereError, which points at the word. Names in them that no run has are in
        `warnings`.
        """
        tree: Tree | None = None
        order: Sequence[Sort] = ()
        asked: list[Field] = []
        if where is not None or sort:
            from dray.workspace import questions

            tree, order = questions.tree_of(where), questions.sort_of(sort)
            asked = questions.asked_fields(tree, order)
        self.warnings = []
        if refresh_within_s:
            self.refresh(refresh_within_s)
        if asked:
            self.warnings += questions.unknown_names(self.store, asked)
        if self.strangers():
            self.warnings.append(f"{self.strangers()} run folders are not in the history: dray rebuild")
        found = self.store.runs(experiment, status, limit, where=tree, sort=order)
        return [Run(self, record) for record in found]

    def columns(self, runs: Sequence[Run], fields: Sequence[Field] | str) -> list[dict[str, Any]]:
        """Of each run the values of fields such as `id,metrics.loss,params.lr`; None for what a run does not have."""
        from dray.workspace import questions

        wanted = questions.fields_from(fields)
        self.warnings = questions.unknown_names(self.store, wanted)
        found = self.store.columns([run.id for run in runs], wanted)
        return [{str(field): found[run.id].get(field) for field in wanted} for run in runs]

    def why_none(
        self, *, experiment: str | None = None, status: str | None = None, where: Tree | str | None = None
    ) -> list[str]:
        """Sentences for when `runs` found nothing: how many there are, and what each part of `where` finds alone."""
        from dray.workspace import questions

        return questions.why_none(self.store, questions.tree_of(where, experiment, status))

    def to_pandas(
        self,
        *,
        where: str | None = None,
        experiment: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> Any:
        """The history as a DataFrame, newest first: a row a run, with `params.X`, `tags.X` and the latest `metrics.X`.

        `where` is an expression as for `dray runs --where`. No machine is asked. Raises PandasMissing.
        """
        from dray.core.where import parse
        from dray.workspace.frames import runs_frame

        tree = parse(where) if where else None
        return runs_frame(
            self.store, self.store.runs(experiment=experiment, status=status, limit=limit, where=tree)
        )

    def refresh(self, within_s: float = 2.0) -> None:
        """Ask every machine with active runs how they stand and what they logged. Who did not answer is in `warnings`."""
        from dray.workspace.refreshing import refresh

        self.warnings = refresh(self, within_s)

    def strangers(self) -> int:
        """How many run folders here an empty history knows nothing of: then it was lost, and can be made again."""
        if self.store.runs(limit=1):
            return 0
        return sum(1 for kind in ("machine/*/runs", "imported") for _ in self.home.glob(f"{kind}/[a-z]*"))

    def rebuild(self, on: _ALL | None = None) -> dict[str, int]:
        """Make the history again from the run folders of every compute; what is known already is left alone."""
        tell: _ALL = on or (lambda event: None)
        try:
            self.store  # noqa: B018
        except HistoryDamaged:
            Store.set_aside(self.home)
        try:
            return self._read_all(tell)
        finally:
            # What people said afterwards is in no run folder.
            self.store.replay_edits()

    def _read_all(self, tell: _ALL) -> dict[str, int]:
        found = {"runs": 0, "tombstones": 0}
        for name in [*self._targets, *(one.name for one in self.computes.all())]:
            with self.connect(name) as connection:
                answer = connection.call({"op": "list"})
            # Runs that were never started are told like the others: their tombstones end them.
            for kind, rows in (("runs", answer["runs"]), ("tombstones", answer["never"])):
                for count, row in enumerate(rows):
                    tell(Progress(f"reading {kind} of {name}", count, len(rows)))
                    spec = RunSpec.from_json(row["spec"])
                    with contextlib.suppress(RunExists):
                        self.store.create_run(spec)
                    Run(self, self.store.run(spec.id)).refresh()
                    found[kind] += 1
        found["imported"] = self._import_again(tell)
        self.store.replay_edits()
        return found

    # -- cleaning up

    def gc(
        self,
        *,
        keep: int | None = None,
        older_than: float | str | None = None,
        budget: int | str | None = None,
        unfetched: bool = False,
        compute: str | None = None,
        dry_run: bool = False,
        agree: Callable[[CleanUp], bool] | None = None,
        on: _ALL | None = None,
    ) -> CleanUp:
        """Remove what is not needed any more, here and on the machine of `compute`; without limits what nothing refers to.

        `keep`: so many ended runs of each experiment stay; `older_than` (seconds, or "30d"): ended runs, and environments
        unused for so long, go; `budget` (bytes, or "50GB"): then what was used longest ago goes, until dray takes no more. Runs
        whose outputs were not fetched stay unless `unfetched`. `agree` is shown the plan, and may refuse.
        """
        from dray.core.durations import parse_duration
        from dray.core.sizes import parse_size
        from dray.workspace.clearing import clean_up
        from dray.workspace.forgettable import Limits

        limits = Limits(
            keep=keep,
            older_than_s=parse_duration(older_than) if isinstance(older_than, str) else older_than,
            budget=parse_size(budget) if isinstance(budget, str) else budget,
            unfetched=unfetched,
        )
        agreed, tell = agree or (lambda plan: True), on or (lambda event: None)
        return clean_up(self, self.target(compute).name, limits, dry_run=dry_run, agree=agreed, on=tell)

    def _import_again(self, tell: _ALL) -> int:
        """Runs that had been imported: their folders are here, and are the truth about them."""
        from dray.core.ids import PATTERN
        from dray.workspace import importing

        count = 0
        for place in sorted((self.home / "imported").glob("*")):
            if PATTERN.fullmatch(place.name):
                tell(Progress("reading imported runs", count, 0))
                try:
                    count += importing.take_again(self.store, place) is not None
                except DrayError as trouble:
                    tell(Said(f"{trouble.what}: {trouble.why}"))
        return count

    # -- elsewhere and back

    def export_runs(
        self,
        runs: Iterable[Run],
        to: Path | str,
        *,
        outputs: bool = True,
        code: bool = True,
        force: bool = False,
        on: _ALL | None = None,
    ) -> list[Exported]:
        """Write ended runs as plain files, each to a folder of its own in `to`; the first error is raised at the end.

        What is there already and differs is replaced with `force` only.
        """
        done = [*self.export_each(runs, to, outputs=outputs, code=code, force=force, on=on)]
        _raise_first(one.trouble for one in done)
        return done

    def export_each(
        self,
        runs: Iterable[Run],
        to: Path | str,
        *,
        outputs: bool = True,
        code: bool = True,
        force: bool = False,
        on: _ALL | None = None,
    ) -> Iterator[Exported]:
        """The same, one by one, each with what went wrong. Raises what stops all."""
        from dray.workspace.exporting import Exporting

        place = Path(to).expanduser()
        yield from Exporting(self, place, outputs=outputs, code=code, force=force, on=on).all(runs)

    def import_runs(
        self, folder: Path | str, *, dry_run: bool = False, on: _ALL | None = None
    ) -> list[Imported]:
        """Take exported runs into the history: `folder` is one, or holds some. The first error is raised at the end.

        A run that is here already is left alone; with `dry_run` all is checked and nothing is taken in.
        """
        done = [*self.import_each(folder, dry_run=dry_run, on=on)]
        _raise_first(one.trouble for one in done)
        return done

    def import_each(
        self, folder: Path | str, *, dry_run: bool = False, on: _ALL | None = None
    ) -> Iterator[Imported]:
        """The same, one by one, each with what went wrong. Raises what stops all."""
        from dray.workspace.importing import Importing

        yield from Importing(self, on, dry_run=dry_run).all(Path(folder))

    # -- what is wrong

    def check(self, compute: str) -> list[Any]:
        """Findings about one compute."""
        from dray.workspace.doctor import check_compute

        return check_compute(self, compute)

    def describe(self, compute: str) -> dict[str, Any]:
        """Facts about one compute."""
        target = self.target(compute)
        with self.connect(target.name) as connection:
            machine = connection.call({"op": "probe"})["machine"]
            engine = None
            if target.container is not None or any(machine["programs"].get(name) for name in ENGINES):
                from dray.workspace.engines import look

                engine = {**look(connection, target), "wanted": target.container is not None}
        return {
            "name": target.name,
            "kind": target.kind,
            "where": target.host.describe(),
            "machine": machine,
            "engine": engine,
        }

    def gpus(self, compute: str) -> dict[str, Any]:
        """The GPUs of one compute, who holds them, and who waits."""
        with self.connect(self.target(compute).name) as connection:
            found: dict[str, Any] = connection.call({"op": "gpus"})["gpus"]
        return found

    def doctor(self, compute: str | None = None) -> list[Any]:
        """Findings about this client and all computes, or about that one compute."""
        from dray.workspace.doctor import examine

        return examine(self, compute)


def _raise_first(troubles: Iterable[DrayError | None]) -> None:
    for trouble in troubles:
        if trouble is not None:
            raise trouble
