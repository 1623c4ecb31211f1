//! The known MPIs, which are recognised by their launchers' version output, and the variables that
//! each needs.

use std::path::Path;
use std::process::Command;

use crate::doctor::environment::output;

/// Name and value of an environment variable.
pub(crate) type Setting = (&'static str, &'static str);

/// An MPI, recognised by its launcher.
pub(crate) struct Launcher {
    pub(crate) name: &'static str,
    /// Texts of which at least one occurs in the output of `mpiexec --version`.
    says: &'static [&'static str],
    /// Variables that make the MPI use squall. The README lists the same.
    pub(crate) needs: &'static [Setting],
    /// Further variables that send all messages through squall, also those between ranks of one
    /// host.
    pub(crate) alone: &'static [Setting],
}

const OPEN_MPI: &[Setting] = &[
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", "squall"),
];

/// Intel MPI comes before MPICH, because its output contains HYDRA, too.
pub(crate) const LAUNCHERS: &[Launcher] = &[
    Launcher {
        name: "Intel MPI",
        says: &["Intel(R) MPI"],
        needs: &[("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "squall")],
        // Otherwise, collectives inside a host go through shared memory and bypass the emulator.
        alone: &[("I_MPI_COLL_INTRANODE", "pt2pt")],
    },
    Launcher {
        name: "MPICH",
        says: &["HYDRA"],
        needs: &[("MPIR_CVAR_CH4_NETMOD", "ofi")],
        alone: &[("MPIR_CVAR_NOLOCAL", "1")],
    },
    Launcher {
        name: "Open MPI",
        says: &["(Open MPI) 4"],
        needs: OPEN_MPI,
        alone: &[
            ("OMPI_MCA_opal_common_ofi_provider_include", "squall"),
            ("OMPI_MCA_btl", "self"),
            ("OMPI_MCA_osc", "pt2pt"),
            ("OMPI_MCA_coll", "^sm,hcoll"),
        ],
    },
    // The launcher of Open MPI 5 is PRRTE's, whose output may not mention Open MPI.
    Launcher {
        name: "Open MPI",
        says: &["Open MPI", "prterun"],
        needs: OPEN_MPI,
        alone: &[
            ("OMPI_MCA_opal_common_ofi_provider_include", "squall"),
            ("OMPI_MCA_btl", "self,ofi"),
            ("OMPI_MCA_osc", "^sm,ucx"),
            ("OMPI_MCA_coll", "^sm,xhc,acoll,ucc,hcoll,han"),
        ],
    },
];

/// Names of programs that launch MPI jobs, without the suffixes that distributions append.
const PROGRAMS: &[&str] = &["mpiexec", "mpirun", "orterun", "prterun"];

/// Returns the version output of a launcher.
pub(crate) fn says(program: &Path) -> Option<String> {
    let output = output(Command::new(program).arg("--version"))?;
    Some(format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Returns the MPI whose launcher prints this text.
pub(crate) fn recognise(text: &str) -> Option<&'static Launcher> {
    LAUNCHERS.iter().find(|launcher| launcher.says.iter().any(|words| text.contains(words)))
}

/// Returns the MPI whose launcher the command is. Returns `None` for a program without a launcher's
/// name, which is not run at all.
pub(crate) fn launcher_of(program: &Path) -> Option<&'static Launcher> {
    let name = program.file_name()?.to_str()?;
    let called = PROGRAMS.iter().any(|known| name.split(['.', '-']).next() == Some(known));
    if called { recognise(&says(program)?) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mpi_is_known_by_its_words() {
        let btl = |text: &str| {
            let launcher = recognise(text).expect(text);
            let btl = launcher.alone.iter().find(|(name, _)| *name == "OMPI_MCA_btl");
            (launcher.name, btl.map(|(_, value)| *value))
        };
        assert_eq!(btl("HYDRA build details:\n    Version: 5.0"), ("MPICH", None));
        let intel = "Intel(R) MPI Library for Linux, 2021.18 .. HYDRA";
        assert_eq!(btl(intel), ("Intel MPI", None));
        assert_eq!(btl("mpirun (Open MPI) 4.1.4"), ("Open MPI", Some("self")));
        assert_eq!(btl("mpirun (Open MPI) 5.0.11"), ("Open MPI", Some("self,ofi")));
        assert_eq!(btl("prterun (PRRTE) 3.0"), ("Open MPI", Some("self,ofi")));
        assert!(recognise("slurm 22.05").is_none());
    }

    #[test]
    fn programs_that_are_no_launchers_are_not_run() {
        assert!(launcher_of(Path::new("./job.sh")).is_none());
        assert!(launcher_of(Path::new("/no/such/mpiexec.openmpi")).is_none());
    }
}
