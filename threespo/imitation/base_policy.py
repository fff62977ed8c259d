"""The embedded base policies: tiny Qwen2 models that can play, trained here, in minutes, from scratch.

``tiny-s`` stands in for the paper's 1.5B model and ``tiny-m`` for its 7B. Both go through the same code as those: a
Hugging Face folder with tokenizer and chat template.

The recipe has two parts. *Strong*: behaviour cloning of a scripted expert until the policy acts on what the prompt shows
(measured by ``measure_binding``). *Base*: a policy whose success rate is low, from which all reinforcement learning starts. It comes
in two kinds, ``weakness`` in a study. ``planted``: the strong policy, fine-tuned briefly on a careless expert. It is still
able to do what the strong policy does but seldom does it, so there is something to gain; part of the gain is to undo the
planted faults, and the report says so. ``early``: the clone as it was when its success rate first passed a target on the way
to the strong policy. Its faults are what it had not learned yet. The strong policy is shown as the ceiling of both.
"""

import hashlib
import itertools
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from threespo.agents.rollout import play_episodes
from threespo.envs.base import Task
from threespo.envs.episode import start_episode, take_action
from threespo.envs.parsing import parse_response
from threespo.envs.registry import environment
from threespo.errors import InputError
from threespo.files import copy_folder, read_json, replace_folder, write_json
from threespo.hub import fetch_model
from threespo.imitation.curriculum import (
    Curriculum,
    EarlyStop,
    Recipe,
    Stage,
    TinyModelShape,
    Turn,
    curriculum_of,
)
from threespo.imitation.settings import BasePolicySettings
from threespo.paths import POLICY_FILE
from threespo.rng import derive, generator

MIN_WELL_FORMED = 0.95
"""A base policy has at least this share of well-formed responses at temperature 1.0."""


def provide_policy(settings: BasePolicySettings) -> None:
    """The policy stage: put ``base/``, ``strong/`` and ``policy.json`` into the policy's folder.

    A shipped policy is used if it was made by exactly this recipe for these games, unless ``build_policy`` is set; otherwise
    the recipe runs. A pretrained model is not copied: ``policy.json`` names it. One of a hub is fetched into the hub's
    cache, once, and ``policy.json`` has its commit and the sizes of its files.

    Raises:
        InputError: if a model cannot be fetched; names the remedy.
    """
    env, name, paths = settings.env, settings.policy, settings.paths
    out = paths.policy(env, name)
    if settings.kind == "pretrained":
        write_json(out / POLICY_FILE, {"kind": "pretrained", **_pretrained(settings)})
        return

    curriculum = curriculum_of(settings)
    fingerprint = recipe_fingerprint(curriculum)
    with replace_folder(out) as folder:
        if not settings.build and _matches(curriculum.shipped, fingerprint):
            print(f"policy {name}: the shipped one was made by this recipe and is used", file=sys.stderr)
            copy_folder(curriculum.shipped, folder)
        else:
            print(f"policy {name}: built from its recipe", file=sys.stderr)
            facts = build_policy(
                curriculum, environment(env).load_tasks(paths.data(env), "calibration"), folder
            )
            write_json(folder / POLICY_FILE, {"kind": "tiny", "fingerprint": fingerprint, **facts})


def _pretrained(settings: BasePolicySettings) -> dict[str, Any]:
    """Return what is known of a pretrained model: its folder, or what was fetched from a hub."""
    source = str(settings.source)
    if Path(source).is_dir():
        return {"source": source}
    model = fetch_model(source, settings.revision)
    return {"source": source, "revision": model.revision, "files": model.files}


