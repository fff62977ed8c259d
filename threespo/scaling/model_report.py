"""``threespo doctor --model``: in ten lines, what a policy of a model would see and what would be read of its answer."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from threespo.envs.episode import FREE_TEXT, Episode, start_episode, take_action
from threespo.envs.parsing import TAGS, parse_response
from threespo.envs.registry import environment
from threespo.errors import InputError, format_names
from threespo.gym.tasks import TASK_OPENERS, Tasks, open_tasks
from threespo.policy.folders import check_model_folder
from threespo.policy.model import Policy, load_policy_without_model
from threespo.policy.settings import SamplingSettings, TemplateSettings
from threespo.policy.template import list_template_variables
from threespo.rng import generator
from threespo.scaling.shapes import find_model_config
from threespo.settings import HUB_REPOSITORY_PATTERN
from threespo.study.explain import explain_error, field_name

WALKS = 24
"""Tasks of each panel that are played at random for their longest prompt."""

LONGEST = 8
"""Prompts of the most characters, whose tokens are counted."""

SHOWN = 160
"""Characters of a text that are shown from its beginning, and as many from its end."""


def report_model(source: str, settings: dict[str, Any]) -> list[str]:
    """Return the lines; no weights are read.

    Args:
        source: a folder, or the name of a model in the hub's cache.
        settings: fields of ``TemplateSettings``.

    Raises:
        InputError: if the model is not here, or could not be a policy.
    """
    template = _template(settings)
    words = load_policy_without_model(str(_folder(source)), template)
    opened = {name: open_tasks(name, split=environment(name).evaluated[0]) for name in TASK_OPENERS}
    first = start_episode(next(iter(opened.values())).setup, next(iter(opened.values())).task(0))
    ids = words.encode_prompt(first.prompt)
    return [
        f"model     {source}: {len(words.tokenizer)} tokens in its tokenizer, context {words.max_context:,}",
        *_of_template(words, template),
        f"ends      {_named(words, sorted(words.eos_ids))}",
        f"begins    {_named(words, ids[:3])}",
        f"prompt    the first one, {len(ids)} tokens: {_shortened(words.tokenizer.decode(ids))}",
        f"longest   {'; '.join(_longest(words, name, tasks) for name, tasks in opened.items())}; "
        f"max_prompt_tokens is {SamplingSettings().max_prompt_tokens} unless the study sets it",
        f"answer    {_answer(words, first)}",
    ]


def _template(settings: dict[str, Any]) -> TemplateSettings:
    try:
        return TemplateSettings.model_validate(settings)
    except ValidationError as error:
        faults = (
            f"{field_name(item)}: {explain_error(item, TemplateSettings)}" for item in error.errors()
        )
        raise InputError(f"--set: {'; '.join(faults)}") from error


def _folder(source: str) -> Path:
    if Path(source).is_dir():
        check_model_folder(Path(source))
        return Path(source)
    if not re.fullmatch(HUB_REPOSITORY_PATTERN, source):
        raise InputError(
            f"{source}: there is no such model folder. Give a folder or a hub name (OWNER/NAME)."
        )
    if (found := find_model_config(source)) is None:
        raise InputError(
            f"{source}: not in the hub's cache. Fetch its small files, or give a folder: "
            f"hf download {source} --exclude '*.safetensors' --exclude '*.bin'"
        )
    return found.parent


def _of_template(words: Policy, settings: TemplateSettings) -> Iterator[str]:
    template = words.template
    if template is None:
        yield "template  none: the prompt alone is read, and the model's text goes on from it"
        return
    other = replace(template, values={**template.values, "strftime_now": lambda _: "another day"})
    clock = other.render("") != template.render("")
    yield f"before    {_shortened(template.before)}"
    yield f"behind    {_shortened(template.after)}"
    yield "date      " + (
        f"the template takes {settings.chat_template_date} for today (chat_template_date)"
        if clock
        else "no clock is read"
    )
    yield f"reads     {format_names(list_template_variables(words.tokenizer))} (chat_template_kwargs)"
    yield "thought   " + _thought(words, template.after)


def _thought(words: Policy, after: str) -> str:
    if words.opening:
        return f"opened by the template, and counted as the answer's: {words.opening!r} (opening=… of adapters)"
    empty = TAGS[0] in after
    return (
        "opened and closed by the template; the answer needs one of its own"
        if empty
        else "opened by the model itself"
    )


def _named(words: Policy, ids: list[int]) -> str:
    return ", ".join(f"{words.tokenizer.convert_ids_to_tokens(token)!r} ({token})" for token in ids)


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= 2 * SHOWN else f"{text[:SHOWN]!r} … {text[-SHOWN:]!r}"


def _longest(words: Policy, name: str, tasks: Tasks) -> str:
    prompts = {
        prompt for place in range(min(WALKS, len(tasks))) for prompt in _walk(tasks.begin(place), name)
    }
    longest = sorted(prompts, key=lambda prompt: (-len(prompt), prompt))[:LONGEST]
    count = max(len(words.encode_prompt(prompt)) for prompt in longest)
    fits = words.max_context - SamplingSettings().max_response_tokens
    over = (
        f", TOO LONG for the context beside a response of {words.max_context - fits}"
        if count > fits
        else ""
    )
    return f"{name} {count} tokens ({WALKS} tasks of {tasks.split}, played at random){over}"


def _walk(episode: Episode, name: str) -> Iterator[str]:
    """Yield the prompts of random play."""
    source = generator("doctor", name, episode.task.task_id)
    while not episode.done:
        yield episode.prompt
        command = source.choice(episode.setup.env.admissible(episode.state))
        # Instructions are what a shop is searched for at greatest length.
        episode = take_action(
            episode, command.replace(FREE_TEXT, re.sub(r"[\[\]\n]", " ", episode.task.goal))
        )


def _answer(words: Policy, episode: Episode) -> str:
    """Return whether a perfect answer is read as one, after it has gone through the tokenizer."""
    action = next(islice(episode.setup.env.admissible(episode.state), 1))
    think, end, tag, close = TAGS
    written = f"{'' if words.opening else think}I look around.{end}{tag}{action}{close}"
    text = words.decode([words.tokenizer(written, add_special_tokens=False)["input_ids"]])[0]
    parsed = parse_response(text, episode.setup.env.text.fallback_length)
    if parsed.valid and parsed.action == action:
        return f"a perfect one is read as valid: {text!r}"
    return f"a perfect one is NOT read as valid: {written!r} comes back as {text!r}, its action as {parsed.action!r}"
