//! The known launchers of jobs, and the known MPI implementations with the environment variables that
//! each needs. The output of `mpiexec --version` shows which MPI a launcher belongs to.

use std::path::Path;
use std::process::Command;

use crate::doctor::environment::output;

/// Name and value of an environment variable.
pub(crate) type Setting = (&'static str, &'static str);

/// An MPI implementation, recognised by the version output of its launcher.
pub(crate) struct MpiImplementation {
    pub(crate) name: &'static str,
    /// Word for the MPI on the command line: `squall env --mpi mpich`.
    pub(crate) key: &'static str,
    /// Texts of which the output of `mpiexec --version` contains at least one.
    version_words: &'static [&'static str],
    /// Variables that make the MPI use squall. docs/hosts.md lists the same.
    pub(crate) required: &'static [Setting],
    /// Variables that make the MPI faster with squall. The user's values take precedence.
    pub(crate) preferred: &'static [Setting],
    /// Further variables that send all messages through squall, including those between ranks of
    /// one host.
    pub(crate) for_all_messages: &'static [Setting],
    /// True if the MPI's own clock is the processor's time-stamp counter.
    pub(crate) reads_counter: bool,
    /// True if the launcher passes only those variables to other hosts that an option `-x NAME`
    /// names.
    pub(crate) exports_by_option: bool,
}

const OPEN_MPI: &[Setting] = &[
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", "squall"),
];

/// Open MPI gives the processor away at every empty poll when ranks outnumber cores. Squall does so
/// when another thread wants the processor, and sleeps instead while others compute.
const OPEN_MPI_PREFERRED: &[Setting] = &[("OMPI_MCA_mpi_yield_when_idle", "0")];

/// The known MPI implementations. Intel MPI comes before MPICH, because its output contains HYDRA, too.
pub(crate) const MPI_IMPLEMENTATIONS: &[MpiImplementation] = &[
    MpiImplementation {
        name: "Intel MPI",
        key: "intelmpi",
        version_words: &["Intel(R) MPI"],
        required: &[("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "squall")],
        preferred: &[],
        // Otherwise, collectives inside a host go through shared memory and bypass the emulator.
        for_all_messages: &[("I_MPI_COLL_INTRANODE", "pt2pt")],
        reads_counter: true,
        exports_by_option: false,
    },
    MpiImplementation {
        name: "MPICH",
        key: "mpich",
        version_words: &["HYDRA"],
        required: &[("MPIR_CVAR_CH4_NETMOD", "ofi")],
        preferred: &[],
        for_all_messages: &[("MPIR_CVAR_NOLOCAL", "1")],
        reads_counter: false,
        exports_by_option: false,
    },
    MpiImplementation {
        name: "Open MPI 4",
        key: "openmpi4",
        version_words: &["(Open MPI) 4", "(OpenRTE) 4"],
        required: OPEN_MPI,
        preferred: OPEN_MPI_PREFERRED,
        for_all_messages: &[
            ("OMPI_MCA_opal_common_ofi_provider_include", "squall"),
            ("OMPI_MCA_btl", "self"),
            ("OMPI_MCA_osc", "pt2pt"),
            ("OMPI_MCA_coll", "^sm,hcoll"),
        ],
        reads_counter: true,
        exports_by_option: true,
    },
    // The launcher of Open MPI 5 is PRRTE's, whose output may not mention Open MPI.
    MpiImplementation {
        name: "Open MPI 5",
        key: "openmpi5",
        version_words: &["Open MPI", "prterun", "PRRTE"],
        required: OPEN_MPI,
        preferred: OPEN_MPI_PREFERRED,
        for_all_messages: &[
            ("OMPI_MCA_opal_common_ofi_provider_include", "squall"),
            ("OMPI_MCA_btl", "self,ofi"),
            ("OMPI_MCA_osc", "^sm,ucx"),
            ("OMPI_MCA_coll", "^sm,xhc,acoll,ucc,hcoll,han"),
        ],
        reads_counter: false,
        exports_by_option: true,
    },
];

/// Names of programs that launch MPI jobs, without the suffixes that distributions append.
const PROGRAMS: &[&str] = &["mpiexec", "mpirun", "orterun", "prterun", "prun"];
/// Slurm's launcher `srun`, which starts ranks of any MPI.
const SLURM: &str = "srun";

/// Suffixes of scripts. They are not launchers, whatever their names, and must not be run to ask for
/// their version.
const SCRIPTS: &[&str] = &[".sh", ".bash", ".csh", ".py", ".pl"];

/// The program that starts the processes of a job.
#[derive(Clone, Copy)]
pub(crate) enum Launcher {
    /// The launcher of a known MPI implementation.
    Mpi(&'static MpiImplementation),
    /// Slurm. The MPI of the ranks is unknown.
    Slurm,
    /// A program that is no launcher: one that uses libfabric itself, or a script that starts a job.
    Program,
}

impl Launcher {
    /// Returns the MPIs that the processes of the job may use.
    pub(crate) fn mpis(&self) -> &'static [MpiImplementation] {
        match self {
            Self::Mpi(mpi) => core::slice::from_ref(*mpi),
            Self::Slurm | Self::Program => MPI_IMPLEMENTATIONS,
        }
    }

    /// Recognises the launcher of a command by its file name and its version output.
    ///
    /// # Errors
    /// The program has the name of a launcher, but its version output matches no known MPI.
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
            let known: Vec<&str> = MPI_IMPLEMENTATIONS.iter().map(|mpi| mpi.name).collect();
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

/// Returns what a launcher prints for `--version`.
pub(crate) fn version_output(program: &Path) -> Option<String> {
    let output = output(Command::new(program).arg("--version"))?;
    Some(format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Returns the MPI whose launcher prints this text for `--version`.
pub(crate) fn recognise(text: &str) -> Option<&'static MpiImplementation> {
    MPI_IMPLEMENTATIONS
        .iter()
        .find(|mpi| mpi.version_words.iter().any(|words| text.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mpi_is_known_by_its_words() {
        let btl = |text: &str| {
            let mpi = recognise(text).expect(text);
            let btl = mpi.for_all_messages.iter().find(|(name, _)| *name == "OMPI_MCA_btl");
            (mpi.name, btl.map(|(_, value)| *value))
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
        let of = |program: &str| Launcher::of(Path::new(program));
        assert!(matches!(of("./job.sh"), Ok(Launcher::Program)));
        assert!(matches!(of("./mpirun.sh"), Ok(Launcher::Program)));
        assert!(matches!(of("/usr/bin/srun"), Ok(Launcher::Slurm)));
        let unknown = of("/no/such/mpiexec.openmpi").err().unwrap_or_default();
        assert!(unknown.starts_with("/no/such/mpiexec.openmpi: unknown launcher"), "{unknown}");
        assert!(unknown.contains("expected one of Intel MPI, MPICH, Open MPI 4"), "{unknown}");
    }
}
