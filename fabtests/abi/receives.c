/* Every receiving call with every option: refused with the right error, or it ends once, and its buffer is written to
 * by nobody before it is posted or after it is given back (guard.h): received, truncated, cancelled, peeked at, claimed,
 * dropped. MODEL_EVERY=n: about every n-th combination, for slow runs.
 */
#include "guard.h"

/* Small, so that a few kilobytes are several packets, and some more a rendezvous. */
#define EAGER 16384
enum { MOST_PIECES = 5, LIMIT = 4 };

static struct node a, b;
static struct fid_cntr *cntr;
static fi_addr_t to_b;
static int selective;
static unsigned every = 1;
static unsigned long carried_out, refused;
static uint64_t counted, failed;

enum call { RECV, RECVV, RECVMSG, CALLS };
/* What becomes of a receive. */
enum fate { MESSAGE_WAITS, MESSAGE_COMES, TOO_LONG, CANCELLED, FATES };

static const char *const calls[] = {"recv", "recvv", "recvmsg"};
static const char *const fates[] = {"a message waits", "a message comes", "the message is too long", "cancelled"};

struct combo {
	enum call call;
	int tagged;
	uint64_t flags, defaults;
	unsigned pieces;
	size_t len;
	enum fate fate;
};

static struct combo now;

static void describe(uint32_t id)
{
	fprintf(stderr, "%s%s number %u, flags %#llx, defaults %#llx, %s queue, %u pieces, %zu bytes, %s\n",
		now.tagged ? "t" : "", calls[now.call], id, (unsigned long long)now.flags,
		(unsigned long long)now.defaults, selective ? "selective" : "plain", now.pieces, now.len,
		fates[now.fate]);
}

#define FAIL_NOW(...)                                                             \
	do {                                                                      \
		describe(id);                                                     \
		FAIL(__VA_ARGS__);                                                \
	} while (0)

static uint32_t id = 1;
static int contexts[64];
static unsigned char content[3 * EAGER];

static void open_pair(int kind)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE};
	abi_open(&a, &want);
	selective = kind & 1;
	want.selective = selective ? FI_SELECTIVE_COMPLETION : 0;
	abi_open(&b, &want);
	to_b = abi_insert(&a, &b.name);
	cntr = NULL;
	counted = failed = 0;
	if (kind & 2) {
		struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
		EQUAL(fi_cntr_open(b.domain, &attr, &cntr, NULL), 0);
		EQUAL(fi_ep_bind(b.ep, &cntr->fid, FI_RECV), 0);
	}
}

/* The level at which the sender is told: FI_DELIVERY_COMPLETE where nothing else says that all of it is here. */
static uint64_t level;

static void send_one(int tagged, size_t len, uint64_t tag)
{
	struct iovec iov = {content, len};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .context = content};
	struct fi_msg_tagged tmsg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .tag = tag, .context = content};
	if (tagged)
		RETRY(&a, fi_tsendmsg(a.ep, &tmsg, FI_COMPLETION | level));
	else
		RETRY(&a, fi_sendmsg(a.ep, &msg, FI_COMPLETION | level));
}

static void turns(int n)
{
	for (int i = 0; i < n; i++) {
		(void)fi_cq_read(a.cq, NULL, 0);
		(void)fi_cq_read(b.cq, NULL, 0);
	}
}

static void close_pair(void)
{
	/* The last acknowledgements, which nobody would give to the one that closes first. */
	turns(300);
	EQUAL(fi_close(&b.ep->fid), 0);
	if (cntr)
		EQUAL(fi_close(&cntr->fid), 0);
	EQUAL(fi_close(&b.cq->fid), 0);
	EQUAL(fi_close(&b.av->fid), 0);
	EQUAL(fi_close(&b.domain->fid), 0);
	EQUAL(fi_close(&b.fabric->fid), 0);
	fi_freeinfo(b.info);
	abi_close(&a);
}

/* The next entry at the receiver: 1, or -FI_EAVAIL with the error. */
static ssize_t next(struct fi_cq_tagged_entry *e, struct fi_cq_err_entry *err)
{
	ssize_t rc = abi_next(&b, &a, e);
	memset(err, 0, sizeof(*err));
	if (rc == -FI_EAVAIL)
		EQUAL(fi_cq_readerr(b.cq, err, 0), 1);
	return rc;
}

