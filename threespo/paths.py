"""Where the files of a study lie: every path of a result is spelled here and nowhere else.

``results/STUDY/`` holds ``study.json``, ``data/ENV/``, ``policy/ENV/POLICY/{base,strong}/``,
``runs/ENV/POLICY/METHOD/{seed-N,rate-R-seed-N}/``, ``credit/``, ``tuning/``, ``laboratory/``, ``tables/``, ``notebooks/``,
``figures/``, ``report.html``, and the records of what each job was made of in ``stages/``. Checkpoints of unfinished runs
lie in ``checkpoints/``, outside the workflow's outputs.

The classes here are in the key of every job, each as a whole: any change of one makes all jobs run again
(docs/architecture.md, "What an edit triggers").
"""

from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
"""In a data folder: counts and checksums of its tasks."""

POLICY_FILE = "policy.json"
"""In a policy's folder: what the policy is and what was measured of it."""

PAPER_FOLDER = Path("config") / "paper"
"""The paper's numbers and claims, in the repository."""

ROW_LOOKS = PAPER_FOLDER / "rows.yaml"
"""Labels and colours of rows, where a study does not give them."""

PUBLISHED_MINI = Path("config") / "published" / "mini.csv"
"""Our own published results of the study ``mini``, in the repository."""

NOTEBOOKS_FOLDER = Path("notebooks")
"""The notebooks' sources, in the repository."""


REFERENCE_METHODS = ("base", "strong")
"""Rows of every table that no run trains: the weak base that training starts from, and the strong clone, its ceiling."""


def base_folder(number: int) -> str:
    """Return the name of the folder of a policy's base with this number, from 0."""
    return f"base-{number}" if number else "base"


@dataclass(frozen=True, slots=True)
class JobId:
    """A job of the workflow: a stage and a name, for example ``train`` and ``alfworld/tiny-s/grpo/seed-0``."""

    stage: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.stage} {self.name}".strip()


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
        """ENV/POLICY/METHOD/seed-N, of a trial ENV/POLICY/METHOD/rate-R-seed-N."""
        which = f"seed-{self.seed}" if self.rate is None else f"rate-{self.rate:g}-seed-{self.seed}"
        return f"{self.env}/{self.policy}/{self.method}/{which}"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run."""

    folder: Path

    @property
    def weights(self) -> Path:
        """The trained policy, a Hugging Face folder."""
        return self.folder / "weights"

    @property
    def snapshots(self) -> Path:
        """Folder with a folder ``NN`` for every snapshot (``threespo.runs.snapshots``)."""
        return self.folder / "snapshots"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.parquet"

    @property
    def timing(self) -> Path:
        return self.folder / "timing.parquet"

    @property
    def task_types(self) -> Path:
        return self.folder / "task_types.parquet"

    @property
    def trees(self) -> Path:
        """The recorded search trees (``threespo.methods.tree_table``)."""
        return self.folder / "trees.parquet"

    @property
    def evaluation(self) -> Path:
        """One row per evaluated episode."""
        return self.folder / "evaluation.parquet"

    @property
    def evaluation_timing(self) -> Path:
        return self.folder / "evaluation_timing.parquet"

    @property
    def evaluation_example(self) -> Path:
        """One of the evaluated episodes, step by step."""
        return self.folder / "evaluation_example.parquet"

    @property
    def learning(self) -> Path:
        """One row per episode of every snapshot's evaluation."""
        return self.folder / "learning.parquet"

    @property
    def probe(self) -> Path:
        return self.folder / "probe.parquet"


