/* Triggered operations, aliases that make them, and deferred work: nothing begins before its counter says so. */
#include "abi.h"

#include <rdma/fi_trigger.h>

enum { LEN = 64, KEY = 5 };

/* A wants things done, B has a region; both have counters of every kind. */
struct side {
	struct node n;
	fi_addr_t peer;
	struct fid_cntr *gate, *done, *tx, *rx;
	struct fid_mr *mr;
	unsigned char buf[LEN], result[LEN], compare[LEN];
	uint64_t words[4];
};

static struct side a, b;

static struct fid_cntr *counter(struct node *n)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(n->domain, &attr, &cntr, NULL), 0);
	return cntr;
}

static void open_side(struct side *s, const struct want *want)
{
	memset(s, 0, sizeof(*s));
	abi_open(&s->n, want);
	CHECK(s->n.info->caps & s->n.info->tx_attr->caps & s->n.info->rx_attr->caps & FI_TRIGGER);
	s->gate = counter(&s->n);
	s->done = counter(&s->n);
	s->tx = counter(&s->n);
	s->rx = counter(&s->n);
	EQUAL(fi_ep_bind(s->n.ep, &s->tx->fid, FI_SEND | FI_READ | FI_WRITE), 0);
	EQUAL(fi_ep_bind(s->n.ep, &s->rx->fid, FI_RECV), 0);
	EQUAL(fi_mr_reg(s->n.domain, s->words, sizeof(s->words), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &s->mr, NULL),
	      0);
}

static void open_both(enum fi_progress progress)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER,
			    .threading = FI_THREAD_SAFE,
			    .progress = progress,
			    .wait = FI_WAIT_UNSPEC};
	open_side(&a, &want);
	open_side(&b, &want);
	a.peer = abi_insert(&a.n, &b.n.name);
	b.peer = abi_insert(&b.n, &a.n.name);
}

static void close_side(struct side *s)
{
	EQUAL(fi_close(&s->n.ep->fid), 0);
	EQUAL(fi_close(&s->mr->fid), 0);
	EQUAL(fi_close(&s->gate->fid), 0);
	EQUAL(fi_close(&s->done->fid), 0);
	EQUAL(fi_close(&s->tx->fid), 0);
	EQUAL(fi_close(&s->rx->fid), 0);
	EQUAL(fi_close(&s->n.cq->fid), 0);
	EQUAL(fi_close(&s->n.av->fid), 0);
	EQUAL(fi_close(&s->n.domain->fid), 0);
	EQUAL(fi_close(&s->n.fabric->fid), 0);
	fi_freeinfo(s->n.info);
}

static void close_both(void)
{
	close_side(&a);
	close_side(&b);
}

/* Both make progress for a while, in which nothing comes to either queue. */
static void quiet(void)
{
	struct fi_cq_tagged_entry entry;
	for (int i = 0; i < 300; i++) {
		EQUAL(fi_cq_read(a.n.cq, &entry, 1), -FI_EAGAIN);
		EQUAL(fi_cq_read(b.n.cq, &entry, 1), -FI_EAGAIN);
	}
}

static void await_count(struct fid_cntr *cntr, uint64_t value)
{
	double end = abi_now() + PATIENCE;
	while (fi_cntr_read(cntr) < value) {
		(void)fi_cq_read(a.n.cq, NULL, 0);
		(void)fi_cq_read(b.n.cq, NULL, 0);
		if (abi_now() > end)
			FAIL("the counter is %llu, not %llu", (unsigned long long)fi_cntr_read(cntr), (unsigned long long)value);
	}
	EQUAL(fi_cntr_read(cntr), value);
}

static struct fi_triggered_context at(struct fid_cntr *cntr, size_t threshold)
{
	return (struct fi_triggered_context){.event_type = FI_TRIGGER_THRESHOLD,
					     .trigger.threshold = {.cntr = cntr, .threshold = threshold}};
}

