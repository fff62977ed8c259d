"""Which study is meant: workflow configuration and GPUs at hand -> one checked study and its folder.

Decided once, by the workflow's main process. Jobs receive the result as a file, so that what a cluster node sees
(no ``--resources``, another working folder) cannot change the experiment.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.envs.spec import RealData
from threespo.errors import InputError
from threespo.settings import Execution, Name, decisive
from threespo.study.config import Study
from threespo.study.load import dump_study, load_study, merge
from threespo.study.paths import Paths

STUDIES = Path("config") / "studies"

CONFIG_KEYS = ("study", "set", "name", "policy_build", "results", "real")
"""Keys of ``--config`` beside the names of environments, which give folders of real data."""

AUTO = "auto"
"""The value of ``study`` that lets the granted GPUs decide."""

GPUS_OF_PAPER = 4
"""The paper's runs used four GPUs each (tab:compute)."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The study that is meant, where it lies, and why."""

    study: Study
    paths: Paths
    reason: str
    """One sentence."""
    notes: Sequence[str] = ()
    """What else has to be said of the settings."""
    call: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of ``resolve``, as JSON values."""

    @property
    def digest(self) -> str:
        """SHA-256 of the study's file."""
        return hashlib.sha256(dump_study(self.study).encode()).hexdigest()


def real_data() -> dict[str, RealData]:
    """Return the environments that a folder of real data can be given for."""
    specs = {name: environment(name) for name in ENVIRONMENTS}
    return {name: spec.real for name, spec in specs.items() if spec.real}


def study_file(name: str, folder: Path = STUDIES) -> Path:
    """Return the study file for a name in ``config/studies`` or for a path.

    Raises:
        InputError: if there is neither.
    """
    for candidate in (Path(name), folder / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml"))) or "none here"
    raise InputError(f"study {name!r}: neither a file nor a name in {folder} ({known})")


def resolve(config: Mapping[str, Any], gpus: int | None) -> Resolved:
    """Return the study that the workflow is asked for.

    Args:
        config: config/config.yaml with ``--config`` on top; ``CONFIG_KEYS`` and names of environments are its keys.
        gpus: N of ``--resources gpu=N``; None if it was not given.

    Raises:
        InputError: for unknown keys, wrong fields, a missing folder of real data, or too few GPUs for the study.
    """
    keys = ("study", *real_data(), *CONFIG_KEYS[1:])
    unknown = sorted(set(config) - set(keys))
    if unknown:
        raise InputError(
            f"--config: no such key: {', '.join(unknown)}; known are {', '.join(keys)}. "
            "A study's own fields are changed with --config 'set={...}'."
        )

    config = {key: _typed(value) for key, value in config.items()}
    path = study_file(_asked(config, gpus))
    given, changes = _of_data(config, path), _changes(config)
    study = plain = load_study(path, given)
    notes: list[str] = []
    if changes:
        study = load_study(path, merge(given, _reaching(changes, plain, notes)))
    _check_gpus(study, gpus)
    notes += _small_budgets(study)

    # Results on real data have a folder of their own: they are never mixed with those on embedded stand-ins. So have those
    # of a changed study: a report must not stand beside settings that are not those of its runs.
    folder = study.name + "".join(f"-{real.ending}" for env, real in real_data().items() if config.get(env))
    folder += _own_ending(config, study, plain)
    automatic = config.get("study", AUTO) == AUTO
    why = f"chosen because --resources gpu={gpus or 0} was granted" if automatic else "as asked"
    paths = Paths(Path(str(config.get("results", "results"))) / folder)
    study, call = study.model_copy(update={"name": folder}), {"config": config, "gpus": gpus}
    return Resolved(study, paths, f"study {folder!r}, {why}", notes, call)


def present_study(paths: Paths) -> Study:
    """Return the study of a folder of results as the workflow would have it now, called as it last was.

    Where that is another study or none by now (its file is gone, or this is not the repository), it is the study that the
    folder's own file describes.

    Raises:
        InputError: if the study's file is not valid, or the folder has none.
    """
    try:
        call = json.loads(paths.call.read_text(encoding="utf-8"))
        config, gpus = dict(call["config"]), call["gpus"]
        study_file(_asked(config, gpus))
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return load_study(paths.study)
    found = resolve(config, gpus)
    return found.study if found.paths.root.name == paths.root.name else load_study(paths.study)


def _small_budgets(study: Study) -> Iterator[str]:
    """Yield a sentence for every environment whose budget is less than one epoch may cost."""
    for env in study.environments:
        here = study.at(env)
        budget, task = here.training.generations, here.training.longest_task(here.settings.max_steps)
        tasks = here.training.tasks_per_epoch
        if budget < tasks * task:
            yield (
                f"training.generations is {budget} in {env}, where an epoch of {tasks} tasks may take {tasks * task}: "
                f"the first epoch has {max(1, budget // task)}"
                + (f", which may take up to {task}" if budget < task else "")
            )


def _own_ending(config: Mapping[str, Any], study: Study, plain: Study) -> str:
    """Return what the folder of a changed study has after the study's name: the user's name for it, or a short hash."""
    given, decides = config.get("name"), decisive(study, without=(Execution,))
    if given is not None:
        try:
            return "-" + TypeAdapter(Name).validate_python(str(given))
        except ValidationError as error:
            raise InputError(
                f"--config name: expected lower-case letters, digits, '-' or '_' for a folder's name, found {given!r}"
            ) from error
    if decides == decisive(plain, without=(Execution,)):
        return ""
    return "-" + hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:8]


