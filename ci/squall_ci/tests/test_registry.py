"""Every subcommand is declared, documented and listed."""

import ast
import contextlib
import io
import pathlib
import subprocess
import sys
import unittest

from squall_ci import cli, commands
from squall_ci.paths import ROOT, RUN
from squall_ci.registry import COMMANDS, find, GROUPS


class Registry(unittest.TestCase):
    def test_every_subcommand_has_help_group_time_and_a_line(self) -> None:
        for command in COMMANDS:
            with self.subTest(command.name):
                self.assertIn(command.group, GROUPS)
                self.assertTrue(command.time and command.what)
                parser = cli.parser_of(command)
                self.assertIn(parser.description, parser.format_help())
                # The usage in the help names the subcommand as one calls it.
                head = "\n".join((parser.description or "").splitlines()[1:6])
                self.assertRegex(head, rf"ci/(run )?{command.name}\b")
                self.assertTrue(callable(command.load().run))

    def test_names_are_unique_and_no_module_is_forgotten(self) -> None:
        names = [command.name for command in COMMANDS]
        self.assertEqual(len(names), len(set(names)))
        directory = pathlib.Path(commands.__file__).parent
        modules = {path.stem for path in directory.glob("*.py")} - {"__init__"}
        self.assertEqual(modules, {command.load().__name__.rpartition(".")[2] for command in COMMANDS})

    def test_nothing_but_the_standard_library_is_needed(self) -> None:
        for path in sorted(pathlib.Path(cli.__file__).parent.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    self.assertIn(name.partition(".")[0], sys.stdlib_module_names | {"squall_ci"}, path)

    def test_the_readme_holds_the_table_of_list(self) -> None:
        readme = (ROOT / "ci" / "README.md").read_text(encoding="utf-8")
        self.assertTrue(cli.listing() in readme, "put what `ci/run list` prints into ci/README.md")

    def test_two_words_name_a_subcommand_before_one(self) -> None:
        for words, name, rest in (
            (["bench", "cc", "nscc"], "bench cc", ["nscc"]),
            (["bench", "--quick"], "bench", ["--quick"]),
            (["bench"], "bench", []),
            (["nonsense"], None, ["nonsense"]),
        ):
            command, behind = find(words)
            self.assertEqual((command and command.name, behind), (name, rest))

    def test_a_wrong_name_or_option_is_refused(self) -> None:
        for words in (["mtrix"], ["deps", "--nonsense"], ["setup", "nonsense"]):
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as left:
                cli.call(*words)
            self.assertEqual(left.exception.code, 2)

    def test_the_launchers_pass_their_words_on(self) -> None:
        for name, words, says in (
            ("test", ["--list"], "cargo fmt"),
            ("build", ["--help"], "fi_prov_ini"),
            ("demo", ["--help"], "--no-live"),
            ("run", ["list"], "`matrix`"),
        ):
            done = subprocess.run([RUN.with_name(name), *words], capture_output=True, text=True, cwd="/")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(says, done.stdout)
