"""Which study is meant: workflow configuration and GPUs at hand -> one checked study and its folder.

Decided once, by the workflow's main process. Jobs receive the result as a file, so that what a cluster node sees
(no ``--resources``, another working folder) cannot change the experiment.
"""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.envs.spec import RealData
from threespo.errors import InputError, format_names
from threespo.paths import Paths
from threespo.study.catalogue import read_catalogue
from threespo.study.changes import apply_to_environments, describe_small_budgets, folder_suffix
from threespo.study.config import Study
from threespo.study.configuration import (
    ConfigOrigin,
    check_config_arguments,
    is_folder,
    parse_scalars,
    read_call,
    results_folder,
)
from threespo.study.load import Change, dump_study, load_study
from threespo.study.matrix import local_policies

STUDIES = Path("config") / "studies"

CONFIG_KEYS = ("study", "set", "name", "policy_build", "results", "real")
"""Keys of ``--config`` beside the names of environments, which give folders of real data."""

AUTO = "auto"
"""The value of ``study`` that lets the granted GPUs decide."""

MAX_NAME_LENGTH = 80
"""Characters of a name that messages show."""

CORE = "paper-core"
"""What one to three GPUs can do of the paper's study."""

GPUS_OF_PAPER = 4
"""The paper's runs used four GPUs each (tab:compute)."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The study that is meant, where it lies, and why."""

    study: Study
    paths: Paths
    unchanged: Paths
    """Where the results of the study lie when nothing of it is changed for one call."""
    reason: str
    """One sentence."""
    notes: Sequence[str] = ()
    """What else has to be said of the settings."""
    call: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of ``resolve_study`` and the name of the study's file, as JSON values."""

    @property
    def digest(self) -> str:
        """SHA-256 of the study's file."""
        return hashlib.sha256(dump_study(self.study).encode()).hexdigest()


def real_data_environments() -> dict[str, RealData]:
    """Return the environments that a folder of real data can be given for."""
    specs = {name: environment(name) for name in ENVIRONMENTS}
    return {name: spec.real for name, spec in specs.items() if spec.real}


def find_study_file(name: str, folder: Path = STUDIES) -> Path:
    """Return the study file for a name in ``config/studies`` or for a path.

    Raises:
        InputError: if there is neither.
    """
    for candidate in (Path(name), folder / f"{name}.yaml"):
        # A name that is too long for a file is an error of the system, and no file.
        with contextlib.suppress(OSError):
            if candidate.is_file():
                return candidate
    known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml"))) or "none here"
    raise InputError(
        f"study {name[:MAX_NAME_LENGTH]!r}: neither a file nor a name in {folder} ({known})"
    )


def resolve_study(config: Mapping[str, Any], gpus: int | None, given: Sequence[str] = ()) -> Resolved:
    """Return the study that the workflow is asked for.

    Args:
        config: config/config.yaml with ``--config`` on top; ``CONFIG_KEYS`` and names of environments are its keys.
        gpus: N of ``--resources gpu=N``; None if it was not given.
        given: what was written after ``--config``: Snakemake silently keeps the last of two equal keys.

    Raises:
        InputError: for unknown keys, wrong fields, a missing folder of real data, or too few GPUs for the study.
    """
    keys = ("study", *real_data_environments(), *CONFIG_KEYS[1:])
    check_config_arguments(given)
    values = {str(key): parse_scalars(value) for key, value in config.items()}
    places = ConfigOrigin(values)
    unknown = [key for key in config if key not in keys]
    if unknown:
        raise InputError(
            f"{places.where(str(unknown[0]))}: no such key; known are {', '.join(keys)}. "
            "A study's own fields are changed with --config 'set={...}'."
        )

    # A mistake in the catalogue of tables and figures must fail now, not in the last job.
    read_catalogue()
    results = results_folder(places)
    asked = _asked(places, gpus)
    path = find_study_file(asked)
    given_data = _of_data(places, path)
    wanted = _wanted(places)
    study = plain = load_study(path, given_data)
    notes: list[str] = []
    if wanted.values:
        reached = Change(wanted.origin, apply_to_environments(wanted.values, plain, notes))
        study = load_study(path, [*given_data, reached])
    _check_folders(study, places, path)
    _check_gpus(study, gpus)
    notes += describe_small_budgets(study)

    # Results on real data have a folder of their own: they are never mixed with those on embedded stand-ins. So have those
    # of a changed study: a report must not stand beside settings that are not those of its runs.
    plain_folder = study.name + "".join(
        f"-{real.results_suffix}"
        for env, real in real_data_environments().items()
        if env in places.given
    )
    folder = plain_folder + folder_suffix(places, study, plain)
    chosen = places.value("study", AUTO, str | int, "") == AUTO
    why = _why(study, gpus) if chosen else "as asked"
    call = {"config": values, "gpus": gpus, "file": path.name}
    study = study.model_copy(update={"name": folder})
    reason = f"study {folder!r}, {why}"
    return Resolved(study, Paths(results / folder), Paths(results / plain_folder), reason, notes, call)


