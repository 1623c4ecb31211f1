/*
 * Latency, bandwidth and rate of tagged messages, of atomics, and of reads and writes, on one libfabric provider, between two
 * processes of this host.
 *
 *   fi_perf [-p PROVIDER] [-a ADDRESS[,ADDRESS]] [-n NETNS,NETNS] [-u] MEASURE..
 *
 * MEASURE is lat:SIZE:ROUNDS    half round trip in microseconds, fi_tsend
 *            latinj:SIZE:ROUNDS the same with fi_tinject
 *            bw:SIZE:ROUNDS     gigabytes (1e9) a second, windows of 16 messages, the receiver's answer after each
 *            cost:SIZE:ROUNDS   milliseconds of processor time of both sides a gigabyte, windows of 16 messages, whose waits
 *                               sleep in fi_cq_sread. What the kernel does in threads of its own is not in it
 *            rate:SIZE:ROUNDS   million messages a second, windows of 256
 *            rateinj:SIZE:ROUNDS  the same with fi_tinject
 *            fadd:8:ROUNDS      round trip in microseconds of a fetch_add of 64 bits, one at a time
 *            faddrate:8:ROUNDS  million of them a second, windows of 256
 *            addrate:8:ROUNDS   million additions a second that bring nothing back, windows of 256
 *            get:SIZE:ROUNDS    microseconds of a read of the other side's memory, one at a time
 *            put:SIZE:ROUNDS    the same of a write that completes when it is delivered
 *            post:SIZE:ROUNDS   nanoseconds that a call of fi_tsend takes, the median
 *            postinj:SIZE:ROUNDS  the same of fi_tinject
 *            postput:SIZE:ROUNDS  the same of fi_write
 *            postget:SIZE:ROUNDS  the same of fi_read
 *            unexp:SIZE:ROUNDS  nanoseconds that a call of fi_trecv takes whose message has arrived before, the median
 *            sent:SIZE:ROUNDS   nanoseconds that a read of the queue takes which finds the completion of fi_tsend, the median
 *            read:SIZE:ROUNDS   nanoseconds that a read of the queue takes which finds a message that has arrived, the median
 *            poll:0:ROUNDS      nanoseconds that a read of the queue takes which finds nothing, the median
 *            clock:0:ROUNDS     nanoseconds that a reading of the clock takes
 *            verify:SIZE:ROUNDS messages whose contents are compared, both directions; prints the number of bytes
 * PROVIDER   a name as in FI_PROVIDER, `udp;ofi_rxd` for a layered one (default: the first that fits)
 * ADDRESS    the local address to use (default 127.0.0.1), or one for each side
 * NETNS      network namespaces to enter, files such as those in /run/netns, one for each side
 * -u         do not pin the processes to cores
 *
 * Prints one line `MEASURE VALUE` for each. The program forks before it touches libfabric, so the two sides are
 * two processes with nothing in common; they exchange addresses through a socket pair. Receives are always posted
 * before the sender may send: what is measured is the expected path, as in MPI benchmarks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

enum { TAG_DATA = 1, TAG_ANSWER = 2, BW_WINDOW = 16, RATE_WINDOW = 256, MOST = 16 << 20 };

static const char *provider;
static char *address = "127.0.0.1";
static char *namespaces;
static int side; /* 0 measures and prints, 1 answers */
static int channel;

static struct fi_info *info;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_mr *mr;
static void *desc;
static fi_addr_t peer;
static char *tx_buffer, *rx_buffer;

/*
 * The counter of side 1, where side 0 adds, at the beginning of what side 0 reads and writes: its place, its key, and what
 * has been added. Only with atomics, reads or writes.
 */
struct place {
	uint64_t addr, key;
};
static int atomics, rma;
static uint64_t *counter;
static struct place place;
static uint64_t added;

/* Completions seen, and how many to expect: counted apart, so that a wait names what it waits for. */
static uint64_t sent, received;
/* fi_context for providers that ask for one; the pointer says which kind completed. */
static struct fi_context2 *tx_contexts, *rx_contexts;
static size_t tx_next, rx_next;

static void fail(const char *what, ssize_t code)
{
	fprintf(stderr, "fi_perf: side %d: %s: %s\n", side, what, fi_strerror((int)-code));
	exit(1);
}

