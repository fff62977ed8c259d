"""Sharing a study's results in one command each: `make push`, `make pull`, or `python -m workflow.share push|pull STUDY`.

DVC moves the files, git the description of them (dvc.yaml, dvc.lock, .dvc/config). Exit code 2 with one message if something
is missing or wrong; what was there before is then untouched.
"""

import argparse
import contextlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from threespo.errors import InputError, format_bytes, format_names
from threespo.paths import Paths
from threespo.pipeline import plan
from threespo.provenance.digests import DigestCache
from threespo.study.resolve import current_study
from threespo.terminal import escape_controls
from workflow.descriptions import (
    CONFIG,
    LOCK,
    PIPELINE,
    describe,
    settle,
    shared,
    shared_here,
    stage_of,
    unfinished,
)
from workflow.objects import Stores
from workflow.tools import check_repository, dvc, git, last_line, run

RESULTS = Path("results")
REMOTE = "storage"
"""The name that a remote gets here."""

EXTRAS = {"s3": ("s3", "dvc_s3"), "ssh": ("ssh", "dvc_ssh"), "sftp": ("ssh", "dvc_ssh")}
"""By the scheme of a remote's URL: the extra of this package that it needs, and the module that the extra brings."""

PROBE = "from dvc.repo import Repo; odb = Repo().cloud.get_remote_odb(); odb.fs.exists(odb.path)"
PATIENCE = 60
"""Seconds in which a remote must answer a first question. DVC itself would try again for hours."""


def check(study: str) -> None:
    """Check that a study's results are finished and undamaged, and so may be shared.

    Raises:
        InputError: if they are not.
    """
    paths = Paths(RESULTS / study)
    if not paths.study.is_file():
        there = ", ".join(sorted(path.parent.name for path in RESULTS.glob("*/study.json"))) or "none"
        raise InputError(f"{paths.root}: no such study; studies with results: {there}")
    lines, well = plan.check_study(current_study(paths), paths, deep=True)
    if not well:
        raise InputError(
            f"{paths.root}: not finished, damaged, or out of date: {lines[0]}. "
            "Run the workflow to its end, then push."
        )


def push(study: str, remote: str | None = None) -> None:
    """Store a study's results at the remote, and commit their description.

    Args:
        study: the name of its folder in ``results/``.
        remote: where to; a folder or a URL, which becomes the repository's remote. None: the one that it has.

    Raises:
        InputError: if the study is not finished, or the remote is missing or does not answer. Nothing is changed then.
    """
    check(study)
    _check_names(study)
    _settle()
    with _restored_on_error(PIPELINE, LOCK, CONFIG):
        if remote is not None:
            _set_remote(remote)
        url = _reachable_remote(f"make push STUDY={study} REMOTE=DIR (a folder, s3://…, ssh://…)")
        describe(study, RESULTS / study)
        dvc("commit", "--force", study)
        stores, folder = Stores(url), str(shared_here()[study]["md5"])
        if stores.drop_damaged_list(folder):
            dvc("commit", "--force", study)
        names = stores.complete_cache(folder, RESULTS / study)
        print(f"{_size(study)}: to {url}", file=sys.stderr, flush=True)
        mended = stores.push(folder, names)
    if mended:
        print(
            escape_controls(
                f"mended at the remote, where it was missing or damaged: {format_names(mended)}"
            )
        )
    print(f"pushed results/{study}: {_size(study)}, in {url}")
    _commit(study)


def pull(study: str) -> None:
    """Bring a study's results from the remote, as the present commit describes them.

    Raises:
        InputError: if the study was never shared, the remote does not answer or lacks files, or results would be lost.
    """
    _settle()
    there = shared_here()
    if study not in there:
        raise InputError(
            f"study {study!r}: not shared in this commit; shared are: {', '.join(sorted(there)) or 'none'}. "
            "`git pull` brings what others have shared since."
        )
    url = _reachable_remote("git pull, or dvc remote add --default storage DIR")

    # First everything into DVC's cache, then into place: results here stay as they are if the remote fails.
    Stores(url).fetch(str(there[study]["md5"]))
    # Only now: to compare, DVC asks the remote for what its cache lacks.
    _refuse_to_overwrite(study)
    dvc("checkout", "--force", study)
    _check_brought(study)

    folder = (RESULTS / study).as_posix()
    print(f"pulled {folder}: {_size(study)}, from {url}")
    print(f"The report is {folder}/report.html. To go on from here: {stage_of(study)['cmd']}")


def _check_names(study: str) -> None:
    """Refuse names of files that DVC cannot write down."""
    for file in (RESULTS / study).rglob("*"):
        try:
            str(file).encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{file}: a name that is not UTF-8, which DVC cannot store; rename or remove it"
            ) from None


def _settle() -> None:
    """Merge what two people have shared, and say so."""
    if files := settle():
        print(f"{' and '.join(files)}: merged, with the results that each side has shared")


def _check_brought(study: str) -> None:
    """Make sure that results are as their records have them: they may have been damaged before they were shared."""
    paths = Paths(RESULTS / study)
    verdicts = plan.plan_jobs(current_study(paths), paths, DigestCache())
    # At another commit there may be other jobs.
    if damage := [line for verdict in verdicts if not verdict.is_new for line in verdict.damage]:
        raise InputError(
            f"{paths.root}: brought as it was shared, but not as it was made: {format_names(damage)}. "
            "Run the workflow, which makes anew what is damaged, and push again."
        )


