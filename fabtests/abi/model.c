/* Every transmitting call with every option, size and number of pieces, to peers that are known, not met yet, dead or
 * restarted, beside a model of the manual pages (model_expect.h): refused with the right error, or carried out, ended
 * once, not before its level, and its buffer never looked at again (guard.h).
 *
 *   model            everything
 *   MODEL_EVERY=n    about every n-th combination, for slow runs
 */
#include <fcntl.h>

#include "model_calls.h"

/* Small, so that a few kilobytes are several packets, and some more a rendezvous. */
#define EAGER 16384
enum { MOST_OPS = 16384, AREA = 16 << 20 };

static struct op ops[MOST_OPS];
static uint32_t next_id = 1;
static struct limits limits;
static unsigned every = 1;
static unsigned long done, refused, single, batched;
static const char *stats_file;

/* The side that calls. */
static struct node a;
static struct fid_cntr *cntr;
static unsigned long counted;
static uint64_t defaults;

/* The side that is called. */
struct target {
	struct node n;
	fi_addr_t addr;
	struct fid_mr *writes, *reads, *atomics;
	unsigned long turns;
};
static unsigned char *area, *source;
static size_t area_used;

static void describe(uint32_t id)
{
	fprintf(stderr, "operation %u, ", id);
	describe_combo(&ops[id % MOST_OPS].c);
}

static const struct want plain = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE};

static void open_caller(int selective, int with_counter)
{
	struct want want = plain;
	want.selective = selective ? FI_SELECTIVE_COMPLETION : 0;
	abi_open(&a, &want);
	limits.inject = a.info->tx_attr->inject_size;
	limits.pieces = a.info->tx_attr->iov_limit;
	limits.ranges = a.info->tx_attr->rma_iov_limit;
	EQUAL(fi_atomicvalid(a.ep, FI_UINT8, FI_SUM, &limits.atomic), 0);
	EQUAL(fi_fetch_atomicvalid(a.ep, FI_UINT8, FI_SUM, &limits.fetch), 0);
	EQUAL(fi_compare_atomicvalid(a.ep, FI_UINT8, FI_CSWAP, &limits.compare), 0);
	CHECK(limits.atomic > 64 && limits.fetch > 64 && limits.compare > 64);
	EQUAL(limits.pieces, 4);
	EQUAL(limits.ranges, 4);
	cntr = NULL;
	counted = 0;
	defaults = 0;
	if (with_counter) {
		struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
		EQUAL(fi_cntr_open(a.domain, &attr, &cntr, NULL), 0);
		EQUAL(fi_ep_bind(a.ep, &cntr->fid, FI_SEND | FI_READ | FI_WRITE), 0);
	}
}

static void close_caller(void)
{
	EQUAL(fi_close(&a.ep->fid), 0);
	if (cntr)
		EQUAL(fi_close(&cntr->fid), 0);
	EQUAL(fi_close(&a.cq->fid), 0);
	EQUAL(fi_close(&a.av->fid), 0);
	EQUAL(fi_close(&a.domain->fid), 0);
	EQUAL(fi_close(&a.fabric->fid), 0);
	fi_freeinfo(a.info);
	/* What nothing told the end of is the application's now. */
	for (int i = 0; i < MOST_OPS; i++) {
		give_back(&ops[i]);
		guard_give_back(&ops[i].into);
		ops[i].state = UNUSED;
	}
}

static void register_areas(struct target *t)
{
	EQUAL(fi_mr_reg(t->n.domain, area, AREA, FI_REMOTE_WRITE, 0, WRITE_KEY, 0, &t->writes, NULL), 0);
	EQUAL(fi_mr_reg(t->n.domain, source, AREA, FI_REMOTE_READ, 0, READ_KEY, 0, &t->reads, NULL), 0);
	EQUAL(fi_mr_reg(t->n.domain, area, AREA, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, ATOMIC_KEY, 0, &t->atomics, NULL), 0);
}

static void open_target(struct target *t)
{
	memset(t, 0, sizeof(*t));
	abi_open(&t->n, &plain);
	t->addr = abi_insert(&a, &t->n.name);
	register_areas(t);
}

static void close_target(struct target *t)
{
	EQUAL(fi_close(&t->writes->fid), 0);
	EQUAL(fi_close(&t->reads->fid), 0);
	EQUAL(fi_close(&t->atomics->fid), 0);
	abi_close(&t->n);
}

