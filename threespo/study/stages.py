"""What each stage depends on besides its input files: its code, and those fields of the study that matter to it.

The workflow compares these texts between invocations. So a new seed adds runs and reruns none, evaluation settings do
not retrain, and where a folder lies on this machine changes nothing.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from threespo.study.config import EvaluationSettings, Study
from threespo.study.contents import file_digest
from threespo.study.fingerprint import stage_fingerprint
from threespo.study.matrix import Paths, Run, plays_weights_of, snapshots_of, trials_of

COMPACT = ("*.json", "*.json.xz", "*.jsonl", "*.jsonl.xz", "*.pddl", "*.twl2")
"""Files of a compact folder of games, or of a folder of products."""

_LABELS_OF_POLICY = {"stands_for"}
_LABELS_OF_METHOD = {"paper_row"}
_PLACE_OF_GAMES = {"path"}
_HABITS_OF_ENDPOINT = {
    "concurrency",
    "requests_per_minute",
    "timeout_s",
    "max_attempts",
    "input_price",
    "output_price",
    "max_cost",
    "model_env",
}
_HABITS = {"checkpoint_every"}
_EPISODE = {"engine", "max_steps", "history_length", "mode", "fidelity"}
_DIFFERENCES = {"training", "methods"}
_OF_EMBEDDED = {"difficulty", "products"}


def code(stage: str, study: Study, row: Run | str | None = None, env: str | None = None) -> str:
    """Return the fingerprint of a stage's code, for a row of the study (a run, or a method of the laboratory) or for an
    environment."""
    return stage_fingerprint(stage, method_of(stage, study, row), row.env if isinstance(row, Run) else env)


def method_of(stage: str, study: Study, row: Run | str | None) -> str | None:
    """Return the method whose module a stage depends on: ``train`` and ``laboratory`` have one."""
    if stage == "train" and isinstance(row, Run):
        return study.methods[row.method].method
    if stage == "laboratory" and isinstance(row, str) and study.laboratory:
        return study.laboratory.methods[row].method
    return None


def data_settings(study: Study, env: str) -> str:
    """Return the fields that decide which tasks are prepared."""
    own = study.environments[env]
    exclude = _PLACE_OF_GAMES | _EPISODE | _DIFFERENCES | (set() if own.source == "embedded" else _OF_EMBEDDED)
    return _text(settings=own.model_dump(mode="json", exclude=exclude), games=_games_of(own.folder))


def policy_settings(study: Study, env: str, policy: str) -> str:
    """Return the fields that decide a base policy."""
    settings = study.policies[policy].model_dump(mode="json", exclude=_LABELS_OF_POLICY | {"learning_rate_scale"})
    return _text(policy=settings, episode=_episode(study, env), build=study.policy_build)


def train_settings(study: Study, run: Run) -> str:
    """Return the fields that decide a training run; other runs, evaluation and labels are not among them.

    A chosen learning rate is an input and not a field.
    """
    study = study.at(run.env)
    method = study.methods[run.method].model_dump(mode="json", exclude=_LABELS_OF_METHOD)
    # Only searches have trees to record.
    habits = _HABITS if study.methods[run.method].method == "threespo" else _HABITS | {"recorded_tasks"}
    training = study.training.model_dump(mode="json", exclude=habits)
    if run.rate is not None and study.tuning:
        method["learning_rate"], training["generations"] = run.rate, study.tuning.generations
        training["seed"] = run.seed
    return _text(
        policy=study.policies[run.policy].model_dump(mode="json", exclude=_LABELS_OF_POLICY),
        method=method,
        training=training,
        episode=_episode(study, run.env),
        gpus=study.gpus_per_run,
        **({"snapshots": snapshots} if (snapshots := snapshots_of(study, run)) else {}),
    )


def probe_settings(study: Study, run: Run) -> str:
    """Return the fields that decide a run's probe beside its snapshots: the method's, which say how it scores states."""
    study = study.at(run.env)
    assert study.probe is not None
    method = study.methods[run.method].model_dump(mode="json", include={"options"})
    training = study.training.model_dump(mode="json", include={"pool", "temperature", "group_size", "threads"})
    probe = study.probe.model_dump(mode="json", exclude={"methods"})
    policy = study.policies[run.policy].model_dump(mode="json", exclude=_LABELS_OF_POLICY)
    episode = _episode(study, run.env)
    return _text(method=method, training=training, probe=probe, policy=policy, episode=episode, gpus=study.gpus_per_run)


def evaluate_settings(study: Study, run: Run, paths: Paths) -> str:
    """Return the fields that decide a run's evaluation; of a closed model also where its replies come from."""
    study = study.at(run.env)
    prompted = run.method in study.agents
    agent = study.agents[run.method].model_dump(mode="json", exclude=_LABELS_OF_METHOD | {"policies"}) if prompted else None
    left_out: dict[str, Any] = dict.fromkeys(_LABELS_OF_POLICY | {"learning_rate_scale"}, True)
    if study.policies[run.policy].endpoint:
        left_out["endpoint"] = _HABITS_OF_ENDPOINT
    return _text(
        agent=agent,
        **_replies(study, run, paths),
        policy=study.policies[run.policy].model_dump(mode="json", exclude=left_out),
        evaluation=evaluation_of(study, run).model_dump(mode="json"),
        episode=_episode(study, run.env),
        trained=plays_weights_of(study, run) == "run",
        sampling=study.training.model_dump(mode="json", include={"threads"}),
        gpus=study.gpus_per_run,
    )