/* Every operation, with flags of its own; `to` is one word of the region. */
static void post(int kind, void *context, uint64_t flags)
{
	struct iovec iov = {a.buf, 8};
	struct fi_rma_iov remote = {.addr = 8, .len = 8, .key = KEY};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = a.peer, .context = context};
	struct fi_msg_tagged tagged = {.msg_iov = &iov, .iov_count = 1, .addr = a.peer, .tag = 7, .context = context};
	struct fi_msg_rma rma = {.msg_iov = &iov, .iov_count = 1, .addr = a.peer, .rma_iov = &remote, .rma_iov_count = 1,
				 .context = context};
	struct fi_ioc ioc = {a.buf, 1}, result = {a.result, 1}, compare = {a.compare, 1};
	struct fi_rma_ioc range = {.addr = 8, .count = 1, .key = KEY};
	struct fi_msg_atomic atomic = {.msg_iov = &ioc, .iov_count = 1, .addr = a.peer, .rma_iov = &range, .rma_iov_count = 1,
				       .datatype = FI_UINT64, .op = FI_SUM, .context = context};
	if (kind == FI_OP_RECV || kind == FI_OP_TRECV)
		msg.addr = tagged.addr = FI_ADDR_UNSPEC;
	ssize_t rc = -1;
	switch (kind) {
	case FI_OP_SEND: rc = fi_sendmsg(a.n.ep, &msg, flags); break;
	case FI_OP_RECV: rc = fi_recvmsg(a.n.ep, &msg, flags); break;
	case FI_OP_TSEND: rc = fi_tsendmsg(a.n.ep, &tagged, flags); break;
	case FI_OP_TRECV: rc = fi_trecvmsg(a.n.ep, &tagged, flags); break;
	case FI_OP_READ: rc = fi_readmsg(a.n.ep, &rma, flags); break;
	case FI_OP_WRITE: rc = fi_writemsg(a.n.ep, &rma, flags); break;
	case FI_OP_ATOMIC: rc = fi_atomicmsg(a.n.ep, &atomic, flags); break;
	case FI_OP_FETCH_ATOMIC: rc = fi_fetch_atomicmsg(a.n.ep, &atomic, &result, NULL, 1, flags); break;
	case FI_OP_COMPARE_ATOMIC:
		atomic.op = FI_CSWAP;
		rc = fi_compare_atomicmsg(a.n.ep, &atomic, &compare, NULL, 1, &result, NULL, 1, flags);
		break;
	}
	EQUAL(rc, 0);
}

/* The other side's part in an operation. */
static void meet(int kind, void *context)
{
	if (kind == FI_OP_SEND)
		EQUAL(fi_recv(b.n.ep, b.buf, LEN, NULL, FI_ADDR_UNSPEC, context), 0);
	if (kind == FI_OP_TSEND)
		EQUAL(fi_trecv(b.n.ep, b.buf, LEN, NULL, FI_ADDR_UNSPEC, 7, 0, context), 0);
	if (kind == FI_OP_RECV)
		RETRY(&b.n, fi_send(b.n.ep, b.buf, 8, NULL, b.peer, context));
	if (kind == FI_OP_TRECV)
		RETRY(&b.n, fi_tsend(b.n.ep, b.buf, 8, NULL, b.peer, 7, context));
}

static int involves_peer(int kind)
{
	return kind == FI_OP_SEND || kind == FI_OP_TSEND || kind == FI_OP_RECV || kind == FI_OP_TRECV;
}

static void prepare(void)
{
	abi_fill(a.buf, LEN, 1);
	abi_fill(b.buf, LEN, 2);
	memset(a.result, 0, LEN);
	b.words[1] = 40;
	memcpy(a.compare, &b.words[1], 8);
}

/* What an operation leaves behind. */
static void verify(int kind)
{
	uint64_t word;
	memcpy(&word, a.buf, 8);
	switch (kind) {
	case FI_OP_SEND:
	case FI_OP_TSEND: abi_verify(b.buf, 8, 1); break;
	case FI_OP_RECV:
	case FI_OP_TRECV: abi_verify(a.buf, 8, 2); break;
	case FI_OP_READ: EQUAL(word, 40); break;
	case FI_OP_WRITE: EQUAL(b.words[1], word); break;
	case FI_OP_ATOMIC: EQUAL(b.words[1], word + 40); break;
	case FI_OP_FETCH_ATOMIC:
		EQUAL(b.words[1], word + 40);
		memcpy(&word, a.result, 8);
		EQUAL(word, 40);
		break;
	case FI_OP_COMPARE_ATOMIC:
		EQUAL(b.words[1], word);
		memcpy(&word, a.result, 8);
		EQUAL(word, 40);
		break;
	}
}

static void untouched(int kind)
{
	uint64_t word;
	EQUAL(b.words[1], 40);
	memcpy(&word, a.result, 8);
	EQUAL(word, 0);
	abi_verify(a.buf, 8, 1);
	if (kind == FI_OP_SEND || kind == FI_OP_TSEND)
		abi_verify(b.buf, 8, 2);
}

