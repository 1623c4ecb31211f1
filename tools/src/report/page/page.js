// Draws the figures of a report from the data beside it.
"use strict";
(() => {
  // Okabe and Ito's palette, told apart by colour-blind readers too; after its eight, dashes tell curves apart.
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a7a", "#966e3c"];
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  // More curves than this are told apart by hovering over them, one at a time.
  const UNIFIED = 8;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const places = [...document.querySelectorAll("figure[data-figure]")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  const style = (index) => ({
    color: COLOURS[index % COLOURS.length],
    dash: DASHES[Math.floor(index / COLOURS.length) % DASHES.length],
  });

  const curves = (figure) => figure.lines.map((line, index) => ({
    type: "scatter",
    mode: line.points.length < 40 && !figure.steps ? "lines+markers" : "lines",
    name: line.name,
    x: line.points.map((point) => point[0]),
    y: line.points.map((point) => point[1]),
    line: { ...style(index), width: 2, shape: figure.steps ? "hv" : "linear" },
    marker: { color: style(index).color, size: 6, symbol: index % 24 },
    ...(line.half.length ? { error_y: { type: "data", array: line.half, color: style(index).color, thickness: 1 } } : {}),
  }));

  const bars = (figure) => [{
    type: "bar",
    x: figure.bars.map((bar) => bar[0]),
    y: figure.bars.map((bar) => bar[1]),
    marker: { color: COLOURS[0] },
    ...(figure.half.length ? { error_y: { type: "data", array: figure.half, thickness: 1 } } : {}),
  }];

  const isBars = (figure) => figure.bars !== undefined;

  // Plots of one family are looked at side by side: their axes have the same ends.
  const ends = (figure) => {
    const family = figures.filter((other) => figure.family && other.family === figure.family && !isBars(other));
    if (family.length < 2) return {};
    const most = (of) => family.flatMap((other) => other.lines.map(of)).reduce((a, b) => Math.max(a, b), 0);
    const last = (line) => line.points.reduce((high, point) => Math.max(high, point[0]), 0);
    const high = (line) => line.points.reduce((top, point) => Math.max(top, point[1]), 0);
    return { x: [0, most(last)], y: [0, most(high) * 1.05 || 1] };
  };

  const colours = (light) => {
    const of = getComputedStyle(document.documentElement);
    const value = (name) => of.getPropertyValue(name).trim();
    return light ? { ink: "#000", paper: "#fff", faint: "#ccc" }
      : { ink: value("--ink"), paper: value("--paper"), faint: value("--faint") };
  };

  const layout = (figure, { ink, paper, faint }) => {
    const { x, y } = figure.log ? {} : ends(figure);
    const axis = { gridcolor: faint, zerolinecolor: faint, linecolor: ink, automargin: true };
    const upright = (figure.marks || []).map(([at]) => ({
      type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: "#b00020", dash: "dash", width: 1 },
    }));
    const names = (figure.marks || []).map(([at, text]) => ({
      x: at, y: 1, yref: "paper", yanchor: "bottom", text, showarrow: false, font: { color: "#b00020" },
    }));
    const level = figure.mark ? [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: figure.mark[1], y1: figure.mark[1], line: { color: COLOURS[1], width: 2 },
    }] : [];
    const label = figure.mark ? [{
      xref: "paper", x: 0.01, y: figure.mark[1], xanchor: "left", yanchor: "bottom", text: figure.mark[0], showarrow: false,
      font: { color: COLOURS[1] },
    }] : [];
    const count = isBars(figure) ? 1 : figure.lines.length;
    return {
      paper_bgcolor: paper, plot_bgcolor: paper, font: { color: ink, family: "system-ui, sans-serif", size: 12 },
      margin: { t: 30, r: 16, b: 48, l: 64 },
      hovermode: count <= UNIFIED ? "x unified" : "closest", hoverlabel: { bgcolor: paper, font: { color: ink } },
      showlegend: count > 1, legend: { font: { size: 11 } },
      xaxis: { ...axis, title: { text: figure.x || "" }, type: figure.log ? "log" : isBars(figure) ? "category" : "linear",
        ...(x ? { range: x } : {}), ...(isBars(figure) && figure.bars.length > 24 ? { showticklabels: false } : {}) },
      yaxis: { ...axis, title: { text: figure.y }, rangemode: "tozero", ...(y ? { range: y } : {}) },
      shapes: [...upright, ...level], annotations: [...names, ...label],
    };
  };

  const csv = (figure) => {
    const quote = (text) => `"${String(text).replaceAll('"', '""')}"`;
    if (isBars(figure)) {
      return `name,${quote(figure.y)}\n` + figure.bars.map(([name, value]) => `${quote(name)},${value}\n`).join("");
    }
    const rows = figure.lines.flatMap((line) => line.points.map(([x, y], at) =>
      `${quote(line.name)},${x},${y},${line.half[at] ?? ""}\n`));
    return `curve,${quote(figure.x)},${quote(figure.y)},confidence95\n` + rows.join("");
  };

  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  const fileName = (figure) => figure.title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "").slice(0, 80);

  const draw = (place) => {
    if (drawn.has(place)) return;
    const figure = figures[place.dataset.figure];
    const plot = place.querySelector(".plot");
    drawn.set(place, { plot, figure });
    Plotly.newPlot(plot, isBars(figure) ? bars(figure) : curves(figure), layout(figure, colours(false)), {
      responsive: true, displaylogo: false,
      // A report's data stays with its reader: nothing is offered that would upload them.
      plotlyServerURL: "", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
      toImageButtonOptions: { format: "svg", filename: fileName(figure) },
      modeBarButtonsToAdd: [{
        name: "data", title: "Download the data as CSV", icon: Plotly.Icons.disk,
        click: () => save(`${fileName(figure)}.csv`, "text/csv", csv(figure)),
      }],
    });
  };

  const restyle = (light, width) => {
    for (const { plot, figure } of drawn.values()) {
      Plotly.relayout(plot, { ...layout(figure, colours(light)), ...(width ? { width } : { width: undefined, autosize: true }) });
    }
  };

  // What is far below is drawn when it comes near: a page of many plots opens at once.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((entry) => entry.isIntersecting)) {
      watcher.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  places.forEach((place) => watcher.observe(place));
  dark.addEventListener("change", () => restyle(false));
  addEventListener("beforeprint", () => {
    places.forEach(draw);
    restyle(true, 680);
  });
  addEventListener("afterprint", () => restyle(false));
})();
