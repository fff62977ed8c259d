"""A study on WebShop: data, policy, training, evaluation, probe, viewer and play, with the real stages."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import evaluate, load_tasks, make_setup, prepare, probe, record, settings_of, train
from threespo.agents.trials import Agent, play_trials
from threespo.envs.episode import EpisodeSetup, respond, start_episode, take_action
from threespo.envs.webshop import Catalogue, WebShop
from threespo.envs.webshop.data import load_goals, prepare_shop, read_shop_products
from threespo.imitation import base_policy
from threespo.imitation.curriculum import Recipe, Stage, TinyModelShape, curriculum_of
from threespo.imitation.webshop.expert import CAREFUL, ExpertNoise
from threespo.paths import Paths
from threespo.protocol import Sample, SampleRequest
from threespo.results.report.viewer import write_view
from threespo.runs import checkpoint
from threespo.study.config import Study
from threespo.study.load import dump_study, load_study, parse_study
from threespo.study.matrix import find_run
from threespo.tables import read_table
from threespo.watch.play import make_human_player, open_task, play_path, play_task

VALUES = {
    "name": "shop",
    "description": "a shop",
    "seeds": [0],
    "webshop": {
        "products": 500,
        "goals": {"train": 60, "calibration": 6, "test": 5},
        "max_steps": 6,
        "history_length": 0,
        "training": {"generations": 120},
    },
    "policies": {
        "tiny-s": {"kind": "tiny", "stands_for": "qwen2.5-1.5b-instruct", "max_response_tokens": 32}
    },
    "methods": {
        "grpo": {"method": "grpo", "learning_rate": 1e-3},
        "threespo": {"method": "threespo", "learning_rate": 1e-3, "options": {"preset": "narrow"}},
    },
    "training": {
        "generations": 999_999,
        "tasks_per_epoch": 2,
        "group_size": 4,
        "pool": 4,
        "kl_coef": 0.0,
    },
    "evaluation": {"seeds": [1, 2]},
    "probe": {"methods": ["threespo"], "snapshots": 1, "games": 2, "states": 3, "continuations": 4},
}


@pytest.fixture(scope="module")
def study() -> Study:
    return parse_study(VALUES, "test")


@pytest.fixture(scope="module")
def paths(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A shop, a policy after a moment of cloning, and both methods trained with it."""
    paths = Paths(tmp_path_factory.mktemp("shop"))
    paths.study.write_text(dump_study(study))
    data, folder = paths.data("webshop"), paths.policy("webshop", "tiny-s")
    prepare(study, "webshop", data)
    moment = Stage(15_000, 2e-3, 0.1, 1.0, ExpertNoise(random_action=0.2), CAREFUL, batch=8)
    plan = Recipe(
        TinyModelShape(32, 1, 2, 64),
        (moment,),
        replace(moment, tokens=2_000, labels=None),
        most_weakening_steps=1,
    )
    curriculum = replace(
        curriculum_of(settings_of("policy", study, "webshop/tiny-s", paths)), recipe=plan
    )
    facts = base_policy.build_policy(curriculum, load_tasks("webshop", data, "calibration"), folder)
    (folder / "policy.json").write_text(json.dumps({"kind": "tiny", **facts}))
    for method in ("grpo", "threespo"):
        train(study, find_run(study, f"webshop/tiny-s/{method}/seed-0"), paths)
    return paths


@pytest.mark.slow
def test_a_policy_learns_evaluates_and_is_probed_in_the_shop(study: Study, paths: Paths) -> None:
    run = find_run(study, "webshop/tiny-s/threespo/seed-0")
    metrics = read_table(paths.run(run).metrics)
    # The budget is that of the environment, to within half a task.
    assert 60 <= metrics["generations"].iloc[-1] <= 240
    evaluate(study, run, paths)
    episodes = read_table(paths.run(run).evaluation)
    assert set(episodes["split"]) == {"test"}
    assert len(episodes) == 5 * 2
    assert (episodes["success"] == (episodes["score"] == 1.0)).all()
    assert episodes["score"].between(0, 1).all()
    assert (episodes["steps"] <= 6).all()
    probe(study, run, paths)
    assert (read_table(paths.run(run).probe)["continuations"] == 4).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "threespo"])
