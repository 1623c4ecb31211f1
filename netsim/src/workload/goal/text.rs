//! Parser of schedules. The text is a sequence of words; line breaks have no meaning, but errors
//! name the line.

use std::collections::HashMap;

use crate::workload::schedule::{Kind, MOST_OPERATIONS, Operation, Wait};

/// Error at a line: the line, and what was found and expected there.
pub(super) type Fault = (usize, String);

/// A schedule as it was parsed.
pub(super) struct ParsedSchedule {
    pub(super) ranks: u32,
    pub(super) operations: Vec<Operation>,
    pub(super) waits: Vec<Wait>,
}

/// A word or a sign of a schedule, and its line.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    line: usize,
    text: &'a str,
}

pub(super) fn parse(text: &str) -> Result<ParsedSchedule, Fault> {
    let mut words = Words { rest: text, line: 1 };
    let head = words.needed("`num_ranks N`")?;
    if head.text != "num_ranks" {
        return Err((
            head.line,
            format!("`{}`, expected `num_ranks N`: a schedule in GOAL", head.text),
        ));
    }
    let ranks: u32 = words.number("a number of ranks")?;
    let mut parser = Parser { words, ranks, operations: Vec::new(), waits: Vec::new() };
    let mut first_lines: HashMap<u32, usize> = HashMap::new();
    while let Some(word) = parser.words.next()? {
        if word.text != "rank" {
            return Err((word.line, format!("`{}`, expected `rank R {{`", word.text)));
        }
        let rank = parser.rank("of a schedule")?;
        if let Some(first) = first_lines.insert(rank, word.line) {
            return Err((
                word.line,
                format!("rank {rank} appears twice, first in line {first}; keep one"),
            ));
        }
        parser.words.sign("{")?;
        parser.block(rank)?;
    }
    let Parser { operations, waits, .. } = parser;
    Ok(ParsedSchedule { ranks, operations, waits })
}

/// Reader of the words of a schedule.
#[derive(Clone, Copy)]
struct Words<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Words<'a> {
    /// Skips `bytes` bytes and returns them.
    fn skip(&mut self, bytes: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(bytes);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
        skipped
    }

    fn next(&mut self) -> Result<Option<Word<'a>>, Fault> {
        loop {
            self.skip(self.rest.len() - self.rest.trim_start().len());
            let line = self.line;
            if self.rest.starts_with("//") {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                let end = self.rest.find("*/");
                self.skip(end.ok_or_else(|| (line, "comment `/*` without `*/`".to_owned()))? + 2);
            } else {
                let length = self.length();
                return Ok((length > 0).then(|| Word { line, text: self.skip(length) }));
            }
        }
    }

    /// Returns the length of the next word: letters or digits, or a single sign.
    fn length(&self) -> usize {
        let of =
            |part: fn(char) -> bool| self.rest.find(|c: char| !part(c)).unwrap_or(self.rest.len());
        match self.rest.chars().next() {
            None => 0,
            // Digits end at a letter, so `8b` is two words.
            Some(first) if first.is_ascii_digit() => of(|c| c.is_ascii_digit()),
            Some(first) if first.is_ascii_alphabetic() => {
                of(|c| c.is_ascii_alphanumeric() || c == '_')
            }
            Some('-') => {
                1 + self.rest[1..]
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(self.rest.len() - 1)
            }
            Some(other) => other.len_utf8(),
        }
    }

    /// Returns the next word, or an error if the text ends.
    fn needed(&mut self, expected: &str) -> Result<Word<'a>, Fault> {
        let word = self.next()?;
        word.ok_or_else(|| (self.line, format!("the end of the file, expected {expected}")))
    }

    fn number<N: std::str::FromStr>(&mut self, expected: &str) -> Result<N, Fault> {
        let word = self.needed(expected)?;
        let number = word.text.parse().ok().filter(|_| word.text != "-");
        number.ok_or_else(|| (word.line, format!("`{}`, expected {expected}", word.text)))
    }

    fn sign(&mut self, expected: &str) -> Result<(), Fault> {
        let word = self.needed(&format!("`{expected}`"))?;
        if word.text == expected {
            return Ok(());
        }
        Err((word.line, format!("`{}`, expected `{expected}`", word.text)))
    }

    /// Skips the next word if it is `wanted`, and returns whether it was.
    fn take(&mut self, wanted: &str) -> Result<bool, Fault> {
        let mut ahead = *self;
        let matches = ahead.next()?.is_some_and(|word| word.text == wanted);
        if matches {
            *self = ahead;
        }
        Ok(matches)
    }
}

/// A dependency whose label is not resolved yet: operation `of` waits for the one that is called
/// `label`.
struct NamedWait<'a> {
    of: Word<'a>,
    label: Word<'a>,
    started: bool,
}

