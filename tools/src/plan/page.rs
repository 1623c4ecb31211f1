//! `docs/plans.md`, from the comments of the tables themselves.

use squall_netsim::documents::is_up_to_date;

const HEAD: &str = "\
# Keys of a plan

A plan is a file in TOML: a scene, what is varied in it, and what is expected to come out. `squall plan list` names those that come \
with squall, `squall plan show NAME` prints one to begin with. Mistakes are said with file, line and what was expected. Made from \
`tools/src/plan`.

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

Lengths are bytes, or take KB, KiB, MB and MiB. A key may be given where its kind, in brackets, uses it. Keys of `[network]` are in \
[network.md](network.md), metrics in [metrics.md](metrics.md), and the parameters of congestion control in [algorithms.md](algorithms.md).
";

/// The rows of a table: keys and their comments, of a struct.
fn table(source: &str, name: &str, title: &str) -> String {
    let mut made = format!("\n## {title}\n\n| key | meaning |\n|---|---|\n");
    let body = source.split_once(&format!("struct {name} {{\n")).expect(name).1;
    let body = body.split_once("\n}").expect("its end").0;
    let mut meaning = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            meaning.push(words);
        } else if let Some((key, _)) = line.split_once(": ").filter(|_| !line.starts_with('#')) {
            // The tables of a scene have parts of their own.
            if !meaning.is_empty() {
                let renamed = if key == "places" { "where" } else { key };
                made += &format!(
                    "| `{}` | {} |\n",
                    renamed.trim_start_matches("pub "),
                    meaning.join(" ")
                );
            }
            meaning.clear();
        }
    }
    made
}

#[test]
fn the_page_of_plans_is_up_to_date() {
    let (top, scene) = (include_str!("load.rs"), include_str!("tables.rs"));
    let mut made = HEAD.to_owned() + &table(top, "PlanTable", "At the top");
    for (name, title) in [
        ("TopologyTable", "`[topology]`"),
        ("WorkloadTable", "`[workload]`"),
        ("TransportTable", "`[transport]`"),
        ("FailureTable", "`[[failure]]`"),
        ("ObserveTable", "`[observe]`"),
        ("FlitsTable", "`[flits]`"),
    ] {
        made += &table(scene, name, title);
    }
    made += &table(include_str!("expect.rs"), "ExpectTable", "`[[expect]]`");
    made += &table(top, "QuickTable", "`[quick]`");
    is_up_to_date("plans.md", &made);
}
