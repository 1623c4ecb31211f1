//! Pages of `docs/` that are made from the options, features and metrics themselves.

use clap::{Args, Command};
use squall_netsim::documents::is_up_to_date;
use squall_netsim::model::{NetworkOptions, registered};
use squall_netsim::output::Metric;

#[test]
fn the_page_of_network_options_is_up_to_date() {
    squall_research::register();
    let mut made = String::from(
        "# Options of a network\n\n\
         Keys of a plan's `[network]` and options of `squall sim` and `squall emulate up`. `squall emulate status` shows what\n\
         a running emulator has, before scaling. Sizes take B, K, KB, KiB, M, MB and MiB; `--no-trim` is `--trimming false`,\n\
         `--no-ecn` is `--ecn none` (in a plan `[]`). Made from `netsim/src/model/config.rs`.\n\n\
         | key | option | meaning |\n|---|---|---|\n",
    );
    for option in NetworkOptions::augment_args(Command::new("x")).get_arguments() {
        let key = option.get_id();
        let flag = !option.get_action().takes_values();
        let value = option.get_value_names().filter(|_| !flag).map(|names| names.join(" "));
        let value = value.map_or(String::new(), |value| format!(" {value}"));
        let names = option.get_long_and_visible_aliases().unwrap_or_default();
        let names: Vec<String> = names.iter().map(|name| format!("`--{name}{value}`")).collect();
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        made += &format!("| `{key}` | {} | {help}. |\n", names.join(", "));
    }
    made += "\n## Switch features\n\n\
             `features` takes names with parameters, several joined by `+`: `rates`, `deflection:tokens=3,short=16KiB`.\n\
             A network may have several; the switches run their programs in this order. Made from `research/src/`.\n\n\
             | feature | parameter | meaning |\n|---|---|---|\n";
    for feature in registered() {
        made += &format!("| `{}` | | {}. |\n", feature.name(), feature.help());
        for parameter in feature.parameters() {
            made +=
                &format!("| | `{}={}` | {}. |\n", parameter.name, parameter.value, parameter.help);
        }
    }
    is_up_to_date("network.md", &made);
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    squall_research::register();
    let mut made = String::from(
        "# Metrics\n\n\
         Numbers that are computed from a run: columns of `runs.csv` and `runs.parquet`, `metrics` and `metric` of a plan,\n\
         `squall report --metrics`. One with a range, `p99_slowdown(1MB..)`, is computed from the flows alone that have so\n\
         many bytes. A run may not have one: its cell is empty. Made from `netsim/src/output/metrics.rs` and the switch\n\
         features in `research/src/`.\n\n\
         | metric | unit | what |\n|---|---|---|\n",
    );
    for metric in Metric::all() {
        made += &format!("| `{}` | {} | {} |\n", metric.name(), metric.unit(), metric.what());
    }
    is_up_to_date("metrics.md", &made);
}
