//! Provenance of a result: enough to reproduce it, and to distinguish it from others.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Program that made a result, and time at which it did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// Version of squall that made the result.
    pub version: String,
    /// Commit from which the program was built, with `-dirty` appended if files differed. The build
    /// takes it from `SQUALL_COMMIT`, and the program otherwise from `SQUALL_BUILT_FROM`, which
    /// `ci/run` sets for what it has just built; empty without either.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// Time at which the program began: RFC 3339, UTC, to the second.
    pub date: String,
    /// Command line of the program as it was given, with words quoted for a shell.
    pub command: String,
}

impl Origin {
    /// Returns the origin of the results that this process makes: program, time and command line.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "results bear the date of the wall, and who built knows from what"
    )]
    pub fn of_this_process(commit: Option<&str>) -> Self {
        let built_from = std::env::var("SQUALL_BUILT_FROM").ok();
        let now = jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default();
        let words: Vec<String> =
            std::env::args_os().map(|word| quoted(&word.to_string_lossy())).collect();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map_or_else(|| built_from.unwrap_or_default(), str::to_owned),
            date: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command: words.join(" "),
        }
    }

    /// Returns the program's name with version and commit: `squall 0.1.0 (083a5ec1a9b2)`.
    #[must_use]
    pub fn program(&self) -> String {
        match self.commit.as_str() {
            "" => format!("squall {}", self.version),
            commit => format!("squall {} ({commit})", self.version),
        }
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%^".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Provenance of a result. In JSON: `{"version": .., "commit": .., "date": .., "command": ..,
/// "settings": {KEY: VALUE}, "derived": {KEY: VALUE}}`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// Program that made the result, and time at which it did.
    #[serde(flatten)]
    pub origin: Origin,
    /// Settings of the run, by the keys of a plan: those that were given, and the defaults of the
    /// others.
    #[serde(default)]
    pub settings: Settings,
    /// Values derived from the settings: bytes of queues, parameters of the algorithms.
    #[serde(default)]
    pub derived: Settings,
}

impl Provenance {
    /// Returns the settings and derived values that are equal in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let same = |a: &Settings, b: &Settings| {
            let mut same = Settings::default();
            let equal = a.iter().filter(|(key, value)| b.get(key) == Some(value));
            equal.for_each(|(key, value)| same.set(key, value));
            same
        };
        let word = |a: &String, b: &String| if a == b { a.clone() } else { String::new() };
        let (a, b) = (&self.origin, &other.origin);
        Self {
            origin: Origin {
                version: word(&a.version, &b.version),
                commit: word(&a.commit, &b.commit),
                date: word(&a.date, &b.date),
                command: word(&a.command, &b.command),
            },
            settings: same(&self.settings, &other.settings),
            derived: same(&self.derived, &other.derived),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_given_to_a_shell_again() {
        for (word, expected) in [
            ("incast:32x2MiB", "incast:32x2MiB"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's $HOME", r"'it'\''s $HOME'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
        let origin = Origin::of_this_process(Some("083a5ec"));
        assert!(origin.program().ends_with("(083a5ec)") && !origin.command.is_empty());
        let date: jiff::Timestamp = origin.date.parse().expect("a date");
        assert!(date.as_second() > 1_700_000_000 && origin.date.len() == 20, "{}", origin.date);
    }

    #[test]
    fn what_runs_share_is_what_all_of_them_say() {
        let of = |cc: &str, more: Option<&str>| {
            let origin = Origin { version: "1".into(), date: cc.into(), ..Origin::default() };
            let mut made = Provenance { origin, ..Provenance::default() };
            made.settings.set("seed", 1);
            made.settings.set("transport.cc", cc);
            more.into_iter().for_each(|key| made.derived.set(key, 3));
            made
        };
        let common = of("nscc", Some("cc.alpha")).common(&of("swift", None));
        assert_eq!(common.settings.iter().collect::<Vec<_>>(), [("seed", "1")]);
        assert_eq!(common.derived.iter().count(), 0);
        assert_eq!((common.origin.version.as_str(), common.origin.date.as_str()), ("1", ""));
        let json = serde_json::to_value(of("nscc", None)).expect("JSON");
        assert_eq!(json["settings"]["transport.cc"], "nscc");
        assert!(json.get("commit").is_none() && json["version"] == "1", "{json}");
        assert_eq!(serde_json::from_value::<Provenance>(json).expect("read"), of("nscc", None));
    }
}
