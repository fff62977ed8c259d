"""A run, from games to weights: budgets, determinism, exact resume, refusal of what does not belong to it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import do, evaluate, key_of, learn, load_tasks, prepare, probe, settings_of, train
from threespo import cli
from threespo.envs.alfworld import compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.errors import InputError
from threespo.imitation import base_policy
from threespo.imitation.alfworld.curriculum import NOISY
from threespo.imitation.alfworld.expert import CAREFUL
from threespo.imitation.curriculum import Recipe, Stage, TinyModelShape, curriculum_of
from threespo.learner.engine import DeepSpeedLearner
from threespo.methods.registry import METHODS
from threespo.paths import Paths
from threespo.runs import checkpoint
from threespo.runs import probe as probes
from threespo.runs.budget import draw_tasks, spent_budget
from threespo.runs.learning import evaluate_snapshots
from threespo.runs.learning_rate import learning_rate
from threespo.runs.train import choose_pool, common_settings
from threespo.runs.training_settings import TrainingSettings
from threespo.study.config import Study
from threespo.study.load import dump_study, parse_study
from threespo.study.matrix import base_trials, find_run, trials_of
from threespo.tables import read_table, write_table

# Methods whose tasks would take more than about twenty generations.
SMALL = {"tree_grpo": {"trees": 2}, "vine": {"forks": 1}}
VALUES: dict[str, Any] = {
    "name": "tiny",
    "description": "a test",
    "seeds": [0, 1],
    "alfworld": {
        "difficulty": "small",
        "max_steps": 6,
        "games": {"train": 6, "calibration": 4, "valid_seen": 3, "valid_unseen": 3},
    },
    "policies": {
        "tiny-s": {
            "stands_for": "qwen2.5-1.5b-instruct",
            "max_prompt_tokens": 1500,
            "max_response_tokens": 16,
        }
    },
    "methods": {
        **{
            name: {"method": name, "learning_rate": 1e-3, "options": SMALL.get(name, {})}
            for name in METHODS
        },
        "threespo": {
            "method": "threespo",
            "learning_rate": 1e-4,
            "options": {"max_generations_per_task": 20},
        },
    },
    "training": {
        "generations": 150,
        "tasks_per_epoch": 2,
        "group_size": 4,
        "minibatch": 32,
        "snapshots": 3,
    },
    "evaluation": {"seeds": [1, 2], "learning": {"seeds": [1], "games": 2}},
    "probe": {"methods": ["threespo"], "snapshots": 2, "games": 2, "states": 3, "continuations": 4},
}
OUTPUTS = (
    *(f"{name}.parquet" for name in ("metrics", "task_types", "trees")),
    "weights/model.safetensors",
    "weights/tokenizer.json",
)


@pytest.fixture(scope="module")
def study() -> Study:
    return parse_study(VALUES, "test")


@pytest.fixture(scope="module")
def prepared(study, tmp_path_factory) -> Path:
    """Games, and a policy after a moment of cloning: it has learned little, but its format."""
    root = tmp_path_factory.mktemp("prepared")
    paths = Paths(root)
    prepare(study, "alfworld", paths.data("alfworld"))
    moment = Stage(15_000, 2e-3, 0.1, 1.0, NOISY, CAREFUL, batch=8)
    weakening = Stage(2_000, 5e-4, 0.0, 1.0, NOISY, CAREFUL, batch=8)
    plan = Recipe(TinyModelShape(32, 1, 2, 64), (moment,), weakening, most_weakening_steps=1)
    folder, data = paths.policy("alfworld", "tiny-s"), paths.data("alfworld")
    curriculum = replace(
        curriculum_of(settings_of("policy", study, "alfworld/tiny-s", paths)), recipe=plan
    )
    facts = base_policy.build_policy(curriculum, load_tasks("alfworld", data, "calibration"), folder)
    (folder / "policy.json").write_text(json.dumps({"kind": "tiny", **facts}))
    return root


@pytest.fixture
def paths(prepared, tmp_path) -> Paths:
    for name in ("data", "policy"):
        (tmp_path / name).symlink_to(prepared / name)
    return Paths(tmp_path)


def outputs(paths, run):
    folder = paths.run(run).folder
    kept = sorted(
        str(path.relative_to(folder)) for path in (folder / "snapshots").rglob("*") if path.is_file()
    )
    return {name: (folder / name).read_bytes() for name in (*OUTPUTS, *kept)}


def snapshot_epochs(metrics):
    """The first epochs that have spent one and two thirds of the budget, and the last one, which stands for itself."""
    last = int(metrics["epoch"].iloc[-1])
    reached = {
        number: int(metrics.loc[metrics["generations"] >= 50 * number, "epoch"].min())
        for number in (1, 2)
    }
    return {number: epoch for number, epoch in reached.items() if epoch < last} | {3: last}


def test_the_recipe_reports_what_it_made(prepared):
    facts = json.loads((Paths(prepared).policy("alfworld", "tiny-s") / "policy.json").read_text())
    assert 0 <= facts["base"]["success_t1.0"] <= 1
    assert facts["strong"]["binding"]["search_states"] > 0
    assert facts["parameters"] > 0


@pytest.mark.parametrize("method", METHODS)
def test_interrupted_runs_end_in_the_same_bytes(
    study, paths, prepared, tmp_path_factory, monkeypatch, method
):
    run = find_run(study, f"alfworld/tiny-s/{method}/seed-0")
    train(study, run, paths)
    whole = outputs(paths, run)
    metrics = read_table(paths.run(run).metrics)
    # A task is 20 to 26 generations here; the budget is met to within about one.
    assert 150 - 26 < metrics["generations"].iloc[-1] < 150 + 26
    assert metrics["epoch"].tolist() == list(range(1, len(metrics) + 1))
    assert len(metrics) >= 3
    # The last part ends with the run, whose weights are not stored again; only a search's memory is of use.
    within = sorted(number for number in snapshot_epochs(metrics) if number < 3)
    kept = {name for name in whole if name.startswith("snapshots/")}
    weights = {f"snapshots/{number:02d}/weights/model.safetensors" for number in within}
    assert {name for name in kept if name.endswith("model.safetensors")} == weights
    memories = {f"snapshots/{number:02d}/memory.json" for number in (*within, 3)}
    assert {name for name in kept if name.endswith("memory.json")} == (
        memories if method == "threespo" else set()
    )

    other = Paths(tmp_path_factory.mktemp("interrupted"))
    for name in ("data", "policy"):
        (other.root / name).symlink_to(prepared / name)
    save, saved = checkpoint.save_checkpoint, []

    def save_then_die(*arguments):
        save(*arguments)
        saved.append(1)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_checkpoint", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        train(study, run, other)
    assert not other.run(run).metrics.exists()
    train(study, run, other)
    assert outputs(other, run) == whole


def test_a_cheap_epoch_does_not_lead_over_the_budget(study):
    """One gated task cost nothing; the 40 generations that are left are one task's, not forty's."""
    progress = checkpoint.Progress("", epoch=2, generations=110)
    progress.metrics = [{"generations": 109, "tasks": 2}, {"generations": 110, "tasks": 1}]
    settings, tasks = (
        settings_of("train", study, "alfworld/tiny-s/threespo/seed-0"),
        [object() for _ in range(6)],
    )
    assert len(draw_tasks(tasks, progress, settings)) == 1
    progress.generations = progress.metrics[-1]["generations"] = 130
    assert draw_tasks(tasks, progress, settings) == []


def test_a_run_says_where_its_time_went_and_the_parts_add_up(study, paths):
    run = find_run(study, "alfworld/tiny-s/threespo/seed-0")
    train(study, run, paths)
    timing = read_table(paths.run(run).timing)
    parts = timing[
        [f"{part}_seconds" for part in ("sampling", "update", "environment", "method", "logging")]
    ]
    assert parts.to_numpy().min() >= 0
    assert parts.sum(axis=1).tolist() == pytest.approx(timing["seconds"].tolist())
    assert (timing["environment_seconds"] > 0).all()


def test_a_profile_leaves_the_results_alone(study, paths):
    (paths.root / "study.json").write_text(dump_study(study))
    assert (
        cli.main(["train", str(paths.study), "--run", "alfworld/tiny-s/threespo/seed-0", "--profile"])
        == 0
    )
    assert (
        "function calls" in (paths.root / "profiles" / "alfworld/tiny-s/threespo/seed-0.txt").read_text()
    )
    assert not (paths.root / "runs").exists()


def test_many_cheap_epochs_do_not_shorten_the_rest(study):
    """Three dear epochs long ago; the last pass over the pool cost 8 a task, so whole epochs are drawn."""
    progress, settings = (
        checkpoint.Progress("", epoch=9),
        settings_of("train", study, "alfworld/tiny-s/threespo/seed-0"),
    )
    spent = [40, 80, 90, 94, 98, 102]
    progress.metrics = [{"generations": value, "tasks": 2} for value in spent]
    progress.generations = spent[-1]
    assert len(draw_tasks([object() for _ in range(6)], progress, settings)) == 2


def test_a_budget_in_epochs_is_that_many_whole_epochs_whatever_they_cost(study):
    epochs = study.model_copy(
        update={"training": study.training.model_copy(update={"generations": None, "epochs": 3})}
    )
    settings = settings_of("train", epochs, "alfworld/tiny-s/threespo/seed-0")
    of_generations = settings_of("train", study, "alfworld/tiny-s/threespo/seed-0")
    progress, tasks, drawn = checkpoint.Progress(""), list(range(6)), []
    assert (settings.training.budget, spent_budget(progress, settings)) == (3, 0)
    while chosen := draw_tasks(tasks, progress, settings):
        drawn.append(chosen)
        progress.epoch += 1
        progress.generations += 10_000 * progress.epoch
        progress.metrics.append({"generations": progress.generations, "tasks": 2})
        assert spent_budget(progress, settings) == progress.epoch
        assert spent_budget(progress, of_generations) == progress.generations
    assert [len(chosen) for chosen in drawn] == [2, 2, 2]
    # The draw depends on seed and epoch alone: a run with another kind of budget meets the same tasks.
    progress = checkpoint.Progress(
        "", epoch=1, generations=40, metrics=[{"generations": 40, "tasks": 2}]
    )
    assert draw_tasks(tasks, progress, of_generations) == drawn[1]


def test_given_up_tasks_end_the_run_after_three_passes(study):
    progress, settings = (
        checkpoint.Progress("", epoch=9),
        settings_of("train", study, "alfworld/tiny-s/threespo/seed-0"),
    )
    for idle, drawn in ((8, 2), (9, 0)):
        progress.metrics = [{"generations": 40, "tasks": 2}, *[{"generations": 40, "tasks": 2}] * idle]
        progress.generations = 40
        assert len(draw_tasks([object() for _ in range(6)], progress, settings)) == drawn


def test_two_processes_cannot_train_one_run(study, paths):
    run = find_run(study, "alfworld/tiny-s/grpo/seed-0")
    with (
        checkpoint.lock_run(paths.checkpoints(run)),
        pytest.raises(InputError, match=r"another process \(process \d+ on"),
    ):
        train(study, run, paths)
    with checkpoint.lock_run(paths.checkpoints(run)):
        pass


def test_seeds_differ_and_evaluation_judges_every_game_once_per_seed(study, paths):
    weights = []
    for seed in (0, 1):
        run = find_run(study, f"alfworld/tiny-s/grpo/seed-{seed}")
        train(study, run, paths)
        weights.append(outputs(paths, run))
    assert weights[0] != weights[1]
    evaluate(study, run, paths)
    table = read_table(paths.run(run).evaluation)
    assert len(table) == 2 * 2 * 3
    assert (table.groupby(["split", "evaluation_seed", "task_id"]).size() == 1).all()
    before = paths.run(run).evaluation.read_bytes()
    evaluate(study, run, paths)
    assert paths.run(run).evaluation.read_bytes() == before


def test_agents_play_with_the_base_policy(study, paths):
    agents = {name: {"agent": name, "trials": 2} for name in ("direct", "react", "retry", "reflexion")}
    with_agents = parse_study(VALUES | {"agents": agents}, "test")
    tables = {}
    for name in agents:
        run = find_run(with_agents, f"alfworld/tiny-s/{name}/seed-0")
        evaluate(with_agents, run, paths)
        tables[name] = read_table(paths.run(run).evaluation)
        assert len(tables[name]) == 2 * 2 * 3
    assert (tables["react"]["trials"] == 1).all()
    base = find_run(with_agents, "alfworld/tiny-s/base/seed-0")
    evaluate(with_agents, base, paths)
    plain = read_table(paths.run(base).evaluation)
    assert tables["react"].drop(columns="method").equals(plain.drop(columns="method")), (
        "react asks as the evaluation does"
    )
    for name in ("retry", "reflexion"):
        assert tables[name]["first_success"].tolist() == tables["react"]["success"].tolist()
        assert ((tables[name]["trials"] == 2) != tables[name]["first_success"]).all()


def test_other_settings_do_not_continue_an_unfinished_run_but_follow_a_finished_one(
    study, paths, monkeypatch
):
    run = find_run(study, "alfworld/tiny-s/grpo/seed-0")
    changed = parse_study(VALUES | {"training": VALUES["training"] | {"clip": 0.3}}, "test")
    save = checkpoint.save_checkpoint

    def save_then_die(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_checkpoint", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        train(study, run, paths)
    monkeypatch.setattr(checkpoint, "save_checkpoint", save)
    with pytest.raises(InputError, match="other settings"):
        train(changed, run, paths)
    train(study, run, paths)
    assert not paths.checkpoints(run).exists()
    train(changed, run, paths)


def test_sampler_and_learner_agree_at_any_temperature(study, paths):
    """The first update is on-policy: its ratio is 1, so nothing is clipped and approx_kl vanishes."""
    values = VALUES | {"training": VALUES["training"] | {"temperature": 0.7, "generations": 40}}
    hot = parse_study(values, "test")
    run = find_run(hot, "alfworld/tiny-s/threespo/seed-0")
    train(hot, run, paths)
    first = read_table(paths.run(run).metrics).iloc[0]
    # Steps after the first of an epoch are one post-step update behind at most.
    assert abs(first["approx_kl"]) < 1e-3
    assert first["clip_fraction"] < 0.01


def test_a_critic_is_trained_beside_the_policy(study, paths):
    run = find_run(study, "alfworld/tiny-s/ppo/seed-0")
    train(study, run, paths)
    metrics = read_table(paths.run(run).metrics)
    assert (metrics["detail_critic_grad_norm"] > 0).all()
    # It begins with one value for everything, and then tells positions apart.
    explained = metrics["detail_explained_variance"].tolist()
    assert explained[0] == 0.0
    assert 0.0 not in explained[1:]
    assert metrics["optimizer_steps"].iloc[-1] > 0


def test_each_methods_rate_is_that_of_its_best_trial(study, paths):
    """Trials train within their own budget, are judged on calibration games alone, and the matrix trains with the winner."""
    untuned = {"method": "rloo"}
    tuning = {"learning_rates": [1e-4, 1e-3, 1e-2], "generations": 60, "seeds": [1000, 1001]}
    tuned = parse_study(VALUES | {"methods": {"rloo": untuned}, "tuning": tuning, "probe": None}, "test")
    trials = trials_of(tuned, "alfworld", "tiny-s", "rloo")
    names = [f"rate-{rate}-seed-{seed}" for rate in ("0.0001", "0.001", "0.01") for seed in (1000, 1001)]
    assert [run.run_id for run in trials] == [f"alfworld/tiny-s/rloo/{name}" for name in names]
    run = find_run(tuned, "alfworld/tiny-s/rloo/seed-0")
    with pytest.raises(InputError, match="Run the trials"):
        train(tuned, run, paths)
    trial = find_run(tuned, "alfworld/tiny-s/rloo/rate-0.001-seed-1000")
    train(tuned, trial, paths)
    assert read_table(paths.run(trial).metrics)["generations"].iloc[-1] < 60 + 26
    evaluate(tuned, trial, paths)
    judged = read_table(paths.run(trial).evaluation)
    assert set(judged["split"]) == {"calibration"}
    assert len(judged) == 4
    # Of two runs each: 2 of 4 games, 3 of 4, 3 of 4. The best single run is that of the smallest rate.
    wins = ([True, True], [False, False], [True, False], [True, True], [True, True], [True, False])
    games = read_table(paths.run(trial).evaluation)
    for each, won in zip([*trials, *base_trials(tuned)], [*wins, [False, False]], strict=True):
        write_table(paths.run(each).evaluation, games[:2].assign(success=won))
    do("tune", tuned, "alfworld/tiny-s/rloo", paths)
    assert learning_rate(settings_of("train", tuned, run, paths)) == 1e-3, "of equal means the smallest"
    train(tuned, run, paths)
    by_hand = find_run(study, "alfworld/tiny-s/rloo/seed-0")
    first = outputs(paths, run)
    train(study, by_hand, paths)
    assert outputs(paths, by_hand) == first, "the study by hand has the same rate"


def test_terms_decide_what_statistics_are_taken_over(study, paths):
    released = parse_study(VALUES | {"training": VALUES["training"] | {"terms": "as_released"}}, "test")
    run = find_run(study, "alfworld/tiny-s/grpo/seed-0")
    statistics = [
        common_settings(settings_of("train", one, run), []).statistics for one in (study, released)
    ]
    assert statistics == ["trajectories", "rows"]


def test_a_missing_policy_stage_is_named(study, tmp_path):
    with pytest.raises(InputError, match="Run the policy stage"):
        train(study, find_run(study, "alfworld/tiny-s/grpo/seed-0"), Paths(tmp_path))


def test_the_pool_holds_all_task_types(study):
    """Games come sorted by id, which begins with the task type: a pool of the first ones would hold one type only."""
    games = sorted(generate_games("train", 256, 7, "small"), key=lambda record: record.game_id)
    training = TrainingSettings(generations=1, pool=64)
    pool = choose_pool([compile_game(record) for record in games], training, seed=0)
    assert len({task.task_id for task in pool}) == 64
    assert {task.task_type for task in pool} == {record.task_type for record in games}
    assert choose_pool(pool[::-1], training, seed=1) == pool
    assert len(choose_pool(pool, TrainingSettings(generations=1), seed=0)) == 64


def test_a_pool_by_seed_is_equal_for_equal_seeds_only():
    tasks = [compile_game(record) for record in generate_games("train", 64, 7, "small")]
    training = TrainingSettings(generations=1, pool=16, pool_by_seed=True)
    pools = [{task.task_id for task in choose_pool(tasks, training, seed)} for seed in (0, 0, 1, 2)]
    assert pools[0] == pools[1]
    assert len({frozenset(pool) for pool in pools}) == 3
    one_for_all = choose_pool(tasks, TrainingSettings(generations=1, pool=16), seed=0)
    assert {task.task_id for task in one_for_all} not in pools


def test_snapshots_are_played_on_unseen_games_and_change_no_weights(
    study, paths, tmp_path_factory, prepared
):
    """The last snapshot wins the games that the evaluation's episodes of them won, and the first point is the base's."""
    run, base = (find_run(study, f"alfworld/tiny-s/{name}/seed-0") for name in ("grpo", "base"))
    train(study, run, paths)
    for one in (run, base):
        learn(study, one, paths)
        evaluate(study, one, paths)
    played, metrics = read_table(paths.run(run).learning), read_table(paths.run(run).metrics)
    assert played.groupby("snapshot")["epoch"].unique().map(list).to_dict() == {
        number: [epoch] for number, epoch in snapshot_epochs(metrics).items()
    }
    assert (played.groupby("snapshot").size() == 2).all()
    assert set(played["split"]) == {"valid_unseen"}
    assert played["task_id"].nunique() == 2
    totals = metrics.set_index("epoch")[["generations", "optimizer_steps"]]
    assert (
        played.set_index("epoch")[["generations", "optimizer_steps"]] == totals.loc[played["epoch"]]
    ).all(axis=None)

    key = ["split", "evaluation_seed", "task_id"]
    for one, last in ((run, 3), (base, 0)):
        episodes = read_table(paths.run(one).evaluation).set_index(key)
        ours = read_table(paths.run(one).learning).set_index(["snapshot", *key]).loc[last]
        assert (ours[["success", "steps"]] == episodes.loc[ours.index, ["success", "steps"]]).all(
            axis=None
        )

    without = parse_study(
        VALUES | {"training": VALUES["training"] | {"snapshots": 0}, "probe": None}, "test"
    )
    other = Paths(tmp_path_factory.mktemp("without"))
    for name in ("data", "policy"):
        (other.root / name).symlink_to(prepared / name)
    train(without, run, other)
    folders = other.run(run).folder, paths.run(run).folder
    assert all((folders[0] / name).read_bytes() == (folders[1] / name).read_bytes() for name in OUTPUTS)
    assert [path.name for path in other.run(run).snapshots.iterdir()] == ["snapshots.json"]


def test_curves_on_more_games_than_there_are_are_refused(study, paths):
    """Where the data decide how many games there are, only the job can tell."""
    settings = settings_of("learning", study, "alfworld/tiny-s/base/seed-0", paths)
    more = settings.model_copy(update={"learning": settings.learning.model_copy(update={"games": 4})})
    with pytest.raises(
        InputError, match=r"evaluation\.learning\.games: found 4, but split 'valid_unseen' .* has 3"
    ):
        evaluate_snapshots(more)


def test_a_probe_sets_scores_beside_success_probabilities(study, paths):
    """What is counted is the method's own table at the snapshot, and a probe repeats itself."""
    run = find_run(study, "alfworld/tiny-s/threespo/seed-0")
    train(study, run, paths)
    probe(study, run, paths)
    rows = read_table(paths.run(run).probe)
    assert list(rows.columns) == list(probes.COLUMNS)
    # Nearest to the middles of two halves of 150 generations, 37.5 and 112.5, are those at a third and at two thirds.
    assert rows.groupby("snapshot").size().to_dict() == {1: 3, 2: 3}
    assert (rows["successes"] <= rows["continuations"]).all()
    assert (rows["counted_successes"] <= rows["visits"]).all()
    snapshots = paths.run(run).snapshots
    epochs = {
        one["number"]: one["epoch"]
        for one in json.loads((snapshots / "snapshots.json").read_text())["taken"]
    }
    assert (rows["epoch"] == rows["snapshot"].map(epochs)).all()
    for number in (1, 2):
        memory = json.loads((snapshots / f"{number:02d}" / "memory.json").read_text())
        digest = lambda key: hashlib.blake2b(key.encode(), digest_size=6).hexdigest()  # noqa: E731
        counts = {digest(key): (total, won) for key, total, won in memory["table"]["counts"]}
        of_snapshot = rows[rows["snapshot"] == number]
        met = zip(
            of_snapshot["state"], of_snapshot["visits"], of_snapshot["counted_successes"], strict=True
        )
        assert all((total, won) == counts.get(state, (0.0, 0.0)) for state, total, won in met)
    assert (rows["visits"] > 0).any()
    before = paths.run(run).probe.read_bytes()
    probe(study, run, paths)
    assert paths.run(run).probe.read_bytes() == before
    more = parse_study(VALUES | {"probe": VALUES["probe"] | {"snapshots": 3}}, "test")
    assert key_of("train", more, run) == key_of("train", study, run), (
        "a probe takes what snapshots there are"
    )
    assert key_of("probe", study, run) != key_of("probe", more, run)


