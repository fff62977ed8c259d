"""Closed models behind a real HTTP server that fails in every way that such services do."""

import datetime
import email.utils
import json
import logging
import lzma
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest
from pydantic import ValidationError

from tests import chat_server
from tests.chat_server import ChatServer, answers, completion, says
from threespo.agents.rollout import play_episodes
from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.episode import EpisodeSetup
from threespo.errors import InputError
from threespo.policy.cassette import Cassette, Reply, describe_refusals, read_replies, request_digest
from threespo.policy.chat import RateLimiter
from threespo.policy.endpoint import (
    EndpointSampler,
    EndpointSettings,
    NotRun,
    estimate_cost,
    find_reply_source,
)
from threespo.protocol import Sample, SampleRequest

KEY = "sk-fake-0123456789abcdef-SECRET"


def _settings(**changes):
    return EndpointSettings(
        **{"model": "fake", "input_price": 10, "output_price": 100, "timeout_s": 5, **changes}
    )


def _requests(*prompts, count=1):
    return tuple(SampleRequest(prompt, count, ("evaluate", prompt, 0)) for prompt in prompts)


@pytest.fixture
def serve(monkeypatch):
    """Start a server and point the environment at it."""
    servers = []

    def start(**script):
        servers.append(ChatServer(script))
        monkeypatch.setenv("OPENAI_BASE_URL", servers[-1].url)
        return servers[-1]

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def waits():
    """Every pause that a sampler made, in seconds; none takes time."""
    return []


@pytest.fixture
def sampler(tmp_path, waits):
    """Open samplers on a cassette, one at a time."""
    opened = []

    def close():
        while opened:
            opened.pop().close()

    def make(path=None, **changes):
        close()
        path = path or tmp_path / "replies.jsonl"
        opened.append(
            EndpointSampler(_settings(**changes), path, _wait=lambda _, seconds: waits.append(seconds))
        )
        return opened[-1]

    yield make
    close()


def _texts(sampler, *prompts, seed=1, temperature=0.4):
    return [
        one.text for (one,) in sampler.sample(_requests(*prompts), seed=seed, temperature=temperature)
    ]


# Asking.


def test_a_request_is_one_user_message_with_the_limits_and_nothing_else(serve, sampler):
    server = serve()
    assert sampler(max_response_tokens=64).sample(_requests("p"), seed=1, temperature=0.4) == [
        [Sample((), (), "reply to p", finished=True)]
    ]
    (asked,) = server.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "fake",
        "messages": [{"role": "user", "content": "p"}],
        "temperature": 0.4,
        "max_tokens": 64,
    }


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        (
            {"limit_parameter": "max_completion_tokens"},
            {"temperature": 0.4, "max_completion_tokens": 512},
        ),
        ({"send_temperature": False}, {"max_tokens": 512}),
        (
            {
                "limit_parameter": "max_completion_tokens",
                "send_temperature": False,
                "max_response_tokens": 4096,
            },
            {"max_completion_tokens": 4096},
        ),
        ({}, {"temperature": 0.4, "max_tokens": 512}),
    ],
)
def test_what_reasoning_models_refuse_can_be_left_out_or_sent_by_another_name(
    serve, sampler, changes, sent
):
    server = serve()
    _texts(sampler(**changes), "p")
    assert server.asked[0].body == {
        "model": "fake",
        "messages": [{"role": "user", "content": "p"}],
        **sent,
    }


def test_what_is_sent_is_part_of_a_replys_name_and_a_temperature_that_is_not_sent_is_none(
    serve, sampler
):
    server = serve()
    for changes in ({}, {"limit_parameter": "max_completion_tokens"}, {"send_temperature": False}):
        _texts(sampler(**changes), "p")
    assert len(server.asked) == 3
    # The same request, whatever the study's temperature is.
    _texts(sampler(send_temperature=False), "p", temperature=0.9)
    assert len(server.asked) == 3
    _texts(sampler(), "p", temperature=0.9)
    assert len(server.asked) == 4


