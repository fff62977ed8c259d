"""How tiny policies learn WebShop: from the training goals of the study's own shop, over and over."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup
from threespo.envs.registry import environment
from threespo.envs.webshop.heuristics import BUY_ACTION
from threespo.envs.webshop.settings import WebshopTasks
from threespo.envs.webshop.shop import WebShop
from threespo.errors import InputError
from threespo.imitation.curriculum import (
    Curriculum,
    Decision,
    EarlyStop,
    Recipe,
    Stage,
    TaskStream,
    TinyModelShape,
    Turn,
    shipped_name,
)
from threespo.imitation.settings import BasePolicySettings, PolicySize, Weakness
from threespo.imitation.tokenizer import shop_vocabulary
from threespo.imitation.webshop.expert import CAREFUL, ExpertNoise, decide
from threespo.rng import generator

# A tiny policy has a token for each product, so its embedding grows with the catalogue.
MAX_PRODUCTS = 5_000

NOISY = ExpertNoise(
    random_action=0.15, failing_action=0.04, short_query=0.2, first_product=0.15, first_value=0.15
)
"""The expert that plays while the careful one is imitated, so that clones learn to recover from faults."""

HASTY = ExpertNoise(short_query=0.55, first_product=0.6, first_value=0.3, skip_option=0.5)
"""The expert that the strong policy is fine-tuned on to weaken it."""

EARLY_SUCCESS = 0.15
"""Success rate on calibration goals, T = 1.0, at which early cloning stops; not before 5 million tokens, since GRPO
gains nothing on a clone of 4.5 (docs/webshop.md)."""

_WORD = re.compile(r"\w+")


def curriculum(settings: BasePolicySettings) -> Curriculum:
    """Return the curriculum for a study's shop.

    Raises:
        InputError: if the shop has more products than a tiny policy can have tokens for.
    """
    tasks = settings.tasks
    data = settings.paths.data(settings.env)
    assert isinstance(tasks, WebshopTasks)
    spec = environment(settings.env)
    shop = spec.make(settings.episode, data)
    assert isinstance(shop, WebShop)

    if settings.kind == "tiny" and len(shop.catalogue) > MAX_PRODUCTS:
        raise InputError(
            f"webshop: {len(shop.catalogue):,} products; a tiny policy has a token for each and reads at most "
            f"{MAX_PRODUCTS:,}. Give a smaller catalogue, or a policy of kind 'pretrained'."
        )

    goals = spec.load_tasks(data, "train")
    real = tasks.source != "embedded"
    name = "real" if real else str(tasks.products)

    def tokens(texts: list[str], _: list[Task]) -> list[str]:
        # Most words of real titles and options never come up: tokens for all would double the time of every step.
        return shop_vocabulary((text.lower() for text in texts), _names(shop, goals), seen_only=real)

    return Curriculum(
        shipped=Path(__file__).parent / "shipped" / shipped_name(name, settings),
        recipe=recipe(settings.size, real, settings.weakness),
        setup=EpisodeSetup(shop, settings.episode.max_steps, settings.episode.history_length),
        expert=decide,
        tasks=_stream(goals),
        vocabulary=tokens,
        lowercase=True,
        decides="response",
        # A search for the whole wish is as long as the wish: 62 tokens among the real goals, 29 among embedded ones.
        response_tokens=64 if real else 32,
        is_diagnostic=_telling,
        grounding_metrics=_understanding,
    )


def recipe(size: PolicySize, real: bool, weakness: Weakness = "planted") -> Recipe:
    """Return the recipe for a size and a catalogue.

    Args:
        size: shape and effort.
        real: whether the products are WebShop's own, with longer pages than embedded ones.
        weakness: what makes the base weak.
    """
    million = int(1_000_000 * size.effort)

    def stage(
        million_tokens: float, learning_rate: float, prompt_weight: float, decision_weight: float
    ) -> Stage:
        return Stage(
            tokens=int(million_tokens * million),
            learning_rate=learning_rate * size.learning_rate,
            prompt_weight=prompt_weight,
            decision_weight=decision_weight,
            executed=NOISY,
            labels=CAREFUL,
        )

    # Real pages are twice as long. After the first stage their prompts have no weight, so nearly all tokens skip the head.
    if real:
        later_prompt_weight = 0.0
        millions = (4, 12, 6)
    else:
        later_prompt_weight = 0.1
        millions = (3, 7, 4)
    stages = (
        stage(millions[0], 2e-3, 1.0, 1.0),
        stage(millions[1], 1.5e-3, later_prompt_weight, 4.0),
        stage(millions[2], 1.2e-3, later_prompt_weight, 6.0),
    )

    if weakness == "early":
        return Recipe(
            TinyModelShape.from_size(size),
            stages,
            EarlyStop(5 * million, million // 2),
            target=EARLY_SUCCESS,
        )

    # Short steps: with 75,000 tokens of the larger size one goes from 57 % of the goals won to 2 %.
    weakening = Stage(
        tokens=int(million * size.learning_rate) // (5 if real else 10),
        learning_rate=5e-4 * size.learning_rate,
        prompt_weight=0.0,
        decision_weight=1.0,
        executed=HASTY,
        labels=None,
    )
    return Recipe(TinyModelShape.from_size(size), stages, weakening, target=size.base_success)


def _stream(goals: list[Task]) -> TaskStream:
    def laps(stream: int, _: float) -> Iterator[Task]:
        for lap in itertools.count():
            order = list(goals)
            # A key for each lap: where a stage stops does not change the order of later laps.
            generator(stream, "lap", lap).shuffle(order)
            yield from order

    return laps


def _names(shop: WebShop, goals: list[Task]) -> set[str]:
    """Return words of goals and of more than one title, values of options and numbers of products, in lower case."""
    names = {word for goal in goals for word in _WORD.findall(goal.goal.lower())}
    titles: Counter[str] = Counter()
    for number in range(len(shop.catalogue)):
        product = shop.catalogue.product(number)
        titles.update(set(_WORD.findall(product.title.lower())))
        names |= {
            product.asin.lower(),
            *(value.lower() for _, values in product.options for value in values),
        }
    # A word of one title only is seen too rarely to learn, and would cost a token.
    names |= {word for word, count in titles.items() if count > 1}
    return {name for name in names if not name.isdigit()}


def _telling(decision: Decision) -> bool:
    """Return whether the expert takes a product, chooses an option, or buys."""
    return decision.action.startswith("click[")


def _understanding(turns: list[Turn]) -> dict[str, float]:
    """Return how often the policy does what the careful expert does.

    Recall is taken over result pages (the expert's product), pages with an option to be chosen, and pages where all is
    chosen (a purchase); ``buys_too_early`` is the share of the second on which it buys.
    """
    kinds: dict[str, list[Turn]] = {"product": [], "option": [], "buy": []}
    for turn in turns:
        if turn.wanted == BUY_ACTION:
            kind = "buy"
        elif turn.episode.state.kind == "results":
            kind = "product"
        else:
            kind = "option"
        kinds[kind].append(turn)

    facts: dict[str, float] = {}
    for kind, found in kinds.items():
        agreements = sum(turn.taken == turn.wanted for turn in found)
        facts[f"{kind}_recall"] = agreements / max(1, len(found))
        facts[f"{kind}_states"] = len(found)

    early = sum(turn.taken == BUY_ACTION for turn in kinds["option"])
    return {**facts, "buys_too_early": early / max(1, len(kinds["option"]))}
