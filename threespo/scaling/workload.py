"""The work of a run: generations, tokens, optimizer steps, calls of the sampler (docs/scaling.md)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from threespo.methods.registry import full_options, searches
from threespo.paths import Run
from threespo.study.config import MethodSettings, PolicySettings, Study, StudyAt

EXPANSION_WIDTH = 0.7
"""Mean number of samples of an expanded state, as a share of G_max: 0.4 to 0.9 in the runs of `smoke` (docs/LOG.md)."""

LEARNED_SHARE = 0.25
"""Share of a search's samples that are learned from (groups of equal rewards are not): 0.12 to 0.40 in `smoke`."""

GROUP_SHARE = 0.9
"""Mean rows of a learned group, as a share of G_max: 0.76 to 1.0 in `smoke`."""

ACTIVE_SHARE = 0.4
"""Mean share of an epoch's tasks that still search in a tick, where searches follow several paths: 0.3 to 0.5 in `smoke`."""


class GivenLengths(NamedTuple):
    """A user's own mean lengths of texts, in tokens; ``None`` leaves the known one."""

    prompt: float | None = None
    response: float | None = None


NOTHING_GIVEN = GivenLengths()


@dataclass(frozen=True, slots=True)
class TextLengths:
    """Lengths of a policy's prompts, responses and episodes in an environment: means over training."""

    prompt: float
    """Tokens of a prompt."""
    response: float
    """Tokens of a response."""
    episode: float
    """Length of an episode, as a share of the longest."""
    distinct: float
    """Different prompts, as a share of the rows of a batch: equal ones are read once."""
    origin: str
    """``measured`` or ``assumed``, and how."""


TINY_ORIGIN = "measured: tiny-s on embedded tasks, between base and strong clone"
REAL_ORIGIN = "prompts computed from 40 real tasks; assumed: responses, no two prompts alike, every episode to its limit"

TEXTS: Mapping[tuple[str, str], TextLengths] = {
    ("alfworld", "tiny"): TextLengths(77, 10.3, 0.78, 0.65, TINY_ORIGIN),
    ("webshop", "tiny"): TextLengths(126, 11.6, 0.36, 0.31, TINY_ORIGIN),
    ("alfworld", "pretrained"): TextLengths(520, 120, 1.0, 1.0, REAL_ORIGIN),
    ("webshop", "pretrained"): TextLengths(560, 120, 1.0, 1.0, REAL_ORIGIN),
}
"""By environment and kind of policy. Real prompts: words and marks of random play (406 and 445 on average) x 1.2, and 30
tokens of the chat template. They were not measured with the model's tokenizer, and a trained agent sees other pages."""

UNKNOWN_TEXT = TextLengths(600, 120, 1.0, 1.0, "assumed")

RELEASED_GAMES = {"valid_seen": 140, "valid_unseen": 134, "test": 500, "calibration": 200}
"""Games of the splits of released data, where a study takes all."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of a job. All numbers are totals, but ``passes`` and ``context``."""

    generations: float = 0.0
    ticks: float = 0.0
    """Calls of the sampler."""
    longest: float = 0.0
    """Tokens of the longest response of each call, added up: the sampler's steps one after another."""
    read: float = 0.0
    """Prompt tokens that the sampler reads; responses to one prompt share it."""
    drawn: float = 0.0
    """Response tokens."""
    steps: float = 0.0
    """Optimizer steps of the policy."""
    packed: float = 0.0
    """Tokens of the learner's packs, each counted once."""
    scored: float = 0.0
    """Response tokens among them."""
    passes: float = 0.0
    """Passes over each pack, in forward passes: 3 for forward and backward, 1 each for the reference and for log pi_old."""
    one_prompt: bool = False
    """A step's rows have one prompt, which every rank must read."""
    critic: bool = False
    """A critic of the policy's size learns from the same packs."""
    context: float = 0.0
    """Tokens of prompt and response of a row."""

    @property
    def tokens(self) -> float:
        """Tokens that are read, drawn or learned from."""
        return self.read + self.drawn + self.packed


def text_lengths(env: str, policy: PolicySettings, given: GivenLengths = NOTHING_GIVEN) -> TextLengths:
    """Return the mean lengths of texts, of which ``given`` replaces the known ones."""
    known = TEXTS.get((env, policy.kind), UNKNOWN_TEXT)
    prompt = given.prompt or known.prompt
    response = given.response or known.response
    is_given = given.prompt or given.response
    return replace(
        known,
        prompt=min(prompt, policy.max_prompt_tokens),
        response=min(response, policy.max_response_tokens),
        origin="given" if is_given else known.origin,
    )


def training_work(study: Study, run: Run, text: TextLengths) -> Workload:
    """Return the work of training a run, or a trial of a learning rate (formulas ``episodes`` and ``search``)."""
    study_at = study.at(run.env)
    entry = study_at.methods[run.method]
    # Trials have a budget of their own, in generations.
    generations = float(study_at.training.generations or 0)
    if run.rate is not None and study.tuning:
        generations = float(study.tuning.generations)

    planned = _PlannedRun(
        study_at,
        entry,
        full_options(entry.method, entry.options),
        generations,
        text,
        study.policies[run.policy].max_response_tokens,
    )
    return _search_work(planned) if searches(entry.method) else _episode_work(planned)


