/* Random sequences of writes, reads, atomics and messages between two endpoints, in both directions and onto small
 * overlapping windows, compared with a model that applies each operation when it is posted. One half of the sequences
 * asks for every order (FI_ORDER_*). The other half asks for that of messages alone, and fences the operations that
 * meet the bytes of earlier ones.
 *
 *   order [SEED [COUNT]]   the COUNT sequences (1) from SEED on, or the first ORDER_SEQUENCES (20)
 *   ORDER_STEPS=n          length of a sequence
 */
#include "abi.h"

#define ALL_ORDER                                                                                                             \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAR | FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAR |             \
	 FI_ORDER_SAW | FI_ORDER_SAS | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW |            \
	 FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)

enum { LONGEST = 100000, WINDOW = 1 << 17, BUSY = 512, PIECES = 4, GAP = 16, TAGS = 3, KEY = 7 };
/* Receives and messages that may wait for each other in one direction. */
enum { MOST_WAITING = 24 };
/* Seconds after which nothing wakes anybody any more, though operations are under way. */
#define LOST_WAKE 20.0

enum kind { WRITE, READ, ATOMIC, FETCH, COMPARE, SEND };

/* The second state decides what depends on the time at which something happens, so that the calls do not. */
static uint64_t seed, states[2];
static int timed;
static unsigned step, steps;
static const char *const kinds[] = {"write", "read", "atomic", "fetching atomic", "comparing atomic", "send"};

#define WRONG(...)                                                                                                            \
	do {                                                                                                                  \
		fprintf(stderr, "order %llu, step %u: ", (unsigned long long)seed, step);                                     \
		FAIL(__VA_ARGS__);                                                                                            \
	} while (0)

