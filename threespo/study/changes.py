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
from threespo.study.configuration import ConfigOrigin
from threespo.study.reading import read_yaml


def folder_suffix(places: ConfigOrigin, study: Study, plain: Study) -> str:
    """Return what the folder of a changed study has after the study's name: the user's name for it, or a short hash.

    Args:
        places: the configuration.
        study: the changed study.
        plain: the study as its file has it. What decides no result makes no other study.

    Raises:
        InputError: if the user's name cannot be a folder's.
    """
    decides = select_key_fields(study, without=(Execution,))
    if "name" in places.given:
        given = places.value("name", "", str | int | float, "a name for the folder of the results")
        try:
            return "-" + TypeAdapter(Name).validate_python(str(given))
        except ValidationError as error:
            raise InputError(
                f"{places.where('name')}: expected lower-case letters, digits, '-' or '_' for a folder's name, "
                f"found {given!r}"
            ) from error
    if decides == select_key_fields(plain, without=(Execution,)):
        return ""
    return "-" + hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:8]


def apply_to_environments(changes: dict[str, Any], study: Study, notes: list[str]) -> dict[str, Any]:
    """Return ``changes`` with the values that environments have of their own changed as well, unless they are named apart.

    Whoever writes ``training: {generations: 500}`` means all environments, one with a budget of its own included. Each such
    value is added to ``notes``.
    """
    reached = dict(changes)
    for env, section in study.environments.items():
        named = changes.get(env, {})
        if isinstance(named, dict):
            own = section.model_dump(exclude_none=True, include={"training", "methods"})
            reached[env] = merge(_common(changes, own, named, env, "", notes), named)
    return {key: value for key, value in reached.items() if key in changes or value}


def _common(
    changes: Mapping[str, Any],
    own: Mapping[str, Any],
    named: Mapping[str, Any],
    env: str,
    before: str,
    notes: list[str],
) -> dict[str, Any]:
    """Return the part of ``changes`` for which the environment ``env`` has ``own`` values that are not ``named`` apart."""
    found: dict[str, Any] = {}
    for name in sorted(changes.keys() & own.keys()):
        field = f"{before}{name}"
        value = changes[name]
        if isinstance(value, dict) and isinstance(own[name], dict):
            named_inside = named.get(name)
            if not isinstance(named_inside, dict):
                named_inside = {}
            inner = _common(value, own[name], named_inside, env, f"{field}.", notes)
            if inner:
                found[name] = inner
        elif value != own[name] and name not in named:
            found[name] = value
            notes.append(
                f"{field} is {value} in {env} too, which has {own[name]} of its own; to keep that: {env}.{field}"
            )
    return found


def describe_small_budgets(study: Study) -> Iterator[str]:
    """Yield a sentence for every environment whose budget is less than one epoch may cost."""
    for env in study.environments:
        here = study.at(env)
        budget = here.training.generations
        if budget is None:
            continue
        task_cost = here.training.max_generations_per_task(here.settings.max_steps)
        tasks = here.training.tasks_per_epoch
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
