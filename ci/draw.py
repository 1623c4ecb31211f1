"""Draw a picture of the documents from the values of a benchmark: python3 ci/draw.py VALUES FIGURE.svg. It needs matplotlib
(python3-matplotlib).

    ci/run bench virtual rates --values rates.json && python3 ci/draw.py rates.json docs/rates.svg
    ci/run suite rails --values cards.json && python3 ci/draw.py cards.json docs/cards.svg
"""

import json
import pathlib
import sys
from typing import Any

try:
    import matplotlib
except ImportError:
    sys.exit("ci/draw.py: Python has no matplotlib: install python3-matplotlib")
matplotlib.use("svg")
from matplotlib import pyplot

# The colours of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def rates(values: dict[str, Any]) -> Any:
    """Draws the times of rounds by rate, and the range of rates that are enough over all assumptions."""
    whole, (times, enough) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    labels: list[str] = []
    placements = dict.fromkeys(need["placement"] for need in values["needs"])
    for placement, colour in zip(placements, COLOURS):
        group = [need for need in values["needs"] if need["placement"] == placement]
        for need in group:
            label = f"ranks {placement}" if need is group[0] else None
            times.plot(values["rates"], need["times"], color=colour, alpha=0.7, linewidth=1.2, label=label)
        for at, computation in enumerate(values["computations"]):
            answers = [need["enough"][at] for need in group]
            row = [len(labels)] * 2
            enough.plot([min(answers), max(answers)], row, color=colour, linewidth=8, solid_capstyle="round")
            labels.append(f"{placement}, computation {computation}")
    times.set(xlabel="rate, Gb/s", ylabel="us a round, without computation", yscale="log")
    times.set_yticks((20, 50, 100, 200), ("20", "50", "100", "200"))
    times.legend(frameon=False, loc=(0.03, 0.28))
    enough.set(xlabel="rate that is enough, Gb/s", ylim=(len(labels) - 0.5, -0.5))
    enough.set_yticks(range(len(labels)), labels)
    for axes in (times, enough):
        ends = values["rates"][0] / 1.3, values["rates"][-1] * 1.3
        axes.set(xscale="log", xlim=ends)
        axes.set_xticks(values["rates"], [str(rate) for rate in values["rates"]])
        axes.minorticks_off()
    return whole


def cards(values: dict[str, Any]) -> Any:
    """Draws what each network card sent over time, with the moments at which one died and came back."""
    whole, axes = pyplot.subplots(figsize=(9, 3), layout="constrained")
    for (name, gbps), colour in zip(values["cards"].items(), COLOURS):
        axes.plot(values["seconds"], gbps, color=colour, label=name, linewidth=1.2)
    for name, at in values["marks"].items():
        axes.axvline(at, color="#5A5A5A", linestyle="--", linewidth=1)
        axes.annotate(name, (at, 1), xycoords=("data", "axes fraction"), xytext=(4, -12), textcoords="offset points")
    axes.set(xlabel="s", ylabel="sent, Gb/s", ylim=(0, None), xlim=(0, None))
    axes.legend(frameon=False, loc="lower right")
    return whole


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    values = json.loads(pathlib.Path(sys.argv[1]).read_text())
    # Text stays text, and two drawings of one result are one file.
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "squall", "font.size": 10, "axes.grid": True, "grid.alpha": 0.3}
    )
    draw = rates if "rates" in values else cards
    draw(values).savefig(sys.argv[2], metadata={"Date": None})


main()