def build_policy(curriculum: Curriculum, calibration: list[Task], folder: Path) -> dict[str, Any]:
    """Run the recipe, write ``strong/`` and ``base/``, and return what was measured.

    Args:
        curriculum: recipe, tasks and expert.
        calibration: tasks on which the policies are measured, and by which the base is chosen.
        folder: where to.
    """
    import torch

    from threespo.imitation.cloning import Cloner, TrainingHook
    from threespo.policy import linear

    plan = curriculum.recipe
    # Sums depend on the number of threads: with one the result does not depend on how many cores a machine has.
    torch.set_num_threads(1)
    torch.manual_seed(derive(plan.seed, "weights") % 2**63)

    tokenizer = _tokenizer(curriculum)
    model = new_model(plan.shape, tokenizer)
    linear.use_onednn(model)

    def played_by(name: str) -> dict[str, float]:
        save_policy(model, tokenizer, folder / name)
        return measure_policy(folder / name, curriculum, calibration, plan.seed)

    cloner, weakening = Cloner(model, tokenizer, curriculum), plan.weakening
    passed: dict[str, float] = {}

    def look(tokens: int) -> None:
        if isinstance(weakening, EarlyStop) and tokens >= weakening.first and not passed:
            played = played_by("base")
            print(f"clone of {tokens:,} tokens: {played}", file=sys.stderr)
            if played["success_t1.0"] > plan.target and played["valid_format_t1.0"] >= MIN_WELL_FORMED:
                passed.update({"tokens": tokens, **played})

    watch = TrainingHook(weakening.every, look) if isinstance(weakening, EarlyStop) else None
    for stage in plan.stages:
        cloner.train_stage(stage, watch)

    facts: dict[str, Any] = {"recipe": asdict(plan)}
    facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    played = played_by("strong")
    facts["strong"] = {
        **played,
        "binding": measure_binding(folder / "strong", curriculum, calibration, plan.seed),
    }
    print(f"strong policy: {facts['strong']}", file=sys.stderr)

    # A strong policy that wins little is the base, whatever was to make it weak.
    if isinstance(weakening, EarlyStop):
        found = passed or {"tokens": cloner.tokens, **played_by("base")}
        facts["base"] = {
            **found,
            "binding": measure_binding(folder / "base", curriculum, calibration, plan.seed),
        }
        return facts

    steps = 0
    # A step may also damage the form of responses, which the next one repairs.
    while not _weak_enough(played, plan) and steps < plan.most_weakening_steps:
        cloner.train_stage(weakening)
        steps += 1
        played = played_by("base")
        print(f"base policy, {steps} steps weaker: {played}", file=sys.stderr)
    if not steps:
        save_policy(model, tokenizer, folder / "base")

    facts["base"] = {"weakening_steps": steps, **played}
    return facts


def _weak_enough(played: dict[str, float], plan: Recipe) -> bool:
    return played["success_t1.0"] <= plan.target and played["valid_format_t1.0"] >= MIN_WELL_FORMED


def new_model(shape: TinyModelShape, tokenizer: Any) -> Any:
    """Return a randomly initialised Qwen2 model.

    Args:
        shape: its sizes.
        tokenizer: decides vocabulary and special tokens.
    """
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


def save_policy(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face folder."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measure_policy(
    folder: Path, curriculum: Curriculum, tasks: list[Task], seed: int
) -> dict[str, float]:
    """Play tasks once at temperatures 1.0 and 0.4; return success, format validity and admissibility at each.

    Args:
        folder: of the policy.
        curriculum: episode setup and length of responses.
        tasks: what is played.
        seed: of the draws.
    """
    sampler, setup = _sampler(folder, curriculum), curriculum.setup
    facts: dict[str, float] = {}
    for temperature in (1.0, 0.4):
        records = play_episodes(
            setup, tasks, sampler, seed=seed, temperature=temperature, key=("calibration",)
        )
        steps = sum(record.episode.steps for record in records)
        facts[f"success_t{temperature}"] = sum(record.episode.won for record in records) / len(records)
        facts[f"valid_format_t{temperature}"] = (
            1 - sum(record.invalid_format for record in records) / steps
        )
        facts[f"admissible_t{temperature}"] = 1 - sum(record.inadmissible for record in records) / steps
    return facts