def test_a_method_may_take_smaller_minibatches_as_a_control(study, paths):
    values = VALUES | {
        "methods": {
            **VALUES["methods"],
            "small": {"method": "grpo", "learning_rate": 1e-3, "minibatch": 8},
        }
    }
    small = parse_study(values, "test")
    runs = [find_run(small, f"alfworld/tiny-s/{name}/seed-0") for name in ("grpo", "small")]
    for run in runs:
        train(small, run, paths)
    plain, more = (read_table(paths.run(run).metrics).iloc[0] for run in runs)
    assert plain["generations"] == more["generations"]
    assert (plain["optimizer_steps"], more["optimizer_steps"]) == (
        round(plain["rows"] / 32) or 1,
        round(more["rows"] / 8),
    )


def test_what_an_unfinished_run_of_other_settings_left_is_not_delivered(study, paths, monkeypatch):
    """Killed before its first checkpoint, a run leaves trees that no identity vouches for; the next run begins without."""
    run = find_run(study, "alfworld/tiny-s/threespo/seed-0")
    seldom = parse_study(VALUES | {"training": VALUES["training"] | {"checkpoint_every": 50}}, "test")

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeepSpeedLearner, "export", die)
        with pytest.raises(KeyboardInterrupt):
            train(seldom, run, paths)
    assert list((paths.checkpoints(run) / "artifacts").glob("trees-*"))
    none = parse_study(VALUES | {"training": VALUES["training"] | {"recorded_tasks": 0}}, "test")
    train(none, run, paths)
    assert read_table(paths.run(run).trees).empty