def _size(study: str) -> str:
    out = shared_here()[study]
    return f"{out.get('nfiles', 1)} files, {format_bytes(out.get('size', 0))}"


def _refuse_to_overwrite(study: str) -> None:
    """Refuse if results are here that no commit describes."""
    folder = RESULTS / study
    if not folder.exists():
        return
    _check_names(study)
    # What DVC leaves out does not count. Files that are missing here are no loss.
    changes = json.loads(
        dvc("diff", "--json", "--show-hash", "HEAD", "--targets", folder.as_posix()) or "{}"
    )
    mine = [entry for kind in ("added", "modified", "renamed") for entry in changes.get(kind, [])]
    if not [entry for entry in mine if not str(entry["path"]).endswith("/")]:
        return
    states = [entry["hash"] for entry in mine if entry["path"] == f"{folder.as_posix()}/"]
    mine_now = {state["new"] if isinstance(state, dict) else state for state in states}
    if not mine_now & ever_shared(study):
        raise InputError(
            f"{folder}: holds results that were never shared, which the pull would overwrite. "
            f"Share them (make push STUDY={study}), or move them away (mv {folder} {folder}.mine); then pull."
        )


def ever_shared(study: str) -> set[str]:
    """Return the digests of all of a study's results that a commit describes, one that a merge has passed over, too."""
    commits = git("log", "--all", "--full-history", "--format=%H", "--", str(LOCK)).stdout.split()
    found = set()
    for commit in commits:
        # Some commit may have been made in the middle of a merge.
        with contextlib.suppress(InputError):
            found.add(shared(git("show", f"{commit}:{LOCK}").stdout).get(study, {}).get("md5"))
    return found - {None}


def _set_remote(remote: str) -> None:
    """Make ``remote`` the repository's default; a folder is made if it is missing."""
    if "://" not in remote:
        folder = Path(remote).expanduser().resolve()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made ({error.strerror})") from error
        remote = str(folder)
    if f"remote.{REMOTE}.url" in _settings():
        dvc("remote", "modify", "--quiet", REMOTE, "url", remote)
        dvc("remote", "default", "--quiet", REMOTE)
    else:
        dvc("remote", "add", "--quiet", "--default", REMOTE, remote)


def _settings() -> dict[str, str]:
    """Return DVC's settings by dotted name, those of this clone alone included."""
    lines = (line.partition("=") for line in dvc("config", "--list").splitlines())
    return {name: value for name, _, value in lines}


def _reachable_remote(remedy: str) -> str:
    """Return the URL of the default remote once it has answered."""
    settings = _settings()
    url = settings.get(f"remote.{settings.get('core.remote')}.url")
    if url is None:
        raise InputError(f"no remote to share results through: {remedy}")

    scheme, separator, _ = url.partition("://")
    extra, module = EXTRAS.get(scheme, ("", ""))
    if module and importlib.util.find_spec(module) is None:
        raise InputError(
            f"{url}: needs the extra {extra!r}: .venv/bin/pip install -c constraints.txt -e '.[{extra}]'"
        )
    # DVC means a relative folder from where it keeps its settings.
    if not separator and not (CONFIG.parent / url).is_dir():
        raise InputError(
            f"{url}: no such folder. Mount it, or choose another with make push REMOTE=DIR."
        )
    try:
        asked = run([sys.executable, "-c", PROBE], timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise InputError(f"{url}: no answer in {PATIENCE} seconds; results here are untouched") from None
    if asked.returncode:
        raise InputError(f"{url}: cannot be reached ({last_line(asked)}); results here are untouched")
    return url


@contextlib.contextmanager
def _restored_on_error(*files: Path) -> Iterator[None]:
    """Leave the files as they were if the block fails: results that were not stored must not be described."""
    before = {file: file.read_bytes() if file.is_file() else None for file in files}
    try:
        yield
    except BaseException:
        for file, content in before.items():
            file.unlink(missing_ok=True) if content is None else file.write_bytes(content)
        raise


def _commit(study: str) -> None:
    """Commit what a collaborator needs, and nothing else of the index."""
    files = [str(file) for file in (PIPELINE, LOCK, CONFIG)]
    add = ["git", "add", "--", *files]
    commit = ["git", "commit", "--quiet", "--message", f"Results of {study}", "--", *files]
    done = run(add)
    if (command := unfinished()) and not done.returncode:
        print(f"What remains: {command} (it concludes what git is at work on), then git push")
        return
    if not done.returncode and not git("diff", "--quiet", "HEAD", "--", *files).returncode:
        print("These results were shared before: nothing to commit.")
        return
    done = done if done.returncode else run(commit)
    if done.returncode:
        print(escape_controls(f"git could not commit: {last_line(done)}"), file=sys.stderr)
        print(f"What remains: {shlex.join(add)} && {shlex.join(commit)} && git push")
    else:
        print(f"Committed {', '.join(files)}. What remains: git push")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m workflow.share", description=__doc__)
    parser.add_argument("action", choices=("push", "pull"))
    parser.add_argument("study", help="the name of its folder in results/")
    parser.add_argument(
        "--remote", help="with push: a folder or URL; it becomes the repository's remote"
    )
    arguments = parser.parse_args()
    try:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", arguments.study):
            raise InputError(f"STUDY={arguments.study}: expected the name of a folder in {RESULTS}/")
        check_repository()
        push(arguments.study, arguments.remote) if arguments.action == "push" else pull(arguments.study)
    except InputError as error:
        print(escape_controls(f"workflow.share: {error}"), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