static void nothing_more(void)
{
	struct fi_cq_tagged_entry e;
	turns(3);
	ssize_t rc = fi_cq_read(b.cq, &e, 1);
	if (rc != -FI_EAGAIN)
		FAIL_NOW("an entry too many (%zd)", rc);
	if (cntr) {
		if (fi_cntr_read(cntr) != counted || fi_cntr_readerr(cntr) != failed)
			FAIL_NOW("counted %lu and %lu, not %lu and %lu", (unsigned long)fi_cntr_read(cntr),
				 (unsigned long)fi_cntr_readerr(cntr), (unsigned long)counted, (unsigned long)failed);
	}
	abi_checks++;
}

/* A message nobody received is taken out of the way. */
static void drain_message(int tagged, size_t len, uint64_t tag)
{
	static unsigned char rest[4 * EAGER];
	struct iovec iov = {rest, sizeof(rest)};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	if (tagged) {
		struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = tag};
		EQUAL(fi_trecvmsg(b.ep, &msg, FI_COMPLETION), 0);
	} else {
		struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
		EQUAL(fi_recvmsg(b.ep, &msg, FI_COMPLETION), 0);
	}
	EQUAL(next(&e, &err), 1);
	EQUAL(e.len, len);
	CHECK(memcmp(rest, content, len) == 0);
	counted++;
}

static void sender_done(void)
{
	struct fi_cq_tagged_entry e;
	abi_expect(&a, &b, &e);
}

static size_t part_len(const struct combo *c, unsigned i)
{
	return c->len * (i + 1) / c->pieces - c->len * i / c->pieces;
}

static ssize_t make_call(const struct combo *c, struct iovec *iov, void *context)
{
	struct fi_msg msg = {.msg_iov = iov, .iov_count = c->pieces, .addr = FI_ADDR_UNSPEC, .context = context};
	struct fi_msg_tagged tmsg = {.msg_iov = iov, .iov_count = c->pieces, .addr = FI_ADDR_UNSPEC, .tag = id,
				     .context = context};
	switch (c->call) {
	case RECV:
		return c->tagged ? fi_trecv(b.ep, iov->iov_base, iov->iov_len, NULL, FI_ADDR_UNSPEC, id, 0, context)
				 : fi_recv(b.ep, iov->iov_base, iov->iov_len, NULL, FI_ADDR_UNSPEC, context);
	case RECVV:
		return c->tagged ? fi_trecvv(b.ep, iov, NULL, c->pieces, FI_ADDR_UNSPEC, id, 0, context)
				 : fi_recvv(b.ep, iov, NULL, c->pieces, FI_ADDR_UNSPEC, context);
	default:
		return c->tagged ? fi_trecvmsg(b.ep, &tmsg, c->flags) : fi_recvmsg(b.ep, &msg, c->flags);
	}
}

/* The error that fi_msg(3) and fi_tagged(3) have a call refused with, or 0. */
static int refusal(const struct combo *c, int *other)
{
	uint64_t known = FI_COMPLETION | FI_MORE;
	known |= c->tagged ? FI_PEEK | FI_CLAIM | FI_DISCARD : FI_MULTI_RECV | FI_TRANSMIT_COMPLETE;
	int flags = c->call == RECVMSG && (c->flags & ~known) ? FI_EBADFLAGS : 0;
	int pieces = c->pieces > LIMIT ? FI_EINVAL : 0;
	*other = flags ? pieces : 0;
	return flags ? flags : pieces;
}

