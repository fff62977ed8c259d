"""The start of a pretrained model: it imitates the environment's expert until it wins now and then.

A model that was never shown an environment wins nothing in it, and a method of reinforcement learning that sees no success
has nothing to prefer. So its base is cloned: on demonstrations of the scripted expert in the paper's prompt, set into the
model's own chat template, with the cross-entropy of the responses alone. How it is done is the cloning of the tiny policies
(:mod:`threespo.imitation.cloning`); what is computed is the learner's forward pass (:mod:`threespo.learner.forward`), which
has no padding and computes logits for response tokens only.
"""

import contextlib
import hashlib
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from threespo.envs.registry import environment
from threespo.errors import InputError
from threespo.files import read_json, remove_path, replace_file, replace_folder, write_json
from threespo.imitation.cloning import (
    ENCODED_PAIRS,
    demonstrations,
    encode_texts,
    make_batches,
    make_optimizer,
    print_progress,
    rate_factor,
    take_step,
)
from threespo.imitation.curriculum import Curriculum, Stage, curriculum_of
from threespo.imitation.measure import measure_play
from threespo.imitation.settings import (
    MICRO_BATCH_TOKENS,
    BasePolicySettings,
    WarmStartSettings,
)
from threespo.learner.forward import Group, ResponseScorer, cut_micro_batches, pack_groups
from threespo.paths import MANIFEST, POLICY_FILE, base_folder
from threespo.policy.model import Policy, load_policy, parse_dtype
from threespo.policy.packaged_model import check_prompts, check_round_trip
from threespo.policy.settings import TemplateSettings
from threespo.rng import derive
from threespo.runs.checkpoint import lock_run
from threespo.runs.setup import make_sampler

WARM_UP_SHARE = 0.1
"""Share of the steps over which the rate rises."""

CHECKPOINT_SECONDS = 300.0
"""Least seconds between checkpoints, which have three times the size of the weights."""

PROGRESS_SECONDS = 15.0

STATE_FILE = "state.pt"

TRAINING_FILE = "warm_start.json"
"""In a base's folder: what it was trained on."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt and the expert's response, as tokens."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Both together; the end token, which predicts nothing, included."""
        return self.prompt + self.response


def warm_start(settings: BasePolicySettings, source: dict[str, Any], model: Path) -> None:
    """Clone the bases of a pretrained policy, and write its folder with ``base/`` (and ``base-1/`` …) and ``policy.json``.

    An interrupted one goes on from its last checkpoint, to the same bytes.

    Args:
        settings: of the policy's job.
        source: what ``policy.json`` says of where the model is from.
        model: its folder.

    Raises:
        InputError: if the model cannot be cloned, or a clone does not reach the target. No earlier base is touched.
    """
    assert settings.warm_start is not None
    assert settings.threads is not None
    # Sums depend on the number of threads.
    torch.set_num_threads(settings.threads)
    curriculum = curriculum_of(settings)
    unfinished = settings.paths.warm_start(settings.env, settings.policy)
    with lock_run(unfinished):
        # Another start than the one that is asked for now may be unfinished, too: each has a folder of its own.
        work = unfinished / _identity(settings, source)
        bases = []
        for number in range(settings.bases):
            facts = _provide_base(settings, curriculum, model, work, number)
            _check_target(settings, facts)
            bases.append(facts)

        description: dict[str, Any] = {
            "kind": "pretrained",
            **source,
            "warm_start": settings.warm_start.model_dump(),
            "base": bases[0],
        }
        if settings.bases > 1:
            description |= {"bases": settings.bases, "further_bases": bases[1:]}
        with replace_folder(settings.paths.policy(settings.env, settings.policy)) as folder:
            write_json(folder / POLICY_FILE, description)
            for number in range(settings.bases):
                (work / base_folder(number)).rename(folder / base_folder(number))
        remove_path(unfinished)


