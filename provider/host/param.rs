//! Every parameter of the provider in one table, from which all of these follow: what is registered with libfabric
//! (`fi_info -e`, and libfabric's own configuration), what is documented, and what is read.
//!
//! The environment variable of parameter `NAME` is `FI_SQUALL_NAME`. The environment itself is looked
//! at only for *names*, to warn once about one that is not a parameter.

mod kinds;

use core::ffi::{c_char, c_int, c_void};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::sync::OnceLock;

use squall_base::{Rate, Span};
use squall_cc::{PathsConfig, SenderConfig};
use squall_net::EmulatorSpec;

use crate::abi::boundary::text;
use crate::abi::ffi;
use crate::host::libfabric::host;
use crate::host::logger::USER;
use crate::provider;
use kinds::Kind;
pub(crate) use kinds::{
    Activation, EncryptionPolicy, PeerPolicy, PortKind, StatsFormat, StatsSpec, WireKind,
};

/// A row of the table of parameters (FI_SQUALL_ variables).
pub(crate) struct Spec {
    /// Name of the parameter without the prefix `FI_SQUALL_`.
    pub(crate) name: &'static str,
    /// The type that libfabric gives the parameter.
    pub(crate) host_type: ffi::fi_param_type,
    /// The default value, as a user would write it.
    pub(crate) default: &'static str,
    /// Description of the effect of the parameter, in one or two sentences.
    pub(crate) help: &'static str,
    /// The names of which a value can consist, each with a description, if there is a list.
    pub(crate) names: &'static [(&'static str, &'static str)],
}

macro_rules! params {
    ($($field:ident: $kind:ty = $name:literal, $default:expr, $help:literal;)*) => {
        /// The values of all parameters (FI_SQUALL_ variables).
        #[derive(Clone, Debug)]
        pub(crate) struct Params {
            $(
                #[doc = $help]
                pub(crate) $field: <$kind as Kind>::Value,
            )*
            /// The texts of all parameters, by environment variable: the value that the user set, or the default.
            pub(crate) texts: BTreeMap<String, String>,
            /// Parameters that protect the endpoint and whose values were not understood, with the allowed values. No
            /// domain opens then.
            pub(crate) misunderstood: Vec<String>,
        }

        /// The rows of the table of parameters, in the order of the manual.
        pub(crate) const TABLE: &[Spec] = &[
            $(Spec {
                name: $name,
                host_type: <$kind as Kind>::HOST_TYPE,
                default: $default,
                help: $help,
                names: <$kind as Kind>::NAMES,
            },)*
        ];

        impl Params {
            /// Reads every parameter by `get`. A value that does not parse is replaced by its default and reported in
            /// `problems`, or in [`Self::misunderstood`].
            fn read(get: &dyn Fn(&Spec) -> Option<String>, problems: &mut Vec<String>) -> Self {
                let mut specs = TABLE.iter();
                let (mut texts, mut misunderstood) = (BTreeMap::new(), Vec::new());
                Self {
                    $($field: {
                        let wrong = if <$kind>::PROTECTS { &mut misunderstood } else { &mut *problems };
                        read_one::<$kind>(specs.next(), get, wrong, &mut texts)
                    },)*
                    texts,
                    misunderstood,
                }
            }
        }
    };
}