static void one(const struct combo *c)
{
	static uint32_t number;
	struct guard parts[MOST_PIECES];
	struct iovec iov[MOST_PIECES];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	int other, why = refusal(c, &other);
	if ((number++ * 2654435761u >> 8) % every)
		return;
	now = *c;
	id++;
	if (why) {
		for (unsigned i = 0; i < c->pieces; i++)
			iov[i] = (struct iovec){content, part_len(c, i)};
		ssize_t rc = make_call(c, iov, &contexts[0]);
		if (rc != -why && (!other || rc != -other))
			FAIL_NOW("returned %zd (%s), not %s", rc, fi_strerror((int)-rc), fi_strerror(why));
		refused++;
		abi_checks++;
		return;
	}
	carried_out++;
	uint64_t flags = c->call == RECVMSG ? c->flags : c->defaults;
	int shown = !selective || flags & FI_COMPLETION;
	size_t sent = c->len + (c->fate == TOO_LONG);
	int told = shown || cntr || c->fate >= TOO_LONG;
	level = told ? 0 : FI_DELIVERY_COMPLETE;
	if (c->fate == MESSAGE_WAITS) {
		send_one(c->tagged, sent, id);
		turns(4);
	}
	for (unsigned i = 0; i < c->pieces; i++) {
		parts[i] = guard_take(part_len(c, i), id);
		iov[i] = (struct iovec){parts[i].at, parts[i].len};
		memset(parts[i].at, 0xee, parts[i].len);
	}
	ssize_t rc = make_call(c, iov, &contexts[1]);
	if (rc)
		FAIL_NOW("returned %zd (%s)", rc, fi_strerror((int)-rc));
	if (c->fate == CANCELLED) {
		EQUAL(fi_cancel(&b.ep->fid, &contexts[1]), 0);
		failed++;
	} else if (c->fate != MESSAGE_WAITS) {
		send_one(c->tagged, sent, id);
	}
	if (c->fate == CANCELLED || c->fate == TOO_LONG) {
		/* An error is shown whatever the flags, with its context. */
		if (next(&e, &err) != -FI_EAVAIL)
			FAIL_NOW("succeeded");
		EQUAL(err.err, c->fate == CANCELLED ? FI_ECANCELED : FI_ETRUNC);
		if (c->fate == TOO_LONG) {
			EQUAL(err.olen, 1);
			failed++;
		}
		CHECK(err.op_context == &contexts[1]);
	} else if (shown) {
		if (next(&e, &err) != 1)
			FAIL_NOW("failed: %s", fi_strerror(err.err));
		uint64_t kind = FI_RECV | (c->tagged ? FI_TAGGED : FI_MSG);
		CHECK(e.op_context == &contexts[1] && e.len == sent && e.flags == kind);
		counted++;
	} else if (cntr) {
		double end = abi_now() + PATIENCE;
		for (counted++; fi_cntr_read(cntr) < counted; turns(1))
			if (abi_now() > end)
				FAIL_NOW("was not counted");
	} else {
		/* Nothing says so, but the bytes. */
		double end = abi_now() + PATIENCE;
		volatile unsigned char *last = c->len ? parts[c->pieces - 1].at + parts[c->pieces - 1].len - 1 : NULL;
		while (last && *last != content[c->len - 1]) {
			turns(1);
			if (abi_now() > end)
				FAIL_NOW("did not arrive");
		}
	}
	size_t at = 0;
	if (told)
		for (unsigned i = 0; i < c->pieces; i++) {
			for (size_t k = 0; k < parts[i].len; k++, at++) {
				unsigned char wanted = c->fate == CANCELLED ? 0xee : content[at];
				if (parts[i].at[k] != wanted)
					FAIL_NOW("byte %zu is %#x, not %#x", at, parts[i].at[k], wanted);
			}
			guard_give_back(&parts[i]);
		}
	if (c->fate == CANCELLED) {
		/* What comes now is not for the buffer. */
		send_one(c->tagged, sent, id);
		turns(3);
		drain_message(c->tagged, sent, id);
	}
	sender_done();
	if (told)
		nothing_more();
	for (unsigned i = 0; i < c->pieces; i++)
		if (!told) {
			/* The sender has been told that it was delivered, so all is in place. */
			turns(20);
			guard_give_back(&parts[i]);
		}
	if (!told)
		counted++;
}

static const uint64_t odd[] = {
	0, FI_MULTICAST, FI_TRIGGER, FI_FENCE, FI_INJECT, FI_REMOTE_CQ_DATA, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE,
	FI_COMMIT_COMPLETE, FI_INJECT_COMPLETE, FI_SEND, FI_RECV, 1ULL << 0, 1ULL << 22, 1ULL << 29, 1ULL << 36,
	1ULL << 57, 1ULL << 62, 1ULL << 63};