static void check(const char *what, ssize_t code)
{
	if (code < 0)
		fail(what, code);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits sleep; the queue is opened for that if any measure wants it. */
static int sleeping, may_sleep;

/* The longest sleep, in ms. Libfabric's tcp was seen to sleep through an arrival; a sleep costs no processor time. */
enum { NAP = 100 };

/* A failure of the other side must not leave this one waiting for ever: at most so long without a completion. */
enum { PATIENCE = 20 };
static double deadline;

static void progress(void)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t n = sleeping ? fi_cq_sread(cq, entries, 16, NULL, NAP) : fi_cq_read(cq, entries, 16);

	if (n == -FI_EAGAIN) {
		static unsigned idle;
		/* Rarely enough that the clock costs nothing. */
		if (!sleeping && (++idle & 0xffff) != 0)
			return;
		if (deadline == 0)
			deadline = now() + PATIENCE;
		if (now() > deadline) {
			fprintf(stderr, "fi_perf: side %d: no progress (%lu sent, %lu received)\n", side, sent, received);
			exit(1);
		}
		return;
	}
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = {0};
		char text[256] = "";
		fi_cq_readerr(cq, &error, 0);
		fprintf(stderr, "fi_perf: side %d: completion error: %s (%s)\n", side, fi_strerror(error.err),
			fi_cq_strerror(cq, error.prov_errno, error.err_data, text, sizeof text));
		exit(1);
	}
	check("fi_cq_read", n);
	deadline = 0;
	for (ssize_t i = 0; i < n; i++) {
		if (entries[i].flags & FI_RECV)
			received++;
		else
			sent++;
	}
}

#define RETRY(what, call)                     \
	do {                                      \
		ssize_t code_;                        \
		while ((code_ = (call)) == -FI_EAGAIN) \
			progress();                       \
		check(what, code_);                   \
	} while (0)

static void post_receive(size_t size, uint64_t tag)
{
	void *context = &rx_contexts[rx_next++ % (4 * RATE_WINDOW)];
	RETRY("fi_trecv", fi_trecv(ep, rx_buffer, size, desc, peer, tag, 0, context));
}

static void post_send(size_t size, uint64_t tag)
{
	void *context = &tx_contexts[tx_next++ % (4 * RATE_WINDOW)];
	RETRY("fi_tsend", fi_tsend(ep, tx_buffer, size, desc, peer, tag, context));
}

static void inject(size_t size, uint64_t tag)
{
	RETRY("fi_tinject", fi_tinject(ep, tx_buffer, size, peer, tag));
}

static void wait_for(uint64_t *counter, uint64_t value)
{
	while (*counter < value)
		progress();
}

/*
 * The two sides in step, outside of libfabric. Whoever waits keeps making progress, as an MPI would: with manual progress
 * the other side may still need an answer, a lost acknowledgement again for example.
 */
static void meet(void)
{
	char byte = 0;
	int sleeps = sleeping;

	sleeping = 0;
	if (write(channel, &byte, 1) == 1)
		for (;;) {
			ssize_t n = recv(channel, &byte, 1, MSG_DONTWAIT);
			if (n == 1) {
				sleeping = sleeps;
				return;
			}
			if (n == 0 || (errno != EAGAIN && errno != EINTR))
				break;
			deadline = 0;
			/* A look at the channel is a system call: not so often that the other side waits for it. */
			for (int i = 0; i < 64; i++)
				progress();
		}
	fprintf(stderr, "fi_perf: side %d: the other side is gone\n", side);
	exit(1);
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

/* Each side registers a counter; side 0 learns where that of side 1 is. */
static void open_counter(void)
{
	struct fid_mr *region;
	struct place mine;

	if (posix_memalign((void **)&counter, 4096, MOST))
		fail("posix_memalign", -FI_ENOMEM);
	memset(counter, 0, MOST);
	check("fi_mr_reg", fi_mr_reg(domain, counter, MOST, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 2, 0, &region, NULL));
	mine.addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)counter : 0;
	mine.key = fi_mr_key(region);
	exchange(&mine, &place, sizeof mine);
}

