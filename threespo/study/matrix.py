"""The run matrix: which runs a study has, in a fixed order."""

from typing import Literal

from threespo.errors import InputError, format_names
from threespo.methods.registry import has_critic, searches
from threespo.paths import Run
from threespo.runs.settings import AuditedPolicy
from threespo.study.config import Study
from threespo.study.parts import MAIN_PART, PARTS, Part


def local_policies(study: Study) -> list[str]:
    """Return the policies whose weights are here: all but closed models."""
    return [name for name, policy in study.policies.items() if policy.kind != "endpoint"]


def _rows(study: Study) -> list[tuple[str, str, str]]:
    """Return (environment, policy, method) of every trained row: where one of the method's parts has rows."""
    return [
        (env, policy, method)
        for env in study.environments
        for policy in local_policies(study)
        for method, entry in study.methods.items()
        if study.covers(entry.parts, env, policy)
    ]


def trained_runs(study: Study) -> list[Run]:
    """Return the runs that are trained, in a fixed order."""
    return [
        Run(env, policy, method, seed) for env, policy, method in _rows(study) for seed in study.seeds
    ]


def trial_runs(study: Study) -> list[Run]:
    """Return the trials of learning rates; none where the study gives the rates."""
    if study.tuning is None:
        return []
    return [
        Run(env, policy, method, seed, rate)
        for env, policy, method in _rows(study)
        for rate in study.tuning.learning_rates
        for seed in study.tuning.seeds
    ]


def tuned_rows(study: Study) -> list[tuple[str, str, str]]:
    """Return (environment, policy, method) of every learning rate that trials decide."""
    return list(dict.fromkeys((run.env, run.policy, run.method) for run in trial_runs(study)))


def trials_of(study: Study, env: str, policy: str, method: str) -> list[Run]:
    """Return the trials of one method on one policy."""
    return [
        run for run in trial_runs(study) if (run.env, run.policy, run.method) == (env, policy, method)
    ]


def base_trials(study: Study) -> list[Run]:
    """Return the untrained policies that trials are compared with, of all rows."""
    rows = dict.fromkeys((env, policy) for env, policy, _ in tuned_rows(study))
    return [run for env, policy in rows for run in base_trials_of(study, env, policy)]


def base_trials_of(study: Study, env: str, policy: str) -> list[Run]:
    """Return the bases of a policy as trials of the rate 0, which play the games of its trials."""
    return [Run(env, policy, "base", number, 0.0) for number in range(study.policies[policy].bases)]


def reference_runs(study: Study) -> list[Run]:
    """Return the untrained rows: every policy's bases, and the strong clone of tiny policies.

    The seed of a base is its number, from 0 (``PolicySettings.bases``); there is one strong clone.
    """
    runs = []
    for env in study.environments:
        for name in local_policies(study):
            if not study.covers(PARTS, env, name):
                continue
            policy = study.policies[name]
            runs += [Run(env, name, "base", number) for number in range(policy.bases)]
            if policy.kind == "tiny":
                runs.append(Run(env, name, "strong", 0))
    return runs


def units_of_seeds(study: Study, env: str, policy: str) -> dict[int, int] | None:
    """Return of each training seed what its runs of all methods share; None if they share nothing that is drawn.

    That is the base, by its number, where there are several, and else the pool of tasks, by the seed.
    """
    settings = study.policies[policy]
    # A base has the pools of its seeds, so seeds of one base are one unit however their pools were drawn.
    if settings.bases > 1:
        return {seed: settings.base_of_seed(seed) for seed in study.seeds}
    if study.at(env).training.pool_by_seed:
        return {seed: seed for seed in study.seeds}
    return None


def prompted_runs(study: Study) -> list[Run]:
    """Return the rows of the prompting agents, which are of the main results.

    The agent's name takes the place of a method's, and nothing is trained.
    """
    return [
        Run(env, policy, name, 0)
        for env in study.environments
        for policy in study.policies
        for name, entry in study.agents.items()
        if entry.policies is None or policy in entry.policies
        if study.covers(MAIN_PART, env, policy)
    ]


def evaluated_runs(study: Study) -> list[Run]:
    """Return all rows of the study's tables: trained, untrained and prompted ones (no trials of learning rates)."""
    return [*trained_runs(study), *reference_runs(study), *prompted_runs(study)]


