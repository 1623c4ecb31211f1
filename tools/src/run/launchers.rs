//! The known launchers of jobs: the MPIs, which are recognised by the output of `mpiexec --version`,
//! with the variables that each needs; and those of Slurm and PRRTE.

use std::path::Path;
use std::process::Command;

use crate::doctor::environment::output;

/// Name and value of an environment variable.
pub(crate) type Setting = (&'static str, &'static str);

/// An MPI, recognised by its launcher.
pub(crate) struct Launcher {
    pub(crate) name: &'static str,
    /// Word for the MPI on the command line: `squall env --mpi mpich`.
    pub(crate) key: &'static str,
    /// Texts of which at least one occurs in the output of `mpiexec --version`.
    says: &'static [&'static str],
    /// Variables that make the MPI use squall. docs/hosts.md lists the same.
    pub(crate) needs: &'static [Setting],
    /// Further variables that send all messages through squall, also those between ranks of one
    /// host.
    pub(crate) alone: &'static [Setting],
    /// True if the launcher passes variables to other hosts only where an option `-x NAME` names
    /// them.
    pub(crate) by_option: bool,
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
        key: "intelmpi",
        says: &["Intel(R) MPI"],
        needs: &[("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "squall")],
        // Otherwise, collectives inside a host go through shared memory and bypass the emulator.
        alone: &[("I_MPI_COLL_INTRANODE", "pt2pt")],
        by_option: false,
    },
    Launcher {
        name: "MPICH",
        key: "mpich",
        says: &["HYDRA"],
        needs: &[("MPIR_CVAR_CH4_NETMOD", "ofi")],
        alone: &[("MPIR_CVAR_NOLOCAL", "1")],
        by_option: false,
    },
    Launcher {
        name: "Open MPI 4",
        key: "openmpi4",
        says: &["(Open MPI) 4", "(OpenRTE) 4"],
        needs: OPEN_MPI,
        alone: &[
            ("OMPI_MCA_opal_common_ofi_provider_include", "squall"),
            ("OMPI_MCA_btl", "self"),
            ("OMPI_MCA_osc", "pt2pt"),
            ("OMPI_MCA_coll", "^sm,hcoll"),
        ],
        by_option: true,
    },
    // The launcher of Open MPI 5 is PRRTE's, whose output may not mention Open MPI.
    Launcher {
        name: "Open MPI 5",
        key: "openmpi5",
        says: &["Open MPI", "prterun", "PRRTE"],
        needs: OPEN_MPI,
        alone: &[
            ("OMPI_MCA_opal_common_ofi_provider_include", "squall"),
            ("OMPI_MCA_btl", "self,ofi"),
            ("OMPI_MCA_osc", "^sm,ucx"),
            ("OMPI_MCA_coll", "^sm,xhc,acoll,ucc,hcoll,han"),
        ],
        by_option: true,
    },
];

/// Names of programs that launch MPI jobs, without the suffixes that distributions append.
const PROGRAMS: &[&str] = &["mpiexec", "mpirun", "orterun", "prterun", "prun"];
/// Slurm's launcher, which starts ranks of any MPI.
const SLURM: &str = "srun";

/// Suffixes of scripts. They are not launchers, whatever their names, and must not be run to ask for
/// their version.
const SCRIPTS: &[&str] = &[".sh", ".bash", ".csh", ".py", ".pl"];

/// Program that starts the processes of a job.
#[derive(Clone, Copy)]
pub(crate) enum Starter {
    /// The launcher of a known MPI.
    Mpi(&'static Launcher),
    /// Slurm. The MPI of the ranks is unknown.
    Slurm,
    /// A program that is no launcher: one that uses libfabric itself, or a script that starts a job.
    Program,
}

impl Starter {
    /// Returns the MPIs that the processes may use.
    pub(crate) fn mpis(&self) -> &'static [Launcher] {
        match self {
            Self::Mpi(launcher) => core::slice::from_ref(*launcher),
            Self::Slurm | Self::Program => LAUNCHERS,
        }
    }

    /// Recognises what a command starts a job with.
    ///
    /// # Errors
    /// The program has the name of a launcher, and its version output is that of no known MPI.
    pub(crate) fn of(program: &Path) -> Result<Self, String> {
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if SCRIPTS.iter().any(|suffix| name.ends_with(suffix)) {
            return Ok(Self::Program);
        }
        let name = name.split(['.', '-']).next().unwrap_or_default();
        if name == SLURM {
            return Ok(Self::Slurm);
        }
        if !PROGRAMS.contains(&name) {
            return Ok(Self::Program);
        }
        let text = version_output(program).unwrap_or_default();
        recognise(&text).map(Self::Mpi).ok_or_else(|| {
            let known: Vec<&str> = LAUNCHERS.iter().map(|launcher| launcher.name).collect();
            format!(
                "{}: unknown launcher: its --version prints '{}', expected one of {}; start it without squall run, with the \
                 variables that squall env prints",
                program.display(),
                text.lines().next().unwrap_or_default(),
                known.join(", ")
            )
        })
    }
}

/// Returns the version output of a launcher.
pub(crate) fn version_output(program: &Path) -> Option<String> {
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
        for debian in ["mpirun (Open MPI) 4.1.4", "mpiexec.openmpi (OpenRTE) 4.1.4"] {
            assert_eq!(btl(debian), ("Open MPI 4", Some("self")));
        }
        assert_eq!(btl("mpirun (Open MPI) 5.0.11"), ("Open MPI 5", Some("self,ofi")));
        assert_eq!(btl("prterun (PRRTE) 3.0"), ("Open MPI 5", Some("self,ofi")));
        assert_eq!(btl("prun (PRRTE) 3.0"), ("Open MPI 5", Some("self,ofi")));
        assert!(recognise("slurm 22.05").is_none());
    }

    #[test]
    fn programs_that_are_no_launchers_are_not_run() {
        let of = |program: &str| Starter::of(Path::new(program));
        assert!(matches!(of("./job.sh"), Ok(Starter::Program)));
        assert!(matches!(of("./mpirun.sh"), Ok(Starter::Program)));
        assert!(matches!(of("/usr/bin/srun"), Ok(Starter::Slurm)));
        let unknown = of("/no/such/mpiexec.openmpi").err().unwrap_or_default();
        assert!(unknown.starts_with("/no/such/mpiexec.openmpi: unknown launcher"), "{unknown}");
        assert!(unknown.contains("expected one of Intel MPI, MPICH, Open MPI 4"), "{unknown}");
    }
}
