/* Threads that sleep in a waiting call: they use no processor time, even if other threads wait for the same object,
 * and they see what timers cause, even if another thread makes progress. The peers talk by packets. */
#include "abi.h"

#define PATIENCE_MS ((int)(PATIENCE * 1000))

/* Seconds of processor time of all threads of the process. */
static double used(void)
{
	struct timespec ts;
	EQUAL(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts), 0);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Checks that the process uses hardly any processor time for a while. A busy machine makes it use less, not more. */
static void check_idle(const char *when, int sleepers)
{
	usleep(100 * 1000);
	double begin = abi_now(), before = used();
	usleep(400 * 1000);
	double share = (used() - before) / (abi_now() - begin);
	if (!getenv("ABI_SLOW") && share > 0.1)
		FAIL("%d threads sleep %s, and use %.2f processors", sleepers, when, share);
	abi_checks++;
}

/* A thread that waits for a completion or for a counter. */
struct sleeper {
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	uint64_t threshold;
	pthread_t thread;
	_Atomic int *done;
};

static void *sleep_once(void *arg)
{
	struct sleeper *one = arg;
	struct fi_cq_tagged_entry entry;
	ssize_t rc;
	if (one->cntr) {
		EQUAL(fi_cntr_wait(one->cntr, one->threshold, PATIENCE_MS), 0);
	} else {
		do
			rc = fi_cq_sread(one->cq, &entry, 1, NULL, PATIENCE_MS);
		while (rc == -FI_EINTR);
		EQUAL(rc, 1);
	}
	(*one->done)++;
	return NULL;
}

static void until(_Atomic int *done, int count)
{
	double end = abi_now() + PATIENCE;
	while (*done < count) {
		if (abi_now() > end)
			FAIL("%d of %d threads were woken", *done, count);
		usleep(1000);
	}
	EQUAL(*done, count);
}

