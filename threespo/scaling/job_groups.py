"""Groups of a study's jobs that cost the same, with the settings of the study that decide their memory and speed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from threespo.imitation.measure import MEASURED_TEMPERATURES
from threespo.imitation.settings import MICRO_BATCH_TOKENS
from threespo.learner.optim import CHECKPOINT_BYTES
from threespo.methods.registry import full_options, searches
from threespo.paths import Run
from threespo.policy.settings import MAX_BATCH_ROWS, default_kv_cache_bytes
from threespo.runs.settings import DEFAULT_CURVE_GAMES
from threespo.scaling.memory import MemorySettings
from threespo.scaling.shapes import ModelShape, shape_of
from threespo.scaling.workload import (
    NOTHING_GIVEN,
    RELEASED_GAMES,
    GivenLengths,
    TextLengths,
    Workload,
    playing_work,
    text_lengths,
    training_work,
)
from threespo.study.config import PolicySettings, Study
from threespo.study.matrix import (
    base_trials,
    credit_audits,
    decision_tree_rows,
    learning_runs,
    local_policies,
    probed_runs,
    prompted_runs,
    reference_runs,
    trained_runs,
    trial_runs,
)

Texts = dict[tuple[str, str], TextLengths]
"""By environment and policy."""

LABORATORY_SECONDS = 75.0
"""Processor seconds of a row's seeds on decision trees: 75 to 160 for six rows, measured with the other core busy."""

LABORATORY_SEEDS = 140
"""Seeds of a row in that measurement: a hundred of its results, and those of tuning."""

BUILD_SECONDS = 2700.0
"""To train a tiny base policy that is not shipped: 24 to 68 minutes, measured."""

METADATA_BYTES = 3e6
"""About the size of a run's tables and search trees."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs of one stage that cost the same."""

    stage: str
    name: str
    env: str
    policy: str
    runs: int
    ranks: int
    shape: ModelShape | None
    """``None`` where no model is computed."""
    work: Workload
    """Of one run."""
    settings: MemorySettings | None
    """``None`` where nothing is learned."""
    sampler: str = "torch"
    kept: float = 0.0
    """Bytes that a run leaves on disk."""
    checkpoint: float = 0.0
    """Bytes of one checkpoint."""
    fixed_seconds: float = 0.0
    """Processor seconds of a job without a model."""


def memory_settings(study: Study, run: Run, text: TextLengths) -> MemorySettings:
    """Return the settings that decide the memory of a rank of this run."""
    study_at = study.at(run.env)
    policy = study.policies[run.policy]
    training = policy.scaled(study_at.training)
    entry = study_at.methods[run.method]

    # Siblings of a search share a prompt, so a larger part of a full pack are responses.
    rows_of_prompt = training.group_size if searches(entry.method) else 1
    packed_row = text.response + text.prompt / rows_of_prompt
    scored = int(training.micro_batch_tokens * text.response / packed_row)

    sampling = policy.sampling(study.gpus_per_rank)
    colocated = sampling.sampler == "vllm"
    longest_row = text.prompt + policy.max_response_tokens
    bytes_of_number = 4 if policy.dtype == "float32" else 2
    cached_token = shape_of(policy, run.env).cache_bytes(bytes_of_number)
    if colocated:
        cache = sampling.vllm.kv_cache_memory_bytes or default_kv_cache_bytes(cached_token, longest_row)
    else:
        # torch's sampler caches the rows that it draws at once.
        rows = min(MAX_BATCH_ROWS, training.tasks_per_epoch * training.group_size)
        cache = rows * longest_row * cached_token
    return MemorySettings(
        ranks=study.ranks(run.policy),
        zero_stage=training.zero_stage or 0,
        wide=policy.dtype == "float32",
        micro_batch_tokens=training.micro_batch_tokens,
        scored=scored,
        checkpointing=training.gradient_checkpointing,
        offload=training.offload_optimizer,
        reference=training.kl_coef > 0,
        critic="critic_rate" in full_options(entry.method, entry.options),
        entropy=training.entropy_coef > 0,
        colocated=colocated,
        cache=cache,
    )


