"""Every causal architecture of the installed transformers, tiny and with random weights: it is sampled from its own
distribution, or one line says why not."""

import itertools

import pytest
import torch

from tests.architectures import CONFIGURATIONS, save, save_stub
from tests.models import naive_logprobs
from threespo.errors import InputError
from threespo.learner.forward import ResponseScorer, check_packed_logprobs
from threespo.policy.model import load_policy
from threespo.policy.sampler import TorchSampler
from threespo.protocol import SampleRequest

PROMPTS = {"w1 w2 w3 w4 w5 w6 w7": 2, "w5 w3": 1, "w9": 1}
REQUESTS = tuple(SampleRequest(prompt, count, (prompt,)) for prompt, count in PROMPTS.items())

ENCODERS = (
    *(
        "bert",
        "bert-generation",
        "big_bird",
        "camembert",
        "data2vec-text",
        "electra",
        "ernie",
        "megatron-bert",
        "rembert",
    ),
    *(
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xlnet",
    ),
)
"""They read a text from both sides unless their configuration says otherwise."""

NOT_SAMPLED = {
    **dict.fromkeys(
        [*ENCODERS, "bamba", "prophetnet", "rwkv"],
        "its log-probabilities are others than in one forward",
    ),
    "blt": "BltConfig.* has no attribute 'num_hidden_layers'",
    "cpmant": "must match the size",
    "xlstm": "matC_old has wrong shape",
    "xmod": "Input language unknown",
}
"""Architectures that are loaded and not sampled, and why."""

NOT_LOADED = {
    "gemma3n": "requires the timm library.*Install what it asks for",
    "gemma4_assistant": "does not run this model",
    "gemma4_unified_assistant": "does not run this model",
    "musicgen": "does not run this model",
    "musicgen_melody": "does not run this model",
}
"""Models that need what is not here, or that are no language models of their own."""

QUICK = {
    # Nested configurations, contexts without a limit, limits of other names, caches that cannot be reordered, positions that
    # count the padding, attention of one form only, encoders, assistants of other models.
    *(
        "gemma3",
        "llama4",
        "qwen3_5",
        "mamba",
        "recurrent_gemma",
        "bloom",
        "whisper",
        "bart",
        "gpt_oss",
        "roberta",
    ),
    *("gemma4_assistant", "blt", "falcon"),
}
"""One of each kind; all others are tried by the long tests."""

EACH = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long])
    for name in sorted(CONFIGURATIONS)
]


@pytest.fixture(autouse=True)
def _one_thread():
    """More threads only wait for each other on matrices of this size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", EACH)
def test_a_model_of_any_architecture_is_sampled_or_says_why_not(name, tmp_path):
    if name in NOT_LOADED:
        save_stub(CONFIGURATIONS[name], tmp_path)
        with pytest.raises(InputError, match=NOT_LOADED[name]) as refused:
            load_policy(tmp_path)
        assert "\n" not in str(refused.value)
        return

    save(CONFIGURATIONS[name], tmp_path)
    policy = load_policy(tmp_path)
    assert policy.max_context >= 64
    policy.eos_ids = frozenset({-1})
    sampler = TorchSampler(policy, max_new_tokens=4, max_batch_rows=8, max_prompt_tokens=50)
    if name in NOT_SAMPLED:
        with pytest.raises(InputError, match=NOT_SAMPLED[name]) as refused:
            sampler.sample(REQUESTS, seed=0, temperature=1.0)
        assert "\n" not in str(refused.value)
        return

    replies = sampler.sample(REQUESTS, seed=0, temperature=1.0)
    for request, samples in zip(REQUESTS, replies, strict=True):
        for sample in samples:
            assert len(sample.tokens) == 4
            expected = naive_logprobs(policy, request.prompt, sample.tokens)
            torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["llama", "mamba", "bart"])
def test_responses_that_end_early_leave_the_others_as_they_are(name, tmp_path):
    """Whether rows leave a batch, or are read on in it: what ends is cut there, and nothing else changes."""
    save(CONFIGURATIONS[name], tmp_path)
    policy = load_policy(tmp_path)
    requests = tuple(SampleRequest(f"w{number} w7", 4, (number,)) for number in range(3))
    drawn = {}
    for ends in (frozenset({-1}), frozenset(range(3, 30))):
        policy.eos_ids = ends
        drawn[ends] = TorchSampler(policy, 6, 32, 50).sample(requests, seed=1, temperature=1.0)
    whole, ended = drawn.values()
    lengths = set()
    for one, other in zip(itertools.chain(*whole), itertools.chain(*ended), strict=True):
        lengths.add(len(other.tokens))
        assert other.tokens == one.tokens[: len(other.tokens)]
        assert other.finished == (other.tokens[-1] in policy.eos_ids)
        assert not set(other.tokens[:-1]) & policy.eos_ids
    assert len(lengths) > 1


def test_the_lists_name_architectures_that_there_are():
    assert {*NOT_SAMPLED, *NOT_LOADED, *QUICK} <= set(CONFIGURATIONS)


TRAINED = ["llama", "qwen3", "gpt2", "opt", "deepseek_v3", "mllama", "granite"]
"""Grouped heads, positions that are learned, with an offset, latent attention, a nested configuration."""

NOT_TRAINED = {
    # Silent about a group's positions or mask, all of them.
    **dict.fromkeys(
        ["gpt_neo", "gptj", "mpt", "bart", "roberta", "doge"],
        "log-probabilities in a pack are others than",
    ),
    "qwen3_5": "layers with linear_attention cannot be trained here",
    "gemma3": "layers with sliding_attention cannot be trained here",
    "mamba": "cannot be trained here",
    "bloom": "cannot be trained here",
}


@pytest.mark.parametrize("name", [*TRAINED, *NOT_TRAINED])
def test_a_model_is_trained_in_packs_or_says_why_not(name, tmp_path):
    save(CONFIGURATIONS[name], tmp_path)
    model = load_policy(tmp_path).model
    if name in TRAINED:
        check_packed_logprobs(ResponseScorer(model))
        return
    with pytest.raises(InputError, match=NOT_TRAINED[name]) as refused:
        ResponseScorer(model)
    assert "\n" not in str(refused.value)