def _typed(value: Any) -> Any:
    """Return ``value`` with numbers and nulls as such: Snakemake hands nested ``--config`` values on as text."""
    if isinstance(value, dict):
        return {key: _typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    if not isinstance(value, str):
        return value
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return read if isinstance(read, int | float | bool | None) else value


def _asked(config: Mapping[str, Any], gpus: int | None) -> str:
    """Return the name or file of the study that is asked for."""
    asked = str(config.get("study", AUTO))
    if asked != AUTO:
        return asked
    if not gpus:
        return "smoke"
    return "paper" if gpus >= GPUS_OF_PAPER else "mini"


def _changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a user wants changed of the study."""
    changes = config.get("set") or {}
    if not isinstance(changes, dict):
        raise InputError(
            f"--config set: expected a mapping such as 'set={{training: {{generations: 500}}}}', found {changes!r}"
        )
    return merge({"policy_build": True} if config.get("policy_build") else {}, changes)


def _reaching(changes: dict[str, Any], study: Study, notes: list[str]) -> dict[str, Any]:
    """Return ``changes`` with the values that environments have of their own changed as well, unless they are named apart.

    Whoever writes ``training: {generations: 500}`` means all environments, one with a budget of its own included. Each such
    value is added to ``notes``.
    """
    reaching = dict(changes)
    for env, section in study.environments.items():
        named = changes.get(env, {})
        if isinstance(named, dict):
            own = section.model_dump(exclude_none=True, include={"training", "methods"})
            reaching[env] = merge(_common(changes, own, named, env, "", notes), named)
    return {key: value for key, value in reaching.items() if key in changes or value}


def _common(
    changes: Mapping[str, Any], own: Mapping[str, Any], named: Mapping[str, Any], env: str, before: str, notes: list[str]
) -> dict[str, Any]:
    """Return the part of ``changes`` for which the environment ``env`` has ``own`` values that are not ``named`` apart."""
    found: dict[str, Any] = {}
    for name in sorted(changes.keys() & own.keys()):
        field, value, apart = f"{before}{name}", changes[name], named.get(name, {})
        if isinstance(value, dict) and isinstance(own[name], dict):
            inner = _common(value, own[name], apart if isinstance(apart, dict) else {}, env, f"{field}.", notes)
            found.update({name: inner} if inner else {})
        elif value != own[name] and name not in named:
            found[name] = value
            notes.append(f"{field} is {value} in {env} too, which has {own[name]} of its own; to keep that: {env}.{field}")
    return found


def _of_data(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return what folders of real data change of the study in ``path``."""
    overrides: dict[str, Any] = {}
    if any(config.get(env) for env in real_data()):
        # Beside real data, embedded stand-ins would be different experiments under the same names: real prompts are longer.
        there = load_study(path).environments
        overrides.update({env: None for env, own in there.items() if own.source == "embedded" and not config.get(env)})
    real = _mapping("real", config.get("real"))
    for env in real_data():
        if config.get(env):
            overrides = merge(overrides, _on_real_data(env, Path(str(config[env])), real, path))
    return overrides


def _mapping(key: str, value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise InputError(f"--config {key}: expected a mapping as in config/config.yaml, found {value!r}")
    return dict(value or {})


def _on_real_data(env: str, folder: Path, settings: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return what a study changes to play on the real data in ``folder``; ``settings`` is ``real`` of config.yaml."""
    if not folder.is_dir():
        raise InputError(f"--config {env}={folder}: no such folder. It must hold {real_data()[env].holds}.")
    study = load_study(path)
    if env not in study.environments:
        raise InputError(f"--config {env}={folder}: {path} has no section {env!r}; choose a study that has one")

    own = {env: {"source": "path", "path": str(folder.resolve())}}
    # A pretrained model keeps its own limits.
    tiny = [name for name, policy in study.policies.items() if policy.kind == "tiny"]
    policies = {name: _mapping("real policy", settings.get("policy")) for name in tiny}
    return merge({env: settings.get(env) or {}, "policies": policies}, own)


def _check_gpus(study: Study, gpus: int | None) -> None:
    # Snakemake would silently clamp a job's request to the total, and without a total it would not limit anything.
    if study.gpus_per_run > (gpus or 0):
        raise InputError(
            f"study {study.name!r}: gpus_per_run is {study.gpus_per_run}, but --resources gpu={gpus or 0} was granted. "
            f"Pass --resources gpu={max(study.gpus, study.gpus_per_run)} or choose a smaller study."
        )
