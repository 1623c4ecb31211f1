"""Finding unsafe code in Rust sources, and judging the reasons given for it."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from squall_ci import cli
from squall_ci.checks.reasons import breach, Use, uses
from squall_ci.rust_source import blanked

GOOD = "`place` is a local variable, which the call fills with at most its size."

SAMPLE = """
//! Not unsafe { here }, nor in "unsafe {".
#![allow(unsafe_op_in_unsafe_fn)]
#[unsafe(no_mangle)]
pub extern "C" fn exported() {}
type Call = unsafe extern "C" fn(u8) -> u8;
struct Calls { one: unsafe fn(u8) }
fn text() -> &'static str { "// SAFETY: no\\n unsafe { }" }
fn plain() {
    // SAFETY: of the first.
    let a = unsafe { one() };
    let b = unsafe { two() };
    // A word before.
    // SAFETY: of the third,
    // in two lines.
    let c: Vec<u8> =
        unsafe { three() };

    // SAFETY: not of the fourth.

    unsafe { four() };
    // SAFETY: of the fifth.
    call(|| unsafe { five() });
}
// SAFETY: of the impl.
#[cfg(unix)]
unsafe impl Send for A {}
unsafe impl Sync for A {}
/// Does it.
///
/// # Safety
/// `p` is open.
#[inline]
pub(crate) unsafe fn documented(p: *const u8) {}
/// Does it.
unsafe fn undocumented(p: *const u8) {}
// SAFETY: of the trait.
unsafe impl Trait for A {
    fn other() { if true {} }
    unsafe fn of_the_trait() {}
}
impl A { unsafe fn own() {} }
unsafe extern "C" fn called_from_c() {}
macro_rules! rows { ($call:expr) => { {
    // SAFETY: of the macro.
    unsafe { $call }
} }; }
"""


class Finding(unittest.TestCase):
    def test_each_use_with_the_comment_right_above_it(self) -> None:
        found = [(use.kind, use.reason) for use in uses(SAMPLE)]
        self.assertEqual(
            found,
            [
                ("block", "of the first."),
                ("block", None),
                ("block", "of the third, in two lines."),
                ("block", None),
                ("block", "of the fifth."),
                ("impl", "of the impl."),
                ("impl", None),
                ("fn", "`p` is open."),
                ("fn", None),
                ("impl", "of the trait."),
                ("fn", None),
                ("block", "of the macro."),
            ],
        )

    def test_lines_are_those_of_the_word(self) -> None:
        for use in uses(SAMPLE):
            self.assertIn("unsafe", SAMPLE.splitlines()[use.line - 1])

    def test_blanks_keep_the_places(self) -> None:
        code = blanked(SAMPLE)
        self.assertEqual(len(code), len(SAMPLE))
        self.assertEqual(code.count("\n"), SAMPLE.count("\n"))
        self.assertNotIn("SAFETY", code)
        self.assertEqual(blanked("a /* b /* c */ d\n */ 'e' 'f \"g\" h"), f"a{' ' * 15}\n{' ' * 8}'f{' ' * 5}h")


class Judging(unittest.TestCase):
    def judge(self, reason: str | None, kind: str = "block") -> str | None:
        return breach(Use(1, kind, reason))

    def test_a_reason_of_its_own_passes(self) -> None:
        self.assertIsNone(self.judge(GOOD))
        self.assertIsNone(self.judge(GOOD, "impl"))
        self.assertIsNone(self.judge("As [`get`].", "fn"))

    def test_what_says_nothing_is_refused(self) -> None:
        for reason in (
            None,
            "",
            "as above.",
            f"As above; {GOOD}",
            "the caller's promise, here and for every pointer that is inside of it.",
            "the callers' promises are passed on, all of them, to the function below.",
            "as in `deref`, which says all that there is to be said of it.",
            "an open endpoint.",
            "valid pointers and lengths of the kind that the call wants here now",
            "fi_send(3).",
            "checked for NULL.",
        ):
            self.assertIsNotNone(self.judge(reason), reason)

    def test_functions_want_their_section(self) -> None:
        self.assertIsNotNone(self.judge(None, "fn"))
        self.assertIsNotNone(self.judge("", "fn"))


class Run(unittest.TestCase):
    def run_on(self, text: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as said:
            (pathlib.Path(directory) / "deep").mkdir()
            (pathlib.Path(directory) / "deep" / "a.rs").write_text(text)
            return cli.call("check", "reasons", directory), said.getvalue()

    def test_a_breach_is_named_and_fails(self) -> None:
        status, said = self.run_on("fn f() {\n    // SAFETY: as above.\n    unsafe { g() };\n}\n")
        self.assertEqual(status, 1)
        self.assertIn("a.rs:3: the reason says 'as above'", said)
        self.assertIn("1 unsafe blocks, 0 unsafe impls, 0 unsafe functions, 1 breaches", said)

    def test_none_passes(self) -> None:
        self.assertEqual(self.run_on(f"fn f() {{\n    // SAFETY: {GOOD}\n    unsafe {{ g() }};\n}}\n")[0], 0)

    def test_the_house_has_none(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(cli.call("check", "reasons"), 0, said.getvalue())
