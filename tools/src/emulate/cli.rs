//! The command line of `squall emulate`.

use std::fmt;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::join::{self, JoinArgs};
use crate::plan::TopologyTable;
use squall_base::{Rate, Span};
use squall_emulator::{
    Command, Relay, RelayConfig, Status, VirtualTimeConfig, ask, parse_rate, parse_share,
};
use squall_netsim::Picos;
use squall_netsim::model::NetworkArgs;
use squall_netsim::settings::Settings;
use squall_netsim::topology::Topology;

/// A network made of software that real endpoints attach to: FI_SQUALL_EMULATOR=SOCKET.
#[derive(Args, Debug)]
pub(crate) struct EmulateArgs {
    /// The emulator's socket. Default: squall-emulator.sock in the folder for temporary files.
    #[arg(long, short, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Command for the emulator.
    #[command(subcommand)]
    pub command: EmulateCommand,
}

impl EmulateArgs {
    fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| std::env::temp_dir().join("squall-emulator.sock"))
    }
}

/// Commands of `squall emulate`.
#[derive(Subcommand, Debug)]
pub(crate) enum EmulateCommand {
    /// Run an emulator until `squall emulate down` or an interrupt.
    Up(Box<UpArgs>),
    /// Run a job on an emulator that is up, beside others that are on it.
    Join(JoinArgs),
    /// End a running emulator.
    Down,
    /// Endpoints, counters of every queue, failures, and how far behind real time it is.
    Status {
        /// Output format of the status.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Take a link down in both directions. Links are named by their ends (leaf0-spine1, h3-leaf1) or
    /// by number.
    FailLink {
        /// Link, as its two ends or its number.
        link: String,
    },
    /// Bring a link up again, at its own rate, without errors.
    RestoreLink {
        /// Link, as its two ends or its number.
        link: String,
    },
    /// Give a link another rate, such as 40G (before scaling).
    SetRate {
        /// Link, as its two ends or its number.
        link: String,
        /// New rate of the link.
        #[arg(value_parser = rate)]
        rate: Rate,
    },
    /// Let a link swallow everything without routing's noticing.
    BlackHole {
        /// Link, as its two ends or its number.
        link: String,
    },
    /// Give a link bit errors: each bit is wrong with this probability.
    BitErrors {
        /// Link, as its two ends or its number.
        link: String,
        /// Probability that a bit is wrong, 0 to 1.
        probability: f64,
    },
    /// Let a link lose packets: each with this probability, such as 1%.
    Loss {
        /// Link, as its two ends or its number.
        link: String,
        /// Share of packets that the link loses.
        #[arg(value_parser = parse_share)]
        share: f64,
    },
    /// Take all links of a switch down.
    FailSwitch {
        /// Name of the switch.
        switch: String,
    },
    /// Bring all links of a switch up.
    RestoreSwitch {
        /// Name of the switch.
        switch: String,
    },
}

/// Output format of the status.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// A page of text for people.
    #[default]
    Text,
    /// A JSON document for programs.
    Json,
}

/// Options of an emulator that is started.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(crate) struct UpArgs {
    /// Topology: htsim's `.topo` or a graph; or fat-tree:HOSTS:OVERSUBSCRIPTION, leaf-spine:LEAVESxSPINESxHOSTS (hosts of a
    /// leaf), star:HOSTS, dumbbell:HOSTS, with keys as plans have them behind, `,key=value`; or one of a paper by its name: fat-320,
    /// dart-64, dart-1024.
    #[arg(long, value_name = "FILE|WORD", default_value = "leaf-spine:4x2x2")]
    pub topo: String,
    /// Parameters of the emulator.
    #[command(flatten)]
    pub emulator: EmulatorArgs,
    /// Print nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Parameters of an emulator, besides its topology.
#[derive(Args, Clone, Debug)]
pub(crate) struct EmulatorArgs {
    /// Rate of all links of a topology that a word names [default: 100G].
    #[arg(long, value_parser = rate)]
    pub rate: Option<Rate>,
    /// Latency of all links of such a topology, ns [default: 1000].
    #[arg(long, value_name = "NS")]
    pub latency: Option<u64>,
    /// Multiply all rates by this [default: 0.01, and 1 in virtual time].
    #[arg(long, value_name = "FACTOR")]
    pub rate_scale: Option<f64>,
    /// Multiply all latencies by this. Default: as much as rates are divided by, the same network in
    /// slow motion.
    #[arg(long, value_name = "FACTOR")]
    pub latency_scale: Option<f64>,
    /// Largest UDP payload of a packet, bytes.
    #[arg(long, default_value_t = 4096)]
    pub mtu: u32,
    /// Options of ports and switches.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Time that the hosts of this machine add to the round-trip time, us; told to endpoints [default: 200, and 0 in virtual
    /// time].
    #[arg(long, value_name = "US")]
    pub host_delay: Option<u64>,
    /// Seed of ECMP hashing and ECN marking.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn rate(text: &str) -> Result<Rate, squall_emulator::CommandError> {
    parse_rate(text)
}

