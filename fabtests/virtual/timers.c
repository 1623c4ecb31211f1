/*
 * An MPI program that waits by a timer of the system, for virtual time.
 *
 *   timers HOW SECONDS
 *
 * HOW is descriptor  rank 0 reads the descriptor of a timer
 *        event       rank 0 waits for the descriptor in an epoll set, as event loops do
 *        alarm       rank 0 sets an interval timer and waits for its signal in pause
 *        computing   rank 0 sets an interval timer and computes until its signal comes
 *        receiving   rank 0 sets an interval timer, whose handler notes the time, and waits for a message that rank 1 sends
 *                    after twice the time
 *        signal      rank 0 waits in sigtimedwait for a signal that does not come
 *        raw-futex, raw-poll, raw-epoll, raw-signal
 *                    rank 0 waits for these by `syscall` until a timeout, which passes in real time
 *        socket      rank 0 receives from a socket with a timeout (SO_RCVTIMEO), which passes in real time
 *
 * Rank 0 prints the time of its clock from a barrier to the end of the timer.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t over;
static struct timespec ended;

static void note(int unused)
{
	(void)unused;
	clock_gettime(CLOCK_MONOTONIC, &ended);
	over = 1;
}

static double time_of(struct timespec t)
{
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void wait_by_descriptor(struct timespec span, int by_set)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0), set = epoll_create1(0);
	struct itimerspec setting = {.it_value = span};
	struct epoll_event event = {.events = EPOLLIN};
	unsigned long long expirations = 0;

	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	timerfd_settime(fd, 0, &setting, NULL);
	if (by_set && epoll_wait(set, &event, 1, -1) != 1)
		exit(3);
	if (read(fd, &expirations, sizeof expirations) != sizeof expirations || expirations != 1)
		exit(4);
	note(0);
}

static void wait_for_signal(struct timespec span)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigtimedwait(&set, NULL, &span);
	note(0);
}

static void wait_for_socket(struct timespec span)
{
	struct timeval timeout = {span.tv_sec, span.tv_nsec / 1000};
	int pair[2];
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 ||
	    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0 || recv(pair[0], &byte, 1, 0) != -1)
		exit(5);
	note(0);
}

static void wait_by_syscall(struct timespec span, const char *what)
{
	long result = 0, expected = 0;
	int word = 0;

	if (strcmp(what, "futex") == 0) {
		expected = -1;
		result = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &span);
	} else if (strcmp(what, "poll") == 0) {
		result = syscall(SYS_ppoll, NULL, 0, &span, NULL, 0);
	} else if (strcmp(what, "epoll") == 0) {
		struct epoll_event event;
		int set = epoll_create1(0), ms = (int)(span.tv_sec * 1000 + span.tv_nsec / 1000000);

		result = syscall(SYS_epoll_pwait, set, &event, 1, ms, NULL, 8);
		close(set);
	} else {
		sigset_t signals;

		sigemptyset(&signals);
		sigaddset(&signals, SIGUSR2);
		expected = -1;
		result = syscall(SYS_rt_sigtimedwait, &signals, NULL, &span, 8);
	}
	if (result != expected)
		exit(6);
	note(0);
}

static void wait_by_interval_timer(struct timespec span, const char *how)
{
	struct itimerval setting = {{0, 0}, {span.tv_sec, span.tv_nsec / 1000}};
	char byte;

	signal(SIGALRM, note);
	setitimer(ITIMER_REAL, &setting, NULL);
	if (strcmp(how, "receiving") == 0)
		MPI_Recv(&byte, 1, MPI_CHAR, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else if (strcmp(how, "alarm") == 0)
		pause();
	else
		while (!over)
			;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "descriptor";
	double seconds = argc > 2 ? atof(argv[2]) : 0.2;
	struct timespec span = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, begin;
	char byte = 1;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (rank == 1 && strcmp(how, "receiving") == 0) {
		usleep((unsigned)(2e6 * seconds));
		MPI_Send(&byte, 1, MPI_CHAR, 0, 7, MPI_COMM_WORLD);
	} else if (rank == 0) {
		if (strcmp(how, "descriptor") == 0 || strcmp(how, "event") == 0)
			wait_by_descriptor(span, strcmp(how, "event") == 0);
		else if (strcmp(how, "signal") == 0)
			wait_for_signal(span);
		else if (strcmp(how, "socket") == 0)
			wait_for_socket(span);
		else if (strncmp(how, "raw-", 4) == 0)
			wait_by_syscall(span, how + 4);
		else
			wait_by_interval_timer(span, how);
		printf("timers: %s: %.6f s\n", how, time_of(ended) - time_of(begin));
	}
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
