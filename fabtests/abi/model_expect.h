/* What the manual pages say about one transmitting call: refused, and how; or accepted, and then when it may be
 * complete, what shows that, and from when on its buffer is the application's. It knows the interface, not the
 * provider. Where a page leaves the choice, both are allowed. */
#ifndef SQUALL_MODEL_EXPECT_H
#define SQUALL_MODEL_EXPECT_H

#include "abi.h"

enum call { SEND, SENDV, SENDDATA, SENDMSG, INJECT, INJECTDATA, WRITE, WRITEV, WRITEDATA, WRITEMSG, INJECT_WRITE,
	    INJECT_WRITEDATA, READ, READV, READMSG, ATOMIC, ATOMICV, ATOMICMSG, INJECT_ATOMIC, FETCH, FETCHV, FETCHMSG,
	    COMPARE, COMPAREV, COMPAREMSG, CALLS };

static const char *const call_names[CALLS] = {
	"send", "sendv", "senddata", "sendmsg", "inject", "injectdata", "write", "writev", "writedata", "writemsg",
	"inject_write", "inject_writedata", "read", "readv", "readmsg", "atomic", "atomicv", "atomicmsg",
	"inject_atomic", "fetch_atomic", "fetch_atomicv", "fetch_atomicmsg", "compare_atomic", "compare_atomicv",
	"compare_atomicmsg"};

/* One combination. */
struct combo {
	enum call call;
	int tagged;
	uint64_t flags;	   /* of the calls that take some */
	uint64_t defaults; /* the endpoint's, for those that do not */
	int selective;	   /* the queue is bound with FI_SELECTIVE_COMPLETION */
	unsigned pieces, ranges;
	size_t len, remote_len;
};

/* The limits fi_getinfo named. */
struct limits {
	size_t inject, pieces, ranges;
	/* Values that fi_atomicvalid and its kin allow at once: of base, fetching and comparing atomics. */
	size_t atomic, fetch, compare;
};

enum shown { ENTRY, ON_ERROR, COUNTED };
enum soonest { AT_CALL, AT_PEER, AT_MATCH };

struct expect {
	/* Errors any of which the call may return; none: it is accepted. */
	int refused[8], reasons;
	enum shown shown;
	enum soonest soonest;
	/* The buffer is the application's when the call returns. */
	int injected;
	/* When it is complete, what it wrote is in place. */
	int delivered;
	/* Remote CQ data goes along. */
	int data;
	/* fi_cq(3), completion flags. */
	uint64_t flags;
};

static inline int is_read(enum call call)
{
	return call >= READ && call <= READMSG;
}

static inline int is_atomic(enum call call)
{
	return call >= ATOMIC;
}

static inline int is_compare(enum call call)
{
	return call >= COMPARE;
}

/* Atomics that bring values back. */
static inline int is_fetch(enum call call)
{
	return call >= FETCH;
}

static inline int is_message(enum call call)
{
	return call <= INJECTDATA;
}

static inline int takes_flags(enum call call)
{
	return call == SENDMSG || call == WRITEMSG || call == READMSG || call == ATOMICMSG || call == FETCHMSG ||
	       call == COMPAREMSG;
}

static inline int takes_pieces(enum call call)
{
	return call == SENDV || call == WRITEV || call == READV || call == ATOMICV || call == FETCHV ||
	       call == COMPAREV || takes_flags(call);
}

static inline int takes_ranges(enum call call)
{
	return takes_flags(call) && call != SENDMSG;
}

static inline int always_injects(enum call call)
{
	return call == INJECT || call == INJECTDATA || call == INJECT_WRITE || call == INJECT_WRITEDATA ||
	       call == INJECT_ATOMIC;
}

static inline int always_data(enum call call)
{
	return call == SENDDATA || call == INJECTDATA || call == WRITEDATA || call == INJECT_WRITEDATA;
}

static inline void refuse(struct expect *e, int why)
{
	e->refused[e->reasons++] = why;
}

/* Values that an atomic may have at once. */
static inline size_t most_values(const struct limits *limits, enum call call)
{
	return is_compare(call) ? limits->compare : is_fetch(call) ? limits->fetch : limits->atomic;
}