impl EmulatorArgs {
    /// Builds the topology that the user named by a file or a word.
    pub(crate) fn topology(&self, topo: &str) -> Result<Topology, String> {
        let Some(word) = TopologyTable::from_word(topo) else { return self.read(topo) };
        let table = word.map_err(|error| error.to_string())?;
        for (option, given, key) in [
            ("--rate", self.rate.is_some(), "gbps"),
            ("--latency", self.latency.is_some(), "link_ns"),
        ] {
            if given && topo.contains(&format!("{key}=")) {
                return Err(format!(
                    "{option} and {key} of {topo} both set the same; give one of them"
                ));
            }
        }
        let built = table.build(Path::new(""));
        let mut topology = built.map_err(|error| format!("{topo}: {error}"))?;
        for link in &mut topology.links {
            link.rate = self.rate.unwrap_or(link.rate);
            link.latency = self.latency.map_or(link.latency, Picos::nanos);
        }
        Ok(topology)
    }

    fn read(&self, topo: &str) -> Result<Topology, String> {
        let file = Path::new(topo);
        if !file.exists() {
            return Err(TopologyTable::neither(topo).to_string());
        }
        if self.rate.is_some() || self.latency.is_some() {
            return Err(format!(
                "{topo}: the file sets the rates and latencies of links; leave --rate and --latency out"
            ));
        }
        let table = TopologyTable::File(file.to_owned());
        table.build(Path::new("")).map_err(|error| error.to_string())
    }

    /// Returns the settings of the emulator before scaling, under the names of the options.
    /// Settings of the network have the keys of a plan.
    pub(crate) fn settings(&self, topo: &str, in_virtual_time: bool) -> Settings {
        let mut settings = Settings::default();
        settings.set("emulator.topo", topo);
        let optional = [
            ("emulator.rate_gbps", self.rate.map(|rate| rate.0 as f64 / 1e9)),
            ("emulator.latency_ns", self.latency.map(|ns| ns as f64)),
        ];
        for (key, value) in optional.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            settings.set(key, value);
        }
        settings.set("emulator.rate_scale", self.rates(in_virtual_time));
        settings.set("emulator.latency_scale", self.times(in_virtual_time));
        settings.set("emulator.host_delay_us", self.host_delay_us(in_virtual_time));
        settings.set("transport.mtu", self.mtu);
        settings.set("seed", self.seed);
        settings.set_table("network", &self.network.options());
        settings.set("network.trimming", self.network.options().trims());
        settings
    }

    /// Returns the factor by which all rates of the network are multiplied.
    fn rates(&self, in_virtual_time: bool) -> f64 {
        self.rate_scale.unwrap_or(if in_virtual_time { 1.0 } else { 0.01 })
    }

    /// Returns the factor by which all latencies of the network are multiplied.
    fn times(&self, in_virtual_time: bool) -> f64 {
        self.latency_scale.unwrap_or(1.0 / self.rates(in_virtual_time))
    }

    fn host_delay_us(&self, in_virtual_time: bool) -> u64 {
        self.host_delay.unwrap_or(if in_virtual_time { 0 } else { 200 })
    }

    /// Returns the configuration of the emulator that the options describe, in virtual time by the rules of
    /// `virtual_time`.
    ///
    /// # Errors
    /// The topology is not valid.
    pub(crate) fn config(
        &self,
        topo: &str,
        socket: PathBuf,
        virtual_time: Option<VirtualTimeConfig>,
    ) -> Result<RelayConfig, String> {
        let in_virtual_time = virtual_time.is_some();
        Ok(RelayConfig {
            rate_scale: self.rates(in_virtual_time),
            latency_scale: self.times(in_virtual_time),
            mtu: self.mtu,
            network: self.network.options(),
            host_delay: Span::micros(self.host_delay_us(in_virtual_time)),
            virtual_time,
            seed: self.seed,
            ..RelayConfig::new(socket, self.topology(topo)?)
        })
    }
}

