"""The one ``threespo`` command. Every workflow rule calls it, and so may a person.

Imports of the parts happen inside the commands, so that ``threespo --help`` and short jobs start without torch.
"""

import argparse
import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from threespo import __version__
from threespo.cli_watch import CommandAdder, add_monitoring_commands, add_study, add_study_or_smoke
from threespo.errors import InputError, StoppedError, refuse_ignored
from threespo.process_environment import isolate_process
from threespo.terminal import escape_controls, print_lines

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.runs.settings import TrainSettings
    from threespo.study.config import Study

EXTRA_BY_MODULE = {
    **dict.fromkeys(("deepspeed", "gguf", "jaxtyping", "openai", "pandas", "pyarrow"), "train"),
    **dict.fromkeys(("huggingface_hub", "safetensors", "tokenizers", "torch", "transformers"), "train"),
    **dict.fromkeys(("jinja2", "matplotlib", "papermill", "seaborn", "snakemake"), "workflow"),
    **dict.fromkeys(("alfworld", "textworld"), "oracle"),
    **{name: name for name in ("mlflow", "tensorboard", "trackio", "wandb")},
    "pyserini": "lucene",
    "spacy": "spacy",
}
"""Modules that a bare installation lacks, and the extra of pyproject.toml that brings each."""

EXIT_BAD_INPUT = 2
"""Exit code for wrong input (a study, file or argument), as opposed to a failure of the program (1)."""

EXIT_FAILED = 1

