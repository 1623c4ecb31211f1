"""Look at a report in a real browser: every plot is there, has a size, and is drawn inside of its frame.

    ci/run report [FILE.html] [--screenshot FILE.png]

Without a file, runs a small experiment (fabric/plans/04b-slow-link.toml, quick) and looks at its report. Needs chromium
(Debian's package, or `google-chrome`); says so and exits 1 if there is none.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from squall_ci.paths import die, need
from squall_ci.process import run as run_command
from squall_ci.process import Word
from squall_ci.programs import squall
from squall_ci.tally import Tally

BROWSERS = ["chromium", "chromium-browser", "google-chrome"]

# Asks the browser what it has laid out. Only the copy that is tested holds a script: the report has none.
PROBE = """
<script>
const figures = [...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg');
  const frame = svg.getBoundingClientRect();
  const view = svg.viewBox.baseVal;
  const marks = [...svg.querySelectorAll('polyline, path, rect, circle')].filter(mark => {
    const box = mark.getBoundingClientRect();
    return box.width > 0 || box.height > 0;
  });
  const labels = [...svg.querySelectorAll('text')];
  const outside = labels.filter(label => {
    const box = label.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 ||
      box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
  });
  return {caption: figure.querySelector('figcaption').textContent, width: frame.width,
    height: frame.height, marks: marks.length, labels: labels.length,
    outside: outside.map(label => label.textContent.trim())};
});
const wide = document.documentElement.scrollWidth > window.innerWidth;
const answer = document.createElement('pre');
answer.id = 'probe';
answer.textContent = JSON.stringify({figures, wide, fetched: performance.getEntriesByType('resource').length,
  cells: document.querySelectorAll('td').length});
document.body.append(answer);
</script>
"""


def browse(browser: str, *words: str) -> str:
    """Runs the browser without a window; it needs no sandbox to look at our own file."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,1600"]
    done = subprocess.run(command + list(words), capture_output=True, timeout=120)
    if done.returncode:
        die(f"{browser} failed: {done.stderr.decode(errors='replace')[-500:]}", 1)
    return done.stdout.decode(errors="replace")


def sample(folder: str) -> pathlib.Path:
    """A report of a small experiment."""
    command: list[Word] = [squall(), "plan", "run", "04b-slow-link", "--quick", "--quiet", "--out", folder]
    result = run_command(command, os.environ, 120)
    need(result.ok, f"the experiment failed: {result.why()}\n{result.output}")
    return pathlib.Path(folder) / "report.html"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", nargs="?", type=pathlib.Path)
    parser.add_argument("--screenshot", type=pathlib.Path)


def run(args: argparse.Namespace) -> int:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        die("no browser: run ci/run setup report", 1)
    with tempfile.TemporaryDirectory() as folder:
        page = args.page or sample(folder)
        copy = pathlib.Path(folder) / "probe.html"
        copy.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
        dom = browse(browser, "--dump-dom", copy.as_uri())
        if args.screenshot:
            browse(browser, f"--screenshot={args.screenshot.resolve()}", page.resolve().as_uri())
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S)
    if not found:
        die("the page did not load to its end", 1)
    text = found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    seen = json.loads(text)

    tally = Tally(quiet=True)

    def check(name: str, good: object, problem: str) -> None:
        tally.add(name, None if good else problem)

    check("plots", seen["figures"], "none")
    check("tables", seen["cells"], "none")
    check("one file", seen["fetched"] == 0, f"{seen['fetched']} things were fetched")
    check("width", not seen["wide"], "the page is wider than the window")
    for figure in seen["figures"]:
        name = figure["caption"]
        check(name, figure["width"] > 300 and figure["height"] > 150, f"{figure['width']} x {figure['height']}")
        check(name, figure["marks"] > 3, f"{figure['marks']} marks drawn")
        check(name, figure["labels"] > 3, f"{figure['labels']} labels")
        check(name, not figure["outside"], f"outside of the frame: {figure['outside']}")
    print(f"{len(seen['figures'])} plots")
    return tally.finish()
