/* Random histories of regions, counters, queues, waits and deferred work, compared with a model of the manual
 * pages. After every few steps both sides complete all outstanding operations, and then every counter, every byte and
 * every queue must agree with the model. HISTORIES_SEED=n runs history n again, HISTORIES=n sets the number of
 * histories, and HISTORIES_STEPS=n sets their length. */
#include "abi.h"

#include <rdma/fi_trigger.h>

enum { REGIONS = 5, PIECES = 3, PAGES = 24, PAGE = 96, COUNTERS = 4, WORKS = 12, CLOSED = 8, MESSAGES = 64, LONGEST = 3 * PAGE };

/* The longest time that an expected event may take. */
#define REST 30.0

static uint64_t seed, state;
static unsigned step;
static const char *doing = "nothing";

#define WRONG(...)                                                                                                            \
	do {                                                                                                                  \
		fprintf(stderr, "HISTORIES_SEED=%llu, step %u (%s): ", (unsigned long long)seed, step, doing);                 \
		FAIL(__VA_ARGS__);                                                                                            \
	} while (0)

#define SAME(a, b)                                                                                                            \
	do {                                                                                                                  \
		long long va_ = (long long)(a), vb_ = (long long)(b);                                                         \
		abi_checks++;                                                                                                 \
		if (va_ != vb_)                                                                                               \
			WRONG("%s is %lld, not %s = %lld", #a, va_, #b, vb_);                                                  \
	} while (0)

/* xorshift64*: the same seed gives the same history. */
static unsigned dice(unsigned below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (unsigned)((state * 2685821657736338717ULL) >> 33) % below;
}

/* A counter and the value that the model expects. */
struct counter {
	struct fid_cntr *cntr;
	uint64_t value, errors;
};

struct region {
	struct fid_mr *mr;
	uint64_t key, access, counts;
	int pieces, counter;
	struct iovec iov[PIECES];
};

/* The state of deferred work: it waits, or it has begun. */
struct work {
	int waits, on, adds_to, value;
	uint64_t threshold;
	struct fi_deferred_work request;
	struct fi_op_cntr add;
	struct fi_op_tagged send;
	struct iovec iov;
};

/* A message, and the completions that are still to come for it. */
struct message {
	int sent, received, failed, len;
	uint64_t tag, data, has_data;
	unsigned char out[LONGEST], in[LONGEST];
};

static struct node a, b;
static fi_addr_t to_b;
static struct region regions[REGIONS];
static uint64_t closed[CLOSED];
static unsigned closings;
/* The region counters on b, the trigger counters on a, and the counters of a's own operations. */
static struct counter accesses[COUNTERS], triggers[COUNTERS], sends, reads, writes;
static struct work works[WORKS];
static struct message messages[MESSAGES];
static unsigned next_message;
static unsigned char pool[PAGES][PAGE], mirror[PAGES][PAGE];
static unsigned signals_open;
static unsigned long rejected, accepted, begun;

static void open_counter(struct counter *c, struct node *n)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	memset(c, 0, sizeof(*c));
	EQUAL(fi_cntr_open(n->domain, &attr, &c->cntr, NULL), 0);
}

static struct message *message_of(void *context)
{
	struct message *m = context;
	if (m < messages || m >= messages + MESSAGES)
		WRONG("an entry has a context that belongs to no operation: %p", context);
	return m;
}

/* Checks one entry of either queue against the model. */
static void ended(struct node *n, const struct fi_cq_tagged_entry *e)
{
	struct message *m = message_of(e->op_context);
	if (n == &a) {
		SAME(e->flags, FI_SEND | FI_TAGGED);
		SAME(m->sent++, 0);
		return;
	}
	SAME(e->flags, FI_RECV | FI_TAGGED | (m->has_data ? FI_REMOTE_CQ_DATA : 0));
	SAME(m->received++, 0);
	SAME(e->len, m->len);
	SAME(e->tag, m->tag);
	if (m->has_data)
		SAME(e->data, m->data);
	if (memcmp(m->in, m->out, (size_t)m->len))
		WRONG("a message arrived with wrong bytes");
}

