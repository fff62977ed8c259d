"""A plan as lines of text."""

from collections.abc import Iterator

from threespo.scaling.estimate import JobCost, StudyEstimate
from threespo.scaling.workload import text_lengths

_HEAD = (
    "stage", "cell", "runs", "generations", "tokens", "FLOPs", "{device}-h each", "hours each", "GB a rank", "ranks",
    "side by side",
)  # fmt: skip


def format_estimate(
    found: StudyEstimate,
    price: float | None = None,
    given: tuple[float | None, float | None] = (None, None),
) -> list[str]:
    """Return a plan, a line for each cell, and its sums.

    Args:
        found: the plan.
        price: of a device's hour; without it nothing is said of cost but that of closed models.
        given: a user's own mean tokens of prompts and of responses.
    """
    machine, device = found.machine, "GPU" if found.machine.gpu else "core"
    rows = [tuple(head.format(device=device) for head in _HEAD), *(_row(line) for line in found.lines)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    table = [
        "  ".join(
            part.ljust(widths[place]) if place < 2 else part.rjust(widths[place])
            for place, part in enumerate(row)
        )
        for row in rows
    ]
    head = f"plan of {found.study.name!r} on {machine.count} x {machine.name}"
    return [head, "", *table, "", *_sums(found, price), *_origins(found, given)]


def _row(line: JobCost) -> tuple[str, ...]:
    cell = line.cell
    fits = (
        "-"
        if line.memory is None
        else str(line.runs_per_device)
        if line.runs_per_device
        else "DOES NOT FIT"
    )
    return (
        cell.stage, cell.name, str(cell.runs), format_number(cell.work.generations), format_number(cell.work.tokens), f"{line.flops:.1e}",
        f"{line.device_hours:.3g}", f"{line.hours:.3g}", f"{line.memory.total / 1e9:.3g}" if line.memory else "-",
        str(cell.ranks), fits,
    )  # fmt: skip


def _sums(found: StudyEstimate, price: float | None) -> Iterator[str]:
    device = "GPU" if found.machine.gpu else "core"
    tokens = sum(line.cell.runs * line.cell.work.tokens for line in found.lines)
    most = max((line.memory.total for line in found.lines if line.memory), default=0.0)
    operations = sum(line.cell.runs * line.flops for line in found.lines)
    yield f"work    {format_number(tokens)} tokens, {operations:.1e} FLOPs (formulas episodes, search, flops)"
    hours = found.device_hours
    yield f"time    {hours:.4g} {device}-hours = {hours / 24:.3g} {device}-days (run, side_by_side)"
    yield f"wall    {found.wall_hours:.3g} h = {found.wall_hours / 24:.2g} days on {found.machine.count} (wall)"
    yield f"memory  {most / 1e9:.3g} GB a rank at most (memory)"
    yield f"disk    {found.disk / 1e9:.3g} GB at most (disk)"
    yield f"energy  {found.kilowatt_hours:.3g} kWh of the devices (energy)"
    if price is not None:
        yield f"cost    {found.device_hours * price:,.0f} at {price:g} an hour and {device} (cost)"
    if found.closed:
        yield f"closed models: at most {found.closed:,.0f} US dollars more, by their max_cost"


def _origins(found: StudyEstimate, given: tuple[float | None, float | None]) -> Iterator[str]:
    for origin in dict.fromkeys(line.origin for line in found.lines):
        yield f"rates: {origin}" + (
            "" if "this machine" in origin else "; --measure replaces them by this machine's"
        )
    study = found.study
    policies = study.policies.values()
    told = {
        (env, policy.kind): text_lengths(env, policy, given)
        for env in study.environments
        for policy in policies
    }
    for (env, kind), text in told.items():
        if kind != "endpoint":
            yield f"texts of {env}, {kind}: {text.prompt:g} tokens a prompt, {text.response:g} a response ({text.origin})"


def format_number(value: float) -> str:
    """Return a number with three digits and a unit."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value else "-"
