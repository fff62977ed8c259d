"""The shipped base policy: made by the present recipe, strong where it should be, weak where it should be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import do, load_tasks, prepare, settings_of
from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.episode import EpisodeSetup
from threespo.errors import InputError
from threespo.imitation import base_policy
from threespo.imitation.alfworld.curriculum import CAREFUL, NOISY, make_recipe
from threespo.imitation.curriculum import EarlyStop, Recipe, Stage, TinyModelShape, curriculum_of
from threespo.imitation.settings import SIZES
from threespo.paths import Paths
from threespo.runs.setup import read_weights_source
from threespo.study.config import Study
from threespo.study.load import load_study
from threespo.study.matrix import reference_runs

SMOKE = Path(__file__).parents[2] / "config" / "studies" / "smoke.yaml"


@pytest.fixture(scope="module")
def study() -> Study:
    games = {"train": 4, "calibration": 4, "valid_seen": 2, "valid_unseen": 2}
    return load_study(SMOKE, {"alfworld": {"games": games}, "training": {"pool": 4}})


@pytest.fixture(scope="module")
def data(study, tmp_path_factory) -> Path:
    """Folder of a study with the prepared games."""
    root = tmp_path_factory.mktemp("alfworld")
    prepare(study, "alfworld", Paths(root).data("alfworld"))
    return root


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> tuple[Study, Path]:
    """The study of `make reproduce`, and its folder with the prepared shop."""
    study, root = load_study(SMOKE), tmp_path_factory.mktemp("webshop")
    prepare(study, "webshop", Paths(root).data("webshop"))
    return study, root


def shipped(env: str, name: str) -> Path:
    return Path(base_policy.__file__).parent / env / "shipped" / name


def provided(study: Study, name: str, data: Path, root: Path) -> Path:
    """Run the policy stage on the data of another folder; return the policy's folder."""
    (root / "data").symlink_to(data / "data")
    do("policy", study, name, Paths(root))
    return Paths(root).policy(*name.split("/"))


def curriculum(study: Study, name: str, root: Path, size: str = "s"):
    settings = settings_of("policy", study, name, Paths(root))
    return curriculum_of(settings.model_copy(update={"size": SIZES[size], "size_name": size}))


@pytest.mark.parametrize("policy", ["tiny-s", "tiny-m"])
def test_studies_use_the_shipped_policies(data, tmp_path, policy):
    """Fails when games, expert, prompts, tokenizer or recipe changed and the policy was not built anew."""
    mini = load_study(SMOKE.with_name("mini.yaml"))
    made, known = (
        provided(mini, f"alfworld/{policy}", data, tmp_path),
        shipped("alfworld", f"small-{policy[-1]}"),
    )
    for name in ("policy.json", "base/model.safetensors", "strong/tokenizer.json"):
        assert (made / name).read_bytes() == (known / name).read_bytes()


@pytest.mark.parametrize("policy", ["tiny-s", "tiny-m"])
def test_studies_use_the_shipped_policies_of_the_shop(shop, tmp_path, policy):
    study = load_study(SMOKE.with_name("mini.yaml"))
    made, known = (
        provided(study, f"webshop/{policy}", shop[1], tmp_path),
        shipped("webshop", f"500-{policy[-1]}"),
    )
    for name in ("policy.json", "base/model.safetensors", "strong/tokenizer.json"):
        assert (made / name).read_bytes() == (known / name).read_bytes()


@pytest.mark.parametrize(("size", "count"), [("s", 80), pytest.param("m", 40, marks=pytest.mark.long)])
def test_what_is_claimed_of_the_shops_policies_holds_on_test_goals(shop, size, count):
    """Goals that nobody chose by; bounds are the claims less three standard errors or more."""
    study, data = shop
    facts = json.loads((shipped("webshop", f"500-{size}") / "policy.json").read_text())
    assert facts["strong"]["success_t1.0"] >= 0.65
    assert facts["strong"]["binding"]["product_recall"] >= 0.85
    assert 0.05 <= facts["base"]["success_t1.0"] <= 0.3
    assert facts["base"]["valid_format_t1.0"] >= 0.95
    lesson = curriculum(study, "webshop/tiny-s", data, size)
    goals = load_tasks("webshop", data / "data" / "webshop", "test")[:count]
    folder = shipped("webshop", f"500-{size}")
    strong, base = (
        base_policy.measure_policy(folder / name, lesson, goals, 3) for name in ("strong", "base")
    )
    assert strong["success_t1.0"] >= 0.5
    assert strong["admissible_t1.0"] >= 0.8
    assert base["success_t1.0"] <= 0.3
    assert base_policy.measure_binding(folder / "strong", lesson, goals, 3)["product_recall"] >= 0.75


EARLY = {"alfworld": ("small-s-early", "take_recall"), "webshop": ("500-s-early", "option_recall")}


