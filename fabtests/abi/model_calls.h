/* The operations of the model: their buffers, and the call of each kind. */
#ifndef SQUALL_MODEL_CALLS_H
#define SQUALL_MODEL_CALLS_H

#include "guard.h"
#include "model_expect.h"

#define MOST_PIECES 5
/* Between remote ranges, and around them. */
#define GAP 16
#define WRITE_KEY 1
#define READ_KEY 2
#define ATOMIC_KEY 3
#define READ_SEED 77
/* What the peer's memory holds before a write or an atomic. */
#define BEFORE 0xee

struct op {
	uint32_t id;
	struct combo c;
	struct expect e;
	enum { UNUSED, UNDER_WAY, SUCCEEDED, FAILED } state;
	struct guard local[MOST_PIECES];
	struct iovec iov[MOST_PIECES];
	struct fi_rma_iov riov[MOST_PIECES];
	/* What an atomic compares with, and what it brings back. */
	struct guard compare[MOST_PIECES], result[MOST_PIECES];
	/* At the peer: where a message goes, and what has come. */
	struct guard into;
	int posted, arrived;
	/* How often the peer had made progress when the call was made. */
	unsigned long turns;
	int err;
};

static inline unsigned char byte_of(unsigned seed, size_t i)
{
	return (unsigned char)(i * 31 + (i >> 8) * 7 + seed * 131);
}

static inline void describe_combo(const struct combo *c)
{
	fprintf(stderr, "%s%s flags %#llx defaults %#llx %s queue, %u pieces, %u ranges, %zu bytes (remote %zu)\n",
		c->tagged ? "t" : "", call_names[c->call], (unsigned long long)c->flags, (unsigned long long)c->defaults,
		c->selective ? "selective" : "plain", c->pieces, c->ranges, c->len, c->remote_len);
}

#define FAIL_OP(op, ...)                                                          \
	do {                                                                      \
		fprintf(stderr, "operation %u, ", (op)->id);                      \
		describe_combo(&(op)->c);                                         \
		FAIL(__VA_ARGS__);                                                \
	} while (0)

static inline size_t part_start(size_t len, unsigned n, unsigned i)
{
	return len * i / n;
}

static inline size_t part_len(size_t len, unsigned n, unsigned i)
{
	return part_start(len, n, i + 1) - part_start(len, n, i);
}

/* Room at the peer for the ranges of an operation. */
static inline size_t span_of(const struct combo *c)
{
	return c->remote_len + (c->ranges + 1) * GAP;
}

/* Names the remote ranges, from `at` on in the peer's region. */
static inline void name_ranges(struct op *op, uint64_t at)
{
	uint64_t key = is_read(op->c.call) ? READ_KEY : is_atomic(op->c.call) ? ATOMIC_KEY : WRITE_KEY;
	for (unsigned r = 0; r < op->c.ranges; r++) {
		size_t len = part_len(op->c.remote_len, op->c.ranges, r);
		at += GAP;
		op->riov[r] = (struct fi_rma_iov){.addr = at, .len = len, .key = key};
		at += len;
	}
}

/* The byte at position `i` of what was read. */
static inline unsigned char byte_read(const struct op *op, size_t i)
{
	for (unsigned r = 0; r < op->c.ranges; r++) {
		if (i < op->riov[r].len)
			return byte_of(READ_SEED, op->riov[r].addr + i);
		i -= op->riov[r].len;
	}
	return 0;
}

/* Buffers of the operation's own, filled with what it sends. */
static inline void take_buffers(struct op *op)
{
	for (unsigned p = 0; p < op->c.pieces; p++) {
		size_t start = part_start(op->c.len, op->c.pieces, p), len = part_len(op->c.len, op->c.pieces, p);
		op->local[p] = guard_take(len, op->id);
		op->iov[p] = (struct iovec){op->local[p].at, len};
		for (size_t i = 0; i < len; i++)
			op->local[p].at[i] = is_read(op->c.call) ? 0xee : byte_of(op->id, start + i);
		if (is_compare(op->c.call)) {
			op->compare[p] = guard_take(len, op->id);
			memset(op->compare[p].at, BEFORE, len);
		}
		if (is_fetch(op->c.call)) {
			op->result[p] = guard_take(len, op->id);
			memset(op->result[p].at, (unsigned char)~BEFORE, len);
		}
	}
}