#define SAME(a, b)                                                                                                            \
	do {                                                                                                                  \
		long long va_ = (long long)(a), vb_ = (long long)(b);                                                         \
		abi_checks++;                                                                                                 \
		if (va_ != vb_)                                                                                               \
			WRONG("%s is %lld, not %s = %lld", #a, va_, #b, vb_);                                                 \
	} while (0)

/* xorshift64*: the same seed gives the same sequence of calls. */
static unsigned dice(unsigned below)
{
	uint64_t *state = &states[timed];
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (unsigned)((*state * 2685821657736338717ULL) >> 33) % below;
}

/* Bytes of an operation in up to PIECES pieces, which lie in the reverse order, with gaps. */
struct pieces {
	unsigned char *all;
	size_t size;
	unsigned count;
	struct iovec iov[PIECES];
};

struct receive;

/* An operation; its number is its place in the array. */
struct op {
	enum kind kind;
	int from, ends, ended, tagged, has_data, arrived, delivered;
	uint32_t number, floor;
	uint64_t tag;
	size_t len;
	unsigned ranges;
	struct fi_rma_iov riov[PIECES];
	/* What is sent; what comes back, and what the model expects to come back. */
	struct pieces out, in;
	unsigned char *content;
	struct receive *receive;
};

struct receive {
	struct receive *next;
	int tagged, wild, ended;
	uint64_t tag;
	unsigned char *into;
	size_t size;
	struct op *op;
};

/* One endpoint, the operations that it posts, and the model of the window that the other endpoint writes. */
struct side {
	struct node n;
	fi_addr_t peer;
	struct fid_mr *mr;
	int fd;
	struct op *ops;
	uint32_t posted, open;
	/* No earlier operation is under way when one from this number on begins. */
	uint32_t fence;
	/* Messages to this side, and its receives, that have no partner yet, in order. */
	struct op *waiting[4 * MOST_WAITING];
	unsigned waiting_len, receives_len;
	struct receive *all;
	unsigned not_arrived;
	_Alignas(64) unsigned char window[WINDOW];
	unsigned char model[WINDOW];
	/* The last operation that wrote or read a byte, plus one. */
	uint32_t written[WINDOW], read[WINDOW];
};

static struct side sides[2];
static int in_order;
static size_t most_injected;
static unsigned long posted_all, late, checked_windows;

static void name_op(const struct op *op)
{
	fprintf(stderr, "%s %u of side %d, %zu bytes in %u pieces, %u ranges from %llu: ", kinds[op->kind], op->number, op->from,
		op->len, op->out.count + op->in.count, op->ranges, (unsigned long long)op->riov[0].addr);
}

#define WRONG_OP(op, ...)                                                                                                     \
	do {                                                                                                                  \
		name_op(op);                                                                                                  \
		WRONG(__VA_ARGS__);                                                                                           \
	} while (0)

static unsigned char byte_of(const struct op *op, size_t i)
{
	return (unsigned char)(op->number * 151 + (unsigned)op->from * 77 + i * 13 + (i >> 8) * 5 + 1);
}

/* Lengths are multiples of `unit`, the size of a value of an atomic, and none is zero; or any, if it is zero. */
static void split(size_t len, size_t *parts, unsigned count, size_t unit)
{
	size_t least = unit;
	unit += !unit;
	for (unsigned i = 0; i < count; i++) {
		size_t most = len - least * (count - 1 - i);
		size_t part = i + 1 == count ? len : least + dice((unsigned)((most - least) / unit) + 1) * unit;
		parts[i] = part;
		len -= part;
	}
}

static void make_pieces(struct pieces *p, size_t len, unsigned count, size_t unit)
{
	size_t parts[PIECES];
	split(len, parts, count, unit);
	p->count = count;
	p->size = len + (count + 1) * GAP;
	p->all = malloc(p->size);
	CHECK(p->all != NULL);
	memset(p->all, 0xa5, p->size);
	size_t at = GAP;
	for (unsigned i = count; i-- > 0;) {
		p->iov[i] = (struct iovec){p->all + at, parts[i]};
		at += parts[i] + GAP;
	}
}

static void fill(const struct pieces *p, const unsigned char *content)
{
	for (unsigned i = 0; i < p->count; i++) {
		memcpy(p->iov[i].iov_base, content, p->iov[i].iov_len);
		content += p->iov[i].iov_len;
	}
}

/* Returns whether the pieces have this content, and nothing was written around them. */
static int holds(const struct pieces *p, const unsigned char *content)
{
	for (unsigned i = 0; i < p->count; i++) {
		const unsigned char *at = p->iov[i].iov_base;
		size_t len = p->iov[i].iov_len;
		if (memcmp(at, content, len))
			return 0;
		for (int k = 0; k < GAP; k++)
			if (at[k - GAP] != 0xa5 || at[len + (size_t)k] != 0xa5)
				return 0;
		content += len;
	}
	return 1;
}

/* The application's own again: other bytes take their place at once. */
static void give_back(struct pieces *p)
{
	if (p->all)
		memset(p->all, 0x3c, p->size);
	free(p->all);
	p->all = NULL;
}

/* What an operation has done before it shows that it ended, or that it arrived: everything that it wrote, and everything
 * that it had to wait for. Bytes that a later operation writes may have its values already. */
static void check_window(const struct op *op)
{
	const struct side *from = &sides[op->from], *to = &sides[!op->from];
	checked_windows++;
	for (size_t i = 0; i < WINDOW; i++) {
		uint32_t by = from->written[i];
		if (by && (by - 1 < op->floor || by - 1 == op->number) && to->window[i] != from->model[i])
			WRONG_OP(op, "byte %zu of the window is %u, not %u, which %s %u left", i, to->window[i], from->model[i],
				 kinds[from->ops[by - 1].kind], by - 1);
	}
}

static void end_op(struct op *op)
{
	if (!op->ends || op->ended++)
		WRONG_OP(op, "ended %d times", op->ended);
	sides[op->from].open--;
	if (op->kind == READ || op->kind == FETCH || op->kind == COMPARE) {
		if (!holds(&op->in, op->content))
			WRONG_OP(op, "other bytes than the model's, or bytes around them");
		give_back(&op->in);
	} else if (op->delivered && op->kind != SEND) {
		check_window(op);
	}
	give_back(&op->out);
}

static void end_receive(struct receive *r, const struct fi_cq_tagged_entry *e)
{
	struct op *op = r->op;
	if (!op || r->ended++)
		WRONG("a receive without a message ended, or one ended twice");
	if (op->arrived++)
		WRONG_OP(op, "received twice");
	SAME(e->flags, FI_RECV | (op->tagged ? FI_TAGGED : FI_MSG) | (op->has_data ? FI_REMOTE_CQ_DATA : 0));
	if (e->len != op->len || (op->tagged && e->tag != op->tag) || (op->has_data && e->data != op->number))
		WRONG_OP(op, "received with %zu bytes, tag %llu and data %llu", e->len, (unsigned long long)e->tag,
			 (unsigned long long)e->data);
	for (size_t i = 0; i < op->len; i++)
		if (r->into[i] != byte_of(op, i))
			WRONG_OP(op, "byte %zu is not that of the message", i);
	for (size_t i = op->len; i < r->size && i < op->len + 64; i++)
		if (r->into[i] != 0xa5)
			WRONG_OP(op, "byte %zu behind the message was written", i);
	check_window(op);
	memset(r->into, 0x3c, r->size);
	free(r->into);
	r->into = NULL;
	sides[!op->from].not_arrived--;
}

/* Progress of a side, and what its queue says. Returns whether it said anything. */
static int turn(struct side *s)
{
	struct fi_cq_tagged_entry entries[8];
	int me = (int)(s - sides);
	int before = timed;
	timed = 1;
	ssize_t n = fi_cq_read(s->n.cq, entries, 1 + dice(8));
	timed = before;
	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		SAME(fi_cq_readerr(s->n.cq, &err, 0), 1);
		WRONG("an operation of side %d failed: %s, %s", me, fi_strerror(err.err),
		      fi_cq_strerror(s->n.cq, err.prov_errno, err.err_data, NULL, 0));
	}
	CHECK(n > 0);
	for (ssize_t i = 0; i < n; i++) {
		const struct fi_cq_tagged_entry *e = &entries[i];
		if (e->flags & FI_REMOTE_WRITE) {
			struct side *from = &sides[!me];
			SAME(e->flags, FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA);
			CHECK(e->data < from->posted);
			struct op *op = &from->ops[e->data];
			if (op->kind != WRITE || !op->has_data || op->arrived++)
				WRONG_OP(op, "its data came %d times, or it has none", op->arrived);
			check_window(op);
			s->not_arrived--;
		} else if (e->flags & FI_RECV) {
			end_receive(e->op_context, e);
		} else {
			end_op(e->op_context);
		}
	}
	return 1;
}

