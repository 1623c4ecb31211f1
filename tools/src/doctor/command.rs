//! The command line of `squall doctor`.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use squall_net::iface::{self, Iface};

use super::environment::variable;
use super::finding::{Finding, Level};
use super::interface::{self, Selection};
use super::probe::Choice;
use super::{encryption, firewall, host, launchers, library, peers, probe};

/// Say why jobs do not start, do not reach each other, or will be slow.
///
/// Looks at what a job started from here would have: variables, libfabric, the rank of each interface, kernel, firewall,
/// MPIs. With PEERs it looks up the routes to them and sends them packets, which they answer if `squall doctor --answer`
/// runs there. Exit status: 0 without a fault, 1 with one, 2 for a wrong command line.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Other hosts of the job: HOST or HOST:PORT.
    #[arg(value_name = "PEER")]
    peers: Vec<String>,
    /// Answer the questions of `squall doctor` on other hosts, until interrupted.
    #[arg(long, conflicts_with = "peers")]
    answer: bool,
    /// UDP port on which to answer with --answer.
    #[arg(long, value_name = "PORT", default_value_t = peers::PORT, requires = "answer")]
    port: u16,
}

impl DoctorArgs {
    /// Returns whether the command runs until it is interrupted.
    #[must_use]
    pub(crate) const fn answers(&self) -> bool {
        self.answer
    }
}

/// Writes a section of the output: a heading, the lines of a table, and the findings below it.
pub(super) fn write_section(
    out: &mut impl io::Write,
    title: &str,
    table: &[String],
    findings: &[Finding],
) -> io::Result<()> {
    writeln!(out, "{title}")?;
    table.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    findings.iter().try_for_each(|finding| writeln!(out, "  {finding}"))
}

/// Runs the command. Returns true if there is no fault.
///
/// # Errors
/// Standard output or a socket cannot be used.
pub(crate) fn run(args: &DoctorArgs, stop: &Arc<AtomicBool>) -> io::Result<bool> {
    let Selection { chosen, table, findings: interfaces } = interface::choose(
        &variable("FI_SQUALL_IFACE").unwrap_or_default(),
        &variable("FI_SQUALL_RAILS").unwrap_or_default(),
    );
    if args.answer {
        return match &chosen {
            Some(chosen) => answer(chosen, args.port, stop),
            None => {
                write_section(&mut io::stdout(), "interface", &table, &interfaces).map(|()| false)
            }
        };
    }
    let mut all = Vec::new();
    let mut show_table = |title: &str, table: &[String], findings: Vec<Finding>| {
        write_section(&mut io::stdout(), title, table, &findings)?;
        all.extend(findings);
        Ok::<(), io::Error>(())
    };
    show_table("library", &[], library::check())?;
    show_table("interface", &table, interfaces)?;
    let mut show = |title: &str, findings| show_table(title, &[], findings);
    if let Some(chosen) = &chosen {
        look_around(chosen, &args.peers, &mut show)?;
    }
    show("firewall", vec![firewall::lines(variable("FI_SQUALL_PORT").as_deref())])?;
    show("launchers", launchers::check())?;
    let (key_file, tss) = (variable("FI_SQUALL_KEY_FILE"), variable("FI_SQUALL_TSS"));
    if let Some(finding) = encryption::judge(key_file.as_deref(), tss.as_deref()) {
        show("encryption", vec![finding])?;
    }
    let count = |level| all.iter().filter(|finding| finding.level == level).count();
    let (faults, notes) = (count(Level::Fault), count(Level::Note));
    writeln!(io::stdout(), "{}", summarize(faults, notes))?;
    Ok(faults == 0)
}

/// Returns the last line of the output, which counts faults and notes.
pub(super) fn summarize(faults: usize, notes: usize) -> String {
    let count = |number: usize, noun: &str| match number {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    };
    let consequence = match faults {
        0 => "jobs can start",
        _ => {
            "jobs will fail or be slow; follow the lines after -> at each FAULT, and run this again"
        }
    };
    format!("{}, {}: {consequence}", count(faults, "fault"), count(notes, "note"))
}

/// Checks the kernel features that an endpoint on the chosen interface gets, and the peers that it
/// reaches.
fn look_around(
    chosen: &Iface,
    peers: &[String],
    show: &mut impl FnMut(&str, Vec<Finding>) -> io::Result<()>,
) -> io::Result<()> {
    let (mut port, report) = match host::port(chosen) {
        Ok(opened) => opened,
        Err(error) => {
            let what = format!("no endpoint can open at {chosen}: {error}");
            let cure = "choose another interface: export FI_SQUALL_IFACE=NAME";
            return show("kernel", vec![Finding::fault(what, cure)]);
        }
    };
    show("kernel", host::judge(&report, chosen))?;
    let all = iface::list()?;
    for text in peers {
        let findings = match peers::resolve(text, chosen.addr.is_ipv6()) {
            Err(finding) => vec![finding],
            Ok(peer) => {
                let mut findings = vec![peers::route(peer, chosen, &all)];
                findings.extend(peers::reach(&mut port, peer, chosen, &all));
                findings
            }
        };
        show(&format!("peer {text}"), findings)?;
    }
    Ok(())
}

/// Answers the questions of `squall doctor` on other hosts, at every address of this host, until
/// interrupted. The answer names the address at which endpoints will be.
fn answer(chosen: &Iface, port: u16, stop: &AtomicBool) -> io::Result<bool> {
    let every = match chosen.addr {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let (mut opened, report) =
        host::open(SocketAddr::new(every, port), chosen.index).map_err(|error| {
            let why = format!(
                "cannot answer at UDP port {port}: {error}; choose another by --port, and ask HOST:PORT"
            );
            io::Error::new(error.kind(), why)
        })?;
    let port = report.local.port();
    writeln!(io::stdout(), "answering at UDP port {port}; endpoints will be on {chosen}")?;
    let choice = Choice::of(chosen);
    let answered = probe::answer(&mut opened, &choice, || stop.load(Ordering::Relaxed));
    writeln!(io::stdout(), "{answered} answered")?;
    Ok(true)
}
