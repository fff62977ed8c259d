"""The run matrix and the only place that knows where a study's files lie.

``results/STUDY/`` holds, per study: ``study.json``, ``data/ENV/``, ``policy/ENV/POLICY/{base,strong}/``,
``runs/ENV/POLICY/METHOD/{seed-N,rate-R}/``, ``tuning/``, ``tables/``, ``notebooks/``, ``figures/`` and ``report.html``.
Checkpoints of unfinished runs lie in ``checkpoints/``, outside the workflow's outputs.
"""

from dataclasses import dataclass
from pathlib import Path

from threespo.errors import InputError
from threespo.study.config import Study

REFERENCE_METHODS = ("base", "strong")
"""Untrained rows of every table: the weak base that training starts from, and the strong clone that is its ceiling."""


@dataclass(frozen=True, slots=True)
class Run:
    """One cell of the matrix, or a trial of a learning rate."""

    env: str
    policy: str
    method: str
    seed: int
    rate: float | None = None
    """The learning rate that a trial tries; ``None`` for a cell of the matrix."""

    @property
    def run_id(self) -> str:
        """ENV/POLICY/METHOD/seed-N, of a trial ENV/POLICY/METHOD/rate-R."""
        which = f"seed-{self.seed}" if self.rate is None else f"rate-{self.rate:g}"
        return f"{self.env}/{self.policy}/{self.method}/{which}"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the files of one study lie, below ``root`` (usually ``results/STUDY``)."""

    root: Path

    @property
    def study(self) -> Path:
        return self.root / "study.json"

    def data(self, env: str) -> Path:
        return self.root / "data" / env

    def policy(self, env: str, policy: str) -> Path:
        """Folder with ``base/``, ``strong/`` (tiny policies only) and ``policy.json``."""
        return self.root / "policy" / env / policy

    def run(self, run: Run) -> Path:
        """Folder with ``{metrics,timing,task_types,trees,evaluation,probe}.parquet``, ``weights/`` and ``snapshots/``."""
        return self.root / "runs" / run.run_id

    def cassette(self, run: Run) -> Path:
        """The recorded replies of a closed model; a compressed one (``.xz``) is taken where there is no other."""
        path = self.root / "cassettes" / run.env / run.policy / f"{run.method}.jsonl"
        packed = path.with_name(path.name + ".xz")
        return packed if packed.is_file() and not path.is_file() else path

    def snapshots(self, run: Run) -> Path:
        """Folder with a folder ``NN/{weights,memory.json}`` for every snapshot of a run that is probed."""
        return self.run(run) / "snapshots"

    def checkpoints(self, run: Run) -> Path:
        return self.root / "checkpoints" / run.run_id

    def laboratory(self, family: str, method: str) -> Path:
        """File with one row of the laboratory."""
        return self.root / "laboratory" / family / f"{method}.parquet"

    def choice(self, env: str, policy: str, method: str) -> Path:
        """File with the learning rate that was chosen."""
        return self.root / "tuning" / env / policy / f"{method}.json"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    @property
    def notebooks(self) -> Path:
        return self.root / "notebooks"

    @property
    def report(self) -> Path:
        return self.root / "report.html"


def environments(study: Study) -> list[str]:
    """Return the environments of the study."""
    return list(study.environments)


def local_policies(study: Study) -> list[str]:
    """Return the policies whose weights are here: all but closed models."""
    return [name for name, policy in study.policies.items() if policy.kind != "endpoint"]


def trained_runs(study: Study) -> list[Run]:
    """Return the runs that are trained, in a fixed order."""
    return [
        Run(env, policy, method, seed)
        for env in environments(study)
        for policy in local_policies(study)
        for method in study.methods
        for seed in study.seeds
    ]


def trial_runs(study: Study) -> list[Run]:
    """Return the trials of learning rates; none where the study gives the rates."""
    if study.tuning is None:
        return []
    return [
        Run(env, policy, method, study.tuning.seed, rate)
        for env in environments(study)
        for policy in local_policies(study)
        for method in study.methods
        for rate in study.tuning.learning_rates
    ]


def choices(study: Study) -> list[tuple[str, str, str]]:
    """Return (environment, policy, method) of every learning rate that trials decide."""
    return list(dict.fromkeys((run.env, run.policy, run.method) for run in trial_runs(study)))


def trials_of(study: Study, env: str, policy: str, method: str) -> list[Run]:
    """Return the trials of one method on one policy."""
    return [run for run in trial_runs(study) if (run.env, run.policy, run.method) == (env, policy, method)]


def reference_runs(study: Study) -> list[Run]:
    """Return the untrained rows: every policy's base, and the strong clone of tiny policies."""
    return [
        Run(env, name, method, 0)
        for env in environments(study)
        for name in local_policies(study)
        for method in REFERENCE_METHODS
        if method == "base" or study.policies[name].kind == "tiny"
    ]


def prompted_runs(study: Study) -> list[Run]:
    """Return the rows of the prompting agents; an agent stands in the place of a method, and nothing is trained."""
    return [
        Run(env, policy, name, 0)
        for env in environments(study)
        for policy in study.policies
        for name, entry in study.agents.items()
        if entry.policies is None or policy in entry.policies
    ]


def evaluated_runs(study: Study) -> list[Run]:
    """Return all rows of the study's tables: trained, untrained and prompted ones (no trials of learning rates)."""
    return [*trained_runs(study), *reference_runs(study), *prompted_runs(study)]


def plays_weights_of(study: Study, run: Run) -> str:
    """Return whose weights a run is evaluated with: its own (``run``), those of its policy's stage (``policy``), or none
    here (``endpoint``)."""
    if study.policies[run.policy].kind == "endpoint":
        return "endpoint"
    return "run" if run.method in study.methods else "policy"


def searching_runs(study: Study) -> list[Run]:
    """Return the runs that search, and so leave trees."""
    return [run for run in trained_runs(study) if study.methods[run.method].method == "threespo"]


def shown_runs(study: Study) -> list[Run]:
    """Return the runs whose trees are shown: in each environment each searching method's first seed, on the first policy."""
    policy = local_policies(study)[0]
    return [run for run in searching_runs(study) if (run.policy, run.seed) == (policy, study.seeds[0])]


def probed_runs(study: Study) -> list[Run]:
    """Return the runs whose state scores are set beside true success probabilities."""
    methods = study.probe.methods if study.probe else ()
    return [run for run in trained_runs(study) if run.method in methods and run.seed == study.seeds[0]]


def snapshots_of(study: Study, run: Run) -> int:
    """Return how many snapshots a run leaves."""
    return study.probe.snapshots if study.probe and run in probed_runs(study) else 0


def gpus_of(study: Study, run: Run) -> int:
    """Return the GPUs that a run needs; a closed model computes elsewhere."""
    return 0 if plays_weights_of(study, run) == "endpoint" else study.gpus_per_run


def laboratory_rows(study: Study) -> list[tuple[str, str]]:
    """Return (family of trees, method) of every row of the laboratory."""
    if study.laboratory is None:
        return []
    return [(family, method) for family in study.laboratory.families for method in study.laboratory.methods]


def find_run(study: Study, run_id: str) -> Run:
    """Return the run named ``run_id``.

    Raises:
        InputError: if the study has no such run.
    """
    runs = {run.run_id: run for run in (*evaluated_runs(study), *trial_runs(study))}
    if run_id not in runs:
        raise InputError(f"study {study.name!r} has no run {run_id!r}; it has: {', '.join(runs)}")
    return runs[run_id]