static struct op *op_of(void *context)
{
	size_t at = (size_t)((char *)context - (char *)ops) / sizeof(struct op);
	if ((char *)context < (char *)ops || at >= MOST_OPS)
		FAIL("an entry with a context of nobody: %p", context);
	return &ops[at];
}

/* What the peer has of the operation is in its place. */
static int landed(const struct op *op)
{
	size_t i = 0;
	for (unsigned r = 0; r < op->c.ranges; r++)
		for (size_t k = 0; k < op->riov[r].len; k++, i++)
			if (area[op->riov[r].addr + k] != byte_left(op, i))
				return 0;
	return 1;
}

/* An entry of the caller's queue. */
static void ended(struct op *op, uint64_t flags, int err, const struct target *t)
{
	if (op->state == SUCCEEDED || op->state == FAILED)
		FAIL_OP(op, "ended twice");
	if (op->state == UNUSED)
		FAIL_OP(op, "ended, though it was refused");
	if (op->e.shown == COUNTED)
		FAIL_OP(op, "an entry for a call without context");
	if (!err && op->e.shown == ON_ERROR)
		FAIL_OP(op, "an entry nobody asked for");
	if (flags != op->e.flags)
		FAIL_OP(op, "the entry's flags are %#llx", (unsigned long long)flags);
	op->state = err ? FAILED : SUCCEEDED;
	op->err = err;
	if (!err && t) {
		if (op->e.soonest >= AT_PEER && t->turns == op->turns)
			FAIL_OP(op, "complete before the peer did anything");
		if (op->e.soonest == AT_MATCH && !op->posted)
			FAIL_OP(op, "complete before it was matched");
		if (op->e.delivered && !is_message(op->c.call) && !landed(op))
			FAIL_OP(op, "complete before it was in place");
	}
	if (!err && is_read(op->c.call) && !read_is_here(op))
		FAIL_OP(op, "complete with other bytes than the peer's");
	if (!err && is_fetch(op->c.call) && !result_is_here(op))
		FAIL_OP(op, "complete with other values than there were");
	give_back(op);
}

/* Failed calls without a context: their number, and the sum of their entries' flags. */
static struct nameless {
	unsigned long count;
	uint64_t flags;
} nameless;

/* Progress of the caller, and what its queue says. */
static void turn_caller(const struct target *t)
{
	struct fi_cq_tagged_entry entries[16];
	for (;;) {
		ssize_t n = fi_cq_read(a.cq, entries, 16);
		if (n == -FI_EAGAIN)
			return;
		if (n == -FI_EAVAIL) {
			struct fi_cq_err_entry err = {0};
			EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
			CHECK(err.err > 0);
			if (!err.op_context) {
				nameless.count++;
				nameless.flags += err.flags;
				continue;
			}
			struct op *op = op_of(err.op_context);
			/* Nobody answered, so nobody can say: and the application is told so. */
			const char *why = fi_cq_strerror(a.cq, err.prov_errno, err.err_data, NULL, 0);
			if (is_atomic(op->c.call) && !strstr(why, "whether the atomic operation was carried out is not known"))
				FAIL_OP(op, "ended with %s", why);
			ended(op, err.flags, err.err, t);
			continue;
		}
		CHECK(n > 0);
		for (ssize_t i = 0; i < n; i++)
			ended(op_of(entries[i].op_context), entries[i].flags, 0, t);
	}
}

static void check_message(struct op *op, const struct fi_cq_tagged_entry *e)
{
	uint64_t flags = FI_RECV | (op->c.tagged ? FI_TAGGED : FI_MSG) | (op->e.data ? FI_REMOTE_CQ_DATA : 0);
	if (op->arrived++ || !op->posted)
		FAIL_OP(op, "received %d times", op->arrived);
	if (e->len != op->c.len || e->flags != flags)
		FAIL_OP(op, "received with %zu bytes and flags %#llx", e->len, (unsigned long long)e->flags);
	if (op->e.data && e->data != op->id)
		FAIL_OP(op, "received with data %llu", (unsigned long long)e->data);
	if (op->c.tagged && e->tag != op->id)
		FAIL_OP(op, "received with tag %llu", (unsigned long long)e->tag);
	for (size_t i = 0; i < op->c.len; i++)
		if (op->into.at[i] != byte_of(op->id, i))
			FAIL_OP(op, "byte %zu is not that of the call", i);
	guard_give_back(&op->into);
}