EXIT_INTERRUPTED = 130

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a full or read-only disk."""

STUDY_DIGEST_VARIABLE = "THREESPO_STUDY_DIGEST"
"""Environment variable with the SHA-256 of the study file that the workflow means; absent when a person calls."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (0 done, 1 mismatches, 2 bad input, 130 interrupted)."""
    isolate_process()
    from threespo.study.old_names import OLD_COMMANDS

    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in OLD_COMMANDS:
        return _report_error(f"threespo {given[0]}: this command is now: {OLD_COMMANDS[given[0]]}")

    parsed = _build_parser().parse_args(given)
    try:
        code: int = parsed.command(parsed)
    except InputError as error:
        return _report_error(str(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA_BY_MODULE:
            raise
        return _report_error(f"this needs {missing}: pip install 'threespo[{EXTRA_BY_MODULE[missing]}]'")
    except BrokenPipeError:
        # The reader of a pipe, such as ``head``, has closed it. Standard output goes nowhere from here on, because
        # the interpreter flushes it at exit and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        # ``threespo.files`` reports its own failed writes; this is for libraries that write elsewhere.
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        return _report_error(
            f"{error.filename or 'a file'}: cannot be written ({error.strerror}). Free disk space; run again."
        )
    except StoppedError as error:
        return _report_error(str(error), EXIT_FAILED)
    except MemoryError:
        return _report_error(
            "out of memory; what was written stays. Run again where there is more.", EXIT_FAILED
        )
    except RuntimeError as error:
        # torch's own, by name: importing torch here would slow down every command.
        if type(error).__name__ != "OutOfMemoryError":
            raise
        return _report_error(
            "out of GPU memory; what was written stays. Run again on a GPU with more, or with a lower runs_per_gpu.",
            EXIT_FAILED,
        )
    except KeyboardInterrupt:
        print("threespo: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return code


def _report_error(message: str, code: int = EXIT_BAD_INPUT) -> int:
    print(escape_controls(f"threespo: {message}"), file=sys.stderr)
    return code


def _run_study(parsed: argparse.Namespace) -> int:
    from threespo.study.changes import apply_to_environments, parse_set_option
    from threespo.study.load import Change, dump_study, load_study
    from threespo.study.resolve import find_study_file

    file = find_study_file(parsed.study)
    if parsed.freeze:
        from threespo.pipeline.freeze import freeze

        refuse_ignored(f"study {parsed.study} --freeze", set=parsed.set)
        mark = freeze(file, again=parsed.again)
        print(
            f"{file}: frozen at commit {mark.commit}; commit this file, then run the study",
            file=sys.stderr,
        )
        return 0

    notes: list[str] = []
    changes = apply_to_environments(parse_set_option(parsed.set), load_study(file), notes)
    study = load_study(file, [Change("--set", changes)])
    for note in notes:
        print(note, file=sys.stderr)
    print(dump_study(study, options=True), end="")
    return 0


def _run_stage(parsed: argparse.Namespace) -> int:
    """Run one job (``threespo.pipeline.stages``) and write its record."""
    from threespo.pipeline.journal import log_job
    from threespo.pipeline.perform import perform, reserve_devices
    from threespo.pipeline.stages import STAGES, Job, check_job

    study, paths = _load_study_and_paths(parsed)
    if parsed.study != paths.study:
        raise InputError(
            f"{parsed.study}: not the file of a study's results, beside which these would be written; run the workflow, or "
            f"begin with threespo study {parsed.study} > results/{study.name}/{paths.study.name}"
        )
    stage = STAGES[parsed.stage]
    job = Job(parsed.stage, "/".join(getattr(parsed, argument) for argument in stage.arguments))
    check_job(study, job)
    # Before any wait for a lock or a GPU: the record must describe the code that this process has imported.
    job.code(study)
    settings = job.settings(study, paths)
    run = stage.run

    with reserve_devices(paths.jobs_lock, settings):
        if getattr(parsed, "profile", False):
            from threespo.runs.clock import profile_training

            profile_training(cast("TrainSettings", settings), run)
        else:
            with log_job(paths, job):
                perform(study, paths, job, lambda: run(settings))
    return 0


def _run_claims(parsed: argparse.Namespace) -> int:
    from threespo.pipeline.integrity import check_result_file
    from threespo.results.claims.page import claim_lines
    from threespo.tables import read_table

    _, paths = _load_study_and_paths(parsed)
    table = paths.table("claims")
    check_result_file(table)
    print_lines(claim_lines(read_table(table)))
    return 0


def _run_why(parsed: argparse.Namespace) -> int:
    from threespo.pipeline.plan import explain_changes

    print_lines(explain_changes(parsed.target))
    return 0


def _run_check(parsed: argparse.Namespace) -> int:
    from threespo.pipeline.plan import check_study
    from threespo.study.resolve import current_study, find_results

    paths = find_results(parsed.study)
    lines, intact = check_study(current_study(paths), paths, deep=parsed.deep)
    print_lines(lines)
    return 0 if intact else EXIT_FAILED


def _run_accept(parsed: argparse.Namespace) -> int:
    from threespo.pipeline.accept import accept
    from threespo.study.resolve import find_results

    outcome = accept(find_results(parsed.study))
    if outcome.differences:
        print_lines(outcome.differences)
        print("nothing was accepted; run the workflow, which makes anew what has changed")
        return EXIT_FAILED
    print(
        f"{len(outcome.accepted)} jobs accepted, {len(outcome.rerun)} of them run again to the same bytes"
    )
    return 0


def _run_unlock(parsed: argparse.Namespace) -> int:
    from threespo.pipeline.workflow_run import unlock
    from threespo.study.resolve import find_results

    removed = unlock(find_results(parsed.study))
    print(f"locks removed: {len(removed)}; nobody is at work on this study")
    return 0


def _run_verify(parsed: argparse.Namespace) -> int:
    from threespo.verify.replay import replay

    report = replay(
        parsed.kind,
        parsed.file,
        parsed.games,
        parsed.catalogue,
        parsed.only,
        parsed.queries,
        parsed.index,
    )
    print(json.dumps({"kind": parsed.kind, **report.as_json_fields()}))
    return EXIT_FAILED if report.mismatches else 0


def _load_study_and_paths(parsed: argparse.Namespace) -> "tuple[Study, Paths]":
    from threespo.paths import Paths
    from threespo.provenance.digests import file_digest
    from threespo.study.load import load_study

    study = load_study(parsed.study)
    # A job of one workflow call must not continue with the settings of another.
    expected = os.environ.get(STUDY_DIGEST_VARIABLE)
    if expected is not None and expected != file_digest(parsed.study):
        raise InputError(
            f"{parsed.study}: another snakemake call has changed the study while this one was running. Run again with the "
            "settings that you mean; what is finished stays."
        )
    return study, Paths(parsed.study.parent)


def _build_parser() -> argparse.ArgumentParser:
    from threespo.panels import commands as panel_commands
    from threespo.policy.named import commands as model_commands
    from threespo.scaling import commands as scaling_commands

    parser = argparse.ArgumentParser(
        prog="threespo",
        description="3SPO: train, evaluate and compare policy optimization of LLM agents.",
        epilog="The whole study in one command: snakemake --cores all (see README.md).",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add_command(
        name: str, run: Callable[[argparse.Namespace], int], about: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=about, description=about)
        command.set_defaults(command=run)
        return command

    _add_study_command(add_command)
    _add_stage_commands(add_command)
    _add_result_commands(add_command)
    scaling_commands.add_commands(add_command)
    model_commands.add_commands(add_command)
    panel_commands.add_commands(commands, _run_stage)
    _add_verify_command(add_command)
    add_monitoring_commands(add_command)
    return parser


def _add_study_command(add_command: CommandAdder) -> None:
    about = "print a study with every default filled in, as JSON"
    study = add_command("study", _run_study, about)
    study.add_argument(
        "study", metavar="NAME_OR_FILE", help="a name in config/studies/, or a YAML or JSON file"
    )
    study.add_argument(
        "--set", metavar="YAML", help="fields to change, e.g. '{training: {generations: 500}}'"
    )
    study.add_argument(
        "--freeze", action="store_true", help="mark it as confirmatory: nothing is chosen from here on"
    )
    study.add_argument(
        "--again", action="store_true", help="with --freeze: replace an earlier mark, which is lost"
    )


def _add_stage_commands(add_command: CommandAdder) -> None:
    from threespo.pipeline.stages import STAGES

    for name, stage in STAGES.items():
        command = add_command(name.replace("_", "-"), _run_stage, stage.summary)
        command.set_defaults(stage=name)
        _add_study_file(command)
        for argument in stage.arguments:
            form = "ENV/POLICY/METHOD/seed-N, of a trial rate-R-seed-N" if argument == "run" else None
            command.add_argument(f"--{argument}", required=name != "data", help=form)
        if name == "train":
            command.add_argument(
                "--profile",
                action="store_true",
                help="train apart, keep nothing but the time by function",
            )


def _add_result_commands(add_command: CommandAdder) -> None:
    about = "print what a finished study says of each of the paper's claims"
    _add_study_file(add_command("claims", _run_claims, about))

    about = "say what has changed since a result was made, old and new"
    why = add_command("why", _run_why, about)
    why.add_argument(
        "target", type=Path, metavar="TARGET", help="a file or folder of results, e.g. results/smoke"
    )

    about = "compare results with their records; exit code 1 if anything is missing or damaged"
    check = add_command("check", _run_check, about)
    add_study_or_smoke(check)
    check.add_argument(
        "--deep", action="store_true", help="read every byte, also where size and times are unchanged"
    )

    about = "keep results whose code has changed, if jobs that run again write the same bytes"
    accept = add_command("accept", _run_accept, about)
    add_study(accept)

    about = "remove the lock of a killed Snakemake, if nobody is at work on the study"
    unlock = add_command("unlock", _run_unlock, about)
    add_study(unlock)


def _add_verify_command(add_command: CommandAdder) -> None:
    from threespo.verify.replay import DEFAULT_QUERIES, KINDS, LUCENE

    about = "replay a reference file; exit code 1 if anything differs"
    verify = add_command("verify", _run_verify, about)
    verify.add_argument("kind", choices=(*KINDS, LUCENE))
    verify.add_argument("file", type=Path, nargs="?", help=f"the reference file; none for {LUCENE}")
    verify.add_argument("--games", type=Path, help="folder of games, for kinds that play")
    verify.add_argument(
        "--catalogue", type=Path, help="folder of a catalogue's JSON files, for kinds that shop"
    )
    verify.add_argument("--only", metavar="ESTIMATOR", help="check the cases of one estimator")
    verify.add_argument(
        "--queries",
        type=int,
        metavar="N",
        help=f"for {LUCENE}: searches to compare (default: {DEFAULT_QUERIES})",
    )
    verify.add_argument(
        "--index",
        type=Path,
        metavar="FOLDER",
        help=f"for {LUCENE}: where its index is, or is to be kept",
    )


def _add_study_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "study",
        type=Path,
        metavar="STUDY_JSON",
        help="the study's file, e.g. results/smoke/study.json; results lie in its folder",
    )


if __name__ == "__main__":
    from threespo.pipeline.fork_server import run_forked

    # Jobs only: a person calls the console script, which is ``main``.
    code = run_forked(sys.argv[1:])
    sys.exit(main() if code is None else code)