def group_jobs(study: Study, given: GivenLengths = NOTHING_GIVEN) -> list[JobGroup]:
    """Return all jobs of a study that take time, those that cost the same as one group, in the order in which they run."""
    texts = {
        (env, name): text_lengths(env, study.policies[name], given)
        for env in study.environments
        for name in study.policies
    }
    return [
        *_policy_builds(study, texts),
        *_trainings(study, texts),
        *_evaluations(study, texts),
        *_laboratory(study),
    ]


def _merge_equal(groups: Iterable[JobGroup]) -> list[JobGroup]:
    """Return the groups, each one once, with the sum of its runs."""
    # Seeds of one method cost the same, so a study of hundreds of runs has a few dozen groups.
    runs_of_group: dict[JobGroup, int] = {}
    for group in groups:
        without_runs = replace(group, runs=0)
        runs_of_group[without_runs] = runs_of_group.get(without_runs, 0) + group.runs
    return [replace(group, runs=runs) for group, runs in runs_of_group.items()]


def _policy_builds(study: Study, texts: Texts) -> Iterator[JobGroup]:
    for env in study.environments:
        for name, policy in study.policies.items():
            if policy.warm_start is not None:
                yield _warm_start(study, env, name, texts[env, name])
            if policy.kind == "tiny" and (study.policy_build or not _is_shipped(env, policy)):
                yield JobGroup(
                    stage="policy",
                    name=f"{env}/{name}",
                    env=env,
                    policy=name,
                    runs=1,
                    ranks=1,
                    shape=None,
                    work=Workload(),
                    settings=None,
                    fixed_seconds=BUILD_SECONDS,
                )


def _warm_start(study: Study, env: str, name: str, text: TextLengths) -> JobGroup:
    """Return the job that clones a pretrained policy's bases, one after another, and measures them."""
    policy = study.policies[name]
    warm = policy.warm_start
    assert warm is not None
    shape = shape_of(policy, env)
    max_steps = int(study.environments[env].max_steps)
    episodes = policy.bases * warm.games * len(MEASURED_TEMPERATURES)
    played = playing_work(episodes, max_steps, text, policy.max_response_tokens)
    examples = policy.bases * warm.examples
    work = replace(
        played,
        steps=examples / warm.batch,
        packed=examples * (text.prompt + text.response),
        scored=examples * text.response,
        # Forward and backward.
        passes=3.0,
    )
    number_bytes = 4 if policy.dtype == "float32" else 2
    settings = MemorySettings(
        ranks=1,
        zero_stage=0,
        # Float32 weights, whatever products are in.
        wide=True,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        scored=int(MICRO_BATCH_TOKENS * text.response / (text.prompt + text.response)),
        checkpointing=False,
        offload=False,
        reference=False,
        critic=False,
        entropy=False,
        colocated=False,
        cache=0.0,
    )
    return JobGroup(
        stage="policy",
        name=f"{env}/{name}",
        env=env,
        policy=name,
        runs=1,
        ranks=1,
        shape=shape,
        work=work,
        settings=settings,
        kept=policy.bases * shape.parameters * number_bytes,
        checkpoint=shape.parameters * CHECKPOINT_BYTES["float32", 0],
    )


def _is_shipped(env: str, policy: PolicySettings) -> bool:
    # An early clone, a weaker start for studies, is shipped under a name of its own.
    ending = "-early" if policy.weakness == "early" else ""
    shipped = Path(__file__).parents[1] / "imitation" / env / "shipped"
    return any(shipped.glob(f"*-{policy.size}{ending}"))


def _trainings(study: Study, texts: Texts) -> list[JobGroup]:
    """Return trials of learning rates and trainings."""
    runs = (*trial_runs(study), *trained_runs(study))
    return _merge_equal(_training_group(study, run, texts[run.env, run.policy]) for run in runs)


