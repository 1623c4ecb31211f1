#!/bin/sh
# Slurm job on squall, under an MPI that srun starts: Open MPI by PMIx, MPICH by PMI-2.
#   sbatch --nodes=2 --ntasks-per-node=2 job.sh [PROGRAM ARGUMENT ..]
#SBATCH --job-name=squall
#SBATCH --time=00:10:00

# Squall reads these; ranks inherit them from this shell.
export FI_PROVIDER=squall
# Where squall is not installed in libfabric's own directory:
#export FI_PROVIDER_PATH=/opt/squall-0.2.0/lib/squall

# Open MPI. Version 4.1 needs the last line for one-sided communication, which version 5 refuses.
export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_provider_include=squall
#export OMPI_MCA_osc=pt2pt
# MPICH.
export MPIR_CVAR_CH4_NETMOD=ofi

if [ $# -eq 0 ]; then
    set -- python3 -m mpi4py.bench ringtest
fi
exec srun --mpi="${SQUALL_MPI:-pmix}" "$@"
