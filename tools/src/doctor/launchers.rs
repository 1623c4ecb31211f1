//! Checks the MPIs in PATH, and the variables that each needs to use squall.

use std::path::Path;

use super::environment::variable;
use super::finding::Finding;
use crate::run::launchers::{recognise, version_output};

/// Returns the variables that a launcher needs and that are not set. `text` is the launcher's
/// version output.
fn judge(text: &str, set: impl Fn(&str) -> Option<String>) -> Option<Finding> {
    let launcher = recognise(text)?;
    let missing: Vec<String> = launcher
        .required
        .iter()
        .filter(|(name, value)| set(name).as_deref() != Some(value))
        .map(|(name, value)| format!("export {name}={value}"))
        .collect();
    Some(if missing.is_empty() {
        Finding::well(format!("{} is set to use squall", launcher.name))
    } else {
        let what =
            format!("{} may not use squall: the environment lacks its variables", launcher.name);
        Finding::note(what, missing.join("\n"))
    })
}

/// Checks the MPI launchers in PATH.
pub(super) fn check() -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for text in
        ["mpiexec", "mpirun"].into_iter().filter_map(|program| version_output(Path::new(program)))
    {
        findings.extend(judge(&text, variable).filter(|finding| !findings.contains(finding)));
    }
    if findings.is_empty() {
        findings.push(Finding::note(
            "no MPI can be checked: no mpiexec of MPICH, Intel MPI or Open MPI is in PATH",
            "if another program starts jobs, give them the variables that `squall env --mpi NAME` prints",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;
    use crate::run::launchers::MPI_IMPLEMENTATIONS;

    #[test]
    fn the_page_about_hosts_asks_for_the_same() {
        let page = include_str!("../../../docs/hosts.md");
        for (name, value) in MPI_IMPLEMENTATIONS.iter().flat_map(|launcher| launcher.required) {
            assert!(page.contains(&format!("{name}={value}")), "{name}={value}");
        }
    }

    #[test]
    fn each_mpi_is_known_by_its_words() {
        let none = |_: &str| None;
        let mpich = judge("HYDRA build details:\n    Version: 5.0", none).expect("known");
        assert_eq!(mpich.cure.as_deref(), Some("export MPIR_CVAR_CH4_NETMOD=ofi"));
        let intel = judge("Intel(R) MPI Library for Linux, 2021.18 .. HYDRA", none).expect("known");
        assert!(intel.what.starts_with("Intel MPI"), "{intel}");
        let ompi = judge("mpirun (Open MPI) 4.1.4", |name| {
            Some(if name == "OMPI_MCA_mtl" { "psm2" } else { "cm" }.to_owned())
        });
        let cure = ompi.expect("known").cure.expect("two are wrong");
        assert_eq!(cure.lines().count(), 2, "{cure}");
        let set =
            |name: &str| Some(if name.ends_with("include") { "squall" } else { "ofi" }.to_owned());
        let set =
            |name: &str| if name == "OMPI_MCA_pml" { Some("cm".to_owned()) } else { set(name) };
        assert_eq!(
            judge("prterun (PRRTE) 3.0", set).map(|finding| finding.level),
            Some(Level::Well)
        );
        assert_eq!(judge("slurm 22.05", none), None);
    }
}