/* Every operation with FI_TRIGGER begins when the threshold is reached, and ends as it would have. */
static void triggered_operations(void)
{
	for (int automatic = 0; automatic < 2; automatic++) {
		open_both(automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL);
		for (int kind = FI_OP_RECV; kind <= FI_OP_COMPARE_ATOMIC; kind++) {
			struct fi_cq_tagged_entry entry;
			int mark;
			EQUAL(fi_cntr_set(a.gate, 0), 0);
			uint64_t tx = fi_cntr_read(a.tx), rx = fi_cntr_read(a.rx);
			int received = kind == FI_OP_RECV || kind == FI_OP_TRECV;
			struct fi_triggered_context context = at(a.gate, 3);
			prepare();
			post(kind, &context, FI_TRIGGER | FI_COMPLETION);
			if (!received)
				meet(kind, &mark);
			EQUAL(fi_cntr_add(a.gate, 2), 0);
			/* One that failed is not one that succeeded. */
			EQUAL(fi_cntr_adderr(a.gate, 1), 0);
			quiet();
			untouched(kind);
			EQUAL(fi_cntr_add(a.gate, 1), 0);
			if (received)
				meet(kind, &mark);
			abi_expect(&a.n, &b.n, &entry);
			CHECK(entry.op_context == &context);
			if (involves_peer(kind)) {
				abi_expect(&b.n, &a.n, &entry);
				CHECK(entry.op_context == &mark);
			}
			verify(kind);
			EQUAL(fi_cntr_read(a.tx) + fi_cntr_read(a.rx), tx + rx + 1);
			/* One whose condition holds begins at once. */
			context = at(a.gate, 3);
			prepare();
			post(kind, &context, FI_TRIGGER | FI_COMPLETION);
			meet(kind, &mark);
			abi_expect(&a.n, &b.n, &entry);
			if (involves_peer(kind))
				abi_expect(&b.n, &a.n, &entry);
			verify(kind);
		}
		close_both();
	}
}

/* Several of one counter begin by threshold, then as they came; and an operation's own end is a reason. */
static void the_order(void)
{
	open_both(FI_PROGRESS_MANUAL);
	size_t thresholds[] = {5, 2, 5, 3, 2};
	unsigned order[] = {1, 4, 3, 0, 2};
	struct fi_triggered_context contexts[5];
	unsigned char texts[5], in[5];
	struct fi_cq_tagged_entry entry;
	for (int i = 0; i < 5; i++) {
		texts[i] = (unsigned char)i;
		struct iovec iov = {&texts[i], 1};
		struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = a.peer, .context = &contexts[i]};
		contexts[i] = at(a.gate, thresholds[i]);
		EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER | FI_COMPLETION), 0);
		EQUAL(fi_recv(b.n.ep, &in[i], 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	}
	EQUAL(fi_cntr_set(a.gate, 100), 0);
	for (int i = 0; i < 5; i++) {
		abi_expect(&b.n, &a.n, &entry);
		abi_expect(&a.n, &b.n, &entry);
	}
	for (int i = 0; i < 5; i++)
		EQUAL(in[i], order[i]);
	/* A chain: each send waits for the end of the one before, the first for a receive. */
	uint64_t sent = fi_cntr_read(a.tx), received = fi_cntr_read(a.rx);
	for (int i = 0; i < 5; i++) {
		struct iovec iov = {&texts[i], 1};
		struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = a.peer, .context = &contexts[i]};
		contexts[i] = i == 0 ? at(a.rx, received + 1) : at(a.tx, sent + (size_t)i);
		EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER), 0);
		EQUAL(fi_recv(b.n.ep, &in[i], 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	}
	EQUAL(fi_recv(a.n.ep, a.buf, LEN, NULL, FI_ADDR_UNSPEC, NULL), 0);
	quiet();
	RETRY(&b.n, fi_send(b.n.ep, b.buf, 1, NULL, b.peer, NULL));
	/* B's send and five receives; A's receive and five sends. */
	for (int i = 0; i < 6; i++) {
		abi_expect(&b.n, &a.n, &entry);
		abi_expect(&a.n, &b.n, &entry);
	}
	EQUAL(fi_cntr_read(a.tx), sent + 5);
	for (int i = 0; i < 5; i++)
		EQUAL(in[i], (unsigned)i);
	close_both();
}

