"""The start of a pretrained model: what it learns from, that a killed one ends at the same bytes, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from tests import models
from tests.jobs import do, key_of, prepare, settings_of
from threespo.envs.parsing import parse_response
from threespo.errors import InputError
from threespo.imitation import base_policy, warm_start
from threespo.imitation.alfworld.curriculum import CAREFUL, NOISY
from threespo.imitation.cloning import demonstrations
from threespo.imitation.curriculum import curriculum_of
from threespo.imitation.settings import WarmStartSettings
from threespo.imitation.warm_start import (
    TRAINING_FILE,
    Demonstration,
    WarmCloner,
    demonstration_stage,
    make_demonstrations,
)
from threespo.paths import Paths
from threespo.policy.model import load_policy
from threespo.results.analysis.caveats import list_caveats
from threespo.rng import derive
from threespo.runs.setup import read_weights_source
from threespo.scaling.job_groups import group_jobs
from threespo.scaling.workload import text_lengths
from threespo.study.config import PolicySettings, Study
from threespo.study.load import load_study
from threespo.study.matrix import reference_runs

STUDIES = Path(__file__).parents[2] / "config" / "studies"
WORDS = Path(base_policy.__file__).parent / "alfworld" / "shipped" / "small-s" / "strong"

NAME = "alfworld/big"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The folder of a random model that stands for a pretrained one; every text comes back from its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "random"
    tokenizer = AutoTokenizer.from_pretrained(WORDS)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(model, tmp_path_factory) -> Path:
    """Folder of a study with prepared games."""
    root = tmp_path_factory.mktemp("games")
    prepare(make_study(model), "alfworld", Paths(root).data("alfworld"))
    return root


def make_study(model: Path, bases: int = 1, **warm: Any) -> Study:
    policy = {
        "kind": "pretrained",
        "source": str(model),
        "stands_for": "qwen2.5-1.5b-instruct",
        "max_response_tokens": 12,
        "bases": bases,
        "warm_start": {"examples": 40, "games": 2, "target": 0.0, "batch": 4} | warm,
    }
    games = {"train": 4, "calibration": 4, "valid_seen": 2, "valid_unseen": 2}
    return load_study(
        STUDIES / "smoke.yaml",
        {
            "alfworld": {"games": games, "max_steps": 3},
            "training": {"pool": 4},
            "policies": {"big": policy},
        },
    )


@pytest.fixture
def root(data, tmp_path) -> Path:
    (tmp_path / "data").symlink_to(data / "data")
    return tmp_path


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def policy_folder(root: Path) -> Path:
    return Paths(root).policy("alfworld", "big")


def make_cloner(model: Path, *, in_bfloat16: bool = False) -> WarmCloner:
    policy = load_policy(model)
    examples = [
        Demonstration((5, 6, 7, 8), (9, 10, 11)),
        Demonstration((3, 2), (12, 13)),
        Demonstration((5, 6, 7, 8), (4,)),
    ]
    warm = WarmStartSettings(examples=3, batch=3)
    return WarmCloner(policy, examples, warm, seed=0, in_bfloat16=in_bfloat16)


@pytest.mark.parametrize("limit", [2048, 7])
def test_the_loss_is_that_of_the_stock_model_on_the_responses_alone(model, monkeypatch, limit):
    monkeypatch.setattr(warm_start, "MICRO_BATCH_TOKENS", limit)
    stock = Qwen2ForCausalLM.from_pretrained(model)
    cloner = make_cloner(model)
    (batch,) = cloner.batches
    # Sums of the stock model's loss, each of one demonstration alone, where labels of the prompt are masked.
    total = torch.zeros(())
    for example in batch:
        labels = [-100] * len(example.prompt) + list(example.response)
        loss = stock(input_ids=torch.tensor([example.tokens]), labels=torch.tensor([labels])).loss
        total = total + loss * len(example.response)
    wanted = total / 6
    wanted.backward()

    losses = list(cloner._losses(batch))
    assert (len(losses) > 1) == (limit == 7)
    sum(losses).backward()
    assert sum(losses).item() == pytest.approx(wanted.item(), rel=1e-5)
    ours = dict(cloner.policy.model.named_parameters())
    for name, parameter in stock.named_parameters():
        torch.testing.assert_close(ours[name].grad, parameter.grad, rtol=1e-4, atol=1e-6)


def test_in_bfloat16_products_are_rounded_and_weights_stay_whole(model, monkeypatch):
    monkeypatch.setattr(warm_start, "multiplies_bfloat16", lambda _: True)
    rounded, exact = make_cloner(model, in_bfloat16=True), make_cloner(model)
    (batch,) = exact.batches
    losses = [sum(cloner._losses(batch)) for cloner in (rounded, exact)]
    assert losses[0].item() != losses[1].item()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-2)
    losses[0].backward()
    assert {(p.dtype, p.grad.dtype) for p in rounded.policy.model.parameters()} == {
        (torch.float32, torch.float32)
    }
    # A processor that would compute them by way of float32 gains nothing.
    monkeypatch.setattr(warm_start, "multiplies_bfloat16", lambda _: False)
    assert make_cloner(model, in_bfloat16=True).describe()["products"] == "float32"


def test_demonstrations_are_the_careful_experts_in_states_of_the_noisy_one(model, data):
    settings = settings_of("policy", make_study(model), NAME, Paths(data))
    lesson = curriculum_of(settings)
    stage = demonstration_stage(lesson, settings.warm_start)
    assert (stage.executed, stage.labels) == (NOISY, CAREFUL)
    half, none, many = (
        demonstration_stage(lesson, WarmStartSettings(examples=1, noise=noise)).executed
        for noise in (0.5, 0.0, 5.0)
    )
    assert (half.random_action, half.failing_action, half.overlook) == (0.05, 0.02, 0.0)
    assert none == CAREFUL
    assert many.random_action == 0.5

    policy = load_policy(model)
    examples = make_demonstrations(policy, lesson, settings.warm_start, 7, "policies.big.warm_start")
    assert len(examples) == 40
    stream = derive(7, "warm start")
    pairs = demonstrations(lesson.expert, lesson.setup, lesson.tasks(stream, 0.0), stage, stream)
    for example, (prompt, response) in zip(examples, pairs, strict=False):
        # What training and evaluation give the model, and what they would read of it.
        assert list(example.prompt) == policy.encode_prompt(prompt)
        assert example.response[-1] in policy.eos_ids
        assert policy.decode([example.response]) == [response]
        assert parse_response(response, 100).valid


class Killed(Exception):
    """The process ends here."""


def test_a_killed_start_goes_on_to_the_same_bytes(model, root, data, tmp_path, monkeypatch, capsys):
    study = make_study(model, bases=2)
    do("policy", study, NAME, Paths(root))
    wanted = files_below(policy_folder(root))
    assert {"base/model.safetensors", "base-1/model.safetensors", "policy.json"} <= wanted.keys()
    # Nothing unfinished stays.
    assert not any((root / "checkpoints").rglob("*.pt"))

    again = tmp_path / "again"
    again.mkdir()
    (again / "data").symlink_to(data / "data")
    monkeypatch.setattr(warm_start, "CHECKPOINT_SECONDS", 0.0)
    step = warm_start.take_step
    measure = warm_start.measure_play
    taken = []

    def kill_in_step(*arguments):
        taken.append(None)
        # In the second base, after base 1 was finished and measured: ten steps each.
        if len(taken) in (4, 18):
            raise Killed
        return step(*arguments)

    def kill_in_play(*_):
        raise Killed

    monkeypatch.setattr(warm_start, "take_step", kill_in_step)
    with pytest.raises(Killed):
        do("policy", study, NAME, Paths(again))
    assert not policy_folder(again).exists()
    monkeypatch.setattr(warm_start, "measure_play", kill_in_play)
    with pytest.raises(Killed):
        do("policy", study, NAME, Paths(again))
    # Three steps, the one that was killed, and the seven that were left.
    assert len(taken) == 11
    monkeypatch.setattr(warm_start, "measure_play", measure)
    with pytest.raises(Killed):
        do("policy", study, NAME, Paths(again))
    do("policy", study, NAME, Paths(again))
    assert "resumed after step 3" in capsys.readouterr().err
    assert files_below(policy_folder(again)) == wanted
    assert not policy_folder(again).with_name("warm-start").exists()


def test_a_damaged_checkpoint_is_named_and_training_begins_anew(model, tmp_path, capsys):
    whole, damaged = make_cloner(model), make_cloner(model)
    whole.train(tmp_path / "none.pt")
    (tmp_path / "state.pt").write_bytes(b"PK half")
    damaged.train(tmp_path / "state.pt")
    assert "state.pt: damaged" in capsys.readouterr().err
    for one, other in zip(
        whole.policy.model.parameters(), damaged.policy.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_the_folder_says_what_it_is_and_runs_take_turns_with_its_bases(model, root):
    study = make_study(model, bases=2)
    do("policy", study, NAME, Paths(root))
    folder = policy_folder(root)
    description = json.loads((folder / "policy.json").read_text())
    assert description["source"] == str(model)
    assert description["warm_start"]["examples"] == 40
    assert description["bases"] == 2
    first, second = description["base"], description["further_bases"][0]
    assert (first["seed"], second["seed"]) == (20260101, 20260102)
    assert first["examples"] == 40
    assert first["steps"] == 10
    assert first["tokens"] > first["response_tokens"] > 0
    assert first["last_loss"] < first["first_loss"]
    assert first["measured_on"] == 2
    assert {"success_t1.0", "valid_format_t0.4", "admissible_t1.0"} <= first.keys()
    # Equal jobs write equal bytes, so no time stands in it.
    assert "seconds" not in json.dumps(description)
    assert json.loads((folder / "base" / TRAINING_FILE).read_text()).items() <= first.items()

    assert (folder / "base/model.safetensors").read_bytes() != (
        folder / "base-1/model.safetensors"
    ).read_bytes()
    sources = [Path(read_weights_source(folder, "grpo", seed)).name for seed in (0, 1, 2)]
    assert sources == ["base", "base-1", "base"]
    rows = [(run.method, run.seed) for run in reference_runs(study) if run.policy == "big"]
    assert [row for row in rows if row[0] == "base"][:2] == [("base", 0), ("base", 1)]
    assert "strong" not in {method for method, _ in rows}
    assert load_policy(folder / "base-1").template is not None
    (sentence,) = (text for text in list_caveats(study) if "big is a pretrained model" in text)
    assert "its 2 bases are that model, cloned on 40 demonstrations" in sentence

    # Without a warm start the description alone is left.
    plain = study.model_copy(
        update={
            "policies": {
                "big": study.policies["big"].model_copy(update={"warm_start": None, "bases": 1})
            }
        }
    )
    do("policy", plain, NAME, Paths(root))
    assert list(files_below(folder)) == ["policy.json"]
    assert read_weights_source(folder, "grpo", 1) == str(model)


def test_a_bfloat16_policy_is_kept_in_bfloat16(model, root):
    study = make_study(model, examples=8)
    policy = study.policies["big"].model_copy(update={"dtype": "bfloat16"})
    do("policy", study.model_copy(update={"policies": {"big": policy}}), NAME, Paths(root))
    saved = json.loads((policy_folder(root) / "base/config.json").read_text())
    assert saved["dtype"] == "bfloat16"


def test_a_start_below_its_target_is_refused_and_a_lower_one_needs_no_training(model, root, monkeypatch):
    folder = policy_folder(root)
    do("policy", make_study(model, examples=8), NAME, Paths(root))
    earlier = files_below(folder)
    high = make_study(model, target=1.0)
    with pytest.raises(
        InputError, match=r"policies\.big\.warm_start: the clone of 40 demonstrations wins 0\.0% of 2"
    ):
        do("policy", high, NAME, Paths(root))
    assert files_below(folder) == earlier

    def train(*_):
        raise AssertionError("it was trained already")

    monkeypatch.setattr(WarmCloner, "train", train)
    do("policy", make_study(model, target=0.0), NAME, Paths(root))
    assert json.loads((folder / "policy.json").read_text())["base"]["examples"] == 40


def test_models_that_cannot_be_cloned_are_refused_before_anything_is_trained(
    model, root, tmp_path, monkeypatch
):
    plain = tmp_path / "plain"
    load_policy(model).model.save_pretrained(plain)
    tokenizer = AutoTokenizer.from_pretrained(WORDS)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(plain)
    with pytest.raises(
        InputError, match=r"policies\.big\.warm_start: the tokenizer of .* has no chat template"
    ):
        do("policy", make_study(plain), NAME, Paths(root))

    # Words of its own only.
    words = models.policy()
    words.model.save_pretrained(tmp_path / "words")
    words.tokenizer.save_pretrained(tmp_path / "words")
    with pytest.raises(InputError, match="the tokenizer does not give back what it is given"):
        do("policy", make_study(tmp_path / "words"), NAME, Paths(root))

    study = make_study(model)
    short = study.policies["big"].model_copy(update={"max_prompt_tokens": 16})
    with pytest.raises(InputError, match=r"max_prompt_tokens is 16, and .* reads 512"):
        do("policy", study.model_copy(update={"policies": {"big": short}}), NAME, Paths(root))
    assert not policy_folder(root).exists()


def test_a_start_changes_the_key_of_no_other_policy(model):
    started = make_study(model)
    plain = started.model_copy(
        update={"policies": {"big": started.policies["big"].model_copy(update={"warm_start": None})}}
    )
    fields = {"warm_start", "sampling", "threads"}
    assert fields <= key_of("policy", started, NAME).keys()
    assert not fields & key_of("policy", plain, NAME).keys()
    tiny = load_study(STUDIES / "smoke.yaml")
    assert not fields & key_of("policy", tiny, "alfworld/tiny-s").keys()
    assert "code" not in key_of("policy", started, NAME)
    # A name of the catalogue is the repository at its commit, or the weights of its package.
    for source, wanted in (
        ("qwen2.5-7b", {"source": "Qwen/Qwen2.5-7B-Instruct", "given": None}),
        ("smollm2-135m", {"source": "smollm2-135m", "revision": None, "given": "b2da5d5a6c26fc58"}),
    ):
        policy = plain.policies["big"].model_copy(update={"source": source})
        named = plain.model_copy(update={"policies": {"big": policy}})
        assert wanted.items() <= key_of("policy", named, NAME).items()


@pytest.mark.parametrize(
    ("source", "stands_for", "warm", "wanted"),
    [
        ("qwen2.5-1.5b", "qwen2.5-1.5b-instruct", None, True),
        ("some/folder", "qwen2.5-1.5b-instruct", None, True),
        ("smollm2-135m", "qwen2.5-1.5b-instruct", None, False),
        ("qwen2.5-7b", "qwen2.5-1.5b-instruct", None, False),
        ("qwen2.5-1.5b", "qwen2.5-1.5b-instruct", {"examples": 5}, False),
    ],
)
def test_only_the_model_itself_has_the_papers_absolute_success(source, stands_for, warm, wanted):
    policy = PolicySettings(
        kind="pretrained",
        source=source,
        stands_for=stands_for,
        warm_start=WarmStartSettings(**warm) if warm else None,
    )
    assert policy.is_model_itself is wanted


def test_a_plan_counts_what_a_start_reads_draws_and_learns(model):
    study = make_study(model, bases=2)
    (group,) = (
        group for group in group_jobs(study) if group.name == "alfworld/big" and group.stage == "policy"
    )
    text = text_lengths("alfworld", study.policies["big"])
    assert group.work.packed == 2 * 40 * (text.prompt + text.response)
    assert group.work.scored == 2 * 40 * text.response
    # Forward and backward, once; steps of four demonstrations.
    assert (group.work.passes, group.work.steps) == (3.0, 20)
    # Two games of three steps at two temperatures, for each base.
    assert group.work.generations == 2 * 2 * 2 * 3
    assert group.shape is not None
    # Weights, gradients and two moments in float32.
    assert group.checkpoint == 12 * group.shape.parameters