/* Reads a queue in one of the possible ways. Returns whether anything came. */
static int read_queue(struct node *n)
{
	struct fi_cq_tagged_entry e[4];
	fi_addr_t from[4];
	struct fid *fids[1] = {&n->cq->fid};
	size_t most = dice(4) + 1;
	ssize_t rc;
	switch (dice(6)) {
	case 0:
		rc = fi_cq_readfrom(n->cq, e, most, from);
		break;
	case 1:
		rc = fi_cq_sread(n->cq, e, most, NULL, 0);
		/* The read answered a signal. */
		if (n == &a && rc == -FI_EAGAIN)
			signals_open = 0;
		break;
	case 2:
		(void)fi_cq_read(n->cq, NULL, 0);
		rc = fi_trywait(n->fabric, fids, 1);
		if (n == &a && rc == -FI_EAGAIN)
			signals_open = 0;
		if (rc && rc != -FI_EAGAIN)
			WRONG("fi_trywait: %zd", rc);
		rc = fi_cq_read(n->cq, e, most);
		break;
	default:
		rc = fi_cq_read(n->cq, e, most);
	}
	if (rc == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		SAME(fi_cq_readerr(n->cq, &err, FI_PEEK), 1);
		SAME(fi_cq_readerr(n->cq, &err, 0), 1);
		WRONG("an operation failed: %s", fi_cq_strerror(n->cq, err.prov_errno, err.err_data, NULL, 0));
	}
	if (rc != -FI_EAGAIN && (rc <= 0 || rc > (ssize_t)most))
		WRONG("a read of %zu entries: %zd", most, rc);
	for (ssize_t i = 0; i < rc; i++)
		ended(n, &e[i]);
	return rc > 0;
}

/* Applies the effects of a trigger's change to the model. Additions commute, so their order does not matter. */
static void apply_triggers(void)
{
	for (int again = 1; again;) {
		again = 0;
		for (struct work *w = works; w < works + WORKS; w++) {
			struct counter *on = &triggers[w->on];
			if (!w->waits || on->value + on->errors < w->threshold)
				continue;
			w->waits = 0;
			begun++;
			/* A send counts when it has ended, and it will have ended before the next comparison. */
			triggers[w->adds_to].value += (uint64_t)w->value;
			again = 1;
		}
	}
}

static int is_open(const struct message *m)
{
	return m->len >= 0 && (!m->sent || !m->received);
}

/* Completes all outstanding operations on both sides, and compares everything with the model. */
static void complete_all(void)
{
	struct fid *fids[1] = {&a.cq->fid};
	struct fi_cq_tagged_entry e;
	double end = abi_now() + REST;
	apply_triggers();
	for (unsigned i = 0, quiet = 0; quiet < 4;) {
		int busy = read_queue(&a) | read_queue(&b);
		while (i < MESSAGES && !is_open(&messages[i]))
			i++;
		quiet = busy || i < MESSAGES ? 0 : quiet + 1;
		if (abi_now() > end)
			WRONG("message %u is not over: sent %d, received %d", i, messages[i].sent, messages[i].received);
	}
	/* Completions of reads at their target, and of deferred work, may still be in flight. */
	struct counter *const all[] = {accesses, triggers};
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < COUNTERS; i++)
			while (fi_cntr_read(all[k][i].cntr) < all[k][i].value) {
				(void)fi_cq_read(a.cq, NULL, 0);
				(void)fi_cq_read(b.cq, NULL, 0);
				if (abi_now() > end)
					WRONG("%s counter %d says %lu, not %lu", k ? "trigger" : "access", i,
					      (unsigned long)fi_cntr_read(all[k][i].cntr), (unsigned long)all[k][i].value);
			}
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < COUNTERS; i++) {
			SAME(fi_cntr_read(all[k][i].cntr), all[k][i].value);
			SAME(fi_cntr_readerr(all[k][i].cntr), all[k][i].errors);
		}
	struct counter *const own[] = {&sends, &reads, &writes};
	for (int i = 0; i < 3; i++) {
		/* An injected send has no entry to wait for. */
		while (fi_cntr_read(own[i]->cntr) < own[i]->value && abi_now() < end)
			(void)fi_cq_read(b.cq, NULL, 0);
		SAME(fi_cntr_read(own[i]->cntr), own[i]->value);
		SAME(fi_cntr_readerr(own[i]->cntr), own[i]->errors);
		SAME(fi_cntr_wait(own[i]->cntr, own[i]->value, 0), 0);
	}
	if (memcmp(pool, mirror, sizeof(pool)))
		WRONG("memory is not as the writes have left it");
	SAME(fi_cq_read(b.cq, &e, 1), -FI_EAGAIN);
	SAME(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
	/* A signal is one reason not to sleep. Without entries, and without any in flight, there is no other
	 * reason. */
	if (signals_open)
		SAME(fi_trywait(a.fabric, fids, 1), -FI_EAGAIN);
	signals_open = 0;
	while (fi_trywait(a.fabric, fids, 1) == -FI_EAGAIN)
		if (abi_now() > end)
			WRONG("fi_trywait never allowed a sleep");
}

