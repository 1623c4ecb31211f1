/*
 * Bandwidth of several threads on one libfabric provider, between two processes of this host.
 *
 *   fi_threads [-p PROVIDER] [-a ADDRESS] [-A] MEASURE..
 *
 * MEASURE is own:THREADS:SIZE:ROUNDS     every thread has a domain, an endpoint and a queue of its own (FI_THREAD_DOMAIN); it
 *                                        sends one message at a time and waits for its completion, as fabtests' fi_rdm_bw_mt
 *            shared:THREADS:SIZE:ROUNDS  all threads of a side share one endpoint and one queue (FI_THREAD_SAFE); each sends
 *                                        windows of 16 messages with a tag of its own, and waits for the answer
 *            put:THREADS:SIZE:ROUNDS     they share as before; each writes to the other side's memory and waits until that is
 *                                        delivered, while the other side's threads only wait
 * PROVIDER   as in FI_PROVIDER (default: the first that fits)
 * ADDRESS    the local address to use (default 127.0.0.1)
 * -A         automatic progress (FI_PROGRESS_AUTO); default: manual
 *
 * Prints one line `MEASURE VALUE` for each: microseconds for each message of one thread. ROUNDS messages are sent by
 * each thread. Nobody is pinned, threads outnumber cores where they like, and everybody polls, as applications do. The program forks before
 * it touches libfabric; the sides exchange addresses through a socket pair.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

enum { MOST_THREADS = 64, WINDOW = 16, MOST = 16 << 20, PATIENCE = 60 };
enum kind { OWN, SHARED, PUT };

static const char *provider;
static const char *address = "127.0.0.1";
static int automatic;
static int side; /* 0 measures and prints, 1 answers */
static int channel;

/* What an application opens once, or once a thread. */
struct lane {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
	/* The peer's memory, for writes. */
	uint64_t remote, key;
};

struct worker;

/* An operation's context; providers may use its first part. */
struct op {
	struct fi_context2 context;
	_Atomic int *done;
};

struct worker {
	pthread_t thread;
	struct lane *lane;
	enum kind kind;
	int number;
	size_t size;
	int rounds;
	char *buffer;
	struct fid_mr *mr;
	_Atomic int sent, received;
	struct op sends[WINDOW + 1], receives[WINDOW + 1];
};

static struct lane lanes[MOST_THREADS];
static struct worker workers[MOST_THREADS];
/* Threads of this side that still measure. */
static _Atomic int working;
/* The other side is done: nobody needs progress here any more. */
static _Atomic int over;

