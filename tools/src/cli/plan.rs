//! The `squall plan` commands: list, show, run and merge experiments.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::{Args, Subcommand};

use super::bar::Bar;
use super::report::write_report;
use super::{Failure, interrupts};
use crate::plan::{
    Plan, RunOptions, RunnerError, Shard, Verdict, judge, merge, run_plan, write_runs,
};
use crate::report::{Document, from_runs, from_verdicts};
use crate::shipped;
use squall_netsim::output::{Metric, Origin, Run, Table, files, text};

#[derive(Subcommand, Debug)]
pub(super) enum PlanCommand {
    /// List the experiments that squall brings with it, or those of a folder.
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Print an experiment's text: to read, or to begin one's own with.
    Show {
        /// Name or file of the plan.
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Run experiments and compare the results with the plan's statements.
    ///
    /// Prints what was measured and one table of statements. Exit status 1 if a statement does not
    /// hold and its plan does not explain why.
    Run(RunArgs),
    /// Join the results of shards, and judge them as `run` does.
    ///
    /// The exit status is 1 if a statement does not hold and its plan does not explain why, or if a run
    /// is missing.
    Merge(MergeArgs),
}

#[derive(Args, Debug)]
pub(super) struct Place {
    /// Folder of the plans that are called by name. Default: NAME.toml here, else what squall brings with it.
    #[arg(long, value_name = "FOLDER")]
    plans: Option<PathBuf>,
}

impl Place {
    /// Returns the path of a plan, of which `name` is the name or the file.
    fn find(&self, name: &str) -> PathBuf {
        let file = match (&self.plans, name.ends_with(".toml") || name.contains('/')) {
            (_, true) => PathBuf::from(name),
            (folder, false) => folder.clone().unwrap_or_default().join(format!("{name}.toml")),
        };
        match &self.plans {
            None if !file.exists() => shipped::plan(name).unwrap_or(file),
            _ => file,
        }
    }