static void register_region(void)
{
	struct region *r = &regions[dice(REGIONS)];
	if (r->mr)
		return;
	const uint64_t rights[] = {FI_REMOTE_WRITE, FI_REMOTE_READ, FI_REMOTE_READ | FI_REMOTE_WRITE};
	r->access = rights[dice(3)];
	r->pieces = (int)dice(PIECES) + 1;
	for (int i = 0; i < r->pieces; i++) {
		/* Registers pages that are often consecutive, in any order, and sometimes twice. */
		size_t page = dice(PAGES), at = dice(3) ? 0 : dice(PAGE), len = dice(3) ? PAGE - at : dice(PAGE + 1 - (unsigned)at);
		r->iov[i] = (struct iovec){&pool[page][at], len};
	}
	EQUAL(fi_mr_regv(b.domain, r->iov, (size_t)r->pieces, r->access, 0, 0, FI_RMA_EVENT, &r->mr, NULL), 0);
	r->key = fi_mr_key(r->mr);
	r->counter = (int)dice(COUNTERS + 1) - 1;
	r->counts = dice(2) ? FI_REMOTE_READ | FI_REMOTE_WRITE : dice(2) ? FI_REMOTE_READ : FI_REMOTE_WRITE;
	if (r->counter >= 0)
		EQUAL(fi_mr_bind(r->mr, &accesses[r->counter].cntr->fid, r->counts), 0);
	EQUAL(fi_mr_enable(r->mr), 0);
}

static void close_region(struct region *r)
{
	if (!r->mr)
		return;
	EQUAL(fi_close(&r->mr->fid), 0);
	closed[closings++ % CLOSED] = r->key;
	r->mr = NULL;
}

/* Returns whether a region contains all of a range. */
static int contains(const struct region *r, const unsigned char *at, size_t len)
{
	for (size_t k = 0; k < len; k++) {
		int inside = 0;
		for (int i = 0; i < r->pieces; i++) {
			const unsigned char *base = r->iov[i].iov_base;
			inside |= at + k >= base && at + k < base + r->iov[i].iov_len;
		}
		if (!inside)
			return 0;
	}
	return 1;
}

enum how { SERVED, CUT, ALONE };

/* Writes or reads some range by some key. With CUT the range's region is closed during the access. With ALONE the
 * target makes no call during the access, so that background progress answers, and the region may be closed by the
 * target's next call. */
