"""The embedded base policies: tiny Qwen2 models that can play, made here, in minutes, from scratch.

``tiny-s`` stands in for the paper's 1.5B model and ``tiny-m`` for its 7B. Both go through the same code as those: a
Hugging Face folder with tokenizer and chat template.

The recipe has two parts. *Strong*: behaviour cloning of a scripted explorer until objects are truly bound (see
``binding``). *Base*: the strong policy, fine-tuned for a moment on a careless explorer until it wins few games. The base
is where all training starts: it keeps the skills but not the habits, so reinforcement learning has something to gain.
Part of what it gains is un-learning injected habits, and the report says so. The strong policy is shown as the ceiling.
"""

import hashlib
import itertools
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_stream
from threespo.envs.base import Task
from threespo.envs.episode import World, begin, respond
from threespo.errors import InputError
from threespo.files import atomic_folder, atomic_json
from threespo.policy.explorer import Carelessness, decide
from threespo.rng import derive, generator

if TYPE_CHECKING:
    from threespo.policy.cloning import Stage, TaskStream
    from threespo.study.config import AlfworldSettings, Study

SHIPPED = Path(__file__).parent / "shipped"
"""Results of the recipe that come with the repository, one folder each, named after what they were made for."""

CARELESS = Carelessness(random_action=0.1, random_goto=0.5, overlook=0.55, skip_treatment=0.5, wrong_object=0.2)
"""The explorer that makes the strong policy weak."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a Qwen2 model."""

    hidden: int
    layers: int
    heads: int
    mlp: int