params! {
    enable: Activation = "ENABLE", "auto",
        "Answer applications: yes, no or auto. auto: yes, but where a package installed squall into libfabric's own \
         directory, only if the application, a variable such as FI_PROVIDER, or a line enable = yes in \
         /etc/squall.conf asks for squall.";
    iface: kinds::Text = "IFACE", "",
        "Interfaces to use, best first: names, addresses or CIDRs, comma separated; ^ excludes. Default: the best \
         kind that is up: devices, else cables to other network namespaces, else tunnels, VPNs and bridges, else \
         loopback. Link-local addresses must be named. squall doctor prints the ranks.";
    rails: kinds::Rails = "RAILS", "1",
        "Number of network cards that an endpoint uses together, or all (at most 8): the first of FI_SQUALL_IFACE. An \
         application sees one interface. Peers with one card are reached through the first.";
    pci: kinds::Flag = "PCI", "no",
        "Report where on the PCI bus an interface's device is (fi_nic(3)); the rdma protocol of aws-ofi-nccl requires \
         it. Off by default, because an MPICH whose hwloc knows no devices, such as PyPI's, fails an assertion on it.";
    port: kinds::OwnPorts = "PORT", "0",
        "UDP port of an endpoint to which the application gave none, or a range such as 47930-47993 of which each \
         endpoint takes the first free one. 0: 4793 if it is free, else any.";
    source_ports: kinds::Ports = "SOURCE_PORTS", "",
        "Range of UDP source ports of packets, first-last, for firewalls. Default: any.";
    paths: kinds::Count<1, 256> = "PATHS", "8",
        "Entropy values (UDP source ports), hence network paths, that an endpoint spreads over, for each network card.";
    lb: kinds::Choice<kinds::Selectors> = "LB", PathsConfig::DEFAULT,
        "Path selection: NAME or NAME:key=value,key=value; help lists names and keys.";
    cc: kinds::Choice<kinds::Controls> = "CC", SenderConfig::DEFAULT,
        "Congestion control: NAME or NAME:key=value,key=value; help lists names and keys. Best the \
         same at all endpoints of a job.";
    loss: kinds::Choice<kinds::Detectors> = "LOSS", "all",
        "Signs of loss acted upon: names with commas between, all or none. Without rto the timer waits ten times as \
         long.";
    scope: kinds::Choice<kinds::Scopes> = "SCOPE", "auto",
        "Which flows share one congestion-control context.";
    trimming: kinds::Flag = "TRIMMING", "no",
        "The network trims packets instead of dropping them.";
    link_rate: kinds::BitRate = "LINK_RATE", "auto",
        "Rate of the slower end's link, such as 25G. auto: the interface's, 100G when it has none.";
    min_rtt: kinds::Time = "MIN_RTT", "auto",
        "Unloaded round-trip time of the network, which scales congestion control. auto: 50us.";
    mtu: kinds::Bytes = "MTU", "auto",
        "Largest UDP payload of a packet. auto: from the interface, at most 16K.";
    crc: kinds::Flag = "CRC", "no",
        "Protect each packet by a CRC-32C trailer. Every endpoint of a job must agree.";
    eager_size: kinds::Bytes = "EAGER_SIZE", "256K",
        "Messages longer than this wait for their receive and are pulled by it (rendezvous).";
    unexpected_bytes: kinds::Bytes = "UNEXPECTED_BYTES", "auto",
        "Memory for messages that arrive before their receive is posted, at most a quarter for one of several peers; \
         further bytes stay at the sender. auto: 256M, or an eighth of the memory limit of the control group (cgroup) \
         if that is less.";
    max_unexpected: kinds::AutoCount<1, 100000000> = "MAX_UNEXPECTED", "auto",
        "Messages that may wait at an endpoint for their receives; senders hold back more. auto: 1000000, or fewer in \
         a control group with little memory. Without a job key, peers outside the address vector have a quarter of \
         this together.";
    outstanding: kinds::Count<16, 1048576> = "OUTSTANDING", "8192",
        "Sends, writes and reads that an endpoint has open before it returns -FI_EAGAIN.";
    rcvbuf: kinds::Bytes = "RCVBUF", "8M",
        "Socket receive buffer asked of the kernel.";
    sndbuf: kinds::Bytes = "SNDBUF", "4M",
        "Socket send buffer asked of the kernel.";
    gso: kinds::Flag = "GSO", "yes",
        "Send trains of packets in one system call (UDP_SEGMENT) where the kernel can.";
    train: kinds::AutoCount<1, 64> = "TRAIN", "auto",
        "Packets in a row that share one path; longer trains cost less, shorter ones spread better. auto: 64 with \
         sockets, 4 with AF_XDP, 1 on an emulated network.";
    dscp_data: kinds::Count<0, 63> = "DSCP_DATA", "0",
        "DSCP of data packets, the one that switches may trim.";
    dscp_control: kinds::Count<0, 63> = "DSCP_CONTROL", "46",
        "DSCP of acknowledgements and control packets.";
    dscp_trimmed: kinds::Count<0, 63> = "DSCP_TRIMMED", "5",
        "DSCP that switches give to a trimmed packet.";
    deadline: kinds::Time = "DEADLINE", "auto",
        "An operation whose peer cannot be reached, or fell silent, fails after this long. auto: 60s for a peer that \
         never answered, 120s for one that did; 3s where its host reports that no socket is bound.";
    stopped_deadline: kinds::Time = "STOPPED_DEADLINE", "900s",
        "Deadline for a silent peer whose process may only be stopped, because it is on this host or other endpoints \
         on its host answer. 0ns: for ever.";
    rto_min: kinds::Time = "RTO_MIN", "auto",
        "Smallest retransmission timeout. auto: 5ms.";
    idle_close: kinds::Time = "IDLE_CLOSE", "30s",
        "A connection context idle for this long is closed; the next operation reopens it.";
    job: kinds::Count<1, 16777215> = "JOB", "1",
        "JobID of requests; requests of another job are refused. An application's own auth_key comes before it.";
    key_file: kinds::KeyFile = "KEY_FILE", "",
        "File with a secret of 16 to 256 bytes, readable by its owner alone: an endpoint then accepts only peers that \
         prove that they know it. An application's own auth_key comes before it.";
    key_log: kinds::Text = "KEY_LOG", "",
        "File to append the secrets of encrypted connections to, for squall decrypt; %p, %h, %e as in PCAP. A file \
         that other users may use is refused.";
    tss: kinds::EncryptionPolicy = "TSS", "auto",
        "Encryption of packets (Ultra Ethernet's transport security sublayer, AES-256-GCM): with a job key (auto), \
         never (off), or always (required). Both ends must have the same. Shared memory is not encrypted.";
    peers: kinds::PeerPolicy = "PEERS", "any",
        "Peers that may talk to an endpoint: any peer that proves its address (any), or only those in its address \
         vector (av).";
    wire: kinds::WireKind = "WIRE", "squall",
        "Wire of an endpoint and of all its peers: squall, or that of another implementation, uet (the reference \
         provider of Ultra Ethernet) or suet. The address of a peer then is uet:IP or uet:IP:PORT, with ,pid=N or \
         ,index=N or ,initiator=N behind it. Peers prove nothing, and a job key is refused.";
    port_kind: kinds::PortKind = "PORT_KIND", "udp",
        "What carries the packets: udp, the kernel's sockets; or xdp, AF_XDP sockets, with which every packet has an \
         entropy of its own. An endpoint that cannot have xdp reports why and keeps its sockets.";
    shm: kinds::Flag = "SHM", "yes",
        "Talk to endpoints of the same host and user through shared memory, where the system permits it. EMULATOR, \
         FAULT, PCAP and WIRE switch it off.";
    shm_ring: kinds::Bytes = "SHM_RING", "256K",
        "Shared memory of a pair of endpoints, each direction: a power of two from 64K to 16M.";
    emulator: kinds::Text = "EMULATOR", "",
        "Socket of an emulated network (squall emulate up) to send packets through. SOCKET,host=N is a certain host \
         of it, SOCKET,host=rank the one with the number of the process's rank, and SOCKET,host=0,2x8,5-7 has a host \
         for each rank: 0, then 2 for eight of them, then 5, 6 and 7. SOCKET,virtual is a network in virtual time. \
         LINK_RATE, MIN_RTT and MTU come from the network unless they are set.";
    fault: kinds::Text = "FAULT", "",
        "Make the network worse, for tests: loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%,delay=50us..200us,\
         trim=1%,blackhole=3,seed=7.";
    pcap: kinds::Text = "PCAP", "",
        "Capture every packet into this file; %p is the process, %h the host, %e the endpoint. A file that ends in \
         .pcapng also records paths and marks.";
    trace: kinds::Text = "TRACE", "",
        "Directory for a trace of the application's operations, a file for each endpoint, which squall sim --trace \
         replays.";
    stats: kinds::Stats = "STATS", "off",
        "Report counters when an endpoint closes: text or json to stderr, or text:FILE, json:FILE \
         with %p, %h, %e as in PCAP.";
    stats_interval: kinds::Time = "STATS_INTERVAL", "0ns",
        "Interval at which an open endpoint also reports its counters. 0ns: only when it closes.";
    report: kinds::Flag = "REPORT", "no",
        "Write one line to standard error when the last endpoint of the process closes: interfaces, peers, \
         retransmissions, failed operations. squall run sets this.";
    monitor: kinds::Time = "MONITOR", "250ms",
        "How often an endpoint shows its counters to squall top, in a file of memory that only its user can read. \
         0ns: never.";
    attend: kinds::Time = "ATTEND", "20ms",
        "Under manual progress, a background thread serves an endpoint that the application leaves alone for this \
         long. 0ns: never.";
    progress_cpu: kinds::Processor = "PROGRESS_CPU", "",
        "Processor of the automatic progress threads. Default: where the system puts them.";
}

