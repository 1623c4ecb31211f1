"""Tests of how the documents' commands are found, and that every command that is not run has a reason."""

import re
import subprocess
import unittest

from squall_ci.checks import documents
from squall_ci.checks.documents import blocks
from squall_ci.paths import ROOT

TEXT = """\
# A page
## First
```sh
one --a \\
    --b     # why
# a comment
export X=1
```
### Second
```toml plan.toml
x = 1
```
```
plain
```
"""


class Documents(unittest.TestCase):
    def test_blocks_have_headings_kinds_names_and_commands(self) -> None:
        found = blocks(TEXT)
        self.assertEqual(
            [(b.heading, b.kind, b.name) for b in found],
            [("First", "sh", ""), ("Second", "toml", "plan.toml"), ("Second", "", "")],
        )
        self.assertEqual(found[0].commands(), ["one --a --b     # why", "export X=1"])

    def test_every_fence_is_seen(self) -> None:
        for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            with self.subTest(path.name):
                text = path.read_text(encoding="utf-8")
                fences = [line for line in text.splitlines() if line.startswith("```")]
                self.assertEqual(len(fences), 2 * len(blocks(text)))

    def test_links_and_names_of_files_lead_somewhere(self) -> None:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        known = [f"/{name}" for name in listed.splitlines()]
        for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "python" / "README.md"]:
            text = path.read_text(encoding="utf-8")
            for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", text):
                with self.subTest(path.name, link=link):
                    self.assertTrue((path.parent / link).exists())
            for name in re.findall(r"`((?!cc/src/baselines/mine|target/)(?:[\w.-]+/)+[\w-]+\.(?:rs|py|toml|md))`", text):
                with self.subTest(path.name, name=name):
                    self.assertTrue(any(file.endswith(f"/{name}") for file in known))

    def test_what_is_not_run_has_a_reason_and_is_somewhere(self) -> None:
        every = [c for of in documents.documents().values() for block in of for c in block.commands()]
        self.assertGreater(len(every), 30)
        for begins in documents.ELSEWHERE:
            self.assertTrue(any(f"{command}  ".startswith(begins) for command in every), begins)
        for rule in documents.RULES:
            self.assertTrue(any(command.startswith(rule.begins) for command in every), rule.begins)

    def test_a_block_of_python_is_a_file(self) -> None:
        (block,) = blocks("```python parts.py\nimport os\n```\n")
        self.assertEqual(block.commands(), ["python3 parts.py"])
        for of in documents.documents().values():
            for block in of:
                self.assertTrue(block.kind != documents.PYTHON or block.name.endswith(".py"), block.text)

    def test_a_script_says_how_each_command_ended(self) -> None:
        text = documents.script(["export X=3", "(exit $X)", "sleep 0 &", "echo $X   # said"])
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
        ends = [line for line in done.stdout.splitlines() if line.startswith("::end")]
        self.assertEqual(ends, ["::end 0 0", "::end 1 3", "::end 2 0", "::end 3 0"])
        self.assertIn("\n3\n", done.stdout)

    def test_a_command_line_is_split_into_programs(self) -> None:
        line = 'X=1 squall sim --load a > out && (eval "$(squall env)"; ci/run list) | sort'
        self.assertEqual(
            documents.calls(line),
            [["squall", "sim", "--load", "a"], ["out"], ["eval", "$(squall env)"], ["ci/run", "list"], ["sort"]],
        )

    def test_what_the_programs_do_not_accept_is_found(self) -> None:
        pages = {
            (): "Commands:\n  sim    Simulate\n  plan   Experiments\n\nOptions:\n  -h, --help\n",
            ("sim",): "Options:\n  -o, --out <FILE>\n      --topo <T>\n",
            ("plan",): "Commands:\n  run  Run\n\nOptions:\n",
            ("plan", "run"): "Options:\n  --quick\n",
        }
        for words, problem in (
            ("squall sim --topo star:8 -o x", None),
            ("squall sim --topology star:8", "squall sim has no option --topology"),
            ("squall plan run 04b --quick", None),
            ("squall plan run 04b --quickly", "squall plan run has no option --quickly"),
            ("squall simulate", "squall has no command simulate"),
            ("squall sim --topo=star:8 -- app --vtk", None),
        ):
            self.assertEqual(documents.misuse_of_squall(words.split(), pages.get), problem, words)
        self.assertIsNone(documents.misuse_of_tool(["ci/run", "suite", "hostile", "--quick"]))
        self.assertIsNone(documents.misuse_of_tool(["ci/test", "--fast"]))
        self.assertIsNotNone(documents.misuse_of_tool(["ci/run", "suite", "hostiles"]))
        self.assertIsNotNone(documents.misuse_of_tool(["ci/run", "suite", "hostile", "--slowly"]))
