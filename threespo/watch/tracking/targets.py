"""Where rows are copied to. A target says how many rows of a run it has; what it has is never written twice."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from threespo.errors import InputError
from threespo.files import write_text
from threespo.watch.tracking.rows import GLOBAL_STEP, ROW_NUMBER, TrackedRow


class TrackedCopy(Protocol):
    """One run in a target."""

    rows: int
    """How many rows of it are there."""

    def add(self, row: TrackedRow) -> None:
        """Write the next row."""
        ...

    def close(self) -> None:
        """Make sure that all rows can be read by others."""
        ...


CopyOpener = Callable[[str, str, Mapping[str, str], Path | None, str], TrackedCopy]
"""(run's name, its identity, settings, folder or None for what the target's own environment variables say, project)."""

TENSORBOARD_FOLDER = Path("tracking") / "tensorboard"


class TensorboardCopy:
    """A folder of event files, as ``tensorboard --logdir`` shows it as one run."""

    def __init__(
        self, name: str, identity: str, settings: Mapping[str, str], folder: Path | None, project: str
    ) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.rows = 0
        place = (folder or TENSORBOARD_FOLDER) / name
        mark = place / "training.txt"
        if place.is_dir() and _text(mark) == identity:
            there = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
            self.rows = len(there.Scalars(ROW_NUMBER)) if ROW_NUMBER in there.Tags()["scalars"] else 0
        else:
            # Of another training of this run, whose points would lie between ours.
            for old in place.glob("events.out.tfevents.*"):
                old.unlink()
            write_text(mark, identity)

        # Opened with the first row: a file without any would be left by every look.
        self._open: Callable[[], Any] = lambda: EventFileWriter(str(place))
        self._writer: Any = None
        lines = "".join(f"| {key} | {value} |\n" for key, value in settings.items())
        self._about = text_pb("settings", f"| setting | value |\n|---|---|\n{lines}")

    def add(self, row: TrackedRow) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._writer is None:
            self._writer = self._open()
        if not self.rows:
            self._writer.add_event(Event(wall_time=row.time, step=0, summary=self._about))
        # The form that torch's writer has, which scripts read as scalars; one event, so that a row is there or not.
        values = [Summary.Value(tag=key, simple_value=value) for key, value in row.values.items()]
        self._writer.add_event(Event(wall_time=row.time, step=row.step, summary=Summary(value=values)))
        self._writer.flush()
        self.rows += 1

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class MlflowCopy:
    """A run of an MLflow experiment; its tag ``threespo.training`` says which training it is a copy of."""

    def __init__(
        self, name: str, identity: str, settings: Mapping[str, str], folder: Path | None, project: str
    ) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        address = f"sqlite:///{(folder / 'mlflow.db').absolute()}" if folder is not None else None
        self._client = MlflowClient(tracking_uri=address)
        self._metric = Metric
        found = self._client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else self._client.create_experiment(project)

        mine = f"tags.`threespo.training` = '{identity}'"
        runs = self._client.search_runs([experiment], mine, max_results=1)
        tags = {"threespo.training": identity}
        run = runs[0] if runs else self._client.create_run(experiment, run_name=name, tags=tags)
        self._run = run.info.run_id
        self.rows = len(self._client.get_metric_history(self._run, ROW_NUMBER)) if runs else 0
        if not runs:
            params = [Param(key, value[:6000]) for key, value in settings.items()]
            for first in range(0, len(params), 100):
                self._client.log_batch(self._run, params=params[first : first + 100])

    def add(self, row: TrackedRow) -> None:
        # One call for the whole row: it is there or not.
        at = int(row.time * 1000)
        self._client.log_batch(
            self._run, [self._metric(key, value, at, row.step) for key, value in row.values.items()]
        )
        self.rows += 1

    def close(self) -> None:
        self._client.set_terminated(self._run)


class WandbCopy:
    """A Weights & Biases run. ``WANDB_MODE=offline`` writes a folder that ``wandb sync`` sends later.

    The service counts rows, so that a later call continues; offline there is no count, so the folder is written again.
    """

    def __init__(
        self, name: str, identity: str, settings: Mapping[str, str], folder: Path | None, project: str
    ) -> None:
        import wandb

        place = folder or Path(os.environ.get("WANDB_DIR", "."))
        place.mkdir(parents=True, exist_ok=True)
        if wandb.setup().settings.mode == "offline":
            for old in place.glob(f"wandb/offline-run-*-{identity}"):
                shutil.rmtree(old)
        self._run = wandb.init(
            project=project,
            id=identity,
            name=name,
            group=name.rpartition("/")[0],
            dir=place,
            config=dict(settings),
            resume="allow",
            # Each run its own, also where several are open.
            reinit="create_new",
            # Times and load of this machine now say nothing of the run.
            settings=wandb.Settings(console="off", x_disable_stats=True, silent=True),
        )
        # Its own counter goes up by one with every row; curves are drawn over ours, as verl-agent's can be.
        self._run.define_metric(GLOBAL_STEP)
        self._run.define_metric("*", step_metric=GLOBAL_STEP)
        self.rows = self._run.step

    def add(self, row: TrackedRow) -> None:
        self._run.log(dict(row.values))
        self.rows += 1

    def close(self) -> None:
        self._run.finish()


class TrackioCopy:
    """A run in Trackio's local database."""

    def __init__(
        self, name: str, identity: str, settings: Mapping[str, str], folder: Path | None, project: str
    ) -> None:
        if folder is not None:
            # Read when the package is imported.
            os.environ["TRACKIO_DIR"] = str(folder.absolute())
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        own = f"{name} {identity}"
        self.rows = len(SQLiteStorage.get_metric_values(project, own, ROW_NUMBER))
        options = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        self._run = trackio.init(project, own, config=dict(settings), resume="allow", **options)

    def add(self, row: TrackedRow) -> None:
        self._run.log(dict(row.values), step=row.step)
        self.rows += 1

    def close(self) -> None:
        self._run.finish()


TARGETS: dict[str, CopyOpener] = {
    "tensorboard": TensorboardCopy,
    "wandb": WandbCopy,
    "mlflow": MlflowCopy,
    "trackio": TrackioCopy,
}


def open_target(
    target: str, name: str, identity: str, settings: Mapping[str, str], folder: Path | None, project: str
) -> TrackedCopy:
    """Open a run in a target, to add the rows that it lacks.

    Args:
        target: one of ``TARGETS``.
        name: of the run.
        identity: of its training; another one is another run.
        settings: shown beside the curves.
        folder: where the target keeps its files.
        project: in TensorBoard nothing, elsewhere the project or experiment.

    Raises:
        InputError: if the target refuses; says what it has said.
    """
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: not a folder; give another one with --dir")
    try:
        return TARGETS[target](name, identity, settings, folder, project)
    except (ModuleNotFoundError, KeyboardInterrupt, InputError):
        raise
    # Services have errors of their own, and each many: no login, no network, another version.
    except Exception as error:
        raise InputError(f"{target}: cannot be opened ({str(error).strip().splitlines()[0]})") from error


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
