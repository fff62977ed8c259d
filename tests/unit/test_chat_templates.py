"""Chat templates as people have them: thoughts that they open, clocks, variables, messages in blocks; and odd tokenizers."""

import inspect
import json

import pytest
import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from tests.templates import CLOCK, PLAIN, SWITCHED, THOUGHTS, folder, model, that_adds, tokenizer
from threespo.adapters.verl_agent import alfworld_projection, webshop_projection
from threespo.agents.rollout import play_episodes
from threespo.agents.trials import Agent, play_trials
from threespo.envs.parsing import unclosed_thought
from threespo.errors import InputError
from threespo.gym.tasks import open_tasks
from threespo.policy.model import load_policy, load_policy_without_model, make_policy
from threespo.policy.sampler import TorchSampler
from threespo.policy.settings import RESERVED_TEMPLATE_VARIABLES, TemplateSettings
from threespo.protocol import Sample, SampleRequest
from threespo.settings import select_key_fields
from threespo.study.config import PolicySettings
from threespo.study.load import load_study
from threespo.study.marks import configuration_digest
from threespo.study.resolve import STUDIES

PROMPT = "\nWhere is the mug?\n"


def policy(template=PLAIN, settings=None, **options):
    words = tokenizer(template, **options)
    return make_policy(model(words), words, "made", settings or TemplateSettings())


class Player:
    """Answers each prompt of a game with the next command of its walkthrough, in a model's tokens."""

    def __init__(self, policy, tasks, form):
        self.policy, self.form = policy, form
        self.commands = {task.task_id: tasks.expert.plan(task, ()) for task in map(tasks.task, range(5))}

    def sample(self, requests, *, seed, temperature):
        replies = []
        for request in requests:
            *_, task_id, step = request.key
            written = self.form.format(self.commands[task_id][step])
            ids = self.policy.tokenizer(written, add_special_tokens=False)["input_ids"]
            ids = [*ids, min(self.policy.eos_ids)]
            replies.append(
                [Sample(tuple(ids), (0.0,) * len(ids), self.policy.decode([ids])[0], True, 0)]
            )
        return replies


@pytest.fixture(scope="module")
def games():
    return open_tasks("alfworld", split="valid_unseen", expert="walkthrough")


OWN, REST = "<think>so</think><action>{}</action>", "so</think><action>{}</action>"
PLAYED = [
    *[(template, REST, True) for template in THOUGHTS.values()],
    (SWITCHED, REST, True),
    (
        SWITCHED.replace("is false", "is not none").replace("is defined and", "is not defined or"),
        OWN,
        True,
    ),
    (PLAIN, OWN, True),
    # What the model was to write and has not is its fault.
    (PLAIN, REST, False),
    (THOUGHTS["<think>\n"], "so<action>{}</action>", False),
    (SWITCHED.replace("is defined and", "is not defined or"), "<action>{}</action>", False),
]


@pytest.mark.parametrize(("template", "form", "valid"), PLAYED)
@pytest.mark.parametrize("tags_special", [False, True], ids=["text", "special"])
def test_a_perfect_player_is_judged_by_the_whole_turn(games, template, form, valid, tags_special):
    player = Player(policy(template, tags_special=tags_special), games, form)
    tasks = [games.task(place) for place in range(5)]
    records = play_episodes(games.setup, tasks, player, seed=0, temperature=1.0, key=("test",))
    assert all(record.episode.won for record in records)
    steps = sum(record.steps for record in records)
    assert sum(record.invalid_format for record in records) == (0 if valid else steps)

    agent = Agent("react", thoughts_in_history=True)
    (played,) = play_trials(
        games.setup, tasks[:1], player, agent, seed=0, temperature=1.0, key=("test",)
    )
    assert played.invalid_format == (0 if valid else played.steps)


@pytest.mark.parametrize("opening", THOUGHTS)
def test_the_opened_thought_is_the_beginning_of_every_text(opening):
    source = policy(THOUGHTS[opening])
    assert source.opening == opening
    assert source.template.after.endswith(opening)
    drawn = TorchSampler(source, 3, 4, 500).sample(
        (SampleRequest(PROMPT, 2, (0,)),), seed=0, temperature=1.0
    )[0]
    assert all(sample.text.startswith(opening) for sample in drawn)
    assert all(len(sample.tokens) == 3 or sample.finished for sample in drawn), (
        "the opening is not among the drawn tokens"
    )
    assert source.tokenizer.decode(source.encode_prompt(PROMPT)).endswith(opening)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<model><think>\n", "<think>\n"),
        ("<think>a</think><think>b", "<think>b"),
        ("<think>\n\n</think>\n\n", ""),
        ("<model>", ""),
        ("<thinking>\n", ""),
        ("</think><think>", "<think>"),
        ("", ""),
    ],
)
def test_what_a_text_leaves_open(text, expected):
    assert unclosed_thought(text) == expected


