//! The manual's tables, made from the tables the provider works with, and checked by diff: a row that
//! is missing from `docs/` fails a test.

use std::fmt::Write as _;
use std::path::Path;

use crate::{fault, param};

/// `docs/parameters.md`.
fn parameters() -> String {
    let mut text = String::from(
        "# Parameters\n\n\
         Environment variables, or entries of libfabric's configuration; `fi_info -e` prints the same \
         list. Sizes take K, M and G, times ns, us, ms and s. A name that is none of these is warned \
         about (`FI_LOG_LEVEL=warn`). Made from `provider/param.rs`.\n\n\
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

/// `docs/errors.md`.
fn errors() -> String {
    let mut text = String::from(
        "# Errors\n\n\
         What `fi_cq_readerr` reports: `err`, and `prov_errno` with the text of `fi_cq_strerror`, which \
         also names the peer, the local address and the last network error. Made from \
         `provider/fault.rs`.\n\n\
         | prov_errno | name | err | meaning and cure |\n|---|---|---|---|\n",
    );
    for row in fault::TABLE {
        let _ = writeln!(
            text,
            "| {} | {} | {} ({}) | {} |",
            row.code,
            row.name,
            row.errno.0,
            fault::errno_name(row.errno),
            row.text
        );
    }
    text
}

/// Compares a page with what is committed, and leaves the right one beside it when they differ.
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