/// Lets this process open as many descriptors as it may. An emulator needs one for each endpoint, and the usual limit is 1024;
/// a larger one for every process would harm programs that use select(2), so a job must have been started before.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // An emulator that meets the limit names it in its error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Describes an emulator in one line.
pub(crate) fn about(relay: &Relay) -> String {
    let (topology, status) = (relay.topology(), relay.status());
    format!(
        "{} hosts, {} switches, {} links; hosts at {:.3} Gb/s, round trip {:.1} us; {}",
        topology.hosts,
        topology.switches.len(),
        topology.links.len(),
        status.host_rate as f64 / 1e9,
        status.base_rtt_ns as f64 / 1e3,
        status.network,
    )
}

/// Runs the command. Errors go to standard error; the exit status is 1 then.
#[must_use]
pub(crate) fn run(args: &EmulateArgs) -> ExitCode {
    let command = match &args.command {
        EmulateCommand::Up(up) => return finish(self::up(args, up)),
        EmulateCommand::Join(job) => return join::run(&args.socket(), job),
        EmulateCommand::Down => Command::Down,
        EmulateCommand::Status { .. } => Command::Status,
        EmulateCommand::FailLink { link } => Command::FailLink(link.clone()),
        EmulateCommand::RestoreLink { link } => Command::RestoreLink(link.clone()),
        EmulateCommand::SetRate { link, rate } => Command::SetRate(link.clone(), *rate),
        EmulateCommand::BlackHole { link } => Command::BlackHole(link.clone()),
        EmulateCommand::BitErrors { link, probability } => {
            Command::BitErrors(link.clone(), *probability)
        }
        EmulateCommand::Loss { link, share } => Command::Loss(link.clone(), *share),
        EmulateCommand::FailSwitch { switch } => Command::FailSwitch(switch.clone()),
        EmulateCommand::RestoreSwitch { switch } => Command::RestoreSwitch(switch.clone()),
    };
    let answer = ask(&args.socket(), &command).map_err(|e| e.to_string());
    finish(answer.and_then(|answer| match &args.command {
        EmulateCommand::Status { format: Format::Text } => {
            let status: Status = serde_json::from_str(&answer).map_err(|e| e.to_string())?;
            print(format_args!("{status}"))
        }
        _ => print(format_args!("{answer}\n")),
    }))
}

/// Prints a line of `squall emulate` to standard error.
pub(super) fn print_line(line: fmt::Arguments<'_>) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "squall emulate: {line}");
}

fn finish(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            print_line(format_args!("{text}"));
            ExitCode::FAILURE
        }
    }
}

fn print(text: fmt::Arguments<'_>) -> Result<(), String> {
    let mut out = std::io::stdout();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        // The reader has closed the pipe; the command goes on.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|e| e.to_string()),
    }
}

fn up(args: &EmulateArgs, up: &UpArgs) -> Result<(), String> {
    let config = up.emulator.config(&up.topo, args.socket(), None)?;
    let mut relay = Relay::open(config).map_err(|e| e.to_string())?;
    raise_descriptor_limit();
    let (stop, interrupt) = UnixStream::pair().map_err(|e| e.to_string())?;
    ctrlc::set_handler(move || {
        // If the pipe is full, a byte is already there.
        let _ = (&interrupt).write(b".");
    })
    .map_err(|e| e.to_string())?;
    if !up.quiet {
        let about = about(&relay);
        print(format_args!("emulator at {}: {about}\n", args.socket().display()))?;
    }
    let mut say = |line: fmt::Arguments<'_>| {
        if !up.quiet {
            // The process that started the emulator may be gone.
            let _ = print(format_args!("{line}\n"));
        }
    };
    relay.run(&stop, &mut say).map_err(|e| e.to_string())?;
    if !up.quiet {
        print(format_args!("{}", relay.status()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_descriptors_becomes_the_largest() {
        let limit = getrlimit(Resource::Nofile);
        let low =
            Rlimit { current: limit.maximum.map(|most| most.min(256)).or(Some(256)), ..limit };
        setrlimit(Resource::Nofile, low).expect("a lower limit is allowed");
        raise_descriptor_limit();
        let raised = getrlimit(Resource::Nofile);
        assert_eq!((raised.current, raised.maximum), (limit.maximum, limit.maximum));
    }
}