def test_projections_of_verl_agent_are_told_of_it():
    said = [
        "so</think><action>Look</action>",
        "<think>so</think><action>look</action>",
        "so<action>look</action>",
    ]
    assert alfworld_projection(said) == (["look"] * 3, [0, 1, 0])
    assert alfworld_projection(said, opening="<think>\n") == (["look"] * 3, [1, 1, 0])
    assert webshop_projection(said, opening="<think>") == (["look"] * 3, [1, 1, 0])
    assert webshop_projection(["x" * 40], opening="<think>") == (["x" * 20], [0])


@pytest.mark.parametrize(
    ("form", "default", "other"),
    [
        ("%d %b %Y", "26 Jul 2024", "05 Jan 2031"),
        ("%B %d, %Y", "July 26, 2024", "January 05, 2031"),
        ("%Y-%m-%d", "2024-07-26", "2031-01-05"),
        ("%A, %H:%M", "Friday, 00:00", "Sunday, 00:00"),
    ],
)
def test_a_templates_clock_stands_at_the_studys_day(form, default, other):
    template = CLOCK.replace("FORMAT", form)
    assert f"Today is {default}." in policy(template).template.render(PROMPT)
    settings = TemplateSettings(chat_template_date="2031-01-05")
    source = policy(template, settings)
    assert (
        source.tokenizer.decode(source.encode_prompt(PROMPT))
        == f"<system>Today is {other}.<user>{PROMPT}<model>"
    )


def test_a_day_may_be_given_as_the_templates_variable():
    settings = TemplateSettings(chat_template_kwargs={"day": "doomsday"})
    assert policy(CLOCK, settings).template.render("x").startswith("<system>Today is doomsday.")


def test_variables_reach_the_template():
    assert policy(SWITCHED).opening == "<think>\n"
    for value, opening in ((False, ""), (True, "<think>\n")):
        source = policy(SWITCHED, TemplateSettings(chat_template_kwargs={"enable_thinking": value}))
        assert source.opening == opening
        assert source.encode_prompt(PROMPT) != policy(PLAIN).encode_prompt(PROMPT)
    given = TemplateSettings(chat_template_kwargs={"n": 2, "who": "A"})
    written = policy(PLAIN + "{{ n + 1 if n is defined }}{{ who }}", given)
    assert written.template.after == "<model>3A"


@pytest.mark.parametrize("name", ["enable_thinkng", "thinking", "content2", "enable"])
def test_a_variable_that_the_template_does_not_read_is_refused(name):
    with pytest.raises(
        InputError, match=f"{name}: the chat template does not read it; it reads enable_thinking"
    ):
        policy(SWITCHED, TemplateSettings(chat_template_kwargs={name: False}))


def test_variables_without_a_template_are_refused():
    with pytest.raises(InputError, match="the tokenizer has no chat template; leave it out"):
        policy(None, TemplateSettings(chat_template_kwargs={"a": 1}))


def test_the_names_of_the_functions_own_arguments_are_reserved():
    own = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    assert {
        name for name, one in own.items() if one.kind is not one.VAR_KEYWORD
    } <= RESERVED_TEMPLATE_VARIABLES


def test_both_settings_decide_whether_a_job_runs_again():
    entry = {"kind": "pretrained", "source": "a/b", "stands_for": "x"}
    keys = [
        json.dumps(select_key_fields(PolicySettings(**entry, **change).sampling(0)))
        for change in (
            {},
            {"chat_template_kwargs": {"enable_thinking": False}},
            {"chat_template_kwargs": {"enable_thinking": True}},
            {"chat_template_date": "2025-01-01"},
        )
    ]
    assert len(set(keys)) == 4
    # What was made before there were such fields was made with their defaults, and stands.
    assert "chat_template" not in keys[0]
    assert json.loads(keys[1])["chat_template_kwargs"] == {"enable_thinking": False}
    assert json.loads(keys[3])["chat_template_date"] == "2025-01-01"
    kept = PolicySettings(**entry).model_dump()
    assert kept["chat_template_date"] == "2024-07-26", (
        "the study that is kept with results names the day"
    )


