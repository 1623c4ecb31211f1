//! Shell completions and manual pages, generated from the definition of the options.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use super::{Args, Failure};
use squall_netsim::output::files::write_whole;

pub(super) fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    // Generate into memory first: the generator panics when standard output is closed.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "squall", &mut text);
    io::Write::write_all(&mut io::stdout(), &text)?;
    Ok(0)
}

pub(super) fn manual(folder: &Path) -> Result<u8, Failure> {
    let mut command = Args::command();
    command.build();
    page(folder, "squall", &command)?;
    Ok(0)
}

/// Writes the manual page of a command and those of its subcommands.
fn page(folder: &Path, name: &str, command: &clap::Command) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    let page = clap_mangen::Man::new(command.clone().display_name(name.to_owned()));
    write_whole(&path, |to| page.render(to))?;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        self::page(folder, &format!("{name}-{}", below.get_name()), below)?;
    }
    Ok(())
}