/* Progress of the peer, and what its queue says. */
static void turn_target(struct target *t)
{
	struct fi_cq_tagged_entry entries[16];
	t->turns++;
	for (;;) {
		ssize_t n = fi_cq_read(t->n.cq, entries, 16);
		if (n == -FI_EAGAIN)
			return;
		if (n == -FI_EAVAIL) {
			struct fi_cq_err_entry err = {0};
			EQUAL(fi_cq_readerr(t->n.cq, &err, 0), 1);
			FAIL_OP(op_of(err.op_context), "failed at the peer: %s", fi_strerror(err.err));
		}
		CHECK(n > 0);
		for (ssize_t i = 0; i < n; i++) {
			struct fi_cq_tagged_entry *e = &entries[i];
			if (!(e->flags & FI_REMOTE_WRITE)) {
				check_message(op_of(e->op_context), e);
				continue;
			}
			EQUAL(e->flags, FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA);
			struct op *op = &ops[e->data % MOST_OPS];
			if (op->id != e->data || !op->e.data || op->arrived++)
				FAIL_OP(op, "its data came, or came %d times", op->arrived);
			if (!landed(op))
				FAIL_OP(op, "its data overtook its bytes");
		}
	}
}

static void post_receive(struct op *op, struct target *t)
{
	op->into = guard_take(op->c.len, op->id);
	op->posted = 1;
	if (op->c.tagged)
		EQUAL(fi_trecv(t->n.ep, op->into.at, op->c.len, NULL, FI_ADDR_UNSPEC, op->id, 0, op), 0);
	else
		EQUAL(fi_recv(t->n.ep, op->into.at, op->c.len, NULL, FI_ADDR_UNSPEC, op), 0);
}

static struct op *new_op(const struct combo *c)
{
	struct op *op = &ops[next_id % MOST_OPS];
	/* Its place may still be that of one whose end nothing tells. */
	while (op->state == UNDER_WAY && (op->local[0].at || op->result[0].at))
		op = &ops[++next_id % MOST_OPS];
	give_back(op);
	memset(op, 0, sizeof(*op));
	op->id = next_id++;
	op->c = *c;
	op->e = expected(c, &limits);
	return op;
}

static void set_defaults(uint64_t flags)
{
	uint64_t given = flags | FI_TRANSMIT;
	if (flags == defaults)
		return;
	EQUAL(fi_control(&a.ep->fid, FI_SETOPSFLAG, &given), 0);
	defaults = flags;
}

/* Makes the call and compares what it says. Whether it was accepted. */
static int start(struct op *op, struct target *t, fi_addr_t to)
{
	set_defaults(op->c.defaults);
	if (op->e.reasons)
		take_none(op);
	else
		take_buffers(op);
	op->turns = t ? t->turns : 0;
	op->state = op->e.reasons ? UNUSED : UNDER_WAY;
	ssize_t rc;
	while ((rc = call(a.ep, op, to)) == -FI_EAGAIN) {
		turn_caller(t);
		if (t)
			turn_target(t);
		op->turns = t ? t->turns : 0;
	}
	abi_checks++;
	if (op->e.reasons) {
		if (!may_refuse(&op->e, rc))
			FAIL_OP(op, "returned %zd (%s), not %s", rc, fi_strerror((int)-rc), fi_strerror(op->e.refused[0]));
		refused++;
		return 0;
	}
	if (rc)
		FAIL_OP(op, "returned %zd (%s)", rc, fi_strerror((int)-rc));
	counted++;
	return 1;
}

/* Whether about every `every`-th combination's turn has come. */
static int chosen(void)
{
	static uint32_t number;
	return (number++ * 2654435761u >> 8) % every == 0;
}

static struct target b;
/* Ends of calls that neither entry nor counter tells: their buffers are kept, so not for all of them. */
static unsigned long unseen;