def test_marks_of_frozen_studies_are_of_the_same_configuration():
    """The fields were added after these were frozen."""
    frozen = [
        study for file in sorted(STUDIES.glob("*.yaml")) if (study := load_study(file)).confirmatory
    ]
    assert frozen
    for study in frozen:
        assert configuration_digest(study) == study.confirmatory.configuration, study.name


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% for b in m['content'] %}{% if b['type'] == 'text' %}<user>{{ b['text'] }}{% endif %}"
        "{% endfor %}{% endfor %}<model>",
        "<user>{{ messages[0]['content'][0]['text'] }}<model>",
        "{% set c = messages[0]['content'] %}{% if c is string %}{{ raise_exception('blocks') }}{% endif %}"
        "<user>{{ c[0].text }}<model>",
    ],
)
def test_a_template_that_reads_blocks_is_given_blocks(template):
    assert policy(template).template.render(PROMPT) == f"<user>{PROMPT}<model>"


@pytest.mark.parametrize("change", ["| trim", "| lower", "| replace('a', 'a')"])
def test_a_template_may_trim_or_lower_the_message(change):
    source = policy(PLAIN.replace("m['content']", f"m['content'] {change}"))
    assert (source.template.before, source.template.after) == ("<user>", "<model>")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (
            "{{ raise_exception('a system message comes first') }}",
            "it refuses one: a system message comes first",
        ),
        ("<user>{{ messages[0]['text'] }}<model>", "it leaves its text out"),
        ("{{ messages[0].content.missing.name }}", "it refuses one"),
        ("{% if %}", "it refuses one"),
        ("<user><model>", "it leaves its text out"),
    ],
)
def test_a_template_without_the_message_is_refused(template, says):
    with pytest.raises(InputError, match=says) as refused:
        policy(template)
    assert "\n" not in str(refused.value)


def test_a_template_with_several_forms_is_used_in_its_usual_one():
    assert policy({"default": PLAIN, "tool_use": "tools"}).template.render("x") == "<user>x<model>"


def test_a_leading_token_stands_once():
    """Where the template writes it, the tokenizer does not; without a template the tokenizer does."""
    for template in ("{{ bos_token }}" + PLAIN, "<s>" + PLAIN):
        words = that_adds(tokenizer(template, bos_token="<s>"), "<s> $A")
        ids = make_policy(model(words), words, "made").encode_prompt("x")
        assert words.convert_ids_to_tokens(ids) == ["<s>", "<user>", "x", "<model>"]
    words = that_adds(tokenizer(None, bos_token="<s>"), "<s> $A")
    assert words.convert_ids_to_tokens(make_policy(model(words), words, "made").encode_prompt("x")) == [
        "<s>",
        "x",
    ]


@pytest.mark.parametrize("form", ["$A <end>", "<s> $A <end>", "$A <end> <end>"])
def test_a_prompt_does_not_end_in_the_end_token(form):
    words = that_adds(tokenizer(None, bos_token="<s>"), form)
    ids = make_policy(model(words), words, "made").encode_prompt("xy")
    assert words.convert_ids_to_tokens(ids)[-2:] == ["x", "y"]


def test_end_tokens_are_those_of_all_files(tmp_path):
    words = tokenizer(special=("<s>", "<end>", "<user>", "<model>", "<stop>", "<turn>"))
    of = words.convert_tokens_to_ids
    place = folder(tmp_path, words, eos_token_id=[of("<stop>"), of("<turn>")])
    assert load_policy(place).eos_ids == {of("<end>"), of("<stop>"), of("<turn>")}
    GenerationConfig(eos_token_id=[of("<s>"), of("<stop>")]).save_pretrained(place)
    every = {of("<end>"), of("<stop>"), of("<turn>"), of("<s>")}
    assert load_policy(place).eos_ids == load_policy_without_model(str(place)).eos_ids == every


def test_a_tokenizer_without_a_pad_token_is_sampled():
    source = policy()
    assert source.tokenizer.pad_token is None
    requests = tuple(SampleRequest("x" * length, 2, (length,)) for length in (1, 9, 30))
    replies = TorchSampler(source, 4, 8, 500).sample(requests, seed=0, temperature=1.0)
    for request, samples in zip(requests, replies, strict=True):
        ids = source.encode_prompt(request.prompt)
        for sample in samples:
            with torch.no_grad():
                logits = source.model(torch.tensor([[*ids, *sample.tokens]])).logits[
                    0, len(ids) - 1 : -1
                ]
            expected = logits.log_softmax(-1).gather(1, torch.tensor(sample.tokens)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)