@pytest.mark.parametrize("env", EARLY)
def test_studies_use_the_shipped_early_policies(env, data, shop, tmp_path):
    """And the strong clone is that of the planted base: both recipes go through the same stages."""
    study = load_study(SMOKE, {"policies": {"tiny-s": {"weakness": "early"}}})
    made = provided(study, f"{env}/tiny-s", shop[1] if env == "webshop" else data, tmp_path)
    known = shipped(env, EARLY[env][0])
    planted = known.with_name(known.name.removesuffix("-early"))
    for name in ("policy.json", "base/model.safetensors"):
        assert (made / name).read_bytes() == (known / name).read_bytes()
    assert weights(made / "strong") == weights(planted / "strong")
    assert weights(made / "base") != weights(planted / "base")


@pytest.mark.parametrize("env", EARLY)
def test_what_is_claimed_of_the_early_policies_holds_on_tasks_nobody_chose_by(env, study, data, shop):
    """Well-formed, weak, and yet bound to what it reads; bounds are the claims less three standard errors or more."""
    name, recall = EARLY[env]
    facts = json.loads((shipped(env, name) / "policy.json").read_text())
    assert 0.1 <= facts["base"]["success_t1.0"] <= 0.3
    assert facts["base"]["valid_format_t1.0"] >= 0.95
    lesson = curriculum(
        study if env == "alfworld" else shop[0], f"{env}/tiny-s", data if env == "alfworld" else shop[1]
    )
    if env == "alfworld":
        tasks = [compile_game(record) for record in generate_games("valid_unseen", 60, 991, "small")]
    else:
        tasks = load_tasks(env, shop[1] / "data" / env, "test")[:60]
    base = base_policy.measure_policy(shipped(env, name) / "base", lesson, tasks, 3)
    assert 0.02 <= base["success_t1.0"] <= 0.4
    assert base["valid_format_t1.0"] >= 0.93
    bound = base_policy.measure_binding(shipped(env, name) / "base", lesson, tasks, 3)
    assert bound[recall] >= facts["base"]["binding"][recall] - 0.25


def test_another_recipe_does_not_use_it(study, data):
    known = json.loads((shipped("alfworld", "small-s") / "policy.json").read_text())["fingerprint"]
    lesson = curriculum(study, "alfworld/tiny-s", data)
    assert base_policy.recipe_fingerprint(lesson) == known
    assert (
        base_policy.recipe_fingerprint(replace(lesson, recipe=make_recipe(SIZES["m"], "small"))) != known
    )
    assert (
        base_policy.recipe_fingerprint(replace(lesson, setup=EpisodeSetup(Alfworld(), 15, 1))) != known
    )


@pytest.mark.parametrize("size", ["s", "m"])
def test_what_is_claimed_of_the_shipped_policies(size):
    facts = json.loads((shipped("alfworld", f"small-{size}") / "policy.json").read_text())
    assert facts["strong"]["success_t1.0"] >= 0.7
    assert facts["strong"]["binding"]["take_recall"] >= 0.9
    assert facts["strong"]["binding"]["take_false_positives"] <= 0.1
    assert 0.1 <= facts["base"]["success_t1.0"] <= 0.3
    assert facts["base"]["valid_format_t1.0"] >= 0.95


def test_the_larger_policy_is_about_four_times_the_smaller():
    files = [shipped("alfworld", f"small-{size}") / "policy.json" for size in "sm"]
    small, large = (json.loads(file.read_text())["parameters"] for file in files)
    assert 3.5 < large / small < 4.5


@pytest.mark.parametrize(("size", "count"), [("s", 80), pytest.param("m", 40, marks=pytest.mark.long)])
def test_the_claims_hold_on_games_nobody_chose_by(study, data, size, count):
    """Fresh games in unseen rooms; bounds are the claims less three standard errors or more."""
    lesson = curriculum(study, "alfworld/tiny-s", data, size)
    games = [compile_game(record) for record in generate_games("valid_unseen", count, 991, "small")]
    folder = shipped("alfworld", f"small-{size}")
    strong, base = (
        base_policy.measure_policy(folder / name, lesson, games, 3) for name in ("strong", "base")
    )
    assert strong["success_t1.0"] >= 0.55
    assert base["success_t1.0"] <= 0.35
    assert base["valid_format_t1.0"] >= 0.93
    bound = base_policy.measure_binding(folder / "strong", lesson, games, 3)
    assert bound["take_recall"] >= 0.8
    assert bound["take_false_positives"] <= 0.1


