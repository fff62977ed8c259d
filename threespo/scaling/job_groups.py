"""The cells of a study as a plan sees them: what of the study decides a run's memory and speed, gathered in one place."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from threespo.learner.optim import CHECKPOINT_BYTES
from threespo.methods.registry import full_options, searches
from threespo.paths import Run
from threespo.policy.settings import MAX_BATCH_ROWS, default_kv_cache_bytes
from threespo.scaling.memory import MemorySettings
from threespo.scaling.shapes import ModelShape, shape_of
from threespo.scaling.workload import (
    RELEASED,
    TextLengths,
    Workload,
    playing_work,
    text_lengths,
    training_work,
)
from threespo.study.config import PolicySettings, Study
from threespo.study.matrix import (
    decision_tree_rows,
    learning_runs,
    local_policies,
    probed_runs,
    prompted_runs,
    reference_runs,
    trained_runs,
    trial_runs,
)

LABORATORY_SECONDS = 75.0
"""Processor seconds of a hundred seeds on decision trees: 75 to 160 for six rows, measured with the other core busy."""

BUILD_SECONDS = 2700.0
"""Of a tiny base policy that is not shipped: 24 to 68 minutes, measured."""


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
    """What decides a rank's memory while it learns; ``None`` where nothing is learned."""
    sampler: str = "torch"
    kept: float = 0.0
    """Bytes that a run leaves on disk."""
    checkpoint: float = 0.0
    """Bytes of one checkpoint."""
    fixed_seconds: float = 0.0
    """Of processor time that no model takes."""


def memory_settings(study: Study, run: Run, text: TextLengths) -> MemorySettings:
    """Return what of a study decides the memory of a rank of this run."""
    here, policy = study.at(run.env), study.policies[run.policy]
    common, entry = policy.scaled(here.training), here.methods[run.method]
    micro = common.micro_batch_tokens
    # Rows of searches share their prompts, so more of a full pack are responses.
    group = common.group_size if searches(entry.method) else 1
    row = text.response + text.prompt / group
    sampling = policy.sampling(study.gpus_per_rank)
    colocated = sampling.sampler == "vllm"
    shape = shape_of(policy, run.env)
    rows = common.tasks_per_epoch * common.group_size
    longest = text.prompt + policy.max_response_tokens
    token = shape.cache_bytes(4 if policy.dtype == "float32" else 2)
    own_cache = sampling.vllm.kv_cache_memory_bytes or default_kv_cache_bytes(token, longest)
    return MemorySettings(
        ranks=study.ranks(run.policy),
        zero_stage=common.zero_stage or 0,
        wide=policy.dtype == "float32",
        micro_batch_tokens=micro,
        scored=int(micro * text.response / row),
        checkpointing=common.gradient_checkpointing,
        offload=common.offload_optimizer,
        reference=common.kl_coef > 0,
        critic="critic_rate" in full_options(entry.method, entry.options),
        entropy=common.entropy_coef > 0,
        colocated=colocated,
        cache=own_cache if colocated else min(MAX_BATCH_ROWS, rows) * longest * token,
    )


def group_jobs(study: Study, given: tuple[float | None, float | None] = (None, None)) -> list[JobGroup]:
    """Return all jobs of a study that take time, those that cost the same as one cell, in the order in which they run.

    Args:
        study: the study.
        given: a user's own mean tokens of prompts and of responses, in the place of the known ones.
    """
    texts = {
        (env, name): text_lengths(env, study.policies[name], given)
        for env in study.environments
        for name in study.policies
    }
    every = (_built(study), _trained(study, texts), _played(study, texts), _laboratory(study))
    return [cell for some in every for cell in some]


def _merged(found: Iterator[JobGroup]) -> list[JobGroup]:
    """Return cells with those of equal name and work added up."""
    merged: dict[JobGroup, int] = {}
    for cell in found:
        alone = replace(cell, runs=0)
        merged[alone] = merged.get(alone, 0) + cell.runs
    return [replace(cell, runs=runs) for cell, runs in merged.items()]


def _built(study: Study) -> list[JobGroup]:
    shipped = Path(__file__).parents[1] / "imitation"
    return [
        JobGroup(
            "policy",
            f"{env}/{name}",
            env,
            name,
            1,
            1,
            None,
            Workload(),
            None,
            fixed_seconds=BUILD_SECONDS,
        )
        for env in study.environments
        for name, policy in study.policies.items()
        if policy.kind == "tiny"
        and (
            study.policy_build
            or not any((shipped / env / "shipped").glob(f"*-{policy.size}{_ending(policy)}"))
        )
    ]


