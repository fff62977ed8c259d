"""Tokenizers that know any text, byte by byte, and chat templates with the features of those that people use."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

PLAIN = "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<model>{% endif %}"

THOUGHTS = {
    "<think>\n": PLAIN.replace("<model>", "<model><think>\n"),
    "<think>": PLAIN.replace("<model>", "<model><think>"),
    "<think> So, ": PLAIN.replace("<model>", "<model>Let me see.\n<think> So, "),
    "<think>\n\n": PLAIN.replace("{% if add", "{% if true or add").replace(
        "<model>", "<model>\n<think>\n\n"
    ),
}
"""Templates that open a thought, by what they write of it."""

SWITCHED = PLAIN.replace(
    "<model>",
    "<model>{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}",
)
"""Opens a thought, or opens and closes an empty one where thinking is switched off."""

CLOCK = (
    "{% if day is not defined %}{% set day = strftime_now('FORMAT') if strftime_now is defined else 'never' %}{% endif %}"
    "<system>Today is {{ day }}." + PLAIN
)


def tokenizer(
    template: str | None = PLAIN,
    *,
    special=("<s>", "<end>", "<user>", "<model>"),
    tags_special=False,
    **options,
):
    """Return a tokenizer whose tokens are bytes and ``special`` ones; ``options`` are those of the class."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True) for token in special])
    if tags_special:
        inner.add_special_tokens(
            [AddedToken(tag, special=True) for tag in ("<think>", "</think>", "<action>", "</action>")]
        )
    made = PreTrainedTokenizerFast(tokenizer_object=inner, **{"eos_token": "<end>", **options})
    made.chat_template = template
    return made


def that_adds(made: PreTrainedTokenizerFast, form: str) -> PreTrainedTokenizerFast:
    """Let a tokenizer add tokens to every text, as ``"<s> $A"`` says."""
    ids = [(token, made.convert_tokens_to_ids(token)) for token in ("<s>", "<end>")]
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=form, special_tokens=ids
    )
    return made


def model(words: PreTrainedTokenizerFast, **fields) -> Qwen2ForCausalLM:
    shape = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    more = {"num_key_value_heads": 2, "max_position_embeddings": 8192, "vocab_size": len(words)}
    return Qwen2ForCausalLM(
        Qwen2Config(**{**shape, **more, "bos_token_id": None, "eos_token_id": None, **fields})
    )


def folder(place: Path, words: PreTrainedTokenizerFast, **fields) -> Path:
    """Write a model folder."""
    model(words, **fields).save_pretrained(place)
    words.save_pretrained(place)
    return place
