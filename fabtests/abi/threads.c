/* Many threads at once on the same endpoints, queues and domains, as FI_THREAD_SAFE allows: under a thread sanitizer every access
 * that no lock orders is an error; without one lost, doubled and mixed-up operations are. */
#include "abi.h"

#define ROUNDS 150
#define WRITES 60
#define TALKERS 2

static struct node a, b;
static fi_addr_t to_b, to_a;
static struct fid_cntr *sent, *received;

/* What one operation's context points to. */
struct op {
	_Atomic int done;
	int err;
	size_t len;
};

/* The data of the last remote write that completed at b. */
static _Atomic uint64_t written;
static _Atomic int over;

static void finish(void *context, int err, size_t len)
{
	struct op *op = context;
	op->err = err;
	op->len = len;
	if (op->done++)
		FAIL("completed twice");
}

/* Any thread may read the completions of all. */
static void drain(struct node *n)
{
	struct fi_cq_tagged_entry e[4];
	ssize_t got = fi_cq_read(n->cq, e, 4);
	for (ssize_t i = 0; i < got; i++)
		if (e[i].flags & FI_REMOTE_WRITE)
			written = e[i].data;
		else
			finish(e[i].op_context, 0, e[i].len);
	if (got == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		/* Another thread may have been faster. */
		if (fi_cq_readerr(n->cq, &err, 0) == 1)
			finish(err.op_context, err.err, err.len);
	} else if (got < 0) {
		EQUAL(got, -FI_EAGAIN);
	}
}

#define AWAIT(cond)                                                               \
	do {                                                                      \
		double end_ = abi_now() + PATIENCE;                               \
		while (!(cond)) {                                                 \
			drain(&a);                                                \
			drain(&b);                                                \
			if (abi_now() > end_)                                     \
				FAIL("not within %.0f s: %s", PATIENCE, #cond);   \
		}                                                                 \
	} while (0)

#define POST(call)                                                                \
	do {                                                                      \
		ssize_t rc_;                                                      \
		while ((rc_ = (call)) == -FI_EAGAIN)                              \
			drain(&a), drain(&b);                                     \
		EQUAL(rc_, 0);                                                    \
	} while (0)

/* One packet, a train, a rendezvous. */
static const size_t lens[] = {0, 8, 200, 5000, 60000, 200000};
#define LEN(i) lens[(i) % (sizeof(lens) / sizeof(*lens))]

static void *sender(void *tag)
{
	unsigned char *buf = malloc(200000);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct op op = {0};
		abi_fill(buf, LEN(i), i);
		POST(fi_tsend(a.ep, buf, LEN(i), NULL, to_b, (uintptr_t)tag, &op));
		AWAIT(op.done);
		EQUAL(op.err, 0);
	}
	free(buf);
	return NULL;
}

static void *receiver(void *tag)
{
	unsigned char *buf = malloc(200000);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct op op = {0};
		POST(fi_trecv(b.ep, buf, 200000, NULL, to_a, (uintptr_t)tag, 0, &op));
		AWAIT(op.done);
		EQUAL(op.err, 0);
		EQUAL(op.len, LEN(i));
		abi_verify(buf, LEN(i), i);
	}
	free(buf);
	return NULL;
}

/* Regions come and go while messages flow; each is written to by the peer. */
static void *regions(void *unused)
{
	unsigned char *from = malloc(5000), *to = malloc(5000);
	for (unsigned i = 1; i <= WRITES; i++) {
		struct op op = {0};
		struct fid_mr *mr;
		EQUAL(fi_mr_reg(b.domain, to, 5000, FI_REMOTE_WRITE, 0, 1000 + i, 0, &mr, NULL), 0);
		abi_fill(from, 5000, i);
		POST(fi_writedata(a.ep, from, 5000, NULL, i, to_b, 0, fi_mr_key(mr), &op));
		AWAIT(op.done && written == i);
		EQUAL(op.err, 0);
		abi_verify(to, 5000, i);
		EQUAL(fi_close(&mr->fid), 0);
	}
	free(from);
	free(to);
	return unused;
}