/* The byte that a write or an atomic leaves at position `i`: atomics add, or swap, bytes. */
static inline unsigned char byte_left(const struct op *op, size_t i)
{
	unsigned char own = byte_of(op->id, i);
	return is_atomic(op->c.call) && !is_compare(op->c.call) ? (unsigned char)(own + BEFORE) : own;
}

/* Whether an atomic brought back what was there before it, once. */
static inline int result_is_here(const struct op *op)
{
	for (unsigned p = 0; p < op->c.pieces; p++)
		for (size_t k = 0; k < op->result[p].len; k++)
			if (op->result[p].at[k] != BEFORE)
				return 0;
	return 1;
}

/* Buffers for a call that is refused, and looks at none. */
static inline void take_none(struct op *op)
{
	static unsigned char idle[1 << 16];
	for (unsigned p = 0; p < op->c.pieces; p++)
		op->iov[p] = (struct iovec){idle, part_len(op->c.len, op->c.pieces, p)};
}

static inline int read_is_here(const struct op *op)
{
	size_t i = 0;
	for (unsigned p = 0; p < op->c.pieces; p++)
		for (size_t k = 0; k < op->local[p].len; k++, i++)
			if (op->local[p].at[k] != byte_read(op, i))
				return 0;
	return 1;
}

/* What an operation takes along. */
static inline void give_back_operands(struct op *op)
{
	for (unsigned p = 0; p < op->c.pieces; p++) {
		guard_give_back(&op->local[p]);
		guard_give_back(&op->compare[p]);
	}
}

static inline void give_back(struct op *op)
{
	give_back_operands(op);
	for (unsigned p = 0; p < op->c.pieces; p++)
		guard_give_back(&op->result[p]);
}

static inline ssize_t call_message(struct fid_ep *ep, struct op *op, fi_addr_t to)
{
	void *buf = op->iov[0].iov_base;
	size_t len = op->c.len;
	switch (op->c.call) {
	case SEND: return fi_send(ep, buf, len, NULL, to, op);
	case SENDV: return fi_sendv(ep, op->iov, NULL, op->c.pieces, to, op);
	case SENDDATA: return fi_senddata(ep, buf, len, NULL, op->id, to, op);
	case INJECT: return fi_inject(ep, buf, len, to);
	case INJECTDATA: return fi_injectdata(ep, buf, len, op->id, to);
	default: break;
	}
	struct fi_msg msg = {.msg_iov = op->iov, .iov_count = op->c.pieces, .addr = to, .context = op, .data = op->id};
	return fi_sendmsg(ep, &msg, op->c.flags);
}

static inline ssize_t call_tagged(struct fid_ep *ep, struct op *op, fi_addr_t to)
{
	void *buf = op->iov[0].iov_base;
	size_t len = op->c.len;
	uint64_t tag = op->id;
	switch (op->c.call) {
	case SEND: return fi_tsend(ep, buf, len, NULL, to, tag, op);
	case SENDV: return fi_tsendv(ep, op->iov, NULL, op->c.pieces, to, tag, op);
	case SENDDATA: return fi_tsenddata(ep, buf, len, NULL, op->id, to, tag, op);
	case INJECT: return fi_tinject(ep, buf, len, to, tag);
	case INJECTDATA: return fi_tinjectdata(ep, buf, len, op->id, to, tag);
	default: break;
	}
	struct fi_msg_tagged msg = {.msg_iov = op->iov, .iov_count = op->c.pieces, .addr = to, .tag = tag, .context = op,
				    .data = op->id};
	return fi_tsendmsg(ep, &msg, op->c.flags);
}

static inline ssize_t call_rma(struct fid_ep *ep, struct op *op, fi_addr_t to)
{
	void *buf = op->iov[0].iov_base;
	size_t len = op->c.len;
	uint64_t addr = op->riov[0].addr, key = op->riov[0].key;
	switch (op->c.call) {
	case WRITE: return fi_write(ep, buf, len, NULL, to, addr, key, op);
	case WRITEV: return fi_writev(ep, op->iov, NULL, op->c.pieces, to, addr, key, op);
	case WRITEDATA: return fi_writedata(ep, buf, len, NULL, op->id, to, addr, key, op);
	case INJECT_WRITE: return fi_inject_write(ep, buf, len, to, addr, key);
	case INJECT_WRITEDATA: return fi_inject_writedata(ep, buf, len, op->id, to, addr, key);
	case READ: return fi_read(ep, buf, len, NULL, to, addr, key, op);
	case READV: return fi_readv(ep, op->iov, NULL, op->c.pieces, to, addr, key, op);
	default: break;
	}
	struct fi_msg_rma msg = {.msg_iov = op->iov, .iov_count = op->c.pieces, .addr = to, .rma_iov = op->riov,
				 .rma_iov_count = op->c.ranges, .context = op, .data = op->id};
	return op->c.call == READMSG ? fi_readmsg(ep, &msg, op->c.flags) : fi_writemsg(ep, &msg, op->c.flags);
}

