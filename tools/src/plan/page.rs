//! Generates `docs/plans.md` from the comments of the tables and the switch features.

use squall_netsim::documents::is_up_to_date;
use squall_netsim::model::registered;

const HEAD: &str = "\
# Keys of a plan

A plan is a TOML file: a scene, what is varied in it, and what is expected to come out. [Simulation](simulation.md) \
has the commands, and [the guide](your-algorithm.md#4-a-sweep-and-its-figure-5-minutes) a whole plan. A sweep and a \
statement:

```toml
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

Lengths are bytes, or take a unit: `16K` and `16KiB` are 16384 bytes, `16KB` 16000; M and G likewise. Where a \
key differs between kinds, the kinds are in brackets.
";

/// The text before the keys of `[network]`.
const NETWORK: &str = "
## `[network]`

Each key is an option of `squall sim` and `squall emulate up`, whose `--help` explains it: `queue_bdp` is \
`--queue-bdp`. A list such as `ecn` is `[0.2, 0.8]` in a plan and `0.2,0.8` on a command line. The keys: ";

/// The text above the switch features.
const FEATURES: &str = "
### Switch features

`features` takes names with parameters, such as `deflection:tokens=3,short=16KiB`. Several are joined by `+`; switches \
run them in this order.

";

/// The text on metrics, which `squall report --help` lists.
const METRICS: &str = "
## Metrics

`squall report --help` lists all, with units. [Tables of runs](formats.md#tables) have a column for each. One with a \
range, `p99_slowdown(1MB..)`, is computed from the flows alone that have so many bytes.
";

/// Returns the text between the braces behind the line `head`.
fn body<'a>(source: &'a str, head: &str) -> &'a str {
    let body = source.split_once(&format!("{head} {{\n")).expect(head).1;
    let indent = &head[..head.len() - head.trim_start().len()];
    body.split_once(&format!("\n{indent}}}")).expect("its end").0
}

/// Returns the keys of a struct or a variant, each with its comment.
fn keys(body: &str) -> Vec<(String, String)> {
    let (mut found, mut meaning) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            meaning.push(words);
        } else if let Some((key, _)) = line.split_once(": ").filter(|_| !line.starts_with('#')) {
            // The tables of a scene have parts of their own.
            if !meaning.is_empty() {
                let key = if key == "places" { "where" } else { key.trim_start_matches("pub ") };
                found.push((key.to_owned(), meaning.join(" ")));
            }
            meaning.clear();
        }
    }
    found
}

/// Returns the keys of a struct as a list in Markdown, with their comments.
fn rows(body: &str) -> String {
    let mut made = String::new();
    for (key, meaning) in keys(body) {
        made += &format!("- `{key}`: {meaning}\n");
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

/// A kind of a table: a variant of an enum.
struct Kind {
    name: String,
    meaning: String,
    keys: Vec<(String, String)>,
}

/// Returns the kinds of a table: the variants of an enum, with the keys of each.
/// `newtypes` are the sources of variants that are a struct.
fn variants(source: &str, name: &str, newtypes: &[(&str, &str)]) -> Vec<Kind> {
    let (mut found, mut meaning) = (Vec::new(), Vec::new());
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
                    (kind, keys(body(source, &format!("struct {inner}"))))
                }
                None if line.ends_with('{') => {
                    (variant, keys(body(variants, &format!("    {variant}"))))
                }
                None => (variant, Vec::new()),
            };
            found.push(Kind { name: kebab(kind), meaning: meaning.join(" "), keys });
            meaning.clear();
        }
    }
    found
}

/// Returns a table of kinds, and a list of their keys.
/// A key that differs between kinds has a line for each meaning, which names the kinds.
fn kinds(tag: &str, kinds: &[Kind]) -> String {
    let mut made = format!("\n| `{tag}` | | keys |\n|---|---|---|\n");
    let mut meanings: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for kind in kinds {
        let names: Vec<String> = kind.keys.iter().map(|(key, _)| format!("`{key}`")).collect();
        made += &format!("| `{}` | {} | {} |\n", kind.name, kind.meaning, names.join(", "));
        for (key, meaning) in &kind.keys {
            let (key, meaning, name) = (key.as_str(), meaning.as_str(), kind.name.as_str());
            match meanings.iter_mut().find(|known| known.0 == key && known.1 == meaning) {
                Some(known) => known.2.push(name),
                None => meanings.push((key, meaning, vec![name])),
            }
        }
    }
    made += "\n";
    for (key, meaning, of) in &meanings {
        let differs = meanings.iter().filter(|other| other.0 == *key).count() > 1;
        let of = if differs { format!(" ({})", of.join(", ")) } else { String::new() };
        made += &format!("- `{key}`{of}: {meaning}\n");
    }
    made
}

/// Returns the keys that several kinds share, below a line that names these kinds.
fn shared(source: &str, name: &str, whose: &str) -> String {
    format!("\n{whose}\n\n{}", rows(body(source, &format!("struct {name}"))))
}

/// Returns the list of the switch features and their parameters.
fn features() -> String {
    let mut made = FEATURES.to_owned();
    for feature in registered() {
        let name = feature.name();
        made += &format!("- `{name}`: {}.\n", feature.help());
        for parameter in feature.parameters() {
            made += &format!("- `{name}:{}={}`: ", parameter.name, parameter.value);
            made += &format!("{}.\n", parameter.help);
        }
    }
    made
}

#[test]
fn the_page_of_plans_is_up_to_date() {
    squall_research::register();
    let (top, scene) = (include_str!("load.rs"), include_str!("scene.rs"));
    let pattern = include_str!("../../../netsim/src/workload/spec.rs");
    let mix = include_str!("../../../netsim/src/workload/mix.rs");
    let network = include_str!("../../../netsim/src/model/config.rs");
    let mut made = HEAD.to_owned() + &table(top, "PlanTable", "At the top");

    let topology = include_str!("topology.rs");
    let mut all = variants(topology, "TopologyKind", &[]);
    all.extend(variants(topology, "FileKind", &[]));
    made += "\n## `[topology]`\n";
    made += &kinds("kind", &all);
    made += &shared(topology, "LinkTable", "Every kind but `file` has these keys, too:");

    let mut all = variants(pattern, "Pattern", &[("Mix", mix)]);
    let workload = include_str!("workload.rs");
    let tables = [("GoalTable", workload), ("ChakraTable", workload)];
    all.extend(variants(workload, "WorkloadFile", &tables));
    let transformer = include_str!("../../../netsim/src/workload/chakra/transformer.rs");
    all.extend(variants(workload, "GeneratedJob", &[("Training", transformer)]));
    made += "\n## `[workload]`\n";
    made += &kinds("kind", &all);
    made += &shared(
        pattern,
        "JobOptions",
        "Generated loads other than `training` also have these keys:",
    );
    made += &shared(workload, "TrainingOptions", "`training` also has these keys:");

    made += NETWORK;
    let options = keys(body(network, "struct NetworkOptions"));
    let options: Vec<String> = options.iter().map(|(key, _)| format!("`{key}`")).collect();
    made += &format!("{}.\n", options.join(", "));
    made += &features();

    let transport = include_str!("transport.rs");
    made += "\n## `[transport]`\n";
    made += &shared(transport, "HostTable", "Every stack has these keys:");
    made += &kinds("stack", &variants(transport, "Stack", &[("SquallTable", transport)]));

    let failure = include_str!("failure.rs");
    let mut all = variants(failure, "PlaceFailure", &[]);
    all.extend(variants(failure, "LinkFailure", &[]));
    made += "\n## `[[failure]]`\n";
    made += &shared(failure, "FailureTime", "Every failure has this key:");
    made += &kinds("what", &all);
    let whose = "Failures of links, from `link-down` on, have these keys, too:";
    made += &shared(failure, "LinkChoice", whose);

    made += &table(scene, "ObserveTable", "`[observe]`");
    made += &table(include_str!("credit_network.rs"), "CreditNetworkTable", "`[flits]`");
    made += &table(include_str!("expect.rs"), "ExpectTable", "`[[expect]]`");
    made += &table(top, "QuickTable", "`[quick]`");

    made += METRICS;
    is_up_to_date("plans.md", &made);
}