static void sleep_together(enum fi_progress progress, int counts, int count)
{
	enum { MOST = 8 };
	struct want want = {
		.caps = FI_MSG, .threading = FI_THREAD_SAFE, .progress = progress, .wait = FI_WAIT_UNSPEC};
	struct node n;
	abi_open(&n, &want);
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fid_cntr *cntr = NULL;
	struct fid_cq *queue = n.cq;
	if (counts) {
		EQUAL(fi_cntr_open(n.domain, &attr, &cntr, NULL), 0);
		EQUAL(fi_ep_bind(n.ep, &cntr->fid, FI_RECV), 0);
	}
	fi_addr_t self = abi_insert(&n, &n.name);
	_Atomic int done = 0;
	struct sleeper all[MOST];
	for (int i = 0; i < count; i++) {
		all[i] = (struct sleeper){queue, cntr, (uint64_t)i + 1, 0, &done};
		EQUAL(pthread_create(&all[i].thread, NULL, sleep_once, &all[i]), 0);
	}
	check_idle("before any message", count);
	char buf[8];
	for (int i = 0; i < count; i++) {
		EQUAL(fi_recv(n.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		ssize_t rc;
		while ((rc = fi_inject(n.ep, "x", 1, self)) == -FI_EAGAIN)
			usleep(1000);
		EQUAL(rc, 0);
		until(&done, i + 1);
		if (i == 0)
			check_idle("after a message", count - 1);
	}
	for (int i = 0; i < count; i++)
		EQUAL(pthread_join(all[i].thread, NULL), 0);
	EQUAL(fi_close(&n.ep->fid), 0);
	if (cntr)
		EQUAL(fi_close(&cntr->fid), 0);
	EQUAL(fi_close(&n.cq->fid), 0);
	EQUAL(fi_close(&n.av->fid), 0);
	EQUAL(fi_close(&n.domain->fid), 0);
	EQUAL(fi_close(&n.fabric->fid), 0);
	fi_freeinfo(n.info);
}

static void several_sleepers_of_a_queue_are_idle(void)
{
	for (int count = 2; count <= 8; count *= 2) {
		sleep_together(FI_PROGRESS_MANUAL, 0, count);
		sleep_together(FI_PROGRESS_AUTO, 0, count);
	}
}

static void several_sleepers_of_a_counter_are_idle(void)
{
	for (int count = 2; count <= 8; count *= 2) {
		sleep_together(FI_PROGRESS_MANUAL, 1, count);
		sleep_together(FI_PROGRESS_AUTO, 1, count);
	}
}

#define LONG_MESSAGE (1 << 20)

/* The peer: sends a message of `length` bytes, and makes progress until it is killed. */
static int be_a_peer(int in, int out, size_t length)
{
	static unsigned char buf[LONG_MESSAGE];
	struct want want = {
		.caps = FI_MSG, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL, .wait = FI_WAIT_NONE};
	struct node n;
	struct sockaddr_in name;
	struct fi_cq_tagged_entry entry;
	abi_open(&n, &want);
	EQUAL(write(out, &n.name, sizeof(n.name)), sizeof(n.name));
	EQUAL(read(in, &name, sizeof(name)), sizeof(name));
	fi_addr_t to = abi_insert(&n, &name);
	RETRY(&n, fi_send(n.ep, buf, length, NULL, to, NULL));
	for (double end = abi_now() + PATIENCE; abi_now() < end; usleep(1000))
		(void)fi_cq_read(n.cq, &entry, 1);
	return 1;
}

/* Starts the peer, and tells both endpoints each other's names. */
static pid_t start_peer(struct node *n, size_t length, fi_addr_t *peer)
{
	int down[2], up[2];
	struct sockaddr_in name;
	EQUAL(pipe(down), 0);
	EQUAL(pipe(up), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		char in[16], out[16], bytes[16];
		snprintf(in, sizeof(in), "%d", down[0]);
		snprintf(out, sizeof(out), "%d", up[1]);
		snprintf(bytes, sizeof(bytes), "%zu", length);
		execl("/proc/self/exe", "sleepers", in, out, bytes, (char *)NULL);
		_exit(9);
	}
	EQUAL(read(up[0], &name, sizeof(name)), sizeof(name));
	EQUAL(write(down[1], &n->name, sizeof(n->name)), sizeof(n->name));
	*peer = abi_insert(n, &name);
	for (int i = 0; i < 2; i++) {
		close(down[i]);
		close(up[i]);
	}
	return pid;
}

/* A receive depends on a peer that dies, while the application only sleeps. It ends with an error after the deadline
 * of 2 s, and not when the idle connection is closed, which is half a minute later. */
static void a_receive_ends_with_its_dead_peer(enum fi_progress progress, size_t length)
{
	enum { LIMIT_MS = 20 * 1000 };
	static unsigned char buf[LONG_MESSAGE];
	struct want want = {
		.caps = FI_MSG | FI_DIRECTED_RECV, .threading = FI_THREAD_SAFE, .progress = progress, .wait = FI_WAIT_UNSPEC};
	struct node n;
	struct fi_cq_tagged_entry entry;
	fi_addr_t peer;
	abi_open(&n, &want);
	pid_t pid = start_peer(&n, length, &peer);
	/* A short message is received. A long one waits at the peer, for a receive that fetches it. */
	if (length == 1)
		EQUAL(fi_recv(n.ep, buf, sizeof(buf), NULL, peer, NULL), 0);
	for (ssize_t rc = -FI_EAGAIN, left = 10; rc == -FI_EAGAIN && left > 0; left--)
		rc = fi_cq_sread(n.cq, &entry, 1, NULL, length == 1 ? PATIENCE_MS : 100);
	/* The progress thread falls asleep. */
	sleep(1);
	EQUAL(kill(pid, SIGKILL), 0);
	EQUAL(waitpid(pid, NULL, 0), pid);
	EQUAL(fi_recv(n.ep, buf, sizeof(buf), NULL, peer, NULL), 0);
	ssize_t rc;
	do
		rc = fi_cq_sread(n.cq, &entry, 1, NULL, LIMIT_MS);
	while (rc == -FI_EINTR);
	EQUAL(rc, -FI_EAVAIL);
	struct fi_cq_err_entry err = {0};
	EQUAL(fi_cq_readerr(n.cq, &err, 0), 1);
	abi_close(&n);
}

static void sleepers_learn_of_a_dead_peer(void)
{
	a_receive_ends_with_its_dead_peer(FI_PROGRESS_MANUAL, 1);
	a_receive_ends_with_its_dead_peer(FI_PROGRESS_AUTO, 1);
}

static void sleepers_fetch_from_a_dead_peer(void)
{
	a_receive_ends_with_its_dead_peer(FI_PROGRESS_MANUAL, LONG_MESSAGE);
	a_receive_ends_with_its_dead_peer(FI_PROGRESS_AUTO, LONG_MESSAGE);
}

static void *sleep_until_error(void *arg)
{
	struct sleeper *one = arg;
	struct fi_cq_tagged_entry entry;
	ssize_t rc;
	do
		rc = fi_cq_sread(one->cq, &entry, 1, NULL, PATIENCE_MS);
	while (rc == -FI_EINTR);
	EQUAL(rc, -FI_EAVAIL);
	(*one->done)++;
	return NULL;
}

/* A thread sleeps already when another one posts the receive. */
static void a_call_wakes_the_sleeper_of_another_thread(void)
{
	enum { LIMIT = 20 };
	char buf[8];
	for (int k = 0; k < 2; k++) {
		struct want want = {.caps = FI_MSG | FI_DIRECTED_RECV,
				    .threading = FI_THREAD_SAFE,
				    .progress = k ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL,
				    .wait = FI_WAIT_UNSPEC};
		struct node n;
		struct fi_cq_tagged_entry entry;
		fi_addr_t peer;
		_Atomic int done = 0;
		abi_open(&n, &want);
		pid_t pid = start_peer(&n, 1, &peer);
		EQUAL(fi_recv(n.ep, buf, sizeof(buf), NULL, peer, NULL), 0);
		EQUAL(fi_cq_sread(n.cq, &entry, 1, NULL, PATIENCE_MS), 1);
		struct sleeper one = {.cq = n.cq, .done = &done};
		EQUAL(pthread_create(&one.thread, NULL, sleep_until_error, &one), 0);
		sleep(1);
		EQUAL(kill(pid, SIGKILL), 0);
		EQUAL(waitpid(pid, NULL, 0), pid);
		double begin = abi_now();
		EQUAL(fi_recv(n.ep, buf, sizeof(buf), NULL, peer, NULL), 0);
		until(&done, 1);
		CHECK(abi_now() - begin < LIMIT);
		EQUAL(pthread_join(one.thread, NULL), 0);
		abi_close(&n);
	}
}

int main(int argc, char **argv)
{
	if (argc > 3)
		return be_a_peer(atoi(argv[1]), atoi(argv[2]), (size_t)atol(argv[3]));
	RUN(several_sleepers_of_a_queue_are_idle);
	RUN(several_sleepers_of_a_counter_are_idle);
	RUN(sleepers_learn_of_a_dead_peer);
	RUN(sleepers_fetch_from_a_dead_peer);
	RUN(a_call_wakes_the_sleeper_of_another_thread);
	printf("%d checks\n", abi_checks);
	return 0;
}