def playing_work(episodes: float, max_steps: int, text: TextLengths, limit: int) -> Workload:
    """Return the work of playing whole episodes in parallel, without learning."""
    rows = episodes * text.episode
    return _sampling_work(rows * max_steps, 1.0, max_steps, rows, text, limit)


class _PlannedRun(NamedTuple):
    """What the work of a run is computed from."""

    study: StudyAt
    """The study's settings in the run's environment."""
    entry: MethodSettings
    options: Mapping[str, Any]
    """All options of the method, defaults included."""
    generations: float
    """The run's budget; 0 where the study gives epochs instead."""
    text: TextLengths
    response_limit: int
    """Most tokens of a response."""


def _episode_work(planned: _PlannedRun) -> Workload:
    """Return the work of a method that plays whole episodes: an epoch is one update on all of their steps."""
    training = planned.study.training
    max_steps = planned.study.settings.max_steps
    generations = planned.generations
    text = planned.text
    episodes = training.tasks_per_epoch * training.group_size
    if training.epochs and not generations:
        # At most: a policy that wins needs fewer steps.
        epochs = float(training.epochs)
        generations = float(training.epochs * episodes * max_steps)
    else:
        epochs = generations / (episodes * text.episode * max_steps)

    ticks = epochs * max_steps
    rows_of_tick = generations / max(1.0, ticks)
    sampling = _sampling_work(
        generations, text.distinct, ticks, rows_of_tick, text, planned.response_limit
    )

    minibatch = planned.entry.minibatch or training.minibatch
    # The policy changes between the batches of an epoch, so log pi_old is computed before the first one.
    has_several_batches = episodes * max_steps > minibatch
    return replace(
        sampling,
        steps=generations / minibatch,
        packed=generations * (text.prompt * text.distinct + text.response),
        scored=generations * text.response,
        passes=3.0 + (training.kl_coef > 0) + has_several_batches,
        critic="critic_rate" in planned.options,
    )


def _search_work(planned: _PlannedRun) -> Workload:
    """Return the work of a search: a tick expands a state of each task, with an optimizer step for each learned group."""
    training = planned.study.training
    max_steps = planned.study.settings.max_steps
    options = planned.options
    generations = planned.generations
    text = planned.text
    max_width = options["g_max"] or training.group_size
    mean_width = max(1.0, EXPANSION_WIDTH * max_width)
    width = float(max_width if options["uniform"] else mean_width)
    # Without a cap of its own a search stops at the cost of a group of whole episodes.
    cap = options["max_generations_per_task"] or training.group_size * max_steps

    # Once its cap is reached, a search finishes the path that it is on with one sample for each state.
    wide_expansions = min(cap / width, cap)
    single_expansions = max(0.0, max_steps - wide_expansions)
    generations_per_task = wide_expansions * width + single_expansions
    learned_share = LEARNED_SHARE
    if training.epochs and not generations:
        tasks = float(training.epochs * training.tasks_per_epoch)
        generations = tasks * generations_per_task
        # Single samples have no siblings to be compared with, so nothing is learned from them.
        learned_share = LEARNED_SHARE * wide_expansions * width / generations_per_task
    else:
        tasks = generations / generations_per_task

    expansions = tasks * (wide_expansions + single_expansions)
    follows_one_path = wide_expansions <= max_steps
    active_tasks = training.tasks_per_epoch * (1.0 if follows_one_path else ACTIVE_SHARE)
    ticks = expansions / active_tasks
    distinct = expansions / generations
    rows_of_tick = generations / ticks
    sampling = _sampling_work(generations, distinct, ticks, rows_of_tick, text, planned.response_limit)

    # Groups of equal rewards have no advantage, and are not learned from.
    rows = generations * learned_share
    group_size = 1.0 + max(0.0, GROUP_SHARE * max_width - 1.0)
    updates_per_epoch = options["update_unit"] == "epoch"
    rows_of_step = training.minibatch if updates_per_epoch else group_size
    return replace(
        sampling,
        steps=rows / rows_of_step,
        packed=rows * (text.response + text.prompt / group_size),
        scored=rows * text.response,
        passes=3.0 + (training.kl_coef > 0) + 1,
        one_prompt=not updates_per_epoch,
    )


def _sampling_work(
    generations: float,
    distinct: float,
    ticks: float,
    rows: float,
    text: TextLengths,
    limit: int,
) -> Workload:
    """Return the sampling of ``generations`` responses in ``ticks`` calls of ``rows`` rows each (formula ``longest``).

    ``distinct`` prompts are read for each response.
    """
    # The longest of n responses grows with log n, up to the limit; a call takes as many steps.
    longest = min(limit, text.response * (1 + math.log(max(1.0, rows)) / 2))
    return Workload(
        generations=generations,
        ticks=ticks,
        longest=ticks * longest,
        read=generations * distinct * text.prompt,
        drawn=generations * text.response,
        context=text.prompt + text.response,
    )