    /// Returns the files of all plans that are called by name, sorted by name.
    fn all(&self) -> Result<Vec<PathBuf>, Failure> {
        self.plans.as_deref().map_or_else(|| Ok(shipped::plans()), plan_files)
    }
}

impl Form {
    /// Checks before the first run that this program can write what is asked for.
    fn check_formats(&self) -> Result<(), Failure> {
        if self.parquet { Table::check_parquet().map_err(Failure::usage) } else { Ok(()) }
    }
}

/// Options that select plans and their runs, and what is written of them.
#[derive(Args, Debug)]
struct Form {
    #[command(flatten)]
    place: Place,
    /// Run only plans that have a quick form, in that form.
    #[arg(long)]
    quick: bool,
    /// Run with these seeds instead of those of the plans.
    #[arg(long, value_delimiter = ',', value_name = "SEED,..")]
    seeds: Vec<u64>,
    /// Print only the table of statements.
    #[arg(short, long)]
    summary: bool,
    /// Write PLAN/runs.parquet and PLAN/flows.parquet beside the CSV files, if squall was built with the feature parquet.
    #[arg(long, requires = "out")]
    parquet: bool,
}

#[derive(Args, Debug)]
pub(super) struct MergeArgs {
    /// Folders that `run --shard K/N --out FOLDER` wrote.
    #[arg(required = true, value_name = "FOLDER")]
    from: Vec<PathBuf>,
    /// Plans by name or file. Default: all plans of which a shard has results.
    #[arg(long = "plan", value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    form: Form,
    /// Folder for the joined results, in which files are as those of `run --out`.
    #[arg(short, long, value_name = "FOLDER")]
    out: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Plans by name or file; all that `squall plan list` names if none is given.
    names: Vec<String>,
    #[command(flatten)]
    form: Form,
    /// Run the K-th of N parts alone, on one of N machines, and leave statements to `merge`.
    #[arg(long, value_name = "K/N", requires = "out")]
    shard: Option<Shard>,
    /// Folder for results: `PLAN/runs/*.json`, `PLAN/runs.csv`, `PLAN/flows.csv`, `report.html`, `statements.md`.
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Simulations at a time (default: the processors there are).
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,
    /// Draw no progress bar.
    #[arg(long)]
    quiet: bool,
}

pub(super) fn run(command: &PlanCommand, origin: &Origin) -> Result<u8, Failure> {
    match command {
        PlanCommand::List { place } => list(place),
        PlanCommand::Show { name, place } => show(&place.find(name)),
        PlanCommand::Run(args) => run_plans(args, origin),
        PlanCommand::Merge(args) => merge_plans(args),
    }
}

fn show(file: &Path) -> Result<u8, Failure> {
    let text = shipped::read_text(file).map_err(|error| {
        let what = "`squall plan list` shows the plans that come with squall";
        Failure::usage(format!("cannot read {}: {error}; {what}", file.display()))
    })?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}

fn list(place: &Place) -> Result<u8, Failure> {
    let mut rows = Vec::new();
    for file in place.all()? {
        let plan = Plan::read(&file, false).map_err(Failure::usage)?;
        let quick = if plan.quick { "quick" } else { "" };
        let row = [&plan.name, &plan.runs().to_string(), quick, &plan.title, &plan.source];
        rows.push(row.map(str::to_owned).to_vec());
    }
    let table = text::table(&["plan", "runs", "", "what", "source"], &rows);
    io::stdout().write_all(table.as_bytes())?;
    Ok(0)
}

/// Returns the plan files of a folder, sorted by name.
fn plan_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error| Failure::usage(format!("cannot read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the plans of these names, or all plans of the folder if there are no names.
fn plans(names: &[String], form: &Form) -> Result<Vec<Plan>, Failure> {
    let wanted = match names.is_empty() {
        true => form.place.all()?,
        false => names.iter().map(|name| form.place.find(name)).collect(),
    };
    let mut plans = Vec::new();
    for path in wanted {
        let mut plan = Plan::read(&path, form.quick).map_err(Failure::usage)?;
        if !form.seeds.is_empty() {
            plan.seeds.clone_from(&form.seeds);
        }
        if !form.quick || plan.quick {
            plans.push(plan);
        }
    }
    if plans.is_empty() {
        return Err(Failure::usage(
            "no plan to run; `squall plan list` shows the plans that come with squall",
        ));
    }
    Ok(plans)
}

/// The reports, verdicts and statements of the plans that were run so far.
struct Account {
    documents: Vec<Document>,
    verdicts: Vec<Verdict>,
    list: String,
}

impl Account {
    fn new() -> Self {
        Self { documents: Vec::new(), verdicts: Vec::new(), list: String::from(LIST_HEAD) }
    }

    /// Judges the statements of a plan by its runs. If the runs are not `complete`, a statement
    /// that fails counts as not run.
    fn add(&mut self, plan: &Plan, runs: &[Run], complete: bool) {
        let mut judged = judge(plan, runs);
        if !complete {
            // A statement may fail only because a run is missing.
            for verdict in judged.iter_mut().filter(|verdict| verdict.pass == Some(false)) {
                verdict.pass = None;
            }
        }
        self.documents.push(document(plan, runs, &judged));
        judged.iter().for_each(|verdict| self.list.push_str(&list_row(&plan.name, verdict)));
        self.verdicts.extend(judged);
    }

    /// Prints the verdicts on all statements, and writes the report and the list of statements if
    /// `out` is set. Returns whether a statement failed.
    fn close(mut self, out: Option<&Path>) -> Result<bool, Failure> {
        statements(&self.verdicts)?;
        if let Some(out) = out {
            let summary = Document {
                title: "What was expected, and what came out".to_owned(),
                tables: vec![from_verdicts("Statements", &self.verdicts)],
                ..Document::default()
            };
            self.documents.insert(0, summary);
            write_report(&out.join("report.html"), "Experiments", &self.documents)?;
            files::write_whole(&out.join("statements.md"), |to| {
                to.write_all(self.list.as_bytes())
            })?;
        }
        Ok(self.verdicts.iter().any(|verdict| verdict.word() == "FAIL"))
    }
}

fn run_plans(args: &RunArgs, origin: &Origin) -> Result<u8, Failure> {
    args.form.check_formats()?;
    let plans = plans(&args.names, &args.form)?;
    let stop = interrupts()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let threads = args.threads.unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
    });
    let mut account = Account::new();
    for plan in &plans {
        let out = args.out.as_ref().map(|out| out.join(&plan.name));
        let share = args.shard.map_or(plan.runs(), |shard| shard.share(plan.runs()));
        let bar = Bar::new(share, args.quiet);
        let options = RunOptions {
            shard: args.shard,
            threads,
            out,
            parquet: args.form.parquet,
            origin: origin.clone(),
        };
        let (runs, error) = run_plan(plan, &options, &stop, &bar);
        bar.clear();
        if !args.form.summary {
            print(plan, &runs)?;
        }
        if args.shard.is_none() {
            account.add(plan, &runs, !stopped() && error.is_none());
        }
        if let Some(error) = error {
            // Print and keep the results that were measured before the error.
            statements(&account.verdicts)?;
            return Err(match error {
                RunnerError::Plan(error) => Failure::usage(error),
                RunnerError::File(error) => error.into(),
            });
        }
        if stopped() {
            break;
        }
    }
    // A shard has only a part of the runs, so its statements cannot be judged.
    let failed = args.shard.is_none() && account.close(args.out.as_deref())?;
    if stopped() {
        return Ok(130);
    }
    Ok(u8::from(failed))
}

fn merge_plans(args: &MergeArgs) -> Result<u8, Failure> {
    args.form.check_formats()?;
    if let Some(missing) = args.from.iter().find(|folder| !folder.is_dir()) {
        let what = format!(
            "{}: there is no such folder; give the --out folder of each `squall plan run --shard`",
            missing.display()
        );
        return Err(Failure::usage(what));
    }
    let left = |plan: &Plan| {
        let folders = args.from.iter().map(|from| from.join(&plan.name).join("runs"));
        folders.filter(|folder| folder.is_dir()).collect::<Vec<_>>()
    };
    let mut plans = plans(&args.names, &args.form)?;
    if args.names.is_empty() {
        plans.retain(|plan| !left(plan).is_empty());
    }
    if plans.is_empty() {
        return Err(Failure::usage(
            "none of the folders has runs of a plan; give the --out folder of each shard",
        ));
    }
    let (mut account, mut lacking) = (Account::new(), false);
    for plan in &plans {
        let mut runs = Vec::new();
        for folder in left(plan) {
            runs.extend(files::read_runs(&folder).map_err(Failure::usage)?);
        }
        let (runs, missing) = merge(plan, runs);
        if let Some(first) = missing.first() {
            let (count, all) = (missing.len(), plan.runs());
            let name = &plan.name;
            writeln!(
                io::stderr(),
                "squall: {name}: {count} of {all} runs are missing, such as {first}"
            )?;
        }
        lacking |= !missing.is_empty();
        write_runs(&args.out.join(&plan.name), &runs, args.form.parquet)?;
        if !args.form.summary {
            print(plan, &runs)?;
        }
        account.add(plan, &runs, missing.is_empty());
    }
    Ok(u8::from(account.close(Some(&args.out))? || lacking))
}

fn metrics(plan: &Plan) -> Vec<Metric> {
    let default = ["max_fct", "mean_fct", "spread", "over_ideal", "retransmitted"];
    match plan.metrics.is_empty() {
        true => default.iter().filter_map(|name| name.parse().ok()).collect(),
        false => plan.metrics.clone(),
    }
}

fn print(plan: &Plan, runs: &[Run]) -> Result<(), Failure> {
    let mut to = io::stdout().lock();
    writeln!(to, "{}: {}", plan.name, plan.title)?;
    writeln!(to, "{}", text::runs(runs, &metrics(plan)))?;
    for run in runs.iter().filter(|run| run.unfinished() > 0 || run.stopped.is_some()) {
        let why = run.stopped.as_deref().unwrap_or("");
        write!(to, "{}: {why}\n{}", run.name, text::unfinished(run))?;
    }
    Ok(())
}

fn document(plan: &Plan, runs: &[Run], verdicts: &[Verdict]) -> Document {
    let mut about = vec![plan.source.clone(), plan.scaled.clone()];
    about.retain(|words| !words.is_empty());
    let mut document = from_runs(&plan.title, &about, runs, &metrics(plan));
    document.tables.insert(0, from_verdicts("Statements", verdicts));
    document
}

/// First lines of the table of statements, in Markdown.
const LIST_HEAD: &str =
    "| plan | statement | source | expected | measured | verdict |\n|---|---|---|---|---|---|\n";

/// Returns a statement and its verdict as a row of the table of statements.
fn list_row(plan: &str, verdict: &Verdict) -> String {
    let why = match (verdict.word(), &verdict.explained) {
        ("explained", Some(why)) => format!(": {why}"),
        _ => String::new(),
    };
    let words = [plan, &verdict.statement, &verdict.source, &verdict.expected, &verdict.measured];
    let cells: Vec<String> = words.iter().map(|word| word.replace('|', "\\|")).collect();
    format!("| {} | {}{} |\n", cells.join(" | "), verdict.word(), why.replace('|', "\\|"))
}

fn statements(verdicts: &[Verdict]) -> Result<(), Failure> {
    let table = from_verdicts("", verdicts);
    let head: Vec<&str> = table.head.iter().map(String::as_str).collect();
    let mut to = io::stdout().lock();
    to.write_all(text::table(&head, &table.rows).as_bytes())?;
    let count = |word: &str| verdicts.iter().filter(|verdict| verdict.word() == word).count();
    writeln!(
        to,
        "{} passed, {} failed, {} explained, {} not run",
        count("pass"),
        count("FAIL"),
        count("explained"),
        count("not run")
    )?;
    Ok(())
}
