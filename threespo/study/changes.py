"""What a person changes of a study for one call: which values that reaches, and which folder the results have."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from threespo.errors import InputError
from threespo.settings import Execution, Name, select_key_fields
from threespo.study.composition import merge
from threespo.study.config import Study
from threespo.study.configuration import Configuration
from threespo.study.reading import read_yaml


def folder_suffix(config: Configuration, study: Study, plain: Study) -> str:
    """Return what the folder of a changed study has after the study's name: the user's name for it, or a short hash.

    Args:
        config: the configuration.
        study: the changed study.
        plain: the study as its file has it. A change of fields that decide no result does not make another study.

    Raises:
        InputError: if the user's name cannot be a folder's.
    """
    key_fields = select_key_fields(study, without=(Execution,))
    if "name" in config.given:
        given = config.value("name", "", str | int | float, "a name for the folder of the results")
        try:
            return "-" + TypeAdapter(Name).validate_python(str(given))
        except ValidationError as error:
            raise InputError(
                f"{config.where('name')}: expected lower-case letters, digits, '-' or '_' for a folder's name, "
                f"found {given!r}"
            ) from error
    if key_fields == select_key_fields(plain, without=(Execution,)):
        return ""
    return "-" + hashlib.sha256(json.dumps(key_fields).encode()).hexdigest()[:8]


def apply_to_environments(changes: dict[str, Any], study: Study, notes: list[str]) -> dict[str, Any]:
    """Return ``changes`` with the sections of environments that have values of their own for the changed fields.

    ``training: {generations: 500}`` is meant for all environments, also for one with a budget of its own: there, too, the
    value becomes 500, and a sentence in ``notes`` says so. What the changes say of an environment itself stays as it is.
    """
    all_changes = dict(changes)
    for env, section in study.environments.items():
        env_changes = changes.get(env, {})
        # Anything but a mapping is refused later, with the field's name.
        if isinstance(env_changes, dict):
            own_values = section.model_dump(exclude_none=True, include={"training", "methods"})
            general = _general_changes(changes, own_values, env_changes, env, "", notes)
            all_changes[env] = merge(general, env_changes)
    return {key: value for key, value in all_changes.items() if key in changes or value}


def _general_changes(
    changes: Mapping[str, Any],
    own_values: Mapping[str, Any],
    env_changes: Mapping[str, Any],
    env: str,
    parent_field: str,
    notes: list[str],
) -> dict[str, Any]:
    """Return the part of ``changes`` that replaces own values of an environment, and add a note for each value.

    Args:
        changes: of the whole study, or of its section ``parent_field``.
        own_values: the environment's own values in this section.
        env_changes: what is changed of the environment itself in this section, which stays.
        env: name of the environment.
        parent_field: name of the section with a final full stop; empty for the whole study.
        notes: added to.
    """
    found: dict[str, Any] = {}
    for name in sorted(changes.keys() & own_values.keys()):
        field = f"{parent_field}{name}"
        value = changes[name]
        own_value = own_values[name]
        if isinstance(value, dict) and isinstance(own_value, dict):
            inner_env_changes = env_changes.get(name)
            if not isinstance(inner_env_changes, dict):
                inner_env_changes = {}
            inner = _general_changes(value, own_value, inner_env_changes, env, f"{field}.", notes)
            if inner:
                found[name] = inner
        elif value != own_value and name not in env_changes:
            found[name] = value
            notes.append(
                f"{field} is {value} in {env} too, which has {own_value} of its own; to keep that: {env}.{field}"
            )
    return found


def describe_small_budgets(study: Study) -> Iterator[str]:
    """Yield a sentence for every environment whose budget is less than one epoch may cost."""
    for env in study.environments:
        study_at = study.at(env)
        training = study_at.training
        budget = training.generations
        if budget is None:
            continue
        task_cost = training.max_generations_per_task(study_at.settings.max_steps)
        tasks = training.tasks_per_epoch
        epoch_cost = tasks * task_cost
        if budget < epoch_cost:
            # The first epoch always has one task, even where that may exceed the budget.
            excess = f", which may take up to {task_cost}" if budget < task_cost else ""
            yield (
                f"training.generations is {budget} in {env}, where an epoch of {tasks} tasks may take {epoch_cost}: "
                f"the first epoch has {max(1, budget // task_cost)}{excess}"
            )


def parse_set_option(text: str | None) -> dict[str, Any]:
    """Return the fields that somebody wrote as YAML after ``--set``; none for ``None``.

    Raises:
        InputError: if it is no YAML mapping.
    """
    values = read_yaml(text or "{}", "--set")
    if not isinstance(values, dict):
        raise InputError(
            f"--set: expected a YAML mapping such as '{{training: {{generations: 500}}}}', found {text!r}"
        )
    return values
