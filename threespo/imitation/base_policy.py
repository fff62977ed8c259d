"""The embedded base policies: tiny Qwen2 models that can play, trained here, in minutes, from scratch.

``tiny-s`` stands in for the paper's 1.5B model and ``tiny-m`` for its 7B. Both go through the same code
as those: a Hugging Face folder with tokenizer and chat template.

The recipe has two parts. *Strong*: behaviour cloning of a scripted expert until the policy acts on what
the prompt shows (measured by ``measure_binding``). *Base*: a policy whose success rate is low, from
which all reinforcement learning starts. It comes in two kinds, ``weakness`` in a study. ``planted``: the
strong policy, fine-tuned briefly on a careless expert. It can still do what the strong policy does but
seldom does it, so there is something to gain; part of the gain is to undo the planted faults, and the
report says so. ``early``: the clone as it was when its success rate first passed a target on the way to
the strong policy. Its faults are what it had not learned yet. The strong policy is shown as the ceiling
of both.
"""

import hashlib
import itertools
import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from threespo.envs.base import Task
from threespo.envs.episode import Episode, start_episode, take_action
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
from threespo.imitation.measure import measure_play
from threespo.imitation.settings import BasePolicySettings
from threespo.paths import POLICY_FILE, base_folder
from threespo.policy.named.catalogue import resolve_source
from threespo.policy.packaged_model import provide_packaged_model
from threespo.rng import derive, generator

MIN_WELL_FORMED = 0.95
"""A base policy has at least this share of well-formed responses at temperature 1.0."""

TOKENIZER_TASKS = 600
TOKENIZER_PAIRS = 6000
"""Demonstrations from whose texts the tokens are taken."""

FINGERPRINT_PAIRS = 200
"""Demonstrations of each stage that the fingerprint of a recipe is made of."""


def provide_policy(settings: BasePolicySettings) -> None:
    """The policy stage: put ``base/``, ``strong/`` and ``policy.json`` into the policy's folder.

    A shipped policy is used if it was made by exactly this recipe for these games, unless ``build`` is
    set; otherwise the recipe runs. A pretrained model is not copied: ``policy.json`` names it, unless it
    gets a warm start, whose result is the base. One of a hub is fetched into the hub's cache, once, and
    ``policy.json`` has its commit and the sizes of its files.

    Raises:
        InputError: if a model cannot be fetched or cloned; names the remedy.
    """
    env = settings.env
    name = settings.policy
    out = settings.paths.policy(env, name)
    if settings.kind == "pretrained":
        source, model = _fetch_pretrained(settings)
        if settings.warm_start is not None:
            from threespo.imitation.warm_start import warm_start

            warm_start(settings, source, model)
            return

        # Also instead of an earlier folder with bases.
        with replace_folder(out) as folder:
            write_json(folder / POLICY_FILE, {"kind": "pretrained", **source})
        return

    curriculum = curriculum_of(settings)
    calibration = environment(env).load_tasks(settings.paths.data(env), "calibration")
    fingerprint = recipe_fingerprint(curriculum)
    with replace_folder(out) as folder:
        if not settings.build and _has_fingerprint(curriculum.shipped, fingerprint):
            print(f"policy {name}: the shipped one was made by this recipe and is used", file=sys.stderr)
            copy_folder(curriculum.shipped, folder)
        else:
            print(f"policy {name}: built from its recipe", file=sys.stderr)
            facts = build_policy(curriculum, calibration, folder)
            description = {"kind": "tiny", "fingerprint": fingerprint, **facts}
            write_json(folder / POLICY_FILE, description)

        if settings.bases > 1:
            _add_further_bases(settings.bases, curriculum, calibration, folder)


def _fetch_pretrained(settings: BasePolicySettings) -> tuple[dict[str, Any], Path]:
    """Return what is known of a pretrained model (its folder, or what was fetched), and where it lies."""
    source = str(settings.source)
    package = resolve_source(source).package
    if package is not None:
        return {"source": source, "package": package.model_dump()}, provide_packaged_model(
            source, package
        )
    if Path(source).is_dir():
        return {"source": source}, Path(source)
    model = fetch_model(source, settings.revision)
    description = {"source": source, "revision": model.revision, "files": model.files}
    return description, model.folder