static void open_endpoint(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = may_sleep ? FI_WAIT_UNSPEC : FI_WAIT_NONE, .size = 4 * RATE_WINDOW};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};
	struct fid_fabric *fabric;
	struct fid_av *av;
	/* lnx has names that hold those of all it links. */
	char mine[1024] = "", theirs[1024];
	size_t length = sizeof mine;

	hints->caps = FI_TAGGED | (atomics ? FI_ATOMIC : 0) | (rma ? FI_RMA : 0);
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	if (provider)
		hints->fabric_attr->prov_name = strdup(provider);
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), address, NULL, FI_SOURCE, hints, &info));
	fi_freeinfo(hints);

	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
	check("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
	check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	check("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
	check("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(ep));

	check("fi_getname", fi_getname(&ep->fid, mine, &length));
	exchange(mine, theirs, sizeof mine);
	if (fi_av_insert(av, theirs, 1, &peer, 0, NULL) != 1)
		fail("fi_av_insert", -FI_EADDRNOTAVAIL);

	/* One allocation for both directions: one registration for the providers that want one. */
	if (posix_memalign((void **)&tx_buffer, 4096, 2 * (size_t)MOST))
		fail("posix_memalign", -FI_ENOMEM);
	rx_buffer = tx_buffer + MOST;
	memset(tx_buffer, 0, 2 * (size_t)MOST);
	if (info->domain_attr->mr_mode & FI_MR_LOCAL) {
		check("fi_mr_reg", fi_mr_reg(domain, tx_buffer, 2 * (size_t)MOST, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, 1, 0, &mr, NULL));
		desc = fi_mr_desc(mr);
	}
	if (atomics || rma)
		open_counter();
	tx_contexts = calloc(4 * RATE_WINDOW, sizeof *tx_contexts);
	rx_contexts = calloc(4 * RATE_WINDOW, sizeof *rx_contexts);
	if (!tx_contexts || !rx_contexts)
		fail("calloc", -FI_ENOMEM);
}

/* Side 0 sends, side 1 answers: half of the mean round trip, in microseconds. */
static double latency(size_t size, int rounds, int injected)
{
	int warm_up = rounds / 10 + 10;
	double begin = 0;

	if (injected && size > info->tx_attr->inject_size)
		fail("the size is over the provider's inject limit", -FI_EINVAL);
	if (side == 1)
		post_receive(size, TAG_DATA);
	meet();
	for (int i = -warm_up; i < rounds; i++) {
		if (i == 0)
			begin = now();
		if (side == 0)
			post_receive(size, TAG_DATA);
		else {
			wait_for(&received, rx_next);
			if (i + 1 < rounds)
				post_receive(size, TAG_DATA);
		}
		if (injected)
			inject(size, TAG_DATA);
		else
			post_send(size, TAG_DATA);
		if (side == 0)
			wait_for(&received, rx_next);
		wait_for(&sent, tx_next);
	}
	return (now() - begin) / rounds / 2 * 1e6;
}

/*
 * All messages of a window leave from one buffer and arrive in one, as in the OSU benchmarks and fabtests: what is measured
 * is the provider, with its data in cache. (`verify` looks at contents.)
 *
 * Side 0 sends windows, side 1 answers each with an empty message once its receives for the next are posted.
 */
static double windows(size_t size, int rounds, int window, int injected)
{
	int warm_up = rounds / 10 + 2;
	double begin = 0;

	if (side == 1)
		for (int i = 0; i < window; i++)
			post_receive(size, TAG_DATA);
	meet();
	for (int turn = -warm_up; turn < rounds; turn++) {
		if (turn == 0)
			begin = now();
		if (side == 0) {
			post_receive(0, TAG_ANSWER);
			for (int i = 0; i < window; i++) {
				if (injected)
					inject(size, TAG_DATA);
				else
					post_send(size, TAG_DATA);
			}
			wait_for(&sent, tx_next);
			wait_for(&received, rx_next);
		} else {
			wait_for(&received, rx_next);
			if (turn + 1 < rounds)
				for (int i = 0; i < window; i++)
					post_receive(size, TAG_DATA);
			post_send(0, TAG_ANSWER);
			wait_for(&sent, tx_next);
		}
	}
	return (double)rounds * window / (now() - begin);
}

/* One addition to the other side's counter. */
static void post_add(int fetches)
{
	void *context = &tx_contexts[tx_next++ % (4 * RATE_WINDOW)];
	uint64_t *one = (uint64_t *)tx_buffer;

	*one = 1;
	added++;
	if (fetches)
		RETRY("fi_fetch_atomic", fi_fetch_atomic(ep, one, 1, desc, rx_buffer, desc, peer, place.addr, place.key,
							 FI_UINT64, FI_SUM, context));
	else
		RETRY("fi_atomic", fi_atomic(ep, one, 1, desc, peer, place.addr, place.key, FI_UINT64, FI_SUM, context));
}

/*
 * Side 0 adds, in windows; side 1 makes progress. At the end the counter is what was added, or nothing is printed. The
 * seconds of a window.
 */
static double additions(int rounds, int window, int fetches)
{
	int warm_up = rounds / 10 + 10;
	double begin = 0, took;
	uint64_t sum;

	meet();
	if (side == 0)
		for (int turn = -warm_up; turn < rounds; turn++) {
			if (turn == 0)
				begin = now();
			for (int i = 0; i < window; i++)
				post_add(fetches);
			wait_for(&sent, tx_next);
		}
	took = (now() - begin) / rounds;
	/* What is complete without a value is perhaps not done yet: this one is behind it all. */
	if (side == 0) {
		post_add(1);
		wait_for(&sent, tx_next);
		memcpy(&sum, rx_buffer, sizeof sum);
		if (fetches && sum != added - 1) {
			fprintf(stderr, "fi_perf: the counter is %lu, not %lu\n", sum, added - 1);
			exit(1);
		}
	}
	meet();
	exchange(&added, &sum, sizeof sum);
	if (side == 1) {
		double end = now() + PATIENCE;
		while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) != sum) {
			progress();
			if (now() > end) {
				fprintf(stderr, "fi_perf: the counter is %lu, not %lu\n", *counter, sum);
				exit(1);
			}
		}
	}
	meet();
	return took;
}

