"""From the workflow's configuration and the granted GPUs to one checked study and its folder.

This is done once, by the workflow's main process. Jobs receive the result as a file, so that what a cluster node sees
(no ``--resources``, another working folder) cannot change the experiment.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
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
    Configuration,
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
class ResolvedStudy:
    """The study that is meant, where it lies, and why."""

    study: Study
    paths: Paths
    unchanged_paths: Paths
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


def resolve_study(
    config: Mapping[str, Any], gpus: int | None, given: Sequence[str] = ()
) -> ResolvedStudy:
    """Return the study that the workflow is asked for.

    Args:
        config: config/config.yaml with ``--config`` on top; ``CONFIG_KEYS`` and names of environments are its keys.
        gpus: N of ``--resources gpu=N``; None if it was not given.
        given: what was written after ``--config``: Snakemake silently keeps the last of two equal keys.

    Raises:
        InputError: for unknown keys, wrong fields, a missing folder of real data, or too few GPUs for the study.
    """
    check_config_arguments(given)
    values = {str(key): parse_scalars(value) for key, value in config.items()}
    configuration = Configuration(values)
    _check_keys(configuration, config)

    # A mistake in the catalogue of tables and figures must fail now, not in the last job.
    read_catalogue()
    results = results_folder(configuration)
    file = find_study_file(_read_study_name(configuration, gpus))

    # Real data first, then what the user changes: ``set`` wins.
    data_changes = _changes_for_real_data(configuration, file)
    user_change = _read_user_change(configuration)
    plain_study = load_study(file, data_changes)
    study = plain_study
    notes: list[str] = []
    if user_change.values:
        all_values = apply_to_environments(user_change.values, plain_study, notes)
        study = load_study(file, [*data_changes, Change(user_change.origin, all_values)])
    _check_folders(study, configuration, file)
    _check_gpus(study, gpus)
    notes += describe_small_budgets(study)

    # Results on real data have a folder of their own: they are never mixed with those on embedded stand-ins. So have those
    # of a changed study: a report must not stand beside settings that are not those of its runs.
    real_data = real_data_environments()
    suffixes = [
        f"-{real.results_suffix}" for env, real in real_data.items() if env in configuration.given
    ]
    plain_folder = study.name + "".join(suffixes)
    folder = plain_folder + folder_suffix(configuration, study, plain_study)

    is_automatic = configuration.value("study", AUTO, str | int, "") == AUTO
    why = _explain_choice(study, gpus) if is_automatic else "as asked"
    return ResolvedStudy(
        study=study.model_copy(update={"name": folder}),
        paths=Paths(results / folder),
        unchanged_paths=Paths(results / plain_folder),
        reason=f"study {folder!r}, {why}",
        notes=notes,
        call={"config": values, "gpus": gpus, "file": file.name},
    )


def _check_keys(configuration: Configuration, keys: Iterable[object]) -> None:
    known = ("study", *real_data_environments(), *CONFIG_KEYS[1:])
    for key in keys:
        if key not in known:
            raise InputError(
                f"{configuration.where(str(key))}: no such key; known are {', '.join(known)}. "
                "A study's own fields are changed with --config 'set={...}'."
            )


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
        file = find_study_file(_read_study_name(Configuration(config), gpus))
    except (TypeError, InputError):
        return load_study(paths.study)

    # Raises where the file has become invalid since that call.
    load_study(file)
    try:
        resolved = resolve_study(config, gpus)
    except (InputError, TypeError):
        # The call of another machine, on data that are not here.
        return load_study(paths.study)
    has_same_folder = resolved.paths.root.name == paths.root.name
    return resolved.study if has_same_folder else load_study(paths.study)


def _read_study_name(configuration: Configuration, gpus: int | None) -> str:
    """Return the name or file of the study that is asked for; for ``auto``, the study that suits the granted GPUs."""
    name = str(configuration.value("study", AUTO, str | int, "a name in config/studies or a file"))
    if name != AUTO:
        return name
    if not gpus:
        return "smoke"
    return "paper" if gpus >= GPUS_OF_PAPER else CORE


def _explain_choice(study: Study, gpus: int | None) -> str:
    """Return why ``auto`` has chosen a study, and which GPUs it leaves idle."""
    granted = f"chosen because --resources gpu={gpus or 0} was granted"
    if not gpus:
        return f"{granted}: it needs none; with 1 to 3 GPUs {CORE}, with {GPUS_OF_PAPER} or more paper"
    needed = max((study.gpus_of_run(name) for name in local_policies(study)), default=0)
    if not needed:
        return f"{granted}; it computes on CPU cores and LEAVES THE GPUs IDLE: the paper's own study needs {GPUS_OF_PAPER}"
    idle = gpus % needed
    idle_text = f", {idle} GPU(s) stay idle" if idle else ""
    return f"{granted}: {gpus // needed} runs of {needed} GPU(s) at a time{idle_text}"


def _changes_for_real_data(configuration: Configuration, file: Path) -> list[Change]:
    """Return what folders of real data change of the study in ``file``."""
    settings = configuration.mapping("real", "as in config/config.yaml")
    folders: dict[str, Path] = {}
    for env in real_data_environments():
        folder = _read_data_folder(env, configuration)
        if folder is not None:
            folders[env] = folder
    if not folders:
        return []

    study = load_study(file)
    # Beside real data, embedded stand-ins would be different experiments under the same names: real prompts are longer.
    embedded = {env for env, section in study.environments.items() if section.source == "embedded"}
    first_env = next(iter(folders))
    without_embedded = dict.fromkeys(embedded - folders.keys())
    changes = [Change(configuration.where(first_env), without_embedded)]
    for env, folder in folders.items():
        if env not in study.environments:
            raise InputError(
                f"{configuration.where(env)}={folder}: {file} has no section {env!r}; choose a study that has one"
            )
        real_settings = _read_real_settings(env, settings, configuration, study)
        data = {env: {"source": "path", "path": str(folder.resolve())}}
        changes.append(Change(configuration.where("real"), real_settings))
        changes.append(Change(configuration.where(env), data))
    return changes


def _read_user_change(configuration: Configuration) -> Change:
    """Return what the user changes of the study with ``set`` and ``policy_build``."""
    values = configuration.mapping("set", "such as 'set={training: {generations: 500}}'")
    if not configuration.value("policy_build", False, bool, "true or false"):
        return Change(configuration.where("set"), values)
    origin = configuration.where("set" if values else "policy_build")
    return Change(origin, {"policy_build": True, **values})


def _read_data_folder(env: str, configuration: Configuration) -> Path | None:
    """Return the folder of real data that is given for an environment."""
    text = configuration.value(env, None, str | int | None, "a folder of real data")
    if text is None:
        return None
    folder = Path(str(text))
    if not str(text).strip() or not is_folder(folder):
        holds = real_data_environments()[env].holds
        raise InputError(f"{configuration.where(env)}={text}: no such folder. It must hold {holds}.")
    return folder


def _read_real_settings(
    env: str, settings: dict[str, Any], configuration: Configuration, study: Study
) -> dict[str, Any]:
    """Return what the section ``real`` of the configuration changes of a study that plays ``env`` on real data."""
    origin = configuration.where("real")
    known = (*real_data_environments(), "policy")
    unknown = sorted(str(key) for key in settings if key not in known)
    if unknown:
        raise InputError(f"{origin}: no such key: {format_names(unknown)}; there are {', '.join(known)}")

    parts = {name: settings.get(name) or {} for name in (env, "policy")}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise InputError(
                f"{origin}.{name}: expected a mapping as in config/config.yaml, found {part!r}"
            )
    # A pretrained model keeps its own limits.
    tiny_policies = [name for name, policy in study.policies.items() if policy.kind == "tiny"]
    return {env: parts[env], "policies": dict.fromkeys(tiny_policies, parts["policy"])}


def _check_folders(study: Study, configuration: Configuration, file: Path) -> None:
    """Refuse folders without data now, and not when the first job has begun."""
    for env, section in study.environments.items():
        real = real_data_environments().get(env)
        if real is None or section.source != "path" or section.path is None:
            continue
        problem: str | None = "no such folder"
        if is_folder(section.path):
            problem = real.explain_missing(section.path)
        if problem is not None:
            origin = f"{file}: {env}.path: {section.path}"
            if env in configuration.given:
                origin = f"{configuration.where(env)}={section.path}"
            raise InputError(f"{origin}: {problem}. It must hold {real.holds}.")

    for name, policy in study.policies.items():
        source = policy.source or ""
        is_path = Path(source).is_absolute() or source.startswith(".")
        # A name on the hub is NAME or OWNER/NAME.
        is_hub_name = not is_path and source.count("/") <= 1
        if not is_hub_name and not is_folder(Path(source)):
            origin = f"{file}: policies.{name}.source"
            raise InputError(
                f"{origin}: no such folder {source!r}; give one, or a hub name (OWNER/NAME)"
            )


def _check_gpus(study: Study, gpus: int | None) -> None:
    """Refuse a study that no granted GPUs can train."""
    # Snakemake would silently clamp a job's request to the total, and without a total it would not limit anything.
    trained = [name for name, policy in study.policies.items() if policy.kind != "endpoint"]
    ranks = max((study.ranks(name) for name in trained), default=1)
    gpus_of_run = ranks * study.gpus_per_rank
    if gpus_of_run > (gpus or 0):
        raise InputError(
            f"study {study.name!r}: gpus_per_rank is {study.gpus_per_rank} and ranks_per_run up to {ranks}, but --resources "
            f"gpu={gpus or 0} was granted. Pass --resources gpu={max(study.gpus, gpus_of_run)}, or choose a "
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
    folders = sorted(str(file.parent) for file in Path("results").glob("*/study.json"))
    existing = ", ".join(folders) or "none in results/"
    raise InputError(
        f"{name}: no results of a study; name a folder such as results/smoke (there are: {existing})"
    )