def _ending(policy: PolicySettings) -> str:
    return "-early" if policy.weakness == "early" else ""


def _trained(study: Study, texts: dict[tuple[str, str], TextLengths]) -> list[JobGroup]:
    def one(run: Run) -> JobGroup:
        text, policy = texts[run.env, run.policy], study.policies[run.policy]
        shape = shape_of(policy, run.env)
        settings = memory_settings(study, run, text)
        copy = shape.parameters * settings.size
        snapshots = study.at(run.env).training.snapshots if run.rate is None else 0
        # The last snapshot is the run's own weights.
        kept = copy * max(1, snapshots) + 3e6
        state = (
            shape.parameters
            * CHECKPOINT_BYTES[policy.dtype, settings.stage]
            * (2 if settings.critic else 1)
        )
        stage = "train" if run.rate is None else "trial"
        name = f"{run.env}/{run.policy}/{run.method}"
        return JobGroup(
            stage, name, run.env, run.policy, 1, settings.ranks, shape, training_work(study, run, text), settings,
            policy.sampling(study.gpus_per_rank).sampler, kept, state,
        )  # fmt: skip

    return _merged(one(run) for run in (*trial_runs(study), *trained_runs(study)))


def _played(study: Study, texts: dict[tuple[str, str], TextLengths]) -> list[JobGroup]:
    """Return what plays without learning: evaluations, trials' too, curves, probes, prompting agents."""

    def one(stage: str, run: Run, episodes: float, steps: float | None = None) -> JobGroup:
        policy = study.policies[run.policy]
        longest, limit = study.environments[run.env].max_steps, policy.max_response_tokens
        work = playing_work(episodes, int(steps or longest), texts[run.env, run.policy], limit)
        shape = shape_of(policy, run.env)
        sampler = policy.sampling(study.gpus_per_rank).sampler
        return JobGroup(
            stage, f"{run.env}/{run.policy}", run.env, run.policy, 1, 1, shape, work, None, sampler
        )

    def found() -> Iterator[JobGroup]:
        local = local_policies(study)
        for run in trial_runs(study):
            yield one("evaluate", run, count_games(study, run.env, "calibration"))
        for run in (*trained_runs(study), *reference_runs(study), *prompted_runs(study)):
            judged = study.at(run.env).evaluation
            episodes = len(judged.seeds) * sum(
                count_games(study, run.env, split) for split in judged.splits
            )
            agent = study.agents.get(run.method)
            # At most: who wins is not asked again.
            trials = agent.trials if agent and agent.agent in ("retry", "reflexion") else 1
            if run.policy in local:
                yield one("agent" if agent else "evaluate", run, episodes * trials)
        for run in learning_runs(study):
            curves = study.at(run.env).evaluation.learning
            count = min(curves.games or 32, count_games(study, run.env, str(curves.split)))
            snapshots = study.at(run.env).training.snapshots if run.method in study.methods else 1
            yield one("learning", run, snapshots * len(curves.seeds) * count)
        for run in probed_runs(study):
            probe = study.probe
            assert probe is not None
            # Continuations begin half way on average.
            yield one(
                "probe", run, probe.snapshots * (probe.games + probe.states * probe.continuations / 2)
            )

    return _merged(found())


def count_games(study: Study, env: str, split: str) -> int:
    """Return how many tasks a split has: the study's number, or that of the released data."""
    known = study.environments[env].tasks_in(split)
    return known[1] if known else RELEASED.get(split, 200)


def _laboratory(study: Study) -> list[JobGroup]:
    rows, section = len(decision_tree_rows(study)), study.laboratory
    if section is None:
        return []
    # A row tries each rate on the tuning seeds, then runs all seeds.
    seeds = (section.seeds + section.tuning_seeds * len(section.learning_rates)) / 140
    seconds = LABORATORY_SECONDS * seeds
    return [
        JobGroup(
            "laboratory",
            "decision trees",
            "",
            "",
            rows,
            1,
            None,
            Workload(),
            None,
            fixed_seconds=seconds,
        )
    ]
