"""The page on chat endpoints, row by row, against a real server; and at random, with the page as the oracle."""

import json
import random
import re
from dataclasses import replace

import pytest

from tests.chat_server import ChatServer, completion, says
from tests.endpoint_behaviours import ERRORS, REPLIES, TEXT, WORDS, Form, error, rows
from threespo.errors import InputError
from threespo.policy.cassette import Reply, read_replies
from threespo.policy.endpoint import EndpointSampler, EndpointSettings
from threespo.protocol import SampleRequest

KEY = "sk-fake-0123456789abcdef-SECRET"
ATTEMPTS = 4
FORMS = [
    pytest.param(name, form, id=f"{name} {number}")
    for behaviours in (REPLIES, ERRORS)
    for name, forms in behaviours.items()
    for number, form in enumerate(forms)
]
GOOD = "reply to "


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One server and one sampler for all rows; each row has a prompt of its own."""
    with pytest.MonkeyPatch.context() as patch, ChatServer() as server:
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("OPENAI_API_KEY", KEY)
        path = tmp_path_factory.mktemp("endpoint") / "replies.jsonl"
        settings = EndpointSettings(
            model="fake",
            input_price=1,
            output_price=1,
            timeout_s=30,
            max_attempts=ATTEMPTS,
            concurrency=1,
        )
        with EndpointSampler(settings, path, _wait=lambda *_: None) as sampler:
            yield World(server, sampler, path)


class World:
    def __init__(self, server, sampler, path):
        self.server, self.sampler, self.path = server, sampler, path
        self.prompts = 0

    def ask(self, *forms, forever=False):
        """Ask a new prompt, at which the server does this, and then, unless the last lasts, replies.

        Returns:
            The recorded reply or the error, and how often the prompt was asked.
        """
        self.prompts += 1
        prompt = f"prompt {self.prompts}"
        script = [form.action for form in forms]
        self.server._script[prompt] = script * ATTEMPTS if forever else script
        whole, asked = self.path.stat().st_size, len(self.server.asked)
        try:
            self.sampler.sample(
                (SampleRequest(prompt, 1, ("evaluate", prompt)),), seed=1, temperature=0.4
            )
            ended = None
        except InputError as error:
            ended = str(error)
        new = [Reply.model_validate_json(line) for line in self.path.read_bytes()[whole:].splitlines()]
        assert len(new) == (ended is None), (
            "either a reply is recorded, or the run stops and there is none"
        )
        return ended or new[0], sum(one.prompt == prompt for one in self.server.asked[asked:])


def observed(world, form):
    """Return what happens at a behaviour, in the words of the page."""
    first, asked = world.ask(form)
    if isinstance(first, str):
        assert asked == 1
        return "stops"
    if asked == 1:
        return f"counts as `{first.refused}`" if first.refused else "reply"
    assert first.text.startswith(GOOD)
    assert asked == 2
    last, asked = world.ask(form, forever=True)
    started = {ATTEMPTS: "again", 2: "once more"}[asked]
    return (
        f"{started}, then stops"
        if isinstance(last, str)
        else f"{started}, then counts as `{last.refused}`"
    )


def test_the_page_and_the_forms_have_the_same_rows():
    assert list(rows("Replies")) == list(REPLIES)
    assert list(rows("Errors")) == list(ERRORS)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_what_the_page_says_happens(world, name, form):
    world.ask()
    assert observed(world, form) == {**rows("Replies"), **rows("Errors")}[name]


QUOTING = [one for one in FORMS if re.search(WORDS, json.dumps(str(one.values[1].body)))]


@pytest.mark.parametrize(("name", "form"), QUOTING)
def test_the_words_of_the_service_are_passed_on(world, caplog, name, form):
    world.ask()
    # Of refusals the first of each kind is told.
    world.sampler._chat._warned_refusals.clear()
    outcome, _ = world.ask(form, forever=True)
    said = outcome if isinstance(outcome, str) else caplog.text
    assert WORDS in said
    assert "\n" not in said.strip()
    if isinstance(outcome, str):
        assert "What was recorded stays" in outcome


@pytest.mark.parametrize(
    ("row", "remedy"),
    [
        ("401, or 400 about the key", "Check OPENAI_API_KEY"),
        (
            "402, or any status about credit or quota",
            "Add credit at the service or raise its limit; the key itself",
        ),
        ("403 for another reason", "may not use this model or not from here"),
        ("413, about the account's tokens per minute", "Raise the account's limit"),
        ("407 from a proxy", "HTTPS_PROXY=http://USER:PASSWORD@HOST"),
    ],
)
def test_each_stop_has_its_own_remedy(world, row, remedy):
    for form in ERRORS[row]:
        ended, _ = world.ask(form)
        assert remedy in ended


def test_a_parameter_that_a_family_of_models_refuses_names_the_setting(world):
    endings = [world.ask(form)[0] for form in ERRORS["400 or 422, about a parameter"]]
    assert [re.findall(r"limit_parameter|send_temperature", ended) for ended in endings] == [
        ["limit_parameter"], ["send_temperature"], ["limit_parameter"], ["send_temperature"],
    ]  # fmt: skip


def test_the_first_refusal_of_each_kind_is_told_with_what_to_do(world, caplog):
    world.ask()
    world.sampler._chat._warned_refusals.clear()
    parts = {
        "no text, but a thought, and a reason to end": "correct its reasoning parser",
        "text, ended by a filter: `content_filter`": "filter",
        "no text, since the limit was used up before: `length`": "raise max_response_tokens",
        "413": WORDS,
    }
    for row in [*parts] * 3:
        world.ask({**REPLIES, **ERRORS}[row][0])
    told = [record.getMessage() for record in caplog.records]
    for message, part in zip(told, parts.values(), strict=True):
        assert "fake: a reply counts without a full answer" in message
        assert part in message


# Nothing is taken for the model's words that is not.


def _replies(world, row):
    for form in REPLIES[row]:
        reply, _ = world.ask(form)
        yield reply


@pytest.mark.parametrize(
    "row", [name for name, happens in rows("Replies").items() if happens == "reply"]
)
def test_text_is_recorded_as_it_was_sent(world, row):
    for reply in _replies(world, row):
        assert reply.text.strip() in (TEXT, "<think>I could", "<think>")
        assert reply.refusal is None


def test_a_thought_is_recorded_apart_from_the_text(world):
    thoughts = {
        reply.thought
        for reply in _replies(world, "text, and a thought in a field or a block of its own")
    }
    assert thoughts == {"open or <action>close</action>?"}


@pytest.mark.parametrize("row", [name for name in REPLIES if name.startswith("no text")])
def test_what_is_no_text_is_recorded_without_text(world, row):
    for form in REPLIES[row]:
        reply, _ = world.ask(form, forever=True)
        assert not reply.text.strip()
        assert reply.refused == reply.refusal is not None


def test_tokens_of_attempts_without_text_are_billed_with_the_reply(world):
    empty = Form(completion(None, None))
    reply, _ = world.ask(empty, empty)
    assert reply.tokens == (300, 60)
    reply, _ = world.ask(empty, forever=True)
    assert reply.tokens == (400, 80)


# A refused prompt, or a service that refuses everything.

REFUSING = [one for one in FORMS if "counts as `prompt" in rows("Errors").get(one.values[0], "")]


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Return a server and a function that asks it with a new sampler."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)

        def ask(*prompts, **changes):
            given = {
                "model": "fake",
                "input_price": 1,
                "output_price": 1,
                "concurrency": 1,
                "max_attempts": 2,
                **changes,
            }
            requests = tuple(SampleRequest(prompt, 1, ("evaluate", prompt)) for prompt in prompts)
            with EndpointSampler(
                EndpointSettings(**given), tmp_path / "replies.jsonl", _wait=lambda *_: None
            ) as sampler:
                return sampler.sample(requests, seed=1, temperature=0.4)

        yield server, ask, tmp_path / "replies.jsonl"


@pytest.mark.parametrize(("name", "form"), REFUSING)
def test_a_service_that_refuses_every_prompt_stops_the_run(fresh, name, form):
    """A wrong request, and no prompt's fault: nothing is recorded."""
    server, ask, path = fresh
    server.otherwise = form.action
    with pytest.raises(InputError, match=WORDS):
        ask("a", "b")
    assert [one.prompt for one in server.asked] == ["a", "Say OK."]
    assert path.read_bytes() == b""