/* One combination alone, to a peer that is known. */
static void alone(const struct combo *c)
{
	struct expect e = expected(c, &limits);
	if (!chosen())
		return;
	int seen = cntr || e.shown == ENTRY;
	if (!e.reasons && !seen && !e.injected && unseen++ % 16)
		return;
	struct op *op = new_op(c);
	/* In turn: the receive waits for the message, or the message for the receive. */
	int early = is_message(c->call) && single & 1;
	size_t span = span_of(c);
	if (!e.reasons) {
		single++;
		name_ranges(op, GAP);
		if (!is_message(c->call))
			memset(area, BEFORE, span + 2 * GAP);
		if (early)
			post_receive(op, &b);
	} else {
		name_ranges(op, GAP);
	}
	unsigned long before = counted;
	if (!start(op, &b, b.addr))
		return;
	for (int i = 0; i < 3; i++)
		turn_caller(&b);
	if (cntr && e.shown != COUNTED && e.soonest > AT_CALL && fi_cntr_read(cntr) != before)
		FAIL_OP(op, "counted before the peer did anything");
	if (is_message(c->call) && !early) {
		for (int i = 0; i < (e.soonest == AT_MATCH ? 10 : 2); i++) {
			turn_target(&b);
			turn_caller(&b);
		}
		if (cntr && e.shown != COUNTED && e.soonest == AT_MATCH && fi_cntr_read(cntr) != before)
			FAIL_OP(op, "counted before it was matched");
		post_receive(op, &b);
	}
	double end = abi_now() + PATIENCE;
	for (unsigned turns = 0;; turns++) {
		int here = is_read(c->call)	 ? op->state == SUCCEEDED || seen || read_is_here(op)
			   : is_message(c->call) ? op->arrived
						 : landed(op) && (!e.data || op->arrived) &&
							   (op->state == SUCCEEDED || seen || result_is_here(op));
		int told = e.shown == ENTRY ? op->state != UNDER_WAY : cntr ? fi_cntr_read(cntr) == counted : turns > 3;
		if (here && told)
			break;
		turn_target(&b);
		turn_caller(&b);
		if (abi_now() > end)
			FAIL_OP(op, "%s after %.0f s", here ? "not told to have ended" : "did not arrive", PATIENCE);
	}
	if (op->state == FAILED)
		FAIL_OP(op, "failed: %s", fi_strerror(op->err));
	if (cntr) {
		EQUAL(fi_cntr_read(cntr), counted);
		EQUAL(fi_cntr_readerr(cntr), 0);
	}
	if (is_read(c->call) && op->local[0].at && !read_is_here(op))
		FAIL_OP(op, "other bytes than the peer's");
	if (is_fetch(c->call) && op->result[0].at && !result_is_here(op))
		FAIL_OP(op, "other values than there were");
	if (!is_message(c->call) && !is_read(c->call)) {
		/* Nothing around the ranges was written. */
		size_t at = 0;
		for (unsigned r = 0; r < c->ranges; r++) {
			for (; at < op->riov[r].addr; at++)
				if (area[at] != BEFORE)
					FAIL_OP(op, "byte %zu outside its ranges was written", at);
			at += op->riov[r].len;
		}
		for (; at < span + 2 * GAP; at++)
			if (area[at] != BEFORE)
				FAIL_OP(op, "byte %zu behind its ranges was written", at);
	}
	if (seen)
		give_back(op);
	if (op->state == UNDER_WAY && (seen || e.injected))
		op->state = SUCCEEDED;
}

