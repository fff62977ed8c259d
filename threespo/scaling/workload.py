"""How much a run has to do: generations, tokens, optimizer steps, calls of the sampler (docs/scaling.md)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from threespo.methods.registry import full_options, searches
from threespo.paths import Run
from threespo.study.config import MethodSettings, PolicySettings, Study, StudyAt

FULL_WIDTH = 0.7
"""Mean number of samples of an expanded state, as a share of G_max: 0.4 to 0.9 in the runs of `smoke` (docs/LOG.md)."""

LEARNED = 0.25
"""Share of a search's samples that are learned from (groups of equal rewards are not): 0.12 to 0.40 in `smoke`."""

GROUP = 0.9
"""Mean rows of a learned group, as a share of G_max: 0.76 to 1.0 in `smoke`."""

ACTIVE = 0.4
"""Mean share of an epoch's tasks that still search in a tick, where searches follow several paths: 0.3 to 0.5 in `smoke`."""


@dataclass(frozen=True, slots=True)
class TextLengths:
    """What episodes in an environment look like to a policy: means over training."""

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


_TINY = "measured: tiny-s on embedded tasks, between base and strong clone"
_REAL = "prompts computed from 40 real tasks; assumed: responses, no two prompts alike, every episode to its limit"

TEXTS: Mapping[tuple[str, str], TextLengths] = {
    ("alfworld", "tiny"): TextLengths(77, 10.3, 0.78, 0.65, _TINY),
    ("webshop", "tiny"): TextLengths(126, 11.6, 0.36, 0.31, _TINY),
    ("alfworld", "pretrained"): TextLengths(520, 120, 1.0, 1.0, _REAL),
    ("webshop", "pretrained"): TextLengths(560, 120, 1.0, 1.0, _REAL),
}
"""By environment and kind of policy. Real prompts: words and marks of random play (406 and 445 on average) x 1.2, and 30
tokens of the chat template. An agent's own play shows other pages: these are no measurements with the model's tokenizer."""

ELSEWHERE = TextLengths(600, 120, 1.0, 1.0, "assumed")

RELEASED = {"valid_seen": 140, "valid_unseen": 134, "test": 500, "calibration": 200}
"""Games of the splits of released data, where a study takes all."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What a job does. All numbers are totals."""

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

    def times(self, factor: float) -> "Work":
        """Return ``factor`` times as much."""
        names = ("generations", "ticks", "longest", "read", "drawn", "steps", "packed", "scored")
        return replace(self, **{name: factor * getattr(self, name) for name in names})


def text_lengths(
    env: str, policy: PolicySettings, given: tuple[float | None, float | None] = (None, None)
) -> TextLengths:
    """Return the lengths of texts; ``given`` are a user's own mean lengths of prompt and response, in their place."""
    known = TEXTS.get((env, policy.kind), ELSEWHERE)
    prompt, response = given
    response = min(response or known.response, policy.max_response_tokens)
    own = "given" if prompt or given[1] else known.origin
    prompt = min(prompt or known.prompt, policy.max_prompt_tokens)
    return replace(known, prompt=prompt, response=response, origin=own)


def training_work(study: Study, run: Run, text: TextLengths) -> Workload:
    """Return the work of training a run, or a trial of a learning rate (formulas ``episodes`` and ``search``)."""
    here, policy = study.at(run.env), study.policies[run.policy]
    entry, budget = here.methods[run.method], here.training
    generations = float(budget.generations or 0)
    if run.rate is not None and study.tuning:
        generations = float(study.tuning.generations)
    options = full_options(entry.method, entry.options)
    work = _search if searches(entry.method) else _episodes
    return work(here, entry, options, generations, text, policy.max_response_tokens)


def playing_work(episodes: float, max_steps: int, text: TextLengths, limit: int) -> Workload:
    """Return the work of playing whole episodes side by side, of which nothing is learned."""
    return _sampled(
        episodes * text.episode * max_steps, 1.0, max_steps, episodes * text.episode, text, limit
    )


def _episodes(
    here: StudyAt,
    entry: MethodSettings,
    options: Mapping[str, Any],
    generations: float,
    text: TextLengths,
    limit: int,
) -> Workload:
    """Groups of whole episodes: an epoch is one update on all of their steps."""
    training, longest = here.training, here.settings.max_steps
    rows = training.tasks_per_epoch * training.group_size
    if training.epochs and not generations:
        # At most: a policy that wins needs fewer steps.
        epochs, generations = float(training.epochs), float(training.epochs * rows * longest)
    else:
        epochs = generations / (rows * text.episode * longest)

    work = _sampled(
        generations,
        text.distinct,
        epochs * longest,
        generations / max(1.0, epochs * longest),
        text,
        limit,
    )
    minibatch = entry.minibatch or training.minibatch
    return replace(
        work,
        steps=generations / minibatch,
        packed=generations * (text.prompt * text.distinct + text.response),
        scored=generations * text.response,
        passes=3.0 + (training.kl_coef > 0) + (rows * longest > minibatch),
        critic="critic_rate" in options,
    )


def _search(
    here: StudyAt,
    entry: MethodSettings,
    options: Mapping[str, Any],
    generations: float,
    text: TextLengths,
    limit: int,
) -> Workload:
    """Searches of states: a tick expands a state of each task, with an optimizer step for each that is learned from."""
    training, longest = here.training, here.settings.max_steps
    most = options["g_max"] or training.group_size
    width = float(most if options["uniform"] else max(1.0, FULL_WIDTH * most))
    cap = options["max_generations_per_task"] or training.group_size * longest
    wide = min(cap / width, cap)
    # Once its cap is reached, a search finishes the path that it is on with one sample for each state.
    narrow = max(0.0, longest - wide)
    one_path = wide <= longest
    learned = LEARNED
    if training.epochs and not generations:
        tasks = float(training.epochs * training.tasks_per_epoch)
        generations = tasks * (wide * width + narrow)
        # Single samples teach nothing.
        learned = LEARNED * wide * width / (wide * width + narrow)
    else:
        tasks = generations / (wide * width + narrow)

    expansions = tasks * (wide + narrow)
    active = training.tasks_per_epoch * (1.0 if one_path else ACTIVE)
    ticks = expansions / active
    work = _sampled(generations, expansions / generations, ticks, generations / ticks, text, limit)
    rows = generations * learned * options["inner_epochs"]
    group = 1.0 + max(0.0, GROUP * most - 1.0)
    once = options["update_unit"] == "epoch"
    return replace(
        work,
        steps=rows / (training.minibatch if once else group),
        packed=rows * (text.response + text.prompt / group),
        scored=rows * text.response,
        passes=3.0 + (training.kl_coef > 0) + 1,
        one_prompt=not once,
    )


def _sampled(
    generations: float, distinct: float, ticks: float, rows: float, text: TextLengths, limit: int
) -> Workload:
    """Return the sampling of ``generations`` responses in ``ticks`` calls of ``rows`` rows each (formula ``longest``).

    ``distinct`` prompts are read for a response. The longest of n responses grows with the logarithm of n, up to the limit.
    """
    longest = min(limit, text.response * (1 + math.log(max(1.0, rows)) / 2))
    return Workload(
        generations=generations,
        ticks=ticks,
        longest=ticks * longest,
        read=generations * distinct * text.prompt,
        drawn=generations * text.response,
        context=text.prompt + text.response,
    )