def test_the_first_prompt_may_be_the_refused_one_and_the_run_goes_on(fresh):
    server, ask, path = fresh
    server._script["a"] = [ERRORS["413"][0].action] * 2
    samples = ask("a", "b")
    assert [sample.text for (sample,) in samples] == ["", "reply to b"]
    assert [one.prompt for one in server.asked] == ["a", "Say OK.", "b"]
    # The short request was paid for, too.
    assert [reply.tokens for reply in read_replies(path)[0]] == [(100, 20), (100, 20)]
    server.asked.clear()
    assert ask("a", "b") == samples
    assert server.asked == [], "a refused prompt is not asked again"


def test_a_service_that_has_come_to_refuse_everything_is_no_prompts_fault(fresh):
    """It has answered before; what it then says without a reason is compared with another prompt again."""
    server, ask, path = fresh
    server._script = {"a": [says("fine")]}
    server.otherwise = ERRORS["400 or 422 for another reason"][0].action
    with pytest.raises(InputError, match=WORDS):
        ask("a", "b")
    assert [reply.text for reply in read_replies(path)[0]] == ["fine"]


def test_an_account_that_is_blocked_meanwhile_is_no_prompts_fault(fresh):
    server, ask, path = fresh
    server._script = {"a": [says("fine")]}
    for status in (400, 403):
        server.otherwise = error(
            status, f"Your account was flagged for a breach of our usage policy. {WORDS}"
        ).action
        with pytest.raises(InputError, match=WORDS):
            ask("a", "b")
        assert [reply.text for reply in read_replies(path)[0]] == ["fine"]


