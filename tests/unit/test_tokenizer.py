"""The tiny policies' tokenizer: lossless on any text, short on game text, the same after saving."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, Qwen2Config

from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.episode import EpisodeSetup
from threespo.imitation.alfworld.curriculum import NOISY
from threespo.imitation.alfworld.expert import CAREFUL, decide
from threespo.imitation.cloning import demonstrations, encode_pairs
from threespo.imitation.curriculum import Stage
from threespo.imitation.tokenizer import PROMPT, RESPONSE, build_tokenizer, shop_vocabulary, vocabulary


@pytest.fixture(scope="module")
def games():
    return [compile_game(record) for record in generate_games("train", 60, 5, "small")]


@pytest.fixture(scope="module")
def pairs(games):
    stage = Stage(1, 1e-3, 1, 1, NOISY, CAREFUL)
    return list(demonstrations(decide, EpisodeSetup(Alfworld(), 15, 2), iter(games), stage, 1))


@pytest.fixture(scope="module")
def tokenizer(games, pairs):
    names = {name.split()[0] for game in games for name in (*game.receptacles, *game.objects)}
    return build_tokenizer(vocabulary((text for pair in pairs for text in pair), names))


def test_game_text_is_short_and_names_are_single_tokens(tokenizer, pairs):
    lengths = [len(tokenizer(prompt)["input_ids"]) for prompt, _ in pairs]
    assert sum(lengths) / len(lengths) < 160
    assert len(tokenizer(" cabinet 3")["input_ids"]) == 2


@given(text=st.text(max_size=60))
def test_any_text_survives(tokenizer, text):
    import unicodedata

    # Like all tokenizers of this model family it normalises to NFC.
    text = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_a_saved_tokenizer_is_the_same(tokenizer, pairs, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    Qwen2Config(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded) == len(tokenizer)
    for prompt, response in pairs[:50]:
        assert loaded(prompt + response)["input_ids"] == tokenizer(prompt + response)["input_ids"]
    message = [{"role": "user", "content": "hello"}]
    text = loaded.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    assert text == PROMPT + "hello" + RESPONSE


def test_deciding_tokens_are_those_of_the_thought(tokenizer):
    response = "<think> mug not here . next desk 1 </think>\n<action>go to desk 1</action>"
    (example,) = encode_pairs(tokenizer, [("x", response)])
    words = [tokenizer.decode([token]) for token in example.tokens]
    start, stop = example.decision
    assert "".join(words[: example.prompt_length]).endswith(RESPONSE)
    assert "".join(words[start:stop]).startswith(" not here")
    assert "</think>" in words[stop - 1]
    assert "".join(words[stop:]).endswith("desk 1</action><|end|>")


SHOP = [
    "Your task is to: Find me soft, red table lamp with color: navy blue.\n['E00000001A' [SEP] 'Kelobex Table Lamp']\n",
    "<think> lamp 'e00000001a' </think>\n<action>click[e00000001a]</action>",
]
SHOP_NAMES = {
    "find",
    "me",
    "soft",
    "red",
    "table",
    "lamp",
    "color",
    "navy blue",
    "e00000001a",
    "kelobex",
    "navy",
}


@pytest.fixture(scope="module")
def shop_tokenizer():
    return build_tokenizer(
        shop_vocabulary([text.lower() for text in SHOP] * 8, SHOP_NAMES), lowercase=True
    )


def test_in_a_shop_names_are_single_tokens_in_either_case(shop_tokenizer):
    message = [{"role": "user", "content": SHOP[0]}]
    text = shop_tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    tokens = shop_tokenizer.convert_ids_to_tokens(
        shop_tokenizer(text, add_special_tokens=False)["input_ids"]
    )
    assert text == f"{PROMPT}{SHOP[0].lower()}<|response|>"
    assert tokens.count(" table") == 2
    assert {"e00000001a", "kelobex", " navy blue"} <= set(tokens)
    assert len(tokens) < 32


def test_a_shops_response_reads_as_it_was_written(shop_tokenizer):
    assert shop_tokenizer.decode(shop_tokenizer(SHOP[1])["input_ids"]) == SHOP[1]
    tokens = shop_tokenizer.convert_ids_to_tokens(shop_tokenizer(SHOP[1])["input_ids"])
    assert tokens[:2] == ["<think>", " lamp"]
    assert tokens.count("e00000001a") == 2


def test_only_forms_that_occur_are_tokens_on_demand():
    everything = shop_vocabulary([text.lower() for text in SHOP] * 8, {*SHOP_NAMES, "sofa"})
    seen = shop_vocabulary([text.lower() for text in SHOP] * 8, {*SHOP_NAMES, "sofa"}, seen_only=True)
    assert {"sofa", " sofa", "table", " table"} <= set(everything)
    assert {" table", "e00000001a", " navy blue"} <= set(seen)
    assert not {"sofa", " sofa", "table", "navy blue"} & set(seen)
    tokenizer = build_tokenizer(seen, lowercase=True)
    assert tokenizer.decode(tokenizer("a sofa table")["input_ids"]) == "a sofa table"


def test_what_is_learned_of_a_shop_survives_saving(shop_tokenizer, tmp_path):
    shop_tokenizer.save_pretrained(tmp_path)
    Qwen2Config().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    message = [{"role": "user", "content": SHOP[0]}]
    for tokenizer in (shop_tokenizer, loaded):
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        assert "find me soft" in text
    assert loaded(SHOP[1])["input_ids"] == shop_tokenizer(SHOP[1])["input_ids"]
