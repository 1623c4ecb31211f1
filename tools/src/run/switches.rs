//! Options of `squall run` and `squall env` for everyday use, which stand for variables of the
//! provider.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use squall_cc::{PathsConfig, SenderConfig};
use squall_net::FaultSpec;
use squall_net::rails::MAX_RAILS;

/// Options for everyday use. Each stands for an environment variable of the provider, which its
/// help names.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The transport")]
pub(crate) struct Switches {
    /// Interfaces, best first: names, addresses or CIDRs; `^` excludes (FI_SQUALL_IFACE).
    #[arg(long, value_name = "LIST")]
    iface: Option<String>,
    /// Number of network cards that a rank uses together, or all (FI_SQUALL_RAILS).
    #[arg(long, value_name = "N")]
    rails: Option<String>,
    /// Congestion control: NAME or NAME:key=value,.. (FI_SQUALL_CC).
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Path selection: NAME or NAME:key=value,.. (FI_SQUALL_LB).
    #[arg(long, value_name = "NAME")]
    lb: Option<String>,
    /// Number of paths, 1 to 256 (FI_SQUALL_PATHS).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    paths: Option<u16>,
    /// UDP port, or a range that a firewall admits, such as 47930-47993 (FI_SQUALL_PORT).
    #[arg(long, value_name = "PORTS")]
    port: Option<String>,
    /// File with the key of the job, which only its owner can read; at the same path on every host (FI_SQUALL_KEY_FILE).
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Faults of the network, for tests: loss=1%,reorder=2%,.. (FI_SQUALL_FAULT).
    #[arg(long, value_name = "LIST")]
    faults: Option<String>,
    /// Send messages between ranks of one host by packets, not through shared memory (FI_SQUALL_SHM=no).
    #[arg(long)]
    no_shm: bool,
}