def test_an_outage_while_it_is_found_out_leaves_nothing(fresh):
    server, ask, path = fresh
    server._script["a"] = [ERRORS["413"][0].action]
    server.otherwise = ERRORS["408, 409, 425, 429 or 5xx"][4].action
    with pytest.raises(InputError, match="no reply after 2 attempts"):
        ask("a")
    assert path.read_bytes() == b""


# At random.


def expected(script, page):
    """Return what becomes of a prompt at which the server does these things and then replies, by the page.

    Returns:
        ``reply``, a kind of refusal, or ``stops``; and the text for a reply.
    """
    left = [*script, ("text", Form(completion("")))]

    def attempt():
        name, form = left.pop(0) if len(left) > 1 else (None, None)
        return ("reply" if name is None else page[name]), form

    def turn():
        """Attempts until one settles it."""
        happens = []
        for _ in range(ATTEMPTS):
            said, form = attempt()
            if not said.startswith("again"):
                return said, form
            happens.append(said.removeprefix("again, then "))
        if "stops" in happens:
            return "stops", None
        return happens[-1], None

    said, form = turn()
    if said.startswith("once more"):
        said, form = turn()
    said = said.removeprefix("once more, then ")
    kind = re.search("`(.*)`", said)
    return (kind[1] if kind else said), form


def dressed(form, rng):
    """Return the response with what services add to it, which nothing here depends on."""
    if not isinstance(form.body, dict):
        return form
    extras = {
        "id": "x",
        "created": 1,
        "system_fingerprint": None,
        "provider": "x",
        "x_groq": {"id": [1, None]},
    }
    body = {**dict(rng.sample(sorted(extras.items(), key=str), 2)), **form.body}
    first = next(iter(body.get("choices") or [None]))
    if isinstance(first, dict):
        more = {
            "logprobs": None,
            "native_finish_reason": "STOP",
            "content_filter_results": {"hate": {"filtered": False}},
        }
        body["choices"] = [
            {**dict(rng.sample(sorted(more.items(), key=str), 1)), **first},
            *body["choices"][1:],
        ]
    if "error" in body and rng.random() < 0.3 and form.status != 200:
        body = [body]
    return replace(form, body=body)


def test_two_hundred_random_courses_end_as_the_page_says(world):
    page = {**rows("Replies"), **rows("Errors")}
    behaviours = {**REPLIES, **ERRORS}
    world.ask()
    ends = []
    for number in range(200):
        rng = random.Random(f"course {number}")
        # Half of a course is what is tried again, or most would end at once.
        again = [name for name, happens in page.items() if happens.startswith(("again", "once more"))]
        names = [
            rng.choice(again if rng.random() < 0.5 else list(page))
            for _ in range(rng.randint(1, ATTEMPTS + 1))
        ]
        script = [(name, dressed(rng.choice(behaviours[name]), rng)) for name in names]
        end, form = expected(script, page)

        outcome, asked = world.ask(*(form for _, form in script))
        what = f"course {number}: {names}, expected {end}, got {outcome} after {asked}"
        assert asked <= 2 * ATTEMPTS, what
        if end == "stops":
            assert isinstance(outcome, str), what
            assert not any(part in outcome for part in ("\n", KEY)), what
        else:
            assert isinstance(outcome, Reply), what
            assert (outcome.refused or "reply") == end, what
            if end == "reply":
                sent = (GOOD,) if form is None else (TEXT, "<think>I could", "<think>")
                assert outcome.text.strip().startswith(sent), what
        ends.append(end)
    assert set(ends) >= {
        "reply",
        "stops",
        "no_text",
        "prompt_refused",
        "prompt_too_long",
        "prompt_filtered",
    }, "it tries all"


def test_what_was_recorded_at_random_is_served_again_without_key_and_server(world, monkeypatch):
    world.ask()
    monkeypatch.delenv("OPENAI_API_KEY")
    before = world.path.read_bytes()
    first = read_replies(world.path)[0][-1]
    with EndpointSampler(world.sampler.settings, world.path) as again:
        prompt = f"prompt {world.prompts}"
        ((sample,),) = again.sample(
            (SampleRequest(prompt, 1, ("evaluate", prompt)),), seed=1, temperature=0.4
        )
    assert sample.text == first.text
    assert world.path.read_bytes() == before