static void access_region(enum how how)
{
	int cut = how == CUT;
	struct region *r = &regions[dice(REGIONS)];
	static unsigned char bytes[LONGEST];
	static int context;
	int is_read = !cut && dice(2), stale = !r->mr || dice(12) == 0;
	uint64_t key = stale ? closed[dice(CLOSED)] : r->key, needed = is_read ? FI_REMOTE_READ : FI_REMOTE_WRITE;
	/* The range begins near one of the region's pieces. */
	const struct iovec *piece = &r->iov[r->mr ? dice((unsigned)r->pieces) : 0];
	unsigned char *at = r->mr ? (unsigned char *)piece->iov_base : pool[0];
	at += dice(3) ? (int)dice(16) : (int)dice(PAGE) - 8;
	size_t len = dice(8) ? dice(PAGE - 16) + 1 : dice(LONGEST) + 1;
	if (at < pool[0] || at + len > pool[0] + sizeof(pool))
		return;
	int allowed = !stale && r->access & needed && contains(r, at, len);
	struct counter *own = is_read ? &reads : &writes;
	struct fi_cq_tagged_entry e;
	double end = abi_now() + REST;
	ssize_t rc;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)dice(256);
	complete_all();
	doing = is_read ? "read" : cut ? "write to a region that is closed" : how == ALONE ? "write without calls of the target" : "write";
	double away = how == ALONE ? abi_now() + 2 : 0;
	if (is_read)
		RETRY(&a, fi_read(a.ep, bytes, len, NULL, to_b, (uint64_t)(uintptr_t)at, key, &context));
	else
		RETRY(&a, fi_write(a.ep, bytes, len, NULL, to_b, (uint64_t)(uintptr_t)at, key, &context));
	if (cut) {
		for (unsigned n = dice(4); n > 0; n--)
			(void)fi_cq_read(b.cq, NULL, 0);
		close_region(r);
	}
	do {
		rc = fi_cq_read(a.cq, &e, 1);
		if (abi_now() > away)
			(void)fi_cq_read(b.cq, NULL, 0);
		if (abi_now() > end)
			WRONG("an access has not ended");
	} while (rc == -FI_EAGAIN);
	if (rc == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		SAME(fi_cq_readerr(a.cq, &err, 0), 1);
		CHECK(err.op_context == &context);
		if (allowed && !cut)
			WRONG("an access to %zu bytes that are inside failed: %s", len, fi_strerror(err.err));
		SAME(err.err, FI_EKEYREJECTED);
		own->errors++;
		rejected++;
		return;
	}
	SAME(rc, 1);
	CHECK(e.op_context == &context);
	if (!allowed)
		WRONG("an access to %zu bytes at offset %td by %s key succeeded", len, at - pool[0], stale ? "a stale" : "its");
	own->value++;
	accepted++;
	if (r->counter >= 0 && r->counts & needed)
		accesses[r->counter].value++;
	if (!is_read)
		memcpy(mirror[0] + (at - pool[0]), bytes, len);
	else if (memcmp(bytes, at, len))
		WRONG("a read of %zu bytes returned wrong bytes", len);
	if (how == ALONE && !is_read && dice(2)) {
		close_region(r);
		for (int i = 0; i < REGIONS; i++)
			register_region();
	}
}

static struct message *new_message(void)
{
	struct message *m = &messages[next_message++ % MESSAGES];
	if (is_open(m))
		complete_all();
	int len = dice(3) ? (int)dice(64) : (int)dice(LONGEST);
	memset(m, 0, sizeof(*m));
	m->len = len;
	m->tag = next_message;
	m->data = (uint64_t)dice(1u << 30) << 20;
	for (int i = 0; i < len; i++)
		m->out[i] = (unsigned char)dice(256);
	return m;
}

static void post(struct message *m)
{
	EQUAL(fi_trecv(b.ep, m->in, LONGEST, NULL, FI_ADDR_UNSPEC, m->tag, 0, m), 0);
}

static void send_message(void)
{
	struct message *m = new_message();
	int early = (int)dice(2);
	size_t len = (size_t)m->len;
	if (early)
		post(m);
	m->has_data = dice(4) == 0;
	if (m->has_data) {
		RETRY(&a, fi_tsenddata(a.ep, m->out, len, NULL, m->data, to_b, m->tag, m));
	} else if (dice(3) == 0) {
		RETRY(&a, fi_tinject(a.ep, m->out, len, to_b, m->tag));
		m->sent = 1;
	} else {
		RETRY(&a, fi_tsend(a.ep, m->out, len, NULL, to_b, m->tag, m));
	}
	sends.value++;
	if (!early)
		post(m);
}