def _provide_base(
    settings: BasePolicySettings, curriculum: Curriculum, model: Path, work: Path, number: int
) -> dict[str, Any]:
    """Clone and measure one base, unless that was done before an interruption; return what was measured.

    The base lies in the folder ``work`` afterwards.
    """
    folder = work / base_folder(number)
    measured_file = work / f"{base_folder(number)}.json"
    remedy = f"Remove {work} and run again."
    if measured_file.is_file() and folder.is_dir():
        facts: dict[str, Any] = read_json(measured_file, remedy)
        return facts

    warm = settings.warm_start
    sampling = settings.sampling
    assert warm is not None
    assert sampling is not None
    # A claim shows CUDA only the job's own GPUs, so the first is right.
    device = "cuda" if settings.gpus else "cpu"
    template = TemplateSettings.part_of(sampling)
    seed = warm.seed + number
    name = f"policies.{settings.policy}.warm_start"
    if not folder.is_dir():
        print(f"base {number + 1} of {settings.bases}: {name}, seed {seed}", file=sys.stderr)
        # Float32 whatever the policy's dtype: an update is far smaller than a step between two numbers in bfloat16.
        policy = load_policy(str(model), "float32", device, template)
        examples = make_demonstrations(policy, curriculum, warm, seed, name)
        _check_lengths(examples, sampling.max_prompt_tokens, policy, name)
        cloner = WarmCloner(policy, examples, warm, seed, in_bfloat16=sampling.dtype == "bfloat16")
        cloner.train(work / f"{base_folder(number)}.{STATE_FILE}")
        with replace_folder(folder) as temporary:
            save_base(policy, sampling.dtype, temporary)
            write_json(temporary / TRAINING_FILE, {"seed": seed, **cloner.describe()})
        del cloner, policy

    tasks = environment(settings.env).load_tasks(settings.paths.data(settings.env), "calibration")
    tasks = tasks[: warm.games]
    print(
        f"  measured on {len(tasks)} calibration tasks, at two temperatures", file=sys.stderr, flush=True
    )
    policy = load_policy(str(folder), sampling.dtype, device, template)
    played = measure_play(make_sampler(sampling, policy), curriculum.setup, tasks, warm.seed)
    facts = {**read_json(folder / TRAINING_FILE, remedy), "measured_on": len(tasks), **played}
    print(f"  warm start: {facts}", file=sys.stderr, flush=True)
    write_json(measured_file, facts)
    (work / f"{base_folder(number)}.{STATE_FILE}").unlink(missing_ok=True)
    return facts


def _check_target(settings: BasePolicySettings, facts: dict[str, Any]) -> None:
    warm = settings.warm_start
    assert warm is not None
    success = facts["success_t1.0"]
    if success < warm.target:
        raise InputError(
            f"policies.{settings.policy}.warm_start: the clone of {facts['examples']:,} demonstrations wins "
            f"{success:.1%} of {facts['measured_on']} calibration tasks of {settings.env}, below the target of "
            f"{warm.target:.1%}. Give it more 'examples', or a lower 'target', for which nothing is trained again."
        )


