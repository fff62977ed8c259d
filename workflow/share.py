"""Sharing a study's results in one command each: `make push`, `make pull`, or `python -m workflow.share push|pull STUDY`.

DVC moves the files, git the description of them (dvc.yaml, dvc.lock, .dvc/config). Both are called as commands. Exit code 2
with one message if something is missing or wrong; what was there before is then untouched.
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
from typing import Any

import yaml
from dvc.utils.serialize import modify_yaml

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline import plan
from threespo.study.load import load_study
from threespo.study.resolve import present_study, resolve

RESULTS = Path("results")
PIPELINE, LOCK, CONFIG = Path("dvc.yaml"), Path("dvc.lock"), Path(".dvc") / "config"
REMOTE = "storage"
"""The name that a remote gets here."""

CODE = ("Snakefile", "config", "notebooks", "threespo", "workflow")
"""What `dvc repro` looks at before it calls Snakemake, which looks closer."""

EXTRAS = {"s3": ("s3", "dvc_s3"), "ssh": ("ssh", "dvc_ssh"), "sftp": ("ssh", "dvc_ssh")}
"""By the scheme of a remote's URL: the extra of this package that it needs, and the module that the extra brings."""

DVC = (sys.executable, "-m", "dvc")
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
    lines, well = plan.check(present_study(paths), paths, deep=True)
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
    with _restored_on_error(PIPELINE, LOCK, CONFIG):
        if remote is not None:
            _set_remote(remote)
        url = _reachable_remote(f"make push STUDY={study} REMOTE=DIR (a folder, s3://…, ssh://…)")
        _describe(study)
        _dvc("commit", "--force", study)
        print(f"{_size(study)}: to {url}", file=sys.stderr, flush=True)
        _dvc("push", study, about=f"{url}: results could not be stored")
    print(f"pushed results/{study}: {_size(study)}, in {url}")
    _commit(study)


def pull(study: str) -> None:
    """Bring a study's results from the remote, as the present commit describes them.

    Raises:
        InputError: if the study was never shared, the remote does not answer or lacks files, or results would be lost.
    """
    shared = _shared(LOCK.read_text() if LOCK.is_file() else "")
    if study not in shared:
        raise InputError(
            f"study {study!r}: not shared in this commit; shared are: {', '.join(sorted(shared)) or 'none'}. "
            "`git pull` brings what others have shared since."
        )
    url = _reachable_remote("git pull, or dvc remote add --default storage DIR")

    # First everything into DVC's cache, then into place: results here stay as they are if the remote fails.
    _dvc("fetch", study, about=f"{url}: results could not be fetched")
    state = json.loads(_dvc("data", "status", "--json", "--granular"))
    folder = (RESULTS / study).as_posix()
    if missing := [path for path in state.get("not_in_cache", []) if f"{path}/".startswith(f"{folder}/")]:
        raise InputError(
            f"{url}: cannot be reached, or lacks what this commit describes ({missing[0]}). "
            "Results here are untouched; whoever shared them can repeat `make push`."
        )
    # Only now: to compare, DVC asks the remote for what its cache lacks.
    _refuse_to_overwrite(study)
    _dvc("checkout", "--force", study)

    command = yaml.safe_load(PIPELINE.read_text())["stages"][study]["cmd"]
    print(f"pulled {folder}: {_size(study)}, from {url}")
    print(f"The report is {folder}/report.html. To go on from here: {command}")


def _shared(lock: str) -> dict[str, dict[str, Any]]:
    """Return what a dvc.lock says of each study's results."""
    stages = (yaml.safe_load(lock) or {}).get("stages") or {}
    return {name: stage["outs"][0] for name, stage in stages.items() if stage.get("outs")}


def _size(study: str) -> str:
    out = _shared(LOCK.read_text())[study]
    return f"{out['nfiles']} files, {out['size'] / 1e6:.1f} MB"


def _refuse_to_overwrite(study: str) -> None:
    """Refuse if results are here that no commit describes."""
    folder = RESULTS / study
    if not folder.exists():
        return
    # What DVC leaves out does not count. Files that are missing here are no loss.
    changes = json.loads(_dvc("diff", "--json", "--show-hash", "HEAD", "--targets", folder.as_posix()) or "{}")
    mine = [entry for kind in ("added", "modified", "renamed") for entry in changes.get(kind, [])]
    if not [entry for entry in mine if not str(entry["path"]).endswith("/")]:
        return
    states = [entry["hash"] for entry in mine if entry["path"] == f"{folder.as_posix()}/"]
    mine_now = {state["new"] if isinstance(state, dict) else state for state in states}
    commits = _git("log", "--all", "--format=%H", "--", str(LOCK)).stdout.split()
    earlier = (_shared(_git("show", f"{commit}:{LOCK}").stdout).get(study, {}) for commit in commits)
    if not mine_now & {out.get("md5") for out in earlier}:
        raise InputError(
            f"{folder}: holds results that were never shared, which the pull would overwrite. "
            f"Share them (make push STUDY={study}), or move them away (mv {folder} {folder}.mine); then pull."
        )


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
        _dvc("remote", "modify", "--quiet", REMOTE, "url", remote)
        _dvc("remote", "default", "--quiet", REMOTE)
    else:
        _dvc("remote", "add", "--quiet", "--default", REMOTE, remote)