def runs_of_part(study: Study, part: Part) -> list[Run]:
    """Return the rows of one part of a study: trained ones, the untrained policies beside them, and agents."""
    trained = [run for run in trained_runs(study) if part in study.methods[run.method].parts]
    agents = prompted_runs(study) if part in MAIN_PART else []
    return [
        run
        for run in (*trained, *reference_runs(study), *agents)
        if study.covers((part,), run.env, run.policy)
    ]


def base_policies(study: Study) -> list[tuple[str, str]]:
    """Return (environment, policy) of every base policy that has rows."""
    bases = [run for run in reference_runs(study) if run.method == "base"]
    return list(dict.fromkeys((run.env, run.policy) for run in bases))


def weights_source(study: Study, run: Run) -> Literal["run", "policy", "endpoint"]:
    """Return whose weights a run is evaluated with.

    Returns:
        ``run``: its own; ``policy``: those that its policy's stage made; ``endpoint``: none, a service plays.
    """
    if study.policies[run.policy].kind == "endpoint":
        return "endpoint"
    return "run" if run.method in study.methods else "policy"


def searching_runs(study: Study) -> list[Run]:
    """Return the runs that search, and so leave trees."""
    return [run for run in trained_runs(study) if searches(study.methods[run.method].method)]


def shown_runs(study: Study) -> list[Run]:
    """Return the runs whose trees are shown: in each environment each searching method's first seed, on the first policy."""
    policy = local_policies(study)[0]
    return [run for run in searching_runs(study) if (run.policy, run.seed) == (policy, study.seeds[0])]


def probed_runs(study: Study) -> list[Run]:
    """Return the runs whose state scores are compared with success probabilities (stage ``probe``)."""
    methods = study.probe.methods if study.probe else ()
    seeds = study.seeds[: study.probe.seeds] if study.probe else ()
    return [run for run in trained_runs(study) if run.method in methods and run.seed in seeds]


def audited_methods(study: Study) -> list[str]:
    """Return the entries of ``methods`` whose credit is audited: those that the section names, or all without a critic."""
    if study.credit_audit is None:
        return []
    if study.credit_audit.methods is not None:
        return [name for name in study.methods if name in study.credit_audit.methods]
    return [name for name, entry in study.methods.items() if not has_critic(entry.method)]


def credit_audits(study: Study) -> list[tuple[Run, AuditedPolicy]]:
    """Return the audits of credit (stage ``credit``): the run whose method and seed they have, and whose policy is fixed."""
    section = study.credit_audit
    if section is None:
        return []
    trained = set(trained_runs(study))
    runs = [
        Run(env, policy, method, seed)
        for env, policy in base_policies(study)
        for method in audited_methods(study)
        for seed in study.seeds[: section.seeds]
    ]
    # Under the base nothing needs to be trained.
    return [(run, at) for at in section.at for run in runs if at == "base" or run in trained]


def learning_runs(study: Study) -> list[Run]:
    """Return the runs whose snapshots are evaluated (stage ``learning``), and the bases that their curves begin with.

    In a study with a part ``figures`` they are those of that part, as the paper draws curves of one environment and policy;
    otherwise all.
    """
    apart = any("figures" in entry.parts for entry in study.methods.values())
    runs = runs_of_part(study, "figures") if apart else [*trained_runs(study), *reference_runs(study)]
    return [run for run in runs if run.method != "strong" and study.at(run.env).training.snapshots]


def decision_tree_rows(study: Study) -> list[tuple[str, str]]:
    """Return (family of trees, method) of every row of methods on decision trees."""
    if study.laboratory is None:
        return []
    return [
        (family, method) for family in study.laboratory.families for method in study.laboratory.methods
    ]


def find_run(study: Study, run_id: str) -> Run:
    """Return the run named ``run_id``.

    Raises:
        InputError: if the study has no such run.
    """
    runs = {run.run_id: run for run in (*evaluated_runs(study), *base_trials(study), *trial_runs(study))}
    if run_id not in runs:
        raise InputError(f"study {study.name!r} has no run {run_id!r}; it has: {format_names(runs)}")
    return runs[run_id]