static void refused_and_cancelled(void)
{
	open_both(FI_PROGRESS_MANUAL);
	struct fi_triggered_context context = at(a.gate, 1);
	struct iovec iov = {a.buf, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = a.peer, .context = &context};
	struct fi_msg_tagged tagged = {.msg_iov = &iov, .iov_count = 1, .addr = a.peer, .context = &context};
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER | FI_INJECT), -FI_EBADFLAGS);
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER | FI_PEEK), -FI_EBADFLAGS);
	EQUAL(fi_trecvmsg(a.n.ep, &tagged, FI_TRIGGER | FI_PEEK), -FI_EBADFLAGS);
	context = at(b.gate, 1);
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER), -FI_EINVAL);
	context = at(NULL, 1);
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER), -FI_EINVAL);
	context = at(a.gate, 1);
	context.event_type = (enum fi_trigger_event)9;
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER), -FI_ENOSYS);
	msg.context = NULL;
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER), -FI_EINVAL);
	/* Taken back before it began; nothing is left to begin. */
	struct fi_cq_err_entry err;
	msg.context = &context;
	context = at(a.gate, 1);
	EQUAL(fi_recvmsg(a.n.ep, &msg, FI_TRIGGER), 0);
	EQUAL(fi_cancel(&a.n.ep->fid, &context), 0);
	abi_expect_error(&a.n, &b.n, &err);
	EQUAL(err.err, FI_ECANCELED);
	CHECK(err.op_context == &context);
	EQUAL(fi_cancel(&a.n.ep->fid, &context), -FI_ENOENT);
	EQUAL(fi_cntr_add(a.gate, 1), 0);
	quiet();
	/* Nobody is there any more when it begins. */
	fi_addr_t gone = abi_insert(&a.n, &(struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(9),
								.sin_addr.s_addr = htonl(INADDR_LOOPBACK)});
	context = at(a.gate, 5);
	msg.addr = gone;
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER), 0);
	EQUAL(fi_av_remove(a.n.av, &gone, 1, 0), 0);
	uint64_t errors = fi_cntr_readerr(a.tx);
	EQUAL(fi_cntr_add(a.gate, 5), 0);
	abi_expect_error(&a.n, &b.n, &err);
	EQUAL(err.err, FI_EINVAL);
	CHECK(err.op_context == &context);
	EQUAL(fi_cntr_readerr(a.tx), errors + 1);
	/* Work whose endpoint has closed is nobody's. */
	msg.addr = a.peer;
	context = at(a.gate, 1000);
	EQUAL(fi_sendmsg(a.n.ep, &msg, FI_TRIGGER), 0);
	EQUAL(fi_close(&a.n.ep->fid), 0);
	EQUAL(fi_cntr_set(a.gate, 2000), 0);
	EQUAL(fi_endpoint(a.n.domain, a.n.info, &a.n.ep, NULL), 0);
	close_both();
	/* An endpoint that was not opened for it. */
	struct want plain = {.caps = FI_MSG};
	struct node n;
	abi_open(&n, &plain);
	fi_addr_t self = abi_insert(&n, &n.name);
	struct fid_cntr *cntr = counter(&n);
	context = at(cntr, 1);
	msg.addr = self;
	EQUAL(fi_sendmsg(n.ep, &msg, FI_TRIGGER), -FI_EBADFLAGS);
	EQUAL(fi_close(&cntr->fid), 0);
	abi_close(&n);
}