static void check(const char *what, ssize_t code)
{
	if (code < 0) {
		fprintf(stderr, "fi_threads: side %d: %s: %s\n", side, what, fi_strerror((int)-code));
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whoever reads a completion counts it for whose it is. */
static int progress(struct lane *lane)
{
	struct fi_cq_tagged_entry entry;
	ssize_t n = fi_cq_read(lane->cq, &entry, 1);

	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = {0};
		char text[256] = "";
		if (fi_cq_readerr(lane->cq, &error, 0) == -FI_EAGAIN)
			return 0;
		fprintf(stderr, "fi_threads: side %d: completion error: %s (%s)\n", side, fi_strerror(error.err),
			fi_cq_strerror(lane->cq, error.prov_errno, error.err_data, text, sizeof text));
		exit(1);
	}
	check("fi_cq_read", n);
	if (entry.op_context)
		atomic_fetch_add(((struct op *)entry.op_context)->done, 1);
	return 1;
}

static void wait_for(struct worker *w, _Atomic int *counter, int value)
{
	double deadline = 0;
	unsigned idle = 0;

	while (atomic_load(counter) < value) {
		/* Rarely enough that the clock costs nothing. */
		if (progress(w->lane) || (++idle & 0xfff) != 0)
			continue;
		if (deadline == 0)
			deadline = now() + PATIENCE;
		if (now() > deadline) {
			fprintf(stderr, "fi_threads: side %d: thread %d waits for %d of %d\n", side, w->number, *counter, value);
			exit(1);
		}
	}
}

#define RETRY(what, call)                              \
	do {                                           \
		ssize_t code_;                         \
		while ((code_ = (call)) == -FI_EAGAIN) \
			progress(w->lane);             \
		check(what, code_);                    \
	} while (0)

static void *desc(struct worker *w)
{
	return w->mr ? fi_mr_desc(w->mr) : NULL;
}

static void receive(struct worker *w, size_t size, int slot)
{
	RETRY("fi_trecv", fi_trecv(w->lane->ep, w->buffer, size, desc(w), w->lane->peer, (uint64_t)w->number, 0,
				   &w->receives[slot]));
}

static void send_one(struct worker *w, size_t size, int slot)
{
	RETRY("fi_tsend", fi_tsend(w->lane->ep, w->buffer, size, desc(w), w->lane->peer, (uint64_t)w->number,
				   &w->sends[slot]));
}

/* One message at a time, without an answer; an empty one says in the end that all have arrived. */
static void own(struct worker *w)
{
	for (int i = 0; i < w->rounds; i++) {
		if (side == 0) {
			send_one(w, w->size, 0);
			wait_for(w, &w->sent, i + 1);
		} else {
			receive(w, w->size, 0);
			wait_for(w, &w->received, i + 1);
		}
	}
	if (side == 0) {
		receive(w, 0, 0);
		wait_for(w, &w->received, 1);
	} else {
		send_one(w, 0, 0);
		wait_for(w, &w->sent, 1);
	}
}

static void shared(struct worker *w)
{
	int turns = (w->rounds + WINDOW - 1) / WINDOW;

	for (int turn = 0; turn < turns; turn++) {
		if (side == 0)
			receive(w, 0, WINDOW);
		for (int i = 0; i < WINDOW; i++) {
			if (side == 0)
				send_one(w, w->size, i);
			else
				receive(w, w->size, i);
		}
		if (side == 0) {
			wait_for(w, &w->sent, (turn + 1) * WINDOW);
			wait_for(w, &w->received, turn + 1);
		} else {
			wait_for(w, &w->received, (turn + 1) * WINDOW);
			send_one(w, 0, WINDOW);
			wait_for(w, &w->sent, turn + 1);
		}
	}
}

static void put(struct worker *w)
{
	struct lane *lane = w->lane;

	for (int i = 0; side == 0 && i < w->rounds; i++) {
		struct iovec iov = {w->buffer, w->size};
		struct fi_rma_iov target = {lane->remote + (uint64_t)w->number * w->size, w->size, lane->key};
		void *descs[1] = {desc(w)};
		struct fi_msg_rma message = {&iov, descs, 1, lane->peer, &target, 1, &w->sends[0], 0};
		RETRY("fi_writemsg", fi_writemsg(lane->ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
		wait_for(w, &w->sent, i + 1);
	}
	while (side == 1 && !over)
		progress(lane);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	if (w->kind == OWN)
		own(w);
	else if (w->kind == SHARED)
		shared(w);
	else
		put(w);
	atomic_fetch_sub(&working, 1);
	/* Under manual progress somebody else's last acknowledgement may still be missing. */
	while (!over)
		if (!progress(w->lane))
			usleep(1000);
	return NULL;
}

static void exchange(const void *mine, void *theirs, size_t length)
{
	if (write(channel, mine, length) != (ssize_t)length)
		exit(1);
	for (size_t got = 0; got < length;) {
		ssize_t n = read(channel, (char *)theirs + got, length - got);
		if (n <= 0)
			exit(1);
		got += (size_t)n;
	}
}

static void open_lane(struct lane *lane, enum kind kind)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE, .size = 2048};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};
	char mine[256] = "", theirs[256];
	size_t length = sizeof mine;

	hints->caps = FI_TAGGED | (kind == PUT ? FI_RMA : 0);
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = kind == OWN ? FI_THREAD_DOMAIN : FI_THREAD_SAFE;
	hints->domain_attr->control_progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = hints->domain_attr->control_progress;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	if (provider)
		hints->fabric_attr->prov_name = strdup(provider);
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), address, NULL, FI_SOURCE, hints, &lane->info));
	fi_freeinfo(hints);

	check("fi_fabric", fi_fabric(lane->info->fabric_attr, &lane->fabric, NULL));
	check("fi_domain", fi_domain(lane->fabric, lane->info, &lane->domain, NULL));
	check("fi_cq_open", fi_cq_open(lane->domain, &cq_attr, &lane->cq, NULL));
	check("fi_av_open", fi_av_open(lane->domain, &av_attr, &lane->av, NULL));
	check("fi_endpoint", fi_endpoint(lane->domain, lane->info, &lane->ep, NULL));
	check("fi_ep_bind", fi_ep_bind(lane->ep, &lane->av->fid, 0));
	check("fi_ep_bind", fi_ep_bind(lane->ep, &lane->cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(lane->ep));

	check("fi_getname", fi_getname(&lane->ep->fid, mine, &length));
	exchange(mine, theirs, sizeof mine);
	if (fi_av_insert(lane->av, theirs, 1, &lane->peer, 0, NULL) != 1)
		check("fi_av_insert", -FI_EADDRNOTAVAIL);
}

static void close_lane(struct lane *lane)
{
	check("fi_close(ep)", fi_close(&lane->ep->fid));
	check("fi_close(cq)", fi_close(&lane->cq->fid));
	check("fi_close(av)", fi_close(&lane->av->fid));
	check("fi_close(domain)", fi_close(&lane->domain->fid));
	check("fi_close(fabric)", fi_close(&lane->fabric->fid));
	fi_freeinfo(lane->info);
}

