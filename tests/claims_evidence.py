"""Made-up studies of known outcome, held against rules of the paper's claims."""

from functools import partial
from pathlib import Path

import pandas as pd

from threespo.results.analysis.search_facts import COLUMNS
from threespo.results.claims.checks import CHECKS, EpisodeCheck, RunCheck
from threespo.results.claims.episodes import judge_columns
from threespo.results.claims.evidence import Evidence
from threespo.results.claims.judging import VERDICT_COLUMNS, judge_claims
from threespo.results.claims.rules import Claim

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "config" / "paper"
RUN = ["env", "policy", "method", "training_seed"]
SEEDS = (0, 1, 2, 3)
MANY_SEEDS = tuple(range(16))
"""Success by which a row is better is decided from 17 % of it on: a larger share of failed runs would have been seen."""


def only(study, methods):
    """The study with these methods alone."""
    names = {method if isinstance(method, str) else method[0] for method in methods}
    own = {name: entry for name, entry in study.webshop.methods.items() if name in names}
    kept = {name: entry for name, entry in study.methods.items() if name in names}
    return study.model_copy(
        update={"methods": kept, "webshop": study.webshop.model_copy(update={"methods": own})}
    )


def ablated(study, **rows):
    """The study with more methods: copies of the literal preset that stand for rows of the paper."""
    whole = study.methods["threespo-literal"]
    more = {name: whole.model_copy(update={"paper_row": row}) for name, row in rows.items()}
    return study.model_copy(update={"methods": {**study.methods, **more}})


def played(study, wins, seeds=MANY_SEEDS, games=40):
    """Episodes in which a method wins so many of the games, in every place, and one more with odd seeds.

    A tuple has the wins of each seed. (method, policy) overrides method.
    """
    rows = [
        {
            **{
                "env": env,
                "policy": policy,
                "method": method,
                "training_seed": seed,
                "evaluation_seed": 1,
                "split": split,
            },
            **{"task_id": f"game{game}", "task_type": "x", "steps": 10 + seed},
            **{"success": (won := float((game * 7 + seed) % games < count)), "score": won},
        }
        for env in study.environments
        for policy in study.policies
        for method in study.methods
        for split in study.at(env).evaluation.splits
        if (each := wins.get((method, policy), wins.get(method))) is not None
        for seed, count in (
            enumerate(each) if isinstance(each, tuple) else ((one, each + one % 2) for one in seeds)
        )
        for game in range(games)
    ]
    return pd.DataFrame(rows)


def trained(columns, epochs=20, seeds=SEEDS, policy="tiny-s", budget=100_000):
    """Metrics: method -> {column: (value at share of training, seed) -> number}; ``budget`` generations in all."""
    rows = [
        {
            **{
                "env": "alfworld",
                "policy": policy,
                "method": method,
                "training_seed": seed,
                "epoch": epoch,
                "tasks": 16,
            },
            **{
                "generations": budget * epoch // epochs,
                "optimizer_steps": epoch,
                "epoch_successes": 5,
                "detail_generation_caps": 0.0,
            },
            **{name: value(epoch / epochs, seed) for name, value in of_method.items()},
        }
        for method, of_method in columns.items()
        for seed in seeds
        for epoch in range(1, epochs + 1)
    ]
    return pd.DataFrame(rows)


def curves(methods, seeds=SEEDS, policy="tiny-s", budget=10_000, snapshots=8):
    """Table ``learning``: method -> (share, seed) -> success."""
    rows = [
        {
            **{
                "env": "alfworld",
                "policy": policy,
                "method": method,
                "training_seed": seed,
                "split": "valid_unseen",
            },
            **{
                "snapshot": number,
                "share": number / snapshots,
                "generations": budget * number // snapshots,
                "games": 50,
            },
            **{
                "epochs": number,
                "optimizer_steps": 3 * number,
                "success": success(number / snapshots, seed),
            },
        }
        for method, success in methods.items()
        for seed in seeds
        for number in range(snapshots + 1)
    ]
    return pd.DataFrame(rows)


def evidence(study, paper, **frames):
    """Evidence with the tables that are given; all others are empty."""
    empty = pd.DataFrame(columns=[*RUN, "epoch", "split", *COLUMNS[len(RUN) :]])
    names = ("episodes", "metrics", "task_types", "learning", "probes", "searches")
    return Evidence(study=study, paper=paper, **{name: frames.get(name, empty) for name in names})


def judge(study, paper, rule, columns=None, **frames):
    """The verdicts on one rule, by setting; methods without rows in any table are left out of the study.

    The rule is an entry of claims.yaml, or a check that no claim names.
    """
    if not isinstance(rule, dict):
        CHECKS["tried"] = rule
        rule = {"kind": "check", "name": "tried", "columns": columns}
    try:
        claim = Claim.model_validate({"id": "x", "claim": "X", "where": "here", "rule": rule})
        methods = {name for frame in frames.values() for name in frame["method"]}
        found = judge_claims((claim,), evidence(only(study, methods), paper, **frames))
    finally:
        CHECKS.pop("tried", None)
    assert list(found.columns) == list(VERDICT_COLUMNS)
    assert (found["detail"] != "").all()
    return found.set_index(["policy", "preset", "split", "measure"])


def of_runs(function, *rows, label="x", **settings):
    """A check on the runs of these rows by a function with settings."""
    return RunCheck(partial(function, **settings), label, rows)


def of_columns(test, *rows, models=("qwen2.5-1.5b-instruct",), **settings):
    """A check of these rows in columns of the main table, by a test with settings."""

    def judge_rows(columns, evidence):
        return judge_columns(columns, evidence, rows, models, partial(test, **settings))

    return EpisodeCheck(judge_rows, "x", rows, by_column=True)


TRAINING = ("tiny-s", "literal", "", "training")
