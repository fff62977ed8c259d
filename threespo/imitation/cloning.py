"""Behaviour cloning of a scripted expert: how a tiny policy learns to read and act, and a pretrained one to begin.

Demonstrations are made while training runs, from an endless stream of tasks. A noisy expert plays, and in each state that it
comes to, the response of a careful expert is learned (the idea of DAgger), so the policy also learns to recover from
mistakes. At first a tiny policy's loss covers prompts and responses alike, since copying is learned from the many repeated
names of a prompt; in later stages mostly responses. That of a pretrained one (:mod:`threespo.imitation.warm_start`) covers
responses alone. Demonstrations, batches and steps are the same.
"""

import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup, start_episode, take_action
from threespo.imitation.curriculum import Curriculum, Decision, Expert, Stage
from threespo.rng import derive, generator

ENCODED_PAIRS = 512
"""Demonstrations that are encoded at once."""

POOLED_BATCHES = 128
"""Batches whose examples are shuffled and sorted together."""


class _HasTokens(Protocol):
    @property
    def tokens(self) -> Sequence[int]: ...


ExampleT = TypeVar("ExampleT", bound=_HasTokens)


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """One training sequence: a prompt and the response to learn."""

    tokens: tuple[int, ...]
    prompt_length: int
    """In tokens; the rest is the response."""
    decision: tuple[int, int]
    """First token, and the one after the last, of what decides the action; weighted by ``Stage.decision_weight``."""
    takes_object: bool = False
    """Whether the action takes an object."""


def response_text(decision: Decision) -> str:
    """Return the response that a decision is written as."""
    return f"<think> {decision.thought} </think>\n<action>{decision.action}</action>"


def demonstrations(
    expert: Expert, setup: EpisodeSetup, tasks: Iterator[Task], stage: Stage, seed: int
) -> Iterator[tuple[str, str]]:
    """Yield (prompt, response) for every state of an endless stream of the expert's episodes.

    Args:
        expert: chooses the actions.
        setup: environment, step limit and history length.
        tasks: what is played.
        stage: says how noisy the experts are that play and that are imitated.
        seed: of the faults.
    """
    for number, task in enumerate(tasks):
        # One generator a game: how long earlier games were does not matter.
        rng = generator(seed, "demonstration", number)
        episode = start_episode(setup, task)
        while not episode.done:
            played = expert(episode, rng, stage.executed)
            label = played if stage.labels is None else expert(episode, rng, stage.labels)
            yield episode.prompt, response_text(label)
            episode = take_action(episode, played.action)


@dataclass(frozen=True, slots=True)
class TrainingHook:
    """A function that is called while a model is trained; it must not change the model."""

    every: int
    """Training tokens of a stage from one call to the next."""
    call: Callable[[int], bool]
    """Receives the training tokens so far, those of earlier stages included; returns whether the stage ends here."""