def test_the_size_of_checkpoints_is_said_once(study, paths, capsys):
    train(study, find_run(study, "alfworld/tiny-s/grpo/seed-0"), paths)
    assert capsys.readouterr().err.count("checkpoints: ") == 1


def test_a_run_of_epochs_has_its_snapshots_by_epochs_and_resumes_to_the_same_bytes(
    study, paths, prepared, tmp_path_factory, monkeypatch
):
    changed = {"generations": None, "epochs": 3, "entropy_coef": 0.001, "terms": "as_released"}
    epochs = parse_study({**VALUES, "training": {**VALUES["training"], **changed}}, "test")
    run = find_run(epochs, "alfworld/tiny-s/threespo/seed-0")
    train(epochs, run, paths)
    metrics = read_table(paths.run(run).metrics)
    assert (metrics["epoch"].tolist(), metrics["tasks"].tolist()) == ([1, 2, 3], [2, 2, 2])
    whole = outputs(paths, run)

    other = Paths(tmp_path_factory.mktemp("killed"))
    for name in ("data", "policy"):
        (other.root / name).symlink_to(prepared / name)
    save = checkpoint.save_checkpoint

    def save_then_die(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    for _ in range(2):
        monkeypatch.setattr(checkpoint, "save_checkpoint", save_then_die)
        with pytest.raises(KeyboardInterrupt):
            train(epochs, run, other)
    monkeypatch.undo()
    train(epochs, run, other)
    assert outputs(other, run) == whole

    # The bonus is part of what is learned: without it the same run ends in other weights.
    without = parse_study(
        {**VALUES, "training": {**VALUES["training"], **changed, "entropy_coef": 0.0}}, "test"
    )
    bare = Paths(tmp_path_factory.mktemp("bare"))
    for name in ("data", "policy"):
        (bare.root / name).symlink_to(prepared / name)
    train(without, run, bare)
    assert outputs(bare, run)["weights/model.safetensors"] != whole["weights/model.safetensors"]
