"""Files of figures: widths, fonts, pages and bytes; and colours that colour-blind readers tell apart."""

import itertools
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from threespo.errors import InputError
from threespo.results.labels import label, looks_of_study, palette, read_row_looks, styles, use_row_looks
from threespo.results.paper.figures import save_figure
from threespo.results.paper.layout import (
    PAGE_HEIGHT,
    WIDTHS,
    add_legend,
    create_panels,
    page_boxes,
    set_style,
)
from threespo.settings import Execution, select_key_fields
from threespo.study.load import load_study

mpl.use("Agg")
DATA = pd.DataFrame({"x": [1.0]})


@pytest.fixture(autouse=True)
def _style():
    with mpl.rc_context():
        set_style()
        yield
    mpl.pyplot.close("all")


def drawn(panels=1, height=2.0, width=None):
    figure, axes = create_panels(width, panels, height, across=3)
    for place, axis in enumerate(axes):
        axis.plot([0, 1], [0, place], label="α")
        axis.set(xlabel="generations", title=f"panel {place}")
    add_legend(figure, axes[0].get_lines())
    return figure


def saved(folder, **options):
    save_figure(drawn(**options), folder, "x", DATA)
    return {kind: (folder / f"x.{kind}").read_bytes() for kind in ("svg", "pdf", "png", "csv")}


def boxes(pdf):
    """Return the width and the height of a PDF file's pages, in inches."""
    found = re.findall(rb"/MediaBox \[ ([\d. ]+) \]", pdf)
    return [
        (right - left, top - low)
        for left, low, right, top in (np.array(box.split(), float) / 72 for box in found)
    ]


@pytest.mark.parametrize(("panels", "inches"), [(1, 3.3), (2, 6.9)])
def test_every_file_has_the_width_of_a_column_or_of_a_page(tmp_path, panels, inches):
    files = saved(tmp_path, panels=panels)
    assert float(re.search(rb'<svg[^>]* width="([\d.]+)pt"', files["svg"])[1]) == pytest.approx(
        72 * inches
    )
    assert [width for width, _ in boxes(files["pdf"])] == pytest.approx([inches], abs=0.01)
    # The first chunk of a PNG file begins with its width in pixels.
    assert int.from_bytes(files["png"][16:20]) == pytest.approx(300 * inches, abs=1)


def test_a_long_label_is_not_cut_at_the_edge(tmp_path):
    figure, (axis,) = create_panels("page", 1, 2.0, across=1)
    axis.set_yticks([0.5], ["3SPO is above GRPO in both environments and with both models"], fontsize=6)
    save_figure(figure, tmp_path, "x", DATA)
    # Letters of many dots are as wide as those of the files.
    figure.set_dpi(1200)
    assert axis.get_tightbbox().x0 > 0


def test_any_other_width_is_refused(tmp_path):
    figure = drawn()
    figure.set_size_inches(5, 2)
    with pytest.raises(ValueError, match=r"5 inches wide; expected one of \[3\.3, 6\.9\]"):
        save_figure(figure, tmp_path, "x", DATA)
    assert not list(tmp_path.iterdir())


def test_without_data_a_sentence_stands_in_the_place_of_an_empty_frame(tmp_path):
    for name, says in (
        ("x", "This study has no rows for this figure."),
        ("case_study", "recorded_tasks: 4}}'"),
    ):
        save_figure(drawn(panels=2), tmp_path, name, DATA.iloc[:0])
        texts = re.findall(
            r"<text[^>]*>([^<]*)</text>", (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        )
        # In lines, and nothing of what was drawn.
        assert " ".join(texts).replace("&apos;", "'").endswith(says)
        assert not {"generations", "panel 0"} & set(texts)
        assert [width for width, _ in boxes((tmp_path / f"{name}.pdf").read_bytes())] == pytest.approx(
            [6.9], abs=0.01
        )


def test_text_is_text_and_fonts_are_embedded_as_truetype(tmp_path):
    files = saved(tmp_path)
    assert re.findall(r"<text[^>]*>(generations|panel 0|α)</text>", files["svg"].decode()) == [
        "generations",
        "panel 0",
        "α",
    ]
    # Type 42 fonts: a CIDFontType2 or TrueType object with a FontFile2 stream, and no Type 3 fonts.
    assert b"/FontFile2" in files["pdf"]
    assert b"/Type3" not in files["pdf"]


def test_equal_figures_are_equal_bytes_and_undated(tmp_path):
    first, second = saved(tmp_path / "one", panels=4), saved(tmp_path / "two", panels=4)
    assert first == second
    assert not re.search(rb"CreationDate|<dc:date>|Software", b"".join(first.values()))


def test_a_tall_figure_is_cut_between_its_rows_into_pages_that_hold_every_row(tmp_path):
    # 31 panels in 11 rows of 2 inches: two or three rows too many for two pages of 9 inches.
    figure = drawn(panels=31)
    figure.draw_without_rendering()
    parts = page_boxes(figure)
    assert len(parts) == 3
    assert all(part.height <= PAGE_HEIGHT for part in parts)
    assert sum(part.height for part in parts) == pytest.approx(figure.get_size_inches()[1])
    for axis in figure.axes:
        box = axis.get_tightbbox()
        inside = [
            part for part in parts if part.y0 <= box.y0 / figure.dpi and box.y1 / figure.dpi <= part.y1
        ]
        assert len(inside) == 1, axis.get_title()
    files = saved(tmp_path, panels=31)
    assert len(boxes(files["pdf"])) == 3
    assert {round(width, 2) for width, _ in boxes(files["pdf"])} == {WIDTHS["page"]}
    # The SVG file's views are the same pages, from the top.
    boxes_of_views = re.findall(r'<view id="page-\d" viewBox="([^"]*)"', files["svg"].decode())
    views = np.array([list(map(float, box.split())) for box in boxes_of_views])
    assert views[:, 2:] / 72 == pytest.approx(np.array(boxes(files["pdf"])), abs=0.02)
    assert views[:, 1] == pytest.approx([0, *np.cumsum(views[:-1, 3])], abs=0.02)


def test_a_figure_that_fits_is_one_page():
    figure = drawn(panels=6)
    figure.draw_without_rendering()
    assert len(page_boxes(figure)) == 1


# --- colours

LOOKS = read_row_looks()
CI = Path("config") / "studies" / "ci.yaml"

DEUTERANOPIA = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
"""Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as a deuteranope sees it."""

AS_IT_IS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))

TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)


def lab(colour, seen=AS_IT_IS):
    """Return CIELAB of a colour of sRGB, as eyes with the matrix ``seen`` have it."""
    rgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.array(TO_XYZ) @ np.clip(np.array(seen) @ linear, 0, 1) / (0.95047, 1.0, 1.08883)
    f = [np.cbrt(one) if one > 0.008856 else 7.787 * one + 16 / 116 for one in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(first, second, seen=AS_IT_IS):
    return float(np.linalg.norm(lab(first, seen) - lab(second, seen)))


def test_the_measure_is_cielab_and_the_simulation_confuses_red_and_green():
    assert lab("#ffffff") == pytest.approx([100, 0, 0], abs=0.1)
    # By the definition of CIELAB: sRGB's red.
    assert lab("#ff0000") == pytest.approx([53.24, 80.09, 67.20], abs=0.1)
    assert distance("#c44e52", "#5c8a3c", DEUTERANOPIA) < 0.4 * distance("#c44e52", "#5c8a3c")


def test_the_papers_methods_and_the_presets_differ_for_deuteranopes():
    names = [
        "base", "strong", "threespo-literal", "threespo-calibrated", "threespo-narrow", "threespo-improved", "grpo",
        "gigpo", "hgpo", "ppo", "rloo", "dapo",
    ]  # fmt: skip
    for first, second in itertools.combinations(names, 2):
        for seen in (AS_IT_IS, DEUTERANOPIA):
            assert distance(LOOKS[first].colour, LOOKS[second].colour, seen) > 19, (first, second)


def test_the_papers_own_colours_are_kept():
    def hue(name):
        return np.degrees(np.arctan2(*lab(LOOKS[name].colour)[:0:-1])) % 360

    # Hue angles in CIELAB: blue about 280, purple 310, pink 350 to 360, red 30.
    assert [hue(name) for name in ("3spo", "gigpo", "hgpo", "grpo")] == pytest.approx(
        [280, 312, 350, 32], abs=15
    )


def test_lines_that_are_alike_in_colour_differ_in_marker_or_dashes():
    looks = styles([name for name in LOOKS if name != "3spo"])
    shapes = [(look["marker"], str(look["linestyle"])) for look in looks.values()]
    assert len(set(shapes)) == len(shapes)


def test_a_method_looks_the_same_whoever_is_beside_it():
    assert styles(["grpo", "tick"])["grpo"] == styles(["another", "grpo"])["grpo"]


def test_a_study_says_how_its_rows_look_and_other_rows_keep_theirs():
    own = {"methods": {"grpo": {"label": "my GRPO", "colour": "#123456"}}}
    use_row_looks(looks_of_study(load_study(CI, own)))
    try:
        assert (label("grpo"), palette(["grpo"])) == ("my GRPO", {"grpo": "#123456"})
        assert (label("gigpo"), label("unknown")) == ("GiGPO", "unknown")
    finally:
        use_row_looks(looks_of_study(load_study(CI)))
    assert label("grpo") == "GRPO"


def test_labels_of_rows_do_not_count_for_jobs():
    """They are none of the settings that decide whether a run is trained again."""
    plain = load_study(CI).methods["grpo"]
    labelled = plain.model_copy(update={"label": "my GRPO", "colour": "#123456"})
    assert select_key_fields(labelled) == select_key_fields(plain)
    # Tables and report show them.
    assert select_key_fields(labelled, without=(Execution,)) != select_key_fields(
        plain, without=(Execution,)
    )


def test_a_fault_in_the_file_of_labels_is_named_with_the_row(tmp_path):
    file = tmp_path / "rows.yaml"
    file.write_text("grpo: {label: GRPO, colour: red}")
    with pytest.raises(InputError, match=r"rows\.yaml, grpo\.colour: .*its first lines explain"):
        read_row_looks(file)