fn read_one<K: Kind>(
    spec: Option<&Spec>,
    get: &dyn Fn(&Spec) -> Option<String>,
    problems: &mut Vec<String>,
    texts: &mut BTreeMap<String, String>,
) -> K::Value {
    let Some(spec) = spec else { unreachable!("one row per field, both from one macro") };
    let name = format!("FI_SQUALL_{}", spec.name);
    if let Some(text) = get(spec) {
        match K::parse_given(text.trim()) {
            Ok(value) => {
                texts.insert(name, text);
                return value;
            }
            Err(allowed) if K::PROTECTS => {
                problems.push(format!(
                    "{name}={text}: expected {allowed}; correct the value, or unset the variable"
                ));
            }
            Err(allowed) => problems.push(format!(
                "FI_SQUALL_{}={text}: expected {allowed}; using the default, {}",
                spec.name,
                if spec.default.is_empty() { "none" } else { spec.default }
            )),
        }
    }
    texts.insert(name, spec.default.to_owned());
    match K::parse(spec.default) {
        Ok(value) => value,
        Err(allowed) => unreachable!("default of {} is not {allowed}", spec.name),
    }
}

/// Registers every parameter with libfabric. The caller is `fi_prov_ini`.
pub(crate) fn define() {
    let Some(define) = host().param_define else { return };
    for spec in TABLE {
        let mut help = String::new();
        let default = if spec.default.is_empty() { "none" } else { spec.default };
        // Writing to a String cannot fail.
        let _ = write!(help, "{}", spec.help);
        for (i, (name, _)) in spec.names.iter().enumerate() {
            let _ = write!(help, "{}{name}", if i == 0 { " Names: " } else { ", " });
        }
        if !spec.names.is_empty() {
            help.push('.');
        }
        let _ = write!(help, " (default: {default})");
        let (Ok(name), Ok(help)) = (CString::new(spec.name.to_lowercase()), CString::new(help))
        else {
            continue;
        };
        // SAFETY: `fi_param_define` of the libfabric that loaded us (`libfabric.rs` found it, and says why the
        // signature is right). It takes the record that `fi_prov_ini` returned, a static, one of its
        // types, strings with terminators, of which it keeps copies, and a format whose one `%s` is the
        // one argument after it.
        unsafe { define(provider(), name.as_ptr(), spec.host_type, c"%s".as_ptr(), help.as_ptr()) };
    }
}