def laboratory_settings(study: Study, family: str, method: str) -> str:
    """Return the fields that decide a row of the laboratory."""
    assert study.laboratory is not None
    settings = study.laboratory
    return _text(
        family=settings.families[family].model_dump(mode="json"),
        method=settings.methods[method].model_dump(mode="json"),
        **settings.model_dump(mode="json", include={"learning_rates", "seeds", "tuning_seeds"}),
    )


def evaluation_of(study: Study, run: Run) -> EvaluationSettings:
    """Return how a run is judged: a trial on the calibration tasks alone, once."""
    evaluation = study.at(run.env).evaluation
    if run.rate is None:
        return evaluation
    return evaluation.model_copy(update={"splits": ("calibration",), "seeds": evaluation.seeds[:1]})


def choose_settings(study: Study, env: str, policy: str, method: str) -> str:
    """Return the fields that decide the choice of a learning rate beside its trials' results: the grid."""
    return _text(rates=[run.rate for run in trials_of(study, env, policy, method)])


def _replies(study: Study, run: Run, paths: Paths) -> dict[str, Any]:
    """Return what a closed model's replies depend on beside the study: the environment, or else the recorded replies.

    With a key the cassette grows while the row is played, so it cannot be what decides.
    """
    endpoint = study.policies[run.policy].endpoint
    if endpoint is None:
        return {}
    if os.environ.get(endpoint.key_env):
        return {"model": endpoint.resolved_model(), "address": os.environ.get(endpoint.base_url_env)}
    cassette = paths.cassette(run)
    return {"model": endpoint.resolved_model(), "cassette": file_digest(cassette) if cassette.is_file() else None}


def tables_settings(study: Study) -> str:
    """Return the whole study: its labels stand in the tables and the report, and its order is theirs."""
    order = [list(rows) for rows in (study.policies, study.agents, study.methods)]
    left_out = dict.fromkeys(study.environments, _PLACE_OF_GAMES)
    return _text(order=order, study=study.model_dump(mode="json", exclude=left_out))


def _games_of(folder: Path | None) -> str | None:
    """Return a digest of which games a folder holds, wherever it lies.

    Files of the compact form are read. Of the thousands of single games in the official layout only names and sizes
    count: reading them all would delay every start of the workflow.
    """
    if folder is None:
        return None
    names = sorted(path for pattern in COMPACT for path in folder.glob(pattern))
    lines = [f"{path.name} {file_digest(path)}" for path in names]
    if not any(".jsonl" in path.name for path in names):
        games = sorted(folder.rglob("game.tw-pddl"))
        lines += [f"{path.relative_to(folder).as_posix()} {path.stat().st_size}" for path in games]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _episode(study: Study, env: str) -> dict[str, Any]:
    settings: dict[str, Any] = study.environments[env].model_dump(mode="json", include=_EPISODE)
    return settings


def _text(**values: Any) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