struct Parser<'a> {
    words: Words<'a>,
    ranks: u32,
    operations: Vec<Operation>,
    waits: Vec<Wait>,
}

impl<'a> Parser<'a> {
    fn rank(&mut self, what: &str) -> Result<u32, Fault> {
        let line = self.words.line;
        let rank: u32 = self.words.number("a rank")?;
        if rank < self.ranks {
            return Ok(rank);
        }
        let ranks = self.ranks;
        Err((
            line,
            format!(
                "rank {rank} {what}, expected 0 to {}: there are {ranks}",
                ranks.saturating_sub(1)
            ),
        ))
    }

    /// Parses the operations of a rank, up to the closing bracket.
    fn block(&mut self, rank: u32) -> Result<(), Fault> {
        let mut labels: HashMap<&str, u32> = HashMap::new();
        let mut waits = Vec::new();
        loop {
            let word = self.words.needed("an operation or `}`")?;
            match word.text {
                "}" => break,
                "send" | "recv" | "calc" => self.operation(rank, word)?,
                label if label.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                    let next = self.words.needed("`:`, `requires` or `irequires`")?;
                    match next.text {
                        ":" => {
                            let place = self.operations.len() as u32;
                            if let Some(first) = labels.insert(label, place) {
                                let first = self.operations[first as usize].place;
                                let what = format!(
                                    "label {label} appears twice, first in line {first}; labels of a \
                                     rank must differ"
                                );
                                return Err((word.line, what));
                            }
                            let what = self.words.needed("`send`, `recv` or `calc`")?;
                            self.operation(rank, what)?;
                        }
                        "requires" | "irequires" => {
                            let label = self.words.needed("a label")?;
                            let started = next.text == "irequires";
                            waits.push(NamedWait { of: word, label, started });
                        }
                        other => {
                            let what =
                                format!("`{other}`, expected `:`, `requires` or `irequires`");
                            return Err((next.line, what));
                        }
                    }
                }
                other => {
                    let what =
                        format!("`{other}`, expected a label, `send`, `recv`, `calc` or `}}`");
                    return Err((word.line, what));
                }
            }
        }
        for NamedWait { of, label, started } in waits {
            let place = |word: Word<'_>| {
                let place = labels.get(word.text).copied();
                place.ok_or_else(|| {
                    (word.line, format!("`{}`, expected a label of rank {rank}", word.text))
                })
            };
            let (of, before) = (place(of)?, place(label)?);
            self.waits.push(Wait { of, before, started });
        }
        Ok(())
    }

    fn operation(&mut self, rank: u32, word: Word<'a>) -> Result<(), Fault> {
        let kind = match word.text {
            "send" => self.send()?,
            "recv" => self.receive()?,
            "calc" => {
                let ns = self.words.number("nanoseconds")?;
                Kind::Calc { ns, cpu: self.processor()? }
            }
            other => {
                return Err((word.line, format!("`{other}`, expected `send`, `recv` or `calc`")));
            }
        };
        if self.operations.len() == MOST_OPERATIONS {
            let what = format!("more than {MOST_OPERATIONS} operations, the most possible");
            return Err((word.line, what));
        }
        // A file of more lines than 2^32 would be larger than any memory.
        self.operations.push(Operation { rank, place: word.line as u32, kind });
        Ok(())
    }

    fn send(&mut self) -> Result<Kind, Fault> {
        let bytes = self.words.number("bytes")?;
        self.words.sign("b")?;
        self.words.sign("to")?;
        let to = self.rank("to send to")?;
        let tag = if self.words.take("tag")? { self.words.number("a tag")? } else { 0 };
        self.processor()?;
        Ok(Kind::Send { to, bytes, tag })
    }

    fn receive(&mut self) -> Result<Kind, Fault> {
        // The length of the message counts, not that of its receive.
        let _: u64 = self.words.number("bytes")?;
        self.words.sign("b")?;
        self.words.sign("from")?;
        let any = self.words.take("-1")?;
        let from = if any { None } else { Some(self.rank("to receive from")?) };
        let tag = if !self.words.take("tag")? {
            Some(0)
        } else if self.words.take("-1")? {
            None
        } else {
            Some(self.words.number("a tag, or -1 for any")?)
        };
        self.processor()?;
        Ok(Kind::Receive { from, tag })
    }

    /// Parses the optional processor and network card of an operation.
    fn processor(&mut self) -> Result<u32, Fault> {
        let cpu = if self.words.take("cpu")? { self.words.number("a processor")? } else { 0 };
        if self.words.take("nic")? {
            let _: u32 = self.words.number("a network card")?;
        }
        Ok(cpu)
    }
}
