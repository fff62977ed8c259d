"""What git keeps of shared results: dvc.yaml and dvc.lock, and what becomes of them where two people's are merged."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from dvc.utils.serialize import dump_yaml, modify_yaml

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.study.load import load_study
from threespo.study.resolve import resolve_study
from workflow.tools import git

PIPELINE, LOCK, CONFIG = Path("dvc.yaml"), Path("dvc.lock"), Path(".dvc") / "config"

CODE = ("Snakefile", "config", "notebooks", "threespo", "workflow")
"""What `dvc repro` looks at before it calls Snakemake, which looks closer."""

_UNFINISHED = {
    "MERGE_HEAD": "git commit --no-edit",
    "rebase-merge": "git rebase --continue",
    "CHERRY_PICK_HEAD": "git cherry-pick --continue",
}
"""By the file or folder that git has while it is at work on it: the command that goes on."""

_WHOLE = "take it from a commit: git checkout --"

_MARK = re.compile("<<<<<<< |=======$|>>>>>>> ")


def shared(lock: str, origin: str = str(LOCK)) -> dict[str, dict[str, Any]]:
    """Return what the text of a dvc.lock says of each study's results.

    Raises:
        InputError: if it is not what DVC writes.
    """
    stages = _parsed(lock, origin).get("stages") or {}
    try:
        return {str(name): dict(stage["outs"][0]) for name, stage in stages.items() if stage.get("outs")}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{origin}: not as DVC writes it ({error}); {_WHOLE} {LOCK}") from error


def shared_here() -> dict[str, dict[str, Any]]:
    """Return what the dvc.lock in this folder says (:func:`shared`); nothing if there is none."""
    return shared(_text(LOCK)) if LOCK.is_file() else {}


def stage_of(study: str) -> dict[str, Any]:
    """Return what dvc.yaml says of a study.

    Raises:
        InputError: if it says nothing.
    """
    stages = _parsed(_text(PIPELINE), str(PIPELINE)).get("stages")
    stage = stages.get(study) if isinstance(stages, dict) else None
    if not isinstance(stage, dict) or "cmd" not in stage:
        raise InputError(
            f"{PIPELINE}: no stage {study!r}, whose results {LOCK} describes; take it from their commit"
        )
    return stage


def describe(study: str, folder: Path) -> None:
    """Add to dvc.yaml what it lacks of the study in a folder: its stage, metrics and curves; comments stay."""
    with modify_yaml(PIPELINE) as pipeline:
        stages, metrics, plots = (
            pipeline.setdefault(*one) for one in (("stages", {}), ("metrics", []), ("plots", []))
        )
        paths = Paths(folder)
        if study not in stages:
            command = _command(study, paths)
            message = f"echo '{paths.root}: run the snakemake command that made it' >&2; exit 1"
            # Without its command DVC cannot make a study, so it must not say that it is behind the code either: no deps.
            code = {"deps": list(CODE)} if command else {}
            outs = [{paths.root.as_posix(): {"persist": True}}]
            stages[study] = {"cmd": command or message, **code, "outs": outs}

        if paths.dvc_metrics.as_posix() not in metrics:
            metrics.append(paths.dvc_metrics.as_posix())
        if not any(paths.dvc_curves.as_posix() in plot for plot in plots):
            axes = {"x": "generations", "y": "success", "y_label": "training success (%)"}
            plots.append(
                {paths.dvc_curves.as_posix(): {"template": "learning_curves", **axes, "title": study}}
            )


def _command(study: str, paths: Paths) -> str | None:
    """Return the command that makes the study; None if it was made with more than ``study=`` (real data, ``set=``)."""
    meant = load_study(paths.study)
    for name in (study, paths.study.as_posix()):
        with contextlib.suppress(InputError):
            found = resolve_study({"study": name}, meant.gpus)
            if found.study == meant and found.paths.root == paths.root:
                gpus = f" --resources gpu={meant.gpus}" if meant.gpus else ""
                return f"snakemake --cores all{gpus} --config study={name}"
    return None


def unfinished() -> str | None:
    """Return the command that goes on with a merge, rebase or cherry-pick; ``None`` if git is at work on none."""
    for name, command in _UNFINISHED.items():
        if Path(git("rev-parse", "--git-path", name).stdout.strip()).exists():
            return command
    return None


def settle() -> list[str]:
    """Merge both sides' descriptions where git could not, and return the files: each study's is that of who has shared it.

    Raises:
        InputError: if both have shared other results of one study, or another remote.
    """
    listed = git(
        "ls-files", "--unmerged", "-z", "--", str(PIPELINE), str(LOCK), str(CONFIG)
    ).stdout.split("\0")
    there = {Path(name) for line in listed if (name := line.partition("\t")[2])}
    if CONFIG in there:
        raise InputError(
            f"{CONFIG}: both sides of the merge have changed it; choose a remote in it, then git add {CONFIG}"
        )

    # All is looked at before anything is written.
    sides = {
        file: [_parsed(_version(file, number), f"{file}, side {number}") for number in (1, 2, 3)]
        for file in there
    }
    merged = {
        file: _merged(file, *(_stages(side) for side in versions)) for file, versions in sides.items()
    }
    if LOCK in there:
        dump_yaml(LOCK, {**sides[LOCK][1], "stages": merged[LOCK]})
    if PIPELINE in there:
        # What this side has, for its comments.
        PIPELINE.write_text(_version(PIPELINE, 2), encoding="utf-8")
        with modify_yaml(PIPELINE) as pipeline:
            stages = pipeline.setdefault("stages", {})
            for name in [name for name in stages if name not in merged[PIPELINE]]:
                del stages[name]
            stages.update(
                {name: stage for name, stage in merged[PIPELINE].items() if stages.get(name) != stage}
            )
            _, ours, theirs = sides[PIPELINE]
            for part in ("metrics", "plots"):
                entries, others = ours.get(part) or [], theirs.get(part) or []
                pipeline[part] = [*entries, *(entry for entry in others if entry not in entries)]
    files = sorted(map(str, there))
    if files:
        git("add", "--", *files)
    return files


def _merged(
    file: Path, base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the stages of both sides, each of who has changed it."""
    merged = {}
    for name in {**ours, **theirs}:
        before, one, other = (_result(side.get(name)) for side in (base, ours, theirs))
        if one != other and before not in (one, other):
            raise InputError(
                f"{file}: merge conflict: both sides have shared results of {name!r}, and not the same. Keep one: git "
                f"checkout --ours {PIPELINE} {LOCK} && git add {PIPELINE} {LOCK} (or --theirs; both stay at the remote)"
            )
        side = theirs if one == before else ours
        if name in side:
            merged[name] = side[name]
    return merged


