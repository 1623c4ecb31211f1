//! The command line of `squall doctor`.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use squall_net::iface::{self, Iface};

use super::environment::variable;
use super::finding::{Finding, Level};
use super::probe::Choice;
use super::{firewall, host, interface, launchers, library, peers, probe};

/// Say why jobs do not start, do not reach each other, or will be slow.
///
/// Looks at what a job started from here would have: variables, libfabric, interface, kernel, firewall, MPIs. With PEERs
/// it sends packets to them, and they answer if `squall doctor --answer` runs there. Exit status 1 where there is a fault.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Other hosts of the job: HOST or HOST:PORT.
    #[arg(value_name = "PEER")]
    peers: Vec<String>,
    /// Answer those who ask, until interrupted.
    #[arg(long, conflicts_with = "peers")]
    answer: bool,
    /// UDP port to answer at.
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

/// Prints a heading and the findings below it.
fn section(title: &str, findings: &[Finding]) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{title}")?;
    findings.iter().try_for_each(|finding| writeln!(out, "  {finding}"))
}

/// Runs the command. Returns true if there is no fault.
///
/// # Errors
/// Standard output or a socket cannot be used.
pub(crate) fn run(args: &DoctorArgs, stop: &Arc<AtomicBool>) -> io::Result<bool> {
    let (chosen, interfaces) = interface::choose(&variable("FI_SQUALL_IFACE").unwrap_or_default());
    if args.answer {
        return answer(chosen, args.port, stop);
    }
    let mut all = Vec::new();
    let mut show = |title: &str, findings: Vec<Finding>| -> io::Result<()> {
        section(title, &findings)?;
        all.extend(findings);
        Ok(())
    };
    show("library", library::check())?;
    show("interface", interfaces)?;
    if let Some(chosen) = &chosen {
        look_around(chosen, &args.peers, &mut show)?;
    }
    show("firewall", vec![firewall::lines(variable("FI_SQUALL_PORT").as_deref())])?;
    show("launchers", launchers::check())?;
    let count = |level| all.iter().filter(|finding| finding.level == level).count();
    let (faults, notes) = (count(Level::Fault), count(Level::Note));
    writeln!(io::stdout(), "{faults} faults, {notes} notes")?;
    Ok(faults == 0)
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
            let cure = "set FI_SQUALL_IFACE to another interface";
            return show(
                "kernel",
                vec![Finding::fault(format!("no socket at {chosen}: {error}"), cure)],
            );
        }
    };
    show("kernel", host::judge(&report))?;
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

/// Answers questions at every address of this host until interrupted. The answer names the address
/// at which endpoints will be.
fn answer(chosen: Option<Iface>, port: u16, stop: &AtomicBool) -> io::Result<bool> {
    let chosen = chosen.ok_or_else(|| io::Error::other("there is no interface to answer on"))?;
    let every = match chosen.addr {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let (mut opened, report) = host::open(SocketAddr::new(every, port), chosen.index)?;
    let port = report.local.port();
    writeln!(io::stdout(), "answering at UDP port {port}; endpoints will be on {chosen}")?;
    let choice = Choice::of(&chosen);
    let answered = probe::answer(&mut opened, &choice, || stop.load(Ordering::Relaxed));
    writeln!(io::stdout(), "{answered} answered")?;
    Ok(true)
}