def test_an_interrupted_run_in_the_shop_ends_in_the_same_bytes(
    study: Study, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    run, other = find_run(study, f"webshop/tiny-s/{method}/seed-0"), Paths(tmp_path)
    for name in ("data", "policy"):
        (tmp_path / name).symlink_to(paths.root / name)
    save = checkpoint.save_checkpoint

    def save_then_die(*arguments: Any) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_checkpoint", save_then_die)
        with pytest.raises(KeyboardInterrupt):
            train(study, run, other)
    assert not other.run(run).metrics.exists()
    train(study, run, other)
    for name in ("metrics.parquet", "task_types.parquet", "trees.parquet", "weights/model.safetensors"):
        assert (other.run(run).folder / name).read_bytes() == (paths.run(run).folder / name).read_bytes()
    assert len(read_table(other.run(run).metrics)) > 1


@pytest.mark.slow
def test_the_policy_stage_knows_how_much_was_understood(paths: Paths) -> None:
    facts = json.loads((paths.policy("webshop", "tiny-s") / "policy.json").read_text())
    understood = facts["strong"]["binding"]
    assert understood["product_states"] >= 6
    assert understood["buy_states"] >= 3
    assert all(0 <= understood[f"{kind}_recall"] <= 1 for kind in ("product", "option", "buy"))


@pytest.mark.slow
def test_searches_in_the_shop_can_be_looked_at(paths: Paths, tmp_path: Path) -> None:
    page = tmp_path / "trees.html"
    write_view(
        paths.root / "runs" / "webshop" / "tiny-s" / "threespo" / "seed-0" / "trees.parquet",
        page,
        "a shop",
    )
    assert "Find me" in page.read_text()


@pytest.mark.slow
def test_a_trained_policy_plays_a_goal(paths: Paths) -> None:
    out = io.StringIO()
    record("train", load_study(paths.study), "webshop/tiny-s/grpo/seed-0", paths)
    play_path(
        paths.data("webshop"),
        policy=paths.root / "runs" / "webshop" / "tiny-s" / "grpo" / "seed-0",
        out=out,
    )
    assert "Your task is to: Find me" in out.getvalue()
    assert "steps" in out.getvalue().splitlines()[-1]


def test_a_person_buys_and_is_told_the_score(study: Study, tmp_path: Path) -> None:
    prepare(study, "webshop", tmp_path)
    _, goal = open_task(tmp_path)
    assert open_task(tmp_path, goal.task_id)[1] == goal
    setup, out = make_setup(study, "webshop", tmp_path), io.StringIO()
    lines = iter(["search[table lamp]\n", "click[e00000000y]\n", "click[buy now]\n"])
    won = play_task(start_episode(setup, goal), make_human_player(lines, out), out)
    assert not won
    assert "Not won after 3 steps, score 0." in out.getvalue()
    assert "Thank you for shopping with us!" in out.getvalue()


def test_what_is_not_there_does_nothing_and_any_query_is_admissible(
    study: Study, tmp_path: Path
) -> None:
    prepare(study, "webshop", tmp_path)
    start = start_episode(
        make_setup(study, "webshop", tmp_path), load_tasks("webshop", tmp_path, "test")[0]
    )
    for action, idle in (("click[buy now]", True), ("search[lamp]", False), ("dance", True)):
        assert respond(start, f"<think>so</think><action>{action}</action>").nothing_happens == idle
    for action, allowed in (
        ("search[lamp]", True), ("search[]", False), ("click[search]", True), ("click[lamp]", False),
        ("search[a [b]]", False), ("search[x] click[y]", False),
    ):  # fmt: skip
        assert respond(start, f"<think>so</think><action>{action}</action>").admissible == allowed
    results = take_action(start, "search[lamp]")
    for again in ("click[buy now]", "search[lamp]"):
        assert respond(results, f"<think>so</think><action>{again}</action>").nothing_happens


def test_an_agent_reflects_as_a_shopper_and_keeps_its_best_score(study: Study, tmp_path: Path) -> None:
    prepare(study, "webshop", tmp_path)
    setup, goal = make_setup(study, "webshop", tmp_path), load_tasks("webshop", tmp_path, "test")[0]
    best = goal.task_id.split("/")[0].lower()
    # The second attempt buys the first product that it sees; the first one the right product, without its option.
    lines = iter(
        [
            f"search[{goal.goal}]",
            f"click[{best}]",
            "click[buy now]",
            "Buy later.",
            "search[zinc]",
            "search[lamp]",
        ]
    )

    asked: list[str] = []

    class Scripted:
        def sample(
            self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
        ) -> list[list[Sample]]:
            asked.extend(request.prompt for request in requests)
            return [
                [Sample((), (), f"<think>so</think><action>{next(lines, 'look')}</action>", True)]
                for _ in requests
            ]

    (record,) = play_trials(
        setup, [goal], Scripted(), Agent("reflexion", 2), seed=1, temperature=1.0, key=()
    )
    assert not record.episode.won
    assert record.episode.score == 0
    assert 0.3 < record.score < 1
    (reflection,) = [prompt for prompt in asked if "what went wrong" in prompt]
    assert reflection.startswith(
        "\nYou are an expert autonomous agent operating in the WebShop e\u2011commerce"
    )
    assert "ALFRED" not in "".join(asked)


def test_a_description_that_no_prompt_holds_is_cut_in_the_repaired_shop_alone(tmp_path: Path) -> None:
    products = [
        item._replace(description="long " * 4000) for item in read_shop_products("embedded", count=500)
    ]
    prepare_shop(tmp_path / "shop", products)
    catalogue = Catalogue(tmp_path / "shop" / "catalogue")
    goal = load_goals(tmp_path / "shop", "test", catalogue)[0]
    lengths = {}
    for fidelity in ("repaired", "original"):
        episode = start_episode(EpisodeSetup(WebShop(catalogue, fidelity=fidelity), 9, 0), goal)
        for action in ("search[lamp]", f"click[{episode.setup.env.catalogue.product(0).asin.lower()}]"):
            episode = take_action(episode, action)
        item = next(
            action
            for action in episode.setup.env.admissible(episode.state)
            if action.startswith("click[e0")
        )
        page = take_action(take_action(episode, item), "click[description]")
        lengths[fidelity] = len(page.observation)
    assert lengths["repaired"] < 3_100
    assert lengths["original"] > 19_000
