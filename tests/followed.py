"""Runs as they lie on disk while they go on and when they have ended, with numbers that are easy to check."""

from collections.abc import Sequence
from pathlib import Path

from threespo.paths import Paths
from threespo.runs.artifacts import RunArtifacts
from threespo.study.config import Study
from threespo.study.load import dump_study, load_study
from threespo.tables import write_table

ROOT = Path(__file__).resolve().parents[1]
GRPO, SEARCH = "alfworld/tiny-s/grpo/seed-0", "alfworld/tiny-s/threespo-calibrated/seed-0"
SIMPLE, LOOK = "pick_and_place_simple", "look_at_obj_in_light"


def study_in(folder: Path) -> tuple[Study, Paths]:
    """Write the study ``ci`` into ``folder``, as the workflow does when it begins."""
    paths = Paths(folder)
    study = load_study(ROOT / "config" / "studies" / "ci.yaml")
    folder.mkdir(parents=True, exist_ok=True)
    paths.study.write_text(dump_study(study))
    return study, paths


def metrics(epoch: int) -> dict[str, float]:
    """Four paths of 5 steps an epoch, of which ``epoch`` succeed."""
    totals = {
        "generations": 20 * epoch,
        "env_steps": 20 * epoch,
        "completed_paths": 4 * epoch,
        "optimizer_steps": epoch,
    }
    rates = {
        "epoch_paths": 4,
        "epoch_successes": epoch,
        "train_success": epoch / 4,
        "invalid_rate": 0.25,
    }
    learned = {"policy_loss": -0.5, "kl": 0.125, "grad_norm": float("nan"), "detail_n_1": 3.0}
    return {"epoch": epoch, "tasks": 2, **totals, **rates, **learned}


def timing(epoch: int) -> dict[str, float]:
    parts = {"sampling": 4.0, "update": 3.0, "environment": 2.0, "method": 0.5, "logging": 0.5}
    seconds = {f"{name}_seconds": value for name, value in parts.items()}
    return {
        "epoch": epoch,
        "seconds": 10.0,
        **seconds,
        "generations_per_second": 2.0,
        "peak_memory_mb": 512.0,
    }


def types(epoch: int) -> list[dict[str, object]]:
    return [
        {"epoch": epoch, "task_type": SIMPLE, "completed_paths": 4, "successes": epoch},
        {"epoch": epoch, "task_type": LOOK, "completed_paths": 0, "successes": 0},
    ]


def going_on(paths: Paths, run: str, epochs: Sequence[int]) -> None:
    """Write what a run leaves for those who watch it."""
    artifacts = RunArtifacts(paths.root / "checkpoints" / run)
    for epoch in epochs:
        write_table(artifacts.folder / "artifacts" / f"task_types-{epoch:06d}.parquet", types(epoch))
        artifacts.write_progress(epoch, metrics(epoch), timing(epoch))


def trained(paths: Paths, run: str, epochs: int) -> None:
    """Write the tables of a run that has been trained."""
    folder, all_epochs = paths.run(run), range(1, epochs + 1)
    write_table(folder.timing, [timing(epoch) for epoch in all_epochs])
    write_table(folder.task_types, [row for epoch in all_epochs for row in types(epoch)])
    write_table(folder.metrics, [metrics(epoch) for epoch in all_epochs])


def judged(paths: Paths, run: str, snapshots: Sequence[int]) -> None:
    """Write the evaluations of a run's snapshots, two games each, of which one is won; and of its final policy."""
    games = [
        {"task_type": SIMPLE, "success": True, "steps": 4},
        {"task_type": LOOK, "success": False, "steps": 15},
    ]
    write_table(
        paths.run(run).learning, [{"epoch": epoch, **game} for epoch in snapshots for game in games]
    )
    more = {"split": "valid_unseen", "score": 0.5, "invalid_format": 1}
    write_table(paths.run(run).evaluation, [{**more, **game} for game in games])