class Cloner:
    """Trains a model on demonstrations, one stage at a time."""

    def __init__(self, model: Any, tokenizer: Any, curriculum: Curriculum) -> None:
        """Prepare training; nothing is computed yet.

        Args:
            model: a ``transformers`` causal language model, trained in place.
            tokenizer: its tokenizer, with chat template.
            curriculum: tasks, expert and seed.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.curriculum = curriculum
        self.seed = curriculum.recipe.seed
        self.stages = 0
        self.tokens = 0

    def train_stage(self, stage: Stage, hook: TrainingHook | None = None) -> None:
        """Train for one stage, showing progress on stderr; ``hook`` is called in between."""
        self.stages += 1
        # A new optimizer for each stage: moments of the last stage's loss, which had other weights, would mislead it.
        optimizer = make_optimizer(self.model, stage.learning_rate)
        # For the schedule only: the stage ends by its tokens.
        planned_steps = math.ceil(stage.tokens / (stage.batch * self._mean_length(stage)))

        losses: list[float] = []
        start = time.perf_counter()
        stage_tokens = 0
        next_call = hook.every if hook else 0
        self.model.train()

        for step, batch in enumerate(self._make_batches(stage)):
            rate = stage.learning_rate * rate_factor(step, planned_steps)
            losses.append(take_step(self.model, optimizer, rate, [self._loss(batch, stage)]))
            batch_tokens = sum(len(example.tokens) for example in batch)
            stage_tokens += batch_tokens
            self.tokens += batch_tokens
            is_last = stage_tokens >= stage.tokens
            if hook and stage_tokens >= next_call:
                is_last = hook.call(self.tokens) or is_last
                next_call += hook.every

            if (step + 1) % 100 == 0 or is_last:
                self._print_progress(stage, stage_tokens, losses, time.perf_counter() - start)
            if is_last:
                break

        self.model.eval()

    def _print_progress(
        self, stage: Stage, stage_tokens: int, losses: list[float], seconds: float
    ) -> None:
        rate = stage_tokens / seconds
        tokens_left = stage.tokens - stage_tokens
        print_progress(
            f"cloning stage {self.stages}", stage_tokens / stage.tokens, losses[-100:], rate, tokens_left
        )

    def _make_examples(self, stage: Stage, offset: int = 0) -> Iterator[TrainingExample]:
        stream = derive(self.seed, "clone", self.stages, offset)
        curriculum = self.curriculum
        tasks = curriculum.tasks(stream, stage.generated_share)
        pairs = demonstrations(curriculum.expert, curriculum.setup, tasks, stage, stream)
        # Many at once, since tokenizers are slow one by one.
        while chunk := list(itertools.islice(pairs, ENCODED_PAIRS)):
            yield from encode_pairs(self.tokenizer, chunk, curriculum.decides)

    def _mean_length(self, stage: Stage) -> float:
        sample = list(itertools.islice(self._make_examples(stage, offset=1), ENCODED_PAIRS))
        return sum(len(example.tokens) for example in sample) / len(sample)

    def _make_batches(self, stage: Stage) -> Iterator[list[TrainingExample]]:
        rng = random.Random(derive(self.seed, "batches", self.stages))
        yield from make_batches(self._make_examples(stage), stage.batch, rng)

    def _loss(self, batch: list[TrainingExample], stage: Stage) -> Tensor:
        """Return the mean cross-entropy of a batch, in which each token has the weight that the stage gives it."""
        # Both are (examples, tokens of the longest); padding keeps the weight 0.
        width = max(len(example.tokens) for example in batch)
        tokens = torch.zeros((len(batch), width), dtype=torch.long)
        weights = torch.zeros((len(batch), width))
        for row, example in enumerate(batch):
            length = len(example.tokens)
            # Taking an object is one state in ten, and learned last (``Stage.take_weight``).
            take_factor = stage.take_weight if example.takes_object else 1
            tokens[row, :length] = torch.tensor(example.tokens)
            weights[row, : example.prompt_length] = stage.prompt_weight
            weights[row, example.prompt_length : length] = 1.0
            weights[row, slice(*example.decision)] = stage.decision_weight * take_factor

        # Padding is on the right, where causal attention never reads it, so no mask is needed.
        hidden = self.model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state

        # Each position predicts the next token.
        targets = tokens[:, 1:]
        target_weights = weights[:, 1:]
        # The head over the vocabulary is most of a tiny model's work, so only tokens with a weight go through it.
        has_weight = target_weights > 0
        logits = self.model.lm_head(hidden[has_weight])
        losses = torch.nn.functional.cross_entropy(logits, targets[has_weight], reduction="none")
        return (losses * target_weights[has_weight]).sum() / target_weights.sum()


def encode_pairs(
    tokenizer: Any, pairs: list[tuple[str, str]], decides: Literal["thought", "response"] = "thought"
) -> list[TrainingExample]:
    """Turn texts, prompts with their responses, into training sequences through the tokenizer's chat template.

    Args:
        tokenizer: with a chat template.
        pairs: the texts.
        decides: where the deciding tokens end: with the thought, or with the response.
    """
    rendered = []
    for text, _ in pairs:
        messages = [{"role": "user", "content": text}]
        rendered.append(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )
    prompt_tokens, response_tokens = encode_texts(
        tokenizer, rendered, [response for _, response in pairs]
    )

    closing_tokens = {index for text, index in tokenizer.get_vocab().items() if "</think>" in text}

    examples = []
    for (_, text), prompt, response in zip(pairs, prompt_tokens, response_tokens, strict=True):
        # A response is "<think>", the goal noun, the deciding tokens up to the one that closes the thought, the action.
        closing_places = [index for index, token in enumerate(response) if token in closing_tokens]
        closing = closing_places[0] if closing_places else len(response) - 1
        end = closing + 1 if decides == "thought" else len(response)
        decision = (len(prompt) + 2, len(prompt) + end)
        takes_object = "<action>take " in text
        example = TrainingExample((*prompt, *response), len(prompt), decision, takes_object)
        examples.append(example)
    return examples


def encode_texts(
    tokenizer: Any, rendered: list[str], responses: list[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of prompts, which a chat template has rendered, and of responses, each with its end token."""
    # The end token is learned too: without it a policy would never stop.
    ended = [response + tokenizer.eos_token for response in responses]
    prompt_tokens: list[list[int]] = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    response_tokens: list[list[int]] = tokenizer(ended, add_special_tokens=False)["input_ids"]
    return prompt_tokens, response_tokens