@pytest.fixture
def brief(study, data, monkeypatch):
    """Builds tiny policies of 20,000 tokens; what is measured of them comes from a list, pairs of success and format."""
    lesson = curriculum(study, "alfworld/tiny-s", data)
    games = load_tasks("alfworld", data / "data" / "alfworld", "train")
    stage = Stage(10_000, 2e-3, 1.0, 1.0, NOISY, CAREFUL, batch=8)

    def build(weakening, measured, folder, **more):
        values = iter(measured)
        facts = lambda *_: dict(zip(("success_t1.0", "valid_format_t1.0"), next(values), strict=True))  # noqa: E731
        monkeypatch.setattr(base_policy, "measure_policy", facts)
        plan = Recipe(TinyModelShape(32, 1, 2, 64), (stage, stage), weakening, target=0.2, **more)
        return base_policy.build_policy(replace(lesson, recipe=plan), games, folder)

    return build


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_an_early_stop_takes_the_first_clone_that_is_good_enough_and_changes_nothing(brief, tmp_path):
    """The first is too early, the second wins too little, the third malforms. Looking leaves the strong policy as it is."""
    planted = brief(
        Stage(1, 1e-3, 1.0, 1.0, NOISY, None), [(0.9, 1.0)], tmp_path / "planted", most_weakening_steps=0
    )
    measured = [(0.2, 1.0), (0.5, 0.94), (0.4, 0.95), (0.9, 1.0)]
    early = brief(EarlyStop(4_500, 4_000), measured, tmp_path / "early")
    assert weights(tmp_path / "early" / "strong") == weights(tmp_path / "planted" / "strong")
    assert early["strong"] == planted["strong"]
    assert (early["base"]["success_t1.0"], early["base"]["valid_format_t1.0"]) == (0.4, 0.95)
    assert 18_000 <= early["base"]["tokens"] < 20_000, (
        "the fourth place: 8,000 tokens into the second stage of 10,000"
    )
    assert weights(tmp_path / "early" / "base") != weights(tmp_path / "early" / "strong")


def test_further_bases_have_seeds_of_their_own_and_runs_take_turns(study, data, tmp_path, monkeypatch):
    several = study.model_copy(
        update={"policies": {"tiny-s": study.policies["tiny-s"].model_copy(update={"bases": 3})}}
    )
    stage = Stage(2_000, 2e-3, 1.0, 1.0, NOISY, CAREFUL, batch=8)
    plan = Recipe(TinyModelShape(32, 1, 2, 64), (stage, stage), EarlyStop(500, 500), target=0.2)
    lesson = replace(curriculum(study, "alfworld/tiny-s", data), recipe=plan, shipped=tmp_path / "none")
    monkeypatch.setattr(base_policy, "curriculum_of", lambda _: lesson)
    # Every clone wins enough: the first that is measured is the base.
    played = {"success_t1.0": 0.5, "valid_format_t1.0": 1.0}
    monkeypatch.setattr(base_policy, "measure_policy", lambda *_: played)
    monkeypatch.setattr(base_policy, "measure_binding", lambda *_: {})

    folder = provided(several, "alfworld/tiny-s", data, tmp_path)
    names = ("base", "base-1", "base-2")
    assert {path.name for path in folder.iterdir()} == {*names, "strong", "policy.json"}
    assert len({weights(folder / name) for name in names}) == 3
    description = json.loads((folder / "policy.json").read_text())
    assert description["bases"] == 3
    first = description["recipe"]["seed"]
    assert [base["seed"] for base in description["further_bases"]] == [first + 1, first + 2]
    # They stop when they are found, before half of the recipe is spent.
    assert all(base["tokens"] < 2_000 for base in description["further_bases"])

    sources = [read_weights_source(folder, "grpo", seed) for seed in (0, 1, 2, 3, 100)]
    assert [Path(source).name for source in sources] == ["base", "base-1", "base-2", "base", "base-1"]
    assert Path(read_weights_source(folder, "strong", 1)).name == "strong"
    assert [
        run.seed for run in reference_runs(several) if run.method == "base" and run.env == "alfworld"
    ] == [0, 1, 2]


def test_a_clone_that_never_wins_enough_is_the_base(brief, tmp_path):
    facts = brief(EarlyStop(0, 7_500), [(0.0, 1.0)] * 2 + [(0.1, 1.0)] * 2, tmp_path)
    assert facts["base"]["tokens"] >= 20_000
    assert weights(tmp_path / "base") == weights(tmp_path / "strong")


def test_a_broken_shipped_description_is_named(study, data, tmp_path, monkeypatch):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "policy.json").write_text("{")
    broken = replace(curriculum(study, "alfworld/tiny-s", data), shipped=tmp_path / "broken")
    monkeypatch.setattr(base_policy, "curriculum_of", lambda _: broken)
    with pytest.raises(
        InputError, match=r"policy\.json: not readable as JSON .* restore it with git checkout"
    ):
        provided(study, "alfworld/tiny-s", data, tmp_path)
    assert not (tmp_path / "policy" / "alfworld" / "tiny-s").exists()