enum { ODD = sizeof(odd) / sizeof(*odd) };

/* Calls that post a buffer for one message. */
static void posting(void)
{
	const size_t lens[] = {0, 1, 64, 256, 257, 3000, 9000, EAGER, EAGER + 1};
	const unsigned counts[] = {0, 1, 2, 4, 5};
	for (int kind = 0; kind < 4; kind++) {
		open_pair(kind);
		for (enum call call = RECV; call < CALLS; call++)
			for (int tagged = 0; tagged < 2; tagged++)
				for (unsigned set = 0; set < (call == RECVMSG ? 4 * (ODD + 1) : 2); set++) {
					struct combo c = {.call = call, .tagged = tagged};
					uint64_t flags = set & 1 ? FI_COMPLETION : 0;
					if (call == RECVMSG) {
						flags |= set & 2 ? FI_MORE : 0;
						flags |= set / 4 == ODD ? FI_TRANSMIT_COMPLETE : odd[set / 4];
						c.flags = flags;
					} else {
						uint64_t given = flags | FI_RECV;
						EQUAL(fi_control(&b.ep->fid, FI_SETOPSFLAG, &given), 0);
						c.defaults = flags;
					}
					for (int p = 0; p < 5; p++)
						for (int l = 0; l < 9; l++)
							for (enum fate fate = 0; fate < FATES; fate++) {
								c.pieces = call == RECV ? 1 : counts[p];
								c.len = lens[l];
								c.fate = fate;
								if ((call == RECV && p) || (!c.pieces && c.len))
									continue;
								one(&c);
							}
				}
		close_pair();
	}
}

/* A peek at messages with the tag `id`, into a buffer that nobody may touch. */
static ssize_t look(uint64_t flags, void *context, struct fi_cq_tagged_entry *e, struct fi_cq_err_entry *err)
{
	struct guard room = guard_take(64, id);
	struct iovec iov = {room.at, 64};
	struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = id, .context = context};
	guard_give_back(&room);
	ssize_t rc = fi_trecvmsg(b.ep, &msg, flags | FI_COMPLETION);
	return rc ? rc : next(e, err);
}

static void find(uint64_t flags, void *context, size_t len)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	ssize_t rc;
	double end = abi_now() + PATIENCE;
	while ((rc = look(flags, context, &e, &err)) == -FI_EAVAIL) {
		EQUAL(err.err, FI_ENOMSG);
		CHECK(err.op_context == context);
		turns(1);
		if (abi_now() > end)
			FAIL_NOW("no message to look at");
	}
	EQUAL(rc, 1);
	CHECK(e.op_context == context && e.len == len && e.tag == id);
}

static void find_none(uint64_t flags)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	turns(4);
	if (look(flags, &contexts[9], &e, &err) != -FI_EAVAIL || err.err != FI_ENOMSG)
		FAIL_NOW("a message is there");
}

