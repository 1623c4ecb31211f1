/*
 * Threads that use one MPI at once (MPI_THREAD_MULTIPLE), as MPICH's own thread tests do.
 *
 *   mpiexec -n 2 mpi_threads rma THREADS LOOPS       every thread of every rank writes an int to rank 0 and flushes
 *                                                    (the pattern of threads/rma/multirma)
 *   mpiexec -n 2 mpi_threads huge THREADS LOOPS      threads of two ranks exchange messages of 10 MiB, each with its tag
 *                                                    (the pattern of threads/pt2pt/mt_sendrecv_huge), and compare them
 *
 * Prints one line, `mpi_threads: SECONDS`, from when all are ready until all are done.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

enum { MOST_THREADS = 64, HUGE = 10 << 20 };

static int rank, loops, huge;
static MPI_Win win;

static void writes(void)
{
	for (int i = 0; i < loops; i++) {
		MPI_Put(&i, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
		MPI_Win_flush(0, win);
	}
}

/* A word that depends on its place, its message and its thread. */
static uint64_t word_at(size_t at, int turn, int thread)
{
	return (at + 1) * 0x9E3779B97F4A7C15u + (uint64_t)(turn * MOST_THREADS + thread) * 0xBF58476D1CE4E5B9u;
}

static void exchanges(int thread)
{
	size_t words = HUGE / sizeof(uint64_t);
	uint64_t *mine = malloc(HUGE);

	for (int turn = 0; turn < loops; turn++) {
		/* One direction and then the other. */
		if (rank == turn % 2) {
			for (size_t i = 0; i < words; i += 512)
				mine[i] = word_at(i, turn, thread);
			MPI_Send(mine, HUGE, MPI_BYTE, !rank, thread, MPI_COMM_WORLD);
			continue;
		}
		MPI_Recv(mine, HUGE, MPI_BYTE, !rank, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < words; i += 512)
			if (mine[i] != word_at(i, turn, thread)) {
				fprintf(stderr, "mpi_threads: message %d of thread %d is wrong at %zu\n", turn, thread, i * 8);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
	}
	free(mine);
}

static void *work(void *number)
{
	if (huge)
		exchanges((int)(intptr_t)number);
	else
		writes();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST_THREADS];
	int count, provided;
	char *memory;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	if (argc != 4 || provided != MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "usage: mpi_threads rma|huge THREADS LOOPS, with an MPI that is safe for threads\n");
		return 2;
	}
	huge = !strcmp(argv[1], "huge");
	count = atoi(argv[2]);
	loops = atoi(argv[3]);
	if (count < 1 || count > MOST_THREADS)
		return 2;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_lock_all(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = MPI_Wtime();
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i))
			MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	double seconds = MPI_Wtime() - begin;
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	if (rank == 0)
		printf("mpi_threads: %.6g\n", seconds);
	MPI_Finalize();
	return 0;
}