def make_batches(
    examples: Iterable[ExampleT], batch: int, rng: random.Random
) -> Iterator[list[ExampleT]]:
    """Yield batches of similar lengths out of shuffled pools of many episodes.

    Args:
        examples: with ``tokens``, in the order in which they were made.
        batch: examples of a batch; the last one may have fewer.
        rng: shuffles.
    """
    stream = iter(examples)
    while pool := list(itertools.islice(stream, batch * POOLED_BATCHES)):
        rng.shuffle(pool)
        # Similar lengths need little padding; lengths within eight tokens stay shuffled, so batches
        # still mix.
        pool.sort(key=lambda example: len(example.tokens) // 8)
        starts = range(0, len(pool), batch)
        batches = [pool[start : start + batch] for start in starts]
        # Otherwise every pool would go from short prompts to long ones, a cycle that the optimizer would follow.
        rng.shuffle(batches)
        yield from batches


def make_optimizer(model: Any, learning_rate: float) -> torch.optim.AdamW:
    """Return the optimizer of cloning, with all parameters of a model."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)


def take_step(
    model: Any, optimizer: torch.optim.Optimizer, learning_rate: float, losses: Iterable[Tensor]
) -> float:
    """Take an optimizer step on the sum of ``losses``, one backward pass each, and return the sum."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.zero_grad()
    total = 0.0
    for loss in losses:
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def rate_factor(step: int, steps: int, warmup_steps: int = 60) -> float:
    """Return the factor on the peak rate: warm-up over ``warmup_steps``, cosine decay to a twentieth."""
    warmup = min(1.0, (step + 1) / warmup_steps)
    # At most 1: the number of steps is an estimate, and the rate must not rise again behind it.
    progress = min(1.0, step / max(1, steps))
    cosine = 1 + math.cos(math.pi * progress)
    return warmup * (0.05 + 0.95 * 0.5 * cosine)


def print_progress(
    name: str, share: float, losses: Sequence[float], rate: float, tokens_left: float
) -> None:
    """Print how far a cloning is, on stderr.

    Args:
        name: of what is cloned.
        share: of its tokens that are done.
        losses: of the last steps.
        rate: tokens a second.
        tokens_left: what is still to be done.
    """
    print(
        f"  {name}: {share:4.0%}  loss {sum(losses) / len(losses):.4f}"
        f"  {rate:,.0f} tokens/s  {tokens_left / rate / 60:.1f} min left",
        file=sys.stderr,
        flush=True,
    )
