//! Changes to a network in the course of a job: commands with the times at which to apply them.
//!
//! ```text
//! # a time, and a command as `squall emulate` takes it
//! 0s      set-rate leaf0-spine0 25G
//! 200ms   black-hole leaf1-spine1
//! 1.5s    loss leaf0-spine1 1%
//! 2s      restore-link leaf1-spine1
//! ```
//!
//! Times count from the first packet that enters the network, because it is not known before when
//! the ranks of a job have started. Events at time 0 are applied before the first packet.

use std::path::Path;

use super::Command;
use squall_base::Span;
use squall_base::quantity::parse_span;
use squall_netsim::Picos;
use squall_netsim::formats::{FormatError, read_text};
use squall_netsim::model::FailureEvent;
use squall_netsim::topology::Topology;

/// Commands that change the network, in the order of their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Commands with their times after the first packet, in ascending order.
    events: Vec<(Span, Command)>,
}

/// Latest time that an event of a timeline may have: a day after the first packet.
const LATEST: Span = Span::secs(86_400);

impl Timeline {
    /// Reads a timeline from a file. Links and switches that it names must exist in `topology`.
    ///
    /// # Errors
    /// The first line that is invalid, and what was expected there.
    pub fn read(path: &Path, topology: &Topology) -> Result<Self, FormatError> {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|error| FormatError {
            file: file.clone(),
            line: 0,
            what: format!("cannot be read: {error}"),
        })?;
        Self::parse(&file, &text, topology)
    }

    /// Parses the text of `file`; the name appears in errors only.
    ///
    /// # Errors
    /// See [`Timeline::read`].
    pub fn parse(file: &str, text: &str, topology: &Topology) -> Result<Self, FormatError> {
        let mut events = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let event = event(line, topology).map_err(|what| FormatError {
                file: file.to_owned(),
                line: index + 1,
                what,
            })?;
            events.push(event);
        }
        // The sort is stable: events at one time keep their order.
        events.sort_by_key(|(at, _)| *at);
        Ok(Self { events })
    }

    /// Appends a command that was applied at `at`.
    pub fn add(&mut self, at: Span, command: Command) {
        self.events.push((at, command));
    }

    /// Returns all commands with their times.
    #[must_use]
    pub fn events(&self) -> &[(Span, Command)] {
        &self.events
    }

    /// Returns the text of a file that [`Timeline::read`] reads back.
    #[must_use]
    pub fn text(&self) -> String {
        self.events.iter().map(|(at, command)| format!("{}ns {command}\n", at.0)).collect()
    }

    /// Returns the commands as failures for a simulation that begins with the first packet.
    #[must_use]
    pub fn failures(&self, topology: &Topology) -> Vec<FailureEvent> {
        let events = self.events.iter().flat_map(|(at, command)| {
            // Names were checked when the file was read.
            let failures = command.failures(topology, 1.0).unwrap_or_default();
            failures.into_iter().map(|what| FailureEvent { at: Picos::from_span(*at), what })
        });
        events.collect()
    }
}

fn event(line: &str, topology: &Topology) -> Result<(Span, Command), String> {
    let (time, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let at = parse_span(time)
        .filter(|at| *at <= LATEST)
        .ok_or_else(|| format!("'{time}' where a time such as 0s, 200ms or 1.5s was expected"))?;
    let command: Command = rest.trim().parse().map_err(|error: super::CommandError| error.0)?;
    if command.target().is_none() {
        return Err(format!(
            "'{command}' is not an event of a link or switch; expected one such as fail-link LINK"
        ));
    }
    command.failures(topology, 1.0).map_err(|error| error.0)?;
    Ok((at, command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rate;
    use squall_netsim::model::Failure;

    fn parse(text: &str) -> Result<Timeline, String> {
        let rate = Rate::gbps(1);
        let topology = Topology::leaf_spine(2, 2, 1, rate, rate, Picos::ZERO, Picos::ZERO);
        Timeline::parse("t", text, &topology).map_err(|error| error.to_string())
    }

    #[test]
    fn events_come_in_the_order_of_their_times() {
        let text = "# nothing\n1.5s restore-link 2 # again\n0s\tloss leaf0-spine1 1%\n\n200ms fail-link 2\n200ms black-hole 3";
        let timeline = parse(text).expect("sound");
        let lines: Vec<String> =
            timeline.events().iter().map(|(at, command)| format!("{} {command}", at.0)).collect();
        let expected = [
            "0 loss leaf0-spine1 0.01",
            "200000000 fail-link 2",
            "200000000 black-hole 3",
            "1500000000 restore-link 2",
        ];
        assert_eq!(lines, expected);
        assert_eq!(parse(&timeline.text()), Ok(timeline.clone()));
        let rate = Rate::gbps(1);
        let topology = Topology::leaf_spine(2, 2, 1, rate, rate, Picos::ZERO, Picos::ZERO);
        let failures = timeline.failures(&topology);
        // A link that is restored has its own rate again, too.
        assert_eq!(failures.len(), 5);
        let second = FailureEvent { at: Picos::micros(200_000), what: Failure::LinkDown(2) };
        assert_eq!(failures[1], second);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, says) in [
            ("fail-link 2", "t:1: 'fail-link' where a time"),
            ("\n200 fail-link 2", "t:2: '200' where a time"),
            ("-1s fail-link 2", "where a time"),
            ("1s", "t:1: '' is not one of: status"),
            ("1s explode", "fail-link LINK"),
            ("1s fail-link leaf0-spine7", "t:1: no link 'leaf0-spine7'; there are: h0-leaf0"),
            ("1s fail-switch spine9", "no switch 'spine9'"),
            ("1s down", "'down' is not an event"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
