"""The commands ``threespo plan`` and ``threespo doctor``, and an estimate as text."""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from threespo.errors import InputError
from threespo.runs.gpus import visible_devices
from threespo.scaling import rates
from threespo.scaling.estimate import (
    JobCost,
    Machine,
    StudyEstimate,
    choose_machine,
    does_not_fit,
    estimate_study,
)
from threespo.scaling.job_groups import group_jobs
from threespo.scaling.memory import estimate_memory
from threespo.scaling.workload import NOTHING_GIVEN, GivenLengths, text_lengths
from threespo.study.changes import apply_to_environments, parse_set_option
from threespo.study.config import Study
from threespo.study.load import Change, load_study
from threespo.study.resolve import find_study_file
from threespo.terminal import print_lines

MAX_DEVICES = 100_000

TABLE_HEAD = (
    "stage", "cell", "runs", "generations", "tokens", "FLOPs", "{device}-h each", "hours each", "GB a rank", "ranks",
    "side by side",
)  # fmt: skip


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
    """Print the estimate for a study; refuse what cannot fit."""
    file = find_study_file(parsed.study)
    notes: list[str] = []
    changes = apply_to_environments(parse_set_option(parsed.set), load_study(file), notes)
    study = load_study(file, [Change("--set", changes)])
    given = GivenLengths(parsed.prompt_tokens, parsed.response_tokens)
    _check_numbers(parsed)
    gpus_here = _gpu_models(parsed.measure, notes)
    if parsed.measure:
        _measure_study(study, gpus_here)

    machine = choose_machine(parsed.gpu, parsed.count, study, rates.read_rates(), gpus_here)
    estimate = estimate_study(study, machine, given)
    print_lines([*notes, *format_estimate(estimate, parsed.price, given)])
    # After the table, so that its numbers explain the refusal.
    unfit = list(does_not_fit(estimate))
    if unfit:
        raise InputError(
            "\n  ".join((f"{file}: some runs do not fit on {machine.name} (docs/scaling.md)", *unfit))
        )
    return 0


def _gpu_models(measure: bool, notes: list[str]) -> list[str]:
    """Return the models of this machine's GPUs; a driver that fails is noted, and only stops a measurement."""
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
        # Imported here, since it loads transformers.
        from threespo.scaling.model_report import report_model

        print_lines(report_model(parsed.model, parse_set_option(parsed.set)))
        return 0
    if parsed.set:
        raise InputError("--set: of a model's chat template; give --model NAME_OR_FOLDER as well")
    from threespo.scaling.doctor import report_machine

    print_lines(report_machine(parsed.results))
    return 0


def _check_numbers(parsed: argparse.Namespace) -> None:
    # argparse has checked the types only.
    max_values = {
        "count": MAX_DEVICES,
        "price": 1e6,
        "prompt_tokens": 1e6,
        "response_tokens": 1e6,
    }
    for name, max_value in max_values.items():
        value = getattr(parsed, name)
        if value is not None and not 0 < value <= max_value:
            option = name.replace("_", "-")
            raise InputError(
                f"--{option}: expected a number above 0 and at most {max_value:g}, found {value:g}"
            )


def _measure_study(study: Study, gpus_here: list[str]) -> None:
    """Measure the study's shapes where they would be computed, and keep the rates."""
    # Imported here, since it loads torch.
    from threespo.scaling.measure import measure_rates

    on_gpu = study.gpus_per_rank > 0
    if on_gpu and not gpus_here:
        raise InputError(
            "--measure: the study computes on GPUs and this machine has none; measure where it is to run"
        )
    device = "cuda" if on_gpu else "cpu"
    machine = choose_machine(None, None, study, {}, gpus_here)

    measured: dict[str, rates.Rates] = {}
    for group in group_jobs(study):
        if group.shape is None or group.settings is None:
            continue
        # Methods share a policy's shape, and with it the rates.
        key = rates.rates_key(machine.name, group.shape)
        if key in measured:
            continue
        needed = estimate_memory(group.shape, group.settings).total
        if not _fits_on_one_device(machine, group.settings.ranks, needed):
            print(
                f"{group.env}/{group.policy}: does not fit on one device, its rates stay assumed",
                file=sys.stderr,
            )
            continue

        print(f"measuring {group.env}/{group.policy} on {machine.name}", file=sys.stderr, flush=True)
        # A row's context is prompt and response, which in both environments are about six to one.
        prompt = int(group.work.context * 0.85)
        response = max(2, int(group.work.context * 0.15))
        measured[key] = measure_rates(group.shape, device, prompt, response)
    print(f"rates kept in {rates.save_rates(measured)}", file=sys.stderr)