impl Switches {
    /// Returns the environment variables that the options stand for.
    ///
    /// # Errors
    /// A value is not valid.
    pub(super) fn variables(&self) -> Result<Vec<(&'static str, String)>, String> {
        if let Some(cc) = &self.cc {
            check_name("--cc", cc, SenderConfig::NAMES)?;
        }
        if let Some(lb) = &self.lb {
            check_name("--lb", lb, PathsConfig::NAMES)?;
        }
        if let Some(port) = &self.port {
            check_ports(port)?;
        }
        if let Some(rails) = &self.rails {
            check_rails(rails)?;
        }
        if let Some(faults) = &self.faults {
            let parsed = faults.parse::<FaultSpec>();
            parsed.map_err(|error| format!("--faults {faults}: {error}"))?;
        }
        let key = self.key.as_deref().map(absolute_key).transpose()?;
        let set = [
            ("FI_SQUALL_IFACE", self.iface.clone()),
            ("FI_SQUALL_RAILS", self.rails.clone()),
            ("FI_SQUALL_CC", self.cc.clone()),
            ("FI_SQUALL_LB", self.lb.clone()),
            ("FI_SQUALL_PATHS", self.paths.map(|paths| paths.to_string())),
            ("FI_SQUALL_PORT", self.port.clone()),
            ("FI_SQUALL_KEY_FILE", key),
            ("FI_SQUALL_FAULT", self.faults.clone()),
            ("FI_SQUALL_SHM", self.no_shm.then(|| "no".to_owned())),
        ];
        Ok(set.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

/// Checks the name before the parameters of an algorithm. The provider checks the parameters, which
/// depend on the network.
fn check_name(option: &str, value: &str, names: &[(&str, &str)]) -> Result<(), String> {
    let name = value.split(':').next().unwrap_or(value);
    if names.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    Err(format!("{option} {name}: there is no such algorithm; known are {}", names.join(", ")))
}

/// Checks the value of `--port`: a port, a range FIRST-LAST, or 0. The provider accepts the same
/// values for FI_SQUALL_PORT (`OwnPorts` in `provider/host/param/kinds.rs`). For any other value, it
/// would log a warning and choose a port itself, which a firewall may not let in.
///
/// # Errors
/// The value is not valid.
fn check_ports(value: &str) -> Result<(), String> {
    let port = |text: &str| text.trim().parse::<u16>().ok();
    let range = value.split_once('-').and_then(|(first, last)| Some((port(first)?, port(last)?)));
    if port(value).is_some() || range.is_some_and(|(first, last)| 0 < first && first <= last) {
        return Ok(());
    }
    Err(format!(
        "--port {value}: not a port; give one, such as 4793, a range, such as 47930-47993, \
         or 0 for any"
    ))
}

/// Checks the value of `--rails`, for the same reason as that of `--port`.
///
/// # Errors
/// The value is neither a possible number of cards nor `all`.
fn check_rails(value: &str) -> Result<(), String> {
    let number = value.parse::<usize>().is_ok_and(|cards| (1..=MAX_RAILS).contains(&cards));
    if number || value.eq_ignore_ascii_case("all") {
        return Ok(());
    }
    Err(format!("--rails {value}: not a number of cards; give one from 1 to {MAX_RAILS}, or all"))
}

/// Returns the absolute path of a key file. Ranks may have other working directories.
///
/// # Errors
/// The file cannot be read, or other users can read or write it.
fn absolute_key(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let about = fs::metadata(file).map_err(|error| {
        format!("--key {shown}: {error}; (umask 077; head -c 32 /dev/urandom | base64 > {shown}) makes one")
    })?;
    if about.permissions().mode() & 0o077 != 0 {
        return Err(format!("--key {shown}: other users can read or write it; chmod 600 {shown}"));
    }
    let path = file.canonicalize().map_err(|error| format!("--key {shown}: {error}"))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_for_variables() {
        let switches = Switches {
            cc: Some("swift:target_us=50".into()),
            paths: Some(16),
            faults: Some("loss=1%".into()),
            no_shm: true,
            ..Switches::default()
        };
        let names: Vec<_> = switches.variables().expect("valid");
        assert_eq!(
            names,
            [
                ("FI_SQUALL_CC", "swift:target_us=50".to_owned()),
                ("FI_SQUALL_PATHS", "16".to_owned()),
                ("FI_SQUALL_FAULT", "loss=1%".to_owned()),
                ("FI_SQUALL_SHM", "no".to_owned()),
            ]
        );
    }

    #[test]
    fn ports_are_those_that_the_provider_accepts() {
        for good in ["0", "4793", "65535", "1-65535", "5000-5063", "7-7", " 5000 - 5063 "] {
            let switches = Switches { port: Some(good.into()), ..Switches::default() };
            assert_eq!(switches.variables(), Ok(vec![("FI_SQUALL_PORT", good.to_owned())]));
        }
    }

    #[test]
    fn bad_values_are_refused_before_a_job_starts() {
        let of = |switches: Switches| switches.variables().expect_err("invalid");
        let default = Switches::default;
        let cc = of(Switches { cc: Some("nsc".into()), ..default() });
        assert!(cc.starts_with("--cc nsc: there is no such algorithm; known are nscc"), "{cc}");
        for bad in ["0", "9", "two", ""] {
            let rails = of(Switches { rails: Some(bad.into()), ..default() });
            assert_eq!(
                rails,
                format!("--rails {bad}: not a number of cards; give one from 1 to 8, or all")
            );
        }
        for good in ["1", "8", "all"] {
            assert!(Switches { rails: Some(good.into()), ..default() }.variables().is_ok());
        }
        let faults = of(Switches { faults: Some("loss=200%".into()), ..default() });
        assert!(faults.starts_with("--faults loss=200%: "), "{faults}");
        for bad in ["", "65536", "9-8", "0-1", "1-65536", "a", "1-", "-1", "1,2"] {
            let port = of(Switches { port: Some(bad.into()), ..default() });
            let why =
                "not a port; give one, such as 4793, a range, such as 47930-47993, or 0 for any";
            assert_eq!(port, format!("--port {bad}: {why}"));
        }
        let key = of(Switches { key: Some("/no/such/key".into()), ..default() });
        assert!(key.contains("umask 077"), "{key}");
        let file = std::env::temp_dir().join(format!("squall-open-key-{}", std::process::id()));
        fs::write(&file, "0123456789abcdef").expect("room");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
        let key = of(Switches { key: Some(file.clone()), ..default() });
        fs::remove_file(&file).expect("ours");
        assert!(key.contains("other users can read or write it; chmod 600"), "{key}");
    }
}