def test_samples_keep_the_order_of_requests_when_replies_come_in_reverse(serve, sampler):
    prompts = [f"p{number}" for number in range(6)]
    answered = {prompt: threading.Event() for prompt in prompts}

    def after(previous, prompt):
        def act(handler, asked):
            assert previous is None or answered[previous].wait(10)
            says(f"reply to {prompt}")(handler, asked)
            answered[prompt].set()

        return act

    serve(
        **{
            prompt: [after(next_one, prompt)]
            for prompt, next_one in zip(prompts, [*prompts[1:], None], strict=True)
        }
    )
    assert _texts(sampler(concurrency=6), *prompts) == [f"reply to {prompt}" for prompt in prompts]


def test_whole_episodes_are_played_and_played_again_from_the_cassette(serve, sampler, monkeypatch):
    """Two real games side by side; the server knows their walkthroughs and tells them apart by their tasks."""
    setup = EpisodeSetup(Alfworld(), 30, 2)
    records = list({record.goal: record for record in generate_games("train", 8, 1, "small")}.values())[
        :2
    ]
    plans = {record.goal: list(record.walkthrough) for record in records}

    def play(handler, asked):
        (goal,) = (goal for goal in plans if goal in asked.prompt)
        says(f"<think>as planned</think><action>{plans[goal].pop(0)}</action>")(handler, asked)

    server = serve()
    server.otherwise = play
    tasks = [compile_game(record) for record in records]
    options = {"seed": 1, "temperature": 0.4, "key": ("evaluate",)}
    played = play_episodes(setup, tasks, sampler(), **options)
    assert [(one.episode.won, one.invalid_format, one.inadmissible) for one in played] == [
        (True, 0, 0)
    ] * 2
    assert [one.episode.steps for one in played] == [len(record.walkthrough) for record in records]
    server.stop()
    monkeypatch.delenv("OPENAI_API_KEY")
    assert play_episodes(setup, tasks, sampler(), **options) == played


def test_no_more_requests_are_under_way_than_allowed(serve, sampler):
    guard, under_way, most = threading.Lock(), 0, 0

    def count(handler, asked):
        nonlocal under_way, most
        with guard:
            under_way += 1
            most = max(most, under_way)
        handler.server.stopping.wait(0.02)
        with guard:
            under_way -= 1
        says("ok")(handler, asked)

    prompts = [f"p{number}" for number in range(8)]
    serve(**{prompt: [count] for prompt in prompts})
    _texts(sampler(concurrency=2), *prompts)
    assert most <= 2


def test_each_sample_of_a_request_is_asked_for_itself(serve, sampler):
    server = serve(p=[says("a"), says("b"), says("c")])
    ((first, second, third),) = sampler(concurrency=1).sample(
        _requests("p", count=3), seed=1, temperature=1.0
    )
    assert [first.text, second.text, third.text] == ["a", "b", "c"]
    assert len(server.asked) == 3


def test_no_requests_no_samples(serve, sampler):
    server = serve()
    assert sampler().sample((), seed=1, temperature=0.0) == []
    assert server.asked == []


def test_the_model_can_be_named_by_the_environment(serve, sampler, monkeypatch):
    server = serve()
    monkeypatch.setenv("CLOSED_MODEL", "other")
    _texts(sampler(model_env="CLOSED_MODEL"), "p")
    assert server.asked[0].body["model"] == "other"


@pytest.mark.parametrize("temperature", [-0.1, float("nan")])
def test_a_temperature_below_zero_is_refused(serve, sampler, temperature):
    server = serve()
    with pytest.raises(InputError, match="temperature"):
        _texts(sampler(), "p", temperature=temperature)
    assert server.asked == []


# What counts as a reply.


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (says("cut he", "length"), ("cut he", False)),
        (says(None, "stop"), ("", True)),
        (says(None, "content_filter"), ("", True)),
        (says(None, "length"), ("", False)),
        (
            answers({"choices": [{"message": {"refusal": "I cannot"}, "finish_reason": "stop"}]}),
            ("", True),
        ),
        (
            answers({"choices": [{"message": {"role": "assistant"}, "finish_reason": "length"}]}),
            ("", False),
        ),
        (says("half a \ud83d pair", "stop"), ("half a ? pair", True)),
        (says("zwei\nZeilen\u2028日本", None), ("zwei\nZeilen\u2028日本", True)),
    ],
)
def test_answers_are_recorded_as_they_are_refusals_as_empty_text(serve, sampler, action, expected):
    server = serve(p=[action])
    for _ in range(2):
        ((sample,),) = sampler().sample(_requests("p"), seed=1, temperature=0.0)
        assert (sample.text, sample.finished) == expected
    assert len(server.asked) == 1