/* A read of the other side's memory. */
static void post_get(size_t size)
{
	void *context = &tx_contexts[tx_next++ % (4 * RATE_WINDOW)];

	RETRY("fi_read", fi_read(ep, rx_buffer, size, desc, peer, place.addr, place.key, context));
}

/* A write to it that completes when it is there. */
static void post_put(size_t size)
{
	struct iovec from = {tx_buffer, size};
	struct fi_rma_iov to = {place.addr, size, place.key};
	struct fi_msg_rma message = {.msg_iov = &from, .desc = &desc, .iov_count = 1, .addr = peer,
				     .rma_iov = &to, .rma_iov_count = 1};

	message.context = &tx_contexts[tx_next++ % (4 * RATE_WINDOW)];
	RETRY("fi_writemsg", fi_writemsg(ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
}

/* A write that completes as the provider likes. */
static void post_write(size_t size)
{
	void *context = &tx_contexts[tx_next++ % (4 * RATE_WINDOW)];

	RETRY("fi_write", fi_write(ep, tx_buffer, size, desc, peer, place.addr, place.key, context));
}

/* Side 0 reads or writes, side 1 makes progress until it is told that it is over: the seconds of one. */
static double accesses(size_t size, int rounds, void (*post)(size_t))
{
	int warm_up = rounds / 10 + 10;
	double begin = 0;

	if (side == 1)
		post_receive(0, TAG_ANSWER);
	meet();
	if (side == 1) {
		wait_for(&received, rx_next);
		return 0;
	}
	for (int turn = -warm_up; turn < rounds; turn++) {
		if (turn == 0)
			begin = now();
		post(size);
		wait_for(&sent, tx_next);
	}
	double took = (now() - begin) / rounds;
	post_send(0, TAG_ANSWER);
	wait_for(&sent, tx_next);
	return took;
}

/* Times of calls in nanoseconds, of which the median counts: interrupts lengthen some by far. */
struct samples {
	double *times;
	int count, most;
};

static int compare_times(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;

	return (one > other) - (one < other);
}

static double median(struct samples *samples)
{
	if (samples->count == 0)
		fail("there are no samples", -FI_EOTHER);
	qsort(samples->times, (size_t)samples->count, sizeof *samples->times, compare_times);
	return samples->times[samples->count / 2];
}

/* Adds the time from `begin` to `end`, without the one reading of the clock that is in it. */
static void add_sample(struct samples *samples, double begin, double end, double clock)
{
	double took = (end - begin) * 1e9 - clock;

	if (samples->count < samples->most)
		samples->times[samples->count++] = took > 0 ? took : 0;
}

/* Nanoseconds that a reading of the clock takes. */
static double clock_cost(int rounds)
{
	double begin = now(), end = begin;

	for (int i = 0; i < rounds; i++)
		end = now();
	return (end - begin) / rounds * 1e9;
}

static void send_one(size_t size, int injected)
{
	if (injected)
		inject(size, TAG_DATA);
	else
		post_send(size, TAG_DATA);
}

/*
 * Times of single calls. Side 0 sends `out` bytes, and side 1 answers with `in` bytes. The answer has arrived when side 0 looks for
 * it: it computes meanwhile. So a read takes what it takes to receive, and not the time of a wait.
 */
enum { POLLS = 8 };
static double call_time(char kind, size_t out, size_t in, int rounds, int injected)
{
	const double pause = 100e-6;
	struct samples samples = {malloc((size_t)rounds * POLLS * sizeof(double)), 0, rounds * POLLS};
	int warm_up = rounds / 10 + 10;
	double clock = clock_cost(100000);

	if (!samples.times)
		fail("malloc", -FI_ENOMEM);
	if (injected && out > info->tx_attr->inject_size)
		fail("the size is over the provider's inject limit", -FI_EINVAL);
	if (side == 1)
		post_receive(out, TAG_DATA);
	meet();
	for (int i = -warm_up; i < rounds; i++) {
		if (side == 1) {
			wait_for(&received, rx_next);
			if (i + 1 < rounds)
				post_receive(out, TAG_DATA);
			send_one(in, in == 0);
			wait_for(&sent, tx_next);
			continue;
		}
		post_receive(in, TAG_DATA);
		double begin = now();
		send_one(out, injected);
		double end = now();
		if (kind == 's' && i >= 0)
			add_sample(&samples, begin, end, clock);
		while (now() < end + pause)
			;
		while (received < rx_next) {
			begin = now();
			progress();
			end = now();
		}
		if (kind == 'r' && i >= 0)
			add_sample(&samples, begin, end, clock);
		wait_for(&sent, tx_next);
		for (int poll = 0; poll < POLLS; poll++) {
			begin = now();
			progress();
			end = now();
			if (kind == 'p' && i >= 0)
				add_sample(&samples, begin, end, clock);
		}
	}
	double value = side == 0 ? median(&samples) : 0;
	free(samples.times);
	return value;
}

/* Median time of a call with which side 0 reads or writes, while side 1 makes progress until it is told that it is over. */
static double access_call_time(size_t size, int rounds, void (*post)(size_t))
{
	struct samples samples = {malloc((size_t)rounds * sizeof(double)), 0, rounds};
	int warm_up = rounds / 10 + 10;
	double clock = clock_cost(100000), value = 0;

	if (!samples.times)
		fail("malloc", -FI_ENOMEM);
	if (side == 1)
		post_receive(0, TAG_ANSWER);
	meet();
	if (side == 1) {
		wait_for(&received, rx_next);
	} else {
		for (int i = -warm_up; i < rounds; i++) {
			double begin = now();
			post(size);
			double end = now();
			if (i >= 0)
				add_sample(&samples, begin, end, clock);
			wait_for(&sent, tx_next);
		}
		post_send(0, TAG_ANSWER);
		wait_for(&sent, tx_next);
		value = median(&samples);
	}
	free(samples.times);
	return value;
}

/* Median time of a receive call of side 0 whose message has arrived: side 1 sends it when it is asked, and side 0 polls meanwhile. */
static double unexpected_time(size_t size, int rounds)
{
	const double pause = 100e-6;
	struct samples samples = {malloc((size_t)rounds * sizeof(double)), 0, rounds};
	int warm_up = rounds / 10 + 10;
	double clock = clock_cost(100000);

	if (!samples.times)
		fail("malloc", -FI_ENOMEM);
	if (side == 1)
		post_receive(0, TAG_ANSWER);
	meet();
	for (int i = -warm_up; i < rounds; i++) {
		if (side == 1) {
			wait_for(&received, rx_next);
			if (i + 1 < rounds)
				post_receive(0, TAG_ANSWER);
			post_send(size, TAG_DATA);
			wait_for(&sent, tx_next);
			continue;
		}
		inject(0, TAG_ANSWER);
		double begin = now();
		while (now() < begin + pause)
			progress();
		begin = now();
		post_receive(size, TAG_DATA);
		double end = now();
		if (i >= 0)
			add_sample(&samples, begin, end, clock);
		wait_for(&received, rx_next);
	}
	double value = side == 0 ? median(&samples) : 0;
	free(samples.times);
	return value;
}

/* Median time of a read of the queue by side 0 that finds the completion of a send. Side 1 receives, and answers nothing. */
static double completion_time(size_t size, int rounds)
{
	const double pause = 100e-6;
	struct samples samples = {malloc((size_t)rounds * sizeof(double)), 0, rounds};
	int warm_up = rounds / 10 + 10, all = rounds + warm_up;
	double clock = clock_cost(100000);

	if (!samples.times)
		fail("malloc", -FI_ENOMEM);
	if (side == 1)
		for (int i = 0; i < 2 && i < all; i++)
			post_receive(size, TAG_DATA);
	uint64_t before = received;
	meet();
	for (int i = -warm_up; i < rounds; i++) {
		if (side == 1) {
			/* One read may find several. */
			wait_for(&received, before + (uint64_t)(i + warm_up) + 1);
			if (i + 2 < rounds)
				post_receive(size, TAG_DATA);
			continue;
		}
		post_send(size, TAG_DATA);
		double begin = now(), end = begin;
		while (now() < begin + pause)
			;
		while (sent < tx_next) {
			begin = now();
			progress();
			end = now();
		}
		if (i >= 0)
			add_sample(&samples, begin, end, clock);
	}
	double value = side == 0 ? median(&samples) : 0;
	free(samples.times);
	return value;
}

/* A byte that depends on its offset and on the message. */
static unsigned char byte_at(size_t offset, unsigned message)
{
	uint64_t x = (offset / 8 + 1) * 0x9E3779B97F4A7C15u + message * 0xBF58476D1CE4E5B9u;
	x ^= x >> 31;
	return (unsigned char)(x >> (offset % 8 * 8));
}

/* Both sides send to each other and compare: the bytes that were right. */
static double verify(size_t size, int rounds)
{
	double bytes = 0;

	for (int turn = 0; turn < rounds; turn++) {
		for (size_t i = 0; i < size; i++)
			tx_buffer[i] = (char)byte_at(i, (unsigned)(2 * turn + side));
		memset(rx_buffer, 0xEE, size + 64);
		post_receive(size, TAG_DATA);
		meet();
		post_send(size, TAG_DATA);
		wait_for(&sent, tx_next);
		wait_for(&received, rx_next);
		for (size_t i = 0; i < size + 64; i++) {
			unsigned char want = i < size ? byte_at(i, (unsigned)(2 * turn + !side)) : 0xEE;
			if ((unsigned char)rx_buffer[i] != want) {
				fprintf(stderr, "fi_perf: side %d: message of %zu bytes is wrong at %zu\n", side, size, i);
				exit(1);
			}
		}
		bytes += (double)size;
	}
	return bytes;
}

/* The processor time of this process, in seconds. */
static double used(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static double cost(size_t size, int rounds)
{
	double begin, mine, theirs;

	sleeping = 1;
	begin = used();
	windows(size, rounds, BW_WINDOW, 0);
	mine = used() - begin;
	sleeping = 0;
	exchange(&mine, &theirs, sizeof mine);
	/* The rounds that warm up count as well. */
	return (mine + theirs) * 1e3 / ((double)size * BW_WINDOW * (rounds + rounds / 10 + 2) * 1e-9);
}

static void measure(const char *what)
{
	char name[16];
	size_t size;
	int rounds;
	double value;

	if (sscanf(what, "%15[a-z]:%zu:%d", name, &size, &rounds) != 3 || size > MOST - 64 || rounds < 1) {
		fprintf(stderr, "fi_perf: what is %s?\n", what);
		exit(2);
	}
	meet();
	if (!strcmp(name, "lat"))
		value = latency(size, rounds, 0);
	else if (!strcmp(name, "latinj"))
		value = latency(size, rounds, 1);
	else if (!strcmp(name, "bw"))
		value = windows(size, rounds, BW_WINDOW, 0) * (double)size * 1e-9;
	else if (!strcmp(name, "cost"))
		value = cost(size, rounds);
	else if (!strcmp(name, "rate"))
		value = windows(size, rounds, RATE_WINDOW, 0) * 1e-6;
	else if (!strcmp(name, "rateinj"))
		value = windows(size, rounds, RATE_WINDOW, 1) * 1e-6;
	else if (!strcmp(name, "fadd") && size == sizeof *counter)
		value = additions(rounds, 1, 1) * 1e6;
	else if (!strcmp(name, "faddrate") && size == sizeof *counter)
		value = RATE_WINDOW / additions(rounds, RATE_WINDOW, 1) * 1e-6;
	else if (!strcmp(name, "addrate") && size == sizeof *counter)
		value = RATE_WINDOW / additions(rounds, RATE_WINDOW, 0) * 1e-6;
	else if (!strcmp(name, "get"))
		value = accesses(size, rounds, post_get) * 1e6;
	else if (!strcmp(name, "put"))
		value = accesses(size, rounds, post_put) * 1e6;
	else if (!strcmp(name, "post"))
		value = call_time('s', size, 0, rounds, 0);
	else if (!strcmp(name, "postinj"))
		value = call_time('s', size, 0, rounds, 1);
	else if (!strcmp(name, "postput"))
		value = access_call_time(size, rounds, post_write);
	else if (!strcmp(name, "postget"))
		value = access_call_time(size, rounds, post_get);
	else if (!strcmp(name, "unexp"))
		value = unexpected_time(size, rounds);
	else if (!strcmp(name, "sent"))
		value = completion_time(size, rounds);
	else if (!strcmp(name, "read"))
		value = call_time('r', 0, size, rounds, 1);
	else if (!strcmp(name, "poll"))
		value = call_time('p', 0, 0, rounds, 1);
	else if (!strcmp(name, "clock"))
		value = clock_cost(rounds);
	else if (!strcmp(name, "verify"))
		value = verify(size, rounds);
	else {
		fprintf(stderr, "fi_perf: what is %s?\n", what);
		exit(2);
	}
	if (side == 0) {
		printf("%s %.9g\n", what, value);
		fflush(stdout);
	}
}

/* The part of `first,second` that is this side's; all of a text without a comma. */
static char *ours(char *text)
{
	char *comma = strchr(text, ',');

	if (!comma)
		return text;
	*comma = 0;
	return side ? comma + 1 : text;
}

static void enter_namespace(void)
{
	const char *path = ours(namespaces);
	int fd = open(path, O_RDONLY);

	if (fd < 0 || setns(fd, CLONE_NEWNET)) {
		perror(path);
		exit(1);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	int option, pin = 1, ends[2], status = 0, code = 0;

	while ((option = getopt(argc, argv, "p:a:n:u")) != -1) {
		switch (option) {
		case 'p': provider = optarg; break;
		case 'a': address = optarg; break;
		case 'n': namespaces = optarg; break;
		case 'u': pin = 0; break;
		default: return 2;
		}
	}
	if (optind == argc) {
		fprintf(stderr, "usage: fi_perf [-p PROVIDER] [-a ADDRESS] [-n NETNS,NETNS] [-u] MEASURE.. (see the head of its source)\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
		perror("fi_perf: socketpair");
		return 1;
	}
	pid_t child = fork();
	if (child < 0) {
		perror("fi_perf: fork");
		return 1;
	}
	side = child == 0;
	channel = ends[side];
	close(ends[!side]);
	address = ours(address);
	if (namespaces)
		enter_namespace();
	if (pin) {
		cpu_set_t allowed, one;
		/* The first and the last core we may use; a failure costs precision only. */
		if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
			int first = -1, last = -1;
			for (int i = 0; i < CPU_SETSIZE; i++)
				if (CPU_ISSET(i, &allowed)) {
					if (first < 0)
						first = i;
					last = i;
				}
			CPU_ZERO(&one);
			CPU_SET(side ? last : first, &one);
			sched_setaffinity(0, sizeof one, &one);
		}
	}
	for (int i = optind; i < argc; i++) {
		may_sleep |= strstr(argv[i], "cost") == argv[i];
		atomics |= strstr(argv[i], "add") != NULL;
		rma |= strstr(argv[i], "get") != NULL || strstr(argv[i], "put") != NULL;
	}
	open_endpoint();
	for (int i = optind; i < argc; i++)
		measure(argv[i]);
	meet();
	check("fi_close", fi_close(&ep->fid));
	if (side == 0 && (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)))
		code = 1;
	return code;
}
