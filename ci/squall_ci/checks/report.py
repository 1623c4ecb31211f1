"""Look at a report in a real browser, at three widths and in print: every plot is there, drawn inside of its frame, and an image.

Without a file, runs a small experiment (tools/plans/04b-slow-link.toml, quick) and looks at its report. Needs chromium
(Debian's package, or `google-chrome`); says so and exits 1 if there is none.
"""

import argparse
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from squall_ci.paths import die, need
from squall_ci.process import run, Word
from squall_ci.programs import squall
from squall_ci.tally import Tally

BROWSERS = ["chromium", "chromium-browser", "google-chrome"]

# Has the browser draw everything, and asks it what it has laid out.
PROBE = """
<script>
dispatchEvent(new Event('beforeprint'));
dispatchEvent(new Event('afterprint'));
setTimeout(async () => {
  const figures = [...document.querySelectorAll('figure')].map(figure => {
    const frame = figure.querySelector('.plot').getBoundingClientRect();
    const seen = mark => { const box = mark.getBoundingClientRect(); return box.width > 0 || box.height > 0; };
    const of = words => [...figure.querySelectorAll(words)].filter(seen);
    const labels = of('.xtick text, .ytick text, .g-xtitle text, .g-ytitle text');
    const outside = labels.filter(label => {
      const box = label.getBoundingClientRect();
      return box.left < frame.left - 1 || box.right > frame.right + 1 ||
        box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    });
    return {caption: figure.querySelector('figcaption').textContent, width: frame.width, height: frame.height,
      marks: of('.js-line, .points path, .point path').length, labels: labels.length,
      buttons: figure.querySelectorAll('.modebar-btn').length, outside: outside.map(label => label.textContent.trim())};
  });
  const plot = document.querySelector('figure .plot');
  const image = plot ? await Plotly.toImage(plot, {format: 'svg', width: 700, height: 400}) : '';
  const shared = [...document.querySelectorAll('.modebar-btn')].some(button => button.dataset.title.startsWith('Share'));
  const wide = document.documentElement.scrollWidth > window.innerWidth;
  const answer = document.createElement('pre');
  answer.id = 'probe';
  answer.textContent = JSON.stringify({figures, wide, shared, fetched: performance.getEntriesByType('resource').length,
    image: image.startsWith('data:image/svg') ? image.length : 0, cells: document.querySelectorAll('td').length});
  document.body.append(answer);
}, 300);
</script>
"""
# A telephone, a small and a large window; pixels.
WIDTHS = (400, 900, 1600)
# Virtual time, in which what a page waits for passes at once.
PATIENCE = "--virtual-time-budget=20000"


def browse(browser: str, *words: str) -> str:
    """Runs the browser without a window; it needs no sandbox to look at our own file."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", PATIENCE]
    done = subprocess.run(command + list(words), capture_output=True, timeout=120)
    if done.returncode:
        die(f"{browser} failed: {done.stderr.decode(errors='replace')[-500:]}", 1)
    return done.stdout.decode(errors="replace")


def sample(folder: str) -> pathlib.Path:
    """A report of a small experiment."""
    command: list[Word] = [squall(), "plan", "run", "04b-slow-link", "--quick", "--quiet", "--out", folder]
    result = run(command, os.environ, 120)
    need(result.ok, f"the experiment failed: {result.why()}\n{result.output}")
    return pathlib.Path(folder) / "report.html"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", nargs="?", type=pathlib.Path)
    parser.add_argument("--screenshot", type=pathlib.Path)


def main(args: argparse.Namespace) -> int:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        die("no browser: run ci/run setup report", 1)
    tally = Tally(quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        page = args.page or sample(folder)
        copy = pathlib.Path(folder) / "probe.html"
        # The last one: Plotly has the word, too.
        head, tail = page.read_text().rsplit("</body>", 1)
        copy.write_text(head + PROBE + "</body>" + tail)
        for width in WIDTHS:
            dom = browse(browser, f"--window-size={width},1600", "--dump-dom", copy.as_uri())
            judge(tally, width, dom)
        printed = pathlib.Path(folder) / "print.pdf"
        browse(browser, f"--print-to-pdf={printed}", page.resolve().as_uri())
        sheets = len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes()))
        tally.add("print", None if sheets else "no sheet came out")
        if args.screenshot:
            browse(browser, "--window-size=1100,1600", f"--screenshot={args.screenshot.resolve()}", page.resolve().as_uri())
            shutil.copy(printed, args.screenshot.with_suffix(".pdf"))
    return tally.finish()


def judge(tally: Tally, width: int, dom: str) -> None:
    """What the browser has laid out in a window of `width` pixels."""
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S)
    if not found:
        die("the page did not load to its end", 1)
    seen = json.loads(html.unescape(found.group(1)))

    def check(name: str, good: object, problem: str) -> None:
        tally.add(f"{name}, {width} pixels", None if good else problem)

    check("plots", seen["figures"], "none")
    check("tables", seen["cells"], "none")
    check("one file", seen["fetched"] == 0, f"{seen['fetched']} things were fetched")
    check("private", not seen["shared"], "a button would upload data")
    check("width", not seen["wide"], "the page is wider than the window")
    check("image", seen["image"] > 1000, f"a plot as SVG has {seen['image']} characters")
    for figure in seen["figures"]:
        name = figure["caption"]
        check(name, figure["width"] > 300 and figure["height"] > 150, f"{figure['width']} x {figure['height']}")
        check(name, figure["marks"] > 0, "nothing drawn")
        check(name, figure["labels"] > 3, f"{figure['labels']} labels")
        check(name, figure["buttons"] > 3, f"{figure['buttons']} buttons")
        check(name, not figure["outside"], f"outside of the frame: {figure['outside']}")
    print(f"{len(seen['figures'])} plots at {width} pixels")
