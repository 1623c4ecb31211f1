//! Generates `docs/plans.md` from the comments of the tables.

use squall_netsim::documents::is_up_to_date;

const HEAD: &str = "\
# Keys of a plan

A plan is a file in TOML: a scene, what is varied in it, and what is expected to come out. `squall plan list` names those that come \
with squall, `squall plan show NAME` prints one to begin with. A mistake is reported with file, line and what was expected. The tables \
below are generated from the code that reads plans.

```toml
title = \"Permutation of 2 MiB, oversubscribed\"
source = \"SMaRTT v2, section IV-B, Fig. 1a\"
seeds = [1, 2, 3]

[topology]
kind = \"fat-tree\"
hosts = 128

[workload]
kind = \"permutation\"
bytes = \"2MiB\"

[sweep]
\"topology.oversubscription\" = [1, 8]      # a key of the scene and its values, or
[sweep.transport]                         # named variants that set several keys
nscc = { \"transport.cc\" = \"nscc\" }
eqds = { \"transport.cc\" = \"eqds\" }

[[expect]]
statement = \"SMaRTT ends before EQDS where the network is oversubscribed\"
metric = \"finish\"
where = { oversubscription = 8 }
of = { transport = \"nscc\" }
over = { transport = \"eqds\" }
at_most = 1.0
```

Lengths are bytes, or take a unit: `16K` and `16KiB` are 16384 bytes, `16KB` 16000; M and G likewise. A kind has the keys of its section, and those that its table gives to several kinds. \
Metrics are in [metrics.md](metrics.md), and the parameters of congestion control in [algorithms.md](algorithms.md).
";

/// Returns the text between the braces behind `head`.
fn body<'a>(source: &'a str, head: &str) -> &'a str {
    let body = source.split_once(&format!("{head} {{\n")).expect(head).1;
    let indent = &head[..head.len() - head.trim_start().len()];
    body.split_once(&format!("\n{indent}}}")).expect("its end").0
}

/// Returns the rows of a table: the keys of a struct or a variant with their comments.
fn rows(body: &str) -> String {
    let mut made = String::from("| key | meaning |\n|---|---|\n");
    let mut meaning = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            meaning.push(words);
        } else if let Some((key, _)) = line.split_once(": ").filter(|_| !line.starts_with('#')) {
            // The tables of a scene have parts of their own.
            if !meaning.is_empty() {
                let key = if key == "places" { "where" } else { key.trim_start_matches("pub ") };
                made += &format!("| `{key}` | {} |\n", meaning.join(" "));
            }
            meaning.clear();
        }
    }
    made
}

fn table(source: &str, name: &str, title: &str) -> String {
    format!("\n## {title}\n\n{}", rows(body(source, &format!("struct {name}"))))
}

/// Returns a name as serde has it in kebab case: `FatTree` is `fat-tree`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    kebab
}

/// Returns a section for each kind of a table: the variants of an enum, with the keys of each.
/// `newtypes` are the sources of variants that are a struct.
fn kinds(source: &str, name: &str, tag: &str, newtypes: &[(&str, &str)]) -> String {
    let (mut made, mut meaning) = (String::new(), Vec::new());
    let variants = body(source, &format!("enum {name}"));
    for line in variants.lines().filter_map(|line| line.strip_prefix("    ")) {
        if let Some(words) = line.strip_prefix("/// ") {
            meaning.push(words);
        } else if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            let variant = line.trim_end_matches([' ', '{', ',']);
            let (kind, keys) = match variant.split_once('(') {
                Some((kind, inner)) => {
                    let inner = inner.trim_end_matches(')');
                    let source = newtypes.iter().find(|known| known.0 == inner).expect(inner).1;
                    (kind, rows(body(source, &format!("struct {inner}"))))
                }
                None if line.ends_with('{') => {
                    (variant, rows(body(variants, &format!("    {variant}"))))
                }
                None => (variant, String::new()),
            };
            let sep = if keys.is_empty() { "" } else { "\n" };
            made += &format!(
                "\n### `{tag} = \"{}\"`\n\n{}\n{sep}{keys}",
                kebab(kind),
                meaning.join(" ")
            );
            meaning.clear();
        }
    }
    made
}

/// Returns the keys that several kinds share, below a line that names these kinds.
fn shared(source: &str, name: &str, whose: &str) -> String {
    format!("\n{whose}\n\n{}", rows(body(source, &format!("struct {name}"))))
}

#[test]
fn the_page_of_plans_is_up_to_date() {
    let (top, scene) = (include_str!("load.rs"), include_str!("scene.rs"));
    let pattern = include_str!("../../../netsim/src/workload/spec.rs");
    let mix = include_str!("../../../netsim/src/workload/mix.rs");
    let mut made = HEAD.to_owned() + &table(top, "PlanTable", "At the top");

    let topology = include_str!("topology.rs");
    made += "\n## `[topology]`\n";
    made += &shared(topology, "LinkTable", "Every kind but `file` has these keys:");
    made += &kinds(topology, "TopologyKind", "kind", &[]);
    made += &kinds(topology, "FileKind", "kind", &[]);

    let workload = include_str!("workload.rs");
    made += "\n## `[workload]`\n";
    made += &shared(pattern, "JobOptions", "Every kind without a file has these keys:");
    made += &kinds(pattern, "Pattern", "kind", &[("Mix", mix)]);
    made += &kinds(workload, "WorkloadFile", "kind", &[]);

    made += "\n## `[network]`\n\nThe queues and links of the switches, and what switches do with packets: [network.md](network.md) has \
             all keys.\n";

    let transport = include_str!("transport.rs");
    made += "\n## `[transport]`\n";
    made += &shared(transport, "HostTable", "Every stack has these keys:");
    made += &kinds(transport, "Stack", "stack", &[("SquallTable", transport)]);

    let failure = include_str!("failure.rs");
    made += "\n## `[[failure]]`\n";
    made += &shared(failure, "FailureTime", "Every failure has this key:");
    made += &kinds(failure, "PlaceFailure", "what", &[]);
    made += &shared(failure, "LinkChoice", "Failures of links have these keys, too:");
    made += &kinds(failure, "LinkFailure", "what", &[]);

    made += &table(scene, "ObserveTable", "`[observe]`");
    made += &table(include_str!("credit_network.rs"), "CreditNetworkTable", "`[flits]`");
    made += &table(include_str!("expect.rs"), "ExpectTable", "`[[expect]]`");
    made += &table(top, "QuickTable", "`[quick]`");
    is_up_to_date("plans.md", &made);
}