def current_study(paths: Paths) -> Study:
    """Return the study of a folder of results as the workflow would have it now, called as it last was.

    Where that is another study or none by now (its file is gone, or this is not the repository), it is the study that the
    folder's own file describes.

    Raises:
        InputError: if the study's file is not valid, or the folder has none.
    """
    call = read_call(paths)
    if call is None:
        return load_study(paths.study)
    config = call["config"]
    gpus = call["gpus"]
    try:
        file = find_study_file(_asked(ConfigOrigin(config), gpus))
    except (TypeError, InputError):
        return load_study(paths.study)

    # Raises where the file has become invalid since that call.
    load_study(file)
    try:
        found = resolve_study(config, gpus)
    except (InputError, TypeError):
        # The call of another machine, on data that are not here.
        return load_study(paths.study)
    return found.study if found.paths.root.name == paths.root.name else load_study(paths.study)


def _asked(places: ConfigOrigin, gpus: int | None) -> str:
    """Return the name or file of the study that is asked for."""
    asked = str(places.value("study", AUTO, str | int, "a name in config/studies or a file"))
    return _automatic(gpus) if asked == AUTO else asked


def _automatic(gpus: int | None) -> str:
    """Return the study that suits the granted GPUs (``_why`` says so)."""
    if not gpus:
        return "smoke"
    return "paper" if gpus >= GPUS_OF_PAPER else CORE


def _why(study: Study, gpus: int | None) -> str:
    """Return why ``auto`` has chosen a study, and which GPUs it leaves idle."""
    granted = f"chosen because --resources gpu={gpus or 0} was granted"
    if not gpus:
        return f"{granted}: it needs none; with 1 to 3 GPUs {CORE}, with {GPUS_OF_PAPER} or more paper"
    needed = max((study.gpus_of_run(name) for name in local_policies(study)), default=0)
    if not needed:
        return f"{granted}; it computes on CPU cores and LEAVES THE GPUs IDLE: the paper's own study needs {GPUS_OF_PAPER}"
    idle = gpus % needed
    return f"{granted}: {gpus // needed} runs of {needed} GPU(s) at a time" + (
        f", {idle} GPU(s) stay idle" if idle else ""
    )


def _of_data(places: ConfigOrigin, path: Path) -> list[Change]:
    """Return what folders of real data change of the study in ``path``, and where that is written."""
    real = places.mapping("real", "as in config/config.yaml")
    folders = {
        env: folder for env in real_data_environments() if (folder := _folder(env, places)) is not None
    }
    if not folders:
        return []
    study = load_study(path)
    # Beside real data, embedded stand-ins would be different experiments under the same names: real prompts are longer.
    there = {env for env, own in study.environments.items() if own.source == "embedded"}
    changes = [
        Change(places.where(env), dict.fromkeys(there - folders.keys())) for env in list(folders)[:1]
    ]
    for env, folder in folders.items():
        changes += _on_real_data(env, folder, real, places, path, study)
    return changes


def _wanted(places: ConfigOrigin) -> Change:
    """Return what a person wants changed of the study."""
    changes = places.mapping("set", "such as 'set={training: {generations: 500}}'")
    if places.value("policy_build", False, bool, "true or false"):
        return Change(
            places.where("set" if changes else "policy_build"), {"policy_build": True, **changes}
        )
    return Change(places.where("set"), changes)