/* Receives that nothing matches, taken back. */
static void *canceller(void *unused)
{
	unsigned char buf[64];
	while (!over) {
		struct op op = {0};
		POST(fi_trecv(b.ep, buf, sizeof(buf), NULL, to_a, 99, 0, &op));
		EQUAL(fi_cancel(&b.ep->fid, &op), 0);
		AWAIT(op.done);
		EQUAL(op.err, FI_ECANCELED);
	}
	return unused;
}

/* Counters never go back, names stay what they are. */
static void *reader(void *unused)
{
	uint64_t before[2] = {0, 0};
	while (!over) {
		uint64_t now[2] = {fi_cntr_read(sent), fi_cntr_read(received)};
		CHECK(now[0] >= before[0] && now[1] >= before[1]);
		memcpy(before, now, sizeof(now));
		struct sockaddr_in name;
		size_t len = sizeof(name);
		EQUAL(fi_av_lookup(a.av, to_b, &name, &len), 0);
		CHECK(name.sin_port == b.name.sin_port);
	}
	return unused;
}

/* Other endpoints and addresses of the domain come and go. */
static void *neighbour(void *unused)
{
	while (!over) {
		struct fid_ep *ep;
		struct sockaddr_in name;
		size_t len = sizeof(name);
		fi_addr_t addr;
		EQUAL(fi_endpoint(a.domain, a.info, &ep, NULL), 0);
		EQUAL(fi_ep_bind(ep, &a.av->fid, 0), 0);
		EQUAL(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
		EQUAL(fi_enable(ep), 0);
		EQUAL(fi_getname(&ep->fid, &name, &len), 0);
		EQUAL(fi_av_insert(a.av, &name, 1, &addr, 0, NULL), 1);
		EQUAL(fi_av_remove(a.av, &addr, 1, 0), 0);
		EQUAL(fi_close(&ep->fid), 0);
		usleep(2000);
	}
	return unused;
}

static void together(enum fi_progress progress)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE,
			    .threading = FI_THREAD_SAFE,
			    .progress = progress};
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	void *(*workers[])(void *) = {regions, canceller, reader, neighbour};
	pthread_t talkers[2 * TALKERS], others[4];
	abi_open(&a, &want);
	abi_open(&b, &want);
	to_b = abi_insert(&a, &b.name);
	to_a = abi_insert(&b, &a.name);
	EQUAL(fi_cntr_open(a.domain, &attr, &sent, NULL), 0);
	EQUAL(fi_cntr_open(b.domain, &attr, &received, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &sent->fid, FI_SEND), 0);
	EQUAL(fi_ep_bind(b.ep, &received->fid, FI_RECV), 0);
	over = 0;
	written = 0;
	for (uintptr_t i = 0; i < TALKERS; i++) {
		EQUAL(pthread_create(&talkers[2 * i], NULL, receiver, (void *)i), 0);
		EQUAL(pthread_create(&talkers[2 * i + 1], NULL, sender, (void *)i), 0);
	}
	for (int i = 0; i < 4; i++)
		EQUAL(pthread_create(&others[i], NULL, workers[i], NULL), 0);
	for (int i = 0; i < 2 * TALKERS; i++)
		EQUAL(pthread_join(talkers[i], NULL), 0);
	EQUAL(pthread_join(others[0], NULL), 0);
	over = 1;
	for (int i = 1; i < 4; i++)
		EQUAL(pthread_join(others[i], NULL), 0);
	EQUAL(fi_cntr_read(sent), TALKERS * ROUNDS);
	EQUAL(fi_cntr_read(received), TALKERS * ROUNDS);
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(fi_close(&b.ep->fid), 0);
	EQUAL(fi_close(&sent->fid), 0);
	EQUAL(fi_close(&received->fid), 0);
	struct node *nodes[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		EQUAL(fi_close(&nodes[i]->cq->fid), 0);
		EQUAL(fi_close(&nodes[i]->av->fid), 0);
		EQUAL(fi_close(&nodes[i]->domain->fid), 0);
		EQUAL(fi_close(&nodes[i]->fabric->fid), 0);
		fi_freeinfo(nodes[i]->info);
	}
}

static void manual_progress(void)
{
	together(FI_PROGRESS_MANUAL);
}

static void automatic_progress(void)
{
	together(FI_PROGRESS_AUTO);
}

int main(void)
{
	RUN(manual_progress);
	RUN(automatic_progress);
	printf("%d checks\n", abi_checks);
	return 0;
}