/* Queues deferred work for some counter: the change of another counter, or a send. */
static void queue_work(void)
{
	struct work *w = &works[dice(WORKS)];
	if (w->waits)
		return;
	complete_all();
	int is_send = dice(3) == 0;
	memset(w, 0, sizeof(*w));
	w->on = (int)dice(COUNTERS);
	/* Work that triggers itself would never end. */
	w->adds_to = (w->on + 1 + (int)dice(COUNTERS - 1)) % COUNTERS;
	w->value = is_send ? 1 : (int)dice(4) + 1;
	w->threshold = triggers[w->on].value + triggers[w->on].errors + dice(8);
	w->request.threshold = w->threshold;
	w->request.triggering_cntr = triggers[w->on].cntr;
	if (is_send) {
		struct message *m = new_message();
		post(m);
		w->iov = (struct iovec){m->out, (size_t)m->len};
		w->send = (struct fi_op_tagged){.ep = a.ep, .msg = {.msg_iov = &w->iov, .iov_count = 1, .addr = to_b, .tag = m->tag}};
		w->send.msg.context = m;
		w->send.flags = FI_COMPLETION;
		w->request.op_type = FI_OP_TSEND;
		w->request.op.tagged = &w->send;
		w->request.completion_cntr = triggers[w->adds_to].cntr;
		/* The work counts for its own counter alone, and must begin before the model waits for it. */
		w->threshold = w->request.threshold = 0;
	} else {
		w->add = (struct fi_op_cntr){.cntr = triggers[w->adds_to].cntr, .value = (uint64_t)w->value};
		w->request.op_type = FI_OP_CNTR_ADD;
		w->request.op.cntr = &w->add;
	}
	w->waits = 1;
	EQUAL(fi_control(&a.domain->fid, FI_QUEUE_WORK, &w->request), 0);
	apply_triggers();
}

static void take_work_back(void)
{
	struct work *w = &works[dice(WORKS)];
	complete_all();
	doing = "taking work back";
	switch (dice(6)) {
	case 0:
		SAME(fi_control(&a.domain->fid, FI_FLUSH_WORK, NULL), 0);
		for (int i = 0; i < WORKS; i++)
			works[i].waits = 0;
		break;
	case 1: {
		int on = (int)dice(COUNTERS);
		SAME(fi_control(&a.domain->fid, FI_FLUSH_WORK, triggers[on].cntr), 0);
		for (int i = 0; i < WORKS; i++)
			works[i].waits &= works[i].on != on;
		break;
	}
	default:
		SAME(fi_control(&a.domain->fid, FI_CANCEL_WORK, &w->request), w->waits ? 0 : -FI_ENOENT);
		w->waits = 0;
	}
}

static void change_counter(void)
{
	struct counter *c = &triggers[dice(COUNTERS)];
	unsigned by = dice(4);
	switch (dice(6)) {
	case 0:
		/* The counter is not set while an operation adds to it. */
		complete_all();
		doing = "setting a counter";
		c->value = dice(2) ? 0 : c->value + by;
		EQUAL(fi_cntr_set(c->cntr, c->value), 0);
		break;
	case 1:
		c->errors += by;
		EQUAL(fi_cntr_adderr(c->cntr, by), 0);
		break;
	default:
		c->value += by;
		EQUAL(fi_cntr_add(c->cntr, by), 0);
	}
	apply_triggers();
}