def _training_group(study: Study, run: Run, text: TextLengths) -> JobGroup:
    policy = study.policies[run.policy]
    shape = shape_of(policy, run.env)
    settings = memory_settings(study, run, text)
    # A trial is a run with a rate of the grid; other runs have the chosen one.
    is_trial = run.rate is not None

    # The last snapshot is the run's own weights, which trials leave as well.
    snapshots = 0 if is_trial else study.at(run.env).training.snapshots
    weights = shape.parameters * settings.size
    checkpoint = shape.parameters * CHECKPOINT_BYTES[policy.dtype, settings.stage]
    # A critic of the policy's size has its own optimizer state.
    if settings.critic:
        checkpoint *= 2
    return JobGroup(
        stage="trial" if is_trial else "train",
        name=f"{run.env}/{run.policy}/{run.method}",
        env=run.env,
        policy=run.policy,
        runs=1,
        ranks=settings.ranks,
        shape=shape,
        work=training_work(study, run, text),
        settings=settings,
        sampler=policy.sampling(study.gpus_per_rank).sampler,
        kept=weights * max(1, snapshots) + METADATA_BYTES,
        checkpoint=checkpoint,
    )


def _evaluations(study: Study, texts: Texts) -> list[JobGroup]:
    """Return the jobs that play without learning: evaluations, also of trials, prompting agents, curves, probes, audits."""
    groups: list[JobGroup] = []

    def add(stage: str, run: Run, episodes: float) -> None:
        groups.append(_playing_group(study, stage, run, episodes, texts[run.env, run.policy]))

    for run in (*base_trials(study), *trial_runs(study)):
        splits = study.trial_splits(run.env)
        add("evaluate", run, sum(count_games(study, run.env, split) for split in splits))

    # Closed models compute elsewhere and take no time of this machine.
    local = local_policies(study)
    for run in (*trained_runs(study), *reference_runs(study), *prompted_runs(study)):
        if run.policy not in local:
            continue
        evaluation = study.at(run.env).evaluation
        games = sum(count_games(study, run.env, split) for split in evaluation.splits)
        agent = study.agents.get(run.method)
        # At most: a game that is won is not tried again.
        trials = agent.trials if agent and agent.agent in ("retry", "reflexion") else 1
        add("agent" if agent else "evaluate", run, len(evaluation.seeds) * games * trials)

    for run in learning_runs(study):
        curves = study.at(run.env).evaluation.learning
        games = min(curves.games or DEFAULT_CURVE_GAMES, count_games(study, run.env, str(curves.split)))
        snapshots = study.at(run.env).training.snapshots if run.method in study.methods else 1
        add("learning", run, snapshots * len(curves.seeds) * games)

    for run in probed_runs(study):
        probe = study.probe
        assert probe is not None
        # Continuations begin half way on average.
        add("probe", run, probe.snapshots * (probe.games + probe.states * probe.continuations / 2))

    for run, _ in credit_audits(study):
        audit = study.credit_audit
        assert audit is not None
        passes = audit.passes if searches(study.methods[run.method].method) else 1
        played = audit.tasks * study.at(run.env).training.group_size
        # From the state after each response and from that before it, each half way on average.
        add("credit", run, passes * (played + audit.rows * audit.continuations))
    return _merge_equal(groups)


def _playing_group(study: Study, stage: str, run: Run, episodes: float, text: TextLengths) -> JobGroup:
    policy = study.policies[run.policy]
    max_steps = int(study.environments[run.env].max_steps)
    return JobGroup(
        stage=stage,
        name=f"{run.env}/{run.policy}",
        env=run.env,
        policy=run.policy,
        runs=1,
        ranks=1,
        shape=shape_of(policy, run.env),
        work=playing_work(episodes, max_steps, text, policy.max_response_tokens),
        settings=None,
        sampler=policy.sampling(study.gpus_per_rank).sampler,
    )


def count_games(study: Study, env: str, split: str) -> int:
    """Return how many tasks a split has: the study's number, or that of the released data."""
    # Released data are counted here by their published numbers, since they need not have been fetched.
    known = study.environments[env].tasks_in(split)
    return known[1] if known else RELEASED_GAMES.get(split, 200)


def _laboratory(study: Study) -> Iterator[JobGroup]:
    section = study.laboratory
    if section is None:
        return
    # A row tries each rate on the tuning seeds, then runs all seeds.
    seeds = section.seeds + section.tuning_seeds * len(section.learning_rates)
    yield JobGroup(
        stage="laboratory",
        name="decision trees",
        env="",
        policy="",
        runs=len(decision_tree_rows(study)),
        ranks=1,
        shape=None,
        work=Workload(),
        settings=None,
        fixed_seconds=LABORATORY_SECONDS * (seeds / LABORATORY_SEEDS),
    )