_FAULTS = {
    "429": answers({"error": {"message": "slow down"}}, 429),
    "408": answers({}, 408),
    "500": answers({"error": {"message": "oops"}}, 500),
    "502": answers(b"<html>bad gateway</html>", 502),
    "503": answers(b"", 503),
    "504": answers({}, 504),
    "529": answers({}, 529),
    "breaks off": chat_server.breaks_off,
    "hangs up": chat_server.hangs_up,
    "no JSON": answers(b'{"choices": [{"mess'),
    "not an object": answers([1]),
    "empty body": answers(b""),
    "no choices": answers({"error": {"message": "upstream"}}),
    "empty choices": answers({"choices": []}),
    "no message": answers({"choices": [{"finish_reason": "stop"}]}),
    "no content": answers({"choices": [{"message": {}, "finish_reason": "stop"}]}),
    "content of another type": says([5]),
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_fault_is_retried_and_leaves_no_trace(serve, sampler, waits, tmp_path, fault):
    server = serve(p=[_FAULTS[fault]] * 2)
    assert _texts(sampler(), "p") == ["reply to p"]
    assert len(server.asked) == 3
    assert len(waits) == 2
    assert [reply.text for reply in read_replies(tmp_path / "replies.jsonl")[0]] == ["reply to p"]


def test_a_time_out_is_retried(serve, sampler):
    server = serve(p=[chat_server.hangs])
    assert _texts(sampler(timeout_s=0.3), "p") == ["reply to p"]
    assert len(server.asked) == 2


def test_backoff_doubles_with_a_jitter_that_is_the_same_every_time(serve, sampler, waits, tmp_path):
    serve(p=[_FAULTS["500"]] * 5, q=[])
    _texts(sampler(), "p")
    for attempt, seconds in enumerate(waits):
        assert 2**attempt / 2 <= seconds <= 2**attempt
    first, waits[:] = list(waits), []
    serve(p=[_FAULTS["500"]] * 5)
    _texts(sampler(tmp_path / "again.jsonl"), "p")
    assert waits == first
    assert len({seconds / 2**attempt for attempt, seconds in enumerate(waits)}) == 5


def test_the_server_is_given_the_time_that_it_asks_for(serve, sampler, waits):
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=100)
    date = email.utils.format_datetime(soon, usegmt=True)
    headers = ["17", date, "nonsense", "-3"]
    serve(p=[answers({}, 429, Retry_After=header) for header in headers])
    _texts(sampler(), "p")
    assert waits[0] == 17.0
    assert 80 < waits[1] <= 100
    assert waits[2] <= 4
    assert waits[3] <= 8


def test_an_exhausted_quota_ends_the_run_instead_of_sleeping_for_hours(serve, sampler, waits):
    server = serve(p=[answers({"error": {"message": "daily quota"}}, 429, Retry_After="7200")])
    with pytest.raises(InputError, match=r"daily quota.*come back in 7200 s.*resumes"):
        _texts(sampler(), "p")
    assert len(server.asked) == 1
    assert waits == []