/// Returns the text that the user set for a parameter, as libfabric has it.
fn from_host(spec: &Spec) -> Option<String> {
    let name = CString::new(spec.name.to_lowercase()).ok()?;
    match spec.host_type {
        // SAFETY: `define` registered this parameter as a string under this record and name, or it is not registered.
        ffi::FI_PARAM_STRING => unsafe { host_text(provider(), &name) },
        kind => {
            let get = host().param_get?;
            let mut value: c_int = 0;
            let out: *mut c_void = (&raw mut value).cast();
            // SAFETY: `fi_param_get` of the libfabric that loaded us takes the record that `fi_prov_ini`
            // returned (the `mut` is for its own lists, it does not write there) and a terminated name;
            // for a parameter that `define` registered as an integer or a boolean it writes one int,
            // which `out` has room for.
            let rc = unsafe { get(provider().cast_mut(), name.as_ptr(), out) };
            match (rc, kind) {
                (0, ffi::FI_PARAM_BOOL) => Some(if value != 0 { "yes" } else { "no" }.to_owned()),
                (0, _) => Some(value.to_string()),
                _ => None,
            }
        }
    }
}

/// Returns the text that libfabric has for a parameter.
///
/// # Safety
/// `owner` is NULL, for libfabric's own parameters, or the record that `fi_prov_ini` returned, and the parameter is
/// registered as a string or not at all.
unsafe fn host_text(owner: *const ffi::fi_provider, name: &CStr) -> Option<String> {
    let get = host().param_get?;
    let mut value: *mut c_char = core::ptr::null_mut();
    let out: *mut c_void = (&raw mut value).cast();
    // SAFETY: `fi_param_get` of the libfabric that loaded us takes NULL or our record (the `mut` is for its
    // own lists, it does not write there) and a terminated name; for a string, which the parameter is by
    // this function's contract, it writes one pointer, which `out` has room for.
    let rc = unsafe { get(owner.cast_mut(), name.as_ptr(), out) };
    if rc != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so `value` is NULL or a terminated string, in the environment or in
    // libfabric's configuration; it is copied before anything else of this thread runs, and POSIX
    // forbids programs to change the environment while other threads read it.
    unsafe { text(value) }
}