def _identity(settings: BasePolicySettings, source: dict[str, Any]) -> str:
    """Return what tells the trainings of a policy apart: everything that decides the bytes of its bases."""
    values = settings.key()
    # The target only judges what was trained.
    values["warm_start"].pop("target")
    manifest = settings.paths.data(settings.env) / MANIFEST
    tasks = hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.is_file() else ""
    text = json.dumps([values, source, tasks, settings.code], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_demonstrations(
    policy: Policy, curriculum: Curriculum, warm: WarmStartSettings, seed: int, name: str
) -> list[Demonstration]:
    """Return the demonstrations of a warm start, in the order in which they were played.

    Args:
        policy: whose template and tokenizer write them.
        curriculum: tasks and expert.
        warm: how many, and how noisy the expert is that plays.
        seed: of tasks and faults.
        name: of the setting, in messages.

    Raises:
        InputError: if the model has no chat template, or its tokenizer loses a part of the texts.
    """
    template = policy.template
    if template is None:
        raise InputError(
            f"{name}: the tokenizer of {policy.source} has no chat template to set the prompt into. Choose a model that "
            "follows instructions, or add its chat_template.jinja to the folder."
        )

    stage = demonstration_stage(curriculum, warm)
    stream = derive(seed, "warm start")
    tasks = curriculum.tasks(stream, stage.generated_share)
    pairs = demonstrations(curriculum.expert, curriculum.setup, tasks, stage, stream)
    wanted = itertools.islice(pairs, warm.examples)
    examples: list[Demonstration] = []
    # Many at once, since tokenizers are slow one by one.
    while chunk := list(itertools.islice(wanted, ENCODED_PAIRS)):
        rendered = [template.render(prompt) for prompt, _ in chunk]
        # A thought that the template has opened is in the prompt already.
        responses = [response.removeprefix(policy.opening.strip()) for _, response in chunk]
        check_round_trip(policy, responses)
        check_prompts(policy, [prompt for prompt, _ in chunk], rendered)
        for prompt, response in zip(*encode_texts(policy.tokenizer, rendered, responses), strict=True):
            examples.append(Demonstration(tuple(prompt), tuple(response)))
    return examples


def demonstration_stage(curriculum: Curriculum, warm: WarmStartSettings) -> Stage:
    """Return who plays and who is imitated: the curriculum's noisy expert, scaled, and its careful one."""
    first = curriculum.recipe.stages[0]
    noise = {
        field.name: min(1.0, warm.noise * getattr(first.executed, field.name))
        for field in fields(first.executed)
    }
    return replace(
        first,
        executed=replace(first.executed, **noise),
        generated_share=curriculum.recipe.stages[-1].generated_share,
    )


def _check_lengths(
    examples: list[Demonstration], max_prompt_tokens: int, policy: Policy, name: str
) -> None:
    longest_prompt = max(len(example.prompt) for example in examples)
    longest = max(len(example.tokens) for example in examples)
    if longest_prompt > max_prompt_tokens or longest > policy.max_context:
        raise InputError(
            f"{name}: a demonstration has {longest_prompt:,} prompt tokens, with its response {longest:,}; "
            f"max_prompt_tokens is {max_prompt_tokens:,}, and {policy.source} reads {policy.max_context:,}. Raise "
            "max_prompt_tokens up to what the model reads, or lower the environment's history_length."
        )


class WarmCloner:
    """Trains a pretrained model on demonstrations, each once."""

    def __init__(
        self,
        policy: Policy,
        examples: list[Demonstration],
        warm: WarmStartSettings,
        seed: int,
        *,
        in_bfloat16: bool,
    ) -> None:
        """Prepare training; nothing is computed yet.

        Args:
            policy: in float32, trained in place.
            examples: what is learned.
            warm: rate and size of a batch.
            seed: of the order.
            in_bfloat16: multiply in bfloat16, where the device does.
        """
        self.policy = policy
        self.scorer = ResponseScorer(policy.model)
        self.learning_rate = warm.learning_rate
        rng = random.Random(derive(seed, "warm start batches"))
        self.batches = list(make_batches(examples, warm.batch, rng))
        self.losses: list[float] = []
        """Of the steps taken."""
        self.autocast = in_bfloat16 and multiplies_bfloat16(policy.device)

    def describe(self) -> dict[str, Any]:
        """Return what was trained on, and the mean losses of the first and the last tenth of the steps."""
        examples = [example for batch in self.batches for example in batch]
        tenth = max(1, len(self.losses) // 10)
        return {
            "examples": len(examples),
            "tokens": sum(len(example.tokens) for example in examples),
            "response_tokens": sum(len(example.response) for example in examples),
            "steps": len(self.losses),
            "products": "bfloat16" if self.autocast else "float32",
            "first_loss": sum(self.losses[:tenth]) / tenth,
            "last_loss": sum(self.losses[-tenth:]) / tenth,
        }

    def train(self, state: Path) -> None:
        """Take all steps, showing progress on stderr.

        Args:
            state: file of the checkpoint, from which training goes on if it is there; it stays.
        """
        optimizer = make_optimizer(self.policy.model, self.learning_rate)
        _restore(state, self.policy.model, optimizer, self.losses)
        left = self.batches[len(self.losses) :]
        tokens_left = sum(len(example.tokens) for batch in left for example in batch)
        all_tokens = sum(len(example.tokens) for batch in self.batches for example in batch)
        tokens_done = 0
        start = saved = shown = time.perf_counter()
        warm_up = max(1, round(WARM_UP_SHARE * len(self.batches)))

        self.policy.model.train()
        for batch in left:
            factor = rate_factor(len(self.losses), len(self.batches), warm_up)
            rate = self.learning_rate * factor
            self.losses.append(take_step(self.policy.model, optimizer, rate, self._losses(batch)))

            tokens = sum(len(example.tokens) for example in batch)
            tokens_done += tokens
            tokens_left -= tokens
            now = time.perf_counter()
            if now - shown >= PROGRESS_SECONDS or not tokens_left:
                share = 1 - tokens_left / all_tokens
                speed = tokens_done / (now - start)
                print_progress("warm start", share, self.losses[-10:], speed, tokens_left)
                shown = now
            if now - saved >= CHECKPOINT_SECONDS and tokens_left:
                _save(state, self.policy.model, optimizer, self.losses)
                saved = time.perf_counter()
        self.policy.model.eval()

    def _losses(self, batch: list[Demonstration]) -> Iterator[Tensor]:
        """Yield the parts of a batch's mean loss over response tokens, one micro-batch at a time."""
        device = self.policy.device
        response_tokens = sum(len(example.response) for example in batch)
        groups = [
            Group(example.prompt, (example.response,), (row,)) for row, example in enumerate(batch)
        ]
        for micro_batch in cut_micro_batches(groups, MICRO_BATCH_TOKENS):
            packed = pack_groups(micro_batch, device, torch.float32)
            context: Any = contextlib.nullcontext()
            if self.autocast:
                context = torch.autocast(device.type, torch.bfloat16)
            with context:
                logprobs, _ = self.scorer(packed, 1.0)
            yield -logprobs.sum() / response_tokens


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether a device multiplies numbers in bfloat16 itself, and not by way of float32, which is slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def save_base(policy: Policy, dtype: str, folder: Path) -> None:
    """Write a policy as a Hugging Face folder in the number format that studies read it in."""
    model: Any = nn.Module.to(policy.model, dtype=parse_dtype(dtype))
    model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


def _save(state: Path, model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[float]) -> None:
    with replace_file(state) as temporary:
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses},
            temporary,
        )


def _restore(
    state: Path, model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[float]
) -> None:
    """Load a checkpoint in place, if there is one; a damaged one is named, and training begins anew."""
    if not state.is_file():
        return
    try:
        saved = torch.load(state, map_location="cpu", weights_only=True)
        parts = saved["model"], saved["optimizer"], saved["losses"]
    # Any exception: torch raises errors of zip files, pickles and keys.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        print(f"{state}: damaged ({reason}); the warm start begins anew", file=sys.stderr)
        return
    model.load_state_dict(parts[0])
    optimizer.load_state_dict(parts[1])
    losses[:] = parts[2]
    print(f"  warm start: resumed after step {len(losses)} from {state}", file=sys.stderr, flush=True)