/* Whether a receive takes a message. Both sides begin with their first, so that the order of the calls decides alone,
 * and the time at which a message arrives does not. */
static int fits(const struct receive *r, const struct op *op)
{
	return r->tagged == op->tagged && (!r->tagged || r->wild || r->tag == op->tag);
}

static void post_receive(struct side *s, int tagged, int wild, uint64_t tag)
{
	struct receive *r = calloc(1, sizeof(*r));
	CHECK(r != NULL);
	*r = (struct receive){.next = s->all, .tagged = tagged, .wild = wild, .tag = tag, .size = LONGEST};
	s->all = r;
	unsigned at = 0;
	while (at < s->waiting_len && !fits(r, s->waiting[at]))
		at++;
	if (at < s->waiting_len) {
		r->op = s->waiting[at];
		r->op->receive = r;
		r->size = r->op->len + dice(100);
		s->waiting_len--;
		memmove(&s->waiting[at], &s->waiting[at + 1], (s->waiting_len - at) * sizeof(*s->waiting));
		late++;
	}
	r->into = malloc(r->size ? r->size : 1);
	CHECK(r->into != NULL);
	memset(r->into, 0xa5, r->size);
	if (!r->op)
		s->receives_len++;
	if (tagged)
		RETRY(&s->n, fi_trecv(s->n.ep, r->into, r->size, NULL, FI_ADDR_UNSPEC, tag, wild ? TAGS : 0, r));
	else
		RETRY(&s->n, fi_recv(s->n.ep, r->into, r->size, NULL, FI_ADDR_UNSPEC, r));
}

/* Posts the receives of messages until at most `rest` of them wait for one, the first messages first or last. */
static void catch_up(struct side *s, unsigned rest)
{
	timed = 1;
	while (s->waiting_len > rest) {
		const struct op *op = s->waiting[dice(2) ? 0 : s->waiting_len - 1];
		post_receive(s, op->tagged, 0, op->tag);
	}
	timed = 0;
}

/* The message takes the first receive that fits. */
static void match(struct side *to, struct op *op)
{
	to->not_arrived++;
	struct receive *first = NULL;
	for (struct receive *r = to->all; r; r = r->next)
		if (!r->op && fits(r, op))
			first = r;
	if (first) {
		first->op = op;
		op->receive = first;
		to->receives_len--;
	} else {
		to->waiting[to->waiting_len++] = op;
	}
}

/* Which values an atomic leaves. */
static uint64_t value_of(enum fi_op op, uint64_t there, uint64_t with, uint64_t compare)
{
	switch (op) {
	case FI_MIN: return with < there ? with : there;
	case FI_MAX: return with > there ? with : there;
	case FI_SUM: return there + with;
	case FI_PROD: return there * with;
	case FI_BOR: return there | with;
	case FI_BAND: return there & with;
	case FI_BXOR: return there ^ with;
	case FI_ATOMIC_READ: return there;
	case FI_ATOMIC_WRITE: return with;
	case FI_CSWAP: return compare == there ? with : there;
	case FI_CSWAP_NE: return compare != there ? with : there;
	case FI_CSWAP_LE: return compare <= there ? with : there;
	case FI_MSWAP: return (with & compare) | (there & ~compare);
	default: abort();
	}
}

static const enum fi_op base_ops[] = {FI_SUM, FI_SUM, FI_PROD, FI_MIN, FI_MAX, FI_BOR, FI_BAND, FI_BXOR, FI_ATOMIC_WRITE};
static const enum fi_op fetch_ops[] = {FI_SUM, FI_SUM, FI_BXOR, FI_MAX, FI_ATOMIC_WRITE, FI_ATOMIC_READ};
static const enum fi_op compare_ops[] = {FI_CSWAP, FI_CSWAP, FI_CSWAP_NE, FI_CSWAP_LE, FI_MSWAP};
static const enum fi_datatype types[] = {FI_UINT8, FI_UINT16, FI_UINT32, FI_UINT64};