def test_giving_up_names_model_status_and_attempts_and_keeps_the_rest(serve, sampler):
    server = serve(bad=[_FAULTS["503"]] * 3)
    with pytest.raises(
        InputError, match=r"fake: no reply after 3 attempts.*HTTP 503.*What was recorded stays"
    ) as caught:
        _texts(sampler(max_attempts=3, concurrency=1), "good", "bad", "never")
    assert "resumes" in str(caught.value)
    assert [asked.prompt for asked in server.asked] == ["good", "bad", "bad", "bad"]
    server.asked.clear()
    assert _texts(sampler(), "good", "bad") == ["reply to good", "reply to bad"]
    assert [asked.prompt for asked in server.asked] == ["bad"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_request_that_is_wrong_is_not_repeated(serve, sampler, waits, status):
    server = serve()
    server.otherwise = answers({"error": {"message": "the model does not exist"}}, status)
    message = rf"fake: HTTP {status}.*the model does not exist.*OPENAI_API_KEY and OPENAI_BASE_URL"
    with pytest.raises(InputError, match=message):
        _texts(sampler(), "p")
    # Of a request that may be wrong by its prompt alone it is found out whether another prompt is answered.
    assert [asked.prompt for asked in server.asked] == ["p", "Say OK."][
        : 2 if status in (400, 422) else 1
    ]
    assert waits == []


def test_a_failure_stops_what_has_not_begun_and_records_what_has(serve, sampler, tmp_path):
    refused = threading.Event()

    def refuse(handler, asked):
        answers({}, 401)(handler, asked)
        refused.set()

    def late(handler, asked):
        assert refused.wait(10)
        handler.server.stopping.wait(0.05)
        says("late")(handler, asked)

    # One of these may slip in before the client has seen the refusal; twenty times 0.05 s would be slow of it.
    never = [f"n{number}" for number in range(20)]
    server = serve(slow=[late], wrong=[refuse], **{prompt: [late] for prompt in never})
    with pytest.raises(InputError, match="HTTP 401"):
        _texts(sampler(concurrency=2), "slow", "wrong", *never)
    assert "late" in [reply.text for reply in read_replies(tmp_path / "replies.jsonl")[0]]
    assert len(server.asked) < 22


@pytest.mark.parametrize(
    "url", ["", "api.example.com/v1", "ftp://example.com", "http://[", "http://host:port/v1"]
)
def test_an_address_that_is_none_is_refused_at_once(serve, sampler, monkeypatch, url):
    """Another service's key must not go to OpenAI just because its address was forgotten."""
    monkeypatch.setenv("OTHER_URL", url)
    with pytest.raises(InputError, match=r"OTHER_URL: .*set it to the address"):
        _texts(sampler(base_url_env="OTHER_URL"), "p")


# The cassette.


def test_what_is_recorded_is_never_asked_again_not_even_without_server_and_key(
    serve, sampler, monkeypatch
):
    server = serve()
    texts = _texts(sampler(), "a", "b", "c")
    server.stop()
    server.asked.clear()
    assert _texts(sampler(), "a", "b", "c") == texts
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    offline = sampler()
    assert offline.reply_source == "cassette"
    assert _texts(offline, "c", "a") == [texts[2], texts[0]]
    assert server.asked == []


def test_without_a_key_a_reply_that_is_missing_means_not_run(serve, sampler, monkeypatch, tmp_path):
    server = serve()
    _texts(sampler(), "a")
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    with pytest.raises(NotRun, match=r"not run \(no API key\): 2 replies .*Set OPENAI_API_KEY"):
        _texts(sampler(), "a", "b", "c")
    with pytest.raises(NotRun):
        _texts(sampler(tmp_path / "nowhere" / "replies.jsonl"), "a")
    assert not (tmp_path / "nowhere").exists()
    assert len(server.asked) == 1


def test_availability(serve, monkeypatch, tmp_path):
    path, packed = tmp_path / "replies.jsonl", tmp_path / "replies.jsonl.xz"
    assert find_reply_source(_settings(), path) == "key"
    assert find_reply_source(_settings(key_env="OTHER_KEY"), path) == "none"
    path.write_text(_line("a") + "\n")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert find_reply_source(_settings(), path) == "key"
    assert find_reply_source(_settings(key_env="OTHER_KEY"), path) == "cassette"
    assert find_reply_source(_settings(), packed) == "cassette"


def _line(digit, **changes):
    reply = Reply(
        digest=digit * 32, asked="fake", served="fake-1", text="t", finish="stop", tokens=(1, 2)
    )
    return reply.model_copy(update=changes).model_dump_json(exclude_defaults=True)


_ASKED = {
    "model": "m", "prompt": "p", "temperature": 0.4, "seed": 1, "key": ("evaluate", 3, 0), "index": 0,
    "max_response_tokens": 512,
}  # fmt: skip


def test_everything_that_shapes_a_reply_is_part_of_its_name():
    changes = {
        "model": "n", "prompt": "p ", "temperature": 0.5, "seed": 2, "key": ("evaluate", "3", 0), "index": 1,
        "max_response_tokens": 511,
    }  # fmt: skip
    assert request_digest(**_ASKED, limit_parameter="max_tokens") == request_digest(**_ASKED)
    changes |= {"limit_parameter": "max_completion_tokens"}
    unsent, coldest = (
        request_digest(**{**_ASKED, "temperature": temperature}) for temperature in (None, 0)
    )
    assert unsent not in (request_digest(**_ASKED), coldest)
    digests = {
        request_digest(**_ASKED),
        *(request_digest(**{**_ASKED, name: value}) for name, value in changes.items()),
    }
    assert len(digests) == 1 + len(changes)
    assert request_digest(**{**_ASKED, "temperature": 0}) == request_digest(
        **{**_ASKED, "temperature": 0.0}
    )


def test_names_of_replies_never_change():
    """Or every cassette that people share would be worthless: the digest of one request, computed by hand."""
    text = '["m", "p", 0.4, 1, ["evaluate", 3, 0], 0, 512]'
    code = (
        "import hashlib, sys; print(hashlib.blake2b(sys.argv[1].encode(), digest_size=16).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=True)
    assert request_digest(**_ASKED) == done.stdout.strip()


_OLD = """
{"digest":"00000000000000000000000000000000","asked":"m","served":"m-1","text":"look","finish":"stop","tokens":[100,20]}
{"digest":"11111111111111111111111111111111","asked":"m","served":"","text":"","finish":"stop","tokens":[100,20]}
{"digest":"22222222222222222222222222222222","asked":"m","served":"m-1","text":"","finish":null,"tokens":[9,512],"bound":true}
{"digest":"33333333333333333333333333333333","asked":"m","served":"m-1","text":"","finish":"length","tokens":[100,20]}
{"digest":"44444444444444444444444444444444","asked":"m","served":"m-1","text":"cut","finish":"content_filter","tokens":[1,2]}
{"digest":"55555555555555555555555555555555","asked":"m","served":"m-1","text":"cut","finish":"length","tokens":[1,2]}
""".lstrip()


def test_cassettes_of_the_first_version_are_read_and_written_as_they_were_and_name_what_is_no_answer(
    tmp_path,
):
    path, again = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    path.write_text(_OLD)
    replies, _ = read_replies(path)
    assert [reply.refusal for reply in replies] == [
        None,
        "no_text",
        "no_text",
        "cut",
        "reply_filtered",
        None,
    ]
    cassette = Cassette(again, append=True)
    for reply in replies:
        cassette.record(reply)
    cassette.close()
    assert again.read_text() == _OLD
    assert describe_refusals(replies) == (
        "4 of 6 replies count without a full answer: withheld or ended by the service's filter (1), without text (2), "
        "cut before any text (1)"
    )
    assert describe_refusals(replies[:1]) == ""


def test_a_line_says_what_answered_and_what_it_cost_but_not_what_was_asked(serve, sampler, tmp_path):
    serve()
    _texts(sampler(), "a prompt that is not stored")
    (line,) = (tmp_path / "replies.jsonl").read_text().splitlines()
    assert {name: value for name, value in json.loads(line).items() if name != "digest"} == {
        "asked": "fake",
        "served": "fake-2026-01-01",
        "text": "reply to a prompt that is not stored",
        "finish": "stop",
        "tokens": [100, 20],
    }


def test_every_cut_of_the_last_line_is_tolerated_named_and_mended(serve, sampler, tmp_path, caplog):
    server = serve()
    path = tmp_path / "replies.jsonl"
    _texts(sampler(concurrency=1), "a", "b")
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for cut in (start, start + 1, start + 20, len(whole) - 2, len(whole) - 1):
        server.asked.clear()
        caplog.clear()
        path.write_bytes(whole[:cut])
        assert _texts(sampler(), "a", "b") == ["reply to a", "reply to b"]
        torn = start < cut < len(whole) - 1
        assert [asked.prompt for asked in server.asked] == (["b"] if cut < len(whole) - 1 else [])
        assert (f"{path}: line 2 is torn" in caplog.text) == torn
        sampler()
        assert path.read_bytes() == whole


def test_reading_alone_changes_nothing(serve, sampler, tmp_path, monkeypatch):
    path = tmp_path / "replies.jsonl"
    torn = (_line("a") + "\n" + _line("b")[:9]).encode()
    path.write_bytes(torn)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(NotRun):
        _texts(sampler(), "p")
    assert path.read_bytes() == torn
    assert [entry.name for entry in tmp_path.iterdir()] == ["replies.jsonl"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{}", "digest"),
        ('{"digest": 1', "line"),
        (_line("a").replace('"stop"', "3"), "finish"),
        ("", "line"),
    ],
)
def test_a_damaged_line_within_is_named(sampler, tmp_path, line, named, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "replies.jsonl").write_text("\n".join([_line("a"), line, _line("b")]) + "\n")
    with pytest.raises(
        InputError, match=rf"replies\.jsonl: line 2 is no recorded reply \({named}.*Restore the file"
    ):
        sampler()
    # And the lock is free again.
    (tmp_path / "replies.jsonl").unlink()
    sampler()


def test_the_first_of_several_replies_to_one_request_counts(tmp_path):
    path = tmp_path / "joined.jsonl"
    path.write_text("\n".join([_line("a", text="first"), _line("a", text="second")]) + "\n")
    cassette = Cassette(path, append=False)
    assert cassette.recorded["a" * 32].text == "first"
    assert len(cassette.initial_replies) == 2


def test_a_compressed_cassette_is_served_and_never_written(serve, sampler, tmp_path):
    server = serve()
    texts = _texts(sampler(), "a", "b")
    sampler()
    packed = tmp_path / "shared.jsonl.xz"
    packed.write_bytes(content := lzma.compress((tmp_path / "replies.jsonl").read_bytes()))
    server.asked.clear()
    assert _texts(sampler(packed), "a", "b") == texts
    with pytest.raises(InputError, match=r"shared\.jsonl\.xz: 1 replies are not recorded.*decompress"):
        _texts(sampler(packed), "c")
    assert server.asked == []
    assert packed.read_bytes() == content
    packed.write_bytes(content[:-7])
    with pytest.raises(InputError, match=r"shared\.jsonl\.xz: cannot be read"):
        sampler(packed)


def test_a_compressed_cassette_without_a_key_means_not_run(serve, sampler, tmp_path, monkeypatch):
    (tmp_path / "a.xz").write_bytes(lzma.compress(b""))
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(NotRun):
        _texts(sampler(tmp_path / "a.xz"), "p")


_PLAY = """
import sys
from pathlib import Path
from threespo.policy.endpoint import EndpointSampler, EndpointSettings
from threespo.protocol import SampleRequest
settings = EndpointSettings(model="fake", input_price=10, output_price=100, concurrency=1)
with EndpointSampler(settings, Path(sys.argv[1])) as sampler:
    requests = tuple(SampleRequest(prompt, 1, ("evaluate", prompt, 0)) for prompt in sys.argv[2:])
    sampler.sample(requests, seed=1, temperature=0.4)
"""


def _process(path, *prompts):
    command = [sys.executable, "-c", _PLAY, str(path), *prompts]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_killed_run_resumes_and_only_one_process_writes(serve, sampler, tmp_path):
    """A real process is killed while the third of four requests is under way; while it lives, it holds the cassette."""
    reached = threading.Event()

    def hang(handler, asked):
        reached.set()
        chat_server.hangs(handler, asked)

    path = tmp_path / "replies.jsonl"
    server = serve(c=[hang])
    process = _process(path, "a", "b", "c", "d")
    assert reached.wait(60)
    with pytest.raises(
        InputError, match=rf"another process \(process {process.pid} on .*Wait for it or stop it"
    ):
        sampler()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    server.asked.clear()
    assert _texts(sampler(), "a", "b", "c", "d") == [f"reply to {prompt}" for prompt in "abcd"]
    assert sorted(asked.prompt for asked in server.asked) == ["c", "d"]


def test_a_second_sampler_in_this_process_is_refused_too_and_a_closed_one_is_not_in_the_way(
    serve, tmp_path
):
    path = tmp_path / "replies.jsonl"
    with EndpointSampler(_settings(), path), pytest.raises(InputError, match="another process"):
        EndpointSampler(_settings(), path)
    EndpointSampler(_settings(), path).close()


def test_a_cassette_that_cannot_be_made_is_named(serve, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.replies\.jsonl\.lock: cannot be written"):
        EndpointSampler(_settings(), tmp_path / "file" / "replies.jsonl")


_FULL = """
import resource, signal, sys
from pathlib import Path
from threespo.errors import InputError
from threespo.policy.cassette import Cassette, Reply
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
cassette = Cassette(Path(sys.argv[1]), append=True)
reply = Reply(digest="a" * 32, asked="m", served="m", text="short", finish="stop", tokens=(1, 2))
cassette.record(reply)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    cassette.record(reply.model_copy(update={"digest": "b" * 32, "text": "x" * 10_000}))
except InputError as error:
    print(error)
cassette.record(reply.model_copy(update={"digest": "c" * 32}))
"""


def test_a_full_disk_is_one_clear_error_and_later_lines_are_whole(tmp_path):
    path = tmp_path / "replies.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(path)], capture_output=True, text=True, check=True
    )
    assert f"{path}: a reply cannot be recorded" in done.stdout
    assert "the run resumes" in done.stdout
    assert [reply.digest[0] for reply in read_replies(path)[0]] == ["a", "c"]


# The key.


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_the_key_is_nowhere_even_if_the_server_quotes_it(
    serve, sampler, tmp_path, caplog, capfd, status
):
    caplog.set_level(logging.DEBUG)
    serve(p=[chat_server.echoes_the_key(status)] * 2)
    one = sampler(max_attempts=2)
    _texts(one, "fine")
    with pytest.raises(InputError) as caught:
        _texts(one, "p")
    one.close()
    assert caught.value.__context__ is None
    seen = [
        "".join(traceback.format_exception(caught.value)),
        *map(repr, [caught.value, one, one.settings, one._cassette, one._chat, one._chat._service]),
        caplog.text,
        *capfd.readouterr(),
        *(path.read_text() for path in tmp_path.rglob("*") if path.is_file()),
    ]
    assert "reply to fine" in seen[-1] + seen[-2]
    assert not any(KEY in text or KEY[3:15] in text for text in seen)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "Incorrect API key provided: sk-fake-****CRET. See the page.",
            "Incorrect API key provided: […] See the page.",
        ),
        ("The key sk-fa... is not ours", "The key […] is not ours"),
        ("No access with a key that ends in 'CRET'", "No access with a key that ends in […]"),
        (f"{KEY} and {KEY[5:15]}", "[…] and […]"),
        (" ".join(KEY), "its message is left out, since it quotes the API key or a password"),
        ("Please wait... then log in", "Please wait... then log in"),
    ],
)
@pytest.mark.parametrize("status", [401, 403, 402, 503])
def test_of_a_message_that_quotes_the_key_the_rest_is_shown(serve, sampler, status, said, shown):
    server = serve()
    server.otherwise = answers({"error": {"message": said}}, status)
    with pytest.raises(InputError) as caught:
        _texts(sampler(max_attempts=1), "p")
    assert f"({shown})" in str(caught.value)