def _fits_on_one_device(machine: Machine, ranks: int, needed: float) -> bool:
    return machine.gpu is None or (ranks == 1 and needed <= machine.gpu.memory)


def format_estimate(
    estimate: StudyEstimate, price: float | None = None, given: GivenLengths = NOTHING_GIVEN
) -> list[str]:
    """Return an estimate as lines of text: a line for each group of jobs, and the sums.

    Args:
        estimate: the estimate.
        price: of a device's hour; without it nothing is said of cost but that of closed models.
        given: a user's own mean lengths of texts.
    """
    machine = estimate.machine
    device = "GPU" if machine.gpu else "core"
    rows = [tuple(column.format(device=device) for column in TABLE_HEAD)]
    rows += [_format_cost(cost) for cost in estimate.costs]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TABLE_HEAD))]

    table = []
    for row in rows:
        # Stage and name to the left, numbers to the right.
        cells = [
            text.ljust(width) if column < 2 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        table.append("  ".join(cells))
    title = f"plan of {estimate.study.name!r} on {machine.count} x {machine.name}"
    sums = _format_sums(estimate, device, price)
    return [title, "", *table, "", *sums, *_format_origins(estimate, given)]


def _format_cost(cost: JobCost) -> tuple[str, ...]:
    group = cost.group
    memory = "-"
    runs_per_device = "-"
    if cost.memory is not None:
        memory = f"{cost.memory.total / 1e9:.3g}"
        runs_per_device = str(cost.runs_per_device) if cost.runs_per_device else "DOES NOT FIT"
    return (
        group.stage,
        group.name,
        str(group.runs),
        format_number(group.work.generations),
        format_number(group.work.tokens),
        f"{cost.run_flops:.1e}",
        f"{cost.device_hours:.3g}",
        f"{cost.hours:.3g}",
        memory,
        str(group.ranks),
        runs_per_device,
    )


def _format_sums(estimate: StudyEstimate, device: str, price: float | None) -> Iterator[str]:
    tokens = sum(cost.group.runs * cost.group.work.tokens for cost in estimate.costs)
    flops = sum(cost.group.runs * cost.run_flops for cost in estimate.costs)
    max_memory = max((cost.memory.total for cost in estimate.costs if cost.memory), default=0.0)
    hours = estimate.device_hours
    wall_hours = estimate.wall_hours
    # In brackets: the formulas in docs/scaling.md.
    yield f"work    {format_number(tokens)} tokens, {flops:.1e} FLOPs (formulas episodes, search, flops)"
    yield f"time    {hours:.4g} {device}-hours = {hours / 24:.3g} {device}-days (run, side_by_side)"
    yield f"wall    {wall_hours:.3g} h = {wall_hours / 24:.2g} days on {estimate.machine.count} (wall)"
    yield f"memory  {max_memory / 1e9:.3g} GB a rank at most (memory)"
    yield f"disk    {estimate.disk / 1e9:.3g} GB at most (disk)"
    yield f"energy  {estimate.kilowatt_hours:.3g} kWh of the devices (energy)"
    if price is not None:
        yield f"cost    {hours * price:,.0f} at {price:g} an hour and {device} (cost)"
    if estimate.closed_model_cost:
        cost = f"{estimate.closed_model_cost:,.0f}"
        yield f"closed models: at most {cost} US dollars more, by their max_cost"


def _format_origins(estimate: StudyEstimate, given: GivenLengths) -> Iterator[str]:
    for origin in dict.fromkeys(cost.origin for cost in estimate.costs):
        is_measured = "this machine" in origin
        hint = "" if is_measured else "; --measure replaces them by this machine's"
        yield f"rates: {origin}{hint}"

    study = estimate.study
    # Policies of one kind have the same texts.
    texts = {
        (env, policy.kind): text_lengths(env, policy, given)
        for env in study.environments
        for policy in study.policies.values()
    }
    for (env, kind), text in texts.items():
        if kind != "endpoint":
            yield (
                f"texts of {env}, {kind}: {text.prompt:g} tokens a prompt, {text.response:g} a response "
                f"({text.origin})"
            )


def format_number(value: float) -> str:
    """Return a number with three digits and a unit."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value else "-"