static size_t some_length(void)
{
	switch (dice(8)) {
	case 0: return dice(LONGEST + 1);
	case 1: return dice(20000);
	case 2: return dice(5000);
	case 3: return dice(600);
	default: return dice(65);
	}
}

/* Ranges of one operation, none of which overlaps another. */
static void choose_ranges(struct op *op, unsigned count, size_t unit)
{
	size_t parts[PIECES], at = dice(4) ? dice(BUSY) : dice((unsigned)(WINDOW - op->len - 4096));
	split(op->len, parts, count, unit);
	op->ranges = count;
	unit += !unit;
	at -= at % unit;
	for (unsigned r = 0; r < count; r++) {
		op->riov[r] = (struct fi_rma_iov){.addr = at, .len = parts[r], .key = KEY};
		at += parts[r] + (dice(2) ? dice(40) * unit : 0);
	}
	/* In any order. */
	for (unsigned r = count; r > 1; r--) {
		unsigned other = dice(r);
		struct fi_rma_iov swap = op->riov[r - 1];
		op->riov[r - 1] = op->riov[other];
		op->riov[other] = swap;
	}
}

/* Whether the operation meets bytes of one after the last fence, which it may overtake. */
static int conflicts(const struct side *s, const struct op *op, int writes)
{
	for (unsigned r = 0; r < op->ranges; r++)
		for (size_t i = op->riov[r].addr; i < op->riov[r].addr + op->riov[r].len; i++)
			if (s->written[i] > s->fence || (writes && s->read[i] > s->fence))
				return 1;
	return 0;
}

static void apply(struct side *s, const struct op *op, int reads, int writes, const unsigned char *content)
{
	for (unsigned r = 0; r < op->ranges; r++)
		for (size_t k = 0, i = op->riov[r].addr; k < op->riov[r].len; k++, i++) {
			if (reads)
				s->read[i] = op->number + 1;
			if (writes) {
				s->written[i] = op->number + 1;
				s->model[i] = *content++;
			}
		}
}

/* The model's bytes of the ranges. */
static void collect(const struct side *s, const struct op *op, unsigned char *content)
{
	for (unsigned r = 0; r < op->ranges; r++) {
		memcpy(content, &s->model[op->riov[r].addr], op->riov[r].len);
		content += op->riov[r].len;
	}
}