def test_a_reply_that_contains_the_key_is_not_recorded(serve, sampler, tmp_path):
    serve(p=[says(f"your key is {KEY}")])
    with pytest.raises(InputError, match="the reply contains the API key") as caught:
        _texts(sampler(), "p")
    assert KEY not in str(caught.value)
    assert (tmp_path / "replies.jsonl").read_text() == ""


def test_words_that_local_servers_take_for_a_key_may_occur_in_replies(serve, sampler, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    serve(p=[says("the drawer is EMPTY")])
    assert _texts(sampler(), "p") == ["the drawer is EMPTY"]


@pytest.mark.parametrize("key", ["sk-first\nsk-second", "sk-ключ-0123", "sk a b"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(serve, sampler, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match=r"^OPENAI_API_KEY: ") as caught:
        sampler()
    assert "sk" not in str(caught.value)


def test_settings_have_no_place_for_a_key():
    with pytest.raises(ValidationError):
        _settings(key=KEY)
    with pytest.raises(ValidationError, match="frozen"):
        _settings().model = "other"


# Rate and cost.


def test_starts_are_spaced_whatever_the_time_between_calls():
    now = [100.0]
    spacing = RateLimiter(30, clock=lambda: now[0])
    assert [spacing.reserve_start() for _ in range(3)] == [0.0, 2.0, 4.0]
    now[0] += 5.0
    assert [spacing.reserve_start(), spacing.reserve_start()] == [1.0, 3.0]
    now[0] += 1000.0
    assert [spacing.reserve_start(), spacing.reserve_start()] == [0.0, 2.0]
    assert [RateLimiter(None, clock=lambda: 0.0).reserve_start() for _ in range(2)] == [0.0, 0.0]


def test_requests_and_retries_of_all_threads_reach_the_server_at_the_limited_rate(serve, tmp_path):
    prompts = ["a", "b", "c", "d"]
    server = serve(a=[_FAULTS["500"]])
    settings = _settings(requests_per_minute=600, concurrency=4)
    with EndpointSampler(settings, tmp_path / "replies.jsonl", _backoff_s=0.0) as one:
        _texts(one, *prompts)
    times = [asked.time for asked in server.asked]
    assert len(times) == 5
    # Four gaps of 0.1 s; the bound leaves half of it to the network.
    assert max(times) - min(times) > 0.2


def test_the_estimate_is_prices_times_tokens_times_steps():
    cost = estimate_cost(_settings(), episodes=3, max_steps=50, prompt_tokens=1000, response_tokens=200)
    assert cost == pytest.approx(150 * (1000 * 10e-6 + 200 * 100e-6))


def test_an_estimate_above_the_limit_is_refused_before_the_first_request(serve, sampler, capsys):
    server = serve()
    one = sampler(max_cost=9.0, max_response_tokens=200)
    assert one.announce_cost(episodes=2, max_steps=50, prompt_tokens=1000) == pytest.approx(3.0)
    line = capsys.readouterr().err
    for part in (
        "fake: 2 episodes",
        "100 requests",
        "100,000 prompt",
        "20,000 response",
        "$3.00",
        "max_cost $9.00",
    ):
        assert part in line
    with pytest.raises(
        InputError, match=r"max_cost: found 9, but fake may cost 30\.00 US dollars.*Raise max_cost"
    ):
        one.announce_cost(episodes=20, max_steps=50, prompt_tokens=1000)
    assert server.asked == []


def test_recorded_replies_cost_nothing(sampler, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "replies.jsonl").write_text(_line("a") + "\n")
    assert sampler(max_cost=0.0).announce_cost(episodes=10**6, max_steps=50, prompt_tokens=1000) == 0.0
    assert "free of charge" in capsys.readouterr().err


def test_a_run_stops_when_it_has_spent_too_much_and_resumes_with_more(serve, sampler, tmp_path):
    """Each reply costs 100 * 10 + 20 * 100 = 3,000 millionths of a dollar."""
    server = serve()
    prompts = [f"p{number}" for number in range(6)]
    with pytest.raises(
        InputError, match=r"max_cost: 0\.01 US dollars are spent on fake.*raise max_cost"
    ):
        _texts(sampler(concurrency=1, max_cost=0.0075), *prompts)
    assert len(server.asked) == len(read_replies(tmp_path / "replies.jsonl")[0]) == 3
    with pytest.raises(InputError, match="max_cost"):
        _texts(sampler(concurrency=1, max_cost=0.0075), *prompts)
    assert len(server.asked) == 3, "what earlier runs spent counts"
    assert _texts(sampler(max_cost=1.0), *prompts) == [f"reply to {prompt}" for prompt in prompts]
    assert len(server.asked) == 6


def test_the_bill_is_printed_once_at_the_end(serve, sampler, capsys):
    serve()
    one = sampler()
    _texts(one, "a", "b")
    _texts(one, "a", "c")
    one.close()
    one.close()
    line = capsys.readouterr().err
    for part in (
        "fake: 3 replies asked",
        "1 from",
        "300 prompt",
        "60 response",
        "$0.01 now",
        "max_cost $50.00",
    ):
        assert part in line
    assert line.count("\n") == 1
    sampler().close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("usage", "tokens", "bound"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}, (7, 5), False),
        ({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 412}, (7, 405), False),
        ({"prompt_tokens": 7, "completion_tokens": 5}, (7, 5), False),
        ({"prompt_tokens": 7, "completion_tokens": None}, (6, 512), True),
        ({"prompt_tokens": -1, "completion_tokens": 5}, (6, 512), True),
        (None, (6, 512), True),
    ],
)
def test_thinking_is_counted_and_unknown_usage_at_its_bound(
    serve, sampler, tmp_path, usage, tokens, bound
):
    serve(日本=[answers({**completion("ok"), "usage": usage})])
    _texts(sampler(), "日本")
    sampler()
    ((reply,), _) = read_replies(tmp_path / "replies.jsonl")
    assert (reply.tokens, reply.bound) == (tokens, bound)


def test_importing_the_module_imports_neither_torch_nor_the_client():
    code = "import sys, threespo.policy.endpoint; sys.exit(bool({'torch', 'openai'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
