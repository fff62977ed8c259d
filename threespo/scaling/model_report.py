"""``threespo doctor --model``: in ten lines, the prompt of a model's policy, and how its answer would be parsed."""

import re
from collections.abc import Iterator
from dataclasses import replace
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
from threespo.policy.named.catalogue import read_named_models
from threespo.policy.settings import SamplingSettings, TemplateSettings
from threespo.policy.template import list_template_variables
from threespo.rng import generator
from threespo.scaling.shapes import find_model_config
from threespo.settings import HUB_REPOSITORY_PATTERN
from threespo.study.explain import explain_error, field_name

MAX_WALKS = 24
"""Tasks of each panel that are played at random to find long prompts."""

COUNTED_PROMPTS = 8
"""Prompts with the most characters, whose tokens are counted."""

EXCERPT_LENGTH = 160
"""Characters of a long text's beginning and end that are printed."""


def report_model(source: str, settings: dict[str, Any]) -> list[str]:
    """Return the lines; no weights are read.

    Args:
        source: a folder, or the name of a model in the hub's cache.
        settings: fields of ``TemplateSettings``.

    Raises:
        InputError: if the model is not here, or could not be a policy.
    """
    template = _parse_template(settings)
    words = load_policy_without_model(str(_model_folder(source)), template)
    panels = {name: open_tasks(name, split=environment(name).evaluated[0]) for name in TASK_OPENERS}
    first_panel = next(iter(panels.values()))
    first = start_episode(first_panel.setup, first_panel.task(0))
    # Only tokenizer and template are loaded: the report works without the weights.
    tokens = words.encode_prompt(first.prompt)
    longest = [_describe_longest(words, name, tasks) for name, tasks in panels.items()]
    return [
        f"model     {source}: {len(words.tokenizer)} tokens in its tokenizer, context {words.max_context:,}",
        *_describe_template(words, template),
        f"ends      {_name_tokens(words, sorted(words.eos_ids))}",
        f"begins    {_name_tokens(words, tokens[:3])}",
        f"prompt    the first one, {len(tokens)} tokens: {_shorten(words.tokenizer.decode(tokens))}",
        f"longest   {'; '.join(longest)}; "
        f"max_prompt_tokens is {SamplingSettings().max_prompt_tokens} unless the study sets it",
        f"answer    {_describe_answer(words, first)}",
    ]


def _parse_template(settings: dict[str, Any]) -> TemplateSettings:
    try:
        return TemplateSettings.model_validate(settings)
    except ValidationError as error:
        faults = (
            f"{field_name(item)}: {explain_error(item, TemplateSettings)}" for item in error.errors()
        )
        raise InputError(f"--set: {'; '.join(faults)}") from error


def _model_folder(source: str) -> Path:
    if Path(source).is_dir():
        check_model_folder(Path(source))
        return Path(source)
    named = read_named_models().get(source)
    if named and named.package:
        file = find_model_config(source)
        if file is None:
            raise InputError(f"{source}: not here yet. Fetch it: threespo model {source}")
        return file.parent
    source = named.hub if named else source
    if not re.fullmatch(HUB_REPOSITORY_PATTERN, source):
        raise InputError(
            f"{source}: there is no such model folder. Give a folder or a hub name (OWNER/NAME)."
        )
    config = find_model_config(source)
    if config is None:
        raise InputError(
            f"{source}: not in the hub's cache. Fetch its small files, or give a folder: "
            f"hf download {source} --exclude '*.safetensors' --exclude '*.bin'"
        )
    return config.parent


def _describe_template(words: Policy, settings: TemplateSettings) -> Iterator[str]:
    template = words.template
    if template is None:
        yield "template  none: the prompt alone is read, and the model's text goes on from it"
        return
    # A template that reads the clock renders another text on another day.
    other_day = {**template.values, "strftime_now": lambda _: "another day"}
    reads_clock = replace(template, values=other_day).render("") != template.render("")
    date = "no clock is read"
    if reads_clock:
        date = f"the template takes {settings.chat_template_date} for today (chat_template_date)"
    yield f"before    {_shorten(template.before)}"
    yield f"behind    {_shorten(template.after)}"
    yield f"date      {date}"
    yield f"reads     {format_names(list_template_variables(words.tokenizer))} (chat_template_kwargs)"
    yield f"thought   {_describe_thought(words, template.after)}"


def _describe_thought(words: Policy, after_prompt: str) -> str:
    if words.opening:
        return f"opened by the template, and counted as the answer's: {words.opening!r} (opening=… of adapters)"
    if TAGS[0] in after_prompt:
        return "opened and closed by the template; the answer needs one of its own"
    return "opened by the model itself"


def _name_tokens(words: Policy, ids: list[int]) -> str:
    return ", ".join(f"{words.tokenizer.convert_ids_to_tokens(token)!r} ({token})" for token in ids)


def _shorten(text: str) -> str:
    if len(text) <= 2 * EXCERPT_LENGTH:
        return repr(text)
    return f"{text[:EXCERPT_LENGTH]!r} … {text[-EXCERPT_LENGTH:]!r}"


def _describe_longest(words: Policy, name: str, tasks: Tasks) -> str:
    prompts: set[str] = set()
    for number in range(min(MAX_WALKS, len(tasks))):
        prompts.update(_play_at_random(tasks.begin(number), name))
    # Only the prompts of the most characters are tokenized: all would take minutes.
    longest = sorted(prompts, key=lambda prompt: (-len(prompt), prompt))[:COUNTED_PROMPTS]
    token_count = max(len(words.encode_prompt(prompt)) for prompt in longest)

    response_tokens = SamplingSettings().max_response_tokens
    warning = ""
    if token_count > words.max_context - response_tokens:
        warning = f", TOO LONG for the context beside a response of {response_tokens}"
    return f"{name} {token_count} tokens ({MAX_WALKS} tasks of {tasks.split}, played at random){warning}"


def _play_at_random(episode: Episode, name: str) -> Iterator[str]:
    """Yield the prompts of random play."""
    rng = generator("doctor", name, episode.task.task_id)
    while not episode.done:
        yield episode.prompt
        action = rng.choice(episode.setup.env.admissible(episode.state))
        # Searches are hardly longer than the instruction. Brackets would end the action.
        query = re.sub(r"[\[\]\n]", " ", episode.task.goal)
        episode = take_action(episode, action.replace(FREE_TEXT, query))


def _describe_answer(words: Policy, episode: Episode) -> str:
    """Return whether a perfect answer is parsed as valid after encoding and decoding by the tokenizer."""
    action = episode.setup.env.admissible(episode.state)[0]
    think_start, think_end, action_start, action_end = TAGS
    # Where the template has opened the thought, the answer begins within it.
    opening = "" if words.opening else think_start
    written = f"{opening}I look around.{think_end}{action_start}{action}{action_end}"
    tokens = words.tokenizer(written, add_special_tokens=False)["input_ids"]
    text = words.decode([tokens])[0]
    parsed = parse_response(text, episode.setup.env.text.fallback_length)
    if parsed.valid and parsed.action == action:
        return f"a perfect one is read as valid: {text!r}"
    return f"a perfect one is NOT read as valid: {written!r} comes back as {text!r}, its action as {parsed.action!r}"
