"""Success and learning curves as small text files, which ``dvc metrics diff`` and ``dvc plots diff`` compare."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.files import write_json, write_text

if TYPE_CHECKING:
    from threespo.paths import Paths

CURVE_NAME = ["env", "policy", "method"]


def write_dvc_files(paths: "Paths", main: pd.DataFrame, curves: pd.DataFrame) -> None:
    """Write ``metrics.json`` and ``learning_curves.csv``, made from the tables ``main`` and ``curves``."""
    write_json(paths.dvc_metrics, success_by_method(main))
    write_text(paths.dvc_curves, learning_curves(curves).to_csv(index=False, lineterminator="\n"))


def success_by_method(main: pd.DataFrame) -> dict[str, Any]:
    """Return success as nested mappings, whose names make up a row's name in ``dvc metrics diff``.

    Returns:
        ``success``: environment, policy, split, method, then the mean in percent. ``seeds``: environment, policy, method,
        then the number of training seeds. Rows that were not run are left out.
    """
    success: dict[str, Any] = {}
    seeds: dict[str, Any] = {}
    # Closed models that were not run have no numbers.
    for row in main[main["seeds"] > 0].to_dict("records"):
        env, policy, method = (str(row[name]) for name in CURVE_NAME)
        splits = success.setdefault(env, {}).setdefault(policy, {})
        methods = splits.setdefault(str(row["split"]), {})
        # A hundredth of a percent is less than one episode of any study, and shows no noise of the last bits.
        methods[method] = round(float(row["mean"]), 2)
        seeds.setdefault(env, {}).setdefault(policy, {})[method] = int(row["seeds"])
    return {"success": success, "seeds": seeds}


def learning_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Return mean training success in percent against generations: one row per point, ``curve`` names what belongs together.

    The template ``.dvc/plots/learning_curves.json`` draws a panel for each ``curve``.
    """
    # DVC needs the headings also where there is no curve.
    if curves.empty:
        return pd.DataFrame(columns=["curve", "generations", "success"])
    return pd.DataFrame(
        {
            "curve": curves[CURVE_NAME].agg(" ".join, axis=1),
            "generations": curves["generations"].round().astype(int),
            "success": (100.0 * curves["mean"]).round(2),
        }
    )