def _add_further_bases(
    bases: int, curriculum: Curriculum, calibration: list[Task], folder: Path
) -> None:
    """Build bases 1 to ``bases`` - 1 into a policy's folder, and say in its description that they are there."""
    further = []
    for number in range(1, bases):
        print(
            f"base {number + 1} of {bases}: built from its recipe, with a seed of its own",
            file=sys.stderr,
        )
        recipe = replace(curriculum.recipe, seed=curriculum.recipe.seed + number)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            facts = build_policy(
                replace(curriculum, recipe=recipe), calibration, Path(work), base_only=True
            )
            (Path(work) / "base").rename(folder / base_folder(number))
        further.append({"seed": recipe.seed, **facts["base"]})

    # The shipped description is of the first base alone, whatever studies have beside it.
    description = read_json(folder / POLICY_FILE, "Run the policy stage of the study again.")
    write_json(folder / POLICY_FILE, {**description, "bases": bases, "further_bases": further})


def build_policy(
    curriculum: Curriculum, calibration: list[Task], folder: Path, *, base_only: bool = False
) -> dict[str, Any]:
    """Run the recipe, write ``strong/`` and ``base/``, and return what was measured.

    Args:
        curriculum: recipe, tasks and expert.
        calibration: tasks on which the policies are measured, and by which the base is chosen.
        folder: where to.
        base_only: stop when the base is found; one that is stopped early then has no strong clone beside it.
    """
    import torch

    from threespo.imitation.cloning import Cloner, TrainingHook
    from threespo.policy import linear

    recipe = curriculum.recipe
    weakening = recipe.weakening
    # Sums depend on the number of threads: with one the result does not depend on how many cores a
    # machine has.
    torch.set_num_threads(1)
    torch.manual_seed(derive(recipe.seed, "weights") % 2**63)

    # From here on the order of random draws is part of the shipped policies' bytes.
    tokenizer = _make_tokenizer(curriculum)
    model = new_model(recipe.shape, tokenizer)
    linear.use_onednn(model)
    cloner = Cloner(model, tokenizer, curriculum)

    def save_and_measure(name: str) -> dict[str, float]:
        save_policy(model, tokenizer, folder / name)
        return measure_policy(folder / name, curriculum, calibration, recipe.seed)

    def bind(name: str) -> dict[str, float]:
        return measure_binding(folder / name, curriculum, calibration, recipe.seed)

    # Of the first clone above the target that answers in form, which stays in ``base/``.
    early_base: dict[str, float] = {}

    def keep_first_above_target(tokens: int) -> bool:
        if isinstance(weakening, EarlyStop) and tokens >= weakening.first and not early_base:
            played = save_and_measure("base")
            print(f"clone of {tokens:,} tokens: {played}", file=sys.stderr)
            if played["success_t1.0"] > recipe.target and _is_well_formed(played):
                early_base.update({"tokens": tokens, **played})
        return base_only and bool(early_base)

    hook = None
    if isinstance(weakening, EarlyStop):
        hook = TrainingHook(weakening.every, keep_first_above_target)
    for stage in recipe.stages:
        cloner.train_stage(stage, hook)
        if base_only and early_base:
            return {"base": early_base}

    facts: dict[str, Any] = {"recipe": asdict(recipe)}
    facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    played = save_and_measure("strong")
    facts["strong"] = {**played, "binding": bind("strong")}
    print(f"strong policy: {facts['strong']}", file=sys.stderr)

    if isinstance(weakening, EarlyStop):
        # A strong policy that wins little is the base itself.
        base = early_base or {"tokens": cloner.tokens, **save_and_measure("base")}
        facts["base"] = {**base, "binding": bind("base")}
        return facts

    steps = 0
    # A step may also damage the form of responses, which the next one repairs.
    while not _is_weak_enough(played, recipe) and steps < recipe.most_weakening_steps:
        cloner.train_stage(weakening)
        steps += 1
        played = save_and_measure("base")
        print(f"base policy, {steps} steps weaker: {played}", file=sys.stderr)
    # The strong policy was weak enough already.
    if not steps:
        save_policy(model, tokenizer, folder / "base")

    facts["base"] = {"weakening_steps": steps, **played}
    return facts


def _is_weak_enough(played: dict[str, float], recipe: Recipe) -> bool:
    return played["success_t1.0"] <= recipe.target and _is_well_formed(played)


def _is_well_formed(played: dict[str, float]) -> bool:
    return played["valid_format_t1.0"] >= MIN_WELL_FORMED


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
        # The embedding is also the head, as in the small Qwen2 models.
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
    return measure_play(_load_sampler(folder, curriculum), curriculum.setup, tasks, seed)