SHAPES = {"s": Shape(128, 3, 4, 384), "m": Shape(256, 3, 8, 768)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a base policy, besides the games."""

    shape: Shape
    stages: tuple["Stage", ...]
    weakening: "Stage"
    """One step of weakening; repeated until the base is weak enough."""
    target: float = 0.22
    """Weakening stops at this success rate on calibration games at temperature 1.0 (the goal is 10-30 %)."""
    most_weakening_steps: int = 12
    seed: int = 20260101


def recipe(size: str, difficulty: str) -> Recipe:
    """Return the recipe for a size (``s``, ``m``) and games (``small``, ``medium``, ``full``, ``real``)."""
    from threespo.policy.cloning import Stage

    # Larger rooms have longer prompts: the number of sequences, not of tokens, is what is kept.
    length = {"small": 1.0, "medium": 1.5, "full": 2.5, "real": 2.5}[difficulty]
    # A larger network learns more from a token, and takes longer over it.
    rate, effort = {"s": (1.0, 1.0), "m": (0.6, 0.75)}[size]
    million = int(1_000_000 * length * effort)
    whole = Stage(tokens=3 * million, learning_rate=2e-3 * rate, prompt_weight=1.0, decision_weight=1.0)
    respond_well = Stage(tokens=8 * million, learning_rate=1.5e-3 * rate, prompt_weight=0.1, decision_weight=4.0)
    dare = Stage(
        tokens=7 * million if difficulty != "real" else int(7_500_000 * effort),
        learning_rate=1.2e-3 * rate,
        prompt_weight=0.1,
        decision_weight=6.0,
        take_weight=3.0,
        generated_share=0.5 if difficulty == "real" else 0.0,
    )
    return Recipe(
        shape=SHAPES[size],
        stages=(whole, respond_well, dare),
        # The larger one forgets its format before it forgets how to play.
        target={"s": 0.22, "m": 0.25}[size],
        weakening=Stage(
            tokens=million // 10,
            learning_rate=5e-4 * rate,
            prompt_weight=0.0,
            decision_weight=1.0,
            executed=CARELESS,
            labels=None,
            generated_share=0.5 if difficulty == "real" else 0.0,
        ),
    )


def provide(study: "Study", env: str, policy_name: str, data: Path, out: Path) -> None:
    """The policy stage: put ``base/``, ``strong/`` and ``policy.json`` into ``out``.

    A shipped policy is used if it was made by exactly this recipe for these games, unless ``policy_build`` is set;
    otherwise the recipe runs. A pretrained model is not copied: ``policy.json`` names it.
    """
    settings = study.policies[policy_name]
    if settings.kind == "pretrained":
        atomic_json(out / "policy.json", {"kind": "pretrained", "source": settings.source})
        return
    alfworld = study.alfworld
    difficulty = alfworld.difficulty if alfworld.source == "embedded" else "real"
    plan = recipe(settings.size, difficulty)
    world = World(Alfworld(), alfworld.max_steps, alfworld.history_length)
    tasks = task_stream(alfworld, data)
    fingerprint = recipe_fingerprint(plan, world, tasks)
    shipped = SHIPPED / f"alfworld-{difficulty}-{settings.size}"
    with atomic_folder(out) as folder:
        if not study.policy_build and _matches(shipped, fingerprint):
            print(f"policy {policy_name}: the shipped one was made by this recipe and is used", file=sys.stderr)
            shutil.copytree(shipped, folder, dirs_exist_ok=True)
        else:
            print(f"policy {policy_name}: built from its recipe", file=sys.stderr)
            calibration = load_tasks(data, "calibration")
            facts = build(plan, world, tasks, calibration, folder)
            atomic_json(folder / "policy.json", {"kind": "tiny", "fingerprint": fingerprint, **facts})


def build(
    plan: Recipe, world: World, tasks: "TaskStream", calibration: list[Task], folder: Path
) -> dict[str, Any]:
    """Run the recipe; write ``strong/`` and ``base/`` into ``folder`` and return what was measured."""
    import torch

    from threespo.policy import linear
    from threespo.policy.cloning import Cloner

    torch.set_num_threads(1)
    torch.manual_seed(derive(plan.seed, "weights") % 2**63)
    tokenizer = _tokenizer(plan, world, tasks)
    model = new_model(plan.shape, tokenizer)
    linear.install(model)
    cloner = Cloner(model, tokenizer, world, tasks, plan.seed)
    for stage in plan.stages:
        cloner.run(stage)
    save(model, tokenizer, folder / "strong")
    facts: dict[str, Any] = {"recipe": asdict(plan)}
    facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    facts["strong"] = measure(folder / "strong", world, calibration, plan.seed)
    facts["strong"]["binding"] = binding(folder / "strong", world, calibration, plan.seed)
    print(f"strong policy: {facts['strong']}", file=sys.stderr)
    for steps in range(1, plan.most_weakening_steps + 1):
        cloner.run(plan.weakening)
        save(model, tokenizer, folder / "base")
        facts["base"] = {"weakening_steps": steps, **measure(folder / "base", world, calibration, plan.seed)}
        print(f"base policy: {facts['base']}", file=sys.stderr)
        if facts["base"]["success_t1.0"] <= plan.target:
            break
    return facts


def new_model(shape: Shape, tokenizer: Any) -> Any:
    """Return a randomly initialised Qwen2 model for the tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face folder."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def task_stream(settings: "AlfworldSettings", data: Path) -> "TaskStream":
    """Return a stream of fresh embedded games, or of the real training games over and over, mixed with generated ones."""

    def fresh(stream: int, difficulty: str) -> Iterator[Task]:
        return (compile_game(record) for record in generate_stream("train", stream, difficulty))

    if settings.source == "embedded":
        return lambda stream, _: fresh(stream, settings.difficulty)
    games = load_tasks(data, "train")

    def mixed(stream: int, generated_share: float) -> Iterator[Task]:
        generated = fresh(stream, "full")
        for lap in itertools.count():
            order, rng = list(games), generator(stream, "lap", lap)
            rng.shuffle(order)
            for game in order:
                while rng.random() < generated_share:
                    yield next(generated)
                yield game

    return mixed


def load_tasks(data: Path, split: str) -> list[Task]:
    """Return the compiled games of one split of a study's data folder."""
    from threespo.envs.alfworld.sources import load

    return [compile_game(record) for record in load(data, split)]


def measure(folder: Path, world: World, tasks: list[Task], seed: int) -> dict[str, float]:
    """Return success at temperatures 1.0 and 0.4 and format validity (at 1.0) on ``tasks``, each played once."""
    from threespo.runs.rollout import play_episodes

    sampler = _sampler(folder)
    facts: dict[str, float] = {}
    for temperature in (1.0, 0.4):
        records = play_episodes(world, tasks, sampler, seed=seed, temperature=temperature, key=("calibration",))
        steps = sum(record.episode.steps for record in records)
        facts[f"success_t{temperature}"] = sum(record.episode.won for record in records) / len(records)
        facts[f"valid_format_t{temperature}"] = 1 - sum(record.invalid_format for record in records) / steps
        facts[f"admissible_t{temperature}"] = 1 - sum(record.inadmissible for record in records) / steps
    return facts


def binding(folder: Path, world: World, tasks: list[Task], seed: int) -> dict[str, float]:
    """Test whether the policy binds names to what is visible, on states of the careful explorer.

    Returns recall (share of states with the wanted object in reach in which the policy takes it) and the rate of false
    positives (share of searching states without it in which the policy tries to take it). Success alone proves neither.
    """
    from threespo.protocol import SampleRequest

    states = []
    for task in tasks:
        rng, episode = generator(seed, "binding", task.task_id), begin(world, task)
        while not episode.done:
            decision = decide(episode, rng)
            if decision.thought.split()[1] != "have":
                states.append((episode, decision.action))
            episode = respond(episode, f"<think></think><action>{decision.action}</action>").episode
    requests = tuple(SampleRequest(episode.prompt, 1, ("binding", i)) for i, (episode, _) in enumerate(states))
    hits = [0, 0]
    false = [0, 0]
    samples = _sampler(folder).sample(requests, seed=seed, temperature=1.0)
    for (episode, wanted), (sample,) in zip(states, samples, strict=True):
        action = respond(episode, sample.text).action
        if wanted.startswith("take "):
            # Any object of the wanted kind that is there will do.
            taken, place = wanted.split(" from ")
            hits[0] += action.startswith(taken.rsplit(" ", 1)[0] + " ") and action.endswith(f" from {place}")
            hits[1] += 1
        else:
            false[0] += action.startswith("take ")
            false[1] += 1
    return {
        "take_recall": hits[0] / max(1, hits[1]),
        "take_states": hits[1],
        "take_false_positives": false[0] / max(1, false[1]),
        "search_states": false[1],
    }


def recipe_fingerprint(plan: Recipe, world: World, tasks: "TaskStream") -> str:
    """Return a hash of the recipe and of the first demonstrations that it leads to.

    So it changes if games, explorer, prompts or tokenizer come out differently, and not with how the code is written.
    """
    from threespo.policy.cloning import demonstrations

    digest = hashlib.sha256(json.dumps(asdict(plan), sort_keys=True).encode())
    for number, stage in enumerate((*plan.stages, plan.weakening)):
        games = tasks(derive(plan.seed, "fingerprint", number), stage.generated_share)
        pairs = demonstrations(world, games, stage, plan.seed)
        for prompt, response in itertools.islice(pairs, 200):
            digest.update(prompt.encode() + b"\0" + response.encode() + b"\0")
    return digest.hexdigest()


def _tokenizer(plan: Recipe, world: World, tasks: "TaskStream") -> Any:
    from threespo.policy.cloning import demonstrations
    from threespo.policy.tokenizer import build_tokenizer, vocabulary

    games = list(itertools.islice(tasks(derive(plan.seed, "tokenizer"), 0.0), 600))
    noisy = replace(plan.stages[0], labels=None)
    pairs = itertools.islice(demonstrations(world, iter(games), noisy, plan.seed), 6000)
    names = {name.split()[0] for game in games for name in (*game.receptacles, *game.objects)}  # type: ignore[attr-defined]
    return build_tokenizer(vocabulary((text for pair in pairs for text in pair), names))


def _sampler(folder: Path) -> Any:
    from threespo.policy.model import load_policy
    from threespo.policy.sampler import TorchSampler

    return TorchSampler(load_policy(folder, dtype="float32"), max_new_tokens=32, max_batch_rows=256, max_prompt_tokens=4096)


def _matches(shipped: Path, fingerprint: str) -> bool:
    file = shipped / "policy.json"
    if not file.exists():
        return False
    try:
        return bool(json.loads(file.read_text())["fingerprint"] == fingerprint)
    except (json.JSONDecodeError, KeyError) as error:
        raise InputError(f"{file}: the shipped policy's description is broken; restore it with git checkout") from error
