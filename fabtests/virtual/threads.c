/*
 * An MPI program whose threads compute, poll or sleep beside each other, for virtual time.
 *
 *   threads HOW [SECONDS [THREADS]]
 *
 * HOW is join      rank 0 waits in pthread_join for THREADS threads, each of which computes for SECONDS
 *        beside    rank 0 and THREADS threads compute for SECONDS each
 *        polls     rank 0 computes for SECONDS while a second thread calls MPI_Test in a loop
 *        sleeps    rank 0 computes for SECONDS while a second thread sleeps 0.1 s at a time, in a loop
 *        helps     rank 0 waits in pthread_join for a thread that sleeps for SECONDS and calls nothing else
 *        sends     THREADS threads of rank 0 compute for SECONDS each and then send
 *        test      rank 0 calls MPI_Test for SECONDS of its clock, ten times
 *        spawn     the ranks start two more by MPI_Comm_spawn, and all meet in a barrier
 *
 * Rank 0 prints the time of its clock from one barrier to the next.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, LAST = 77, SENT = 78 };

static double seconds = 0.1;
static volatile int stopped;

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void compute(void)
{
	double begin = cpu_time();

	while (cpu_time() - begin < seconds)
		for (volatile int i = 0; i < 2000; i++)
			;
}

static void *computes(void *unused)
{
	compute();
	return unused;
}

static void *polls(void *unused)
{
	MPI_Request request;
	char byte;
	int done = 0;

	MPI_Irecv(&byte, 1, MPI_CHAR, 1, LAST, MPI_COMM_WORLD, &request);
	while (!done)
		MPI_Test(&request, &done, MPI_STATUS_IGNORE);
	return unused;
}

static void *sleeps(void *unused)
{
	while (!stopped)
		usleep(100000);
	return unused;
}

static void *helps(void *unused)
{
	usleep((unsigned)(1e6 * seconds));
	return unused;
}

static void *sends(void *unused)
{
	char byte = 1;

	compute();
	MPI_Send(&byte, 1, MPI_CHAR, 1, SENT, MPI_COMM_WORLD);
	return unused;
}

static void test(void)
{
	MPI_Request request;
	char byte = 1;
	int done = 0;

	MPI_Irecv(&byte, 1, MPI_CHAR, 1, LAST, MPI_COMM_WORLD, &request);
	for (int round = 0; round < 10; round++) {
		double begin = MPI_Wtime();
		while (!done && MPI_Wtime() - begin < seconds)
			MPI_Test(&request, &done, MPI_STATUS_IGNORE);
	}
	MPI_Cancel(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int spawn(char *program, int rank)
{
	MPI_Comm parent, children;
	char *words[] = {"spawn", NULL};

	MPI_Comm_get_parent(&parent);
	if (parent != MPI_COMM_NULL) {
		MPI_Barrier(parent);
	} else {
		MPI_Comm_spawn(program, words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
		MPI_Barrier(children);
		if (rank == 0)
			printf("threads: the spawned ranks were in the barrier\n");
	}
	MPI_Finalize();
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "join";
	int count = argc > 3 ? atoi(argv[3]) : 1;
	int rank, level;
	char byte = 1;
	double begin;
	pthread_t threads[MOST];
	void *(*work)(void *) = strcmp(how, "polls") == 0    ? polls
				: strcmp(how, "sleeps") == 0 ? sleeps
				: strcmp(how, "helps") == 0  ? helps
				: strcmp(how, "sends") == 0  ? sends
							     : computes;

	if (argc > 2)
		seconds = atof(argv[2]);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (strcmp(how, "spawn") == 0)
		return spawn(argv[0], rank);
	if (count < 1 || count > MOST || level < MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "threads: 1 to %d threads, and an MPI that allows them\n", MOST);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	if (rank == 0 && strcmp(how, "test") == 0) {
		test();
	} else if (rank == 0) {
		for (int i = 0; i < count; i++)
			pthread_create(&threads[i], NULL, work, NULL);
		if (work == polls || work == sleeps || strcmp(how, "beside") == 0)
			compute();
		for (int i = 0; i < count && (work == computes || work == helps || work == sends); i++)
			pthread_join(threads[i], NULL);
	}
	if (rank == 1 && work == sends)
		for (int i = 0; i < count; i++)
			MPI_Recv(&byte, 1, MPI_CHAR, 0, SENT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("threads: %s: %.6f s between two barriers\n", how, MPI_Wtime() - begin);
	fflush(stdout);
	stopped = 1;
	if (rank == 1 && work == polls)
		MPI_Send(&byte, 1, MPI_CHAR, 0, LAST, MPI_COMM_WORLD);
	if (rank == 0 && (work == polls || work == sleeps))
		pthread_join(threads[0], NULL);
	MPI_Finalize();
	return 0;
}
