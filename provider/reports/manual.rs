//! The generated tables of the manual. They come from the tables that the provider itself uses; a test fails if a page
//! in `docs/` differs.

use std::fmt::Write as _;
use std::path::Path;

use crate::host::param;
use crate::reports::{fault, stats};

/// Returns the text of `docs/parameters.md`.
fn parameters() -> String {
    let mut text = String::from(
        "# Parameters\n\n\
         Environment variables, or entries of libfabric's configuration; `fi_info -e` prints the same \
         list. Sizes take K, M and G, times ns, us, ms and s. Unknown names, and values that \
         cannot be honoured, are reported on standard error. Made from `provider/host/param.rs`.\n\n\
         | variable | default | meaning |\n|---|---|---|\n",
    );
    for spec in param::TABLE {
        let default = if spec.default.is_empty() { "-" } else { spec.default };
        let names: Vec<&str> = spec.names.iter().map(|(name, _)| *name).collect();
        let names =
            if names.is_empty() { String::new() } else { format!(" Names: {}.", names.join(", ")) };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `FI_SQUALL_{}` | {default} | {}{names} |", spec.name, spec.help);
    }
    text
}

/// Returns the text of `docs/errors.md`.
fn errors() -> String {
    let mut text = String::from(
        "# Errors\n\n\
         What `fi_cq_readerr` reports: `err`, and `prov_errno` with the text of `fi_cq_strerror`, which \
         also names the peer's address, the local address and interface, and the last network error. Made from \
         `provider/reports/fault.rs`.\n\n\
         Every operation that fails leaves an error entry, whether or not a completion was asked for \
         (fi_cq(3)); that of an inject call has a NULL `op_context`. Two failures are logged and counted \
         instead:\n\n\
         - An operation whose completion was reported when its bytes were copied \
         (`lost_after_completion`).\n\
         - An inject call to a peer that has closed its endpoint in good order, as in `MPI_Comm_disconnect`: it has \
         closed the shared-memory channel, or a connection context that was in use in the last 15 s, and is silent \
         since.\n\n\
         The errors by `prov_errno`, name and `err`:\n\n",
    );
    for row in fault::TABLE {
        let _ = writeln!(
            text,
            "- {} **{}**, {} ({}): {}",
            row.code,
            row.name,
            row.errno.0,
            fault::errno_name(row.errno),
            row.text
        );
    }
    text
}

/// Returns the text of `docs/statistics.md`.
fn statistics() -> String {
    let mut text = String::from(
        "# Statistics\n\n\
         What `FI_SQUALL_STATS` writes for each endpoint, and \
         `squall top` shows while it is open. Values count since the endpoint was opened. Over several endpoints they \
         add up; of `open_ms`, and of largest or smallest values, the largest or smallest remains.\n",
    );
    let tables = [
        ("The network's port", squall_net::Counters::ROWS),
        ("Packet delivery contexts", squall_engine::TransportCounters::ROWS),
        ("Messages", squall_engine::Counters::ROWS),
        ("Progress", stats::Turns::ROWS),
    ];
    for (title, rows) in tables {
        let _ = write!(text, "\n## {title}\n\n");
        for row in rows {
            let _ = writeln!(text, "- `{}`: {}", row.name, row.help);
        }
    }
    text.push_str("\n## Derived values\n\n");
    for stats::DerivedStatistic { name, help, .. } in stats::DERIVED {
        let _ = writeln!(text, "- `{name}`: {help}");
    }
    text.push_str(
        "\n## Each network card\n\nWith several cards (`FI_SQUALL_RAILS`), whose names `rails` lists, the first being card 0:\n\n",
    );
    for (name, _, help) in squall_monitor::CARD {
        let _ = writeln!(text, "- `card0_{name}`, `card1_{name}` ..: {help}");
    }
    text.push_str("\n## Each flow\n\n");
    for (name, help) in stats::FLOW {
        let _ = writeln!(text, "- `{name}`: {help}");
    }
    let distinct = squall_engine::FlowRecord::PATHS;
    let flows = squall_monitor::COLLECTED_FLOWS;
    let _ = write!(
        text,
        "\n## Each path of a flow\n\n`by_path` in JSON, with the number of the path (`path`); with more than {distinct} paths, those that are equal \
         modulo {distinct} share an entry. \
         `squall top --serve` exports `squall_path_packets_total` and so on of the {flows} flows with most bytes, with the labels \
         `peer`, `initiator` and `path`.\n\n"
    );
    for (name, help) in squall_monitor::PATH {
        let _ = writeln!(text, "- `{name}`: {help}");
    }
    text
}

/// Compares a generated page with the committed one, and writes the right page beside it if they differ.
fn check(name: &str, made: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    let committed = std::fs::read_to_string(&page).unwrap_or_default();
    if committed != made {
        let fresh = page.with_extension("md.new");
        std::fs::write(&fresh, made).expect("docs/ is writable");
        panic!("{} is out of date: replace it by {}", page.display(), fresh.display());
    }
}

#[test]
fn the_page_of_parameters_is_up_to_date() {
    check("parameters.md", &parameters());
}

#[test]
fn the_page_of_errors_is_up_to_date() {
    check("errors.md", &errors());
}

#[test]
fn the_page_of_statistics_is_up_to_date() {
    check("statistics.md", &statistics());
}