/// Returns libfabric's list of the providers to use, FI_PROVIDER, if it is set.
pub(crate) fn provider_list() -> Option<String> {
    // SAFETY: every libfabric registers `provider` as a string before it loads providers (src/fabric.c).
    unsafe { host_text(core::ptr::null(), c"provider") }
}

/// Reads FI_SQUALL_ENABLE alone, so that a process in which squall does not answer reads no other parameter.
pub(crate) fn activation() -> Activation {
    let spec = TABLE.iter().find(|spec| spec.name == "ENABLE");
    match spec.and_then(from_host).map(|text| Activation::from_text(&text)) {
        None => Activation::default(),
        Some(Ok(value)) => value,
        // Reading all parameters reports the value.
        Some(Err(_)) => params().enable,
    }
}

static PARAMS: OnceLock<Params> = OnceLock::new();

/// Returns the parameters of this process, which the first call reads.
pub(crate) fn params() -> &'static Params {
    PARAMS.get_or_init(|| {
        let mut problems = Vec::new();
        let params = Params::read(&from_host, &mut problems);
        for problem in problems {
            log::warn!(target: USER, "{problem}");
        }
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for unknown in unknown_names(names) {
            log::warn!(target: USER, "{unknown}");
        }
        let set: Vec<String> = TABLE
            .iter()
            .filter_map(|spec| from_host(spec).map(|v| format!("{}={v}", spec.name)))
            .collect();
        if !set.is_empty() {
            log::info!("parameters set: {}", set.join(" "));
        }
        params
    })
}

/// Returns a warning for each variable that begins with `FI_SQUALL_` and is no parameter.
fn unknown_names(names: impl Iterator<Item = String>) -> Vec<String> {
    names
        .filter_map(|name| {
            let rest = name.strip_prefix("FI_SQUALL_")?;
            if TABLE.iter().any(|spec| spec.name == rest) {
                return None;
            }
            let distances = TABLE.iter().map(|spec| (edit_distance(spec.name, rest), spec.name));
            // A name that differs more, such as that of a former parameter, is no typing error.
            let hint = match distances.min()? {
                (distance, nearest) if distance <= rest.len() / 3 => {
                    format!("; did you mean FI_SQUALL_{nearest}?")
                }
                _ => "; remove it".to_owned(),
            };
            Some(format!(
                "environment variable {name} is not a parameter of squall and has no effect{hint} \
                 (fi_info -e lists them all)"
            ))
        })
        .collect()
}

