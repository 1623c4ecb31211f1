"""Counting methods and fields in Rust sources."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from squall_ci import cli
from squall_ci.commands.sizes import sizes_of
from squall_ci.rust_source import scan, tokens

SAMPLE = r"""
//! struct NotThis { a: u8 }
/* impl Nor /* nested */ This { fn x() {} } */
#[derive(Clone)]
pub(crate) struct Plain<'a, T: Fn(u8) -> Vec<u8>, const N: usize = { 1 + 1 }>
where
    T: for<'b> Fn(&'b u8, u8),
{
    /// A comma, in a comment.
    pub map: HashMap<u8, (u8, Vec<u8>)>,
    call: fn(u8, u8) -> u8,
    #[cfg(test)]
    probe: u8,
    last: &'a [u8; N],
}
pub struct Tuple(pub u8, #[doc = "two, parts"] Box<dyn Fn(u8) -> HashMap<u8, u8>>);
pub struct Unit;
enum Kind { A { x: u8, y: u8 }, B(u8) }
const EVEN: bool = 3 != 4;
impl<'a, T: Fn(u8) -> Vec<u8>, const N: usize> Plain<'a, T, N> {
    pub const CALL: fn(u8) -> u8 = |x| { fn hidden() {} x };
    const BRACE: char = '{';
    const TEXT: &str = "} fn no() { \" ";
    const RAW: &str = r#"fn no() { " }"#;
    pub const unsafe extern "C" fn one(&self) -> fn(u8) -> u8 { fn inner() {} 0 }
    async fn two<'b>(&'b self, quote: u8) -> impl Fn() + 'b { if quote == b'"' { '\'' } else { '\u{7d}' } }
    #[cfg(test)]
    fn only_in_tests(&self) {}
    fn r#three() {}
}
impl<T> Clone for Plain<'_, T, 1> { fn clone(&self) -> Self { todo() } }
impl<F> Trait<fn(u8)> for F where F: for<'x> Fn(&'x u8) { fn of_trait() {} }
impl crate::other::Tuple { fn four(self) {} }
impl dyn Kinds { fn five(&self) {} }
impl<'c> dyn for<'a> Wide<'a> + 'c where Self: for<'b> Fn(&'b u8) { fn six(&self) {} }
impl From<Wide> for &'static mut Unit { fn from(_: Wide) {} }
trait Kinds { fn declared(&self); fn given(&self) { } }
macro_rules! make { ($name:ident) => { struct $name { a: u8 } impl $name { fn made() {} } }; }
make! { struct Made { a: u8 } }
#[cfg(test)]
pub(crate) mod tests { struct Hidden { a: u8 } impl super::Unit { fn hidden() {} } }
#[cfg(test)]
mod beside;
#[cfg(any(test, unix))]
mod shown;
mod inside { pub struct Deep { pub a: u8 } impl Deep { pub fn new() -> Self { Self { a: 0 } } } mod further; }
use std::{fmt, io::{self, Read as In}, sync::*};
"""


class Scan(unittest.TestCase):
    def setUp(self) -> None:
        self.items = scan(SAMPLE, ("here",))

    def test_fields(self) -> None:
        found = {struct.name: (struct.module, struct.fields) for struct in self.items.structs}
        self.assertEqual(
            found,
            {
                "Plain": (("here",), 3),
                "Tuple": (("here",), 2),
                "Unit": (("here",), 0),
                "Deep": (("here", "inside"), 1),
            },
        )
        self.assertEqual([kind.name for kind in self.items.enums], ["Kind"])

    def test_methods_of_inherent_impls_alone(self) -> None:
        found = [(impl.path, impl.methods) for impl in self.items.impls]
        self.assertEqual(
            found,
            [
                (("Plain",), ("one", "two", "r#three")),
                (("crate", "other", "Tuple"), ("four",)),
                (("Kinds",), ("five",)),
                (("Wide",), ("six",)),
                (("Deep",), ("new",)),
            ],
        )

    def test_modules_and_uses(self) -> None:
        self.assertEqual(self.items.modules, [("here", "shown"), ("here", "inside", "further")])
        names = {(name, path) for _, name, path in self.items.uses}
        self.assertEqual(names, {("fmt", ("std", "fmt")), ("io", ("std", "io")), ("In", ("std", "io", "Read"))})

    def test_a_lifetime_is_no_character(self) -> None:
        self.assertEqual(tokens("<'a> 'a' '\\'' b'x' 'static"), ["<", "'a", ">", "'static"])


class Crate(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def test_methods_add_up_over_files_and_namesakes_stay_apart(self) -> None:
        root = self.write("lib.rs", "mod a; mod b; #[cfg(test)] mod tests; pub use a::State;")
        self.write("a.rs", "mod part; pub struct State { x: u8, y: u8 } impl State { fn one() {} }")
        self.write("a/part.rs", "use super::State; impl State { fn two() {} fn three() {} }")
        self.write("b/mod.rs", "mod part; struct State(u8); impl State { fn other() {} } impl crate::State { fn four() {} }")
        self.write("b/part.rs", "use super::*; impl State { fn another() {} }")
        self.write("tests.rs", "impl crate::a::State { fn in_tests() {} }")
        self.write("unused.rs", "impl State { fn unused() {} }")
        found = {size.name: (size.methods, size.fields, len(size.files)) for size in sizes_of("c", root)}
        self.assertEqual(found, {"c::a::State": (4, 2, 3), "c::b::State": (2, 1, 2)})

    def test_the_largest_types_are_shown(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(cli.call("sizes", "--top", "3"), 0)
        self.assertIn("by methods:", said.getvalue())