/* Repeats a call until it is accepted. Meanwhile a message that waits for a receive gets one. */
#define POST(s, call)                                                                                                         \
	do {                                                                                                                  \
		double end_ = abi_now() + PATIENCE;                                                                           \
		ssize_t rc_;                                                                                                  \
		while ((rc_ = (call)) == -FI_EAGAIN) {                                                                        \
			(void)turn(&sides[0]);                                                                                \
			(void)turn(&sides[1]);                                                                                \
			catch_up(&sides[(s) == sides], 0);                                                                    \
			if (abi_now() > end_)                                                                                 \
				WRONG("%s: not accepted within %.0f s", #call, PATIENCE);                                     \
		}                                                                                                             \
		if (rc_)                                                                                                      \
			WRONG("%s: %zd (%s)", #call, rc_, fi_strerror((int)-rc_));                                            \
	} while (0)

static struct op *new_op(struct side *s, enum kind kind)
{
	struct op *op = &s->ops[s->posted];
	*op = (struct op){.kind = kind, .from = (int)(s - sides), .number = s->posted, .ends = 1};
	s->posted++;
	posted_all++;
	return op;
}

/* Flags of a call with flags. `fence`: it needs one, unless every order is kept. */
static uint64_t some_flags(struct side *s, struct op *op, int fence)
{
	const uint64_t levels[] = {0, 0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE};
	uint64_t flags = FI_COMPLETION | levels[dice(5)];
	flags |= dice(4) ? 0 : FI_MORE;
	if (fence || dice(16) == 0) {
		flags |= FI_FENCE;
		s->fence = op->number;
	}
	op->delivered = !!(flags & FI_DELIVERY_COMPLETE);
	if (op->kind != READ && op->kind != FETCH && op->kind != COMPARE && op->len <= most_injected && dice(4) == 0)
		flags |= FI_INJECT;
	return flags;
}

/* From which operation on another one has nothing to do with what this one finds. */
static void set_floor(struct side *s, struct op *op)
{
	op->floor = in_order ? op->number : s->fence;
}

static void post_message(struct side *s)
{
	struct op *op = new_op(s, SEND);
	struct fid_ep *ep = s->n.ep;
	op->len = some_length();
	op->tagged = dice(3) > 0;
	op->tag = dice(TAGS + 1);
	unsigned way = dice(6);
	if ((way == 1 || way == 2) && op->len > most_injected)
		way = 0;
	op->has_data = way == 2 || way == 3 || (way == 5 && dice(3) == 0);
	op->ends = way != 1 && way != 2;
	make_pieces(&op->out, op->len, way >= 4 ? 1 + dice(PIECES) : 1, 0);
	op->content = malloc(op->len + 1);
	CHECK(op->content != NULL);
	for (size_t i = 0; i < op->len; i++)
		op->content[i] = byte_of(op, i);
	fill(&op->out, op->content);
	void *buf = op->out.iov[0].iov_base;
	uint64_t flags = way == 5 ? some_flags(s, op, 0) : 0;
	size_t len = op->len, n = op->out.count;
	struct iovec *iov = op->out.iov;
	if (op->has_data)
		flags |= FI_REMOTE_CQ_DATA;
	set_floor(s, op);
	if (op->tagged) {
		struct fi_msg_tagged msg = {.msg_iov = iov, .iov_count = n, .addr = s->peer, .tag = op->tag, .context = op, .data = op->number};
		switch (way) {
		case 1: POST(s, fi_tinject(ep, buf, len, s->peer, op->tag)); break;
		case 2: POST(s, fi_tinjectdata(ep, buf, len, op->number, s->peer, op->tag)); break;
		case 3: POST(s, fi_tsenddata(ep, buf, len, NULL, op->number, s->peer, op->tag, op)); break;
		case 4: POST(s, fi_tsendv(ep, iov, NULL, n, s->peer, op->tag, op)); break;
		case 5: POST(s, fi_tsendmsg(ep, &msg, flags)); break;
		default: POST(s, fi_tsend(ep, buf, len, NULL, s->peer, op->tag, op));
		}
	} else {
		struct fi_msg msg = {.msg_iov = iov, .iov_count = n, .addr = s->peer, .context = op, .data = op->number};
		switch (way) {
		case 1: POST(s, fi_inject(ep, buf, len, s->peer)); break;
		case 2: POST(s, fi_injectdata(ep, buf, len, op->number, s->peer)); break;
		case 3: POST(s, fi_senddata(ep, buf, len, NULL, op->number, s->peer, op)); break;
		case 4: POST(s, fi_sendv(ep, iov, NULL, n, s->peer, op)); break;
		case 5: POST(s, fi_sendmsg(ep, &msg, flags)); break;
		default: POST(s, fi_send(ep, buf, len, NULL, s->peer, op));
		}
	}
	s->open += (unsigned)op->ends;
	if (!op->ends)
		give_back(&op->out);
	else if (flags & FI_INJECT)
		memset(op->out.all, 0x3c, op->out.size);
	match(&sides[!op->from], op);
}

static void post_write(struct side *s)
{
	struct op *op = new_op(s, WRITE);
	struct fid_ep *ep = s->n.ep;
	op->len = some_length();
	unsigned way = dice(8);
	choose_ranges(op, way >= 5 ? 1 + dice(PIECES) : 1, 0);
	int fence = !in_order && conflicts(s, op, 1);
	/* Only a call with flags has a fence. */
	if (fence)
		way = 5;
	if ((way == 1 || way == 2) && op->len > most_injected)
		way = 0;
	op->has_data = way == 2 || way == 3 || (way >= 5 && dice(3) == 0);
	op->ends = way != 1 && way != 2;
	make_pieces(&op->out, op->len, way >= 4 ? 1 + dice(PIECES) : 1, 0);
	unsigned char *content = malloc(op->len + 1);
	CHECK(content != NULL);
	for (size_t i = 0; i < op->len; i++)
		content[i] = byte_of(op, i);
	fill(&op->out, content);
	void *buf = op->out.iov[0].iov_base;
	struct iovec *iov = op->out.iov;
	size_t len = op->len, n = op->out.count;
	uint64_t flags = way >= 5 ? some_flags(s, op, fence) : 0, to = op->riov[0].addr;
	struct fi_msg_rma msg = {.msg_iov = iov, .iov_count = n, .addr = s->peer, .rma_iov = op->riov, .rma_iov_count = op->ranges,
				 .context = op, .data = op->number};
	if (op->has_data) {
		flags |= FI_REMOTE_CQ_DATA;
		sides[!op->from].not_arrived++;
	}
	set_floor(s, op);
	apply(s, op, 0, 1, content);
	free(content);
	s->open += (unsigned)op->ends;
	switch (way) {
	case 0: POST(s, fi_write(ep, buf, len, NULL, s->peer, to, KEY, op)); break;
	case 1: POST(s, fi_inject_write(ep, buf, len, s->peer, to, KEY)); break;
	case 2: POST(s, fi_inject_writedata(ep, buf, len, op->number, s->peer, to, KEY)); break;
	case 3: POST(s, fi_writedata(ep, buf, len, NULL, op->number, s->peer, to, KEY, op)); break;
	case 4: POST(s, fi_writev(ep, iov, NULL, n, s->peer, to, KEY, op)); break;
	default: POST(s, fi_writemsg(ep, &msg, flags));
	}
	if (!op->ends)
		give_back(&op->out);
	else if (flags & FI_INJECT && !op->ended)
		memset(op->out.all, 0x3c, op->out.size);
}

static struct op *post_read(struct side *s, size_t len, int everything)
{
	struct op *op = new_op(s, READ);
	struct fid_ep *ep = s->n.ep;
	op->len = len;
	unsigned way = everything ? 3 : dice(5);
	if (everything) {
		op->ranges = 1;
		op->riov[0] = (struct fi_rma_iov){.addr = 0, .len = WINDOW, .key = KEY};
	} else {
		choose_ranges(op, way >= 3 ? 1 + dice(PIECES) : 1, 0);
	}
	int fence = everything || (!in_order && conflicts(s, op, 0));
	if (fence && way < 3)
		way = 3;
	make_pieces(&op->in, op->len, way >= 2 ? 1 + dice(PIECES) : 1, 0);
	op->content = malloc(op->len + 1);
	CHECK(op->content != NULL);
	collect(s, op, op->content);
	uint64_t flags = way >= 3 ? some_flags(s, op, fence) : 0, at = op->riov[0].addr;
	void *buf = op->in.iov[0].iov_base;
	struct fi_msg_rma msg = {.msg_iov = op->in.iov, .iov_count = op->in.count, .addr = s->peer, .rma_iov = op->riov,
				 .rma_iov_count = op->ranges, .context = op};
	set_floor(s, op);
	apply(s, op, 1, 0, NULL);
	s->open++;
	switch (way) {
	case 0:
	case 1: POST(s, fi_read(ep, buf, op->len, NULL, s->peer, at, KEY, op)); break;
	case 2: POST(s, fi_readv(ep, op->in.iov, NULL, op->in.count, s->peer, at, KEY, op)); break;
	default: POST(s, fi_readmsg(ep, &msg, flags));
	}
	return op;
}

static void to_iocs(const struct pieces *p, struct fi_ioc *iocs, size_t unit)
{
	for (unsigned i = 0; i < p->count; i++)
		iocs[i] = (struct fi_ioc){p->iov[i].iov_base, p->iov[i].iov_len / unit};
}

static void post_atomic(struct side *s, enum kind kind)
{
	struct op *op = new_op(s, kind);
	struct fid_ep *ep = s->n.ep;
	enum fi_datatype type = types[dice(4)];
	size_t unit = (size_t)1 << (type / 2);
	unsigned values = dice(4) ? 1 + dice(8) : 1 + dice((unsigned)(512 / unit));
	enum fi_op how = kind == ATOMIC ? base_ops[dice(9)] : kind == FETCH ? fetch_ops[dice(6)] : compare_ops[dice(5)];
	op->len = values * unit;
	unsigned most = values < PIECES ? values : PIECES, way = dice(4);
	choose_ranges(op, way == 3 ? 1 + dice(most) : 1, unit);
	int changes = how != FI_ATOMIC_READ, fence = !in_order && conflicts(s, op, changes);
	if (fence)
		way = 3;
	if (way == 1 && (kind != ATOMIC || op->len > most_injected))
		way = 0;
	op->ends = way != 1;
	unsigned char *there = malloc(4 * op->len), *with = there + op->len, *compare = with + op->len, *left = compare + op->len;
	CHECK(there != NULL);
	collect(s, op, there);
	for (size_t i = 0; i < op->len; i++) {
		with[i] = (unsigned char)dice(256);
		compare[i] = (unsigned char)dice(256);
	}
	for (size_t i = 0; i < op->len; i += unit) {
		uint64_t a = 0, b = 0, c = 0;
		if (dice(2))
			memcpy(compare + i, there + i, unit);
		memcpy(&a, there + i, unit);
		memcpy(&b, with + i, unit);
		memcpy(&c, compare + i, unit);
		a = value_of(how, a, b, c);
		memcpy(left + i, &a, unit);
	}
	unsigned n = way >= 2 ? 1 + dice(most) : 1;
	struct pieces against = {0};
	struct fi_ioc iocs[PIECES], results[PIECES], compares[PIECES];
	struct fi_rma_ioc ranges[PIECES];
	make_pieces(&op->out, op->len, n, unit);
	fill(&op->out, with);
	to_iocs(&op->out, iocs, unit);
	unsigned results_n = 0;
	if (kind != ATOMIC) {
		results_n = way >= 2 ? 1 + dice(most) : 1;
		make_pieces(&op->in, op->len, results_n, unit);
		to_iocs(&op->in, results, unit);
		op->content = malloc(op->len);
		CHECK(op->content != NULL);
		memcpy(op->content, there, op->len);
	}
	if (kind == COMPARE) {
		make_pieces(&against, op->len, way >= 2 ? 1 + dice(most) : 1, unit);
		fill(&against, compare);
		to_iocs(&against, compares, unit);
		/* Both belong to the operation until its end. */
		struct pieces both = {0};
		both.size = op->out.size + against.size;
		both.all = malloc(both.size);
		CHECK(both.all != NULL);
		both.count = op->out.count;
		for (unsigned i = 0; i < op->out.count; i++)
			both.iov[i] = (struct iovec){both.all + ((unsigned char *)op->out.iov[i].iov_base - op->out.all),
						     op->out.iov[i].iov_len};
		memcpy(both.all, op->out.all, op->out.size);
		memcpy(both.all + op->out.size, against.all, against.size);
		for (unsigned i = 0; i < against.count; i++)
			compares[i].addr = both.all + op->out.size + ((unsigned char *)against.iov[i].iov_base - against.all);
		give_back(&against);
		give_back(&op->out);
		op->out = both;
		to_iocs(&op->out, iocs, unit);
	}
	for (unsigned r = 0; r < op->ranges; r++)
		ranges[r] = (struct fi_rma_ioc){.addr = op->riov[r].addr, .count = op->riov[r].len / unit, .key = KEY};
	uint64_t flags = way == 3 ? some_flags(s, op, fence) : 0, to = op->riov[0].addr;
	struct fi_msg_atomic msg = {.msg_iov = iocs, .iov_count = n, .addr = s->peer, .rma_iov = ranges, .rma_iov_count = op->ranges,
				    .datatype = type, .op = how, .context = op};
	set_floor(s, op);
	apply(s, op, kind != ATOMIC, changes, left);
	s->open += (unsigned)op->ends;
	void *buf = iocs[0].addr, *result = results[0].addr;
	size_t m = against.count;
	switch (kind) {
	case ATOMIC:
		switch (way) {
		case 0: POST(s, fi_atomic(ep, buf, values, NULL, s->peer, to, KEY, type, how, op)); break;
		case 1: POST(s, fi_inject_atomic(ep, buf, values, s->peer, to, KEY, type, how)); break;
		case 2: POST(s, fi_atomicv(ep, iocs, NULL, n, s->peer, to, KEY, type, how, op)); break;
		default: POST(s, fi_atomicmsg(ep, &msg, flags));
		}
		break;
	case FETCH:
		switch (way) {
		case 0: POST(s, fi_fetch_atomic(ep, buf, values, NULL, result, NULL, s->peer, to, KEY, type, how, op)); break;
		case 2: POST(s, fi_fetch_atomicv(ep, iocs, NULL, n, results, NULL, results_n, s->peer, to, KEY, type, how, op)); break;
		default: POST(s, fi_fetch_atomicmsg(ep, &msg, results, NULL, results_n, flags));
		}
		break;
	default:
		switch (way) {
		case 0:
			POST(s, fi_compare_atomic(ep, buf, values, NULL, compares[0].addr, NULL, result, NULL, s->peer, to, KEY, type,
						  how, op));
			break;
		case 2:
			POST(s, fi_compare_atomicv(ep, iocs, NULL, n, compares, NULL, m, results, NULL, results_n, s->peer, to, KEY,
						   type, how, op));
			break;
		default: POST(s, fi_compare_atomicmsg(ep, &msg, compares, NULL, m, results, NULL, results_n, flags));
		}
	}
	if (!op->ends)
		give_back(&op->out);
	else if (flags & FI_INJECT && !op->ended)
		memset(op->out.all, 0x3c, op->out.size);
	free(there);
}

/* Returns whether a thread that sleeps between its calls would make one for this side now. */
static int is_awake(const struct side *s)
{
	struct fid *fids[1] = {&s->n.cq->fid};
	struct pollfd fd = {.fd = s->fd, .events = POLLIN};
	return fi_trywait(s->n.fabric, fids, 1) == -FI_EAGAIN || poll(&fd, 1, 0) > 0;
}

/* Progress of both sides; if they sleep, of those that something has woken. Returns whether any queue said anything. */
static int turn_both(int sleepy)
{
	static double quiet;
	int busy = 0, awake = 0;
	for (int i = 0; i < 2; i++)
		if (!sleepy || is_awake(&sides[i])) {
			busy |= turn(&sides[i]);
			awake++;
		}
	if (awake || quiet == 0)
		quiet = abi_now();
	/* The longest timeout of a packet is far below. */
	if (abi_now() > quiet + LOST_WAKE)
		WRONG("both sides sleep, but %u and %u operations have not ended, and %u and %u have not arrived", sides[0].open,
		      sides[1].open, sides[0].not_arrived, sides[1].not_arrived);
	if (!awake)
		usleep(20);
	return busy;
}

/* Ends everything that is under way, and compares the windows. */
static void come_to_rest(void)
{
	double end = abi_now() + PATIENCE;
	int sleepy = dice(2);
	for (int i = 0; i < 2; i++) {
		catch_up(&sides[i], 0);
		post_read(&sides[i], WINDOW, 1);
	}
	for (;;) {
		int busy = turn_both(sleepy);
		for (int i = 0; i < 2; i++)
			busy |= sides[i].open || sides[i].not_arrived;
		if (!busy)
			break;
		if (abi_now() > end)
			WRONG("not over after %.0f s: %u and %u operations have not ended, %u and %u have not arrived", PATIENCE,
			      sides[0].open, sides[1].open, sides[0].not_arrived, sides[1].not_arrived);
	}
	for (int i = 0; i < 2; i++)
		if (memcmp(sides[!i].window, sides[i].model, WINDOW))
			WRONG("the window of side %d is not as the operations have left it", !i);
}

static void open_sides(void)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC, .order = in_order ? ALL_ORDER : FI_ORDER_SAS, .wait = FI_WAIT_FD};
	want.threading = dice(2) ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
	for (int i = 0; i < 2; i++) {
		struct side *s = &sides[i];
		memset(s, 0, sizeof(*s));
		abi_open(&s->n, &want);
		EQUAL(s->n.info->tx_attr->msg_order & want.order, want.order);
		EQUAL(fi_control(&s->n.cq->fid, FI_GETWAIT, &s->fd), 0);
		abi_fill(s->window, WINDOW, (unsigned)seed + (unsigned)i);
		EQUAL(fi_mr_reg(s->n.domain, s->window, WINDOW, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &s->mr, NULL), 0);
		/* Two messages of a step, and the reads of everything. */
		s->ops = calloc(4 * (size_t)steps + 64, sizeof(*s->ops));
		CHECK(s->ops != NULL);
	}
	for (int i = 0; i < 2; i++) {
		memcpy(sides[i].model, sides[!i].window, WINDOW);
		sides[i].peer = abi_insert(&sides[i].n, &sides[!i].n.name);
	}
	most_injected = sides[0].n.info->tx_attr->inject_size;
}

