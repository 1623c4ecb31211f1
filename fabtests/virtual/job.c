/*
 * Small MPI jobs for virtual time.
 *
 *   job allreduce|alltoall|bcast|barrier BYTES ROUNDS   that many collectives; checks the last one's result
 *   job compute SECONDS                                 rank 0 uses that much CPU time between two barriers
 *   job stencil ROWS ROUNDS [COLUMNS]                   a stencil on a torus of cells, which checks the sum of all cells
 *   job permutation BYTES START_US RANK,RANK,..         rank i sends to the i-th of these, START_US after time begins
 *   job probes TAGS ROUNDS                              rank 0 looks for tag after tag until rank 1 has answered with the last one
 *   job nap US ROUNDS                                   each rank sleeps US microseconds, ROUNDS times, and does nothing else
 *   job no-finalize                                     rank 1 exits in the middle, with status 0 and without MPI_Finalize
 *   job killed                                          rank 1 kills itself in the middle
 *   job fork                                            rank 1 forks in the middle, and the child calls MPI as well
 *   job deadlock                                        ranks 0 and 1 receive what nobody sends
 *
 * The results are on standard output, each in a line that begins with `job: `, with times by MPI_Wtime.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <mpi.h>

static int rank, ranks;

static void fail(const char *what)
{
	fprintf(stderr, "job: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 3);
}

static void *allocate(size_t size)
{
	void *memory = calloc(1, size + 1);

	if (!memory)
		fail("no memory");
	return memory;
}

/* Runs collectives over `bytes` bytes, of each pair of ranks for an alltoall. */
static void collectives(const char *name, long bytes, int rounds)
{
	int count = (int)(bytes / (long)sizeof(float));
	size_t room = strcmp(name, "alltoall") ? (size_t)bytes : (size_t)bytes * (size_t)ranks;
	float *out = allocate(room), *in = allocate(room);
	int sum = ranks * (ranks - 1) / 2;

	for (size_t i = 0; i < room / sizeof(float); i++)
		out[i] = (float)rank;
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = MPI_Wtime();
	for (int i = 0; i < rounds; i++) {
		if (!strcmp(name, "allreduce"))
			MPI_Allreduce(out, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		else if (!strcmp(name, "alltoall"))
			MPI_Alltoall(out, count, MPI_FLOAT, in, count, MPI_FLOAT, MPI_COMM_WORLD);
		else if (!strcmp(name, "bcast"))
			MPI_Bcast(rank == i % ranks ? out : in, count, MPI_FLOAT, i % ranks, MPI_COMM_WORLD);
		else if (!strcmp(name, "barrier"))
			MPI_Barrier(MPI_COMM_WORLD);
		else
			fail("no such collective");
	}
	double seconds = (MPI_Wtime() - begin) / rounds;
	for (int i = 0; i < count; i++) {
		if (!strcmp(name, "allreduce") && in[i] != (float)sum)
			fail("a wrong sum");
		for (int from = 0; !strcmp(name, "alltoall") && from < ranks; from++)
			if (in[from * count + i] != (float)from)
				fail("wrong values of an alltoall");
		if (!strcmp(name, "bcast") && rank != (rounds - 1) % ranks && in[i] != (float)((rounds - 1) % ranks))
			fail("a wrong value of a broadcast");
	}
	if (rank == 0)
		printf("job: %s %ld: %.3f us\n", name, bytes, seconds * 1e6);
	free(out);
	free(in);
}

/* Uses CPU time of this thread, which no other process can change. */
static void compute(double seconds)
{
	struct timespec t;
	double begin = -1, now;

	do {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
		now = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
		if (begin < 0)
			begin = now;
	} while (now - begin < seconds);
}

static void compute_between_barriers(double seconds)
{
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = MPI_Wtime();
	if (rank == 0) {
		compute(seconds);
		/* No call of the transport lies between the two readings. */
		printf("job: the clock of rank 0 shows %.6f s\n", MPI_Wtime() - begin);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	printf("job: rank %d: %.6f s between two barriers\n", rank, MPI_Wtime() - begin);
}

/* Each rank has `columns` columns of `rows` cells, side by side with those of its neighbours, which send it their edges. */
static void stencil(int rows, int rounds, int columns)
{
	size_t width = (size_t)columns + 2, height = (size_t)rows;
	/* Columns are contiguous, as they are what is sent. */
	double *now = allocate(width * height * sizeof(double)), *next = allocate(width * height * sizeof(double));
	int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
	double total = 0, all = 0, want = 0, longest = 0;

	for (size_t i = height; i < (width - 1) * height; i++)
		now[i] = 1 + (double)(((uint64_t)rank * 2654435761u + i * 40503u) % 1000);
	for (size_t i = height; i < (width - 1) * height; i++)
		want += now[i];
	MPI_Allreduce(MPI_IN_PLACE, &want, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = MPI_Wtime();
	for (int i = 0; i < rounds; i++) {
		double round = MPI_Wtime();
		MPI_Request requests[4];
		MPI_Irecv(now, rows, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
		MPI_Irecv(now + (width - 1) * height, rows, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
		MPI_Isend(now + height, rows, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[2]);
		MPI_Isend(now + (width - 2) * height, rows, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[3]);
		MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
		/* The weights add up to one, and the grid is periodic, so the sum of all cells stays. */
		for (size_t x = 1; x + 1 < width; x++)
			for (size_t y = 0; y < height; y++)
				next[x * height + y] = 0.2 * (now[x * height + y] + now[(x - 1) * height + y] + now[(x + 1) * height + y] +
				                              now[x * height + (y + 1) % height] + now[x * height + (y + height - 1) % height]);
		double *swap = now;
		now = next;
		next = swap;
		round = MPI_Wtime() - round;
		longest = round > longest ? round : longest;
	}
	double seconds = MPI_Wtime() - begin;
	for (size_t i = height; i < (width - 1) * height; i++)
		total += now[i];
	MPI_Allreduce(&total, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (all < want * (1 - 1e-9) || all > want * (1 + 1e-9))
		fail("cells were lost");
	if (rank == 0)
		printf("job: stencil: %.3f us a round, the longest %.3f us\n", seconds / rounds * 1e6, longest * 1e6);
	free(now);
	free(next);
}

/* Each nap waits for the emulator, and no rank does any work between two of them. */
static void naps(unsigned us, int rounds)
{
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = MPI_Wtime();
	for (int i = 0; i < rounds; i++)
		usleep(us);
	if (rank == 0)
		printf("job: nap: %.3f us\n", (MPI_Wtime() - begin) / rounds * 1e6);
	MPI_Barrier(MPI_COMM_WORLD);
}

/*
 * Each rank sends one message to the rank that the list names for it, and receives one. All begin at one time, `start_us` after a whole
 * second of the clock, at which virtual time begins: so a failure in the network can be timed by it. Before, partners exchange a
 * short message, so that no handshake delays the long one.
 */
static void permutation(size_t bytes, long start_us, const char *partners)
{
	unsigned char *out = allocate(bytes), *in = allocate(bytes);
	int *to = allocate((size_t)ranks * sizeof *to), from = -1, wrong = 0;
	double begin = 0, took, last, sum;
	struct timespec at;

	for (int i = 0; i < ranks; i++) {
		char *end;
		to[i] = (int)strtol(partners, &end, 10);
		if (to[i] < 0 || to[i] >= ranks || to[i] == i || *end != (i + 1 < ranks ? ',' : 0))
			fail("the list of partners names no rank for each");
		partners = end + 1;
		if (to[i] == rank)
			from = i;
	}
	if (from < 0)
		fail("nobody sends to this rank");
	for (size_t i = 0; i < bytes; i++)
		out[i] = (unsigned char)(i * 31 + i / 4096 + (size_t)rank);
	for (int warm_up = 1; warm_up >= 0; warm_up--) {
		MPI_Request requests[2];
		int count = warm_up ? 1 : (int)bytes;

		if (!warm_up) {
			clock_gettime(CLOCK_MONOTONIC, &at);
			if (at.tv_nsec >= start_us * 1000)
				fail("the start has passed already");
			at.tv_nsec = start_us * 1000;
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
			begin = MPI_Wtime();
		}
		MPI_Irecv(in, count, MPI_BYTE, from, 1, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(out, count, MPI_BYTE, to[rank], 1, MPI_COMM_WORLD, &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
	took = MPI_Wtime() - begin;
	for (size_t i = 0; i < bytes; i++)
		wrong |= in[i] ^ (unsigned char)(i * 31 + i / 4096 + (size_t)from);
	if (wrong)
		fail("wrong bytes of a permutation");
	MPI_Reduce(&took, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&took, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("job: permutation: mean %.3f us, the longest %.3f us\n", sum / ranks * 1e6, last * 1e6);
	free(to);
	free(out);
	free(in);
}

/* Ranks 0 and 1 exchange messages. Rank 0 waits for the answer by MPI_Iprobe for one tag after the other. */
static void probes(int tags, int rounds)
{
	double longest = 0;
	char byte = 0;

	/* Round 0 introduces the two to each other. */
	for (int i = 0; i <= rounds; i++) {
		double begin = MPI_Wtime();
		if (rank == 0) {
			int found = 0, tag = tags;
			MPI_Send(&byte, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
			while (!found) {
				tag = tag % tags + 1;
				MPI_Iprobe(1, tag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
			}
			MPI_Recv(&byte, 1, MPI_BYTE, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else if (rank == 1) {
			MPI_Recv(&byte, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(&byte, 1, MPI_BYTE, 0, tags, MPI_COMM_WORLD);
		}
		double round = MPI_Wtime() - begin;
		if (i > 0 && round > longest)
			longest = round;
	}
	if (rank == 0)
		printf("job: probes: the longest round %.3f us\n", longest * 1e6);
}

static void misbehave(const char *how)
{
	char byte = 0;

	/* All have met before. */
	for (int i = 0; i < 10; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	if (!strcmp(how, "deadlock")) {
		if (rank < 2)
			MPI_Recv(&byte, 1, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		if (!strcmp(how, "no-finalize"))
			_exit(0);
		if (!strcmp(how, "killed"))
			raise(SIGKILL);
		pid_t child = fork();
		if (child == 0) {
			/* An abort would end the job, and a launcher that ends one may lose what its ranks have printed. */
			char text[MPI_MAX_ERROR_STRING] = "no error";
			int length;
			MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
			int error = MPI_Send(&byte, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
			if (error != MPI_SUCCESS)
				MPI_Error_string(error, text, &length);
			fprintf(stderr, "job: MPI_Send of the child: %s\n", text);
			_exit(error != MPI_SUCCESS);
		}
		int status;
		if (child < 0 || waitpid(child, &status, 0) != child)
			fail("no child");
		printf("job: the child ended with status %d\n", status);
		fflush(stdout);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("job: all ranks went on\n");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long first = argc > 2 ? atol(argv[2]) : 0;
	int rounds = argc > 3 ? atoi(argv[3]) : 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!strcmp(what, "compute"))
		compute_between_barriers(argc > 2 ? atof(argv[2]) : 0);
	else if (!strcmp(what, "stencil"))
		stencil((int)first, rounds, argc > 4 ? atoi(argv[4]) : 16);
	else if (!strcmp(what, "permutation") && argc == 5)
		permutation((size_t)first, rounds, argv[4]);
	else if (!strcmp(what, "probes"))
		probes((int)first, rounds);
	else if (!strcmp(what, "nap"))
		naps((unsigned)first, rounds);
	else if (argc > 2)
		collectives(what, first, rounds);
	else
		misbehave(what);
	MPI_Finalize();
	return 0;
}
