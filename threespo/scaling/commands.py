"""The commands ``threespo plan`` and ``threespo doctor``."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from threespo.errors import InputError
from threespo.runs.gpus import visible_devices
from threespo.scaling import rates
from threespo.scaling.estimate import Machine, choose_machine, does_not_fit, estimate_study
from threespo.scaling.job_groups import group_jobs
from threespo.scaling.memory import estimate_memory
from threespo.scaling.page import format_estimate
from threespo.study.changes import apply_to_environments, parse_set_option
from threespo.study.config import Study
from threespo.study.load import Change, load_study
from threespo.study.resolve import find_study_file
from threespo.terminal import escape_controls

MOST_DEVICES = 100_000


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands; ``command`` takes a name, a function and a description, and returns the command's parser."""
    plan = command(
        "plan", run_plan, "say what a study needs before it starts: memory, time, disk, energy, cost"
    )
    plan.add_argument(
        "study", metavar="NAME_OR_FILE", help="a name in config/studies/, or a YAML or JSON file"
    )
    plan.add_argument("--set", metavar="YAML", help="fields to change, e.g. '{training: {epochs: 100}}'")
    plan.add_argument(
        "--gpu", metavar="NAME", help=f"{', '.join(rates.GPUS)} or cpu (default: what is here)"
    )
    plan.add_argument(
        "--count",
        type=int,
        metavar="N",
        help="GPUs or cores (default: the study's number, or all cores)",
    )
    plan.add_argument("--price", type=float, metavar="X", help="of a GPU's (or core's) hour")
    plan.add_argument(
        "--prompt-tokens",
        type=float,
        metavar="N",
        help="mean length of prompts, in place of what is known",
    )
    plan.add_argument(
        "--response-tokens", type=float, metavar="N", help="mean length of responses, likewise"
    )
    plan.add_argument(
        "--measure", action="store_true", help="measure this machine's rates, and keep them"
    )
    doctor = command(
        "doctor", run_doctor, "say which studies this machine can run, and what others lack"
    )
    doctor.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="where results would lie"
    )
    doctor.add_argument(
        "--model", metavar="NAME_OR_FOLDER", help="say instead what a policy of this model would see"
    )
    doctor.add_argument(
        "--set", metavar="YAML", help="of its chat template: chat_template_kwargs, chat_template_date"
    )


def run_plan(parsed: argparse.Namespace) -> int:
    """Print a plan; refuse what cannot fit."""
    file, notes = find_study_file(parsed.study), list[str]()
    study = load_study(
        file,
        [Change("--set", apply_to_environments(parse_set_option(parsed.set), load_study(file), notes))],
    )
    given = parsed.prompt_tokens, parsed.response_tokens
    _check_numbers(parsed)
    here = _models_here(parsed.measure, notes)
    if parsed.measure:
        _measure(study, here)

    machine = choose_machine(parsed.gpu, parsed.count, study, rates.read_rates(), here)
    found = estimate_study(study, machine, given)
    print(escape_controls("\n".join((*notes, *format_estimate(found, parsed.price, given)))))
    if refused := list(does_not_fit(found)):
        raise InputError(
            "\n  ".join((f"{file}: some runs do not fit on {machine.name} (docs/scaling.md)", *refused))
        )
    return 0


def _models_here(measure: bool, notes: list[str]) -> list[str]:
    """Return what the GPUs of this machine are called; a driver that fails is no reason not to plan, and is noted."""
    try:
        return [device.model for device in visible_devices()]
    except InputError as error:
        if measure:
            raise
        notes.append(f"note: {error}")
        return []


def run_doctor(parsed: argparse.Namespace) -> int:
    """Print what this machine can do, or what a model would see."""
    if parsed.model is not None:
        from threespo.scaling.model_report import report_model as model_report

        print(escape_controls("\n".join(model_report(parsed.model, parse_set_option(parsed.set)))))
        return 0
    if parsed.set:
        raise InputError("--set: of a model's chat template; give --model NAME_OR_FOLDER as well")
    from threespo.scaling.doctor import report_machine

    print(escape_controls("\n".join(report_machine(parsed.results))))
    return 0


def _check_numbers(parsed: argparse.Namespace) -> None:
    for name, most in (
        ("count", MOST_DEVICES),
        ("price", 1e6),
        ("prompt_tokens", 1e6),
        ("response_tokens", 1e6),
    ):
        value = getattr(parsed, name)
        if value is not None and not 0 < value <= most:
            raise InputError(
                f"--{name.replace('_', '-')}: expected a number above 0 and at most {most:g}, found {value:g}"
            )


def _measure(study: Study, here: list[str]) -> None:
    """Measure the study's shapes where they would be computed, and keep the rates."""
    from threespo.scaling.measure import measure_rates

    on_gpu = study.gpus_per_rank > 0
    if on_gpu and not here:
        raise InputError(
            "--measure: the study computes on GPUs and this machine has none; measure where it is to run"
        )
    machine = choose_machine(None, None, study, {}, here)
    measured: dict[str, rates.Rates] = {}
    for cell in group_jobs(study):
        if (
            cell.shape is None
            or (name := rates.rates_key(machine.name, cell.shape)) in measured
            or cell.settings is None
        ):
            continue
        if not _alone_fits(
            machine, cell.settings.ranks, estimate_memory(cell.shape, cell.settings).total
        ):
            print(
                f"{cell.env}/{cell.policy}: does not fit on one device, its rates stay assumed",
                file=sys.stderr,
            )
            continue
        print(f"measuring {cell.env}/{cell.policy} on {machine.name}", file=sys.stderr, flush=True)
        prompt, response = int(cell.work.context * 0.85), int(cell.work.context * 0.15)
        measured[name] = measure_rates(cell.shape, "cuda" if on_gpu else "cpu", prompt, max(2, response))
    print(f"rates kept in {rates.save_rates(measured)}", file=sys.stderr)


def _alone_fits(machine: Machine, ranks: int, needed: float) -> bool:
    return machine.gpu is None or (ranks == 1 and needed <= machine.gpu.memory)