/* An operation taken back before it began ends once: in the queue and on the counter of its side, as what it is. */
static void taken_back_on_its_own_side(void)
{
	static const uint64_t flags[] = {
		[FI_OP_RECV] = FI_RECV | FI_MSG,	 [FI_OP_SEND] = FI_SEND | FI_MSG,
		[FI_OP_TRECV] = FI_RECV | FI_TAGGED,	 [FI_OP_TSEND] = FI_SEND | FI_TAGGED,
		[FI_OP_READ] = FI_READ | FI_RMA,	 [FI_OP_WRITE] = FI_WRITE | FI_RMA,
		[FI_OP_ATOMIC] = FI_WRITE | FI_ATOMIC,	 [FI_OP_FETCH_ATOMIC] = FI_READ | FI_ATOMIC,
		[FI_OP_COMPARE_ATOMIC] = FI_READ | FI_ATOMIC,
	};
	open_both(FI_PROGRESS_MANUAL);
	/* An endpoint with a queue and a counter for each side. */
	struct fid_ep *one_queue = a.n.ep;
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fid_cq *sent, *received;
	struct fid_cntr *tx = counter(&a.n), *rx = counter(&a.n);
	EQUAL(fi_cq_open(a.n.domain, &attr, &sent, NULL), 0);
	EQUAL(fi_cq_open(a.n.domain, &attr, &received, NULL), 0);
	EQUAL(fi_endpoint(a.n.domain, a.n.info, &a.n.ep, NULL), 0);
	EQUAL(fi_ep_bind(a.n.ep, &a.n.av->fid, 0), 0);
	EQUAL(fi_ep_bind(a.n.ep, &sent->fid, FI_TRANSMIT), 0);
	EQUAL(fi_ep_bind(a.n.ep, &received->fid, FI_RECV), 0);
	EQUAL(fi_ep_bind(a.n.ep, &tx->fid, FI_SEND | FI_READ | FI_WRITE), 0);
	EQUAL(fi_ep_bind(a.n.ep, &rx->fid, FI_RECV), 0);
	EQUAL(fi_enable(a.n.ep), 0);
	prepare();
	for (int kind = FI_OP_RECV; kind <= FI_OP_COMPARE_ATOMIC; kind++) {
		struct fi_triggered_context context = at(a.gate, fi_cntr_read(a.gate) + 1);
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry err = {0};
		int receives = kind == FI_OP_RECV || kind == FI_OP_TRECV;
		uint64_t failed = fi_cntr_readerr(receives ? rx : tx), others = fi_cntr_readerr(receives ? tx : rx);
		/* Twice with one context: each call of fi_cancel takes one back. */
		post(kind, &context, FI_TRIGGER | FI_COMPLETION);
		post(kind, &context, FI_TRIGGER | FI_COMPLETION);
		for (int i = 1; i <= 2; i++) {
			EQUAL(fi_cancel(&a.n.ep->fid, &context), 0);
			EQUAL(fi_cq_read(receives ? received : sent, &entry, 1), -FI_EAVAIL);
			EQUAL(fi_cq_readerr(receives ? received : sent, &err, 0), 1);
			EQUAL(err.err, FI_ECANCELED);
			CHECK(err.op_context == &context);
			EQUAL(err.flags, flags[kind]);
			EQUAL(err.tag, kind == FI_OP_TSEND || kind == FI_OP_TRECV ? 7 : 0);
			EQUAL(fi_cntr_readerr(receives ? rx : tx), failed + (uint64_t)i);
			EQUAL(fi_cntr_readerr(receives ? tx : rx), others);
			EQUAL(fi_cq_read(sent, &entry, 1), -FI_EAGAIN);
			EQUAL(fi_cq_read(received, &entry, 1), -FI_EAGAIN);
		}
		EQUAL(fi_cancel(&a.n.ep->fid, &context), -FI_ENOENT);
		/* Nothing is left to begin. */
		EQUAL(fi_cntr_add(a.gate, 1), 0);
		EQUAL(fi_cq_read(sent, &entry, 1), -FI_EAGAIN);
		EQUAL(fi_cq_read(received, &entry, 1), -FI_EAGAIN);
		untouched(kind);
	}
	EQUAL(fi_close(&a.n.ep->fid), 0);
	EQUAL(fi_close(&sent->fid), 0);
	EQUAL(fi_close(&received->fid), 0);
	EQUAL(fi_close(&tx->fid), 0);
	EQUAL(fi_close(&rx->fid), 0);
	a.n.ep = one_queue;
	close_both();
}

