"""Monitoring commands: ``track``, ``status``, ``index``, ``export``, ``view``, ``play``."""

import argparse
from collections.abc import Callable
from pathlib import Path

from threespo.errors import InputError, refuse_ignored
from threespo.terminal import print_lines

CommandAdder = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
"""(name, function, one sentence) -> the command's parser."""


PLAY_EPILOG = """\
places to play:
  results/STUDY/data/alfworld                    a study's games, by its rules
  results/STUDY/data/webshop                     a study's shop
  $ALFWORLD_DATA/json_2.1.1                      real ALFWorld games, as alfworld-download lays them out
  .../json_2.1.1/train/TASK/TRIAL/game.tw-pddl   one of them
"""


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add the argument of commands on one study's results."""
    parser.add_argument("study", metavar="STUDY", help="a study or its folder, e.g. results/smoke")


def add_study_or_smoke(parser: argparse.ArgumentParser) -> None:
    """Add the same argument for commands that only look: without it they look at ``smoke``."""
    parser.add_argument(
        "study",
        nargs="?",
        default="smoke",
        metavar="STUDY",
        help="a study or its folder (default: smoke)",
    )


def add_monitoring_commands(add_command: CommandAdder) -> None:
    """Add the commands of this module to the command line."""
    about = "copy the curves of a run or study to TensorBoard, Weights & Biases, MLflow, Trackio"
    track = add_command("track", _run_track, about)
    track.add_argument(
        "results",
        type=Path,
        metavar="RUN|STUDY",
        help="results/STUDY, or a run in it: results/STUDY/runs/ENV/POLICY/METHOD/seed-N",
    )
    track.add_argument(
        "--to", required=True, choices=("tensorboard", "wandb", "mlflow", "trackio"), help="where to"
    )
    track.add_argument(
        "--dir",
        type=Path,
        help="folder of its files; by default tracking/tensorboard, and what the others' own variables say",
    )
    track.add_argument(
        "--project", help="project or experiment (default: threespo); tensorboard has none"
    )
    track.add_argument("--follow", action="store_true", help="go on until all is trained and evaluated")

    about = "say where the jobs of a study stand; exit code 1 if one has failed"
    status = add_command("status", _run_status, about)
    add_study_or_smoke(status)

    about = "write index.html of all studies in a folder of results; several can be compared row by row"
    index = add_command("index", _run_index, about)
    index.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=Path("results"),
        metavar="RESULTS",
        help="default: results",
    )

    about = "collect a study's tables and figures, and a BibTeX entry, for a paper"
    export = add_command("export", _run_export, about)
    add_study(export)
    export.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="a new folder, or an earlier export"
    )

    about = "make a page of a run's search trees, to explore in a browser"
    view = add_command("view", _run_view, about)
    view.add_argument(
        "trees", type=Path, metavar="RUN_FOLDER_OR_FILE", help="a run's folder, or its trees.parquet"
    )
    view.add_argument(
        "--out", type=Path, metavar="FILE", help="the page; by default trees.html beside the table"
    )
    view.add_argument("--task", metavar="ID", help="the trees of this task only")

    about = "play an episode in the terminal, or watch a policy play; without a path: what there is"
    play = add_command("play", _run_play, about)
    play.formatter_class = argparse.RawDescriptionHelpFormatter
    play.epilog = PLAY_EPILOG
    play.add_argument("task", type=Path, nargs="?", metavar="FILE_OR_FOLDER", help="where the tasks lie")
    play.add_argument("--list", action="store_true", help="list the tasks with their ids, and play none")
    play.add_argument("--split", metavar="NAME", help="of which split (default: the one for training)")
    play.add_argument(
        "--task", dest="task_id", metavar="ID", help="which game or goal (default: one is drawn)"
    )
    play.add_argument("--seed", type=int, metavar="N", help="of the draw (default: 0)")
    play.add_argument(
        "--policy", type=Path, metavar="RUN_FOLDER", help="let the policy of this run play"
    )


def _run_index(parsed: argparse.Namespace) -> int:
    from threespo.watch.index import write_index

    print(write_index(parsed.results))
    return 0


def _run_export(parsed: argparse.Namespace) -> int:
    from threespo.study.resolve import find_results
    from threespo.watch.export import export

    files = export(find_results(parsed.study), parsed.to)
    print(f"{parsed.to}: {len(files)} files")
    return 0


def _run_view(parsed: argparse.Namespace) -> int:
    from threespo.paths import RunFolder, parse_run_folder
    from threespo.pipeline.integrity import check_result_file
    from threespo.results.report.viewer import write_view

    file = parsed.trees if parsed.trees.suffix == ".parquet" else RunFolder(parsed.trees).trees
    try:
        _, run = parse_run_folder(file.parent)
    except ValueError:
        run = file.resolve().parent.name
    check_result_file(file)
    out = parsed.out or file.with_suffix(".html")
    write_view(file, out, f"Search trees of {run}", parsed.task)
    print(out)
    return 0


def _run_track(parsed: argparse.Namespace) -> int:
    from threespo.watch.tracking.follow import copy_runs

    if parsed.to == "tensorboard":
        refuse_ignored("track --to tensorboard", project=parsed.project)
    copy_runs(
        parsed.results, parsed.to, parsed.dir, project=parsed.project or "threespo", follow=parsed.follow
    )
    return 0


def _run_status(parsed: argparse.Namespace) -> int:
    from threespo.study.resolve import find_results
    from threespo.watch.status import describe_study

    lines, no_failure = describe_study(find_results(parsed.study))
    print_lines(lines)
    return 0 if no_failure else 1


def _run_play(parsed: argparse.Namespace) -> int:
    from threespo.watch.play import list_tasks, play_path

    if parsed.task is None:
        refuse_ignored("play without a path", split=parsed.split)
    if parsed.task is None or parsed.list:
        refuse_ignored("play --list", task=parsed.task_id, policy=parsed.policy, seed=parsed.seed)
        lines = list(list_tasks(parsed.task, parsed.split))
        if not lines:
            raise InputError(
                "nothing to play: no results/*/data here, no ALFWORLD_DATA; name a folder (threespo play -h)"
            )
        print_lines(lines)
        return 0
    if parsed.task_id is not None:
        refuse_ignored(f"play --task {parsed.task_id}", seed=parsed.seed)
    play_path(parsed.task, parsed.task_id, parsed.policy, split=parsed.split, seed=parsed.seed or 0)
    return 0