static inline ssize_t call_atomic(struct fid_ep *ep, struct op *op, fi_addr_t to)
{
	enum fi_op sum = is_compare(op->c.call) ? FI_CSWAP : FI_SUM;
	struct fi_ioc with[MOST_PIECES], compare[MOST_PIECES], result[MOST_PIECES];
	struct fi_rma_ioc ranges[MOST_PIECES];
	void *buf = op->iov[0].iov_base;
	size_t count = op->c.len, n = op->c.pieces;
	uint64_t addr = op->riov[0].addr, key = op->riov[0].key;
	for (unsigned p = 0; p < n; p++) {
		size_t len = op->iov[p].iov_len;
		/* A call that is refused has no buffers of its own. */
		with[p] = (struct fi_ioc){op->iov[p].iov_base, len};
		compare[p] = (struct fi_ioc){op->compare[p].at ? op->compare[p].at : op->iov[p].iov_base, len};
		result[p] = (struct fi_ioc){op->result[p].at ? op->result[p].at : op->iov[p].iov_base, len};
	}
	for (unsigned r = 0; r < op->c.ranges; r++)
		ranges[r] = (struct fi_rma_ioc){.addr = op->riov[r].addr, .count = op->riov[r].len, .key = op->riov[r].key};
	struct fi_msg_atomic msg = {.msg_iov = with, .iov_count = n, .addr = to, .rma_iov = ranges,
				    .rma_iov_count = op->c.ranges, .datatype = FI_UINT8, .op = sum, .context = op,
				    .data = op->id};
	switch (op->c.call) {
	case ATOMIC: return fi_atomic(ep, buf, count, NULL, to, addr, key, FI_UINT8, sum, op);
	case ATOMICV: return fi_atomicv(ep, with, NULL, n, to, addr, key, FI_UINT8, sum, op);
	case ATOMICMSG: return fi_atomicmsg(ep, &msg, op->c.flags);
	case INJECT_ATOMIC: return fi_inject_atomic(ep, buf, count, to, addr, key, FI_UINT8, sum);
	case FETCH: return fi_fetch_atomic(ep, buf, count, NULL, result[0].addr, NULL, to, addr, key, FI_UINT8, sum, op);
	case FETCHV: return fi_fetch_atomicv(ep, with, NULL, n, result, NULL, n, to, addr, key, FI_UINT8, sum, op);
	case FETCHMSG: return fi_fetch_atomicmsg(ep, &msg, result, NULL, n, op->c.flags);
	case COMPARE:
		return fi_compare_atomic(ep, buf, count, NULL, compare[0].addr, NULL, result[0].addr, NULL, to, addr, key,
					 FI_UINT8, sum, op);
	case COMPAREV:
		return fi_compare_atomicv(ep, with, NULL, n, compare, NULL, n, result, NULL, n, to, addr, key, FI_UINT8, sum,
					  op);
	default: return fi_compare_atomicmsg(ep, &msg, compare, NULL, n, result, NULL, n, op->c.flags);
	}
}

/* Makes the call. What was injected is overwritten and given back before anything else happens. */
static inline ssize_t call(struct fid_ep *ep, struct op *op, fi_addr_t to)
{
	ssize_t rc = is_atomic(op->c.call)    ? call_atomic(ep, op, to)
		     : !is_message(op->c.call) ? call_rma(ep, op, to)
		     : op->c.tagged	       ? call_tagged(ep, op, to)
					       : call_message(ep, op, to);
	if (rc == 0 && op->e.injected) {
		for (unsigned p = 0; p < op->c.pieces; p++) {
			memset(op->local[p].at, 0x5a, op->local[p].len);
			if (op->compare[p].at)
				memset(op->compare[p].at, 0x5a, op->compare[p].len);
		}
		give_back_operands(op);
	}
	return rc;
}