/* The same endpoint with other flags. */
static void aliases(void)
{
	open_both(FI_PROGRESS_MANUAL);
	struct fid_ep *alias, *second;
	struct fi_cq_tagged_entry entry;
	EQUAL(fi_ep_alias(a.n.ep, &alias, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
	EQUAL(fi_ep_alias(a.n.ep, &alias, FI_TRANSMIT | FI_MULTI_RECV), -FI_EBADFLAGS);
	EQUAL(fi_ep_alias(a.n.ep, &alias, FI_TRANSMIT | FI_TRIGGER), 0);
	EQUAL(fi_ep_alias(a.n.ep, &second, FI_RECV | FI_TRIGGER), 0);
	EQUAL(fi_close(&a.n.ep->fid), -FI_EBUSY);
	uint64_t flags = FI_TRANSMIT;
	EQUAL(fi_control(&alias->fid, FI_GETOPSFLAG, &flags), 0);
	EQUAL(flags, FI_TRIGGER);
	char name[64], other[64];
	size_t len = sizeof(name), more = sizeof(other);
	EQUAL(fi_getname(&alias->fid, name, &len), 0);
	EQUAL(fi_getname(&a.n.ep->fid, other, &more), 0);
	CHECK(len == more && memcmp(name, other, len) == 0);
	/* A call without flags of its own has the alias's, and the endpoint's has not. */
	struct fi_triggered_context context = at(a.tx, fi_cntr_read(a.tx) + 1), other_context = at(a.gate, 1);
	prepare();
	uint64_t word;
	memcpy(&word, a.buf, 8);
	EQUAL(fi_write(alias, a.buf, 8, NULL, a.peer, 8, KEY, &context), 0);
	EQUAL(fi_recv(second, a.result, 8, NULL, FI_ADDR_UNSPEC, &other_context), 0);
	quiet();
	EQUAL(b.words[1], 40);
	RETRY(&a.n, fi_write(a.n.ep, a.buf, 8, NULL, a.peer, 0, KEY, NULL));
	abi_expect(&a.n, &b.n, &entry);
	abi_expect(&a.n, &b.n, &entry);
	CHECK(entry.op_context == &context);
	EQUAL(b.words[0], word);
	EQUAL(b.words[1], word);
	EQUAL(fi_cancel(&second->fid, &other_context), 0);
	struct fi_cq_err_entry err;
	abi_expect_error(&a.n, &b.n, &err);
	EQUAL(err.err, FI_ECANCELED);
	/* Without the flag it does what the endpoint does, and injects. */
	flags = FI_TRANSMIT;
	EQUAL(fi_control(&alias->fid, FI_SETOPSFLAG, &flags), 0);
	EQUAL(fi_recv(b.n.ep, b.buf, LEN, NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&a.n, fi_send(alias, a.buf, 8, NULL, a.peer, &flags));
	abi_expect(&b.n, &a.n, &entry);
	abi_expect(&a.n, &b.n, &entry);
	CHECK(entry.op_context == &flags);
	EQUAL(fi_recv(b.n.ep, b.buf, LEN, NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&a.n, fi_inject(alias, a.buf, 8, a.peer));
	abi_expect(&b.n, &a.n, &entry);
	size_t count;
	EQUAL(fi_atomicvalid(alias, FI_UINT64, FI_SUM, &count), 0);
	EQUAL(fi_close(&alias->fid), 0);
	EQUAL(fi_close(&second->fid), 0);
	close_both();
}

/* Queues a request for an operation; its structures are gone when this returns, but for the request's own. */
static int queue(struct fi_deferred_work *work, int kind, uint64_t flags)
{
	struct iovec iov = {a.buf, 8};
	struct fi_rma_iov remote = {.addr = 8, .len = 8, .key = KEY};
	struct fi_ioc ioc = {a.buf, 1}, result = {a.result, 1}, compare = {a.compare, 1};
	struct fi_rma_ioc range = {.addr = 8, .count = 1, .key = KEY};
	int receives = kind == FI_OP_RECV || kind == FI_OP_TRECV;
	fi_addr_t peer = receives ? FI_ADDR_UNSPEC : a.peer;
	void *context = &work->context;
	struct fi_op_msg msg = {a.n.ep, {.msg_iov = &iov, .iov_count = 1, .addr = peer, .context = context}, flags};
	struct fi_op_tagged tagged = {
		a.n.ep, {.msg_iov = &iov, .iov_count = 1, .addr = peer, .tag = 7, .context = context}, flags};
	struct fi_op_rma rma = {
		a.n.ep,
		{.msg_iov = &iov, .iov_count = 1, .addr = peer, .rma_iov = &remote, .rma_iov_count = 1, .context = context},
		flags};
	struct fi_msg_atomic atomic_msg = {.msg_iov = &ioc, .iov_count = 1, .addr = peer, .rma_iov = &range,
					   .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM, .context = context};
	struct fi_op_atomic atomic = {a.n.ep, atomic_msg, flags};
	struct fi_op_fetch_atomic fetch = {a.n.ep, atomic_msg, {.msg_iov = &result, .iov_count = 1}, flags};
	atomic_msg.op = FI_CSWAP;
	struct fi_op_compare_atomic swap = {
		a.n.ep, atomic_msg, {.msg_iov = &result, .iov_count = 1}, {.msg_iov = &compare, .iov_count = 1}, flags};
	struct fi_op_cntr cntr = {a.done, 5};
	work->op_type = (enum fi_op_type)kind;
	switch (kind) {
	case FI_OP_RECV:
	case FI_OP_SEND: work->op.msg = &msg; break;
	case FI_OP_TRECV:
	case FI_OP_TSEND: work->op.tagged = &tagged; break;
	case FI_OP_READ:
	case FI_OP_WRITE: work->op.rma = &rma; break;
	case FI_OP_ATOMIC: work->op.atomic = &atomic; break;
	case FI_OP_FETCH_ATOMIC: work->op.fetch_atomic = &fetch; break;
	case FI_OP_COMPARE_ATOMIC: work->op.compare_atomic = &swap; break;
	case FI_OP_CNTR_SET:
	case FI_OP_CNTR_ADD: work->op.cntr = &cntr; break;
	}
	return fi_control(&a.n.domain->fid, FI_QUEUE_WORK, work);
}

/* Every operation as deferred work: it counts on the completion counter alone, and leaves an entry if it is to. */
static void deferred_work(void)
{
	open_both(FI_PROGRESS_MANUAL);
	for (int kind = FI_OP_RECV; kind <= FI_OP_COMPARE_ATOMIC; kind++)
		for (int shown = 0; shown < 2; shown++) {
			struct fi_cq_tagged_entry entry;
			int mark;
			struct fi_deferred_work work = {.threshold = 3, .triggering_cntr = a.gate, .completion_cntr = a.done};
			EQUAL(fi_cntr_set(a.gate, 0), 0);
			EQUAL(fi_cntr_seterr(a.gate, 0), 0);
			EQUAL(fi_cntr_set(a.done, 0), 0);
			uint64_t tx = fi_cntr_read(a.tx), rx = fi_cntr_read(a.rx);
			int received = kind == FI_OP_RECV || kind == FI_OP_TRECV;
			prepare();
			EQUAL(queue(&work, kind, shown ? FI_COMPLETION : 0), 0);
			if (!received)
				meet(kind, &mark);
			EQUAL(fi_cntr_add(a.gate, 2), 0);
			quiet();
			untouched(kind);
			EQUAL(fi_cntr_read(a.done), 0);
			/* What failed counts as well. */
			EQUAL(fi_cntr_adderr(a.gate, 1), 0);
			if (received)
				meet(kind, &mark);
			await_count(a.done, 1);
			if (involves_peer(kind)) {
				abi_expect(&b.n, &a.n, &entry);
				CHECK(entry.op_context == &mark);
			}
			if (shown) {
				abi_expect(&a.n, &b.n, &entry);
				CHECK(entry.op_context == &work.context);
			}
			quiet();
			verify(kind);
			EQUAL(fi_cntr_read(a.tx), tx);
			EQUAL(fi_cntr_read(a.rx), rx);
		}
	/* Counters: set, then added to, by one structure used twice. */
	struct fi_deferred_work work = {.threshold = 1, .triggering_cntr = a.gate};
	EQUAL(fi_cntr_set(a.gate, 0), 0);
	EQUAL(fi_cntr_seterr(a.gate, 0), 0);
	EQUAL(fi_cntr_set(a.done, 77), 0);
	EQUAL(queue(&work, FI_OP_CNTR_SET, 0), 0);
	EQUAL(queue(&work, FI_OP_CNTR_ADD, 0), 0);
	quiet();
	EQUAL(fi_cntr_read(a.done), 77);
	EQUAL(fi_cntr_add(a.gate, 1), 0);
	EQUAL(fi_cntr_read(a.done), 10);
	/* A row of them: each sets off the next, whatever set off the first. */
	struct fi_deferred_work row[3];
	EQUAL(fi_cntr_set(a.gate, 0), 0);
	EQUAL(fi_cntr_set(a.done, 0), 0);
	prepare();
	b.words[1] = 0;
	for (int i = 0; i < 3; i++) {
		row[i] = (struct fi_deferred_work){.threshold = (uint64_t)(i ? i : 1),
						   .triggering_cntr = i ? a.done : a.gate,
						   .completion_cntr = a.done};
		EQUAL(queue(&row[i], FI_OP_ATOMIC, 0), 0);
	}
	quiet();
	EQUAL(fi_cntr_add(a.gate, 1), 0);
	await_count(a.done, 3);
	uint64_t word;
	memcpy(&word, a.buf, 8);
	EQUAL(b.words[1], 3 * word);
	close_both();
}

/* Who waits for a counter that work changes sees to it that the work is done, by whatever endpoint. */
static void the_counter_is_enough(void)
{
	open_both(FI_PROGRESS_MANUAL);
	struct fid_cntr *sum = counter(&a.n);
	struct fi_op_cntr add = {sum, 5};
	struct fi_deferred_work work = {.triggering_cntr = a.tx, .threshold = fi_cntr_read(a.tx) + 1, .completion_cntr = a.done},
				last = {.triggering_cntr = a.done, .threshold = 1, .op_type = FI_OP_CNTR_ADD,
					.op.cntr = &add};
	EQUAL(fi_control(&a.n.domain->fid, FI_QUEUE_WORK, &last), 0);
	prepare();
	EQUAL(queue(&work, FI_OP_WRITE, 0), 0);
	RETRY(&a.n, fi_write(a.n.ep, a.buf, 8, NULL, a.peer, 0, KEY, NULL));
	EQUAL(fi_cntr_wait(sum, 5, (int)(PATIENCE * 1000)), 0);
	EQUAL(fi_cntr_wait(a.done, 1, 0), 0);
	EQUAL(b.words[0], b.words[1]);
	struct fi_cq_tagged_entry entry;
	abi_expect(&a.n, &b.n, &entry);
	EQUAL(fi_close(&sum->fid), 0);
	close_both();
}

static void deferred_work_is_taken_back(void)
{
	open_both(FI_PROGRESS_MANUAL);
	struct fi_deferred_work work = {.threshold = 1, .triggering_cntr = a.gate}, other = work;
	other.triggering_cntr = a.tx;
	struct fid *domain = &a.n.domain->fid;
	EQUAL(fi_cntr_set(a.done, 0), 0);
	/* One request, all of one counter, all. */
	EQUAL(queue(&work, FI_OP_CNTR_ADD, 0), 0);
	EQUAL(queue(&other, FI_OP_CNTR_ADD, 0), 0);
	EQUAL(fi_control(domain, FI_CANCEL_WORK, &work), 0);
	EQUAL(fi_control(domain, FI_CANCEL_WORK, &work), -FI_ENOENT);
	EQUAL(fi_cntr_add(a.gate, 1), 0);
	EQUAL(fi_cntr_read(a.done), 0);
	EQUAL(fi_cntr_add(a.tx, 1), 0);
	EQUAL(fi_cntr_read(a.done), 5);
	work.threshold = other.threshold = 10;
	EQUAL(queue(&work, FI_OP_CNTR_ADD, 0), 0);
	EQUAL(queue(&other, FI_OP_CNTR_ADD, 0), 0);
	EQUAL(fi_control(domain, FI_FLUSH_WORK, a.gate), 0);
	EQUAL(fi_control(domain, FI_CANCEL_WORK, &work), -FI_ENOENT);
	EQUAL(fi_control(domain, FI_FLUSH_WORK, NULL), 0);
	EQUAL(fi_control(domain, FI_CANCEL_WORK, &other), -FI_ENOENT);
	EQUAL(fi_cntr_set(a.gate, 10), 0);
	EQUAL(fi_cntr_set(a.tx, 10), 0);
	EQUAL(fi_cntr_read(a.done), 5);
	/* A receive that has been posted already. */
	struct fi_deferred_work posted = {.threshold = 1, .triggering_cntr = a.gate, .completion_cntr = a.done};
	EQUAL(queue(&posted, FI_OP_RECV, FI_COMPLETION), 0);
	quiet();
	EQUAL(fi_cancel(&a.n.ep->fid, &posted.context), 0);
	struct fi_cq_err_entry err;
	abi_expect_error(&a.n, &b.n, &err);
	EQUAL(err.err, FI_ECANCELED);
	CHECK(err.op_context == &posted.context);
	EQUAL(fi_cntr_readerr(a.done), 1);
	/* What makes no sense. */
	EQUAL(fi_control(domain, FI_QUEUE_WORK, NULL), -FI_EINVAL);
	EQUAL(fi_control(domain, FI_CANCEL_WORK, NULL), -FI_EINVAL);
	EQUAL(queue(&work, 99, 0), -FI_ENOSYS);
	work.completion_cntr = a.done;
	EQUAL(queue(&work, FI_OP_CNTR_ADD, 0), -FI_EINVAL);
	work.completion_cntr = NULL;
	work.triggering_cntr = b.gate;
	EQUAL(queue(&work, FI_OP_CNTR_ADD, 0), -FI_EINVAL);
	work.triggering_cntr = NULL;
	EQUAL(queue(&work, FI_OP_CNTR_ADD, 0), -FI_EINVAL);
	work.triggering_cntr = a.gate;
	EQUAL(queue(&work, FI_OP_SEND, FI_INJECT), -FI_EBADFLAGS);
	close_both();
}

int main(void)
{
	RUN(triggered_operations);
	RUN(the_order);
	RUN(refused_and_cancelled);
	RUN(taken_back_on_its_own_side);
	RUN(aliases);
	RUN(deferred_work);
	RUN(the_counter_is_enough);
	RUN(deferred_work_is_taken_back);
	printf("%d checks\n", abi_checks);
	return 0;
}