def measure_binding(
    folder: Path, curriculum: Curriculum, tasks: list[Task], seed: int
) -> dict[str, float]:
    """Test whether the policy acts on what the prompt shows, in states of the careful expert.

    Args:
        folder: of the policy.
        curriculum: expert, episode setup, and the measures (``Curriculum.grounding_metrics``).
        tasks: what the expert plays.
        seed: of the draws.
    """
    from threespo.protocol import SampleRequest

    states: list[Episode] = []
    wanted_actions: list[str] = []
    for task in tasks:
        rng = generator(seed, "binding", task.task_id)
        episode = start_episode(curriculum.setup, task)
        while not episode.done:
            decision = curriculum.expert(episode, rng)
            if curriculum.is_diagnostic(decision):
                states.append(episode)
                wanted_actions.append(decision.action)
            # The expert plays on, whatever the policy would do: states do not depend on the policy.
            episode = take_action(episode, decision.action)

    requests = tuple(
        SampleRequest(state.prompt, 1, ("binding", index)) for index, state in enumerate(states)
    )
    sampler = _load_sampler(folder, curriculum)
    replies = sampler.sample(requests, seed=seed, temperature=1.0)

    fallback_length = curriculum.setup.env.text.fallback_length
    turns = []
    for state, wanted, (sample,) in zip(states, wanted_actions, replies, strict=True):
        taken = parse_response(sample.text, fallback_length).action
        turns.append(Turn(state, wanted, taken))
    return curriculum.grounding_metrics(turns)


def recipe_fingerprint(curriculum: Curriculum) -> str:
    """Return a hash of the recipe and of the first demonstrations that it leads to.

    So it changes if tasks, expert or prompts come out differently, and not with how the code is written.
    The tokenizer and the training loop are not in it: after changing them, rebuild the shipped policies
    (``policy_build``).
    """
    from threespo.imitation.cloning import demonstrations

    recipe = curriculum.recipe
    digest = hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode())
    stages = list(recipe.stages)
    if isinstance(recipe.weakening, Stage):
        stages.append(recipe.weakening)
    # Demonstrations stand for tasks, expert and prompts: a change in any of them changes their text.
    for number, stage in enumerate(stages):
        stream = derive(recipe.seed, "fingerprint", number)
        tasks = curriculum.tasks(stream, stage.generated_share)
        pairs = demonstrations(curriculum.expert, curriculum.setup, tasks, stage, recipe.seed)
        for prompt, response in itertools.islice(pairs, FINGERPRINT_PAIRS):
            digest.update(prompt.encode() + b"\0" + response.encode() + b"\0")
    return digest.hexdigest()


def _make_tokenizer(curriculum: Curriculum) -> Any:
    from threespo.imitation.cloning import demonstrations
    from threespo.imitation.tokenizer import build_tokenizer

    recipe = curriculum.recipe
    stream = curriculum.tasks(derive(recipe.seed, "tokenizer"), 0.0)
    tasks = list(itertools.islice(stream, TOKENIZER_TASKS))
    # Labels are the noisy expert's own actions: its faults lead to more texts than the careful one's.
    noisy = replace(recipe.stages[0], labels=None)
    pairs = demonstrations(curriculum.expert, curriculum.setup, iter(tasks), noisy, recipe.seed)
    texts = [text for pair in itertools.islice(pairs, TOKENIZER_PAIRS) for text in pair]
    return build_tokenizer(curriculum.vocabulary(texts, tasks), curriculum.lowercase)


def _load_sampler(folder: Path, curriculum: Curriculum) -> Any:
    from threespo.policy.model import load_policy
    from threespo.policy.sampler import TorchSampler

    policy = load_policy(folder, dtype="float32")
    return TorchSampler(
        policy, curriculum.response_tokens, max_batch_rows=256, max_prompt_tokens=policy.max_context
    )


def _has_fingerprint(shipped: Path, fingerprint: str) -> bool:
    """Return whether there is a shipped policy, made by the recipe of this fingerprint."""
    file = shipped / POLICY_FILE
    if not file.exists():
        return False
    remedy = "This is the shipped policy's description: restore it with git checkout."
    description = read_json(file, remedy)
    if not isinstance(description, dict) or "fingerprint" not in description:
        raise InputError(f"{file}: no fingerprint in it. {remedy}")
    return bool(description["fingerprint"] == fingerprint)