def _folder(env: str, places: ConfigOrigin) -> Path | None:
    """Return the folder of real data that is given for an environment."""
    text = places.value(env, None, str | int | None, "a folder of real data")
    if text is None:
        return None
    folder = Path(str(text))
    if not str(text).strip() or not is_folder(folder):
        raise InputError(
            f"{places.where(env)}={text}: no such folder. It must hold {real_data_environments()[env].holds}."
        )
    return folder


def _on_real_data(
    env: str, folder: Path, settings: dict[str, Any], places: ConfigOrigin, path: Path, study: Study
) -> list[Change]:
    """Return what a study changes to play on the real data in ``folder``; ``settings`` is ``real`` of the configuration."""
    if env not in study.environments:
        raise InputError(
            f"{places.where(env)}={folder}: {path} has no section {env!r}; choose a study that has one"
        )
    known = (*real_data_environments(), "policy")
    unknown = sorted(str(key) for key in settings if key not in known)
    if unknown:
        raise InputError(
            f"{places.where('real')}: no such key: {format_names(unknown)}; there are {', '.join(known)}"
        )

    parts = {name: settings.get(name) or {} for name in (env, "policy")}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise InputError(
                f"{places.where('real')}.{name}: expected a mapping as in config/config.yaml, found {part!r}"
            )
    # A pretrained model keeps its own limits.
    tiny = [name for name, policy in study.policies.items() if policy.kind == "tiny"]
    changed = {env: parts[env], "policies": dict.fromkeys(tiny, parts["policy"])}
    data = {env: {"source": "path", "path": str(folder.resolve())}}
    return [Change(places.where("real"), changed), Change(places.where(env), data)]


def _check_folders(study: Study, places: ConfigOrigin, path: Path) -> None:
    """Refuse folders without data now, and not when the first job has begun."""
    for env, section in study.environments.items():
        real = real_data_environments().get(env)
        if real is None or section.source != "path" or section.path is None:
            continue
        where = (
            f"{places.where(env)}={section.path}"
            if env in places.given
            else f"{path}: {env}.path: {section.path}"
        )
        lack = real.explain_missing(section.path) if is_folder(section.path) else "no such folder"
        if lack is not None:
            raise InputError(f"{where}: {lack}. It must hold {real.holds}.")

    for name, policy in study.policies.items():
        source = policy.source or ""
        is_path = Path(source).is_absolute() or source.startswith(".")
        # A name on the hub is NAME or OWNER/NAME.
        is_hub_name = not is_path and source.count("/") <= 1
        if not is_hub_name and not is_folder(Path(source)):
            where = f"{path}: policies.{name}.source"
            raise InputError(f"{where}: no such folder {source!r}; give one, or a hub name (OWNER/NAME)")


def _check_gpus(study: Study, gpus: int | None) -> None:
    # Snakemake would silently clamp a job's request to the total, and without a total it would not limit anything.
    trained = [name for name, policy in study.policies.items() if policy.kind != "endpoint"]
    ranks = max((study.ranks(name) for name in trained), default=1)
    if ranks * study.gpus_per_rank > (gpus or 0):
        raise InputError(
            f"study {study.name!r}: gpus_per_rank is {study.gpus_per_rank} and ranks_per_run up to {ranks}, but --resources "
            f"gpu={gpus or 0} was granted. Pass --resources gpu={max(study.gpus, ranks * study.gpus_per_rank)}, or choose a "
            "smaller study or fewer ranks."
        )


def find_results(name: str) -> Paths:
    """Return the paths of the study that a name, a folder of results or a study's file means.

    Raises:
        InputError: if there are no results of such a study; names those that there are.
    """
    for folder in (Path(name), Path(name).parent, Path("results") / name):
        if Paths(folder).study.is_file():
            return Paths(folder)
    there = (
        ", ".join(sorted(str(path.parent) for path in Path("results").glob("*/study.json")))
        or "none in results/"
    )
    raise InputError(
        f"{name}: no results of a study; name a folder such as results/smoke (there are: {there})"
    )
