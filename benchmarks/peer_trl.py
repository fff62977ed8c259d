"""The peer of the update benchmark: TRL's GRPO loss step on the same rows.

What TRL does with finished completions, without its data loading and logging: reference log-probabilities, its loss
(entropy included, as its trainer computes it), backward, clipping, AdamW.
"""

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from threespo.policy.model import Policy


def loss_step(
    policy: Policy,
    pairs: Sequence[tuple[list[int], list[int]]],
    advantages: Sequence[float],
    n: int,
    tokens: int,
) -> Callable[[], None]:
    """Return a function that takes one optimizer step with TRL, in micro-batches of about ``tokens`` tokens."""
    trainer = _trainer(policy, n)
    trainer.ref_model.to(policy.device)
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=1e-6, weight_decay=0.01)
    rows = max(1, tokens // len(pairs[0][0] + pairs[0][1]))
    batches = [
        {
            name: value.to(policy.device)
            for name, value in _inputs(
                pairs[start : start + rows], advantages[start : start + rows]
            ).items()
        }
        for start in range(0, len(pairs), rows)
    ]
    weights = [len(batch["advantages"]) / len(pairs) for batch in batches]

    def step() -> None:
        optimizer.zero_grad()
        for batch, weight in zip(batches, weights, strict=True):
            whole = torch.cat((batch["prompt_ids"], batch["completion_ids"]), dim=1)
            mask = torch.cat((batch["prompt_mask"], batch["completion_mask"]), dim=1)
            with torch.no_grad():
                reference = trainer._get_per_token_logps_and_entropies(
                    trainer.ref_model, whole, mask, batch["completion_ids"].shape[1]
                )[0]
            loss = trainer._compute_loss(trainer.model, {**batch, "ref_per_token_logps": reference})
            (loss * weight).backward()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        optimizer.step()

    return step


def _trainer(policy: Policy, n: int) -> Any:
    words = {"<end>": 0, "a": 1}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<end>")),
        eos_token="<end>",
        pad_token="<end>",
    )
    with tempfile.TemporaryDirectory() as folder:
        model: Any = policy.model
        model.save_pretrained(folder)
        settings = GRPOConfig(
            output_dir=folder,
            use_cpu=policy.device.type == "cpu",
            bf16=False,
            gradient_checkpointing=False,
            beta=0.01,
            loss_type="dapo",
            num_generations=n,
            per_device_train_batch_size=n,
            report_to=[],
            disable_tqdm=True,
            model_init_kwargs={"dtype": str(model.dtype).rpartition(".")[2]},
        )
        trainer = GRPOTrainer(
            model=folder,
            reward_funcs=lambda **_: [0.0],
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": ["a"] * n}),
            processing_class=tokenizer,
        )
    trainer.model.to(policy.device).train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _inputs(pairs: Sequence[tuple[list[int], list[int]]], advantages: Sequence[float]) -> dict[str, Any]:
    prompts, completions = (torch.tensor([pair[side] for pair in pairs]) for side in (0, 1))
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": torch.tensor(completions.numel()),
    }
