"""Stands in for the slow stages in tests of the workflow: each writes what the real one writes, in milliseconds.

Python imports this file by itself when its folder is on PYTHONPATH. The workflow, the command line, tables, notebooks
and report are the real ones. Every call is noted in the file named by FAKE_LOG, so that tests see what ran.
"""

import os
import sys
import time
import types
from pathlib import Path

GAMES = 4
STATES = ("score_visits", "score_unique", "score_known", "high_visits", "high_unique")


def _note(text):
    with Path(os.environ["FAKE_LOG"]).open("a", encoding="utf-8") as log:
        log.write(text + "\n")


def _prepare(settings):
    _note(f"data {settings.env}")
    out = settings.paths.data(settings.env)
    out.mkdir(parents=True, exist_ok=True)
    # The real stage writes other tasks for other settings, and the same for the same files at another place.
    (out / "train.jsonl.xz").write_text(repr(settings.key()))


def _provide(settings):
    _note(f"policy {settings.policy}")
    data = (settings.paths.data(settings.env) / "train.jsonl.xz").read_bytes()
    for name in ("base", "strong"):
        folder = settings.paths.policy(settings.env, settings.policy) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(data + name.encode())


def _train(settings):
    from threespo.methods.registry import searches
    from threespo.runs.learning_rate import learning_rate
    from threespo.tables import write_table

    run, folder = settings.run, settings.paths.run(settings.run)
    server = Path(f"/proc/{os.getppid()}/cmdline")
    forked = server.exists() and b"fork_server" in server.read_bytes()
    _note(f"train {run.run_id} threads={os.environ['OMP_NUM_THREADS']} {forked=}")
    if os.environ.get("FAKE_FAIL") == run.run_id:
        from threespo.errors import InputError

        raise InputError("a truncated game file, as a test asked")
    if os.environ.get("FAKE_HUNGRY"):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
        bytearray(1 << 31)
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
    end = time.monotonic() + 120
    while (
        "FAKE_UNTIL" in os.environ
        and not Path(os.environ["FAKE_UNTIL"]).exists()
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    rate = learning_rate(settings)
    counted = ("generations", "env_steps", "completed_paths", "optimizer_steps", "epoch_successes")
    metrics, timing, types = [], [], []
    for epoch in range(1, 5):
        counts = dict(
            zip(counted, (75 * epoch, 75 * epoch, 8 * epoch, epoch, epoch + run.seed), strict=True)
        )
        counts |= {"epoch_paths": 8, "tasks": 2}
        states = {f"detail_state_{name}": 0.5 for name in ("met", *STATES)}
        search = {
            "detail_expansions": 9.0,
            "detail_capped_expansions": 1.0,
            "detail_n_0": 2.0,
            "detail_n_1": 7.0,
        }
        search |= dict.fromkeys(
            ("detail_generation_caps", "detail_gated_states", "detail_gated_roots"), 0.0
        )
        search |= {"detail_known_states": 9.0, "detail_unvisited_share": 1 / epoch}
        own = {**states, **(search if searches(settings.method) else {})}
        metrics.append(
            {
                "epoch": epoch,
                **counts,
                "train_success": (epoch + run.seed) / 8,
                "loss": rate,
                "kl": 0.0,
                **own,
            }
        )
        kinds = ("pick_and_place_simple", "heat")
        paths = {"state_score_unique": 0.5, "n_1": 4.0, "successes": 2, "completed_paths": 4}
        types += [{"epoch": epoch, "task_type": kind, **paths} for kind in kinds]
        parts = ("sampling", "update", "environment", "method", "logging")
        took = 0.5 if os.environ.get("FAKE_STEADY") else time.time() % 1
        seconds = {"seconds": took, **{f"{part}_seconds": 0.1 for part in parts}}
        timing.append(
            {"epoch": epoch, **seconds, "generations_per_second": 100.0, "peak_memory_mb": 100.0}
        )
    write_table(folder.metrics, metrics)
    write_table(folder.timing, timing)
    write_table(folder.task_types, types)
    write_table(folder.trees, _tree())
    for part in (folder.weights, folder.snapshots):
        part.mkdir(parents=True, exist_ok=True)
    (folder.snapshots / "snapshots.json").write_text("{}")
    (folder.weights / "model.safetensors").write_bytes(f"{run.run_id} {rate}".encode())


def _identify(settings):
    return repr(settings.key())


def _learn(settings):
    """Four games: the base wins one, and each snapshot one more."""
    from threespo.tables import write_table

    run, learning = settings.run, settings.learning
    _note(f"learning {run.run_id}")
    rows = [
        {
            **{
                "snapshot": number,
                "epoch": number,
                "generations": 75 * number,
                "optimizer_steps": number,
            },
            **{"split": learning.split, "evaluation_seed": seed, "task_id": f"{learning.split}-{game}"},
            **{"task_type": "heat", "success": game <= number, "steps": 5},
        }
        for number in ((1, 2, 3) if settings.weights == "run" else (0,))
        for seed in learning.seeds
        for game in range(GAMES)
    ]
    write_table(settings.paths.run(run).learning, rows)


def _probe(settings):
    from threespo.tables import write_table

    _note(f"probe {settings.run.run_id}")
    same = {
        "snapshot": 1,
        "epoch": 2,
        "task_id": "x",
        "task_type": "x",
        "depth": 2,
        "continuations": 4,
        "alpha": 1.0,
    }
    rows = [
        {
            **same,
            **{
                "state": str(n % 2),
                "successes": n,
                "visits": float(n),
                "counted_successes": n / 2,
                "score": 1 - n / 5,
            },
            **{
                "gated": n == 3,
                "score_without_gate": 0.5,
                "sharing_games": 1,
                "sharing_histories": 1 + n % 2,
            },
        }
        for n in range(4)
    ]
    write_table(settings.paths.run(settings.run).probe, rows)


def _tree():
    """A root, its child, and one child of that."""
    from threespo.methods.tree_table import COLUMNS

    texts = dict.fromkeys(
        ("task_id", "task_type", "goal", "action", "response", "observation", "end", "state"), "x"
    )
    numbers = dict.fromkeys(
        ("visits", "successes", "score", "reward", "novelty", "difference", "success", "advantage"), 0.5
    )
    row = {
        **texts,
        **numbers,
        "valid": True,
        "admissible": True,
        "gated": False,
        "rollouts": 1,
        "end": "",
    }
    places = [
        {"node": n, "parent": n - 1, "depth": n + 1, "expanded": n, "state": str(n)} for n in range(3)
    ]
    return [{"epoch": 1, **{name: {**row, **place}[name] for name in COLUMNS[1:]}} for place in places]


def _evaluate(settings):
    from threespo.tables import write_table

    run, folder = settings.run, settings.paths.run(settings.run)
    _note(f"evaluate {run.run_id}")
    if settings.weights == "endpoint":
        write_table(folder.evaluation, [], ["split", "success"])
        write_table(folder.evaluation_timing, [], ["split", "seconds"])
        write_table(folder.evaluation_example, [], ["split", "step"])
        return
    level = {"base": 1, "strong": 4}.get(run.method, 2 + run.seed % 2)
    if run.rate is not None:
        level = 3 if run.rate == 1e-3 else 2
    of_run = {"env": run.env, "policy": run.policy, "method": run.method, "training_seed": run.seed}
    passes = [
        (split, seed) for split in settings.evaluation.splits for seed in settings.evaluation.seeds
    ]
    episodes = [
        {
            **of_run,
            "split": split,
            "evaluation_seed": seed,
            "temperature": 0.4,
            "task_id": f"{split}-{game}",
            "task_type": ("put", "heat")[game % 2],
            "success": game < level,
            "score": 1.0 if game < level else 0.5 * (run.env == "webshop"),
            "steps": 5,
            "invalid_format": 0,
            "inadmissible": 0,
            "trials": 1,
            "first_success": game < level,
        }
        for split, seed in passes
        for game in range(GAMES)
    ]
    timing = [
        {"split": split, "evaluation_seed": seed, "episodes": GAMES, "seconds": 0.1}
        for split, seed in passes
    ]
    write_table(folder.evaluation, episodes)
    write_table(folder.evaluation_timing, timing)
    step = {"goal": "x", "step": 1, "observation": "x", "response": "", "action": ""}
    write_table(folder.evaluation_example, [{**episodes[0], **step}])


def _execute(settings):
    """Write what the notebook would, without drawing."""
    from threespo.pipeline.stages import Job

    outputs = Job("notebook", settings.name).outputs(settings.paths)
    for path in outputs.paths():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{settings.name} {path.suffix}")


def _install(stages):
    for name, functions in stages.items():
        module = types.ModuleType(name)
        module.__file__ = str(Path(__file__))
        vars(module).update(functions)
        sys.modules[name] = module


if os.environ.get("FAKE_LOG"):
    _install(
        {
            "threespo.runs.data": {"prepare": _prepare},
            "threespo.imitation.base_policy": {"provide_policy": _provide},
            "threespo.runs.train": {"train": _train, "training_identity": _identify},
            "threespo.runs.evaluate": {"evaluate": _evaluate},
            "threespo.runs.learning": {"evaluate_snapshots": _learn},
            "threespo.runs.probe": {"probe": _probe},
        }
    )
# "all", or the names of those that are not to be executed, in the one process that would.
FAKED = os.environ.get("FAKE_NOTEBOOKS", "").split(",")
if "notebook" in sys.argv and ("all" in FAKED or sys.argv[-1] in FAKED):
    _install({"threespo.results.paper.notebooks": {"execute": _execute}})

if os.environ.get("FAKE_FAULTS"):
    import faults  # noqa: F401