/* Every flag set of a call with flags; `odd` adds one flag that must be refused. */
static const uint64_t levels[] = {
	0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE,
	/* Several: the strongest has them all. */
	FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE,
};
enum { LEVELS = sizeof(levels) / sizeof(*levels), PLAIN_LEVELS = 5 };

static const uint64_t strange[] = {
	FI_MULTICAST, FI_TRIGGER, FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MULTI_RECV, FI_SELECTIVE_COMPLETION, FI_RECV,
	1ULL << 0, 1ULL << 22, 1ULL << 29, 1ULL << 36, 1ULL << 62, 1ULL << 63,
};
enum { STRANGE = sizeof(strange) / sizeof(*strange) };

/* Sizes of a kind of call. */
struct sizes {
	size_t len[9];
	unsigned count;
};

static inline struct sizes sizes_of(enum call call, int brief, const struct limits *limits, size_t eager)
{
	size_t inject = limits->inject, most = most_values(limits, call);
	if (is_atomic(call))
		return brief ? (struct sizes){{4, inject < most ? inject : most, most}, 3}
			     : (struct sizes){{0, 1, 3, 64, inject, inject + 1, most, most + 1, eager}, 9};
	return brief ? (struct sizes){{0, 1, inject, inject + 1, 9000, eager + 1}, 6}
		     : (struct sizes){{0, 1, 64, inject, inject + 1, 3000, 9000, eager, eager + 1}, 9};
}

/* Visits every combination; `brief` leaves out what is refused for its flags or pieces, and some sizes. */
static inline void each_combo(int selective, int brief, const struct limits *limits, size_t eager,
			      void (*visit)(const struct combo *))
{
	const unsigned counts[] = {0, 1, 2, 4, 5}, brief_counts[] = {1, 4}, one[] = {1};
	unsigned long number = 0;
	for (enum call call = SEND; call < CALLS; call++)
		for (int tagged = 0; tagged <= is_message(call); tagged++) {
			/* Bits: inject, completion, more, data; then the level; then the odd flag. */
			int has = takes_flags(call);
			unsigned bits = has && !brief ? 16 : 4, odds = has && !brief ? 4 : 1;
			unsigned nlevels = brief ? PLAIN_LEVELS : LEVELS;
			unsigned sets = bits * nlevels * odds;
			if (always_injects(call) && brief)
				sets = 2;
			for (unsigned set = 0; set < sets; set++) {
				const unsigned *pieces = takes_pieces(call) ? brief ? brief_counts : counts : one;
				const unsigned *ranges = takes_ranges(call) ? brief ? brief_counts : counts : one;
				unsigned npieces = takes_pieces(call) ? brief ? 2 : 5 : 1;
				unsigned nranges = takes_ranges(call) ? brief ? 2 : 5 : 1;
				struct sizes sizes = sizes_of(call, brief, limits, eager);
				uint64_t flags = levels[set / bits % nlevels];
				flags |= set & 1 ? FI_INJECT : 0;
				flags |= set & 2 ? FI_COMPLETION : 0;
				unsigned level = set / bits % nlevels;
				if (has && (brief ? level & 1 : set & 4))
					flags |= FI_MORE;
				if (has && (brief ? level & 2 && !is_read(call) && !is_atomic(call) : set & 8))
					flags |= FI_REMOTE_CQ_DATA;
				for (unsigned p = 0; p < npieces; p++)
					for (unsigned r = 0; r < nranges; r++)
						for (unsigned l = 0; l < sizes.count; l++) {
							struct combo c = {.call = call, .tagged = tagged, .selective = selective};
							size_t len = sizes.len[l];
							uint64_t odd[] = {0, FI_FENCE, FI_COMMIT_COMPLETE,
									  strange[number % STRANGE]};
							c.pieces = pieces[p];
							c.ranges = ranges[r];
							/* No pieces have no bytes. */
							if (c.pieces == 0 && len)
								continue;
							c.len = len;
							c.remote_len = c.ranges ? len : 0;
							if (has) {
								c.flags = flags | odd[set / bits / nlevels];
								/* Of no concern to calls with flags. */
								c.defaults = number & 1 ? FI_INJECT | FI_COMPLETION | FI_MATCH_COMPLETE
											: 0;
							} else {
								c.defaults = flags;
							}
							number++;
							visit(&c);
							/* Ranges and buffer must be as long as each other. */
							if (takes_ranges(call) && c.ranges && !brief && set == 0) {
								c.remote_len++;
								visit(&c);
							}
						}
			}
		}
}

#endif