@dataclass(frozen=True, slots=True)
class CreditFolder:
    """The files of one credit audit."""

    folder: Path

    @property
    def passes(self) -> Path:
        """One row per pass over the tasks."""
        return self.folder / "passes.parquet"

    @property
    def rows(self) -> Path:
        """One row per response whose action was valued."""
        return self.folder / "rows.parquet"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the files of one study lie, below ``root`` (usually ``results/STUDY``).

    Every name may be a pattern such as ``{env}``: the workflow's rules use these paths too.
    """

    root: Path

    @property
    def study(self) -> Path:
        return self.root / "study.json"

    @property
    def call(self) -> Path:
        """What the workflow was asked for when it last ran."""
        return self.root / "call.json"

    def data(self, env: str) -> Path:
        return self.root / "data" / env

    def policy(self, env: str, policy: str) -> Path:
        """Folder with ``base/``, further bases (``base-1/`` …), ``strong/`` (tiny policies only) and ``policy.json``."""
        return self.root / "policy" / env / policy

    def run(self, run: Run | str) -> RunFolder:
        """Return the files of a run, or of the run with this id."""
        return RunFolder(self.root / "runs" / _id(run))

    def checkpoints(self, run: Run | str) -> Path:
        """Folder with the last checkpoints of a run that is not finished; the run removes it when it ends.

        It is no output of the workflow, since Snakemake removes the outputs of a job that has failed.
        """
        return self.root / "checkpoints" / _id(run)

    def warm_start(self, env: str, policy: str) -> Path:
        """Folder of the unfinished warm start of a policy."""
        return self.root / "checkpoints" / env / policy / "warm-start"

    @property
    def cassettes(self) -> Path:
        return self.root / "cassettes"

    def cassette(self, run: Run) -> Path:
        """The recorded replies of a closed model; a compressed one (``.xz``) is taken where there is no other."""
        path = self.cassettes / run.env / run.policy / f"{run.method}.jsonl"
        packed = path.with_name(path.name + ".xz")
        return packed if packed.is_file() and not path.is_file() else path

    def profile(self, run: Run) -> Path:
        return self.root / "profiles" / f"{run.run_id}.txt"

    def choice(self, env: str, policy: str, method: str) -> Path:
        """File with the learning rate that was chosen."""
        return self.root / "tuning" / env / policy / f"{method}.json"

    def decision_trees(self, family: str, method: str) -> Path:
        """File with one row of the study's section ``laboratory``."""
        return self.root / "laboratory" / family / f"{method}.parquet"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    def table(self, name: str) -> Path:
        return self.tables / f"{name}.parquet"

    def paper_table(self, name: str, kind: str) -> Path:
        """A table in the paper's layout, as a file for a paper."""
        return self.tables / f"{name}.{kind}"

    @property
    def dvc_metrics(self) -> Path:
        """Success by method, for ``dvc metrics diff``."""
        return self.tables / "metrics.json"

    @property
    def dvc_curves(self) -> Path:
        """Learning curves, for ``dvc plots diff``."""
        return self.tables / "learning_curves.csv"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    def figure(self, name: str, kind: str) -> Path:
        return self.figures / f"{name}.{kind}"

    def notebook(self, name: str) -> Path:
        """An executed notebook."""
        return self.root / "notebooks" / f"{name}.ipynb"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    def log(self, stage: str, name: str) -> Path:
        return self.root / "logs" / stage / f"{name or 'all'}.log"

    def record(self, stage: str, name: str) -> Path:
        """What a job was made of when it last ended, and what it has written."""
        return self.root / "stages" / stage / f"{name or 'all'}.json"

    @property
    def digests(self) -> Path:
        """Digests of files by their state, so that unchanged ones need not be read again; a memory of this machine."""
        return self.root / ".digests.json"

    @property
    def journal(self) -> Path:
        """When jobs began and how they ended since the workflow was last called (``threespo.pipeline.journal``)."""
        return self.root / ".journal.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the workflow that works on the study."""
        return self.root / ".workflow.lock"

    @property
    def jobs_lock(self) -> Path:
        """Shared by the commands that work on the study."""
        return self.root / ".jobs.lock"


def parse_run_folder(folder: Path) -> tuple[Paths, str]:
    """Return the study's paths and the run's id of a run's folder RESULTS/runs/ENV/POLICY/METHOD/seed-N.

    Raises:
        ValueError: if the folder does not lie like that.
    """
    # Not ``resolve``: results may be reached through a link.
    parts = folder.absolute().parts
    if len(parts) < 6 or parts[-5] != "runs":
        raise ValueError(folder)
    return Paths(Path(*parts[:-5])), "/".join(parts[-4:])


# New paths are functions: as methods of the classes above they would make all jobs of all studies run again.


def trials_file(paths: Paths, env: str, policy: str, method: str) -> Path:
    """Return the file with what a learning rate was chosen from; apart from the choice, since runs depend on that alone."""
    return paths.choice(env, policy, method).with_suffix(".trials.json")


def made_by_file(folder: RunFolder) -> Path:
    """Return the file that says by what a trial beyond the grid was made, which has no record of a job."""
    return folder.folder / "made_by.json"


def credit_folder(paths: Paths, run: Run | str, at: str) -> CreditFolder:
    """Return the files of the credit audit of a run's method, under the run's base or final policy."""
    return CreditFolder(paths.root / "credit" / _id(run) / at)


def _id(run: Run | str) -> str:
    return run if isinstance(run, str) else run.run_id
