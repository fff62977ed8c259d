"""Behaviour cloning of a scripted expert: how a tiny policy learns to read and act.

Demonstrations are made on the fly from an endless stream of tasks. What is executed is the noisy expert's action, what
is learned in that state is the careful one's, so the policy learns to recover. The loss covers the whole sequence at
first (copying is learned from the many repeated names of a prompt) and mostly the response later.
"""

import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup, start_episode, take_action
from threespo.imitation.curriculum import Curriculum, Decision, Expert, Stage
from threespo.rng import derive, generator


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """One training sequence."""

    tokens: tuple[int, ...]
    prompt_length: int
    thought: tuple[int, int]
    """Span of the deciding tokens."""
    takes: bool = False
    """The demonstrated action takes an object."""


def response_text(decision: Decision) -> str:
    """Return the response that a decision is written as."""
    return f"<think> {decision.thought} </think>\n<action>{decision.action}</action>"


def demonstrations(
    expert: Expert, setup: EpisodeSetup, tasks: Iterator[Task], stage: Stage, seed: int
) -> Iterator[tuple[str, str]]:
    """Yield (prompt, response) for every state of an endless stream of the expert's episodes.

    Args:
        expert: who acts.
        setup: environment, step limit and history length.
        tasks: what is played.
        stage: says how noisy the experts are that play and that are imitated.
        seed: of the faults.
    """
    for number, task in enumerate(tasks):
        rng = generator(seed, "demonstration", number)
        episode = start_episode(setup, task)
        while not episode.done:
            played = expert(episode, rng, stage.executed)
            label = played if stage.labels is None else expert(episode, rng, stage.labels)
            yield episode.prompt, response_text(label)
            episode = take_action(episode, played.action)


@dataclass(frozen=True, slots=True)
class TrainingHook:
    """Looks at a model while it is trained, without changing it."""

    every: int
    """Training tokens of a stage from one look to the next."""
    look: Callable[[int], None]
    """Called with the training tokens so far, those of earlier stages included."""


class Cloner:
    """Trains a model on demonstrations, one stage at a time."""

    def __init__(self, model: Any, tokenizer: Any, curriculum: Curriculum) -> None:
        """Prepare training; nothing is computed yet.

        Args:
            model: a ``transformers`` causal language model, trained in place.
            tokenizer: its tokenizer, with chat template.
            curriculum: tasks, expert and seed.
        """
        self.model, self.tokenizer, self.curriculum, self.seed = (
            model,
            tokenizer,
            curriculum,
            curriculum.recipe.seed,
        )
        self.stages, self.tokens = 0, 0

    def run(self, stage: Stage, watch: TrainingHook | None = None) -> None:
        """Train for one stage, showing progress on stderr.

        Args:
            stage: what is done.
            watch: looks at the model in between.
        """
        self.stages += 1
        optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=stage.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
        )
        steps = math.ceil(stage.tokens / (stage.batch * self._mean_length(stage)))

        losses: list[float] = []
        start, seen, step, due = time.perf_counter(), 0, 0, watch.every if watch else 0
        self.model.train()

        for batch in self._batches(stage):
            for group in optimizer.param_groups:
                group["lr"] = stage.learning_rate * _schedule(step, steps)
            loss = self._loss(batch, stage)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            read = sum(len(example.tokens) for example in batch)
            seen, self.tokens, step = seen + read, self.tokens + read, step + 1
            if watch and seen >= due:
                watch.look(self.tokens)
                due += watch.every
            if step % 100 == 0 or seen >= stage.tokens:
                rate, recent = seen / (time.perf_counter() - start), losses[-100:]
                print(
                    f"  cloning stage {self.stages}: {seen / stage.tokens:4.0%}  loss {sum(recent) / len(recent):.4f}"
                    f"  {rate:,.0f} tokens/s  {(stage.tokens - seen) / rate / 60:.1f} min left",
                    file=sys.stderr,
                    flush=True,
                )
            if seen >= stage.tokens:
                break

        self.model.eval()

    def _examples(self, stage: Stage, offset: int = 0) -> Iterator[TrainingExample]:
        stream = derive(self.seed, "clone", self.stages, offset)
        curriculum = self.curriculum
        tasks = curriculum.tasks(stream, stage.generated_share)
        pairs = demonstrations(curriculum.expert, curriculum.setup, tasks, stage, stream)
        while chunk := list(itertools.islice(pairs, 512)):
            yield from encode_pairs(self.tokenizer, chunk, self.curriculum.decides)

    def _mean_length(self, stage: Stage) -> float:
        sample = list(itertools.islice(self._examples(stage, offset=1), 512))
        return sum(len(example.tokens) for example in sample) / len(sample)

    def _batches(self, stage: Stage) -> Iterator[list[TrainingExample]]:
        """Yield batches of similar lengths out of a shuffled pool of many episodes."""
        rng = random.Random(derive(self.seed, "batches", self.stages))
        examples = self._examples(stage)
        while pool := list(itertools.islice(examples, stage.batch * 128)):
            rng.shuffle(pool)
            # Similar lengths need little padding; lengths within eight tokens stay shuffled, so batches still mix.
            pool.sort(key=lambda example: len(example.tokens) // 8)
            batches = [pool[i : i + stage.batch] for i in range(0, len(pool), stage.batch)]
            rng.shuffle(batches)
            yield from batches

    def _loss(self, batch: list[TrainingExample], stage: Stage) -> Tensor:
        width = max(len(example.tokens) for example in batch)
        tokens = torch.zeros((len(batch), width), dtype=torch.long)
        weights = torch.zeros((len(batch), width))
        for row, example in enumerate(batch):
            length = len(example.tokens)
            tokens[row, :length] = torch.tensor(example.tokens)
            weights[row, : example.prompt_length] = stage.prompt_weight
            weights[row, example.prompt_length : length] = 1.0
            weights[row, slice(*example.thought)] = stage.decision_weight * (
                stage.take_weight if example.takes else 1
            )

        # Padding is on the right: causal attention never looks at it, so no mask is needed.
        hidden = self.model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state

        # The head over the vocabulary is most of a tiny model's work, so only tokens that weigh something go through it.
        targets, weighed = tokens[:, 1:], weights[:, 1:]
        counts = weighed > 0
        losses = torch.nn.functional.cross_entropy(
            self.model.lm_head(hidden[counts]), targets[counts], reduction="none"
        )
        return (losses * weighed[counts]).sum() / weighed.sum()


def encode_pairs(
    tokenizer: Any, pairs: list[tuple[str, str]], decides: Literal["thought", "response"] = "thought"
) -> list[TrainingExample]:
    """Turn (prompt, response) texts into training sequences through the tokenizer's chat template.

    Args:
        tokenizer: with a chat template.
        pairs: the texts.
        decides: where the deciding tokens end: with the thought, or with the response.
    """
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        for prompt, _ in pairs
    ]
    heads = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    tails = tokenizer(
        [response + tokenizer.eos_token for _, response in pairs], add_special_tokens=False
    )["input_ids"]

    closing = {index for text, index in tokenizer.get_vocab().items() if "</think>" in text}

    examples = []
    for (_, response), head, tail in zip(pairs, heads, tails, strict=True):
        # The tail is "<think>", the goal noun, the deciding tokens up to the one that closes the thought, the action.
        stop = next((i for i, token in enumerate(tail) if token in closing), len(tail) - 1)
        span = (len(head) + 2, len(head) + (stop + 1 if decides == "thought" else len(tail)))
        examples.append(TrainingExample((*head, *tail), len(head), span, "<action>take " in response))
    return examples


def _schedule(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / 60)
    return warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, steps)))))