/* FI_PEEK, FI_CLAIM and FI_DISCARD: every combination, with a message and without. */
static void looking(void)
{
	const size_t lens[] = {0, 1, 256, 257, 9000, EAGER + 1};
	const uint64_t bits[] = {FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MORE};
	for (int kind = 0; kind < 4; kind++) {
		open_pair(kind);
		now = (struct combo){.call = RECVMSG, .tagged = 1};
		for (int l = 0; l < 6; l++)
			for (unsigned set = 1; set < 16; set++) {
				uint64_t flags = 0;
				struct fi_cq_tagged_entry e;
				struct fi_cq_err_entry err;
				for (int i = 0; i < 4; i++)
					flags |= set >> i & 1 ? bits[i] : 0;
				now.flags = flags;
				now.len = lens[l];
				id++;
				uint64_t kind_of = flags & ~FI_MORE;
				if (kind_of == 0)
					continue;
				/* Nobody says what dropping without having looked is, or all three. */
				if (kind_of == FI_DISCARD || kind_of == (FI_PEEK | FI_CLAIM | FI_DISCARD)) {
					EQUAL(look(flags, &contexts[2], &e, &err), -FI_EBADFLAGS);
					refused++;
					continue;
				}
				carried_out++;
				if (!(flags & FI_PEEK)) {
					/* Of a message that was claimed with another context, or not at all. */
					EQUAL(look(flags, &contexts[2], &e, &err), -FI_EINVAL);
					send_one(1, lens[l], id);
					find(FI_PEEK | FI_CLAIM, &contexts[3], lens[l]);
					EQUAL(look(flags, &contexts[2], &e, &err), -FI_EINVAL);
					find_none(FI_PEEK);
					struct guard room = guard_take(lens[l], id);
					struct iovec iov = {room.at, lens[l]};
					struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
								    .tag = id, .context = &contexts[3]};
					if (flags & FI_DISCARD)
						guard_give_back(&room);
					EQUAL(fi_trecvmsg(b.ep, &msg, flags | FI_COMPLETION), 0);
					EQUAL(next(&e, &err), 1);
					CHECK(e.op_context == &contexts[3] && e.len == lens[l] && e.tag == id);
					if (!(flags & FI_DISCARD)) {
						CHECK(memcmp(room.at, content, lens[l]) == 0);
						guard_give_back(&room);
					}
					counted++;
				} else {
					find_none(flags);
					send_one(1, lens[l], id);
					find(flags, &contexts[2], lens[l]);
					if (kind_of == FI_PEEK) {
						find(flags, &contexts[2], lens[l]);
						drain_message(1, lens[l], id);
					} else {
						find_none(FI_PEEK);
						if (flags & FI_CLAIM) {
							struct fi_msg_tagged msg = {.addr = FI_ADDR_UNSPEC, .tag = id,
										    .context = &contexts[2]};
							EQUAL(fi_trecvmsg(b.ep, &msg, FI_CLAIM | FI_DISCARD | FI_COMPLETION), 0);
							EQUAL(next(&e, &err), 1);
							counted++;
						}
					}
				}
				/* Also of what was dropped the sender is told. A look counts for nothing. */
				sender_done();
				nothing_more();
			}
		close_pair();
	}
}

/* A message whose completion says that it is there. */
static void deliver_one(size_t len)
{
	struct iovec iov = {content, len};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b};
	RETRY(&a, fi_sendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
}

/* FI_MULTI_RECV: packed, released once, also where successes are not shown; cancelled when half full. */
static void shared(void)
{
	const size_t lens[] = {0, 1, 256, 257, 4000, EAGER + 1};
	size_t least = 100;
	for (int kind = 0; kind < 4; kind++) {
		open_pair(kind);
		EQUAL(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
		for (int l = 0; l < 6; l++)
			for (unsigned set = 0; set < 8; set++) {
				struct fi_cq_tagged_entry e;
				struct fi_cq_err_entry err;
				int shown = set & 1 || !selective, cancel = set & 2, waits = set & 4;
				size_t len = lens[l], fit = 3;
				now = (struct combo){.call = RECVMSG, .flags = FI_MULTI_RECV, .len = len};
				now.fate = cancel ? CANCELLED : waits ? MESSAGE_WAITS : MESSAGE_COMES;
				/* Empty messages never fill it. */
				if (len == 0 && !cancel)
					continue;
				id++;
				carried_out++;
				struct guard room = guard_take(fit * len + least - 1 + (cancel ? len + 1 : 0), id);
				struct iovec iov = {room.at, room.len};
				struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
						     .context = &contexts[5]};
				if (waits)
					for (size_t i = 0; i < fit; i++)
						deliver_one(len);
				turns(waits ? 6 : 0);
				EQUAL(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV | (set & 1 ? FI_COMPLETION : 0)), 0);
				if (!waits)
					for (size_t i = 0; i < fit; i++)
						deliver_one(len);
				for (size_t i = 0; i < fit; i++)
					sender_done();
				unsigned places = 0;
				int released = 0;
				for (size_t i = 0; shown ? i < fit : !cancel && i < 1; i++) {
					if (next(&e, &err) != 1)
						FAIL_NOW("failed: %s", fi_strerror(err.err));
					CHECK(e.op_context == &contexts[5]);
					released += !!(e.flags & FI_MULTI_RECV);
					if (!shown)
						break;
					EQUAL(e.len, len);
					/* One behind the other, but the shorter way may be the faster. */
					size_t at = (size_t)((unsigned char *)e.buf - room.at), slot = len ? at / len : i;
					CHECK(slot < fit && (!len || at % len == 0) && !(places & 1u << slot));
					places |= 1u << slot;
					CHECK(memcmp(e.buf, content, len) == 0);
				}
				counted += fit;
				if (cancel) {
					EQUAL(released, 0);
					EQUAL(fi_cancel(&b.ep->fid, &contexts[5]), 0);
					EQUAL(next(&e, &err), -FI_EAVAIL);
					EQUAL(err.err, FI_ECANCELED);
					CHECK(err.op_context == &contexts[5] && err.flags & FI_MULTI_RECV);
					failed++;
				} else {
					EQUAL(released, 1);
				}
				guard_give_back(&room);
				deliver_one(len);
				drain_message(0, len, 0);
				sender_done();
				/* Whether a release after all counts is the provider's choice. */
				if (cntr && cancel)
					failed = fi_cntr_readerr(cntr);
				nothing_more();
			}
		close_pair();
	}
}