static void *close_side(void *side)
{
	struct side *s = side;
	EQUAL(fi_close(&s->mr->fid), 0);
	abi_close(&s->n);
	return NULL;
}

static void close_sides(void)
{
	/* At the same time: each waits for the other's last acknowledgement. */
	pthread_t other;
	EQUAL(pthread_create(&other, NULL, close_side, &sides[0]), 0);
	(void)close_side(&sides[1]);
	EQUAL(pthread_join(other, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct side *s = &sides[i];
		for (uint32_t k = 0; k < s->posted; k++)
			free(s->ops[k].content);
		free(s->ops);
		while (s->all) {
			struct receive *r = s->all;
			s->all = r->next;
			/* No message has come for it. */
			for (size_t k = 0; !r->op && k < r->size; k++)
				if (r->into[k] != 0xa5)
					WRONG("byte %zu of a receive without a message was written", k);
			free(r->into);
			free(r);
		}
	}
}

static void post_something(struct side *s)
{
	switch (dice(10)) {
	case 0:
	case 1:
	case 2:
		if (sides[s == sides].waiting_len >= MOST_WAITING)
			catch_up(&sides[s == sides], step % MOST_WAITING);
		post_message(s);
		break;
	case 3:
	case 4:
	case 5: post_write(s); break;
	case 6: post_read(s, some_length(), 0); break;
	case 7: post_atomic(s, ATOMIC); break;
	case 8: post_atomic(s, FETCH); break;
	default: post_atomic(s, COMPARE);
	}
}

static void sequence(void)
{
	states[0] = seed * 0x9e3779b97f4a7c15ULL + 1;
	states[1] = ~states[0];
	for (int i = 0; i < 8; i++)
		(void)dice(2);
	in_order = seed & 1;
	open_sides();
	for (step = 0; step < steps; step++) {
		struct side *s = &sides[dice(2)];
		unsigned what = dice(20);
		if (what < 12) {
			post_something(s);
		} else if (what < 15) {
			int tagged = dice(3) > 0, wild = dice(4) == 0;
			uint64_t tag = dice(TAGS + 1);
			timed = 1;
			if (s->receives_len < MOST_WAITING)
				post_receive(s, tagged, wild, tag);
			timed = 0;
		} else if (what < 19) {
			for (unsigned n = dice(6); n > 0; n--)
				(void)turn(dice(2) ? s : &sides[s == sides]);
		} else if (dice(3) == 0) {
			come_to_rest();
		}
	}
	come_to_rest();
	close_sides();
}

static unsigned number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : argc > 1 ? 1 : number("ORDER_SEQUENCES", getenv("ABI_SLOW") ? 2 : 20);
	double start = abi_now();
	steps = number("ORDER_STEPS", 500);
	for (seed = first; seed < first + count; seed++)
		sequence();
	/* Messages that waited for their receives, and windows that were compared. */
	CHECK(late > 0 && checked_windows > 0);
	printf("%llu sequences: %lu operations, %lu late receives, %lu looks at a window, %.1f s\n", (unsigned long long)count, posted_all,
	       late, checked_windows, abi_now() - start);
	return 0;
}