static void history(unsigned steps)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_RMA_EVENT | FI_TRIGGER,
			    .mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY,
			    .wait = FI_WAIT_FD};
	state = seed * 0x9e3779b97f4a7c15ULL + 1;
	want.threading = dice(2) ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
	want.progress = dice(4) ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO;
	memset(regions, 0, sizeof(regions));
	memset(works, 0, sizeof(works));
	for (int i = 0; i < MESSAGES; i++)
		messages[i].len = -1;
	for (int i = 0; i < CLOSED; i++)
		closed[i] = ((uint64_t)dice(1u << 30) << 33) | 1;
	abi_fill(pool[0], sizeof(pool), (unsigned)seed);
	memcpy(mirror, pool, sizeof(pool));
	signals_open = 0;
	abi_open(&a, &want);
	abi_open(&b, &want);
	to_b = abi_insert(&a, &b.name);
	for (int i = 0; i < COUNTERS; i++) {
		open_counter(&accesses[i], &b);
		open_counter(&triggers[i], &a);
	}
	open_counter(&sends, &a);
	open_counter(&reads, &a);
	open_counter(&writes, &a);
	EQUAL(fi_ep_bind(a.ep, &sends.cntr->fid, FI_SEND), 0);
	EQUAL(fi_ep_bind(a.ep, &reads.cntr->fid, FI_READ), 0);
	EQUAL(fi_ep_bind(a.ep, &writes.cntr->fid, FI_WRITE), 0);
	for (step = 0; step < steps; step++) {
		doing = "something";
		switch (dice(12)) {
		case 0:
			for (int i = 0; i < REGIONS; i++)
				register_region();
			break;
		case 1:
			/* The target counts a read when the reader has acknowledged its bytes, and a region that is closed
			 * before that takes the count with it. */
			if (dice(4) == 0) {
				complete_all();
				close_region(&regions[dice(REGIONS)]);
			}
			break;
		case 2:
		case 3:
		case 4:
			access_region(SERVED);
			break;
		case 5:
			access_region((enum how)dice(3));
			break;
		case 6:
			queue_work();
			break;
		case 7:
			if (dice(3) == 0)
				take_work_back();
			break;
		case 8:
		case 9:
			change_counter();
			break;
		case 10:
			EQUAL(fi_cq_signal(a.cq), 0);
			signals_open++;
			break;
		default:
			send_message();
		}
		if (dice(8) == 0) {
			doing = "coming to rest";
			complete_all();
		} else {
			(void)read_queue(dice(2) ? &a : &b);
		}
	}
	doing = "the end";
	complete_all();
	for (int i = 0; i < REGIONS; i++)
		close_region(&regions[i]);
	EQUAL(fi_control(&a.domain->fid, FI_FLUSH_WORK, NULL), 0);
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(fi_close(&b.ep->fid), 0);
	for (int i = 0; i < COUNTERS; i++) {
		EQUAL(fi_close(&accesses[i].cntr->fid), 0);
		EQUAL(fi_close(&triggers[i].cntr->fid), 0);
	}
	EQUAL(fi_close(&sends.cntr->fid), 0);
	EQUAL(fi_close(&reads.cntr->fid), 0);
	EQUAL(fi_close(&writes.cntr->fid), 0);
	struct node *nodes[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		EQUAL(fi_close(&nodes[i]->cq->fid), 0);
		EQUAL(fi_close(&nodes[i]->av->fid), 0);
		EQUAL(fi_close(&nodes[i]->domain->fid), 0);
		EQUAL(fi_close(&nodes[i]->fabric->fid), 0);
		fi_freeinfo(nodes[i]->info);
	}
}

static unsigned number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

int main(void)
{
	unsigned count = number("HISTORIES", getenv("ABI_SLOW") ? 4 : 60), steps = number("HISTORIES_STEPS", 400);
	unsigned first = number("HISTORIES_SEED", 1);
	if (getenv("HISTORIES_SEED"))
		count = 1;
	double start = abi_now();
	setenv("FI_SQUALL_ATTEND", "1ms", 0);
	for (unsigned i = 0; i < count; i++) {
		seed = first + i;
		history(steps);
	}
	/* A run in which nothing happens proves nothing. */
	CHECK(accepted > 0 && rejected > 0 && begun > 0);
	printf("%u histories: %lu accesses, %lu refused, %lu works, %d checks, %.1f s\n", count, accepted, rejected, begun, abi_checks,
	       abi_now() - start);
	return 0;
}