/* Bytes at NULL, and messages that are none. */
static void nowhere(void)
{
	open_pair(0);
	struct iovec iov[2] = {{content, 10}, {NULL, 1}};
	struct fi_msg msg = {.msg_iov = iov, .iov_count = 2, .addr = FI_ADDR_UNSPEC};
	struct fi_msg_tagged tmsg = {.msg_iov = iov, .iov_count = 2, .addr = FI_ADDR_UNSPEC};
	EQUAL(fi_recv(b.ep, NULL, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	EQUAL(fi_trecv(b.ep, NULL, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_EINVAL);
	EQUAL(fi_recvv(b.ep, iov, NULL, 2, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	EQUAL(fi_recvv(b.ep, NULL, NULL, 1, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	EQUAL(fi_recvmsg(b.ep, &msg, 0), -FI_EINVAL);
	EQUAL(fi_trecvmsg(b.ep, &tmsg, 0), -FI_EINVAL);
	EQUAL(fi_recvmsg(b.ep, NULL, 0), -FI_EINVAL);
	EQUAL(fi_trecvmsg(b.ep, NULL, 0), -FI_EINVAL);
	EQUAL(fi_send(a.ep, NULL, 1, NULL, to_b, NULL), -FI_EINVAL);
	EQUAL(fi_inject(a.ep, NULL, 1, to_b), -FI_EINVAL);
	EQUAL(fi_sendv(a.ep, iov, NULL, 2, to_b, NULL), -FI_EINVAL);
	EQUAL(fi_sendmsg(a.ep, NULL, 0), -FI_EINVAL);
	EQUAL(fi_tsendmsg(a.ep, NULL, 0), -FI_EINVAL);
	EQUAL(fi_send(a.ep, content, 1, NULL, to_b + 7, NULL), -FI_EINVAL);
	EQUAL(fi_send(a.ep, content, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	refused += 15;
	/* No bytes may be anywhere. */
	iov[1].iov_len = 0;
	EQUAL(fi_recvv(b.ep, iov, NULL, 2, FI_ADDR_UNSPEC, &contexts[0]), 0);
	EQUAL(fi_cancel(&b.ep->fid, &contexts[0]), 0);
	EQUAL(fi_cancel(&b.ep->fid, &contexts[0]), -FI_ENOENT);
	close_pair();
}

int main(void)
{
	if (getenv("MODEL_EVERY"))
		every = (unsigned)atoi(getenv("MODEL_EVERY"));
	CHECK(every > 0);
	setenv("FI_SQUALL_EAGER_SIZE", "16384", 1);
	setenv("FI_SQUALL_MTU", "4096", 1);
	setenv("FI_SQUALL_ATTEND", "0ns", 1);
	guard_start(describe);
	abi_fill(content, sizeof(content), 3);
	RUN(posting);
	RUN(looking);
	RUN(shared);
	RUN(nowhere);
	printf("%lu combinations carried out, %lu refused, %d checks\n", carried_out, refused, abi_checks);
	return 0;
}