/// Returns the Levenshtein distance of two names, to suggest a parameter for a misspelt one.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl Params {
    /// Returns whether the process will be in virtual time once it has an endpoint.
    pub(crate) fn is_virtual(&self) -> bool {
        self.emulator.parse().is_ok_and(|spec: EmulatorSpec| spec.virtual_time)
    }

    /// The network's unloaded round-trip time for congestion control.
    pub(crate) fn base_rtt(&self) -> Span {
        self.min_rtt.unwrap_or(Span::micros(50))
    }

    /// Returns the rate of a link whose speed in Mb/s may be unknown.
    pub(crate) fn rate(&self, speed_mbps: Option<u64>) -> Rate {
        self.link_rate.unwrap_or_else(|| {
            Rate(speed_mbps.map_or(100_000_000_000, |mbps| mbps.saturating_mul(1_000_000)))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn read(values: &[(&str, &str)]) -> (Params, Vec<String>) {
        let mut problems = Vec::new();
        let get = |spec: &Spec| {
            values.iter().find(|(n, _)| *n == spec.name).map(|(_, v)| (*v).to_owned())
        };
        let params = Params::read(&get, &mut problems);
        (params, problems)
    }

    #[test]
    fn the_table_is_complete_and_its_defaults_parse() {
        let (params, problems) = read(&[]);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(params.eager_size, Some(256 << 10));
        assert_eq!(params.deadline, None);
        assert!(params.gso && !params.crc);
        for (i, spec) in TABLE.iter().enumerate() {
            assert!(spec.help.len() > 20 && spec.help.ends_with('.'), "{}", spec.name);
            assert!(spec.name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
            assert!(TABLE[..i].iter().all(|other| other.name != spec.name));
        }
    }

    #[test]
    fn values_are_read_and_bad_ones_reported() {
        let (params, problems) =
            read(&[("PATHS", "3"), ("LINK_RATE", "25G"), ("DEADLINE", "250ms"), ("GSO", "maybe")]);
        assert_eq!(params.paths, 3);
        assert_eq!(params.rate(None).0, 25_000_000_000);
        assert_eq!(params.deadline, Some(Span::millis(250)));
        assert_eq!(problems.len(), 1);
        let texts = ["PATHS", "DEADLINE", "GSO", "CRC", "IFACE"]
            .map(|name| params.texts[&format!("FI_SQUALL_{name}")].as_str());
        assert_eq!((texts, params.texts.len()), (["3", "250ms", "yes", "no", ""], TABLE.len()));
        assert!(problems[0].contains("FI_SQUALL_GSO=maybe") && problems[0].contains("yes or no"));
    }

    /// The defaults protect less than what the user seems to mean.
    #[test]
    fn values_that_protect_are_not_replaced_by_defaults() {
        for (name, value, allowed) in [
            ("TSS", "Required", "auto, off or required"),
            ("TSS", "", "auto, off or required"),
            ("PEERS", "AV", "any or av"),
            ("KEY_FILE", "", "the name of a file"),
            ("KEY_FILE", " ", "the name of a file"),
        ] {
            let (params, problems) = read(&[(name, value)]);
            let sentence = format!(
                "FI_SQUALL_{name}={value}: expected {allowed}; correct the value, or unset the variable"
            );
            assert_eq!((params.misunderstood, problems), (vec![sentence], vec![]));
        }
        let (params, _) = read(&[("TSS", "required"), ("PEERS", "av"), ("KEY_FILE", "/a file")]);
        assert_eq!((params.misunderstood, params.key_file.as_str()), (vec![], "/a file"));
    }

    #[test]
    fn unknown_names_are_told_their_neighbour() {
        let names = ["FI_SQUALL_IFACES", "FI_SQUALL_IFACE", "FI_PROVIDER", "HOME", "FI_SQUALL_ECN"];
        let lines = unknown_names(names.into_iter().map(str::to_owned));
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("did you mean FI_SQUALL_IFACE?"), "{lines:?}");
        // A former parameter, and no typing error of FI_SQUALL_CC.
        assert!(
            lines[1].contains("FI_SQUALL_ECN is not a parameter") && lines[1].contains("remove it")
        );
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