/* The memory that the other side writes to, registered with `lane`. */
static struct fid_mr *expose(struct lane *lane, char *memory, size_t length)
{
	struct { uint64_t address, key; } mine, theirs;
	struct fid_mr *mr;

	check("fi_mr_reg", fi_mr_reg(lane->domain, memory, length, FI_REMOTE_WRITE, 0, 4711, 0, &mr, NULL));
	mine.key = fi_mr_key(mr);
	mine.address = lane->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	exchange(&mine, &theirs, sizeof mine);
	lane->remote = theirs.address;
	lane->key = theirs.key;
	return mr;
}

static void prepare(struct worker *w, int number, enum kind kind, size_t size, int rounds)
{
	memset(w, 0, sizeof *w);
	w->number = number;
	w->kind = kind;
	w->lane = &lanes[kind == OWN ? number : 0];
	w->size = size;
	w->rounds = rounds;
	if (posix_memalign((void **)&w->buffer, 4096, size + 4096))
		check("posix_memalign", -FI_ENOMEM);
	memset(w->buffer, 0, size + 4096);
	for (int i = 0; i <= WINDOW; i++) {
		w->sends[i].done = &w->sent;
		w->receives[i].done = &w->received;
	}
	if (w->lane->info->domain_attr->mr_mode & FI_MR_LOCAL)
		check("fi_mr_reg", fi_mr_reg(w->lane->domain, w->buffer, size + 4096, FI_SEND | FI_RECV | FI_WRITE, 0,
					     (uint64_t)number + 1, 0, &w->mr, NULL));
}

/* Seconds from when all threads may begin until the last one is done. */
static double run(enum kind kind, int threads, size_t size, int rounds)
{
	int opened = kind == OWN ? threads : 1;
	struct fid_mr *target = NULL;
	char *memory = NULL, byte = 0;

	for (int i = 0; i < opened; i++)
		open_lane(&lanes[i], kind);
	if (kind == PUT) {
		memory = calloc((size_t)threads, size);
		target = expose(&lanes[0], memory, (size_t)threads * size);
	}
	working = threads;
	over = 0;
	for (int i = 0; i < threads; i++)
		prepare(&workers[i], i, kind, size, rounds);
	exchange(&byte, &byte, 1);
	double begin = now(), end;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			check("pthread_create", -FI_ENOMEM);
	/* Who only answers is done when the other side is. */
	while (working > (kind == PUT && side == 1 ? threads : 0))
		usleep(200);
	end = now();
	exchange(&byte, &byte, 1);
	over = 1;
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		if (workers[i].mr)
			check("fi_close(mr)", fi_close(&workers[i].mr->fid));
		free(workers[i].buffer);
	}
	if (target)
		check("fi_close(mr)", fi_close(&target->fid));
	free(memory);
	for (int i = 0; i < opened; i++)
		close_lane(&lanes[i]);
	return end - begin;
}

static void measure(const char *what)
{
	char name[16];
	size_t size;
	int threads, rounds;
	enum kind kind;

	if (sscanf(what, "%15[a-z]:%d:%zu:%d", name, &threads, &size, &rounds) != 4 || size > MOST || rounds < 1 ||
	    threads < 1 || threads > MOST_THREADS) {
		fprintf(stderr, "fi_threads: what is %s?\n", what);
		exit(2);
	}
	if (!strcmp(name, "own"))
		kind = OWN;
	else if (!strcmp(name, "shared"))
		kind = SHARED;
	else if (!strcmp(name, "put"))
		kind = PUT;
	else {
		fprintf(stderr, "fi_threads: what is %s?\n", what);
		exit(2);
	}
	double seconds = run(kind, threads, size, rounds);
	if (side == 0) {
		printf("%s %.6g\n", what, seconds * 1e6 / rounds);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	int option, ends[2], status = 0;

	while ((option = getopt(argc, argv, "p:a:A")) != -1) {
		switch (option) {
		case 'p': provider = optarg; break;
		case 'a': address = optarg; break;
		case 'A': automatic = 1; break;
		default: return 2;
		}
	}
	if (optind == argc) {
		fprintf(stderr, "usage: fi_threads [-p PROVIDER] [-a ADDRESS] [-A] MEASURE.. (see the head of its source)\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
		perror("fi_threads: socketpair");
		return 1;
	}
	pid_t child = fork();
	if (child < 0) {
		perror("fi_threads: fork");
		return 1;
	}
	side = child == 0;
	channel = ends[side];
	close(ends[!side]);
	for (int i = optind; i < argc; i++)
		measure(argv[i]);
	if (side == 0 && (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)))
		return 1;
	return 0;
}