/* Each has heard of the other. */
static void meet(struct target *t)
{
	EQUAL(nameless.count, 0);
	struct fi_cq_tagged_entry e;
	char word[8] = "hello", heard[8];
	EQUAL(fi_recv(t->n.ep, heard, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	struct iovec iov = {word, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = t->addr};
	EQUAL(fi_sendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION), 0);
	abi_expect(&a, &t->n, &e);
	abi_expect(&t->n, &a, &e);
	counted++;
	if (cntr)
		EQUAL(fi_cntr_read(cntr), counted);
}

static void one_by_one(void)
{
	for (int kind = 0; kind < 4; kind++) {
		open_caller(kind & 1, kind & 2);
		open_target(&b);
		meet(&b);
		each_combo(kind & 1, 0, &limits, EAGER, alone);
		close_caller();
		close_target(&b);
	}
}

/* Every operation of a batch, in the order of the calls. */
static struct op *batch[MOST_OPS];
static size_t batch_len;
static struct target *batch_target;
static fi_addr_t batch_to;

static void join_batch(const struct combo *c)
{
	struct expect e = expected(c, &limits);
	if (!chosen())
		return;
	struct op *op = new_op(c);
	if (!is_message(c->call)) {
		name_ranges(op, is_read(c->call) ? GAP : area_used);
		if (is_atomic(c->call) && !e.reasons)
			memset(area + area_used, BEFORE, span_of(c));
		if (!e.reasons && !is_read(c->call))
			area_used += span_of(c);
		CHECK(area_used < AREA - (1 << 17));
	}
	if (start(op, batch_target, batch_to)) {
		CHECK(batch_len < MOST_OPS);
		batch[batch_len++] = op;
		batched++;
	}
}

static int is_over(const struct op *op)
{
	if (op->e.shown == ENTRY && op->state == UNDER_WAY)
		return 0;
	if (is_message(op->c.call))
		return op->arrived > 0;
	if (is_read(op->c.call))
		return op->state == SUCCEEDED || read_is_here(op);
	return landed(op) && (!op->e.data || op->arrived) && (op->state == SUCCEEDED || result_is_here(op));
}

/* All at once, to a peer that makes no progress meanwhile: none that it has not met, or one that it has. */
static void many(int met)
{
	for (int kind = 0; kind < 4; kind++) {
		open_caller(kind & 1, kind & 2);
		open_target(&b);
		if (met)
			meet(&b);
		unsigned long before = counted;
		memset(area, BEFORE, area_used + GAP);
		area_used = 0;
		batch_len = 0;
		batch_target = &b;
		batch_to = b.addr;
		each_combo(kind & 1, 1, &limits, EAGER, join_batch);
		for (int i = 0; i < 20; i++)
			turn_caller(&b);
		/* The peer takes what comes, but has no receive for it. */
		for (int i = 0; i < 200; i++) {
			turn_target(&b);
			turn_caller(&b);
		}
		for (size_t i = 0; i < batch_len; i++)
			if (is_message(batch[i]->c.call))
				post_receive(batch[i], &b);
		double end = abi_now() + PATIENCE;
		for (size_t i = 0; i < batch_len;) {
			if (is_over(batch[i])) {
				i++;
				continue;
			}
			turn_target(&b);
			turn_caller(&b);
			if (abi_now() > end)
				FAIL_OP(batch[i], "is not over after %.0f s", PATIENCE);
		}
		while (cntr && fi_cntr_read(cntr) != counted) {
			turn_target(&b);
			turn_caller(&b);
			if (abi_now() > end)
				FAIL("counted %lu, not %lu", (unsigned long)fi_cntr_read(cntr), counted);
		}
		CHECK(counted - before == batch_len);
		/* A second end would come now. */
		for (int i = 0; i < 50; i++) {
			turn_target(&b);
			turn_caller(&b);
		}
		if (cntr)
			EQUAL(fi_cntr_readerr(cntr), 0);
		for (size_t i = 0; i < batch_len; i++)
			if (batch[i]->state == FAILED)
				FAIL_OP(batch[i], "failed: %s", fi_strerror(batch[i]->err));
		EQUAL(nameless.count, 0);
		close_caller();
		close_target(&b);
	}
}

static void strangers(void)
{
	many(0);
}

static void acquaintances(void)
{
	many(1);
}

/* Another process has two endpoints: both are met, then it is gone without a word. Names and words go by pipe. */
static pid_t lend_peers(int fd[2], struct sockaddr_in names[2])
{
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid_t child = fork();
	if (child == 0) {
		struct node n[2];
		struct fi_cq_tagged_entry e;
		static char heard[2][8];
		char go;
		for (int i = 0; i < 2; i++) {
			abi_open(&n[i], &plain);
			EQUAL(fi_recv(n[i].ep, heard[i], 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
			EQUAL(write(fd[1], &n[i].name, sizeof(n[i].name)), sizeof(n[i].name));
		}
		for (int i = 0; i < 2; i++)
			abi_expect(&n[i], &n[1 - i], &e);
		/* Until the caller has our acknowledgements. */
		fcntl(fd[1], F_SETFL, O_NONBLOCK);
		while (read(fd[1], &go, 1) != 1)
			for (int i = 0; i < 2; i++)
				(void)fi_cq_read(n[i].cq, &e, 1);
		EQUAL(write(fd[1], "x", 1), 1);
		pause();
		_exit(0);
	}
	for (int i = 0; i < 2; i++)
		EQUAL(read(fd[0], &names[i], sizeof(names[i])), sizeof(names[i]));
	return child;
}

static void call_on(fi_addr_t to)
{
	struct fi_cq_tagged_entry e;
	char word[8] = "hello";
	struct iovec iov = {word, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to};
	EQUAL(fi_sendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION), 0);
	abi_expect(&a, NULL, &e);
	counted++;
}

/* A new endpoint at an address that was another's. */
static void reopen(struct target *t, const struct sockaddr_in *name)
{
	char port[8];
	struct fi_info *hints = fi_allocinfo();
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct node *n = &t->n;
	memset(t, 0, sizeof(*t));
	snprintf(port, sizeof(port), "%u", ntohs(name->sin_port));
	hints->caps = plain.caps;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("squall");
	EQUAL(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", port, FI_SOURCE, hints, &n->info), 0);
	fi_freeinfo(hints);
	EQUAL(fi_fabric(n->info->fabric_attr, &n->fabric, NULL), 0);
	EQUAL(fi_domain(n->fabric, n->info, &n->domain, NULL), 0);
	EQUAL(fi_av_open(n->domain, &av_attr, &n->av, NULL), 0);
	EQUAL(fi_cq_open(n->domain, &cq_attr, &n->cq, NULL), 0);
	EQUAL(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
	EQUAL(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
	EQUAL(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EQUAL(fi_enable(n->ep), 0);
	size_t len = sizeof(n->name);
	EQUAL(fi_getname(&n->ep->fid, &n->name, &len), 0);
	EQUAL(n->name.sin_port, name->sin_port);
	register_areas(t);
}

/* All at once to three that will not answer: one that died, one that never lived, and one whose address is
 * another's by the time the first packets come. */
static void nobody(void)
{
	enum { DEAD, NEVER, RESTARTED, STATES };
	static const char *const names[] = {"dead", "never there", "restarted"};
	for (int kind = 0; kind < 4; kind++) {
		int fd[2], status;
		struct sockaddr_in peers[2], silent = {.sin_family = AF_INET};
		struct target fresh;
		socklen_t len = sizeof(silent);
		size_t first[STATES + 1] = {0};
		fi_addr_t to[STATES];
		char go;
		pid_t child = lend_peers(fd, peers);
		open_caller(kind & 1, kind & 2);
		to[DEAD] = abi_insert(&a, &peers[0]);
		/* Whoever is there: its name without the instance, as users type it. */
		struct sockaddr_in whoever = peers[1];
		memset(whoever.sin_zero, 0, sizeof(whoever.sin_zero));
		to[RESTARTED] = abi_insert(&a, &whoever);
		call_on(to[DEAD]);
		call_on(to[RESTARTED]);
		/* Nobody reads this socket, and nobody says so. */
		int hole = socket(AF_INET, SOCK_DGRAM, 0);
		inet_pton(AF_INET, "127.0.0.1", &silent.sin_addr);
		EQUAL(bind(hole, (struct sockaddr *)&silent, sizeof(silent)), 0);
		EQUAL(getsockname(hole, (struct sockaddr *)&silent, &len), 0);
		to[NEVER] = abi_insert(&a, &silent);
		EQUAL(write(fd[0], "x", 1), 1);
		EQUAL(read(fd[0], &go, 1), 1);
		unsigned long before = counted;
		batch_len = 0;
		batch_target = NULL;
		area_used = 0;
		for (int state = 0; state < STATES; state++) {
			batch_to = to[state];
			each_combo(kind & 1, 1, &limits, EAGER, join_batch);
			first[state + 1] = batch_len;
		}
		EQUAL(kill(child, SIGKILL), 0);
		EQUAL(waitpid(child, &status, 0), child);
		reopen(&fresh, &peers[1]);
		/* Each call has one entry, calls without a context included. */
		struct nameless wanted = {0};
		for (size_t i = 0; i < batch_len; i++)
			if (batch[i]->e.shown == COUNTED) {
				wanted.count++;
				wanted.flags += batch[i]->e.flags;
			}
		/* A small sample of the combinations, as under memcheck, may have none of these. */
		CHECK(wanted.count > 0 || every > 10);
		double end = abi_now() + PATIENCE;
		size_t at = 0;
		while (at < batch_len || nameless.count < wanted.count || (cntr && fi_cntr_read(cntr) + fi_cntr_readerr(cntr) < counted)) {
			if (at < batch_len && (batch[at]->e.shown == COUNTED || batch[at]->state != UNDER_WAY)) {
				at++;
				continue;
			}
			turn_caller(NULL);
			turn_target(&fresh);
			if (abi_now() > end) {
				if (at < batch_len)
					FAIL_OP(batch[at], "has not ended");
				FAIL("%lu counted, not %lu", (unsigned long)fi_cntr_read(cntr), counted);
			}
		}
		for (int i = 0; i < 50; i++)
			turn_caller(NULL);
		EQUAL(nameless.count, wanted.count);
		EQUAL(nameless.flags, wanted.flags);
		nameless = (struct nameless){0};
		unsigned long succeeded = 0;
		for (int state = 0; state < STATES; state++)
			for (size_t i = first[state]; i < first[state + 1]; i++) {
				struct op *op = batch[i];
				abi_checks++;
				if (op->state != SUCCEEDED)
					continue;
				succeeded++;
				if (!may_succeed_alone(&op->c, &op->e, state != NEVER))
					FAIL_OP(op, "succeeded, though its peer is %s", names[state]);
			}
		if (cntr) {
			/* Every one once; those that were complete when copied as what their entries said. */
			EQUAL(fi_cntr_read(cntr), before + succeeded);
			EQUAL(fi_cntr_readerr(cntr), counted - before - succeeded);
		}
		/* The new one at the old address is as good as any. */
		fresh.addr = to[RESTARTED];
		struct fi_cq_tagged_entry e;
		char word[8] = "hello", heard[8];
		EQUAL(fi_trecv(fresh.n.ep, heard, 8, NULL, FI_ADDR_UNSPEC, 1ULL << 40, 0, NULL), 0);
		struct iovec iov = {word, 8};
		struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = to[RESTARTED], .tag = 1ULL << 40};
		EQUAL(fi_tsendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION), 0);
		abi_expect(&a, &fresh.n, &e);
		abi_expect(&fresh.n, &a, &e);
		CHECK(strcmp(heard, word) == 0);
		/* But it is not who was there before. */
		struct fi_cq_err_entry err;
		msg.addr = abi_insert(&a, &peers[1]);
		EQUAL(fi_tsendmsg(a.ep, &msg, FI_COMPLETION), 0);
		abi_expect_error(&a, &fresh.n, &err);
		EQUAL(err.err, FI_ECONNREFUSED);
		close_caller();
		close_target(&fresh);
		close(hole);
		close(fd[0]);
		close(fd[1]);
	}
}

/* Sum of a counter over the endpoints that have closed. */
static unsigned long statistic(const char *name)
{
	char line[16384], wanted[64];
	unsigned long sum = 0;
	snprintf(wanted, sizeof(wanted), "\"%s\":", name);
	FILE *f = fopen(stats_file, "r");
	if (!f)
		FAIL("%s was not written", stats_file);
	while (fgets(line, sizeof(line), f)) {
		char *at = strstr(line, wanted);
		CHECK(at != NULL);
		sum += strtoul(at + strlen(wanted), NULL, 10);
	}
	fclose(f);
	return sum;
}

int main(int argc, char **argv)
{
	static char file[512], option[600];
	(void)argc;
	if (getenv("MODEL_EVERY"))
		every = (unsigned)atoi(getenv("MODEL_EVERY"));
	CHECK(every > 0);
	snprintf(file, sizeof(file), "%s.%d.json", argv[0], (int)getpid());
	snprintf(option, sizeof(option), "json:%s", file);
	stats_file = file;
	unlink(file);
	setenv("FI_SQUALL_STATS", option, 1);
	setenv("FI_SQUALL_DEADLINE", "1s", 0);
	setenv("FI_SQUALL_EAGER_SIZE", "16384", 1);
	setenv("FI_SQUALL_MTU", "4096", 1);
	/* Peers make progress when the test lets them. */
	setenv("FI_SQUALL_ATTEND", "0ns", 1);
	/* All that a test begins at once: what waited for room would begin when a peer has failed, and reach its successor. */
	setenv("FI_SQUALL_OUTSTANDING", "16384", 1);
	guard_start(describe);
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	source = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(area != MAP_FAILED && source != MAP_FAILED);
	for (size_t i = 0; i < 1 << 16; i++)
		source[i] = byte_of(READ_SEED, i);
	RUN(one_by_one);
	RUN(acquaintances);
	RUN(strangers);
	/* The kernel read no buffer that was given back. */
	EQUAL(statistic("tx_failed"), 0);
	RUN(nobody);
	unlink(file);
	done = single + batched;
	printf("%lu combinations carried out, %lu refused, %d checks\n", done, refused, abi_checks);
	return 0;
}