def measure_binding(
    folder: Path, curriculum: Curriculum, tasks: list[Task], seed: int
) -> dict[str, float]:
    """Test whether the policy acts on what the prompt shows, in states of the careful expert.

    Args:
        folder: of the policy.
        curriculum: expert, episode setup, and the measures (``Curriculum.understanding``).
        tasks: what the expert plays.
        seed: of the draws.
    """
    from threespo.protocol import SampleRequest

    expert, setup, states = curriculum.expert, curriculum.setup, []
    for task in tasks:
        rng, episode = generator(seed, "binding", task.task_id), start_episode(setup, task)
        while not episode.done:
            decision = expert(episode, rng)
            if curriculum.is_diagnostic(decision):
                states.append((episode, decision.action))
            episode = take_action(episode, decision.action)

    requests = tuple(
        SampleRequest(episode.prompt, 1, ("binding", i)) for i, (episode, _) in enumerate(states)
    )
    samples = _sampler(folder, curriculum).sample(requests, seed=seed, temperature=1.0)
    turns = [
        Turn(episode, wanted, parse_response(sample.text, setup.env.text.fallback_length).action)
        for (episode, wanted), (sample,) in zip(states, samples, strict=True)
    ]

    return curriculum.grounding_metrics(turns)


def recipe_fingerprint(curriculum: Curriculum) -> str:
    """Return a hash of the recipe and of the first demonstrations that it leads to.

    So it changes if tasks, expert or prompts come out differently, and not with how the code is written. The tokenizer and
    the training loop are not in it: whoever changes them builds the shipped policies anew (``policy_build``).
    """
    from threespo.imitation.cloning import demonstrations

    plan = curriculum.recipe
    digest = hashlib.sha256(json.dumps(asdict(plan), sort_keys=True).encode())
    weakening = [plan.weakening] if isinstance(plan.weakening, Stage) else []
    for number, stage in enumerate((*plan.stages, *weakening)):
        tasks = curriculum.tasks(derive(plan.seed, "fingerprint", number), stage.generated_share)
        pairs = demonstrations(curriculum.expert, curriculum.setup, tasks, stage, plan.seed)
        for prompt, response in itertools.islice(pairs, 200):
            digest.update(prompt.encode() + b"\0" + response.encode() + b"\0")
    return digest.hexdigest()


def _tokenizer(curriculum: Curriculum) -> Any:
    from threespo.imitation.cloning import demonstrations
    from threespo.imitation.tokenizer import build_tokenizer

    plan = curriculum.recipe
    tasks = list(itertools.islice(curriculum.tasks(derive(plan.seed, "tokenizer"), 0.0), 600))
    noisy = replace(plan.stages[0], labels=None)
    played = demonstrations(curriculum.expert, curriculum.setup, iter(tasks), noisy, plan.seed)
    pairs = itertools.islice(played, 6000)
    return build_tokenizer(
        curriculum.vocabulary([text for pair in pairs for text in pair], tasks), curriculum.lowercase
    )


def _sampler(folder: Path, curriculum: Curriculum) -> Any:
    from threespo.policy.model import load_policy
    from threespo.policy.sampler import TorchSampler

    policy = load_policy(folder, dtype="float32")
    return TorchSampler(
        policy, curriculum.response_tokens, max_batch_rows=256, max_prompt_tokens=policy.max_context
    )


def _matches(shipped: Path, fingerprint: str) -> bool:
    file = shipped / POLICY_FILE
    if not file.exists():
        return False
    remedy = "This is the shipped policy's description: restore it with git checkout."
    facts = read_json(file, remedy)
    if not isinstance(facts, dict) or "fingerprint" not in facts:
        raise InputError(f"{file}: no fingerprint in it. {remedy}")
    return bool(facts["fingerprint"] == fingerprint)
