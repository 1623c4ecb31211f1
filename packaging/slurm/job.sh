#!/bin/sh
# Slurm job on squall, under an MPI that srun starts: Open MPI by PMIx, MPICH by PMI-2.
#   sbatch --nodes=2 --ntasks-per-node=2 job.sh [PROGRAM ARGUMENT ..]
#SBATCH --job-name=squall
#SBATCH --time=00:10:00

# squall run sets what the MPIs need, and srun hands it to all ranks. SQUALL_MPI is srun's --mpi.
if [ $# -eq 0 ]; then
    set -- python3 -m mpi4py.bench ringtest
fi
exec squall run --require -- srun --mpi="${SQUALL_MPI:-pmix}" "$@"