static inline struct expect expected(const struct combo *c, const struct limits *limits)
{
	const uint64_t levels = FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
	const uint64_t known = levels | FI_INJECT | FI_COMPLETION | FI_MORE | FI_REMOTE_CQ_DATA | FI_FENCE;
	const uint64_t missing = FI_COMMIT_COMPLETE;
	struct expect e = {0};
	uint64_t flags = takes_flags(c->call) ? c->flags : c->defaults;
	/* fi_endpoint(3): op_flags are for calls without flags. fi_msg(3), fi_inject: as FI_INJECT, selective
	 * completions and no FI_COMPLETION. */
	if (always_injects(c->call))
		flags = FI_INJECT;
	/* "all outbound data buffers": what is read is not one, nor is all that a fetching atomic works with. */
	if ((is_read(c->call) || is_fetch(c->call)) && !takes_flags(c->call))
		flags &= ~FI_INJECT;
	if (flags & missing)
		refuse(&e, FI_EOPNOTSUPP);
	if (flags & ~(known | missing))
		refuse(&e, FI_EBADFLAGS);
	/* fi_rma(3): both apply to fi_writemsg. */
	if (is_read(c->call) && flags & (FI_INJECT | FI_REMOTE_CQ_DATA))
		refuse(&e, FI_EBADFLAGS);
	/* fi_atomic(3) has no data for the peer, and no atomic of nothing, or of no value of a range. */
	if (is_atomic(c->call)) {
		if (flags & FI_REMOTE_CQ_DATA)
			refuse(&e, FI_EBADFLAGS);
		if (c->len > most_values(limits, c->call) || c->remote_len > most_values(limits, c->call))
			refuse(&e, FI_EMSGSIZE);
		if (c->len == 0 || c->remote_len < c->ranges)
			refuse(&e, FI_EINVAL);
	}
	if (c->pieces > limits->pieces || (takes_ranges(c->call) && c->ranges > limits->ranges))
		refuse(&e, FI_EINVAL);
	/* One byte of the buffer for each of the ranges; and none without a range, which data could ride on. */
	if (takes_ranges(c->call) && (c->remote_len != c->len || c->ranges == 0))
		refuse(&e, FI_EINVAL);
	e.injected = !is_read(c->call) && flags & FI_INJECT;
	if (e.injected && c->len > limits->inject)
		refuse(&e, FI_EINVAL);
	e.data = !is_read(c->call) && !is_atomic(c->call) && (always_data(c->call) || flags & FI_REMOTE_CQ_DATA);
	if (always_injects(c->call))
		e.shown = COUNTED;
	else if (c->selective && !(flags & FI_COMPLETION))
		e.shown = ON_ERROR;
	/* fi_cq(3), completion event semantics. No level: the provider's choice. What a level asks of calls without
	 * an entry, nobody says. */
	if (is_read(c->call) || is_fetch(c->call))
		e.soonest = AT_PEER;
	else if (flags & FI_MATCH_COMPLETE && is_message(c->call))
		e.soonest = AT_MATCH;
	else if (flags & (FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE))
		e.soonest = AT_PEER;
	e.delivered = !is_read(c->call) && flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE);
	if (is_atomic(c->call))
		e.flags = FI_ATOMIC | (is_fetch(c->call) ? FI_READ : FI_WRITE);
	else if (is_message(c->call))
		e.flags = FI_SEND | (c->tagged ? FI_TAGGED : FI_MSG);
	else
		e.flags = FI_RMA | (is_read(c->call) ? FI_READ : FI_WRITE);
	return e;
}

static inline int may_refuse(const struct expect *e, ssize_t rc)
{
	for (int i = 0; i < e->reasons; i++)
		if (rc == -e->refused[i])
			return 1;
	return 0;
}

/* Whether it may succeed although the peer is gone. Only of the buffer, never of the peer; and not of a peer that
 * never answered, unless the buffer alone was asked about: so the provider's own promise. */
static inline int may_succeed_alone(const struct combo *c, const struct expect *e, int met)
{
	uint64_t flags = takes_flags(c->call) ? c->flags : c->defaults;
	return e->soonest == AT_CALL && (met || flags & FI_INJECT_COMPLETE);
}

#endif