def _settings() -> dict[str, str]:
    """Return DVC's settings by dotted name, those of this clone alone included."""
    lines = (line.partition("=") for line in _dvc("config", "--list").splitlines())
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
        raise InputError(f"{url}: needs the extra {extra!r}: .venv/bin/pip install -c constraints.txt -e '.[{extra}]'")
    # DVC means a relative folder from where it keeps its settings.
    if not separator and not (CONFIG.parent / url).is_dir():
        raise InputError(f"{url}: no such folder. Mount it, or choose another with make push REMOTE=DIR.")
    try:
        asked = _run([sys.executable, "-c", PROBE], timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise InputError(f"{url}: no answer in {PATIENCE} seconds; results here are untouched") from None
    if asked.returncode:
        raise InputError(f"{url}: cannot be reached ({_last_line(asked)}); results here are untouched")
    return url


def _describe(study: str) -> None:
    """Add to dvc.yaml what it lacks of the study: its stage, metrics and curves; comments stay."""
    with modify_yaml(PIPELINE) as pipeline:
        stages, metrics, plots = (pipeline.setdefault(*one) for one in (("stages", {}), ("metrics", []), ("plots", [])))
        paths = Paths(RESULTS / study)
        if study not in stages:
            command = _command(study)
            message = f"echo '{paths.root}: run the snakemake command that made it' >&2; exit 1"
            # Without its command DVC cannot make a study, so it must not say that it is behind the code either: no deps.
            code = {"deps": list(CODE)} if command else {}
            outs = [{paths.root.as_posix(): {"persist": True}}]
            stages[study] = {"cmd": command or message, **code, "outs": outs}

        if paths.dvc_metrics.as_posix() not in metrics:
            metrics.append(paths.dvc_metrics.as_posix())
        if not any(paths.dvc_curves.as_posix() in plot for plot in plots):
            axes = {"x": "generations", "y": "success", "y_label": "training success (%)"}
            plots.append({paths.dvc_curves.as_posix(): {"template": "learning_curves", **axes, "title": study}})


def _command(study: str) -> str | None:
    """Return the command that makes the study; None if it was made with more than ``study=`` (real data, ``set=``)."""
    paths = Paths(RESULTS / study)
    meant = load_study(paths.study)
    for name in (study, paths.study.as_posix()):
        with contextlib.suppress(InputError):
            found = resolve({"study": name}, meant.gpus)
            if found.study == meant and found.paths.root == paths.root:
                gpus = f" --resources gpu={meant.gpus}" if meant.gpus else ""
                return f"snakemake --cores all{gpus} --config study={name}"
    return None


def _run(command: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    # No input: DVC would ask, and wait for an answer.
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def _dvc(*arguments: str, about: str = "") -> str:
    done = _run([*DVC, *arguments])
    if done.returncode:
        raise InputError(f"{about or 'dvc ' + ' '.join(arguments)}: {_last_line(done)}")
    return done.stdout


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(["git", *arguments])


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed command says: DVC's first error, else the last line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or [f"exit code {done.returncode}"])[0]


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
    done = _run(add)
    if not done.returncode and not _git("diff", "--quiet", "HEAD", "--", *files).returncode:
        print("These results were shared before: nothing to commit.")
        return
    done = done if done.returncode else _run(commit)
    if done.returncode:
        print(f"git could not commit: {_last_line(done)}", file=sys.stderr)
        print(f"What remains: {shlex.join(add)} && {shlex.join(commit)} && git push")
    else:
        print(f"Committed {', '.join(files)}. What remains: git push")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m workflow.share", description=__doc__)
    parser.add_argument("action", choices=("push", "pull"))
    parser.add_argument("study", help="the name of its folder in results/")
    parser.add_argument("--remote", help="with push: a folder or URL; it becomes the repository's remote")
    arguments = parser.parse_args()
    try:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", arguments.study):
            raise InputError(f"STUDY={arguments.study}: expected the name of a folder in {RESULTS}/")
        if _git("rev-parse", "--git-dir").returncode:
            raise InputError("not a git repository, by which others learn of results: git init && git add . && git commit")
        push(arguments.study, arguments.remote) if arguments.action == "push" else pull(arguments.study)
    except InputError as error:
        print(f"workflow.share: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