def _result(stage: Any) -> Any:
    # What `dvc repro` looks at besides, the code, may differ where the results are the same.
    return stage.get("outs", stage) if isinstance(stage, dict) else stage


def _stages(values: Mapping[str, Any]) -> dict[str, Any]:
    found = values.get("stages") or {}
    if not isinstance(found, dict):
        raise InputError(
            f"{LOCK} or {PIPELINE}: one side of the merge is not as DVC writes it; take the other side's"
        )
    return found


def _version(file: Path, number: int) -> str:
    """Return a file of an unfinished merge, empty if there is none: 1 what both come from, 2 this side's, 3 the other's."""
    return git("show", f":{number}:{file.as_posix()}").stdout


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error}); {_WHOLE} {file}") from error


def _parsed(text: str, origin: str) -> dict[str, Any]:
    marks = [number for number, line in enumerate(text.splitlines(), start=1) if _MARK.match(line)]
    if marks:
        raise InputError(
            f"{origin}: line {marks[0]} is a mark of a merge that was committed unfinished. Take that of an earlier commit: "
            f"git checkout HEAD~1 -- {origin}"
        )
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"{origin}: not YAML ({what}); {_WHOLE} {origin}") from error
    if not isinstance(values, dict | None):
        raise InputError(f"{origin}: not as DVC writes it; {_WHOLE} {origin}")
    return values or {}
